//! Disks that went and are there again: what they missed is written, and nothing else.
//!
//! Every block has its identity beside it, and that names the consistency point that wrote it. The
//! identities of a disk follow from the other disks like its blocks do, and are a 64th of them. So
//! what has changed in a region since a disk went is told by one row: where an identity of any disk
//! is of a consistency point after those that the disk is known to hold, its row is written anew.
//! That finds also what the disk acknowledged and lost when it went. Where the disk's own row of
//! identities differs from what follows for any other reason, more is written: the rows that differ
//! of a data disk, all of a parity disk.
//!
//! A disk is known to hold the consistency points that completed while it was there: each flushes
//! all disks. What it had of the one that was under way may be torn. That does no harm once the
//! point has completed without the disk: then all rows that it touched have identities of it. Until
//! then the disk is *settling*; if a crash comes first, it is *torn* and all of it is written.
//! Where stripes were being written in part at a crash while a disk was away, its rows there are
//! what parity says and not what the disk has, so it is torn as well.
//!
//! Invariants: a disk that failed, or was failed, is not taken back by itself; a disk that was
//! replaced is not in the labels. The labels say that a disk is settled only after the consistency
//! point is complete; they say it until all regions are resynchronised.
//!
//! Fails: like a rebuild, which it is otherwise (`rebuild`).

use crate::error::RaidError;
use crate::failure::is_away;
use crate::geometry::TetrisId;
use crate::member::{GroupState, Missing};
use crate::rebuild::{Rebuild, Task, Way};
use crate::replacing::{DiskPlace, ReplaceDone};
use crate::resolve::{Answer, Question};
use crate::rows::{CHECKSUM_ROW, Column, DATA_ROWS, RowSet};
use crate::store::{Inner, State};
use media::{Device, MediaError};
use ondisk::identity::ChecksumBlock;
use platform::mutation::{self, Rule};
use platform::{Disk, DiskError};
use std::sync::Arc;
use units::{BlockRef, CpNumber};

/// What is known of a disk that went.
pub(crate) struct Lost {
    /// It holds what consistency points up to this one wrote. `None`: all that is known of from
    /// before the first write of this start.
    pub trusted_cp: Option<u64>,
    pub fate: Fate,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Settling,
    Settled,
    Torn,
}

impl Lost {
    pub(crate) fn is_settled(&self) -> bool {
        self.fate == Fate::Settled
    }
}

/// Consistency points, as far as blocks tell of them.
#[derive(Default)]
pub(crate) struct Points {
    /// The latest of which a block was written.
    pub written: u64,
    /// The latest that completed; `None` before the first write.
    pub complete: Option<u64>,
    /// The first since the start: of the same number as the one that was under way if the power
    /// went before.
    pub first: Option<u64>,
}

impl GroupState {
    /// Notes that a member went, or failed, which was being rebuilt perhaps.
    pub(crate) fn lose(
        &mut self,
        member: usize,
        error: &MediaError,
        rebuilding: Option<Rebuild>,
        complete_cp: Option<u64>,
    ) {
        // One that hangs, too, may answer again, with what it held.
        let is_gone = is_away(error);
        let before = self.lost.remove(&member);
        let lost = match (before, rebuilding) {
            (_, None) => Some(Lost { trusted_cp: complete_cp, fate: Fate::Settling }),
            // What it held when it went first it still holds, or something later.
            (Some(before), Some(rebuild)) if rebuild.way == Way::Resync => {
                Some(Lost { fate: Fate::Settling, ..before })
            }
            (Some(before), Some(_)) => Some(Lost { fate: Fate::Torn, ..before }),
            // It never held anything of ours as a whole.
            (None, Some(_)) => None,
        };
        if let Some(lost) = lost.filter(|_| is_gone) {
            self.lost.insert(member, lost);
        }
    }
}

impl State {
    /// A block of this consistency point is being written.
    pub(crate) fn note_write(&mut self, cp: CpNumber) {
        let cp = cp.get();
        if self.points.complete.is_none() {
            // The start found the one before it, with all disks that were there.
            let before = cp.saturating_sub(1);
            self.points.complete = Some(before);
            self.points.first = Some(cp);
            for lost in self.groups.iter_mut().flat_map(|disks| disks.lost.values_mut()) {
                lost.trusted_cp.get_or_insert(before);
            }
        }
        self.points.written = self.points.written.max(cp);
    }
}

impl Inner {
    /// A consistency point has completed on all disks that are there.
    pub(crate) fn settle(self: &Arc<Self>, cp: u64) {
        {
            let mut state = self.state.lock();
            if state.failure.is_some() {
                return;
            }
            state.points.complete = state.points.complete.map(|complete| complete.max(cp));
            for lost in state.groups.iter_mut().flat_map(|disks| disks.lost.values_mut()) {
                if lost.fate == Fate::Settling {
                    lost.fate = Fate::Settled;
                }
            }
        }
        self.write_all_labels();
    }

    /// Stripes of a group were being written in part at a crash.
    pub(crate) fn distrust(&self, group: u32) {
        let mut state = self.state.lock();
        let disks = &mut state.groups[group as usize];
        disks.lost.values_mut().for_each(|lost| lost.fate = Fate::Torn);
        for rebuild in disks.rebuilding.values_mut().filter(|one| one.way == Way::Resync) {
            rebuild.way = Way::Anew;
        }
    }

    /// Takes back all that are there again at a start.
    pub(crate) fn take_back_all(self: &Arc<Self>) {
        let places: Vec<DiskPlace> = {
            let state = self.state.lock();
            let groups = (0..).zip(&state.groups);
            let of_group = |(group, disks): (u32, &GroupState)| {
                let unused = disks.unused();
                let away: Vec<usize> =
                    disks.lost.keys().copied().filter(|at| unused.contains(*at)).collect();
                away.into_iter().map(move |member| DiskPlace { group, member })
            };
            groups.flat_map(of_group).collect()
        };
        for place in places {
            if let Some(device) = self.member(place).and_then(|member| member.device()) {
                self.take_back(place, device, Box::new(|_| ()));
            }
        }
    }

    pub(crate) fn return_disk(self: &Arc<Self>, disk: Arc<dyn Disk>, done: ReplaceDone) {
        let inner = Arc::clone(self);
        let opened = move |device: Result<Device, MediaError>| match device {
            Ok(device) => match inner.place_that_misses(&device) {
                Some(place) => inner.take_back(place, Arc::new(device), done),
                None => done(Err(RaidError::NotMissed { disk: device.name().to_owned() })),
            },
            Err(error) => done(Err(error.into())),
        };
        media::open(disk, Box::new(opened));
    }

    /// The place of a disk, if it is its own still and nothing is written to it.
    fn place_that_misses(&self, device: &Device) -> Option<DiskPlace> {
        let label = device.label();
        if label.is_spare() || label.aggregate != self.common_label()?.aggregate {
            return None;
        }
        let (group, member) = (label.group_index.get(), usize::from(label.disk_index.get()));
        let seat = self.layout().groups.get(group as usize)?.members.get(member)?.seat();
        let unused = self.state.lock().groups[group as usize].unused();
        let is_missed = seat.identity == label.disk && unused.contains(member);
        is_missed.then_some(DiskPlace { group, member })
    }

    fn take_back(self: &Arc<Self>, place: DiskPlace, device: Arc<Device>, done: ReplaceDone) {
        let fate = {
            let state = self.state.lock();
            let lost = state.groups[place.group as usize].lost.get(&place.member);
            lost.map(|lost| lost.fate)
        };
        let way = match fate {
            Some(Fate::Settled) => Way::Resync,
            Some(Fate::Settling) => {
                return done(Err(RaidError::Unsettled { disk: device.name().to_owned() }));
            }
            Some(Fate::Torn) | None => Way::Anew,
        };
        let (inner, again) = (Arc::clone(self), Arc::clone(&device));
        // What it says of an earlier rebuild must not count for this one.
        device.update_label(
            |label| label.rebuilt_regions = 0.into(),
            Box::new(move |result| match result {
                Ok(()) => inner.take_place(place, Rebuild::new(again, way), done),
                Err(error) => done(Err(error.into())),
            }),
        );
    }

    /// Writes the rows of a tetris that the disk may not have as they are.
    pub(crate) fn resync_tetris(self: &Arc<Self>, tetris: TetrisId, task: Task) {
        let (missing, trusted_cp) = {
            let state = self.state.lock();
            let disks = &state.groups[tetris.group as usize];
            let lost = disks.lost.get(&task.place.member);
            (disks.missing_at(tetris.region), lost.and_then(|lost| lost.trusted_cp).unwrap_or(0))
        };
        let at = self.geometry().device_block(tetris, CHECKSUM_ROW);
        let (inner, disk) = (Arc::clone(self), Arc::clone(task.device.disk()));
        let read = move |own: Result<Vec<BlockRef>, DiskError>| {
            let own = own.ok().and_then(|blocks| blocks.into_iter().next());
            inner.resync_identities(tetris, task, missing, (own, trusted_cp));
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
        let data_disks = self.group(tetris.group).data_disks;
        let question = Question {
            tetris,
            missing,
            rows: vec![RowSet::one(CHECKSUM_ROW); data_disks],
            parity: RowSet::EMPTY,
            given: vec![Column::new(); data_disks],
        };
        let inner = Arc::clone(self);
        let found = Box::new(move |answer: Answer| {
            if answer.is_unreadable || answer.damaged_blocks > 0 {
                // Another time it may be read: what the disk holds may be all that there is.
                return inner.unlock_tetris(tetris);
            }
            let rows = inner.doubtful_rows_of(&answer, task.place, own.as_ref(), trusted_cp);
            if rows.is_empty() {
                inner.finish_rebuilding(tetris, &task);
            } else {
                inner.rebuild_rows(tetris, task, rows);
            }
        });
        self.resolve(question, found);
    }

    /// The rows that a disk may not have as they are, out of the identities of all data disks.
    fn doubtful_rows_of(
        &self,
        answer: &Answer,
        place: DiskPlace,
        own: Option<&BlockRef>,
        trusted_cp: u64,
    ) -> RowSet {
        let code = self.group(place.group).code();
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
