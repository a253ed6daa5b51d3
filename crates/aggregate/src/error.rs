//! Why an aggregate refuses or fails.

use crate::block_side::evacuation::EvacuationError;
use nvlog::LogError;
use ondisk::damage::Damage;
use ondisk::features::FeatureName;
use raid::{RaidError, StoreError};
use thiserror::Error;
use units::{CpNumber, Pvbn};

/// What this build lacks of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Lacking {
    /// This feature, as the volume's record names it.
    #[error("uses the feature '{0}', which this build of Stroop lacks")]
    Feature(FeatureName),
    /// A structure below the volume's record is of another build, which this one cannot read.
    #[error("is not understood: {0}")]
    Structure(Damage),
}

/// See the module.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AggregateError {
    /// The disks do not make up an aggregate.
    #[error(transparent)]
    Raid(#[from] RaidError),
    /// Writes could not be made durable: the aggregate is out of service.
    #[error("aggregate is out of service: {0}")]
    Store(#[from] StoreError),
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// No superblock of any disk is valid.
    #[error("no valid superblock on any disk of the aggregate; the last one found says: {last}")]
    NoSuperblock {
        /// What was wrong with one of them.
        last: String,
    },
    /// A superblock slot can be read on no disk, or has rotted on all, so the newest superblock may
    /// be one that is lost.
    #[error(
        "superblock slot {slot} of disk {disk} cannot be read, or has rotted, and no other disk has \
         a copy of it: the aggregate may be newer than consistency point {found}, which can be \
         read, and an older image is not opened; attach a disk that is missing, or a copy of disk \
         {disk} on which the slot is whole, and start again"
    )]
    SuperblockUnreadable {
        /// A disk with the slot.
        disk: String,
        /// The slot.
        slot: usize,
        /// The newest consistency point of which a superblock can be read.
        found: CpNumber,
    },
    /// A structure on media is not what it should be.
    #[error("{what}: {damage}")]
    Damaged {
        /// The structure that was read, and the disk that has it.
        what: String,
        /// What is wrong.
        damage: Damage,
    },
    /// A block that is needed cannot be read.
    #[error("{what}: {pvbn} is damaged beyond repair")]
    Unreadable {
        /// What was read.
        what: &'static str,
        /// Where.
        pvbn: Pvbn,
    },
    /// The image contradicts itself, though every block of it is proved.
    #[error("{what} contradicts itself: {problem}; nothing more is written")]
    Contradiction {
        /// The part.
        what: &'static str,
        /// How.
        problem: &'static str,
    },
    /// The disks are too small.
    #[error("the disks hold {found_blocks} blocks; an aggregate takes {minimum_blocks} at least")]
    TooSmall {
        /// What there is.
        found_blocks: u64,
        /// What there must be.
        minimum_blocks: u64,
    },
    /// The aggregate is being taken out of service.
    #[error("aggregate is stopping")]
    Stopping,
    /// There is no room for what was asked for.
    #[error("the aggregate is full; remove files, snapshots or volumes, and purge deleted volumes")]
    Full,
    /// A volume has no room for what was asked for.
    #[error("the volume is full; remove files or snapshots")]
    VolumeFull,
    /// A newer build wrote the volume, and this build must not change it.
    #[error("volume '{volume}' {lacking}; start the build that wrote it, or a later one")]
    NotUnderstood {
        /// The volume's name.
        volume: String,
        /// Why.
        lacking: Lacking,
    },
    /// A group cannot leave.
    #[error(transparent)]
    Evacuation(#[from] EvacuationError),
    /// A request cannot be met.
    #[error("{0}")]
    Refused(String),
}

impl AggregateError {
    /// A part of the aggregate that another build wrote, and that this one cannot read.
    #[must_use]
    pub fn other_build(what: &str, damage: Damage) -> Self {
        Self::Damaged { what: what.to_owned(), damage }
    }

    /// Whether it is over as soon as disks that are away return: then the aggregate is opened anew,
    /// and its clients wait.
    #[must_use]
    pub const fn is_of_disks(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::GroupFailed { .. } | StoreError::LogFailed { .. })
                | Self::Raid(RaidError::TooFewDisks { .. })
        )
    }

    /// Whether the journal failed: the disk of the log, which notes of stripes are on, too.
    #[must_use]
    pub const fn is_of_journal(&self) -> bool {
        matches!(self, Self::Store(StoreError::Journal { .. }) | Self::Log(_))
    }
}
