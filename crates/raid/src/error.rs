//! What can go wrong above the disks.

use media::MediaError;
use ondisk::identity::BlockOwner;
use platform::DiskError;
use std::fmt;
use thiserror::Error;
use units::{DiskUuid, Pvbn};

/// Why an aggregate's disks cannot be created or put together.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RaidError {
    /// A disk cannot be used.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// Too few or too many disks for the kind.
    #[error("a {kind} group takes {minimum} to {maximum} disks, not {count}")]
    DiskCount {
        /// The kind.
        kind: ondisk::label::RaidKind,
        /// What was given.
        count: usize,
        /// The least.
        minimum: usize,
        /// The most.
        maximum: usize,
    },
    /// The disks' ranges of block numbers contradict one another.
    #[error(
        "the labels of the disks contradict one another: their block numbers leave gaps or \
         overlap; attach all disks of the aggregate"
    )]
    Ranges,
    /// A group of its own kind cannot take disks.
    #[error(
        "group {group} is without parity and takes no more disks; add them as groups of their own"
    )]
    FixedGroup {
        /// The group.
        group: u32,
    },
    /// There is no such group.
    #[error("the aggregate has no group {group}: it has {count}, counted from 0")]
    NoSuchGroup {
        /// What was given.
        group: u32,
        /// How many there are.
        count: usize,
    },
    /// The aggregate is being made larger or smaller already.
    #[error("disks are being added or a group is being removed already; wait until that is done")]
    Growing,
    /// There was such a group.
    #[error("group {group} was removed: its number is not used again")]
    RemovedGroup {
        /// The group.
        group: u32,
    },
    /// Nothing would be left that an aggregate is opened from.
    #[error(
        "group {group} is the last that is not in an object store, and an aggregate is opened from \
         such disks; add another group of disks first"
    )]
    LastGroup {
        /// The group.
        group: u32,
    },
    /// A disk of the group is being filled.
    #[error(
        "disk {disk} of group {group} is being filled; wait until that is done, or fail it first"
    )]
    Filling {
        /// The group.
        group: u32,
        /// The disk.
        disk: String,
    },
    /// Something is on its way to the group's disks.
    #[error("group {group} is being written; try again after the next consistency point")]
    Written {
        /// The group.
        group: u32,
    },
    /// No groups, or too many.
    #[error("an aggregate has 1 to {maximum} groups, not {count}")]
    GroupCount {
        /// What was given.
        count: usize,
        /// The most.
        maximum: usize,
    },
    /// The name is empty or too long.
    #[error("'{name}' is not an aggregate name: 1 to {maximum} bytes are")]
    Name {
        /// What was given.
        name: String,
        /// The most bytes.
        maximum: usize,
    },
    /// No disks were given.
    #[error("no disk of the aggregate was found")]
    NoDisks,
    /// A disk is of another aggregate than the others.
    #[error("disk {disk} is of aggregate '{found}', disk {other} of aggregate '{expected}'")]
    OtherAggregate {
        /// The disk.
        disk: String,
        /// Its aggregate.
        found: String,
        /// A disk before it.
        other: String,
        /// The aggregate of that.
        expected: String,
    },
    /// One disk was given twice.
    #[error("{disk} and {other} are the same disk, or a copy of it")]
    Duplicate {
        /// The one.
        disk: String,
        /// The other.
        other: String,
    },
    /// There is no such place.
    #[error("group {group} has no disk {member}")]
    NoSuchPlace {
        /// The group.
        group: u32,
        /// The disk's index in it.
        member: usize,
    },
    /// The disk is being rebuilt, or has just been.
    #[error("disk {disk} is in use; wait until it is rebuilt, or fail it first")]
    InUse {
        /// The disk.
        disk: String,
    },
    /// One disk of a group is replaced at a time while it works.
    #[error("disk {disk} of group {group} is being copied to {replacement}; wait until it is done")]
    Copying {
        /// The group.
        group: u32,
        /// The disk.
        disk: String,
        /// Where to.
        replacement: String,
    },
    /// The disk is no missing member.
    #[error("disk {disk} is not a disk that the aggregate misses")]
    NotMissed {
        /// The disk.
        disk: String,
    },
    /// It is not known yet what the disk missed.
    #[error(
        "disk {disk} went offline a moment ago; the aggregate takes it back after the next \
         consistency point"
    )]
    Unsettled {
        /// The disk.
        disk: String,
    },
    /// There is no such spare.
    #[error("there is no spare {identity}")]
    NoSuchSpare {
        /// Its identity.
        identity: DiskUuid,
    },
    /// The disk is out of use already.
    #[error("disk {disk} is not in use")]
    NotInUse {
        /// The disk.
        disk: String,
    },
    /// Without the disk data would be lost.
    #[error(
        "group {group} cannot do without disk {disk}: a {kind} group survives the loss of {}, and \
         as many are missing", kind.parity_disks()
    )]
    Indispensable {
        /// The group.
        group: u32,
        /// Its kind.
        kind: ondisk::label::RaidKind,
        /// The disk.
        disk: String,
    },
    /// A scrub goes on, or waits to be resumed.
    #[error("a scrub is under way: pause, resume or stop it")]
    ScrubUnderWay,
    /// It is paused already.
    #[error("the scrub is paused already: resume or stop it")]
    ScrubPaused,
    /// There is nothing to pause, resume or stop.
    #[error("no scrub is under way: start one")]
    NoScrub,
    /// The store has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// More disks of a group are missing than parity makes good.
    #[error(
        "group {group} is short of {missing} of its {count} disks and can do without {tolerated}; \
         attach {}{}", .absent.join(", "), no_help(.strangers)
    )]
    TooFewDisks {
        /// The group.
        group: u32,
        /// How many are missing.
        missing: usize,
        /// How many it has.
        count: usize,
        /// How many may be missing.
        tolerated: usize,
        /// Identities, or names where they are known, of those that are missing.
        absent: Vec<String>,
        /// Disks that are there and were replaced before: they have no place in the group.
        strangers: Vec<String>,
    },
}

/// That disks which were replaced make good no others.
fn no_help(strangers: &[String]) -> String {
    match strangers {
        [] => String::new(),
        [disk] => format!("; disk {disk} was replaced, and does not count"),
        disks => format!("; disks {} were replaced, and do not count", disks.join(", ")),
    }
}

/// Why writes are not durable. Once it happened every `sync` fails: the store must be closed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// More disks failed than parity makes good.
    #[error("group {group} has lost more disks than its parity tolerates: {cause}")]
    GroupFailed {
        /// The group.
        group: u32,
        /// The last failure.
        cause: MediaError,
    },
    /// The log was on disks of the aggregate, and none with a copy works.
    #[error("no disk with a copy of the journal works: {cause}")]
    LogFailed {
        /// The last failure.
        cause: DiskError,
    },
    /// Stripes could not be noted.
    #[error("the partial-parity log failed: {cause}")]
    Journal {
        /// What it said.
        cause: DiskError,
    },
}

/// What a block should have been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expectation {
    /// The content that the pointer's CRC names.
    Content,
    /// An identity.
    Identity {
        /// The owner.
        owner: BlockOwner,
        /// The low 16 bits of the CRC32C.
        check: u16,
    },
    /// An identity that names the block's owner.
    Owned,
}

impl fmt::Display for Expectation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content => formatter.write_str("the content that its pointer names"),
            Self::Identity { owner, check } => write!(formatter, "{owner} check {check:#06x}"),
            Self::Owned => formatter.write_str("a block that is moved"),
        }
    }
}

/// Why there is no block.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReadFailure {
    /// There is no such place.
    #[error("{pvbn} is beyond the end of the aggregate or of its disk")]
    OutOfRange {
        /// The first block asked for.
        pvbn: Pvbn,
    },
    /// What is there is not what it should be, and parity does not help.
    #[error("{pvbn} on disk {disk} is damaged beyond repair: expected {expected}")]
    Damaged {
        /// The block.
        pvbn: Pvbn,
        /// Its disk.
        disk: String,
        /// What it should have been.
        expected: Expectation,
    },
}
