//! Disks that take places: labels for them, and the moment from which they have the place.
//!
//! The place of a missing disk is taken at once, and filled then (see `rebuild`); that of a disk in
//! use once the other is filled (see `replacement`); a disk that returns takes its own (see
//! `returning`).
//!
//! Invariants: nothing is written to a disk before it was found large enough; a disk that takes a
//! place counts as missing for work that began before (see `Missing`), and its predecessor for
//! nothing from then on.
//!
//! Fails: [`RaidError`], with nothing changed but the new disk.

use crate::error::{RaidError, StoreError};
use crate::layout::DiskPlace;
use crate::membership::Members;
use crate::membership::filling::{Arrival, Rebuild, Way};
use crate::membership::group_state::GroupState;
use crate::membership::standing::Standing;
use crate::request::ReplaceDone;
use media::{Device, MediaError};
use ondisk::label::DiskLabel;
use platform::Disk;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::DiskUuid;

/// Whether a disk may have its place again and be filled in this way.
const fn may_return(standing: Standing, way: Way) -> bool {
    matches!(
        (standing, way),
        (Standing::Offline, Way::Resync) | (Standing::Torn | Standing::Failed, Way::Anew)
    )
}

impl Members {
    /// Labels a disk that was checked, gives it the place of a missing one, and begins to rebuild.
    pub(crate) fn replace_disk(
        self: &Arc<Self>,
        place: DiskPlace,
        disk: Arc<dyn Disk>,
        (identity, rate): (DiskUuid, Option<u64>),
        done: ReplaceDone,
    ) {
        if let Some(failure) = self.failure() {
            return done(Err(failure.into()));
        }
        let is_free = |disks: &GroupState| disks.unused().contains(place.member);
        if self.has_place(place) && !is_free(&self.state.lock().groups[place.group as usize]) {
            // Not missing: it is filled beside the one that is there.
            return self.copy_to(place, disk, (identity, rate), done);
        }
        let label = match self.replacement_label(place, &*disk, identity) {
            Ok(label) => label,
            Err(error) => return done(Err(error)),
        };
        let members = Arc::clone(self);
        let labelled = move |device: Result<Device, MediaError>| match device {
            Ok(device) => {
                let rebuild = Rebuild::new(Arc::new(device), Way::Anew).at_rate(rate);
                members.take_place(place, rebuild, Arrival::Replaces, done);
            }
            Err(error) => done(Err(error.into())),
        };
        media::initialize(disk, label, Box::new(labelled));
    }

    /// Takes a disk out of use, as if it had failed.
    pub(crate) fn fail_disk(self: &Arc<Self>, place: DiskPlace, done: ReplaceDone) {
        if let Err(error) = self.check_place(place) {
            return done(Err(error));
        }
        let group = self.group(place.group);
        let disk = group.name(place.member);
        let device = group.members[place.member].device();
        let is_used = |members: &Self| {
            !members.state.lock().groups[place.group as usize].unused().contains(place.member)
        };
        let Some(device) = device.filter(|_| is_used(self)) else {
            return done(Err(RaidError::NotInUse { disk }));
        };
        // Like a failed read: given up only if the group can do without it. Another that is filled
        // beside it has the place then.
        let error = MediaError::Retired { disk: disk.clone() };
        self.fail_reading((place.group, place.member), &device, error);
        if group.members[place.member].is_taken_by(&device) && is_used(self) {
            let (group, kind) = (place.group, group.kind);
            return done(Err(RaidError::Indispensable { group, kind, disk }));
        }
        self.finish_sync(Box::new(|result| done(result.map_err(RaidError::from))));
    }

    /// The label of a disk that takes a place and holds nothing yet: like those of its group.
    pub(super) fn replacement_label(
        &self,
        place: DiskPlace,
        disk: &dyn Disk,
        identity: DiskUuid,
    ) -> Result<DiskLabel, RaidError> {
        self.check_replacement(place, disk)?;
        let (layout, group) = (self.layout(), self.group(place.group));
        let unused = self.state.lock().groups[place.group as usize].unused();
        let other = (0..group.members.len()).find_map(|at| group.device(at, unused));
        let Some(other) = other else {
            return Err(RaidError::NoSuchPlace { group: place.group, member: place.member });
        };
        let mut label = layout.label(place.group, place.member, &other.label());
        label.disk = identity;
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
    pub(super) fn take_place(
        self: &Arc<Self>,
        place: DiskPlace,
        rebuild: Rebuild,
        arrival: Arrival,
        done: ReplaceDone,
    ) {
        let group = self.group(place.group);
        let Some(member) = group.members.get(place.member) else {
            return done(self.check_place(place));
        };
        // Before the state is locked: labels are locked before it.
        let replaced = member.device().map_or(0, |old| old.label().sequence.get());
        {
            let mut state = self.state.lock();
            if let Some(failure) = state.failure.clone() {
                // Nothing more becomes durable, and a label least of all.
                drop(state);
                return done(Err(failure.into()));
            }
            if let Err(error) = self.check_place(place) {
                // The group was removed meanwhile.
                drop(state);
                return done(Err(error));
            }
            let disks = &mut state.groups[place.group as usize];
            if !disks.unused().contains(place.member) {
                drop(state);
                return done(Err(RaidError::InUse { disk: group.name(place.member) }));
            }
            let is_its_own = member.seat().identity == rebuild.identity();
            let may_return = is_its_own && may_return(disks.standing(place.member), rebuild.way);
            let is_return = arrival == Arrival::Returns
                && (is_its_own || !mutation::broken(Rule::SuccessorsPlaceTaken));
            if is_return && !may_return {
                // While its label was written it was back and went once more, or another disk had
                // its place and failed.
                drop(state);
                let disk = rebuild.device().name().to_owned();
                return done(Err(RaidError::NotMissed { disk }));
            }
            disks.sequence = disks.sequence.max(replaced);
            member.set_seat(disks.take_place(place.member, rebuild, arrival));
        }
        self.write_labels(place.group);
        self.start_when_labelled(place, done);
    }

    /// Begins to fill a disk once the labels name it.
    pub(super) fn start_when_labelled(self: &Arc<Self>, place: DiskPlace, done: ReplaceDone) {
        // Whoever waits holds it: a store may be dropped while labels are on their way.
        let filler = self.filler.upgrade();
        self.finish_sync(Box::new(move |result: Result<(), StoreError>| match result {
            Ok(()) => {
                if let Some(filler) = filler {
                    filler.fill(place);
                }
                done(Ok(()));
            }
            Err(error) => done(Err(error.into())),
        }));
    }
}
