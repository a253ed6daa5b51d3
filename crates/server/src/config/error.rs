//! What can be wrong with a configuration.
//!
//! Invariant: every variant names the file, and all but the first two the line.

use admin_api::{AdminError, Code};
use std::io;
use std::path::PathBuf;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is too large to be one.
    #[error("{} has {size_bytes} bytes; that is no configuration", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
    /// It is no TOML.
    #[error("{}, line {line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// A key that is not known.
    #[error("{}, line {line}: unknown key '{key}'{}", path.display(), did_you_mean(nearest))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, with its section.
        key: String,
        /// The known key that is most like it, if any is like it at all.
        nearest: Option<&'static str>,
    },
    /// A value that makes no sense.
    #[error("{}, line {line}: {key}: {message}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, with its section.
        key: String,
        /// What is wrong with it.
        message: String,
    },
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean '{nearest}'?"))
}

impl From<ConfigError> for AdminError {
    fn from(error: ConfigError) -> Self {
        let (code, path) = match &error {
            ConfigError::Read { path, error } => match error.kind() {
                io::ErrorKind::NotFound => (Code::NotFound, path),
                io::ErrorKind::PermissionDenied => (Code::Denied, path),
                _ => (Code::Failed, path),
            },
            ConfigError::TooLarge { path, .. }
            | ConfigError::Syntax { path, .. }
            | ConfigError::UnknownKey { path, .. }
            | ConfigError::Value { path, .. } => (Code::Usage, path),
        };
        let read = AdminError::new(code, "cannot use the configuration", path.to_string_lossy());
        let read = read.because(error.to_string());
        if code == Code::NotFound { read.try_next("stroop init") } else { read }
    }
}
