//! Writes what a disk missed that is back: see [`crate::membership`] for what it is known to hold.

use crate::layout::{DiskPlace, Missing, TetrisId};
use crate::membership::Task;
use crate::repair::Repair;
use crate::stripe::{Answer, CHECKSUM_ROW, Column, DATA_ROWS, Question, RowSet};
use ondisk::identity::ChecksumBlock;
use platform::DiskError;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::BlockRef;

impl Repair {
    /// Writes the rows of a tetris that the disk may not have as they are.
    pub(super) fn resync_tetris(self: &Arc<Self>, tetris: TetrisId, task: Task) {
        let missing = self.members.missing_at(tetris);
        let trusted_cp = self.members.trusted_cp(task.place);
        let at = self.members.geometry().device_block(tetris, CHECKSUM_ROW);
        let (repair, disk) = (Arc::clone(self), Arc::clone(task.device.disk()));
        let read = move |own: Result<Vec<BlockRef>, DiskError>| {
            let own = own.ok().and_then(|blocks| blocks.into_iter().next());
            repair.resync_identities(tetris, task, missing, (own, trusted_cp));
        };
        disk.read(at, 1, Box::new(read));
    }

    fn resync_identities(
        self: &Arc<Self>,
        tetris: TetrisId,
        task: Task,
        missing: Missing,
        (own, trusted_cp): (Option<BlockRef>, u64),
    ) {
        let data_disks = self.members.group(tetris.group).data_disks;
        let question = Question {
            tetris,
            missing,
            rows: vec![RowSet::one(CHECKSUM_ROW); data_disks],
            parity: RowSet::EMPTY,
            given: vec![Column::new(); data_disks],
        };
        let repair = Arc::clone(self);
        let found = Box::new(move |answer: Answer| {
            if answer.is_unreadable || answer.damaged_blocks > 0 {
                // Another time it may be read: what the disk holds may be all that there is.
                let _ = repair.members.with_rebuild(&task, |rebuild| rebuild.is_stuck = true);
                return repair.io.unlock_tetris(tetris);
            }
            let rows = repair.doubtful_rows_of(&answer, task.place, own.as_ref(), trusted_cp);
            if rows.is_empty() {
                repair.finish_rebuilding(tetris, &task);
            } else {
                repair.rebuild_rows(tetris, task, rows);
            }
        });
        self.io.resolve(question, found);
    }

    /// The rows that a disk may not have as they are, out of the identities of all data disks.
    fn doubtful_rows_of(
        &self,
        answer: &Answer,
        place: DiskPlace,
        own: Option<&BlockRef>,
        trusted_cp: u64,
    ) -> RowSet {
        let code = self.members.group(place.group).code();
        let is_repaired = answer.repairs.iter().any(|column| !column.rows().is_empty());
        let data_disk = place.member.checked_sub(code.parity_disks);
        let expected = match data_disk {
            Some(disk) => answer.columns[disk].clone(),
            None => answer.parity(code, RowSet::one(CHECKSUM_ROW)).swap_remove(place.member),
        };
        let (Some(own), Some(expected), false) = (own, expected.get(CHECKSUM_ROW), is_repaired)
        else {
            return RowSet::ALL;
        };
        let mut rows = RowSet::EMPTY;
        if own != expected {
            rows.insert(CHECKSUM_ROW);
            rows = rows.union(match data_disk {
                Some(_) => differing(own, expected),
                None => DATA_ROWS,
            });
        }
        if mutation::broken(Rule::SuspectRowsKept) {
            return rows;
        }
        for checksums in answer.columns.iter().filter_map(|column| column.get(CHECKSUM_ROW)) {
            let identities = &ChecksumBlock::view(checksums).identities;
            for (row, identity) in identities.iter().enumerate().take(CHECKSUM_ROW) {
                if identity.cp.get() > trusted_cp {
                    rows.insert(row);
                }
            }
        }
        rows
    }
}

/// The rows of which two checksum blocks tell different things.
fn differing(one: &BlockRef, other: &BlockRef) -> RowSet {
    let pairs = ChecksumBlock::view(one).identities.into_iter();
    let pairs = pairs.zip(ChecksumBlock::view(other).identities).enumerate();
    let mut rows = RowSet::EMPTY;
    for (row, (one, other)) in pairs.take(CHECKSUM_ROW) {
        if one != other {
            rows.insert(row);
        }
    }
    rows
}
