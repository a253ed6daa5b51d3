//! Errors of each disk: counted, kept over restarts; too many of them make a disk *sick*.
//!
//! Counted are blocks that could not be read, blocks that were read and are not what parity and
//! their identity bear out, and requests that failed or were not answered so that the disk went out
//! of use. What one error does at once is elsewhere: a block is made good from parity and written
//! back (`io/reconstruct.rs`), a disk that does not write or answer is given up
//! (`membership/failure.rs`). A disk that has errors again and again still works, and is worth more
//! than none: it stays in use, the status tells, and whoever has a spare copies it to that (see
//! `replacement`). It is never given up for being sick.
//!
//! Within the window a block counts once, however often it is read: one bad block that nothing
//! makes good is no sick disk. That a disk is sick stays until it is replaced or its errors are
//! cleared.
//!
//! Counts are in the disk's own label, written at a stop and now and then: those of the last minute
//! are lost with a crash, and those of a disk that is out of use are not written to it.
//!
//! Invariants: counting never waits for a disk; errors of a disk that was replaced since do not
//! count for the one in its place; as much is remembered of a disk as makes it sick, no more.

use ondisk::label::{DiskLabel, Sickness};
use platform::mutation::{self, Rule};
use std::collections::BTreeMap;
use units::DiskUuid;

/// Errors are too many if they come within this time: a trickle of them over days is what large
/// disks have.
pub const WINDOW_NANOSECONDS: u64 = 3_600_000_000_000;

/// Blocks within the window that cannot be read, and make a disk sick: single ones are an everyday
/// thing and are made good by writing them anew; ten in an hour are a disk that is going.
pub const UNREADABLE_BLOCKS_MAX: usize = 10;

/// The same of blocks that are not what was written: more, because one lost or misdirected write is
/// a run of blocks, and a cable that was moved a handful of those.
pub const ROTTEN_BLOCKS_MAX: usize = 50;

/// Times within the window that a disk goes out of use by itself: once is a cable or a reset, and
/// each time costs the group its redundancy until the disk has what it missed.
pub const FAILURES_MAX: usize = 3;

/// How often the label takes counts in: a disk with errors must not be kept busy with its label.
const SAVE_INTERVAL_NANOSECONDS: u64 = 60_000_000_000;

/// Errors of a disk since it was labelled, or since they were cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorCounts {
    /// Blocks that could not be read, and reads that were not answered.
    pub read_errors: u32,
    /// Writes and flushes that failed, or were not answered.
    pub write_errors: u32,
    /// Blocks that were not what was written.
    pub checksum_errors: u32,
}

/// A disk that was replaced for being sick, and is nobody's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetiredDisk {
    /// Its name.
    pub name: String,
    /// Why.
    pub sickness: Sickness,
    /// What it had.
    pub errors: ErrorCounts,
    /// The disk that has its place.
    pub replacement: String,
}

/// What is known of a disk's errors: what its label keeps.
pub(crate) type Known = (ErrorCounts, Option<Sickness>);

pub(crate) fn known_of(label: &DiskLabel) -> Known {
    let errors = ErrorCounts {
        read_errors: label.read_errors.get(),
        write_errors: label.write_errors.get(),
        checksum_errors: label.checksum_errors.get(),
    };
    (errors, label.sickness())
}

pub(crate) fn tell((errors, sickness): Known, label: &mut DiskLabel) {
    label.read_errors = errors.read_errors.into();
    label.write_errors = errors.write_errors.into();
    label.checksum_errors = errors.checksum_errors.into();
    label.sickness = sickness.map_or(0, Sickness::number).into();
}

/// Something went wrong; what would make the disk sick if it happens too often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// A block cannot be read.
    Unreadable { block: u64 },
    /// A block is not what was written.
    Rotten { block: u64 },
    /// The disk goes out of use.
    Failure { is_write: bool },
}

const fn most(sickness: Sickness) -> usize {
    match sickness {
        Sickness::Unreadable => UNREADABLE_BLOCKS_MAX,
        Sickness::Rotten => ROTTEN_BLOCKS_MAX,
        Sickness::Unreliable => FAILURES_MAX,
    }
}

/// The errors of a disk that had some since the start.
pub(crate) struct Health {
    /// Its identity.
    pub disk: DiskUuid,
    pub known: Known,
    /// When its label took them in last.
    pub saved_nanoseconds: Option<u64>,
    /// What happened within the window, and when; not yet known of what came after the last tick.
    recent: BTreeMap<(Sickness, u64), Option<u64>>,
    failures: u64,
    /// It failed since the last tick: of all that it had under way one error counts.
    is_failing: bool,
}

#[cfg(test)]
mod tests;

impl Trouble {
    const fn sickness(self) -> Sickness {
        match self {
            Self::Unreadable { .. } => Sickness::Unreadable,
            Self::Rotten { .. } => Sickness::Rotten,
            Self::Failure { .. } => Sickness::Unreliable,
        }
    }
}

impl Health {
    pub(crate) const fn new(disk: DiskUuid, known: Known) -> Self {
        Self {
            disk,
            known,
            saved_nanoseconds: None,
            recent: BTreeMap::new(),
            failures: 0,
            is_failing: false,
        }
    }

    pub(crate) fn add(&mut self, trouble: Trouble) {
        if matches!(trouble, Trouble::Failure { .. })
            && std::mem::replace(&mut self.is_failing, true)
        {
            return;
        }
        let (errors, sickness) = &mut self.known;
        let (count, at) = match trouble {
            Trouble::Unreadable { block } => (&mut errors.read_errors, block),
            Trouble::Rotten { block } => (&mut errors.checksum_errors, block),
            Trouble::Failure { is_write } => {
                self.failures += 1;
                let reads_or_writes = match is_write {
                    true => &mut errors.write_errors,
                    false => &mut errors.read_errors,
                };
                (reads_or_writes, self.failures)
            }
        };
        *count = count.saturating_add(1);
        if sickness.is_some() {
            return;
        }
        let kind = trouble.sickness();
        self.recent.insert((kind, at), None);
        let same = self.recent.keys().filter(|(known, _)| *known == kind);
        let most = if mutation::broken(Rule::SickTooSoon) { 2 } else { most(kind) };
        if same.count() >= most {
            *sickness = Some(kind);
            self.recent.clear();
        }
    }

    /// Time passes: what is old counts no more.
    pub(crate) fn tick(&mut self, now: u64) {
        self.is_failing = false;
        self.recent.retain(|_, when| {
            let when = *when.get_or_insert(now);
            now.saturating_sub(when) < WINDOW_NANOSECONDS
        });
    }

    /// Whether the label may be written again; at a stop, when no time is given, in any case.
    pub(crate) fn may_be_saved(&self, now: Option<u64>) -> bool {
        let saved = self.saved_nanoseconds.zip(now);
        saved.is_none_or(|(saved, now)| now.saturating_sub(saved) >= SAVE_INTERVAL_NANOSECONDS)
    }
}
