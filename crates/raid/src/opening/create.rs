//! Creates an aggregate on disks.
//!
//! Invariant: nothing is written before every disk was checked.

use crate::error::RaidError;
use crate::layout::{Geometry, Group, Layout, Seat, check_distinct, new_place};
use crate::opening::assemble::{StoreDone, join};
use crate::partial_parity_log::PartialParityLog;
use media::{Device, MediaError, Profile, regions_of};
use ondisk::label::{AGGREGATE_NAME_BYTES_MAX, DiskLabel, GROUPS_MAX, RaidKind};
use platform::completion::gather;
use platform::{Disk, Entropy};
use std::sync::Arc;
use units::{AggregateUuid, DiskUuid, Pvbn, Timestamp};

/// Disks that become a group.
pub struct GroupRequest {
    /// How it protects its data.
    pub kind: RaidKind,
    /// Its disks; the first become the parity disks.
    pub disks: Vec<Arc<dyn Disk>>,
}

/// An aggregate to be made.
pub struct CreateRequest {
    /// Its name.
    pub name: String,
    /// Its groups.
    pub groups: Vec<GroupRequest>,
    /// The time, for the labels.
    pub created: Timestamp,
    /// Whether what is on the disks may be lost.
    pub force: bool,
    /// What the disks are; what each tells of itself if it is not given.
    pub media: Option<Profile>,
    /// Regions of each disk in which a copy of the log may be; 0 if the log is elsewhere.
    pub log_regions: u64,
}

/// Labels the disks and opens the store; its blocks hold nothing of meaning yet.
pub fn create(
    request: CreateRequest,
    entropy: &dyn Entropy,
    journal: Arc<dyn PartialParityLog>,
    done: StoreDone,
) {
    let labels = match labels(&request, entropy) {
        Ok(labels) => labels,
        Err(error) => return done(Err(error)),
    };
    let now = request.created;
    let disks: Vec<_> = request.groups.into_iter().flat_map(|group| group.disks).collect();
    let work: Vec<_> = disks.iter().cloned().zip(labels).collect();
    let checks = gather(disks.len(), move |results: Vec<Result<(), MediaError>>| {
        match results.into_iter().collect::<Result<Vec<()>, _>>() {
            Ok(_) => label_all(work, journal, now, done),
            Err(error) => done(Err(error.into())),
        }
    });
    for (disk, check) in disks.iter().zip(checks) {
        media::check_unused(disk, request.force, check);
    }
}

fn label_all(
    work: Vec<(Arc<dyn Disk>, DiskLabel)>,
    journal: Arc<dyn PartialParityLog>,
    now: Timestamp,
    done: StoreDone,
) {
    let parts = gather(work.len(), move |results: Vec<Result<Device, MediaError>>| {
        let (mut devices, mut failure) = (Vec::new(), None);
        for result in results {
            match result {
                Ok(device) => devices.push(device),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            None => done(join(devices, journal, now)),
            Some(error) => unlabel(devices, error.into(), done),
        }
    });
    for ((disk, label), part) in work.into_iter().zip(parts) {
        media::initialize(disk, label, part);
    }
}

/// One disk could not be labelled: the labels of the others are erased, so that no disk is left
/// with a label of an aggregate that was never made.
fn unlabel(devices: Vec<Device>, error: RaidError, done: StoreDone) {
    let ended = move |_: Vec<Result<(), MediaError>>| done(Err(error));
    let parts = gather(devices.len(), ended);
    for (device, part) in devices.into_iter().zip(parts) {
        Arc::new(device).erase_label_last(part);
    }
}

/// The labels of all disks, in order.
fn labels(request: &CreateRequest, entropy: &dyn Entropy) -> Result<Vec<DiskLabel>, RaidError> {
    let groups_count = request.groups.len();
    if groups_count == 0 || groups_count > GROUPS_MAX as usize {
        return Err(RaidError::GroupCount { count: groups_count, maximum: GROUPS_MAX as usize });
    }
    let mut common = DiskLabel::empty();
    if request.name.is_empty() || request.name.contains('\0') || !common.set_name(&request.name) {
        let name = request.name.clone();
        return Err(RaidError::Name { name, maximum: AGGREGATE_NAME_BYTES_MAX });
    }
    common.aggregate = AggregateUuid(entropy.next_identity());
    common.created_nanoseconds = request.created.get().into();
    // Those of disks that are about to join have none: they are believed last.
    common.sequence = 1.into();
    let disks: Vec<_> = request.groups.iter().flat_map(|group| &group.disks).collect();
    check_distinct(disks.iter().map(|disk| disk.name()))?;
    let (mut places, mut groups, mut base) = (Vec::new(), Vec::new(), Pvbn(0));
    for group in &request.groups {
        let regions = group.disks.iter().map(|disk| regions_of(disk.size_blocks())).min();
        let regions = (regions.unwrap_or(0), request.log_regions);
        let place = new_place(group.kind, group.disks.len(), regions, base)?;
        base = base.offset(place.blocks());
        places.push(place);
        let seat = |_| Seat::empty(DiskUuid(entropy.next_identity()));
        groups.push(Arc::new(Group::new(group.kind, group.disks.iter().map(seat))));
    }
    let geometry = Arc::new(Geometry::new(places).ok_or(RaidError::Ranges)?);
    let layout = Layout { geometry, groups };
    let mut disks = disks.into_iter();
    let mut labels = Vec::new();
    for (group, place) in (0..).zip(&layout.groups) {
        for (member, disk) in (0..place.members.len()).zip(&mut disks) {
            let mut label = layout.label(group, member, &common);
            let profile = request.media.unwrap_or_else(|| Profile::of(&**disk));
            label.set_medium(profile.medium());
            labels.push(label);
        }
    }
    Ok(labels)
}
