//! Why an operation ended before its end.
//!
//! Invariants: an operation that stopped has changed nothing.

use cowfs::directory::{DirectoryDamage, DirectoryError};
use cowfs::reader::{Stop, Wait};
use file_service::FsError;
use ondisk::damage::Damage;
use thiserror::Error;
use units::{InodeNumber, Pvbn};

/// What a step of an operation came to.
pub type Outcome<T> = Result<T, OperationStop>;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum OperationStop {
    /// Something must be loaded, or is lost, or there is no room.
    #[error(transparent)]
    Cow(Stop),
    /// The operation is refused.
    #[error(transparent)]
    Error(#[from] FsError),
    /// A directory is not what it should be.
    #[error("directory {directory} cannot be used: {damage}")]
    Directory {
        /// Its inode.
        directory: InodeNumber,
        /// What is wrong.
        damage: DirectoryDamage,
    },
    /// A file's content is not what it should be.
    #[error("content of {inode} cannot be used: {damage}")]
    Content {
        /// Its inode.
        inode: InodeNumber,
        /// What is wrong.
        damage: Damage,
    },
    /// A directory entry or an inode leads to a file that is not there.
    #[error("a reference leads to {inode}, which does not hold that file")]
    Dangling {
        /// The inode.
        inode: InodeNumber,
    },
    /// A log record cannot be replayed.
    #[error("log record '{name}' ({kind}): {error}", name = ondisk::operation::kind_name(*kind))]
    Record {
        /// The record's kind.
        kind: u16,
        /// Why.
        error: RecordError,
    },
}

/// Why a log record cannot be replayed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RecordError {
    /// Its kind is not known.
    #[error("its kind is not known")]
    Kind,
    /// Its bytes are not such a record.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The image is not what the operation was done to.
    #[error("it does not fit the image: {problem} ({inode})")]
    Unfit {
        /// The file where they differ.
        inode: InodeNumber,
        /// How they differ.
        problem: &'static str,
    },
}

impl OperationStop {
    /// What the client is told; `None` if the operation is to run again after [`Self::wait`].
    #[must_use]
    pub const fn fs_error(&self) -> Option<FsError> {
        match self {
            Self::Cow(Stop::Wait(_)) => None,
            Self::Cow(Stop::NoSpace) => Some(FsError::NoSpace),
            Self::Cow(Stop::OverQuota) => Some(FsError::OverQuota),
            Self::Error(error) => Some(*error),
            Self::Cow(
                Stop::Damaged(_)
                | Stop::MetafileDamaged(_)
                | Stop::Contradiction(_)
                | Stop::OtherBuild(_)
                | Stop::Quarantined(_),
            )
            | Self::Directory { .. }
            | Self::Content { .. }
            | Self::Dangling { .. }
            | Self::Record { .. } => Some(FsError::Io),
        }
    }

    /// Whether something cannot be read, or was given up before because of that: damage beyond
    /// parity, and no fault of the operation. What another build wrote is whole.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::Directory { damage, .. } => !damage.problem.is_of_another_build(),
            Self::Content { damage, .. } => !damage.is_of_another_build(),
            Self::Cow(Stop::Damaged(_) | Stop::Quarantined(_)) => true,
            Self::Cow(_) | Self::Error(_) | Self::Dangling { .. } | Self::Record { .. } => false,
        }
    }

    /// Whether a record does not fit the image: as after a record that damage kept from being
    /// replayed.
    #[must_use]
    pub const fn is_unfit(&self) -> bool {
        matches!(
            self,
            Self::Record { error: RecordError::Unfit { .. }, .. } | Self::Dangling { .. }
        )
    }

    /// The block that could not be read, if it is known.
    #[must_use]
    pub const fn damaged_block(&self) -> Option<Pvbn> {
        match self {
            Self::Cow(Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn)) => Some(*pvbn),
            _ => None,
        }
    }

    /// What the operation waits for.
    #[must_use]
    pub const fn wait(&self) -> Option<&Wait> {
        match self {
            Self::Cow(Stop::Wait(wait)) => Some(wait),
            _ => None,
        }
    }

    /// The stop that a failed access to `directory` is.
    pub(crate) fn of_directory(directory: InodeNumber, error: DirectoryError<Stop>) -> Self {
        match error {
            DirectoryError::Wait(stop) => Self::Cow(stop),
            DirectoryError::Damaged(damage) => Self::Directory { directory, damage },
            DirectoryError::Full => Self::Error(FsError::NoSpace),
            DirectoryError::Exists => Self::Error(FsError::Exists),
            DirectoryError::BadName => Self::Error(FsError::Invalid),
        }
    }
}

impl From<Stop> for OperationStop {
    fn from(stop: Stop) -> Self {
        Self::Cow(stop)
    }
}
