//! How the groups and their disks are, told.

use crate::layout::{DiskPlace, Member};
use crate::membership::errors::Known;
use crate::membership::{
    FillingStatus, GroupState, GroupStatus, MemberState, MemberStatus, Members, ReplacementStatus,
    RetiredDisk,
};
use crate::walk::Pace;
use media::Profile;
use ondisk::features::FeatureSet;
use std::collections::BTreeMap;
use units::DiskUuid;

/// What the room tells of the disks in places, at one moment.
pub(crate) struct Report {
    pub groups: Vec<GroupStatus>,
    pub fillings: Vec<FillingStatus>,
    pub retired: Vec<RetiredDisk>,
    pub waits_for_superblock: bool,
}

impl Members {
    /// Names of disks that are no spares any more and have no place yet.
    pub(crate) fn leaving_spares(&self) -> Vec<String> {
        self.leaving_spares.lock().clone()
    }

    /// What the labels of all disks say of the format.
    fn features(&self) -> BTreeMap<String, FeatureSet> {
        let layout = self.layout();
        let members = layout.groups.iter().flat_map(|group| &group.members);
        let devices = members.filter_map(|member| member.device());
        devices.map(|device| (device.name().to_owned(), device.features())).collect()
    }

    pub(crate) fn report(&self) -> Report {
        // Before the state is locked: labels are locked before it, as whoever changes them does.
        let labels = Labels { errors: self.saved_errors(), features: self.features() };
        let state = self.state.lock();
        let layout = self.layout();
        let groups = layout.groups.iter().zip(&state.groups).zip(layout.geometry.groups());
        let groups = groups.map(|((group, disks), place)| {
            let members = group.members.iter().enumerate();
            let members = members
                .map(|(index, member)| status_of(member, disks, index, (place.regions, &labels)));
            let members: Vec<MemberStatus> = members.collect();
            let is_rotational =
                members.iter().filter_map(|member| member.media).any(Profile::is_rotational);
            GroupStatus { kind: group.kind, members, regions: place.regions, is_rotational }
        });
        let mut filled = state.groups.iter().flat_map(GroupState::fillings);
        Report {
            groups: groups.collect(),
            fillings: fillings_of(&state.groups),
            retired: state.retired.clone(),
            waits_for_superblock: filled.any(|(_, filled)| !filled.has_superblock),
        }
    }
}

/// What the labels of all disks say.
struct Labels {
    errors: BTreeMap<DiskUuid, Known>,
    /// By the disk's name.
    features: BTreeMap<String, FeatureSet>,
}

/// The disks of all groups that are being filled.
fn fillings_of(groups: &[GroupState]) -> Vec<FillingStatus> {
    let mut fillings = Vec::new();
    for (group, disks) in (0..).zip(groups) {
        fillings.extend(disks.fillings().map(|(member, filled)| FillingStatus {
            place: DiskPlace { group, member },
            disk: filled.device().name().to_owned(),
            identity: filled.identity(),
            way: filled.way,
            is_held: filled.is_held(),
            rate: filled.rate(),
            is_stuck: filled.is_stuck,
            done_regions: filled.regions(),
            regions: filled.end(),
        }));
    }
    fillings
}

/// How a disk of a group is.
fn status_of(
    member: &Member,
    disks: &GroupState,
    index: usize,
    (regions, labels): (u64, &Labels),
) -> MemberStatus {
    let seat = member.seat();
    let state = match (disks.filled(index), disks.reason(index)) {
        (Some(rebuild), _) => MemberState::Rebuilding {
            rebuilt_regions: rebuild.regions(),
            regions,
            pace: rebuild.pace(),
        },
        (None, Some(reason)) => MemberState::Failed { reason: reason.clone() },
        (None, None) if disks.standing(index).is_missing() => MemberState::Missing,
        (None, None) if disks.is_unlabelled(index) => {
            let pace = Pace::default();
            MemberState::Rebuilding { rebuilt_regions: regions, regions, pace }
        }
        (None, None) => MemberState::Online,
    };
    let replacement =
        disks.copy().filter(|(at, _)| *at == index).map(|(_, copy)| ReplacementStatus {
            name: copy.device().name().to_owned(),
            media: copy.device().profile(),
            copied_regions: copy.regions(),
            regions,
            pace: copy.pace(),
        });
    let is_away = disks.lost(index).is_some() && state != MemberState::Online;
    let media = seat.device.as_ref().map(|device| device.profile());
    let name = seat.device.map(|device| device.name().to_owned());
    // A disk that came into its place in this very moment shows its features at the next look.
    let features = name.as_ref().and_then(|name| labels.features.get(name).copied());
    let features = features.unwrap_or_else(FeatureSet::empty);
    let (identity, role) = (seat.identity, member.role);
    let (errors, sickness) = {
        let saved = labels.errors.get(&identity).copied().unwrap_or_default();
        disks.errors_of(index, identity, saved)
    };
    MemberStatus {
        name,
        identity,
        role,
        state,
        media,
        is_away,
        replacement,
        errors,
        sickness,
        features,
    }
}
