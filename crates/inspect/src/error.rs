//! Why media cannot be inspected at all. What is wrong with media that can is a
//! [`crate::Finding`].

use crate::finding::Finding;
use media::MediaError;
use ondisk::damage::Damage;
use thiserror::Error;
use units::CpNumber;

/// Why an inspection cannot begin, or not give its answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No disk of an aggregate is among those given.
    #[error("no disk of an aggregate was found")]
    NoDisks,
    /// The ranges of block numbers that the labels give leave gaps or overlap.
    #[error("the labels of the disks contradict one another; give all disks of the aggregate")]
    Ranges,
    /// A disk cannot be used.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// A disk is of another aggregate than the first, or of a former life of this one.
    #[error("disk {disk} does not belong to the aggregate of disk {other}")]
    Stranger {
        /// The disk.
        disk: String,
        /// The first disk.
        other: String,
    },
    /// More disks of a group are missing than parity makes good.
    #[error("group {group} lacks {missing} of its {count} disks and can do without {tolerated}")]
    TooFewDisks {
        /// The group.
        group: u32,
        /// How many are missing.
        missing: usize,
        /// How many it has.
        count: usize,
        /// How many may be missing.
        tolerated: usize,
    },
    /// No slot of any disk holds a valid superblock.
    #[error("there is no valid superblock{}", .last.as_ref().map_or(String::new(), |d| format!(": {d}")))]
    NoSuperblock {
        /// What is wrong with the last one looked at.
        last: Option<Damage>,
    },
    /// The superblock in a slot has rotted on every disk that has one there: what can be read is an
    /// older image, of which blocks may have been overwritten.
    #[error(
        "superblock slot {slot} has rotted on every disk that has it: the aggregate is newer than \
         consistency point {found}, and nothing is to be said of that older image; attach a disk \
         that is missing"
    )]
    SuperblockRotten {
        /// The slot.
        slot: usize,
        /// The newest consistency point of which a superblock is whole.
        found: CpNumber,
    },
    /// What was given as a superblock is none of this aggregate.
    #[error("not the superblock of this aggregate: {0}")]
    Superblock(Damage),
    /// The disks do not answer.
    #[error("the disks do not answer")]
    Stalled,
    /// Whoever watches the check did not want it to go on.
    #[error("the check was given up")]
    GivenUp,
    /// There is no such volume.
    #[error("there is no volume '{name}'")]
    NoVolume {
        /// The name asked for.
        name: String,
    },
    /// There is no such snapshot.
    #[error("volume '{volume}' has no snapshot '{name}'")]
    NoSnapshot {
        /// The volume.
        volume: String,
        /// The name asked for.
        name: String,
    },
    /// What was asked for cannot be read whole; `check` says more.
    #[error("damaged: {0}")]
    Damaged(Box<Finding>),
}
