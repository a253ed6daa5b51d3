//! A disk that is filled while the one whose place it is to take stays in use: nothing is missing
//! meanwhile.
//!
//! It is a spare until it holds everything. Regions that it holds are written on both disks, as are
//! superblocks. Then it gets the label of a member, with a sequence above those of its group: from
//! that moment a start believes it, and until the others say so, too, no `sync` succeeds. The label
//! of the disk that had the place is erased.
//!
//! If that disk fails before, the other takes the place as it is, and the copy goes on as a
//! rebuild. If the other fails, the labels no longer name it, and nothing has happened.
//!
//! Invariants: a write under the tetris' lock goes to both disks or, once the place has changed
//! hands, to the new one. A disk has the place only after a superblock was written to it.

use crate::error::RaidError;
use crate::layout::{DiskPlace, Member};
use crate::membership::filling::{Rebuild, Task};
use crate::membership::{Members, State};
use crate::request::ReplaceDone;
use media::{Device, MediaError};
use ondisk::label::DiskLabel;
use platform::Disk;
use std::sync::Arc;
use units::DiskUuid;

impl Members {
    /// Begins to fill a disk with what another holds, to take its place.
    pub(super) fn copy_to(
        self: &Arc<Self>,
        place: DiskPlace,
        disk: Arc<dyn Disk>,
        (identity, rate): (DiskUuid, Option<u64>),
        done: ReplaceDone,
    ) {
        let copyable = self.check_copyable(place, &self.state.lock());
        let labels = copyable.and_then(|()| {
            let place_label = self.replacement_label(place, &*disk, identity)?;
            let mut own = self.spare_label(&*disk, identity)?;
            own.group_index = place.group.into();
            own.disk_index = (place.member as u16).into();
            own.data_regions = place_label.data_regions;
            own.log_regions = place_label.log_regions;
            Ok((place_label, own))
        });
        let (place_label, own) = match labels {
            Ok(labels) => labels,
            Err(error) => return done(Err(error)),
        };
        let members = Arc::clone(self);
        let labelled = move |device: Result<Device, MediaError>| match device {
            Ok(device) => {
                let rebuild = Rebuild::copy(Arc::new(device), place_label).at_rate(rate);
                members.begin_copy(place, rebuild, done);
            }
            Err(error) => done(Err(error.into())),
        };
        media::initialize(disk, own, Box::new(labelled));
    }

    fn check_copyable(&self, place: DiskPlace, state: &State) -> Result<(), RaidError> {
        // The group may have been removed meanwhile.
        self.check_place(place)?;
        let group = self.group(place.group);
        let disks = &state.groups[place.group as usize];
        if let Some((member, copy)) = disks.copy() {
            let replacement = copy.device().name().to_owned();
            let (disk, group) = (group.name(member), place.group);
            return Err(RaidError::Copying { group, disk, replacement });
        }
        if disks.standing(place.member).is_missing() {
            return Err(RaidError::InUse { disk: group.name(place.member) });
        }
        Ok(())
    }

    fn begin_copy(self: &Arc<Self>, place: DiskPlace, rebuild: Rebuild, done: ReplaceDone) {
        {
            let mut state = self.state.lock();
            if let Err(error) = self.check_copyable(place, &state) {
                drop(state);
                return done(Err(error));
            }
            state.groups[place.group as usize].begin_copy(place.member, rebuild);
        }
        self.write_labels(place.group);
        self.start_when_labelled(place, done);
    }

    /// A disk that has no place did not write what it should.
    pub(super) fn fail_replacement(
        self: &Arc<Self>,
        (group, member): (u32, usize),
        device: &Arc<Device>,
    ) {
        if self.state.lock().groups[group as usize].fail_copy(member, device) {
            self.write_labels(group);
        }
    }

    /// The disk holds everything, durably: it gets the label of the place.
    pub(super) fn take_over(self: &Arc<Self>, task: Task) {
        let DiskPlace { group, member } = task.place;
        let place = self.group(group);
        let sequence = |member: &Arc<Member>| member.device().map(|one| one.label().sequence.get());
        let highest = place.members.iter().filter_map(sequence).max().unwrap_or(0);
        let label = {
            let mut state = self.state.lock();
            let disks = &mut state.groups[group as usize];
            disks.sequence = disks.sequence.max(highest).saturating_add(2);
            let copy = disks.copy().filter(|(at, copy)| *at == member && copy.is_of(&task.device));
            copy.and_then(|(_, copy)| copy.label_of_place()).cloned()
        };
        let Some(mut label) = label else {
            // The other has failed in this moment, and this one has the place.
            return self.finish_place(&task);
        };
        let (members, device) = (Arc::clone(self), Arc::clone(&task.device));
        let change = |own: &mut DiskLabel| {
            label.sequence = own.sequence;
            label.keep_number(own);
            *own = label;
            self.tell_label(group, member, own);
            own.replacement = DiskUuid::NIL;
            if let Some(identity) = own.members.get_mut(member) {
                *identity = own.disk;
            }
        };
        device.update_label(change, Box::new(move |result| members.has_taken_over(&task, result)));
    }

    fn has_taken_over(self: &Arc<Self>, task: &Task, result: Result<(), MediaError>) {
        let DiskPlace { group, member } = task.place;
        if let Err(error) = result {
            return self.fail_writing((group, member), &task.device, error);
        }
        // Labels are locked before the state.
        let label = self.group(group).members[member].device().map(|former| former.label());
        let former = {
            let mut state = self.state.lock();
            let disks = &mut state.groups[group as usize];
            let former = self.group(group).members[member].device();
            if let Some(seat) = disks.end_copy(member, &task.device) {
                self.group(group).members[member].set_seat(seat);
                // The one that had the place must be nobody's before anything more is durable.
                state.label_updates += 1;
                if let Some((former, label)) = former.as_ref().zip(label.as_ref()) {
                    state.retire(task.place, (former, label), &task.device);
                }
                former
            } else {
                None
            }
        };
        let Some(former) = former else { return self.finish_place(task) };
        self.write_labels(group);
        let members = Arc::clone(self);
        // If it cannot be erased, the labels of the others say enough.
        former.erase_label(Box::new(move |_| members.label_updated()));
    }
}
