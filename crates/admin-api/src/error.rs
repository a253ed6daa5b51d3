//! The one error of the management plane.
//!
//! Invariants: it names the object, the cause and the next step; it survives the wire unchanged;
//! [`Code::exit_status`] is the only place where exit statuses are decided; `stroop --help`
//! lists them.

use crate::titles::is_queue_name;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of an error: what a script decides on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// It was tried and went wrong.
    Failed,
    /// The request makes no sense as it stands.
    Usage,
    /// The object is not there.
    NotFound,
    /// The object exists, is in use, or something stands in the way.
    Conflict,
    /// The caller may not do this.
    Denied,
    /// No server answers.
    Unreachable,
    /// No answer in time; the work may still be going on.
    TimedOut,
    /// The health checks do not all pass (`status --check`).
    Unhealthy,
}

impl Code {
    /// The exit status of a command that ends with this error.
    #[must_use]
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Conflict => 4,
            Self::Denied => 5,
            Self::Unreachable => 6,
            Self::TimedOut => 7,
            Self::Unhealthy => 8,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::Denied => "denied",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed out",
            Self::Unhealthy => "not healthy",
        })
    }
}

/// Why a request was not carried out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub struct AdminError {
    /// The kind.
    pub code: Code,
    /// What could not be done: "cannot delete volume".
    pub message: String,
    /// What it could not be done to; empty where there is no one object.
    pub object: String,
    /// Why, a line for each reason.
    #[serde(default)]
    pub cause: Vec<String>,
    /// A command or act that helps.
    #[serde(default)]
    pub next: Option<String>,
}

/// Clones that a refusal names at most.
const HOLDERS_NAMED_MAX: usize = 8;

impl AdminError {
    /// An error without a cause or a next step as yet.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>, object: impl Into<String>) -> Self {
        let (message, object) = (message.into(), object.into());
        Self { code, message, object, cause: Vec::new(), next: None }
    }

    /// Adds a reason.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause.push(cause.into());
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn try_next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// A request that makes no sense.
    #[must_use]
    pub fn usage(message: impl Into<String>, object: impl Into<String>) -> Self {
        Self::new(Code::Usage, message, object)
    }

    /// A snapshot or volume cannot be deleted, because these clones share its blocks. `what` says
    /// what the clones use: "it", "its snapshots".
    #[must_use]
    pub fn held_by_clones(
        message: impl Into<String>,
        object: impl Into<String>,
        (what, clones): (&str, &[String]),
    ) -> Self {
        let error = Self::new(Code::Conflict, message, object);
        let Some(first) = clones.first() else { return error };
        let count = match clones.len() {
            1 => "1 clone uses".to_owned(),
            count => format!("{count} clones use"),
        };
        error.because(format!("{count} {what}: {}", named(clones))).try_next(
            match is_queue_name(first) {
                true => format!("stroop volume purge {first}, which is deleted and kept"),
                false => {
                    format!("stroop volume delete {first} --queue-for 0s, once nobody needs it")
                }
            },
        )
    }

    /// Snapshots that would go are held. Each is named with its volume.
    ///
    /// # Errors
    /// There are such snapshots.
    pub fn unless_held(
        message: impl Into<String>,
        object: impl Into<String>,
        held: &[String],
    ) -> Result<(), Self> {
        let Some(first) = held.first() else { return Ok(()) };
        Err(Self::new(Code::Conflict, message, object)
            .because(format!("held, and not to be deleted: {}", named(held)))
            .try_next(format!("stroop snapshot release {first}, once nobody needs it")))
    }

    /// A request about a thing that is not there; `noun` says what kind of thing.
    #[must_use]
    pub fn missing(message: impl Into<String>, noun: &str, name: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message, name)
            .because(format!("there is no {noun} of this name"))
            .try_next(match noun {
                "aggregate" => "stroop aggr list",
                "snapshot" => "stroop snapshot list",
                "disk" => "stroop disk list",
                _ => "stroop volume list",
            })
    }

    /// The whole of it for a person: what, why, what next.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = self.message.clone();
        if !self.object.is_empty() {
            text.push_str(&format!(" '{}'", self.object));
        }
        text.push_str(&format!(" ({}, exit {})", self.code, self.code.exit_status()));
        for cause in self.cause.iter().flat_map(|cause| cause.lines()) {
            text.push_str("\n  ");
            text.push_str(cause);
        }
        if let Some(next) = &self.next {
            text.push_str("\ntry: ");
            text.push_str(next);
        }
        text
    }
}

/// One line, for logs.
impl fmt::Display for AdminError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        if !self.object.is_empty() {
            write!(formatter, " '{}'", self.object)?;
        }
        if !self.cause.is_empty() {
            write!(formatter, ": {}", self.cause.join("; "))?;
        }
        Ok(())
    }
}

/// The first names, and how many more there are.
fn named(names: &[String]) -> String {
    let others = names.len().saturating_sub(HOLDERS_NAMED_MAX);
    let named = names[..names.len() - others].join(", ");
    if others > 0 { format!("{named} and {others} more") } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_object_cause_and_next_step() {
        let error = AdminError::new(Code::Conflict, "cannot delete", "home")
            .because("2 clones use its snapshots:\ndev1, dev2")
            .try_next("stroop clone split dev1 dev2");
        assert_eq!(
            error.render(),
            "cannot delete 'home' (conflict, exit 4)\n  2 clones use its snapshots:\n  dev1, \
             dev2\ntry: stroop clone split dev1 dev2"
        );
        let wire = serde_json::to_string(&error).unwrap();
        assert_eq!(serde_json::from_str::<AdminError>(&wire).unwrap(), error);
    }

    #[test]
    fn exit_statuses_are_those_of_the_manual() {
        let codes = [
            Code::Failed,
            Code::Usage,
            Code::NotFound,
            Code::Conflict,
            Code::Denied,
            Code::Unreachable,
            Code::TimedOut,
            Code::Unhealthy,
        ];
        let statuses: Vec<u8> = codes.iter().map(|code| code.exit_status()).collect();
        assert_eq!(statuses, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
