//! A disk that is filled with what its place must hold, region by region.
//!
//! A place may be filled in three ways ([`Way`]): anew; by what changed, if the disk held the place
//! before (see `returning`); or beside the disk that still holds it (see `successor`).
//!
//! What a region must hold follows from the other disks as for a degraded write: blocks are proved
//! by their identities, repaired where parity can, and the missing column is computed. Regions that
//! are rebuilt count as there for every write and read that begins after. Some tetrises are rebuilt
//! at a time, each locked.
//!
//! How far a disk has come is in its own label; that it is being rebuilt is in all labels of the
//! group. So a rebuild goes on after a restart, and a disk that failed in the middle of it is not
//! taken up again. The way through the regions is a [`Walk`], like a scrub's.
//!
//! Where a block of another disk can be neither read nor computed, or the group has failed, nothing
//! is written and the rebuild stops until the next start: what cannot be read now may be then. What
//! comes of requests to a disk that was replaced itself counts for nothing.
//!
//! A disk that is whole is asked for the superblock when the aggregate is opened, and others may be
//! gone by then. So its label says nothing of what it holds before a superblock was written to it;
//! the status tells that it waits for one.
//!
//! Invariants: the label never names a region that is not durable; what lies beyond it is lost with
//! a crash, so notes of stripes there keep the disk's blocks like a missing disk's. The labels call
//! the disk whole only after its own says that all regions are.

use crate::geometry::TetrisId;
use crate::member::GroupState;
use crate::parts::parts_of_column;
use crate::replacing::DiskPlace;
use crate::resolve::{Answer, Question};
use crate::rows::{Column, RowSet};
use crate::store::Inner;
use crate::walk::{Pace, Walk};
use media::{Device, MediaError};
use ondisk::identity::REGION_BLOCKS;
use ondisk::label::DiskLabel;
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// Tetrises that are rebuilt at a time.
const TETRISES_AT_A_TIME: usize = 4;
/// What a region takes on the disk; one of which nothing had to be written counts the same.
const REGION_BYTES: u64 = REGION_BLOCKS as u64 * BLOCK_SIZE_U64;

/// A rebuild by place and disk: another disk may have the place by now.
#[derive(Clone)]
pub(crate) struct Task {
    pub place: DiskPlace,
    pub device: Arc<Device>,
}

/// How a disk comes to hold what its place must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// All of it is written.
    Anew,
    /// What may have changed since it went is written.
    Resync,
    /// All of it is written beside the disk that has the place.
    Copy,
}

/// How far a disk has come.
pub(crate) struct Rebuild {
    pub way: Way,
    device: Arc<Device>,
    identity: [u8; 16],
    /// Of a spare: its label once it has the place.
    label_of_place: Option<Box<DiskLabel>>,
    /// A superblock was written to it since the start, so that it can stand for its place.
    pub has_superblock: bool,
    /// Of a disk that is filled beside another: which of the group's copies since the start.
    pub copy: Option<u64>,
    /// Whether a start would know that it has the place; what it holds counts only then.
    pub is_told: bool,
    walk: Walk,
}

impl Rebuild {
    /// Of a disk, from where its label says that it stopped.
    pub(crate) fn new(device: Arc<Device>, way: Way) -> Self {
        let label = device.label();
        let (below, regions) = (label.rebuilt_regions.get(), label.data_regions.get());
        Self {
            way,
            device,
            identity: label.disk,
            label_of_place: None,
            has_superblock: false,
            copy: None,
            is_told: true,
            walk: Walk::new(below, regions, TETRISES_AT_A_TIME),
        }
    }

    /// Of a spare that is filled beside the disk that has the place.
    pub(crate) fn copy(device: Arc<Device>, label_of_place: DiskLabel) -> Self {
        let label_of_place = Some(Box::new(label_of_place));
        Self { label_of_place, copy: Some(0), ..Self::new(device, Way::Copy) }
    }

    pub(crate) fn device(&self) -> Arc<Device> {
        Arc::clone(&self.device)
    }

    pub(crate) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    pub(crate) const fn identity(&self) -> [u8; 16] {
        self.identity
    }

    pub(crate) fn label_of_place(&self) -> Option<&DiskLabel> {
        self.label_of_place.as_deref()
    }

    pub(crate) fn has(&self, region: u64) -> bool {
        self.walk.has(region)
    }

    pub(crate) const fn has_durably(&self, region: u64) -> bool {
        self.is_told && self.walk.has_durably(region)
    }

    pub(crate) fn regions(&self) -> u64 {
        self.walk.done()
    }

    /// How fast the disk is filled.
    pub(crate) fn pace(&self) -> Pace {
        self.walk.pace(REGION_BYTES)
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: u64) {
        self.walk.tick(now);
    }
}

impl GroupState {
    /// All disks that are being filled.
    pub(crate) fn fillings(&self) -> impl Iterator<Item = &Rebuild> {
        self.rebuilding.values().chain(self.copies.values())
    }

    /// The same, to be changed.
    pub(crate) fn fillings_mut(&mut self) -> impl Iterator<Item = &mut Rebuild> {
        self.rebuilding.values_mut().chain(self.copies.values_mut())
    }
}

impl Inner {
    /// Goes on with what was interrupted.
    pub(crate) fn resume_rebuilds(self: &Arc<Self>) {
        let places: Vec<DiskPlace> = {
            let state = self.state.lock();
            let groups = (0..).zip(&state.groups);
            let of_group = |(group, disks): (u32, &GroupState)| {
                let copies = disks.copies.keys();
                let members: Vec<usize> = disks.rebuilding.keys().chain(copies).copied().collect();
                members.into_iter().map(move |member| DiskPlace { group, member })
            };
            groups.flat_map(of_group).collect()
        };
        places.into_iter().for_each(|place| self.start_rebuilds_at(place));
        self.take_back_all();
    }

    /// The labels name the disks that are to be filled there.
    pub(crate) fn start_rebuilds_at(self: &Arc<Self>, place: DiskPlace) {
        let devices: Vec<Arc<Device>> = {
            let state = self.state.lock();
            let disks = &state.groups[place.group as usize];
            let rebuilds = disks.rebuilding.get(&place.member).into_iter();
            rebuilds.chain(disks.copies.get(&place.member)).map(Rebuild::device).collect()
        };
        for task in devices.into_iter().map(|device| Task { place, device }) {
            self.rebuild_next(&task);
            let _ = self.with_rebuild(&task, |rebuild| rebuild.is_told = true);
            // Nothing may be left to do.
            self.label_progress(&task);
        }
    }

    /// Changes the rebuild, unless it is over, or must not go on.
    pub(crate) fn with_rebuild<T>(
        &self,
        task: &Task,
        change: impl FnOnce(&mut Rebuild) -> T,
    ) -> Option<T> {
        let mut state = self.state.lock();
        if state.is_abandoned || state.failure.is_some() {
            return None;
        }
        let disks = &mut state.groups[task.place.group as usize];
        let member = &task.place.member;
        let rebuilds =
            disks.rebuilding.get_mut(member).into_iter().chain(disks.copies.get_mut(member));
        rebuilds.into_iter().find(|rebuild| rebuild.is_of(&task.device)).map(change)
    }

    /// A superblock was written to a disk.
    pub(crate) fn has_superblock(
        self: &Arc<Self>,
        (group, member): (u32, usize),
        device: Arc<Device>,
    ) {
        let task = Task { place: DiskPlace { group, member }, device };
        let had =
            self.with_rebuild(&task, |filled| std::mem::replace(&mut filled.has_superblock, true));
        if had == Some(false) {
            self.label_progress(&task);
        }
    }

    /// Begins as much as may be under way.
    fn rebuild_next(self: &Arc<Self>, task: &Task) {
        while let Some(region) = self.with_rebuild(task, |rebuild| rebuild.walk.begin()).flatten() {
            let (tetris, task) = (TetrisId { group: task.place.group, region }, task.clone());
            let job = move |inner: &Arc<Self>| inner.rebuild_tetris(tetris, task);
            self.lock_tetris(tetris, Box::new(job));
        }
    }

    fn rebuild_tetris(self: &Arc<Self>, tetris: TetrisId, task: Task) {
        match self.with_rebuild(&task, |rebuild| rebuild.way) {
            None => self.unlock_tetris(tetris),
            Some(Way::Resync) => self.resync_tetris(tetris, task),
            Some(Way::Anew | Way::Copy) => self.rebuild_rows(tetris, task, RowSet::ALL),
        }
    }

    /// Writes rows of a tetris to a disk, and calls the tetris done.
    pub(crate) fn rebuild_rows(self: &Arc<Self>, tetris: TetrisId, task: Task, rows: RowSet) {
        let (group, member) = (self.group(tetris.group), task.place.member);
        let missing = self.state.lock().groups[tetris.group as usize].missing_at(tetris.region);
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
        let inner = Arc::clone(self);
        let write = Box::new(move |answer: Answer| {
            if answer.is_unreadable || inner.with_rebuild(&task, |_| ()).is_none() {
                return inner.unlock_tetris(tetris);
            }
            inner.blame(tetris, missing, &answer);
            let (columns, own) = inner.rebuilt_columns(&answer, task.place, rows);
            let again = Arc::clone(&inner);
            let mut parts = inner.parts_of(tetris, missing, &columns);
            parts.extend(parts_of_column(member, &task.device, &own));
            let finish = Box::new(move |()| again.finish_rebuilding(tetris, &task));
            inner.write_parts(tetris, parts, finish);
        });
        self.resolve(question, write);
    }

    /// What else was found wrong, and the column of the place.
    fn rebuilt_columns(
        &self,
        answer: &Answer,
        place: DiskPlace,
        rows: RowSet,
    ) -> (Vec<Column>, Column) {
        self.count_damage(answer);
        let code = self.group(place.group).code();
        let mut columns = vec![Column::new(); code.parity_disks];
        columns.extend(answer.repairs.clone());
        let own = match place.member.checked_sub(code.parity_disks) {
            Some(data_disk) => answer.columns[data_disk].clone(),
            None => answer.parity(code, rows).swap_remove(place.member),
        };
        (columns, own)
    }

    pub(crate) fn finish_rebuilding(self: &Arc<Self>, tetris: TetrisId, task: &Task) {
        // Not if it failed with this write.
        let _ = self.with_rebuild(task, |rebuild| rebuild.walk.finish(tetris.region, REGION_BYTES));
        self.unlock_tetris(tetris);
        self.label_progress(task);
        self.rebuild_next(task);
    }

    /// Has the label say how far the disk has come, if that is worth it.
    pub(crate) fn label_progress(self: &Arc<Self>, task: &Task) {
        let due = self.with_rebuild(task, |rebuild| {
            let walk = Some(&mut rebuild.walk).filter(|_| rebuild.has_superblock);
            walk.and_then(|walk| walk.label_due(walk.is_over()))
        });
        let Some(below) = due.flatten() else { return };
        let (inner, task) = (Arc::clone(self), task.clone());
        let disk = Arc::clone(task.device.disk());
        disk.flush(Box::new(move |flushed| match flushed {
            Ok(()) => {
                let device = Arc::clone(&task.device);
                let label = |label: &mut DiskLabel| label.rebuilt_regions = below.into();
                let told = Box::new(move |result| inner.progress_labelled(&task, below, result));
                device.update_label(label, told);
            }
            Err(error) => inner.fail_rebuild(&task, error.into()),
        }));
    }

    fn fail_rebuild(self: &Arc<Self>, task: &Task, error: MediaError) {
        self.fail_writing((task.place.group, task.place.member), &task.device, error);
    }

    fn progress_labelled(
        self: &Arc<Self>,
        task: &Task,
        below: u64,
        result: Result<(), MediaError>,
    ) {
        if let Err(error) = result {
            return self.fail_rebuild(task, error);
        }
        let told = self.with_rebuild(task, |rebuild| {
            rebuild.walk.labelled(below);
            (rebuild.way, below == rebuild.walk.end())
        });
        match told {
            None => {}
            Some((_, false)) => self.label_progress(task),
            Some((Way::Copy, true)) => self.succeed(task.clone()),
            Some((Way::Anew | Way::Resync, true)) => self.finish_place(task),
        }
    }

    /// The disk holds all that its place must.
    pub(crate) fn finish_place(self: &Arc<Self>, task: &Task) {
        {
            let mut state = self.state.lock();
            let disks = &mut state.groups[task.place.group as usize];
            let member = task.place.member;
            // Not if it failed in this very moment.
            if disks.rebuilding.get(&member).is_some_and(|rebuild| rebuild.is_of(&task.device)) {
                disks.rebuilding.remove(&member);
                disks.lost.remove(&member);
                disks.missing &= !(1 << member);
                disks.unlabelled |= 1 << member;
            }
        }
        self.write_labels(task.place.group);
        let (inner, DiskPlace { group, member }) = (Arc::clone(self), task.place);
        self.finish_sync(Box::new(move |_| {
            inner.state.lock().groups[group as usize].unlabelled &= !(1 << member);
        }));
    }
}
