//! Puts an aggregate together from its disks.
//!
//! Invariants: of a group's labels the one that was changed last says who is a member and who has
//! missed writes. A disk of a group that was removed is nobody's, whatever its own label says: it
//! is let go of (see `resizing/removal.rs`).

use crate::error::RaidError;
use crate::layout::{Geometry, Group, GroupGeometry, GroupList, Layout, Seat};
use crate::membership::{
    Found, GroupState, Rebuild, Standing, Starting, Told, at_start, first_sequence,
};
use crate::partial_parity_log::PartialParityLog;
use crate::store::Store;
use media::{Device, DeviceDone, MediaError};
use ondisk::label::{DiskLabel, DiskRole};
use platform::Disk;
use platform::completion::gather;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{DiskUuid, Pvbn, Timestamp};

/// Receives a store.
pub(crate) type StoreDone = Box<dyn FnOnce(Result<Store, RaidError>) + Send>;

/// Puts an aggregate together from its disks, in any order. A disk that cannot be read, or is not
/// among them, is missing; where parity makes it good the store opens degraded.
pub fn assemble(
    disks: Vec<Arc<dyn Disk>>,
    journal: Arc<dyn PartialParityLog>,
    now: Timestamp,
    done: StoreDone,
) {
    let parts = gather(disks.len(), move |results: Vec<Result<Device, MediaError>>| {
        let mut devices = Vec::new();
        for result in results {
            match result {
                Ok(device) => devices.push(device),
                // As good as not there.
                Err(MediaError::Disk(_) | MediaError::DamagedLabel { .. }) => {}
                Err(error) => return done(Err(error.into())),
            }
        }
        done(join(devices, journal, now));
    });
    for (disk, part) in disks.into_iter().zip(parts) {
        media::open(disk, part as DeviceDone<Device>);
    }
}

/// Matches labels.
pub(crate) fn join(
    mut devices: Vec<Device>,
    journal: Arc<dyn PartialParityLog>,
    now: Timestamp,
) -> Result<Store, RaidError> {
    let mut groups: BTreeMap<u32, Vec<Arc<Device>>> = BTreeMap::new();
    let mut first: Option<(String, DiskLabel)> = None;
    let mut spares: Vec<Arc<Device>> = Vec::new();
    let mut seen: BTreeMap<DiskUuid, String> = BTreeMap::new();
    // What a spare says of the groups may be old.
    devices.sort_by_key(|device| device.label().is_spare());
    for device in devices {
        let (label, disk) = (device.label(), device.name().to_owned());
        if let Some(other) = seen.insert(label.disk, disk.clone()) {
            return Err(RaidError::Duplicate { disk, other });
        }
        let device = Arc::new(device);
        match label.is_spare() {
            true => spares.push(device),
            false => groups.entry(label.group_index.get()).or_default().push(device),
        }
        match &first {
            Some((other, expected)) if expected.aggregate != label.aggregate => {
                return Err(RaidError::OtherAggregate {
                    disk,
                    found: label.name().unwrap_or_default().to_owned(),
                    other: other.clone(),
                    expected: expected.name().unwrap_or_default().to_owned(),
                });
            }
            Some(_) => {}
            None => first = Some((disk, label)),
        }
    }
    if first.is_none() {
        return Err(RaidError::NoDisks);
    }
    let labels: Vec<DiskLabel> = groups.values().flatten().map(|device| device.label()).collect();
    // Groups that were being added when the power went are not there yet.
    let Some(list) = GroupList::of(&labels) else { return Err(lost_group(0)) };
    let (mut places, mut joined, mut states) = (Vec::new(), Vec::new(), Vec::new());
    let mut leftovers = Vec::new();
    for index in 0..list.count() {
        let devices = groups.remove(&index).unwrap_or_default();
        let (place, group, state) = if list.is_removed(index) {
            leftovers.extend(devices);
            (GroupGeometry::removed(), Group::removed(), GroupState::default())
        } else {
            join_group(index, devices, (&list, &mut spares), now)?
        };
        places.push(place);
        joined.push(Arc::new(group));
        states.push(state);
    }
    let geometry = Geometry::with_gaps(places, list.removed_blocks()).ok_or(RaidError::Ranges)?;
    let layout = Layout { geometry: Arc::new(geometry), groups: joined };
    Ok(Store::new(layout, states, (spares, leftovers), journal))
}

/// A group of which nothing is there.
fn lost_group(group: u32) -> RaidError {
    let absent = vec!["its disks: none was found".to_owned()];
    let strangers = Vec::new();
    RaidError::TooFewDisks { group, missing: 1, count: 1, tolerated: 0, absent, strangers }
}

fn join_group(
    index: u32,
    devices: Vec<Arc<Device>>,
    (list, spares): (&GroupList<'_>, &mut Vec<Arc<Device>>),
    now: Timestamp,
) -> Result<(GroupGeometry, Group, GroupState), RaidError> {
    let Some(latest) = list.latest(index) else { return Err(lost_group(index)) };
    let (Some(kind), count) = (latest.kind(), usize::from(latest.disks_in_group.get())) else {
        unreachable!("labels were validated when they were read")
    };
    let mut seats: Vec<Seat> =
        latest.members.iter().take(count).map(|identity| Seat::empty(*identity)).collect();
    let mut strangers = Vec::new();
    let mut are_labels_equal = true;
    for device in devices {
        let label = device.label();
        let agrees = label.data_regions == latest.data_regions
            && label.log_regions == latest.log_regions
            && latest.members.get(usize::from(label.disk_index.get())) == Some(&label.disk)
            && label.raid_kind == latest.raid_kind;
        let at = usize::from(label.disk_index.get());
        match seats.get_mut(at) {
            Some(seat) if agrees => {
                are_labels_equal &= latest.is_missing(at) && !latest.is_rebuilding(at)
                    || Told::of(&label) == Told::of(latest)
                        && label.members == latest.members
                        && list.agrees(&label);
                seat.device = Some(device);
            }
            // Replaced: another has its place.
            _ => strangers.push(device.name().to_owned()),
        }
    }
    let mut copy = join_replacement(latest, &seats, spares);
    let starting = seats.iter().enumerate().map(|(at, seat)| {
        let copy = copy.take_if(|(member, _)| *member == at).map(|(_, copy)| copy);
        let (is_missing, is_away) = (latest.is_missing(at), latest.is_away(at));
        let standing = at_start(Found {
            is_missing,
            is_away,
            is_settled: latest.is_settled(at),
            is_rebuilding: latest.is_rebuilding(at),
            is_there: seat.device.is_some(),
            has_copy: copy.is_some(),
        });
        let trusted_cp = (is_missing && is_away).then(|| latest.trusted_cp.get());
        Starting { standing, device: seat.device.clone(), copy, trusted_cp }
    });
    let starting: Vec<Starting> = starting.collect();
    let standings: Vec<Standing> = starting.iter().map(|starting| starting.standing).collect();
    let group = Group::new(kind, seats);
    if standings.iter().filter(|standing| standing.is_missing()).count() > kind.parity_disks() {
        return Err(too_few(index, &group, &standings, strangers));
    }
    // A crash may have come between two labels: then they are written again.
    let labelled = are_labels_equal.then_some(Told::of(latest));
    let sequence = first_sequence(latest.sequence.get(), now);
    let state = GroupState::at_start(starting, labelled, sequence);
    let bases = latest.data_bases().map(Pvbn).collect();
    let devices = group.members.iter().filter_map(|member| member.device());
    let medium = GroupGeometry::medium_of(devices.map(|device| device.profile()));
    let (regions, log_regions) = (latest.data_regions.get(), latest.log_regions.get());
    let place = GroupGeometry { kind, regions, log_regions, bases, medium };
    Ok((place, group, state))
}

/// The spare that was being filled to take a place, if the disk that has it is there to go on.
fn join_replacement(
    latest: &DiskLabel,
    seats: &[Seat],
    spares: &mut Vec<Arc<Device>>,
) -> Option<(usize, Rebuild)> {
    let is_online = |at: usize| {
        let is_there = seats.get(at).is_some_and(|seat| seat.device.is_some());
        is_there && !latest.is_missing(at)
    };
    let index = spares.iter().position(|spare| {
        let label = spare.label();
        let at = usize::from(label.disk_index.get());
        label.disk == latest.replacement
            && label.group_index == latest.group_index
            && label.data_regions == latest.data_regions
            && is_online(at)
    });
    let spare = index.map(|index| spares.remove(index))?;
    let own = spare.label();
    let at = usize::from(own.disk_index.get());
    let mut label = latest.clone();
    (label.disk, label.disk_index) = (own.disk, own.disk_index);
    label.replacement = DiskUuid::NIL;
    label.clear_errors();
    let is_parity = latest.kind().is_some_and(|kind| at < kind.parity_disks());
    label.role = if is_parity { DiskRole::Parity } else { DiskRole::Data }.number();
    if let Some(member) = label.members.get_mut(at) {
        *member = own.disk;
    }
    Some((at, Rebuild::copy(spare, label)))
}

fn too_few(index: u32, group: &Group, standings: &[Standing], strangers: Vec<String>) -> RaidError {
    let members = group.members.iter().zip(standings).enumerate();
    let missing = members.filter(|(_, (_, standing))| standing.is_missing());
    let absent: Vec<_> = missing.map(|(at, (member, _))| (at, member)).collect();
    let missing = absent.len();
    let absent = absent.into_iter().map(|(at, member)| match member.seat() {
        Seat { device: Some(device), .. } => format!("{} (which missed writes)", device.name()),
        Seat { identity, .. } => format!("disk {at} ({})", identity),
    });
    RaidError::TooFewDisks {
        group: index,
        missing,
        count: group.members.len(),
        tolerated: group.kind.parity_disks(),
        absent: absent.collect(),
        strangers,
    }
}
