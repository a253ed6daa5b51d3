//! Snapshots of volumes.

use super::clones;
use super::volumes::{Snapshots, Volumes};
use crate::differences::{SnapshotDiff, SnapshotDifferences};
use crate::error::{AdminError, Code};
use crate::replies::{Removal, SnapshotInfo, VolumeInfo};
use crate::requests::{SnapshotDelete, SnapshotHold, SnapshotName, SnapshotRestore, VolumeFilter};
use crate::time::Time;

/// What there is.
pub(super) struct Held<'a> {
    pub volumes: &'a mut Volumes,
    pub snapshots: &'a mut Snapshots,
}

impl Held<'_> {
    fn volume(&mut self, action: &str, name: &str) -> Result<&mut VolumeInfo, AdminError> {
        let missing = || AdminError::missing(format!("cannot {action}"), "volume", name);
        self.volumes.get_mut(name).ok_or_else(missing)
    }

    /// The place of a snapshot among its volume's.
    pub fn snapshot(&self, action: &str, volume: &str, name: &str) -> Result<usize, AdminError> {
        let missing =
            |noun, name: &str| AdminError::missing(format!("cannot {action}"), noun, name);
        let held = self.snapshots.get(volume).ok_or_else(|| missing("volume", volume))?;
        let found = held.iter().position(|snapshot| snapshot.name == name);
        found.ok_or_else(|| missing("snapshot", &format!("{volume}@{name}")))
    }
}

pub(super) fn create(
    state: &mut Held<'_>,
    request: &SnapshotName,
    (id, created): (u32, Time),
) -> Result<SnapshotInfo, AdminError> {
    state.volume("create snapshot of", &request.volume)?;
    if state.snapshot("find", &request.volume, &request.name).is_ok() {
        let object = format!("{}@{}", request.volume, request.name);
        return Err(AdminError::new(Code::Conflict, "cannot create snapshot", object)
            .because("there is a snapshot of this name"));
    }
    let snapshot = SnapshotInfo {
        volume: request.volume.clone(),
        name: request.name.clone(),
        id,
        created,
        exclusive_bytes: Some(0),
        with_older_bytes: Some(0),
        clones: Vec::new(),
        held: false,
    };
    state.snapshots.entry(request.volume.clone()).or_default().push(snapshot.clone());
    state.volume("find", &request.volume)?.snapshots += 1;
    Ok(snapshot)
}

pub(super) fn hold(
    state: &mut Held<'_>,
    request: &SnapshotHold,
) -> Result<SnapshotInfo, AdminError> {
    let action = if request.held { "hold" } else { "release" };
    let place = state.snapshot(action, &request.volume, &request.name)?;
    let list = state.snapshots.entry(request.volume.clone()).or_default();
    let snapshot = &mut list[place];
    snapshot.held = request.held;
    Ok(snapshot.clone())
}

/// No volume of the stand-in has files.
pub(super) fn diff(
    state: &Held<'_>,
    request: &SnapshotDiff,
) -> Result<SnapshotDifferences, AdminError> {
    let SnapshotDiff { volume, from, to } = request.clone();
    for name in [&from, &to] {
        state.snapshot("compare", &volume, name)?;
    }
    let (unreadable_directories, unreadable_inodes) = (0, 0);
    let files = Vec::new();
    Ok(SnapshotDifferences { volume, from, to, files, unreadable_directories, unreadable_inodes })
}

/// The full names of the held snapshots among these.
pub(super) fn held_among(snapshots: Option<&[SnapshotInfo]>) -> Vec<String> {
    let held = snapshots.unwrap_or_default().iter().filter(|one| one.held);
    held.map(|one| format!("{}@{}", one.volume, one.name)).collect()
}

pub(super) fn list(
    state: &mut Held<'_>,
    request: &VolumeFilter,
) -> Result<Vec<SnapshotInfo>, AdminError> {
    if let Some(volume) = &request.volume {
        state.volume("list snapshots of", volume)?;
    }
    let wanted = |name: &String| request.volume.as_ref().is_none_or(|volume| volume == name);
    let lists = state.snapshots.iter().filter(|(name, _)| wanted(name));
    Ok(lists.flat_map(|(_, list)| list.iter().cloned()).collect())
}

pub(super) fn delete(
    state: &mut Held<'_>,
    request: &SnapshotDelete,
) -> Result<Removal, AdminError> {
    let place = state.snapshot("delete", &request.volume, &request.name)?;
    let newest = request.through.as_ref().unwrap_or(&request.name);
    let going = place..state.snapshot("delete", &request.volume, newest)? + 1;
    let object = format!("{}@{}", request.volume, request.name);
    if going.is_empty() {
        let error = AdminError::new(Code::Usage, "cannot delete", object);
        return Err(error.because(format!("'{newest}' is older")));
    }
    let list = state.snapshots.get(&request.volume).map_or(&[][..], Vec::as_slice);
    clones::check_no_base("cannot delete", &object, ("it", list.get(going.clone())))?;
    AdminError::unless_held("cannot delete", &object, &held_among(list.get(going.clone())))?;
    if !request.dry_run {
        if let Some(list) = state.snapshots.get_mut(&request.volume) {
            list.drain(going.clone());
        }
        state.volume("find", &request.volume)?.snapshots -= going.len() as u64;
    }
    Ok(Removal::new(object, vec![], request.dry_run))
}

pub(super) fn restore(
    state: &mut Held<'_>,
    request: &SnapshotRestore,
) -> Result<Removal, AdminError> {
    let place = state.snapshot("restore", &request.volume, &request.name)?;
    let list = state.snapshots.entry(request.volume.clone()).or_default();
    let newer: Vec<String> = list.iter().skip(place + 1).map(|later| later.name.clone()).collect();
    let object = format!("{}@{}", request.volume, request.name);
    if !newer.is_empty() && !request.discard_newer {
        return Err(AdminError::new(Code::Conflict, "cannot restore", object)
            .because(format!("newer snapshots would be lost: {}", newer.join(", ")))
            .try_next("add --discard-newer, or delete them first"));
    }
    let newer_of = ("the newer snapshots", list.get(place + 1..));
    clones::check_no_base("cannot restore", &object, newer_of)?;
    AdminError::unless_held("cannot restore", &object, &held_among(list.get(place + 1..)))?;
    let plan = newer.join(",");
    Removal::check_plan("cannot restore", &object, &plan, request.plan.as_deref())?;
    if !request.dry_run {
        list.truncate(place + 1);
        state.volume("find", &request.volume)?.snapshots = place as u64 + 1;
    }
    let mut consequences = vec![format!("all changes to {} since", request.volume)];
    consequences.extend(newer.iter().map(|name| format!("snapshot {}@{name}", request.volume)));
    Ok(Removal { plan, ..Removal::new(object, consequences, request.dry_run) })
}
