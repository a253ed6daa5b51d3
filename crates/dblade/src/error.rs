//! Why the engine refuses an administrator.

use aggregate::AggregateError;
use file_service::FsError;
use thiserror::Error;
use units::Timestamp;

/// See the module.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The aggregate says so.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    /// The file system of a volume says so.
    #[error(transparent)]
    Files(FsError),
    /// No such object.
    #[error("there is no {kind} '{name}'")]
    NotFound {
        /// What was looked for.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The name is taken.
    #[error("{kind} '{name}' exists")]
    Exists {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// What was before the aggregate failed is not over yet.
    #[error("aggregate '{aggregate}' failed, and requests to its disks have not ended yet")]
    Closing {
        /// The aggregate.
        aggregate: String,
    },
    /// The request does not fit what is there.
    #[error("{0}")]
    Conflict(String),
    /// The log of an aggregate is missing or cannot be used.
    #[error("the journal of aggregate '{aggregate}' cannot be used: {cause}")]
    Journal {
        /// The aggregate.
        aggregate: String,
        /// Why.
        cause: String,
    },
    /// The log of an aggregate is lost, and may have had what no consistency point has.
    #[error("the journal of aggregate '{aggregate}' is lost: {cause}")]
    JournalLost {
        /// The aggregate.
        aggregate: String,
        /// Why the log counts as lost.
        cause: String,
        /// When the last consistency point was: what came after it is lost.
        committed: Timestamp,
    },
    /// A record of the log does not fit the image that it should be applied to.
    #[error("replay of aggregate '{aggregate}' stopped at record {record}: {cause}")]
    Replay {
        /// The aggregate.
        aggregate: String,
        /// The record's number.
        record: u64,
        /// Why.
        cause: String,
    },
}

impl From<raid::RaidError> for EngineError {
    fn from(error: raid::RaidError) -> Self {
        Self::Aggregate(error.into())
    }
}

impl EngineError {
    pub(crate) fn journal(aggregate: &str, cause: &impl std::fmt::Display) -> Self {
        Self::Journal { aggregate: aggregate.to_owned(), cause: cause.to_string() }
    }
}
