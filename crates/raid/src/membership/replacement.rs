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
use crate::layout::{DiskPlace, Member, Seat, is_in};
use crate::membership::Members;
use crate::membership::filling::{Rebuild, Task, Way};
use crate::membership::group_state::GroupState;
use crate::request::ReplaceDone;
use media::{Device, MediaError};
use ondisk::label::DiskLabel;
use platform::Disk;
use std::sync::Arc;

impl Members {
    /// Begins to fill a disk with what another holds, to take its place.
    pub(super) fn copy_to(
        self: &Arc<Self>,
        place: DiskPlace,
        disk: Arc<dyn Disk>,
        identity: [u8; 16],
        done: ReplaceDone,
    ) {
        let labels = self.check_copyable(place).and_then(|()| {
            let place_label = self.replacement_label(place, &*disk, identity)?;
            let mut own = self.spare_label(&*disk, identity)?;
            own.group_index = place.group.into();
            own.disk_index = (place.member as u16).into();
            own.data_regions = place_label.data_regions;
            Ok((place_label, own))
        });
        let (place_label, own) = match labels {
            Ok(labels) => labels,
            Err(error) => return done(Err(error)),
        };
        let members = Arc::clone(self);
        let labelled = move |device: Result<Device, MediaError>| match device {
            Ok(device) => {
                let rebuild = Rebuild::copy(Arc::new(device), place_label);
                members.begin_copy(place, rebuild, done);
            }
            Err(error) => done(Err(error.into())),
        };
        media::initialize(disk, own, Box::new(labelled));
    }

    fn check_copyable(&self, place: DiskPlace) -> Result<(), RaidError> {
        let group = self.group(place.group);
        let state = self.state.lock();
        let disks = &state.groups[place.group as usize];
        if let Some((member, copy)) = disks.copies.first_key_value() {
            let successor = copy.device().name().to_owned();
            let (disk, group) = (group.name(*member), place.group);
            return Err(RaidError::Copying { group, disk, successor });
        }
        if is_in(disks.missing, place.member) {
            return Err(RaidError::InUse { disk: group.name(place.member) });
        }
        Ok(())
    }

    fn begin_copy(self: &Arc<Self>, place: DiskPlace, mut rebuild: Rebuild, done: ReplaceDone) {
        if let Err(error) = self.check_copyable(place) {
            return done(Err(error));
        }
        {
            let mut state = self.state.lock();
            if let Err(error) = self.check_place(place) {
                // The group was removed meanwhile.
                drop(state);
                return done(Err(error));
            }
            let disks = &mut state.groups[place.group as usize];
            rebuild.copy = Some(disks.next_replacement());
            disks.copies.insert(place.member, rebuild);
        }
        self.write_labels(place.group);
        self.start_when_labelled(place, done);
    }

    /// A disk that has no place did not write what it should.
    pub(super) fn fail_successor(
        self: &Arc<Self>,
        (group, member): (u32, usize),
        device: &Arc<Device>,
    ) {
        {
            let mut state = self.state.lock();
            let copies = &mut state.groups[group as usize].copies;
            if !copies.get(&member).is_some_and(|copy| copy.is_of(device)) {
                return;
            }
            copies.remove(&member);
        }
        self.write_labels(group);
    }

    /// The disk that has the place is lost: the one that is being filled takes it as it is; false
    /// if there is none.
    pub(super) fn promote_successor(
        &self,
        disks: &mut GroupState,
        (group, member): (u32, usize),
    ) -> bool {
        let Some(mut copy) = disks.copies.remove(&member) else { return false };
        self.give_place(disks, (group, member), &copy);
        copy.way = Way::Anew;
        copy.is_told = false;
        disks.rebuilding.insert(member, copy);
        disks.lost.remove(&member);
        disks.reasons.remove(&member);
        true
    }

    /// The disk that was filled beside another has the place. Work that is under way uses it in
    /// regions that it held when the work began: there it has all that the other has, and what is
    /// written must reach it.
    fn give_place(&self, disks: &mut GroupState, (group, member): (u32, usize), copy: &Rebuild) {
        self.group(group).members[member].set_seat(Seat {
            identity: copy.identity(),
            device: Some(copy.device()),
            replacement: disks.next_replacement(),
            copy: copy.copy,
        });
    }

    /// The disk holds everything, durably: it gets the label of the place.
    pub(super) fn succeed(self: &Arc<Self>, task: Task) {
        let DiskPlace { group, member } = task.place;
        let place = self.group(group);
        let sequence = |member: &Arc<Member>| member.device().map(|one| one.label().sequence.get());
        let highest = place.members.iter().filter_map(sequence).max().unwrap_or(0);
        let label = {
            let mut state = self.state.lock();
            let disks = &mut state.groups[group as usize];
            disks.sequence = disks.sequence.max(highest).saturating_add(2);
            let copy = disks.copies.get(&member).filter(|copy| copy.is_of(&task.device));
            copy.and_then(Rebuild::label_of_place).cloned()
        };
        let Some(mut label) = label else {
            // The other has failed in this moment, and this one has the place.
            return self.finish_place(&task);
        };
        let (members, device) = (Arc::clone(self), Arc::clone(&task.device));
        let change = |own: &mut DiskLabel| {
            label.sequence = own.sequence;
            *own = label;
            self.tell_label(group, member, own);
            own.successor = [0; 16];
            if let Some(identity) = own.members.get_mut(member) {
                *identity = own.disk;
            }
        };
        device.update_label(change, Box::new(move |result| members.succeeded(&task, result)));
    }

    fn succeeded(self: &Arc<Self>, task: &Task, result: Result<(), MediaError>) {
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
            if disks.copies.get(&member).is_some_and(|copy| copy.is_of(&task.device))
                && let Some(copy) = disks.copies.remove(&member)
            {
                self.give_place(disks, (group, member), &copy);
                disks.labelled = None;
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
