//! Partial parity: what closes the write hole.
//!
//! The hole: a stripe is written in part, the power goes, and a disk with it. Of the blocks that
//! were being written and of parity the disks hold old and new, so the blocks of the disk that is
//! gone follow from nothing, those included that were in use and that nobody was writing.
//!
//! So before a stripe is written in part its note holds *partial parity*: parity over its *stable*
//! blocks, those that nobody is writing; the others count as zero. A partial write reads the stable
//! blocks anyway. Parity is linear, so the stable blocks of as many disks as there are parity disks
//! follow from partial parity and from the stable blocks that are left, whatever became of the
//! others; the disks' own parity is not asked. Afterwards the others are what is found, or zeros
//! where nothing is, and parity is written anew: the stripe is whole.
//!
//! What is stable: a block that no batch has written since the last `sync` completed. Other batches
//! of the same consistency point may have written a stripe before this one, and a crash may take
//! from that, too; so the store remembers what was written until a `sync` makes it durable, each
//! note names all of it, and of two notes of a row the later counts. Whoever is not in use is
//! stable like any other block: what it holds is nobody's, but does not change.
//!
//! A row in which every block is being written needs no note: nothing in it is anybody's.
//!
//! The row of checksum blocks is written with every other. A checksum block is the identities of a
//! disk's blocks: those of stable blocks are the same before and after, in whatever order its
//! sectors reach the disk, and the others count as zero. What was never an identity counts as zero
//! as well, for a write makes it that.
//!
//! Disks that are missing when a stripe is noted need nothing more: what they would hold was
//! resolved, and is in partial parity. So it does not matter which disks are missing at the note,
//! which go with the power, which were rebuilt, replaced or copied in between, or come back with
//! what they had: as many may be lost at the start after a crash as the group has parity disks, and
//! what the others hold in stable places is the same whichever way it came there. Stripes are noted
//! also where no parity disk is there: it may be rebuilt from blocks that a crash takes, and a disk
//! may go then. A disk that joins holds zeros, which change no sum.
//!
//! When a note may be forgotten: see `io/noting.rs`. One that is applied though its batch is
//! durable does no harm as long as nothing else has been written there since: its stable blocks are
//! still what they were.
//!
//! Invariants: a stable block that partial parity was computed from does not change until the note
//! is forgotten or another note of the row is durable. Recovery changes no stable block, so it can
//! be cut and begun again, with other disks lost then.
//!
//! Fails: a note that does not fit its group is that of a growth which the crash undid: skipped.

use crate::layout::TetrisId;
use crate::partial_parity_log::PartialParityNote;
use crate::stripe::parity::Code;
use crate::stripe::resolution::Answer;
use crate::stripe::rows::{CHECKSUM_ROW, Column, DATA_ROWS, RowSet, get_row, set_row};
use ondisk::identity::{BlockIdentity, ChecksumBlock};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{BlockRef, zero_block};

/// A row of a note.
struct PartialRow {
    parity: Vec<BlockRef>,
    /// For each data disk whether its block was being written.
    written: Vec<bool>,
}

/// What the notes of a tetris say.
#[derive(Default)]
pub(crate) struct PartialParity {
    rows: BTreeMap<usize, PartialRow>,
    /// The blocks whose identities count as zero, of each data disk.
    written: Vec<RowSet>,
}

/// What a tetris holds after a crash, and what of it must be written to the disks.
pub(crate) struct Recovered {
    /// All noted rows of each data disk.
    pub columns: Vec<Column>,
    pub repairs: Vec<Column>,
}

/// The note of a batch that writes to `rows`, some of them in part; `None` if nothing in them is
/// stable. `stable` is the parity of the stable blocks, by row, `checksums` the checksum blocks
/// that will be.
pub(crate) fn note(
    (tetris, code): (TetrisId, Code),
    rows: RowSet,
    written: &[RowSet],
    stable: &BTreeMap<usize, Vec<BlockRef>>,
    checksums: &[Option<BlockRef>],
) -> Option<PartialParityNote> {
    let (mut noted, mut parity) = (RowSet::EMPTY, Vec::new());
    for (row, blocks) in stable {
        noted.insert(*row);
        parity.extend(blocks.iter().cloned());
    }
    let is_stable = |row: usize| written.iter().any(|written| !written.contains(row));
    if !rows.is_empty() && DATA_ROWS.iter().any(is_stable) {
        let blocks = written.iter().zip(checksums).map(|(written, block)| match block {
            Some(block) => stable_identities(block, *written),
            None => unreachable!("every checksum block is new or was resolved"),
        });
        let blocks: Vec<BlockRef> = blocks.collect();
        noted.insert(CHECKSUM_ROW);
        parity.extend(code.encode(blocks.iter()));
    }
    let written = written.iter().map(|rows| rows.0).collect();
    (!noted.is_empty()).then_some(PartialParityNote { tetris, rows: noted.0, written, parity })
}

/// A checksum block of which only the identities of stable blocks are left.
fn stable_identities(block: &BlockRef, written: RowSet) -> BlockRef {
    let mut stable = Arc::clone(block);
    let checksums = ChecksumBlock::view_mut(Arc::make_mut(&mut stable));
    for (row, identity) in checksums.identities.iter_mut().enumerate() {
        if row == CHECKSUM_ROW || written.contains(row) || identity.validate().is_err() {
            *identity = BlockIdentity::zeroed();
        }
    }
    stable
}

impl PartialParity {
    /// Takes in the next note of the tetris; false if it does not fit.
    pub(crate) fn add(&mut self, note: &PartialParityNote, code: Code) -> bool {
        let rows = RowSet(note.rows);
        if note.parity.len() != rows.iter().count() * code.parity_disks || code.parity_disks == 0 {
            return false;
        }
        // Disks that joined later hold zeros.
        let written = (0..code.data_disks).map(|disk| note.written.get(disk).copied().unwrap_or(0));
        let written: Vec<RowSet> = written.map(RowSet).collect();
        for (row, parity) in rows.iter().zip(note.parity.chunks_exact(code.parity_disks)) {
            let is_written = written.iter().map(|rows| row != CHECKSUM_ROW && rows.contains(row));
            let partial = PartialRow { parity: parity.to_vec(), written: is_written.collect() };
            self.rows.insert(row, partial);
        }
        if rows.contains(CHECKSUM_ROW) {
            self.written = written;
        }
        true
    }

    /// The rows that were noted.
    pub(crate) fn rows(&self) -> RowSet {
        let mut rows = RowSet::EMPTY;
        self.rows.keys().for_each(|row| rows.insert(*row));
        rows
    }

    /// Turns what was read of noted rows into rows of stable blocks, of which every parity block is
    /// known.
    pub(crate) fn mask(&self, columns: &mut [Column], code: Code) {
        for (row, partial) in &self.rows {
            set_row(columns, *row, partial.parity.clone());
            for (disk, is_written) in partial.written.iter().enumerate() {
                let column = &mut columns[code.member(disk)];
                if *is_written {
                    column.set(*row, zero_block());
                }
            }
        }
        for (disk, written) in self.written.iter().enumerate() {
            let column = &mut columns[code.member(disk)];
            if *written == DATA_ROWS {
                column.set(CHECKSUM_ROW, zero_block());
            } else if let Some(block) = column.get(CHECKSUM_ROW) {
                let stable = stable_identities(block, *written);
                column.set(CHECKSUM_ROW, stable);
            }
        }
    }

    /// The stable blocks, as they were resolved, and the others as they were found.
    pub(crate) fn unmask(
        &self,
        answer: &Answer,
        code: Code,
        is_missing: impl Fn(usize) -> bool,
    ) -> Recovered {
        let mut columns = answer.columns.clone();
        let mut repairs = answer.repairs.clone();
        for (row, partial) in &self.rows {
            let found = get_row(&answer.found, *row);
            for (disk, _) in partial.written.iter().enumerate().filter(|(_, written)| **written) {
                let block = found[code.member(disk)];
                columns[disk].set(*row, block.cloned().unwrap_or_else(zero_block));
                repairs[disk].remove(*row);
                if block.is_none() && !is_missing(disk) {
                    // Nobody's: what cannot be read is not worth to be kept.
                    repairs[disk].set(*row, zero_block());
                }
            }
        }
        for (disk, written) in self.written.iter().enumerate() {
            let found = answer.found[code.member(disk)].get(CHECKSUM_ROW);
            let Some(stable) = columns[disk].get(CHECKSUM_ROW) else { continue };
            let whole = with_identities(stable, found, *written);
            repairs[disk].remove(CHECKSUM_ROW);
            if found != Some(&whole) && !is_missing(disk) {
                repairs[disk].set(CHECKSUM_ROW, Arc::clone(&whole));
            }
            columns[disk].set(CHECKSUM_ROW, whole);
        }
        Recovered { columns, repairs }
    }
}

/// Stable identities, and those of other blocks as far as they were found.
fn with_identities(stable: &BlockRef, found: Option<&BlockRef>, written: RowSet) -> BlockRef {
    let mut whole = Arc::clone(stable);
    if let Some(found) = found {
        let into = ChecksumBlock::view_mut(Arc::make_mut(&mut whole));
        let found = ChecksumBlock::view(found);
        for row in written.iter().filter(|row| *row != CHECKSUM_ROW) {
            if found.identities[row].validate().is_ok() {
                into.identities[row] = found.identities[row];
            }
        }
    }
    whole
}
