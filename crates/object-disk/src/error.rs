//! What can go wrong with a request, in words that hold no secret.
//!
//! Invariant: answers of a server are cut before they quote anything of the request: S3 repeats
//! keys and what was signed in its errors.

use crate::limits::REASON_BYTES_MAX;
use object_store::Error as StoreError;
use std::error::Error;

/// Why a request did not do what it should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The object is not in the version that the request was made for.
    #[error("another process changed it meanwhile")]
    Changed,
    /// The store refused, and would again.
    #[error("{reason}")]
    Refused { reason: String },
    /// No answer, or one that says to come again.
    #[error("{reason}")]
    Failed { reason: String },
    /// An object that is not as long as it must be.
    #[error("it has {found_bytes} bytes instead of {expected_bytes}")]
    Length { found_bytes: u64, expected_bytes: u64 },
    /// The disk belongs to another process now.
    #[error("another process has taken the lease")]
    Deposed,
}

impl RequestError {
    pub(crate) fn failed(reason: &str) -> Self {
        Self::Failed { reason: reason.to_owned() }
    }
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        let refused = |reason: &str| Self::Refused { reason: reason.to_owned() };
        match &error {
            StoreError::Precondition { .. } | StoreError::AlreadyExists { .. } => Self::Changed,
            StoreError::NotFound { .. } => refused("there is no such bucket, or it went away"),
            StoreError::PermissionDenied { .. } => refused("permission denied"),
            StoreError::Unauthenticated { .. } => refused("the credentials are not accepted"),
            StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => {
                refused("the store cannot do what is asked of it")
            }
            _ => Self::Failed { reason: reason_of(&error) },
        }
    }
}

/// The last cause in a chain, without what a server quoted.
fn reason_of(error: &StoreError) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let text = cause.to_string();
    let text = text.split(['<', '\n']).next().unwrap_or_default().trim_end_matches([' ', ':', '-']);
    // An address may carry a user's name and password.
    let text = match text.split_once("://") {
        Some((before, _)) => before.rsplit_once(' ').map_or("the request failed", |(text, _)| text),
        None => text,
    };
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> String {
        let source = text.to_owned().into();
        RequestError::from(StoreError::Generic { store: "S3", source }).to_string()
    }

    #[test]
    fn what_a_server_quotes_is_cut_off() {
        let text = "status 403 Forbidden: <Error><AWSAccessKeyId>AKIASECRET</AWSAccessKeyId>";
        assert_eq!(generic(text), "status 403 Forbidden");
        assert_eq!(generic("connection refused\nSECRET"), "connection refused");
        assert_eq!(generic("cannot reach http://user:SECRET@host/x"), "cannot reach");
        assert_eq!(generic("http://user:SECRET@host/x"), "the request failed");
        assert_eq!(generic(&"\u{e9}".repeat(1000)).len(), REASON_BYTES_MAX);
    }
}
