//! What goes wrong with a log.

use ondisk::damage::Damage;
use platform::DiskError;
use thiserror::Error;
use units::{AggregateUuid, LogUuid};

/// Why a log cannot be formatted or opened.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The disk is smaller than the smallest log, or than the log that was formatted on it.
    #[error("log disk {disk} has {size_blocks} blocks, its log needs {needed_blocks}")]
    TooSmall {
        /// The disk's name.
        disk: String,
        /// Its size.
        size_blocks: u64,
        /// The size that it should have.
        needed_blocks: u64,
    },
    /// Neither copy of the header even claims to be one.
    #[error("disk {disk} holds no log")]
    NotALog {
        /// The disk's name.
        disk: String,
    },
    /// Both copies of the header are damaged.
    #[error("the log on disk {disk} is damaged: {damage}")]
    Header {
        /// The disk's name.
        disk: String,
        /// What is wrong with the copy that is nearest to a header.
        damage: Damage,
    },
    /// A newer build wrote a copy of the header, or a record that is to be replayed, and this build
    /// must not use the log.
    #[error(
        "the log on disk {disk} is not opened: {damage}; start the build that wrote it, or a later \
         one"
    )]
    NewerBuild {
        /// The disk's name.
        disk: String,
        /// What this build lacks.
        damage: Damage,
    },
    /// The log belongs to another aggregate.
    #[error("the log on disk {disk} belongs to aggregate {found}")]
    OtherAggregate {
        /// The disk's name.
        disk: String,
        /// Whose it is.
        found: AggregateUuid,
    },
    /// A copy of this log, but none that has everything.
    #[error("the log on disk {disk} missed records, and the copy that has them is not there")]
    StaleCopy {
        /// The disk's name.
        disk: String,
    },
    /// Records are missing in the copies that are there, and one that has them is not.
    #[error("the log on disk {disk} is damaged, and the copy that has everything is not there")]
    OnlyDamaged {
        /// The disk's name.
        disk: String,
    },
    /// The log takes nothing any more.
    #[error("the log is closed, so disk {disk} does not become a copy")]
    Closed {
        /// The disk's name.
        disk: String,
    },
    /// The log has as many copies as it can have.
    #[error("disk {disk} is one too many for copies of the log")]
    NoMoreCopies {
        /// The disk's name.
        disk: String,
    },
    /// A log of this aggregate, but not the one that it uses now.
    #[error("disk {disk} holds log {found}, another of the aggregate's")]
    OtherLog {
        /// The disk's name.
        disk: String,
        /// Which it is.
        found: LogUuid,
    },
    /// Records that were durable are gone: without them later ones must not be replayed.
    #[error("the log on disk {disk} lost durable records: number {first} to {last}")]
    Missing {
        /// The disk's name.
        disk: String,
        /// The first record that is missing.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// The disk failed.
    #[error("the log cannot be read or written: {cause}")]
    Disk {
        /// What it reported.
        #[from]
        cause: DiskError,
    },
}

impl LogError {
    /// The name of the disk that it is about, if it is about one.
    #[must_use]
    pub fn disk(&self) -> Option<&str> {
        match self {
            Self::TooSmall { disk, .. }
            | Self::NotALog { disk }
            | Self::Header { disk, .. }
            | Self::NewerBuild { disk, .. }
            | Self::OtherAggregate { disk, .. }
            | Self::OtherLog { disk, .. }
            | Self::StaleCopy { disk }
            | Self::OnlyDamaged { disk }
            | Self::Closed { disk }
            | Self::NoMoreCopies { disk }
            | Self::Missing { disk, .. } => Some(disk),
            Self::Disk { cause } => Some(cause.disk()),
        }
    }
}

/// Why a record is not appended, or a half not switched.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum LogFull {
    /// The active half has no room until the next consistency point.
    #[error("the log is full: {free_bytes} bytes are free, the record needs {needed_bytes}")]
    Half {
        /// What the record takes.
        needed_bytes: u64,
        /// What there is.
        free_bytes: u64,
    },
    /// The record would not fit an empty half.
    #[error("a record of {bytes} bytes is too large for the log, which takes up to {bytes_max}")]
    RecordTooLarge {
        /// The record's size.
        bytes: u64,
        /// The largest that fits.
        bytes_max: u64,
    },
    /// The other half holds records that no durable consistency point holds.
    #[error("the log's other half is not retired yet")]
    NotRetired,
    /// The log was closed: a consistency point that is called clean is under way, or durable.
    #[error("the log is closed")]
    Closed,
    /// The log's disk failed before; the log takes nothing any more.
    #[error("the log has failed: {cause}")]
    Failed {
        /// What the disk reported.
        cause: DiskError,
    },
}
