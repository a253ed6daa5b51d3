//! A disk that takes the place of a missing one, and is written anew, region by region.
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
//! Invariants: the label never names a region that is not durable; what lies beyond it is lost with
//! a crash, so notes of stripes there keep the disk's blocks like a missing disk's. The labels call
//! the disk whole only after its own says that all regions are.

use crate::error::{RaidError, StoreError};
use crate::geometry::TetrisId;
use crate::growth::check_size;
use crate::member::{GroupState, Seat};
use crate::resolve::{Answer, Question};
use crate::rows::{Column, RowSet};
use crate::store::Inner;
use crate::walk::{Pace, Walk};
use media::{Device, MediaError};
use ondisk::identity::REGION_BLOCKS;
use ondisk::label::DiskLabel;
use platform::Disk;
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// Receives the end of a replacement's beginning.
pub type ReplaceDone = Box<dyn FnOnce(Result<(), RaidError>) + Send>;

/// Tetrises that are rebuilt at a time.
const TETRISES_AT_A_TIME: usize = 4;
/// What a region takes on the disk.
const REGION_BYTES: u64 = REGION_BLOCKS as u64 * BLOCK_SIZE_U64;

/// A disk's place in an aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskPlace {
    /// The group's index.
    pub group: u32,
    /// The disk's index in it, parity disks before data disks.
    pub member: usize,
}

/// A rebuild by place and disk: another disk may have the place by now.
#[derive(Clone)]
struct Task {
    place: DiskPlace,
    device: Arc<Device>,
}

/// How far a disk has come.
pub(crate) struct Rebuild {
    device: Arc<Device>,
    walk: Walk,
}

impl Rebuild {
    /// Of a disk, from where its label says that it stopped.
    pub(crate) fn new(device: Arc<Device>) -> Self {
        let label = device.label();
        let (below, regions) = (label.rebuilt_regions.get(), label.data_regions.get());
        Self { device, walk: Walk::new(below, regions, TETRISES_AT_A_TIME) }
    }

    pub(crate) fn has(&self, region: u64) -> bool {
        self.walk.has(region)
    }

    pub(crate) const fn has_durably(&self, region: u64) -> bool {
        self.walk.has_durably(region)
    }

    pub(crate) fn regions(&self) -> u64 {
        self.walk.done()
    }

    /// How fast the disk is written.
    pub(crate) fn pace(&self) -> Pace {
        self.walk.pace(REGION_BYTES)
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: u64) {
        self.walk.tick(now);
    }
}

impl Inner {
    /// Labels a disk that was checked, gives it the place of a missing one, and begins to rebuild.
    pub(crate) fn replace_disk(
        self: &Arc<Self>,
        place: DiskPlace,
        disk: Arc<dyn Disk>,
        identity: [u8; 16],
        done: ReplaceDone,
    ) {
        let label = match self.replacement_label(place, &*disk, identity) {
            Ok(label) => label,
            Err(error) => return done(Err(error)),
        };
        let inner = Arc::clone(self);
        media::initialize(
            disk,
            label,
            Box::new(move |device| match device {
                Ok(device) => inner.take_place(place, identity, device, done),
                Err(error) => done(Err(error.into())),
            }),
        );
    }

    /// Takes a disk out of use, as if it had failed.
    pub(crate) fn fail_disk(self: &Arc<Self>, place: DiskPlace, done: ReplaceDone) {
        let group = self.layout().groups.get(place.group as usize).cloned();
        let Some(group) = group.filter(|group| place.member < group.members.len()) else {
            let DiskPlace { group, member } = place;
            return done(Err(RaidError::NoSuchPlace { group, member }));
        };
        let disk = group.name(place.member);
        let device = group.members[place.member].device();
        let is_used = |inner: &Self| {
            !inner.state.lock().groups[place.group as usize].unused().contains(place.member)
        };
        let Some(device) = device.filter(|_| is_used(self)) else {
            return done(Err(RaidError::NotInUse { disk }));
        };
        // Like a failed read: given up only if the group can do without it.
        let error = MediaError::Retired { disk: disk.clone() };
        self.fail_reading((place.group, place.member), &device, error);
        if is_used(self) {
            let (group, kind) = (place.group, group.kind);
            return done(Err(RaidError::Indispensable { group, kind, disk }));
        }
        self.finish_sync(Box::new(|result| done(result.map_err(RaidError::from))));
    }

    fn replacement_label(
        &self,
        place: DiskPlace,
        disk: &dyn Disk,
        identity: [u8; 16],
    ) -> Result<DiskLabel, RaidError> {
        let layout = self.layout();
        let group = layout.groups.get(place.group as usize);
        let Some(member) = group.and_then(|group| group.members.get(place.member)) else {
            return Err(RaidError::NoSuchPlace { group: place.group, member: place.member });
        };
        let group = self.group(place.group);
        let unused = {
            let state = self.state.lock();
            let disks = &state.groups[place.group as usize];
            if !disks.unused().contains(place.member) {
                return Err(RaidError::InUse { disk: group.name(place.member) });
            }
            disks.unused()
        };
        check_size(disk, self.geometry().group(place.group).regions)?;
        let other = (0..group.members.len()).find_map(|at| group.device(at, unused));
        let Some(other) = other else {
            return Err(RaidError::NoSuchPlace { group: place.group, member: place.member });
        };
        let mut label = other.label();
        label.disk = identity;
        label.disk_index = (place.member as u16).into();
        label.role = member.role.number();
        label.rebuilt_regions = 0.into();
        label.missing = (label.missing.get() | 1 << place.member).into();
        label.rebuilding = (label.rebuilding.get() | 1 << place.member).into();
        if let Some(own) = label.members.get_mut(place.member) {
            *own = identity;
        }
        Ok(label)
    }

    fn take_place(
        self: &Arc<Self>,
        place: DiskPlace,
        identity: [u8; 16],
        device: Device,
        done: ReplaceDone,
    ) {
        let (group, device) = (self.group(place.group), Arc::new(device));
        let member = &group.members[place.member];
        // Before the state is locked: labels are locked before it.
        let replaced = member.device().map_or(0, |old| old.label().sequence.get());
        let rebuild = Rebuild::new(Arc::clone(&device));
        {
            let mut state = self.state.lock();
            let disks = &mut state.groups[place.group as usize];
            if !disks.unused().contains(place.member) {
                drop(state);
                return done(Err(RaidError::InUse { disk: group.name(place.member) }));
            }
            disks.sequence = disks.sequence.max(replaced);
            disks.replacements += 1;
            let replacement = disks.replacements;
            member.set_seat(Seat { identity, device: Some(device), replacement });
            disks.reasons.remove(&place.member);
            disks.rebuilding.insert(place.member, rebuild);
            // The identity is new even if the masks are not.
            disks.labelled = None;
        }
        self.write_labels(place.group);
        let inner = Arc::clone(self);
        self.finish_sync(Box::new(move |result: Result<(), StoreError>| match result {
            Ok(()) => {
                inner.start_rebuild(place);
                done(Ok(()));
            }
            Err(error) => done(Err(error.into())),
        }));
    }

    /// Goes on with what was interrupted.
    pub(crate) fn resume_rebuilds(self: &Arc<Self>) {
        let places: Vec<DiskPlace> = {
            let state = self.state.lock();
            let groups = (0..).zip(&state.groups);
            let of_group = |(group, disks): (u32, &GroupState)| {
                let members: Vec<usize> = disks.rebuilding.keys().copied().collect();
                members.into_iter().map(move |member| DiskPlace { group, member })
            };
            groups.flat_map(of_group).collect()
        };
        places.into_iter().for_each(|place| self.start_rebuild(place));
    }

    fn start_rebuild(self: &Arc<Self>, place: DiskPlace) {
        let Some(device) = self.group(place.group).members[place.member].device() else { return };
        let task = Task { place, device };
        self.rebuild_next(&task);
        // Nothing may be left to do.
        self.label_progress(&task);
    }

    /// Changes the rebuild, unless it is over, or must not go on.
    fn with_rebuild<T>(&self, task: &Task, change: impl FnOnce(&mut Rebuild) -> T) -> Option<T> {
        let mut state = self.state.lock();
        if state.is_abandoned || state.failure.is_some() {
            return None;
        }
        let disks = &mut state.groups[task.place.group as usize];
        let rebuild = disks.rebuilding.get_mut(&task.place.member)?;
        Arc::ptr_eq(&rebuild.device, &task.device).then(|| change(rebuild))
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
        if self.with_rebuild(&task, |_| ()).is_none() {
            return self.unlock_tetris(tetris);
        }
        let missing = self.state.lock().groups[tetris.group as usize].missing_at(tetris.region);
        let data_disks = self.group(tetris.group).data_disks;
        let question = Question {
            tetris,
            missing,
            rows: vec![RowSet::ALL; data_disks],
            parity: RowSet::EMPTY,
            given: vec![Column::new(); data_disks],
        };
        let inner = Arc::clone(self);
        let write = Box::new(move |answer: Answer| {
            if answer.is_unreadable || inner.with_rebuild(&task, |_| ()).is_none() {
                return inner.unlock_tetris(tetris);
            }
            let columns = inner.rebuilt_columns(&answer, task.place);
            let again = Arc::clone(&inner);
            let missing = missing.without(task.place.member);
            let finish = Box::new(move |()| again.finish_rebuilding(tetris, &task));
            inner.write_columns(tetris, missing, &columns, finish);
        });
        self.resolve(question, write);
    }

    /// The missing disk's column, and what else was found wrong.
    fn rebuilt_columns(&self, answer: &Answer, place: DiskPlace) -> Vec<Column> {
        self.count_damage(answer);
        let group = self.group(place.group);
        let code = group.code();
        let mut columns = vec![Column::new(); code.parity_disks];
        columns.extend(answer.repairs.clone());
        columns[place.member] = match place.member.checked_sub(code.parity_disks) {
            Some(data_disk) => answer.columns[data_disk].clone(),
            None => answer.parity(code, RowSet::ALL).swap_remove(place.member),
        };
        columns
    }

    fn finish_rebuilding(self: &Arc<Self>, tetris: TetrisId, task: &Task) {
        // Not if it failed with this write.
        let _ = self.with_rebuild(task, |rebuild| rebuild.walk.finish(tetris.region, REGION_BYTES));
        self.unlock_tetris(tetris);
        self.label_progress(task);
        self.rebuild_next(task);
    }

    /// Has the label say how far the disk has come, if that is worth it.
    fn label_progress(self: &Arc<Self>, task: &Task) {
        let due = self.with_rebuild(task, |rebuild| rebuild.walk.label_due(rebuild.walk.is_over()));
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
        let is_whole = self.with_rebuild(task, |rebuild| {
            rebuild.walk.labelled(below);
            below == rebuild.walk.end()
        });
        match is_whole {
            None => return,
            Some(false) => return self.label_progress(task),
            Some(true) => {}
        }
        {
            let mut state = self.state.lock();
            let disks = &mut state.groups[task.place.group as usize];
            let member = task.place.member;
            // Not if it failed in this very moment.
            let is_ours = |rebuild: &Rebuild| Arc::ptr_eq(&rebuild.device, &task.device);
            if disks.rebuilding.get(&member).is_some_and(is_ours) {
                disks.rebuilding.remove(&member);
                disks.missing &= !(1 << member);
            }
        }
        self.write_labels(task.place.group);
    }
}
