//! Volumes that are deleted, in the recovery queue and for good.

use super::clones;
use super::snapshots::held_among;
use super::volumes::{Snapshots, Volumes};
use crate::error::{AdminError, Code};
use crate::recovery_queue::{
    DeletedVolume, VolumeDelete, VolumePurge, VolumeUndelete, find_deleted,
};
use crate::replies::{AggregateInfo, Removal, SnapshotInfo, VolumeInfo};
use crate::time::Time;
use std::collections::BTreeMap;
use units::Timestamp;

/// A volume of the queue, with the snapshots that come back with it.
struct Kept {
    shown: DeletedVolume,
    volume: VolumeInfo,
    snapshots: Vec<SnapshotInfo>,
}

/// In the order of their deletion.
#[derive(Default)]
pub(super) struct Queue(Vec<Kept>);

/// What else changes when a volume enters the queue or leaves it.
pub(super) struct Live<'a> {
    pub volumes: &'a mut Volumes,
    pub snapshots: &'a mut Snapshots,
    pub aggregates: &'a mut BTreeMap<String, AggregateInfo>,
}

impl Queue {
    /// The volumes, under their names in the queue.
    fn volumes(&self) -> impl Iterator<Item = (&str, &VolumeInfo)> {
        self.0.iter().map(|kept| (kept.shown.name.as_str(), &kept.volume))
    }

    fn find(&self, message: &str, name: &str) -> Result<usize, AdminError> {
        let shown = self.list();
        let found = find_deleted(message, &shown, name)?;
        Ok(self.0.iter().position(|kept| kept.shown.name == found.name).unwrap_or_default())
    }

    pub(super) fn list(&self) -> Vec<DeletedVolume> {
        self.0.iter().map(|kept| kept.shown.clone()).collect()
    }
}

pub(super) fn delete(
    (queue, mut live): (&mut Queue, Live<'_>),
    request: &VolumeDelete,
    now: Timestamp,
) -> Result<Removal, AdminError> {
    let VolumeDelete { name, dry_run, .. } = request;
    let missing = || AdminError::missing("cannot delete", "volume", name);
    let volume = live.volumes.get(name).ok_or_else(missing)?.clone();
    if let Some(mountpoint) = volume.mountpoints.first() {
        return Err(AdminError::new(Code::Conflict, "cannot delete", name)
            .because(format!("it is mounted at {mountpoint}"))
            .try_next(format!("stroop unmount {}", units::shell_word(mountpoint))));
    }
    let all = live.volumes.iter().map(|(name, volume)| (name.as_str(), volume));
    clones::check_none(all.chain(queue.volumes()), name)?;
    let snapshots = live.snapshots.get(name).map(Vec::as_slice);
    AdminError::unless_held("cannot delete", name, &held_among(snapshots))?;
    let mut consequences = vec![format!("{} files", volume.files)];
    if volume.snapshots > 0 {
        consequences.push(format!("{} snapshots", volume.snapshots));
    }
    consequences.extend(volume.exports.iter().map(|rule| format!("exported to {rule}")));
    let kept_seconds = request.kept_seconds();
    let deleted = Time(now);
    let purge_after = Time(Timestamp(deleted.0.get() + 1_000_000_000 * kept_seconds as i64));
    let kept_until = Some(purge_after).filter(|_| kept_seconds > 0);
    let kept_as = kept_until.filter(|_| !dry_run).map(|_| format!("{name}~{}", volume.id));
    let held_bytes = volume.used_bytes();
    if !dry_run {
        live.volumes.remove(name);
        let snapshots = live.snapshots.remove(name).unwrap_or_default();
        count(&mut live, &volume, (-1, i64::from(kept_until.is_some())));
        match kept_until {
            None => clones::forget(live.snapshots, name),
            Some(_) => {
                let shown = DeletedVolume {
                    name: format!("{name}~{}", volume.id),
                    former_name: name.clone(),
                    id: volume.id,
                    aggregate: volume.aggregate.clone(),
                    files: volume.files,
                    damage: volume.damage.clone(),
                    snapshots: volume.snapshots,
                    held_bytes,
                    deleted,
                    purge_after,
                };
                clones::rename((live.volumes, live.snapshots), name, &shown.name);
                queue.0.push(Kept { shown, volume, snapshots });
            }
        }
    }
    let freed_bytes = if kept_until.is_some() { 0 } else { held_bytes };
    let removal = Removal::new(name.clone(), consequences, *dry_run);
    Ok(Removal { freed_bytes, kept_until, kept_as, ..removal })
}

pub(super) fn undelete(
    (queue, mut live): (&mut Queue, Live<'_>),
    request: &VolumeUndelete,
) -> Result<VolumeInfo, AdminError> {
    let message = "cannot undelete";
    let place = queue.find(message, &request.name)?;
    let Kept { shown, volume, .. } = &queue.0[place];
    let name = request.new_name.as_ref().unwrap_or(&shown.former_name).clone();
    if live.volumes.contains_key(&name) {
        return Err(AdminError::new(Code::Conflict, message, &request.name)
            .because(format!("there is a volume '{name}'"))
            .try_next(format!("stroop volume undelete {} --as NAME", shown.name)));
    }
    let volume = VolumeInfo { name: name.clone(), ..volume.clone() };
    if !request.dry_run {
        let Kept { shown, mut snapshots, .. } = queue.0.remove(place);
        snapshots.iter_mut().for_each(|snapshot| snapshot.volume.clone_from(&name));
        clones::rename((live.volumes, live.snapshots), &shown.name, &name);
        live.snapshots.insert(name.clone(), snapshots);
        live.volumes.insert(name, volume.clone());
        count(&mut live, &volume, (1, -1));
    }
    Ok(volume)
}

pub(super) fn purge(
    (queue, mut live): (&mut Queue, Live<'_>),
    request: &VolumePurge,
) -> Result<Removal, AdminError> {
    let place = queue.find("cannot purge", &request.name)?;
    let shown = queue.0[place].shown.clone();
    if !request.dry_run {
        let Kept { volume, .. } = queue.0.remove(place);
        clones::forget(live.snapshots, &shown.name);
        count(&mut live, &volume, (0, -1));
    }
    let consequences = vec![format!("{} files", shown.files)];
    let removal = Removal::new(shown.name, consequences, request.dry_run);
    Ok(Removal { freed_bytes: shown.held_bytes, ..removal })
}

/// The aggregate has so many volumes more, and so many more in the queue.
fn count(live: &mut Live<'_>, volume: &VolumeInfo, (volumes, deleted): (i64, i64)) {
    if let Some(aggregate) = live.aggregates.get_mut(&volume.aggregate) {
        aggregate.volumes = aggregate.volumes.saturating_add_signed(volumes);
        aggregate.deleted_volumes = aggregate.deleted_volumes.saturating_add_signed(deleted);
        let held = volume.used_bytes() as i64 * deleted;
        aggregate.deleted_bytes = aggregate.deleted_bytes.saturating_add_signed(held);
    }
}
