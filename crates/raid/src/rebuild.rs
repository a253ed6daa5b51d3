//! A disk that takes the place of a missing one, and is written anew, region by region.
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
//! taken up again.
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
use crate::member::{GroupState, Seat};
use crate::resolve::{Answer, Question};
use crate::rows::{Column, RowSet};
use crate::store::Inner;
use crate::write::parts_of_column;
use media::{Device, MediaError, Profile, regions_of};
use ondisk::label::DiskLabel;
use platform::Disk;
use std::collections::BTreeSet;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, ByteSize};

/// Receives the end of a replacement's beginning.
pub type ReplaceDone = Box<dyn FnOnce(Result<(), RaidError>) + Send>;

/// Tetrises that are rebuilt at a time.
const TETRISES_AT_A_TIME: usize = 4;
/// Regions after which the label says how far a disk has come, at most: 64 MiB of it.
const REGIONS_PER_LABEL_MAX: u64 = 256;
/// Labels that say how far a small disk has come.
const LABELS_PER_DISK: u64 = 16;

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
    /// A superblock was written to it, so that it can stand for its place.
    pub has_superblock: bool,
    /// All regions below are rebuilt.
    below: u64,
    /// Others that are.
    beyond: BTreeSet<u64>,
    /// The next that was not begun.
    next: u64,
    /// What the label says.
    durable_below: u64,
    is_label_under_way: bool,
}

impl Rebuild {
    /// Of a disk, from where its label says that it stopped.
    pub(crate) fn new(device: Arc<Device>, way: Way) -> Self {
        let label = device.label();
        let below = label.rebuilt_regions.get();
        Self {
            way,
            device,
            identity: label.disk,
            label_of_place: None,
            // Before that its label says nothing.
            has_superblock: way != Way::Copy || below > 0,
            below,
            beyond: BTreeSet::new(),
            next: below,
            durable_below: below,
            is_label_under_way: false,
        }
    }

    /// Of a spare that is filled beside the disk that has the place.
    pub(crate) fn copy(device: Arc<Device>, label_of_place: DiskLabel) -> Self {
        let label_of_place = Some(Box::new(label_of_place));
        Self { label_of_place, ..Self::new(device, Way::Copy) }
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
        region < self.below || self.beyond.contains(&region)
    }

    pub(crate) const fn has_durably(&self, region: u64) -> bool {
        region < self.durable_below
    }

    pub(crate) fn regions(&self) -> u64 {
        self.below + self.beyond.len() as u64
    }

    fn finish(&mut self, region: u64) {
        self.beyond.insert(region);
        while self.beyond.remove(&self.below) {
            self.below += 1;
        }
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
        let is_free = |disks: &GroupState| disks.unused().contains(place.member);
        if self.has_place(place) && !is_free(&self.state.lock().groups[place.group as usize]) {
            // Not missing: it is filled beside the one that is there.
            return self.copy_to(place, disk, identity, done);
        }
        let label = match self.replacement_label(place, &*disk, identity) {
            Ok(label) => label,
            Err(error) => return done(Err(error)),
        };
        let inner = Arc::clone(self);
        media::initialize(
            disk,
            label,
            Box::new(move |device| match device {
                Ok(device) => {
                    let device = Arc::new(device);
                    let rebuild = Rebuild::new(device, Way::Anew);
                    inner.take_place(place, rebuild, done);
                }
                Err(error) => done(Err(error.into())),
            }),
        );
    }

    /// Takes a disk out of use, as if it had failed.
    pub(crate) fn fail_disk(self: &Arc<Self>, place: DiskPlace, done: ReplaceDone) {
        let group = self.groups.get(place.group as usize);
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

    pub(crate) fn has_place(&self, place: DiskPlace) -> bool {
        let group = self.groups.get(place.group as usize);
        group.is_some_and(|group| place.member < group.members.len())
    }

    /// Refuses a disk that is too small for a place.
    pub(crate) fn check_size(&self, place: DiskPlace, disk: &dyn Disk) -> Result<(), RaidError> {
        let DiskPlace { group, member } = place;
        if !self.has_place(place) {
            return Err(RaidError::NoSuchPlace { group, member });
        }
        let regions = self.geometry.group(group).regions;
        if regions_of(disk.size_blocks()) < regions {
            let blocks = media::DeviceLayout { regions }.blocks();
            return Err(RaidError::Media(MediaError::TooSmall {
                disk: disk.name().to_owned(),
                size: ByteSize(disk.size_blocks() * BLOCK_SIZE_U64),
                minimum: ByteSize(blocks * BLOCK_SIZE_U64),
            }));
        }
        Ok(())
    }

    /// The label of a disk that takes a place and holds nothing yet.
    pub(crate) fn replacement_label(
        &self,
        place: DiskPlace,
        disk: &dyn Disk,
        identity: [u8; 16],
    ) -> Result<DiskLabel, RaidError> {
        self.check_size(place, disk)?;
        let group = self.group(place.group);
        let unused = self.state.lock().groups[place.group as usize].unused();
        let other = (0..group.members.len()).find_map(|at| group.device(at, unused));
        let Some(other) = other else {
            return Err(RaidError::NoSuchPlace { group: place.group, member: place.member });
        };
        let mut label = other.label();
        label.disk = identity;
        label.disk_index = (place.member as u16).into();
        label.role = group.members[place.member].role.number();
        label.rotational = u8::from(Profile::of(disk) == Profile::Hdd);
        label.rebuilt_regions = 0.into();
        label.missing = (label.missing.get() | 1 << place.member).into();
        label.rebuilding = (label.rebuilding.get() | 1 << place.member).into();
        label.away = (label.away.get() & !(1 << place.member)).into();
        label.settled = (label.settled.get() & !(1 << place.member)).into();
        if let Some(own) = label.members.get_mut(place.member) {
            *own = identity;
        }
        Ok(label)
    }

    /// Gives a disk, new or back, the place of a missing one, and begins to rebuild.
    pub(crate) fn take_place(
        self: &Arc<Self>,
        place: DiskPlace,
        rebuild: Rebuild,
        done: ReplaceDone,
    ) {
        let group = self.group(place.group);
        let member = &group.members[place.member];
        // Before the state is locked: labels are locked before it.
        let replaced = member.device().map_or(0, |old| old.label().sequence.get());
        {
            let mut state = self.state.lock();
            let disks = &mut state.groups[place.group as usize];
            if !disks.unused().contains(place.member) {
                drop(state);
                return done(Err(RaidError::InUse { disk: group.name(place.member) }));
            }
            disks.sequence = disks.sequence.max(replaced);
            if member.seat().identity != rebuild.identity {
                disks.lost.remove(&place.member);
            }
            member.set_seat(Seat {
                identity: rebuild.identity,
                device: Some(Arc::clone(&rebuild.device)),
            });
            disks.reasons.remove(&place.member);
            disks.rebuilding.insert(place.member, rebuild);
            // The identity is new even if the masks are not.
            disks.labelled = None;
        }
        self.write_labels(place.group);
        self.start_when_labelled(place, done);
    }

    /// Begins to fill a disk once the labels name it.
    pub(crate) fn start_when_labelled(self: &Arc<Self>, place: DiskPlace, done: ReplaceDone) {
        let inner = Arc::clone(self);
        self.finish_sync(Box::new(move |result: Result<(), StoreError>| match result {
            Ok(()) => {
                inner.start_rebuilds_at(place);
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
                let copies = disks.copies.keys();
                let members: Vec<usize> = disks.rebuilding.keys().chain(copies).copied().collect();
                members.into_iter().map(move |member| DiskPlace { group, member })
            };
            groups.flat_map(of_group).collect()
        };
        places.into_iter().for_each(|place| self.start_rebuilds_at(place));
        self.take_back_all();
    }

    fn start_rebuilds_at(self: &Arc<Self>, place: DiskPlace) {
        let devices: Vec<Arc<Device>> = {
            let state = self.state.lock();
            let disks = &state.groups[place.group as usize];
            let rebuilds = disks.rebuilding.get(&place.member).into_iter();
            rebuilds.chain(disks.copies.get(&place.member)).map(Rebuild::device).collect()
        };
        for task in devices.into_iter().map(|device| Task { place, device }) {
            for _ in 0..TETRISES_AT_A_TIME {
                self.rebuild_next(task.clone());
            }
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

    fn rebuild_next(self: &Arc<Self>, task: Task) {
        let regions = self.geometry.group(task.place.group).regions;
        let next = self.with_rebuild(&task, |rebuild| {
            let region = rebuild.next;
            rebuild.next = (region + 1).min(regions);
            region
        });
        let Some(region) = next.filter(|region| *region < regions) else { return };
        let tetris = TetrisId { group: task.place.group, region };
        let job = move |inner: &Arc<Self>| inner.rebuild_tetris(tetris, task);
        self.lock_tetris(tetris, Box::new(job));
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
            given: vec![Column::new(); group.data_disks],
        };
        let inner = Arc::clone(self);
        let write = Box::new(move |answer: Answer| {
            if answer.is_unreadable || inner.with_rebuild(&task, |_| ()).is_none() {
                return inner.unlock_tetris(tetris);
            }
            let (columns, own) = inner.rebuilt_columns(&answer, task.place, rows);
            let again = Arc::clone(&inner);
            let mut parts = inner.parts_of(tetris, missing, &columns);
            parts.extend(parts_of_column(member, &task.device, &own));
            let finish = Box::new(move |()| again.finish_rebuilding(tetris, task));
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

    pub(crate) fn finish_rebuilding(self: &Arc<Self>, tetris: TetrisId, task: Task) {
        // Not if it failed with this write.
        let _ = self.with_rebuild(&task, |rebuild| rebuild.finish(tetris.region));
        self.unlock_tetris(tetris);
        self.label_progress(&task);
        self.rebuild_next(task);
    }

    /// Has the label say how far the disk has come, if that is worth it.
    pub(crate) fn label_progress(self: &Arc<Self>, task: &Task) {
        let regions = self.geometry.group(task.place.group).regions;
        let due = self.with_rebuild(task, |rebuild| {
            let step = (regions / LABELS_PER_DISK).clamp(1, REGIONS_PER_LABEL_MAX);
            let is_due = rebuild.below >= rebuild.durable_below + step || rebuild.below == regions;
            let begins = is_due && !rebuild.is_label_under_way && rebuild.has_superblock;
            rebuild.is_label_under_way |= begins;
            begins.then_some(rebuild.below)
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
            (rebuild.durable_below, rebuild.is_label_under_way) = (below, false);
            rebuild.way
        });
        if told.is_none() {
            return;
        }
        if below < self.geometry.group(task.place.group).regions {
            return self.label_progress(task);
        }
        match told {
            Some(Way::Copy) => self.succeed(task.clone()),
            _ => self.finish_place(task),
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
            }
        }
        self.write_labels(task.place.group);
    }
}
