//! What is well and what is not, for operators and metrics.

use crate::inner::Inner;
use crate::io::Counters;
use crate::membership::{GroupState, GroupStatus, MemberStatus, RetiredDisk, SpareStatus};
use crate::patrol::ScrubStatus;
use media::Profile;

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The groups, in order, removed ones among them.
    pub groups: Vec<GroupStatus>,
    /// Disks that wait for a place.
    pub spares: Vec<SpareStatus>,
    /// Names of disks that are no spares any more and have no place yet, and of those whose group
    /// was removed and whose labels still are to be erased.
    pub leaving_disks: Vec<String>,
    /// Disks that were replaced for being sick, since the start.
    pub retired: Vec<RetiredDisk>,
    /// Whether a disk that is being filled waits for a superblock, which the next consistency point
    /// writes to it.
    pub waits_for_superblock: bool,
    /// What happened.
    pub counters: Counters,
    /// The last scrub, or the one under way.
    pub scrub: ScrubStatus,
}

impl Status {
    /// Whether a disk of any group is missing.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.groups.iter().any(GroupStatus::is_degraded)
    }
}

impl Inner {
    pub(crate) fn status(&self) -> Status {
        // Before the state is locked: it looks at labels.
        // In this order: one that leaves meanwhile is seen once at least.
        let spares = self.spares();
        let mut leaving_disks = self.leaving_spares.lock().clone();
        let saved = self.saved_errors();
        let state = self.state.lock();
        let layout = self.layout();
        let groups = layout.groups.iter().zip(&state.groups).zip(layout.geometry.groups());
        let groups = groups.map(|((group, disks), place)| {
            let members = group.members.iter().enumerate();
            let members =
                members.map(|(index, member)| member.status(disks, index, (place.regions, &saved)));
            let members: Vec<MemberStatus> = members.collect();
            let is_rotational =
                members.iter().filter_map(|member| member.media).any(Profile::is_rotational);
            GroupStatus { kind: group.kind, members, regions: place.regions, is_rotational }
        });
        let groups = groups.collect();
        let mut filled = state.groups.iter().flat_map(GroupState::fillings);
        let waits_for_superblock = filled.any(|filled| !filled.has_superblock);
        leaving_disks.extend(state.leftovers.iter().map(|device| device.name().to_owned()));
        let scrub = self.scrub_status(&state.scrub);
        let retired = state.retired.clone();
        let counters = state.counters;
        Status { groups, spares, leaving_disks, retired, waits_for_superblock, counters, scrub }
    }
}
