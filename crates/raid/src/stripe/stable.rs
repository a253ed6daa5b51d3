//! What parity the stable blocks of a row have: those that stay while others are written.
//!
//! New parity is that and the parity of what is written; the note of a stripe that is written in
//! part is that alone (see `partial_parity`). There are two ways to it:
//!
//! - *reconstruct-write*: the stable blocks are read;
//! - *read-modify-write*: old parity is read, and the blocks that are overwritten, which are taken
//!   out of it. In a wide group, of which a row is written in a few places, this reads much less.
//!
//! For each row the way that reads fewer blocks is taken. What is read must be right, or what is
//! wrong would go on for ever: old row parity is proved by the identities of the row. Their
//! checksums are linear, so their sum is the checksum of the blocks' sum.
//!
//! Diagonal parity has no such proof, and may be old where the identities and row parity of a row
//! are not: a row that was written whole when the power went is not noted, and disks that had been
//! another aggregate's hold what they held. So where there is any, the stable blocks are read; and
//! so they are where a disk is missing, or anything fails its proof.
//!
//! Invariants: parity that is not proved is never used to make new parity.

use crate::layout::{Group, Missing};
use crate::stripe::parity::{Code, xor};
use crate::stripe::resolution::{Answer, is_proved};
use crate::stripe::rows::{CHECKSUM_ROW, RowSet, get_row};
use ondisk::identity::{ChecksumBlock, linear_crc32c};
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::{BlockRef, zero_block};

/// The rows of those in which something is written of which read-modify-write reads less.
pub(crate) fn rows_to_modify(
    group: &Group,
    missing: Missing,
    rows: RowSet,
    written: &[RowSet],
) -> RowSet {
    let code = group.code();
    let is_whole = (0..group.members.len()).all(|at| group.device(at, missing).is_some());
    let mut modified = RowSet::EMPTY;
    if code.parity_disks != 1 || !is_whole {
        return modified;
    }
    for row in rows.iter() {
        let overwritten = written.iter().filter(|written| written.contains(row)).count();
        let stable = code.data_disks - overwritten;
        if overwritten + code.parity_disks < stable {
            modified.insert(row);
        }
    }
    modified
}

/// The parity of a row's stable blocks; `None` if it cannot be told from what was read.
pub(crate) fn stable_parity(
    code: Code,
    answer: &Answer,
    written: &[RowSet],
    row: usize,
) -> Option<Vec<BlockRef>> {
    let is_stable_known = |(disk, written): (usize, &RowSet)| {
        written.contains(row) || answer.columns[disk].get(row).is_some()
    };
    if written.iter().enumerate().all(is_stable_known) {
        return Some(parity_of(code, answer, written, row, false));
    }
    let is_overwritten_proved = |(disk, written): (usize, &RowSet)| {
        let column = &answer.columns[disk];
        !written.contains(row) || is_proved(column.get(CHECKSUM_ROW), row, column.get(row))
    };
    if !written.iter().enumerate().all(is_overwritten_proved) {
        return None;
    }
    let known = get_row(&answer.found[..code.parity_disks], row);
    let old: Option<Vec<BlockRef>> = known.into_iter().map(Option::<&BlockRef>::cloned).collect();
    let old = old.filter(|old| is_sum_of_row(&old[0], answer, row))?;
    let overwritten = parity_of(code, answer, written, row, true);
    Some(sums(&old, &overwritten))
}

/// The parity of the blocks of a row that are being written, or of the others, as they were.
fn parity_of(
    code: Code,
    answer: &Answer,
    written: &[RowSet],
    row: usize,
    of_written: bool,
) -> Vec<BlockRef> {
    let blocks = written.iter().zip(&answer.columns).map(|(written, column)| {
        if written.contains(row) != of_written {
            return zero_block();
        }
        let Some(block) = column.get(row) else {
            unreachable!("what is taken in or out was resolved")
        };
        Arc::clone(block)
    });
    let blocks: Vec<BlockRef> = blocks.collect();
    code.encode(blocks.iter())
}

/// Parity of blocks of which each has one in one of two rows, or both.
pub(crate) fn sums(one: &[BlockRef], other: &[BlockRef]) -> Vec<BlockRef> {
    one.iter().zip(other).map(|(one, other)| xor([one, other].into_iter())).collect()
}

/// Whether row parity is the sum of the blocks that the row's identities name.
fn is_sum_of_row(parity: &BlockRef, answer: &Answer, row: usize) -> bool {
    if mutation::broken(Rule::OldParityTrusted) {
        return true;
    }
    let mut sum = linear_crc32c(parity.bytes());
    for column in &answer.columns {
        let Some(checksums) = column.get(CHECKSUM_ROW) else { return false };
        let identity = &ChecksumBlock::view(checksums).identities[row];
        if identity.validate().is_err() {
            return false;
        }
        sum ^= identity.checksum.get();
    }
    sum == 0
}
