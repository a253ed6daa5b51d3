//! Where stripes are noted before they are written in part.
//!
//! The store knows the journal as a trait: who keeps the notes, and on what, is the caller's
//! matter.
//!
//! Fails: a note that cannot be made durable fails the store.

use crate::layout::TetrisId;
use platform::WriteDone;
use units::BlockRef;

/// Stripes of a tetris that are about to be written in part: all that a crash may take of them, and
/// partial parity, which a crash cannot take (see the module `partial_parity`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartialParityNote {
    /// The tetris.
    pub tetris: TetrisId,
    /// A bit for each row; bit 63 is the row of checksum blocks.
    pub rows: u64,
    /// For each data disk a bit for each row, of this note or not, whose block is being written.
    pub written: Vec<u64>,
    /// For each row, in order, a block for each parity disk: parity over the blocks that nobody is
    /// writing.
    pub parity: Vec<BlockRef>,
}

impl PartialParityNote {
    /// What it takes of a journal's room: its blocks and one for the rest.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        1 + self.parity.len() as u64
    }
}

/// Where stripes are noted before they are written in part: closes the write hole.
pub trait PartialParityLog: Send + Sync {
    /// What it has room for in an epoch, counted by [`PartialParityNote::blocks`]. One note of all
    /// rows always fits.
    fn capacity_blocks(&self) -> u64;

    /// Makes a note durable. Epochs are numbered, from 0 when a store is put together: with the
    /// first note of an epoch those before the one before may be forgotten; of that more may come.
    /// All may be forgotten, once the consistency point is complete that they were written for.
    fn note(&self, epoch: u64, note: PartialParityNote, done: WriteDone);
}

/// No journal: for aggregates without parity, and for readers.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoPartialParityLog;

impl PartialParityLog for NoPartialParityLog {
    fn capacity_blocks(&self) -> u64 {
        u64::MAX
    }

    fn note(&self, _epoch: u64, _note: PartialParityNote, done: WriteDone) {
        done(Ok(()));
    }
}
