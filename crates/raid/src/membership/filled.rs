//! What the labels say of a disk that is being filled: how far it has come, and that it is whole.

use crate::layout::DiskPlace;
use crate::membership::filling::{Rebuild, Task, Way};
use crate::membership::{GroupState, Members};
use media::{Device, MediaError};
use ondisk::label::DiskLabel;
use platform::mutation::{self, Rule};
use std::sync::Arc;

impl Members {
    /// Disks that are being filled, and the places of those that they are filled beside.
    pub(crate) fn places_being_filled(&self) -> Vec<DiskPlace> {
        let state = self.state.lock();
        let groups = (0..).zip(&state.groups);
        let of_group = |(group, disks): (u32, &GroupState)| {
            let members: Vec<usize> = disks.fillings().map(|(member, _)| member).collect();
            members.into_iter().map(move |member| DiskPlace { group, member })
        };
        groups.flat_map(of_group).collect()
    }

    /// The disks that are being filled at a place.
    pub(crate) fn fillings_at(&self, place: DiskPlace) -> Vec<Task> {
        let state = self.state.lock();
        let disks = &state.groups[place.group as usize];
        let devices = disks.fillings_at(place.member).map(Rebuild::device);
        devices.map(|device| Task { place, device }).collect()
    }

    /// Time has passed; the disks of which regions have to be begun now.
    pub(crate) fn tick_fillings(&self, now: u64) -> Vec<Task> {
        let mut state = self.state.lock();
        let groups = (0..).zip(&mut state.groups);
        let of_group = |(group, disks): (u32, &mut GroupState)| {
            let due = disks.fillings_mut().filter_map(|(member, rebuild)| {
                let place = DiskPlace { group, member };
                rebuild.tick(now).then(|| Task { place, device: rebuild.device() })
            });
            due.collect::<Vec<Task>>()
        };
        groups.flat_map(of_group).collect()
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
        disks.filling_mut(task.place.member, &task.device).map(change)
    }

    /// A superblock was written to a disk.
    pub(super) fn has_superblock(
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

    /// Has the label say how far the disk has come, if that is worth it.
    pub(crate) fn label_progress(self: &Arc<Self>, task: &Task) {
        let due = self.with_rebuild(task, Rebuild::label_due);
        let Some(below) = due.flatten() else { return };
        let (members, task) = (Arc::clone(self), task.clone());
        let disk = Arc::clone(task.device.disk());
        disk.flush(Box::new(move |flushed| match flushed {
            Ok(()) => {
                let device = Arc::clone(&task.device);
                let label = |label: &mut DiskLabel| label.rebuilt_regions = below.into();
                let told = Box::new(move |result| members.progress_labelled(&task, below, result));
                device.update_label(label, told);
            }
            Err(error) => members.fail_rebuild(&task, error.into()),
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
        let told = self.with_rebuild(task, |rebuild| (rebuild.way, rebuild.labelled(below)));
        match told {
            None => {}
            Some((_, false)) => self.label_progress(task),
            Some((Way::Copy, true)) => self.take_over_after_log(task.clone()),
            Some((Way::Anew | Way::Resync, true)) => self.finish_place(task),
        }
    }

    /// The disk takes the place when the log has no copy any more on the one that has it.
    fn take_over_after_log(self: &Arc<Self>, task: Task) {
        if self.log_disks.is_on(task.place) && !mutation::broken(Rule::LogLeftBehind) {
            return self.waiting_for_log.lock().push(task);
        }
        self.take_over(task);
    }

    /// Time has passed: the log may have left disks that others wait to replace.
    pub(crate) fn go_on_after_log(self: &Arc<Self>) {
        let waiting = std::mem::take(&mut *self.waiting_for_log.lock());
        for task in waiting {
            // What has failed meanwhile, or has the place already, waits for nothing.
            if self.with_rebuild(&task, |rebuild| rebuild.way) == Some(Way::Copy) {
                self.take_over_after_log(task);
            }
        }
    }

    /// The disk holds all that its place must.
    pub(super) fn finish_place(self: &Arc<Self>, task: &Task) {
        let (members, DiskPlace { group, member }) = (Arc::clone(self), task.place);
        self.state.lock().groups[group as usize].fill(member, &task.device);
        self.write_labels(group);
        self.finish_sync(Box::new(move |_| {
            members.state.lock().groups[group as usize].tell_whole(member);
        }));
    }
}
