//! Volumes that are changed.

use super::mounts::Mounts;
use crate::changes::{VolumeOffline, VolumeRename, VolumeResize, VolumeSet};
use crate::creation::VolumeCreate;
use crate::error::{AdminError, Code};
use crate::policies::Guarantee;
use crate::replies::{AggregateInfo, SnapshotInfo, VolumeInfo, VolumeState};
use crate::requests::{Named, Owner};
use crate::space::{AggregateSpace, VolumeShare, VolumeSpace};
use crate::time::Time;
use std::collections::BTreeMap;

pub(super) type Volumes = BTreeMap<String, VolumeInfo>;
pub(super) type Snapshots = BTreeMap<String, Vec<SnapshotInfo>>;

fn find<'a>(
    volumes: &'a mut Volumes,
    message: &str,
    name: &str,
) -> Result<&'a mut VolumeInfo, AdminError> {
    volumes.get_mut(name).ok_or_else(|| AdminError::missing(message, "volume", name))
}

pub(super) fn set(volumes: &mut Volumes, request: &VolumeSet) -> Result<VolumeInfo, AdminError> {
    let message = "cannot change volume";
    let volume = find(volumes, message, &request.name)?;
    let policy = request.tiering_policy.unwrap_or(volume.tiering_policy);
    let kept = volume.tiering_minimum_cooling_days.filter(|_| policy == volume.tiering_policy);
    let days = request.tiering_minimum_cooling_days.or(kept);
    volume.tiering_minimum_cooling_days = days.or(policy.default_cooling_days());
    volume.tiering_policy = policy;
    volume.reallocate = request.reallocate.unwrap_or(volume.reallocate);
    volume.snapshot_policy = request.snapshot_policy.unwrap_or(volume.snapshot_policy);
    volume.snapshot_autodelete = request.snapshot_autodelete.unwrap_or(volume.snapshot_autodelete);
    volume.guarantee = request.guarantee.unwrap_or(volume.guarantee);
    let lacking_bytes = volume.size_bytes.saturating_sub(volume.used_bytes());
    volume.guaranteed_bytes = kept_free(volume.guarantee, lacking_bytes);
    if let Some(maximum_bytes) = request.autogrow_max_bytes {
        if (1..volume.size_bytes).contains(&maximum_bytes) {
            return Err(AdminError::new(Code::Conflict, message, &request.name)
                .because("its size is more already"));
        }
        volume.autogrow_max_bytes = Some(maximum_bytes).filter(|bytes| *bytes > 0);
    }
    Ok(volume.clone())
}

pub(super) fn resize(
    volumes: &mut Volumes,
    request: &VolumeResize,
) -> Result<VolumeInfo, AdminError> {
    let message = "cannot resize volume";
    let volume = find(volumes, message, &request.name)?;
    if volume.used_bytes() > request.size_bytes {
        return Err(AdminError::new(Code::Conflict, message, &request.name)
            .because("its files and snapshots use more"));
    }
    let mut resized = volume.clone();
    resized.size_bytes = request.size_bytes;
    let grown = |maximum: u64| maximum.max(request.size_bytes);
    resized.autogrow_max_bytes = resized.autogrow_max_bytes.map(grown);
    resized.available_bytes = request.size_bytes - resized.used_bytes();
    if !request.dry_run {
        *volume = resized.clone();
    }
    Ok(resized)
}

pub(super) fn rename(
    volumes: &mut Volumes,
    (all_snapshots, mounts): (&mut Snapshots, &mut Mounts),
    request: &VolumeRename,
) -> Result<VolumeInfo, AdminError> {
    let VolumeRename { name, new_name, dry_run } = request;
    let message = "cannot rename volume";
    let mut renamed = find(volumes, message, name)?.clone();
    if volumes.contains_key(new_name) {
        return Err(AdminError::new(Code::Conflict, message, name)
            .because(format!("there is a volume '{new_name}'")));
    }
    renamed.name.clone_from(new_name);
    if !dry_run {
        volumes.remove(name);
        volumes.insert(new_name.clone(), renamed.clone());
        let mut snapshots = all_snapshots.remove(name).unwrap_or_default();
        snapshots.iter_mut().for_each(|snapshot| snapshot.volume.clone_from(new_name));
        all_snapshots.insert(new_name.clone(), snapshots);
        super::clones::rename((volumes, all_snapshots), name, new_name);
        let mounted = mounts.values_mut().filter(|mount| mount.volume == *name);
        mounted.for_each(|mount| mount.volume.clone_from(new_name));
    }
    Ok(renamed)
}

/// The volumes that are offline.
pub(super) fn offline(volumes: &Volumes) -> Vec<String> {
    let offline = volumes.values().filter(|volume| volume.taken_offline);
    offline.map(|volume| volume.name.clone()).collect()
}

pub(super) fn take_offline(
    volumes: &mut Volumes,
    request: &VolumeOffline,
) -> Result<VolumeInfo, AdminError> {
    let message = "cannot take offline volume";
    let volume = find(volumes, message, &request.name)?;
    let refused =
        |cause: String| AdminError::new(Code::Conflict, message, &request.name).because(cause);
    if volume.taken_offline {
        return Err(refused("it is offline".to_owned()));
    }
    if let Some(mountpoint) = volume.mountpoints.first() {
        return Err(refused(format!("it is mounted at {mountpoint}"))
            .try_next(format!("stroop unmount {}", units::shell_word(mountpoint))));
    }
    let offline = VolumeInfo { state: VolumeState::Offline, taken_offline: true, ..volume.clone() };
    if !request.dry_run {
        volume.clone_from(&offline);
    }
    Ok(offline)
}

pub(super) fn bring_online(
    volumes: &mut Volumes,
    request: &Named,
) -> Result<VolumeInfo, AdminError> {
    let message = "cannot bring online volume";
    let volume = find(volumes, message, &request.name)?;
    if !volume.taken_offline {
        return Err(AdminError::new(Code::Conflict, message, &request.name)
            .because("it was not taken offline"));
    }
    (volume.state, volume.taken_offline) = (VolumeState::Online, false);
    Ok(volume.clone())
}

/// Bytes that its aggregate keeps free for a volume, of whose size `lacking_bytes` are not in use.
const fn kept_free(guarantee: Guarantee, lacking_bytes: u64) -> u64 {
    match guarantee {
        Guarantee::None => 0,
        Guarantee::Volume => lacking_bytes,
    }
}

/// A volume that was just made, with this number and at this time.
pub(super) fn made(
    name: &str,
    request: &VolumeCreate,
    (id, created): (u32, Time),
    available_bytes: u64,
) -> VolumeInfo {
    let policy = request.tiering_policy;
    VolumeInfo {
        name: name.to_owned(),
        id,
        aggregate: request.aggregate.clone(),
        state: VolumeState::Online,
        taken_offline: false,
        traditional: false,
        tiering_policy: policy,
        tiering_minimum_cooling_days: request
            .tiering_minimum_cooling_days
            .or(policy.default_cooling_days()),
        reallocate: request.reallocate,
        autogrow_max_bytes: request.autogrow_max_bytes.filter(|bytes| *bytes > 0),
        snapshot_policy: request.snapshot_policy,
        snapshot_autodelete: request.snapshot_autodelete,
        guarantee: request.guarantee,
        guaranteed_bytes: kept_free(request.guarantee, request.size_bytes),
        tiered_bytes: 0,
        size_bytes: request.size_bytes,
        live_bytes: 0,
        snapshot_bytes: 0,
        delayed_free_bytes: 0,
        available_bytes,
        files: 1,
        snapshots: 0,
        owner: request.owner.unwrap_or(Owner { uid: 0, gid: 0 }),
        created,
        clone_of: None,
        inherited_bytes: 0,
        exports: request.exports.clone(),
        mountpoints: Vec::new(),
        damaged_files: Vec::new(),
        damage: None,
        lacking_feature: None,
    }
}

/// Where a volume's blocks are.
pub(super) fn space(volume: &VolumeInfo, snapshots: Vec<SnapshotInfo>) -> VolumeSpace {
    VolumeSpace {
        volume: volume.name.clone(),
        size_bytes: volume.size_bytes,
        live_bytes: volume.live_bytes,
        snapshots,
        shared_snapshot_bytes: volume.snapshot_bytes,
        deleted_snapshot_bytes: 0,
        delayed_free_bytes: volume.delayed_free_bytes,
        owned_bytes: volume.used_bytes(),
        inherited_live_bytes: volume.inherited_bytes,
        inherited_snapshot_bytes: 0,
        available_bytes: volume.available_bytes,
    }
}

/// Where an aggregate's blocks are.
pub(super) fn aggregate_space(aggregate: &AggregateInfo, volumes: &Volumes) -> AggregateSpace {
    let of_it = volumes.values().filter(|volume| volume.aggregate == aggregate.name);
    let share = |volume: &VolumeInfo| VolumeShare {
        volume: volume.name.clone(),
        deleted: false,
        owned_bytes: volume.used_bytes(),
        live_bytes: Some(volume.live_bytes),
        snapshot_bytes: Some(volume.snapshot_bytes),
        delayed_free_bytes: volume.delayed_free_bytes,
        inherited_bytes: volume.inherited_bytes,
    };
    AggregateSpace {
        aggregate: aggregate.name.clone(),
        raw_bytes: aggregate.disks.iter().map(|disk| disk.size_bytes).sum(),
        parity_bytes: 0,
        spare_bytes: 0,
        size_bytes: aggregate.size_bytes,
        volumes: of_it.map(share).collect(),
        purged_bytes: 0,
        metadata_bytes: aggregate.metadata_bytes,
        reserve_bytes: aggregate.reserve_bytes,
        leaving_bytes: 0,
        guaranteed_bytes: aggregate.guaranteed_bytes,
        free_bytes: aggregate.free_bytes,
    }
}
