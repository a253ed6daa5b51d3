//! Which disk a wrong block is counted for, and whether the disk is to blame.
//!
//! A reader that follows a pointer knows what the block must be. A write, a rebuild and a scrub see
//! blocks in passing: only identities and parity say whether these are right. The two may
//! contradict each other on disks that did nothing wrong:
//!
//! - After a power cut, in rows that were being written. So a row does not count if one of its
//!   identities names the consistency point that was under way at the cut. A parity disk does not
//!   count if its row of identities is wrong as well. A few blocks remain, far fewer than make a
//!   disk sick.
//! - On a disk that was not written yet. So a row counts only if its identity is that of its own
//!   block.
//!
//! Invariants: a disk that took the place of another meanwhile is blamed for nothing. A disk that
//! went meanwhile gave no block, which says nothing of its blocks.

use crate::io::Io;
use crate::layout::{Missing, TetrisId};
use crate::membership::Trouble;
use crate::stripe::{Answer, CHECKSUM_ROW, Column, DATA_ROWS, RowSet};
use ondisk::identity::ChecksumBlock;
use units::Pvbn;

impl Io {
    /// Rows that were asked of the disks of a group, in vain.
    pub(super) fn count_unreadable(
        &self,
        tetris: TetrisId,
        missing: Missing,
        asked: &[RowSet],
        given: &[Column],
    ) {
        for (member, (asked, given)) in asked.iter().zip(given).enumerate() {
            let rows = asked.without(given.rows());
            if rows.is_empty() {
                continue;
            }
            if !self.members.has_failed() && self.members.is_used(tetris.group, member) {
                self.count_rows(tetris, (member, missing), rows, |block| Trouble::Unreadable {
                    block,
                });
            }
        }
    }

    /// Rows that were read of a disk are not what was written.
    pub(super) fn count_rotten(
        &self,
        tetris: TetrisId,
        (member, missing): (usize, Missing),
        rows: RowSet,
    ) {
        self.count_rows(tetris, (member, missing), rows, |block| Trouble::Rotten { block });
    }

    fn count_rows(
        &self,
        tetris: TetrisId,
        (member, missing): (usize, Missing),
        rows: RowSet,
        trouble: impl Fn(u64) -> Trouble,
    ) {
        if rows.is_empty() {
            return;
        }
        let group = self.members.group(tetris.group);
        let Some(device) = group.device_throughout(member, missing) else { return };
        let geometry = self.members.geometry();
        let blocks = rows.iter().map(|row| geometry.device_block(tetris, row));
        let troubles: Vec<Trouble> = blocks.map(trouble).collect();
        self.members.count_errors((tetris.group, member), &device, &troubles);
    }

    /// Counts what was found wrong on data disks in passing.
    pub(crate) fn blame(&self, tetris: TetrisId, missing: Missing, answer: &Answer) {
        if answer.wrong.iter().all(|rows| rows.is_empty()) {
            return;
        }
        let torn = self.rows_torn_perhaps(tetris, answer);
        let code = self.members.group(tetris.group).code();
        for (disk, wrong) in answer.wrong.iter().enumerate() {
            let ever_written = self.rows_ever_written(tetris, disk, answer);
            let wrong = RowSet(wrong.0 & ever_written.0).without(torn);
            self.count_rotten(tetris, (code.member(disk), missing), wrong);
        }
    }

    /// Rows of a data disk that have the identity of their own block; and that of the identities,
    /// if one of those was not found as it is.
    fn rows_ever_written(&self, tetris: TetrisId, disk: usize, answer: &Answer) -> RowSet {
        let mut written = RowSet::EMPTY;
        let Some(decided) = answer.columns[disk].get(CHECKSUM_ROW) else { return written };
        let (geometry, group) = (self.members.geometry(), self.members.group(tetris.group));
        let found = answer.found.get(group.code().member(disk));
        let found = found.and_then(|column| column.get(CHECKSUM_ROW));
        let base = geometry.group(tetris.group).bases[disk].offset(tetris.stripe(0).get());
        let identities = &ChecksumBlock::view(decided).identities;
        for row in DATA_ROWS.iter() {
            let (identity, own) = (&identities[row], base.offset(row as u64));
            if own == Pvbn(0) || identity.pvbn() != own || identity.validate().is_err() {
                continue;
            }
            written.insert(row);
            let is_found = |found| ChecksumBlock::view(found).identities[row] == *identity;
            if !found.is_some_and(|found| is_found(found)) {
                written.insert(CHECKSUM_ROW);
            }
        }
        written
    }

    /// The same of parity disks: `accountable` is what counts of each, `written` what is wrong.
    pub(crate) fn blame_parity(
        &self,
        tetris: TetrisId,
        missing: Missing,
        accountable: &[RowSet],
        written: &[Column],
    ) {
        for (member, (rows, written)) in accountable.iter().zip(written).enumerate() {
            if !written.rows().contains(CHECKSUM_ROW) {
                let wrong = RowSet(rows.0 & written.rows().0);
                self.count_rotten(tetris, (member, missing), wrong);
            }
        }
    }

    /// Rows of each disk of a group that count if they turn out to be wrong.
    pub(crate) fn accountable(&self, tetris: TetrisId, answer: &Answer) -> Vec<RowSet> {
        let torn = self.rows_torn_perhaps(tetris, answer);
        answer.found.iter().map(|column| column.rows().without(torn)).collect()
    }

    /// Rows with an identity of the consistency point that this start found unfinished.
    fn rows_torn_perhaps(&self, tetris: TetrisId, answer: &Answer) -> RowSet {
        let mut torn = RowSet::EMPTY;
        let Some(unfinished) = self.members.unfinished_cp() else { return torn };
        let parity_disks = self.members.group(tetris.group).code().parity_disks;
        let found = answer.found.iter().skip(parity_disks);
        let checksums = found.chain(&answer.columns).filter_map(|column| column.get(CHECKSUM_ROW));
        for checksums in checksums {
            let identities = &ChecksumBlock::view(checksums).identities;
            for row in DATA_ROWS.iter() {
                if identities[row].cp.get() == unfinished {
                    torn.insert(row);
                    torn.insert(CHECKSUM_ROW);
                }
            }
        }
        torn
    }
}
