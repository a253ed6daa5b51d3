//! NVLog: the log of operations of one aggregate, on a disk of its own (decision 10; FlexVol
//! section 2). What is acknowledged to a client is durable here before it is in any consistency
//! point.
//!
//! ```text
//!   | header | header |      half 0      |      half 1      | notes | notes |
//!                       batch batch ...     batch ...
//! ```
//!
//! One half takes the records of the operations that the next consistency point will hold. When
//! that point is frozen, [`Log::switch_half`] directs later records to the other half; when it is
//! durable, [`Log::retire`] makes the first half free, without any I/O. Records are opaque: a
//! kind and bytes.
//!
//! Beside them, in a place of their own, are the notes of stripes that are about to be written in
//! part ([`Notes`]): they are forgotten earlier.
//!
//! Group commit: while one batch is on its way to the disk the next one gathers. A batch is one
//! write and one flush.
//!
//! Architecture invariants:
//! - Records are replayed in the order of their appends; what is found after a crash is a prefix
//!   of that order, with everything in it that was told durable, and nothing that a completed
//!   consistency point holds.
//! - At most one batch is in flight, so a batch is on the disk only if all before it are durable.
//! - No waiter and no disk is called with the log's lock held.
//!
//! Fails: the first error of the disk fails all waiters and every later append: the log never goes
//! on past a record that may be missing.

#![forbid(unsafe_code)]

mod beyond;
mod copies;
mod error;
mod half;
mod headers;
mod log;
mod notes;
mod open;
mod open_copies;
mod scan;
mod staging;

pub use copies::{CopyState, CopyStatus, CopyWitness};
pub use error::{LogError, LogFull};
pub use headers::FormatDone;
pub use log::Log;
pub use notes::{Found, Notes};
pub use open::OpenDone;
pub use open_copies::{CopiesDone, FoundCopies, Places, look, open_copies};

use units::{AggregateUuid, CpNumber, LogUuid};

/// Which log it is, and whose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LogIdentity {
    /// The aggregate.
    pub aggregate: AggregateUuid,
    /// The log itself; new with each format.
    pub log: LogUuid,
}

/// A record's place in the order of appends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogPosition(u64);

impl LogPosition {
    /// The record's number; consecutive over the life of the log.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A record as found after a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The consistency point that would have made it superfluous.
    pub cp: CpNumber,
    /// What the body is: see `ondisk::log`.
    pub kind: u16,
    /// Its place in the order.
    pub position: LogPosition,
    /// The bytes that were appended.
    pub body: Vec<u8>,
}

#[cfg(test)]
mod tests;
