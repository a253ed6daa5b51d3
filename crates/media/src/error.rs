//! What can be wrong with a disk that should be, or become, one of ours.

use crate::signature::Found;
use ondisk::damage::Damage;
use platform::DiskError;
use thiserror::Error;
use units::ByteSize;

/// Why a disk cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MediaError {
    /// The disk itself failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There is too little of it.
    #[error("disk {disk} has {size}, the least is {minimum}; use a larger disk")]
    TooSmall {
        /// The disk's name.
        disk: String,
        /// What it has.
        size: ByteSize,
        /// What it needs.
        minimum: ByteSize,
    },
    /// Something is on it.
    #[error("disk {disk} holds {found}; if it is to be erased, use --force")]
    Occupied {
        /// The disk's name.
        disk: String,
        /// What is on it.
        found: Found,
    },
    /// It has no label of ours.
    #[error("disk {disk} is not a Stroop disk: it has no label")]
    NoLabel {
        /// The disk's name.
        disk: String,
    },
    /// Another build labelled it, and this build cannot read the label.
    #[error("disk {disk} is of another build of Stroop: {damage}")]
    AnotherBuild {
        /// The disk's name.
        disk: String,
        /// What this build does not read.
        damage: Damage,
    },
    /// Both copies of its label are damaged.
    #[error(
        "both labels of disk {disk} are damaged: {damage}; the disk counts as missing until it is \
         replaced"
    )]
    DamagedLabel {
        /// The disk's name.
        disk: String,
        /// What is wrong with the first.
        damage: Damage,
    },
    /// It was taken out of service.
    #[error("disk {disk} was failed by an administrator")]
    Retired {
        /// The disk's name.
        disk: String,
    },
    /// What was done to it was ended early.
    #[error("zeroing disk {disk} was stopped; begin again with 'stroop disk zero'")]
    Stopped {
        /// The disk's name.
        disk: String,
    },
    /// It is smaller than its label says.
    #[error("disk {disk} has {size} and its label says {labelled}: it was cut off or swapped")]
    Shrunk {
        /// The disk's name.
        disk: String,
        /// What it has.
        size: ByteSize,
        /// What it had.
        labelled: ByteSize,
    },
}
