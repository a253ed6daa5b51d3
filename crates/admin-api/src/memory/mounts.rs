//! Mounts on this machine.

use crate::error::{AdminError, Code};
use crate::replies::{MountInfo, VolumeInfo};
use crate::requests::{MountCreate, MountRemove};
use std::collections::BTreeMap;

/// By mountpoint.
pub(super) type Mounts = BTreeMap<String, MountInfo>;

type Volumes = BTreeMap<String, VolumeInfo>;

pub(super) fn mount(
    mounts: &mut Mounts,
    volumes: &mut Volumes,
    request: &MountCreate,
) -> Result<MountInfo, AdminError> {
    let MountCreate { volume, mountpoint, write_back } = request;
    if mounts.contains_key(mountpoint) {
        return Err(AdminError::new(Code::Conflict, "cannot mount at", mountpoint)
            .because("something is mounted there"));
    }
    let found = volumes.get_mut(volume);
    let found = found.ok_or_else(|| AdminError::missing("cannot mount", "volume", volume))?;
    if found.taken_offline {
        return Err(AdminError::new(Code::Conflict, "cannot mount", volume)
            .because("it is offline")
            .try_next(format!("stroop volume online {volume}")));
    }
    found.mountpoints.push(mountpoint.clone());
    let mount = MountInfo {
        volume: volume.clone(),
        mountpoint: mountpoint.clone(),
        write_back: *write_back,
        missing: None,
    };
    mounts.insert(mountpoint.clone(), mount.clone());
    Ok(mount)
}

pub(super) fn unmount(
    mounts: &mut Mounts,
    volumes: &mut Volumes,
    request: &MountRemove,
) -> Result<MountInfo, AdminError> {
    let mountpoint = &request.mountpoint;
    let Some(mount) = mounts.remove(mountpoint) else {
        return Err(AdminError::new(Code::NotFound, "cannot unmount", mountpoint)
            .because("no volume is mounted there")
            .try_next("stroop mount"));
    };
    if let Some(found) = volumes.get_mut(&mount.volume) {
        found.mountpoints.retain(|held| held != mountpoint);
    }
    Ok(mount)
}
