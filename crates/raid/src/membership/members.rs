//! The disks of all groups.
//!
//! Invariants: a failure beyond what parity covers fails the store (`failure`) and leaves the disk
//! as it is in the labels. A missing disk is marked in the labels of the others before `sync`
//! succeeds.

use crate::error::RaidError;
use crate::inner::Inner;
use crate::layout::{DiskPlace, Member, Missing, check_size};
use crate::membership::group_state::GroupState;
use crate::request::SyncDone;
use media::Device;
use platform::completion::{Sender, gather};
use platform::mutation::{self, Rule};
use platform::{Disk, DiskError};
use std::sync::Arc;

impl Inner {
    /// The disks of a group that are written to, those that are being filled as well.
    pub(crate) fn devices_of(
        &self,
        group: u32,
        missing: impl FnOnce(&GroupState) -> Missing,
    ) -> Vec<(usize, Arc<Device>)> {
        let (missing, copies) = {
            let state = self.state.lock();
            let disks = &state.groups[group as usize];
            let copies = disks.copies.iter().map(|(member, copy)| (*member, copy.device()));
            (missing(disks), copies.collect::<Vec<_>>())
        };
        let place = self.group(group);
        let own = |member| Some((member, place.device(member, missing)?));
        (0..place.members.len()).filter_map(own).chain(copies).collect()
    }

    /// All disks that are written to: group, index in it, disk.
    pub(crate) fn devices(&self) -> Vec<(u32, usize, Arc<Device>)> {
        let groups = self.layout().groups.len() as u32;
        let of_group = |group| {
            let devices = self.devices_of(group, GroupState::unused).into_iter();
            devices.map(move |(member, device)| (group, member, device))
        };
        (0..groups).flat_map(of_group).collect()
    }

    /// A place, unless its group was removed.
    pub(crate) fn member(&self, DiskPlace { group, member }: DiskPlace) -> Option<Arc<Member>> {
        self.group(group).members.get(member).cloned()
    }

    /// Whether it is this disk that has a place.
    pub(crate) fn is_taken_by(&self, (group, member): (u32, usize), device: &Arc<Device>) -> bool {
        self.member(DiskPlace { group, member }).is_some_and(|place| place.is_taken_by(device))
    }

    pub(crate) fn has_place(&self, place: DiskPlace) -> bool {
        let layout = self.layout();
        let group = layout.groups.get(place.group as usize);
        group.is_some_and(|group| place.member < group.members.len())
    }

    pub(crate) fn check_place(&self, place: DiskPlace) -> Result<(), RaidError> {
        let DiskPlace { group, member } = place;
        self.has_place(place).then_some(()).ok_or(RaidError::NoSuchPlace { group, member })
    }

    /// Refuses a disk that is too small for a place.
    pub(crate) fn check_replacement(
        &self,
        place: DiskPlace,
        disk: &dyn Disk,
    ) -> Result<(), RaidError> {
        self.check_place(place)?;
        check_size(disk, self.geometry().group(place.group).regions)
    }

    /// Flushes all disks in use.
    pub(crate) fn flush(self: &Arc<Self>, done: SyncDone) {
        if mutation::broken(Rule::BlocksNotFlushed) {
            return self.finish_sync(done);
        }
        let devices = self.devices();
        let inner = Arc::clone(self);
        let places = devices.clone();
        let parts = gather(devices.len(), move |results: Vec<Result<(), DiskError>>| {
            for ((group, member, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    inner.fail_writing((group, member), &device, error.into());
                }
            }
            inner.finish_sync(done);
        });
        for ((_, _, device), part) in devices.iter().zip(parts) {
            device.disk().flush(part);
        }
    }

    /// Waits for labels, and tells the result.
    pub(crate) fn finish_sync(self: &Arc<Self>, done: SyncDone) {
        let result = {
            let mut state = self.state.lock();
            if state.label_updates > 0 {
                state.label_waiters.push(done);
                return;
            }
            state.failure.clone().map_or(Ok(()), Err)
        };
        done(result);
    }

    pub(crate) fn flush_group(self: &Arc<Self>, group: u32, missing: Missing, done: Sender<()>) {
        let devices = self.devices_of(group, |_| missing);
        let (inner, places) = (Arc::clone(self), devices.clone());
        let parts = gather(devices.len(), move |results: Vec<Result<(), DiskError>>| {
            for ((member, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    inner.fail_writing((group, member), &device, error.into());
                }
            }
            done(());
        });
        for ((_, device), part) in devices.iter().zip(parts) {
            device.disk().flush(part);
        }
    }
}
