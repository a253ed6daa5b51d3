//! Clones, their splits, and the refusals to delete snapshots and volumes that clones use.

use super::jobs::Jobs;
use super::volumes::{Snapshots, Volumes};
use crate::creation::CloneCreate;
use crate::error::{AdminError, Code};
use crate::replies::{CloneOf, SnapshotInfo, VolumeInfo};
use crate::splits::{CloneSplit, SplitInfo};
use crate::time::Time;

/// A clone that was just made, with this number and at this time.
pub(super) fn made(
    name: &str,
    request: &CloneCreate,
    parent: &VolumeInfo,
    (id, created): (u32, Time),
) -> VolumeInfo {
    let clone_of = CloneOf { volume: request.volume.clone(), snapshot: request.snapshot.clone() };
    VolumeInfo {
        name: name.to_owned(),
        id,
        created,
        clone_of: Some(clone_of),
        inherited_bytes: parent.live_bytes,
        snapshot_bytes: 0,
        snapshots: 0,
        exports: request.exports.clone(),
        mountpoints: Vec::new(),
        ..parent.clone()
    }
}

/// A clone is split from its parent, or no longer. In memory a split never ends.
pub(super) fn split(
    jobs: &mut Jobs,
    request: &CloneSplit,
    clone: VolumeInfo,
) -> Result<SplitInfo, AdminError> {
    let error = || AdminError::new(Code::Conflict, "cannot split clone", &request.name);
    let Some(clone_of) = clone.clone_of else {
        return Err(error().because("it is no clone").try_next("stroop clone list"));
    };
    let shared_bytes = clone.inherited_bytes;
    let (name, aggregate) = (request.name.clone(), clone.aggregate);
    match (request.stop, jobs.is_splitting(&name)) {
        (true, true) => jobs.cancel_split(&name),
        (true, false) => {
            return Err(error().because("it is not being split").try_next("stroop job list"));
        }
        (false, true) => {
            return Err(error().because("it is being split already").try_next("stroop job list"));
        }
        (false, false) if request.dry_run => {}
        (false, false) => {
            jobs.note_split(&aggregate, &name, (shared_bytes, request.rate_bytes_per_second));
        }
    }
    let (cost_bytes, free_bytes) = (shared_bytes, clone.available_bytes);
    let dry_run = request.dry_run;
    Ok(SplitInfo { name, clone_of, aggregate, shared_bytes, cost_bytes, free_bytes, dry_run })
}

/// Clones of the snapshot at `place` of `parent` are there.
pub(super) fn insert(
    (volumes, all): (&mut Volumes, &mut Snapshots),
    (parent, place): (&str, usize),
    clones: &[VolumeInfo],
) {
    if let Some(snapshot) = all.get_mut(parent).and_then(|list| list.get_mut(place)) {
        snapshot.clones.extend(clones.iter().map(|clone| clone.name.clone()));
        snapshot.clones.sort();
    }
    for clone in clones {
        volumes.insert(clone.name.clone(), clone.clone());
        all.insert(clone.name.clone(), Vec::new());
    }
}

/// # Errors
/// The volume has clones.
pub(super) fn check_none<'a>(
    volumes: impl Iterator<Item = (&'a str, &'a VolumeInfo)>,
    name: &str,
) -> Result<(), AdminError> {
    let of = |(_, volume): &(&str, &VolumeInfo)| {
        volume.clone_of.as_ref().is_some_and(|of| of.volume == name)
    };
    let clones: Vec<String> = volumes.filter(of).map(|(name, _)| name.to_owned()).collect();
    match clones.is_empty() {
        true => Ok(()),
        false => {
            let of = ("its snapshots", &clones[..]);
            Err(AdminError::held_by_clones("cannot delete", name, of))
        }
    }
}

/// # Errors
/// Clones began with one of these snapshots.
pub(super) fn check_no_base(
    message: &str,
    object: &str,
    (what, snapshots): (&str, Option<&[SnapshotInfo]>),
) -> Result<(), AdminError> {
    let snapshots = snapshots.unwrap_or_default();
    let clones: Vec<String> =
        snapshots.iter().flat_map(|snapshot| snapshot.clones.iter().cloned()).collect();
    match clones.is_empty() {
        true => Ok(()),
        false => Err(AdminError::held_by_clones(message, object, (what, &clones[..]))),
    }
}

/// A clone is gone.
pub(super) fn forget(all: &mut Snapshots, clone: &str) {
    for snapshot in all.values_mut().flatten() {
        snapshot.clones.retain(|name| name != clone);
    }
}

/// A volume has another name: its clones and its parent know.
pub(super) fn rename((volumes, all): (&mut Volumes, &mut Snapshots), name: &str, new_name: &str) {
    for of in volumes.values_mut().filter_map(|volume| volume.clone_of.as_mut()) {
        if of.volume == name {
            new_name.clone_into(&mut of.volume);
        }
    }
    for clone in all.values_mut().flatten().flat_map(|snapshot| &mut snapshot.clones) {
        if clone == name {
            new_name.clone_into(clone);
        }
    }
}
