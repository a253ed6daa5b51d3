//! What can be wrong.

use file_service::FsError;
use model_fs::crash::CrashViolation;
use model_fs::{Difference, ImageError, Mismatch, Observation};
use thiserror::Error;

/// What a seed's life found wrong with the engine.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum Finding {
    /// The engine answers an operation otherwise than the model, or its tree differs.
    #[error("volume {volume}: {mismatch}")]
    Mismatch {
        /// The volume.
        volume: String,
        /// How.
        mismatch: Box<Mismatch>,
    },
    /// After a crash a volume holds what its history does not allow.
    #[error("volume {volume} after a crash: {violation}")]
    Crash {
        /// The volume.
        volume: String,
        /// Why.
        violation: Box<CrashViolation>,
    },
    /// A tree cannot be read.
    #[error("volume {volume} cannot be read: {error}")]
    Unreadable {
        /// The volume.
        volume: String,
        /// Why.
        error: ImageError,
    },
    /// A snapshot's content changed.
    #[error("volume {volume}, snapshot {snapshot} changed:{}", listed(.differences))]
    SnapshotChanged {
        /// The volume.
        volume: String,
        /// The snapshot's number.
        snapshot: u8,
        /// How.
        differences: Vec<Difference>,
    },
    /// Volumes or snapshots are there that must not be, or are missing.
    #[error("{what}: expected {expected}, found {found}")]
    Listing {
        /// Of what.
        what: String,
        /// What must be there.
        expected: String,
        /// What is.
        found: String,
    },
    /// A request of management was refused that must be granted.
    #[error("{request}: {error}")]
    Refused {
        /// The request.
        request: String,
        /// Why.
        error: String,
    },
    /// A volume takes no changes, and nothing of it was damaged.
    #[error("volume {volume} is read-only: {damage}")]
    ReadOnly {
        /// The volume.
        volume: String,
        /// Why, as the engine has it.
        damage: String,
    },
    /// The aggregate cannot be opened after a crash or a stop.
    #[error("the aggregate does not open: {0}")]
    Open(String),
    /// Nothing is left to run and something is not answered.
    #[error("stalled: {waiting}")]
    Stalled {
        /// What waits.
        waiting: String,
    },
    /// More steps than any seed needs.
    #[error("no end after {steps} steps: {waiting}")]
    Endless {
        /// How many.
        steps: u64,
        /// What waits.
        waiting: String,
    },
    /// The media say otherwise than the engine.
    #[error("on the media: {0}")]
    Media(String),
    /// Space is not what it must be.
    #[error("space: {0}")]
    Space(String),
    /// Two affinities ran at once of which one covers the other.
    #[error("exclusion: {0}")]
    Exclusion(String),
    /// What an operator is told, or what came of a call, is wrong.
    #[error("{asked}: {wrong}")]
    Operator {
        /// The call.
        asked: String,
        /// What is wrong.
        wrong: String,
    },
    /// What a client of a front end is told is wrong.
    #[error("{0}")]
    Client(String),
    /// The power goes now: no finding, but on its way up through all that was going on.
    #[error("a power cut")]
    PowerCut,
    /// The aggregate has lost too many disks: no finding either.
    #[error("an outage")]
    Outage,
    /// The engine panicked.
    #[error("panic: {0}")]
    Panic(String),
}

impl Finding {
    /// Whether it says that something cannot be read: that it is lost, and known to be, rather than
    /// wrong.
    #[must_use]
    pub fn is_known_loss(&self) -> bool {
        match self {
            Self::Mismatch { mismatch, .. } => match &**mismatch {
                Mismatch::Answer { found, .. } => **found == Observation::Failed(FsError::Io),
                Mismatch::Image(error) => is_io(error),
                Mismatch::Tree { .. } => false,
            },
            Self::Unreadable { error, .. } => is_io(error),
            Self::Open(error) => error.contains("damaged beyond repair"),
            _ => false,
        }
    }
}

const fn is_io(error: &ImageError) -> bool {
    matches!(error, ImageError::Refused { error: FsError::Io, .. })
}

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(|one| format!("\n  {one}")).collect()
}
