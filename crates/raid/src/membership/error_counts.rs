//! Counts the errors of disks.

use crate::layout::DiskPlace;
use crate::membership::errors::{Health, Known, RetiredDisk, Trouble, known_of};
use crate::membership::{Members, State};
use media::{Device, MediaError};
use ondisk::label::DiskLabel;
use platform::DiskError;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::DiskUuid;

/// Disks that are remembered after they were replaced for being sick: more than anybody has spares.
const RETIRED_MAX: usize = 16;

impl Members {
    /// Notes what a disk did.
    pub(crate) fn count_errors(
        &self,
        (group, member): (u32, usize),
        device: &Arc<Device>,
        troubles: &[Trouble],
    ) {
        if troubles.is_empty() || !self.is_taken_by((group, member), device) {
            return;
        }
        // Labels are locked before the state.
        let label = device.label();
        let mut state = self.state.lock();
        let healths = &mut state.groups[group as usize].health;
        let new = || Health::new(label.disk, known_of(&label));
        let health = healths.entry(member).or_insert_with(&new);
        if health.disk != label.disk {
            *health = new();
        }
        troubles.iter().for_each(|trouble| health.add(*trouble));
    }

    /// A disk failed as a whole. That it is not there is no error: somebody may have taken it out.
    pub(super) fn count_failure(
        &self,
        place: (u32, usize),
        device: &Arc<Device>,
        error: &MediaError,
        is_write: bool,
    ) {
        let is_error = match error {
            MediaError::Disk(DiskError::Gone { .. }) => false,
            MediaError::Disk(_) => true,
            _ => false,
        };
        let is_used = || {
            let state = self.state.lock();
            let disks = &state.groups[place.0 as usize];
            !disks.standing(place.1).is_missing() || disks.filled(place.1).is_some()
        };
        if is_error && is_used() {
            self.count_errors(place, device, &[Trouble::Failure { is_write }]);
        }
    }

    /// What the labels of all disks say, by identity.
    pub(super) fn saved_errors(&self) -> BTreeMap<DiskUuid, Known> {
        let layout = self.layout();
        let members = layout.groups.iter().flat_map(|group| &group.members);
        let labels = members.filter_map(|member| member.device()).map(|device| device.label());
        labels.map(|label| (label.disk, known_of(&label))).collect()
    }

    /// Forgets a disk that was replaced for being sick; false if there is none of that name.
    pub(crate) fn forget_retired(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let before = state.retired.len();
        state.retired.retain(|disk| disk.name != name);
        state.retired.len() < before
    }
}

impl State {
    /// Remembers a disk that loses its place to another, if it was sick; `saved` is what its label
    /// says.
    pub(crate) fn retire(
        &mut self,
        DiskPlace { group, member }: DiskPlace,
        (former, saved): (&Device, &DiskLabel),
        replacement: &Device,
    ) {
        let disks = &self.groups[group as usize];
        let (errors, sickness) = disks.errors_of(member, saved.disk, known_of(saved));
        let Some(sickness) = sickness else { return };
        if self.retired.len() == RETIRED_MAX {
            self.retired.remove(0);
        }
        let (name, replacement) = (former.name().to_owned(), replacement.name().to_owned());
        self.retired.push(RetiredDisk { name, sickness, errors, replacement });
    }
}
