//! Which disks a piece of work may use, and having them make durable what they were given.

use crate::error::RaidError;
use crate::layout::{DiskPlace, Member, Missing, TetrisId, check_size};
use crate::membership::{GroupState, Members};
use crate::request::SyncDone;
use media::Device;
use platform::completion::{Sender, gather};
use platform::mutation::{self, Rule};
use platform::{Disk, DiskError};
use std::ops::RangeInclusive;
use std::sync::Arc;

impl Members {
    /// The disks that cannot be used in a tetris.
    pub(crate) fn missing_at(&self, tetris: TetrisId) -> Missing {
        self.state.lock().groups[tetris.group as usize].missing_at(tetris.region)
    }

    /// The disks that cannot be used in some of these regions of a group.
    pub(crate) fn missing_in(&self, group: u32, regions: RangeInclusive<u64>) -> Missing {
        let state = self.state.lock();
        let disks = &state.groups[group as usize];
        let (first, rest) = (*regions.start(), regions.skip(1));
        rest.map(|region| disks.missing_at(region)).fold(disks.missing_at(first), Missing::union)
    }

    /// The disks that cannot be used in a tetris now, and those that a start after a crash could
    /// not use there.
    pub(crate) fn missing_now_and_after_crash(&self, tetris: TetrisId) -> (Missing, Missing) {
        let state = self.state.lock();
        let disks = &state.groups[tetris.group as usize];
        (disks.missing_at(tetris.region), disks.missing_after_crash_at(tetris.region))
    }

    /// The disks that are filled beside those that have the places, and hold a tetris already.
    pub(crate) fn copies_with(&self, tetris: TetrisId) -> Vec<(usize, Arc<Device>)> {
        let state = self.state.lock();
        let copy = state.groups[tetris.group as usize].copy().into_iter();
        let there = copy.filter(|(_, copy)| copy.has(tetris.region));
        there.map(|(member, copy)| (member, copy.device())).collect()
    }

    /// The places of a group that have a disk which is filled beside the one in use.
    pub(crate) fn copied_members(&self, group: u32) -> Vec<usize> {
        let state = self.state.lock();
        state.groups[group as usize].copy().into_iter().map(|(member, _)| member).collect()
    }

    /// Whether blocks are asked of a disk.
    pub(crate) fn is_used(&self, group: u32, member: usize) -> bool {
        !self.state.lock().groups[group as usize].unused().contains(member)
    }

    /// The disks of a group that are written to, those that are being filled as well.
    pub(super) fn devices_of(
        &self,
        group: u32,
        missing: impl FnOnce(&GroupState) -> Missing,
    ) -> Vec<(usize, Arc<Device>)> {
        let (missing, copies) = {
            let state = self.state.lock();
            let disks = &state.groups[group as usize];
            let copies = disks.copy().into_iter().map(|(member, copy)| (member, copy.device()));
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
    pub(super) fn is_taken_by(&self, (group, member): (u32, usize), device: &Arc<Device>) -> bool {
        self.member(DiskPlace { group, member }).is_some_and(|place| place.is_taken_by(device))
    }

    pub(super) fn has_place(&self, place: DiskPlace) -> bool {
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
        check_size(disk, self.geometry().group(place.group).layout())
    }

    /// Flushes all disks in use.
    pub(crate) fn flush(self: &Arc<Self>, done: SyncDone) {
        if mutation::broken(Rule::BlocksNotFlushed) {
            return self.finish_sync(done);
        }
        let devices = self.devices();
        let members = Arc::clone(self);
        let places = devices.clone();
        let parts = gather(devices.len(), move |results: Vec<Result<(), DiskError>>| {
            for ((group, member, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    members.fail_writing((group, member), &device, error.into());
                }
            }
            members.finish_sync(done);
        });
        for ((_, _, device), part) in devices.iter().zip(parts) {
            device.disk().flush(part);
        }
    }

    /// Waits for labels, and tells the result.
    pub(super) fn finish_sync(self: &Arc<Self>, done: SyncDone) {
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
        let (members, places) = (Arc::clone(self), devices.clone());
        let parts = gather(devices.len(), move |results: Vec<Result<(), DiskError>>| {
            for ((member, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    members.fail_writing((group, member), &device, error.into());
                }
            }
            done(());
        });
        for ((_, device), part) in devices.iter().zip(parts) {
            device.disk().flush(part);
        }
    }
}
