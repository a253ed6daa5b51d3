//! A disk that is filled with what its place must hold, region by region.
//!
//! A place may be filled in three ways ([`Way`]): anew; by what changed, if the disk held the place
//! before (see `resync`); or beside the disk that still holds it (see `membership/replacement.rs`).
//!
//! What a region must hold follows from the other disks as for a degraded write: blocks are proved
//! by their identities, repaired where parity can, and the missing column is computed. Regions that
//! are rebuilt count as there for every write and read that begins after. Some tetrises are rebuilt
//! at a time, each locked.
//!
//! How far a disk has come is in its own label; that it is being rebuilt is in all labels of the
//! group. So a rebuild goes on after a restart, and a disk that failed in the middle of it is not
//! taken up again. The way through the regions is a `Walk`, like a scrub's.
//!
//! Where a block of another disk can be neither read nor computed, or the group has failed, nothing
//! is written and the rebuild stops until the next start: what cannot be read now may be then. The
//! status tells that it is stuck. What comes of requests to a disk that was replaced itself counts
//! for nothing.
//!
//! A disk that is whole is asked for the superblock when the aggregate is opened, and others may be
//! gone by then. So its label says nothing of what it holds before a superblock was written to it;
//! the status tells that it waits for one.
//!
//! Invariants: the label never names a region that is not durable; what lies beyond it is lost with
//! a crash, so notes of stripes there keep the disk's blocks like a missing disk's. The labels call
//! the disk whole only after its own says that all regions are.

use crate::io::Io;
use crate::layout::{DiskPlace, TetrisId};
use crate::membership::{Rebuild, Task, Way};
use crate::repair::Repair;
use crate::stripe::{Answer, Column, Question, RowSet};
use std::sync::Arc;

impl Repair {
    /// The labels name the disks that are to be filled there.
    pub(super) fn fill_at(self: &Arc<Self>, place: DiskPlace) {
        for task in self.members.fillings_at(place) {
            self.rebuild_next(&task);
            let _ = self.members.with_rebuild(&task, |rebuild| rebuild.is_told = true);
            // Nothing may be left to do.
            self.members.label_progress(&task);
        }
    }

    /// Time has passed: disks that are filled at a rate go on.
    pub(crate) fn tick(self: &Arc<Self>, now: u64) {
        let due = self.members.tick_fillings(now);
        due.iter().for_each(|task| self.rebuild_next(task));
    }

    /// Has disks wait that are being filled at a place, or lets them go on; whether there are any.
    pub(crate) fn hold(self: &Arc<Self>, place: DiskPlace, is_held: bool) -> bool {
        self.change(place, |rebuild| rebuild.hold(is_held))
    }

    /// Sets how fast disks are filled at a place; whether there are any.
    pub(crate) fn limit(self: &Arc<Self>, place: DiskPlace, rate: Option<u64>) -> bool {
        self.change(place, |rebuild| rebuild.set_rate(rate))
    }

    /// Changes how disks are filled at a place: `change` says whether regions have to be begun now.
    /// Whether there are any.
    fn change(self: &Arc<Self>, place: DiskPlace, change: impl Fn(&mut Rebuild) -> bool) -> bool {
        if self.members.check_place(place).is_err() {
            return false;
        }
        let tasks = self.members.fillings_at(place);
        let mut is_filled = false;
        for task in &tasks {
            let goes_on = self.members.with_rebuild(task, &change);
            is_filled |= goes_on.is_some();
            if goes_on == Some(true) {
                self.rebuild_next(task);
            }
        }
        is_filled
    }

    /// Begins as much as may be under way.
    fn rebuild_next(self: &Arc<Self>, task: &Task) {
        while let Some(region) = self.members.with_rebuild(task, Rebuild::begin).flatten() {
            let (tetris, task) = (TetrisId { group: task.place.group, region }, task.clone());
            let repair = Arc::clone(self);
            let job = move |_: &Arc<Io>| repair.rebuild_tetris(tetris, task);
            self.io.lock_tetris(tetris, Box::new(job));
        }
    }

    fn rebuild_tetris(self: &Arc<Self>, tetris: TetrisId, task: Task) {
        match self.members.with_rebuild(&task, |rebuild| rebuild.way) {
            None => self.io.unlock_tetris(tetris),
            Some(Way::Resync) => self.resync_tetris(tetris, task),
            Some(Way::Anew | Way::Copy) => self.rebuild_rows(tetris, task, RowSet::ALL),
        }
    }

    /// Writes rows of a tetris to a disk, and calls the tetris done.
    pub(super) fn rebuild_rows(self: &Arc<Self>, tetris: TetrisId, task: Task, rows: RowSet) {
        let (group, member) = (self.members.group(tetris.group), task.place.member);
        let missing = self.members.missing_at(tetris);
        let data_disk = member.checked_sub(group.code().parity_disks);
        let wanted = (0..group.data_disks).map(|disk| match data_disk {
            // It is there to be read.
            Some(own) if own != disk && !missing.contains(member) => RowSet::EMPTY,
            _ => rows,
        });
        let question = Question {
            tetris,
            missing,
            rows: wanted.collect(),
            parity: RowSet::EMPTY,
            given: vec![Column::new(); group.data_disks],
        };
        let repair = Arc::clone(self);
        let write = Box::new(move |answer: Answer| {
            let is_stuck = answer.is_unreadable;
            let told = repair.members.with_rebuild(&task, |rebuild| rebuild.is_stuck |= is_stuck);
            if is_stuck || told.is_none() {
                return repair.io.unlock_tetris(tetris);
            }
            repair.io.blame(tetris, missing, &answer);
            let (columns, own) = repair.rebuilt_columns(&answer, task.place, rows);
            let again = Arc::clone(&repair);
            let device = Arc::clone(&task.device);
            let finish = Box::new(move |()| again.finish_rebuilding(tetris, &task));
            let filled = (member, &device, &own);
            repair.io.write_columns_and_fill((tetris, missing), &columns, filled, finish);
        });
        self.io.resolve(question, write);
    }

    /// What else was found wrong, and the column of the place.
    fn rebuilt_columns(
        &self,
        answer: &Answer,
        place: DiskPlace,
        rows: RowSet,
    ) -> (Vec<Column>, Column) {
        self.io.count_damage(answer);
        let code = self.members.group(place.group).code();
        let mut columns = vec![Column::new(); code.parity_disks];
        columns.extend(answer.repairs.clone());
        let own = match place.member.checked_sub(code.parity_disks) {
            Some(data_disk) => answer.columns[data_disk].clone(),
            None => answer.parity(code, rows).swap_remove(place.member),
        };
        (columns, own)
    }

    pub(super) fn finish_rebuilding(self: &Arc<Self>, tetris: TetrisId, task: &Task) {
        // Not if it failed with this write.
        let _ = self.members.with_rebuild(task, |rebuild| rebuild.finish(tetris.region));
        self.io.unlock_tetris(tetris);
        self.members.label_progress(task);
        self.rebuild_next(task);
    }
}
