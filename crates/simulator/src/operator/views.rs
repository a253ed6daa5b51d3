//! What an operator is shown, held against what it should be.
//!
//! Fails: in words, which say what was expected and what was shown.

use super::expected::{Expected, ExpectedVolume, is_dry, is_worked_on};
use crate::machine::AGGREGATE;
use admin_api::{
    AggregateInfo, AggregateState, CloneOf, ExportRule, MountInfo, RaidKind, Reply, Request,
    SnapshotInfo, StatusReply, VolumeExports, VolumeInfo, VolumeState,
};
use std::fmt::Debug;

/// Nothing, or what is wrong.
pub(super) type Checked = Result<(), String>;

/// Whether two things are the same.
pub(super) fn same<T: PartialEq + Debug>(what: &str, expected: &T, shown: &T) -> Checked {
    if expected == shown {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, shown {shown:?}"))
}

/// Whether an answer shows what there is: `expected` is the state after the call.
pub(super) fn check(expected: &Expected, request: &Request, reply: &Reply) -> Checked {
    match reply {
        _ if is_dry(request) => Ok(()),
        Reply::VolumeCreate(made) => {
            let Request::VolumeCreate(wanted) = request else { return Ok(()) };
            let shown: Vec<&String> = made.iter().map(|info| &info.name).collect();
            same("volumes that were made", &wanted.names.iter().collect(), &shown)?;
            made.iter().try_for_each(|info| check_named(expected, info))
        }
        Reply::CloneCreate(made) => {
            let Request::CloneCreate(wanted) = request else { return Ok(()) };
            let shown: Vec<&String> = made.iter().map(|info| &info.name).collect();
            same("clones that were made", &wanted.names.iter().collect(), &shown)?;
            made.iter().try_for_each(|info| check_named(expected, info))
        }
        Reply::VolumeShow(info)
        | Reply::VolumeSet(info)
        | Reply::VolumeResize(info)
        | Reply::VolumeRename(info)
        | Reply::VolumeOffline(info)
        | Reply::VolumeOnline(info) => check_named(expected, info),
        Reply::VolumeUndelete(info) => check_named(expected, info),
        Reply::AggregateSpaceShow(space) => {
            let live = space.volumes.iter().filter(|share| !share.deleted);
            let shown: Vec<&String> = live.map(|share| &share.volume).collect();
            same("volumes in an aggregate", &expected.volumes.keys().collect(), &shown)?;
            same("the sum of its parts", &space.size_bytes, &space.sum_bytes())
        }
        Reply::VolumeSpaceShow(space) => {
            let of = Some(space.volume.as_str());
            check_snapshots(expected, of, &space.snapshots)
        }
        Reply::VolumeList(list) => check_volumes(expected, list),
        Reply::VolumeListDeleted(list) => expected.check_deleted(list),
        Reply::SnapshotCreate(info) => {
            let volume = expected.volumes.get(&info.volume);
            let last = volume.and_then(|volume| volume.snapshots.last());
            same("the snapshot that was made", &last, &Some(&info.name))
        }
        Reply::SnapshotDiff(found) => {
            let are_same = found.from == found.to && !found.files.is_empty();
            same("the differences of a snapshot to itself", &false, &are_same)
        }
        Reply::SnapshotList(list) => {
            let Request::SnapshotList(filter) = request else { return Ok(()) };
            check_snapshots(expected, filter.volume.as_deref(), list)
        }
        Reply::ExportAdd(one) | Reply::ExportRemove(one) => check_exports(expected, one),
        Reply::ExportList(list) => {
            let Request::ExportList(filter) = request else { return Ok(()) };
            let wanted = |name: &&String| filter.volume.as_ref().is_none_or(|one| one == *name);
            let names: Vec<&String> = expected.volumes.keys().filter(wanted).collect();
            let shown: Vec<&String> = list.iter().map(|one| &one.volume).collect();
            same("volumes with rules", &names, &shown)?;
            list.iter().try_for_each(|one| check_exports(expected, one))
        }
        Reply::MountList(list) => check_mounts(expected, list),
        Reply::AggregateList(list) => check_aggregates(expected, list),
        Reply::AggregateCreate(info)
        | Reply::AggregateShow(info)
        | Reply::AggregateSet(info)
        | Reply::AggregateAdd(info) => check_aggregate(expected, info),
        Reply::DiskList(list) if expected.is_made => expected.disks.check_list(list),
        Reply::Status(status) => check_status(expected, status),
        _ => Ok(()),
    }
}

fn check_named(expected: &Expected, info: &VolumeInfo) -> Checked {
    match expected.volumes.get(&info.name) {
        Some(volume) => check_volume(expected, volume, info),
        None => Err(format!("volume {} is shown, and there is none", info.name)),
    }
}

/// All volumes, in order of name.
pub(super) fn check_volumes(expected: &Expected, list: &[VolumeInfo]) -> Checked {
    let names: Vec<&String> = expected.volumes.keys().collect();
    let shown: Vec<&String> = list.iter().map(|info| &info.name).collect();
    same("volumes", &names, &shown)?;
    list.iter().try_for_each(|info| check_named(expected, info))
}

fn check_volume(expected: &Expected, volume: &ExpectedVolume, info: &VolumeInfo) -> Checked {
    let name = &info.name;
    same(&format!("number of {name}"), &volume.number, &info.id)?;
    same(&format!("aggregate of {name}"), &AGGREGATE, &info.aggregate.as_str())?;
    let state = if volume.is_offline { VolumeState::Offline } else { VolumeState::Online };
    same(
        &format!("state of {name}"),
        &(state, volume.is_offline),
        &(info.state, info.taken_offline),
    )?;
    same(&format!("damage of {name}"), &None, &info.damage)?;
    same(&format!("damaged files of {name}"), &0, &info.damaged_files.len())?;
    same(&format!("autogrow of {name}"), &volume.autogrow_max_bytes, &info.autogrow_max_bytes)?;
    let sizes = volume.size_bytes..=volume.size_max_bytes;
    if !sizes.contains(&info.size_bytes) {
        return Err(format!("size of {name}: {} is not of {sizes:?}", info.size_bytes));
    }
    same(&format!("origin of {name}"), &volume.clone_of, &info.clone_of)?;
    // Those who work on a volume may give it away.
    if volume.is_owner_known && !is_worked_on(name) {
        same(&format!("owner of {name}"), &volume.owner, &info.owner)?;
    }
    same(&format!("rules of {name}"), &volume.exports, &info.exports)?;
    let tiering = (info.tiering_policy, info.tiering_minimum_cooling_days);
    same(&format!("tiering of {name}"), &(volume.policy, volume.days()), &tiering)?;
    same(&format!("reallocation of {name}"), &volume.reallocate, &info.reallocate)?;
    let policies = (volume.snapshot_policy, info.snapshot_policy);
    same(&format!("snapshot policy of {name}"), &policies.0, &policies.1)?;
    let autodelete = (volume.snapshot_autodelete, info.snapshot_autodelete);
    same(&format!("snapshot autodelete of {name}"), &autodelete.0, &autodelete.1)?;
    same(&format!("guarantee of {name}"), &volume.guarantee, &info.guarantee)?;
    same(&format!("snapshots of {name}"), &(volume.snapshots.len() as u64), &info.snapshots)?;
    let mounts = expected.mounts.iter().filter(|(_, mount)| mount.volume == *name);
    let mounts: Vec<String> = mounts.map(|(mountpoint, _)| mountpoint.clone()).collect();
    same(&format!("mounts of {name}"), &mounts, &info.mountpoints)?;
    if info.available_bytes > info.size_bytes {
        return Err(format!("{name} has more room than it is large: {info:?}"));
    }
    Ok(())
}

/// The snapshots of all volumes or one, oldest first.
pub(super) fn check_snapshots(
    expected: &Expected,
    of: Option<&str>,
    list: &[SnapshotInfo],
) -> Checked {
    let volumes = expected.volumes.iter().filter(|(name, _)| of.is_none_or(|of| of == *name));
    let there = volumes.flat_map(|(name, volume)| {
        volume.snapshots.iter().map(move |snapshot| (name.as_str(), snapshot.as_str()))
    });
    let there: Vec<(&str, &str)> = there.collect();
    let shown: Vec<(&str, &str)> =
        list.iter().map(|info| (info.volume.as_str(), info.name.as_str())).collect();
    same("snapshots", &there, &shown)?;
    check_sizes(list)?;
    for info in list {
        let (volume, snapshot) = (&info.volume, &info.name);
        let is_its = |of: &&CloneOf| of.volume == *volume && of.snapshot == *snapshot;
        let clones = expected.origins().filter(|(_, of)| is_its(of));
        let mut clones: Vec<String> = clones.map(|(name, _)| name.to_owned()).collect();
        clones.sort();
        // One whose time is over may have been purged.
        let is_due = |name: &String| !info.clones.contains(name) && expected.may_be_gone(name);
        clones.retain(|name| !is_due(name));
        same(&format!("clones of {volume}@{snapshot}"), &clones, &info.clones)?;
        let of = expected.volumes.get(volume);
        let is_held = of.is_some_and(|of| of.held.contains(snapshot));
        same(&format!("hold of {volume}@{snapshot}"), &is_held, &info.held)?;
    }
    Ok(())
}

/// What comes back with a snapshot and all older ones is what comes back with it alone, and more.
/// Neither is known where a disk hangs for longer than the count is waited for.
fn check_sizes(list: &[SnapshotInfo]) -> Checked {
    let mut before: Option<(&str, u64)> = None;
    for info in list {
        let older = before.filter(|(volume, _)| *volume == info.volume).map_or(0, |(_, all)| all);
        let (exclusive, with_older) = (info.exclusive_bytes, info.with_older_bytes);
        let least = exclusive.map(|bytes| bytes + older);
        if least.is_none() != with_older.is_none() || with_older < least {
            return Err(format!("with {older} of older ones: {info:?}"));
        }
        before = with_older.map(|bytes| (info.volume.as_str(), bytes));
    }
    Ok(())
}

fn check_exports(expected: &Expected, shown: &VolumeExports) -> Checked {
    let rules: Option<&Vec<ExportRule>> =
        expected.volumes.get(&shown.volume).map(|volume| &volume.exports);
    same(&format!("rules of {}", shown.volume), &rules, &Some(&shown.rules))
}

fn check_mounts(expected: &Expected, list: &[MountInfo]) -> Checked {
    let mounts = expected.mounts.iter();
    let mounts: Vec<(&String, &String, bool)> =
        mounts.map(|(mountpoint, mount)| (mountpoint, &mount.volume, mount.write_back)).collect();
    let shown: Vec<(&String, &String, bool)> =
        list.iter().map(|info| (&info.mountpoint, &info.volume, info.write_back)).collect();
    same("mounts", &mounts, &shown)
}

fn check_aggregates(expected: &Expected, list: &[AggregateInfo]) -> Checked {
    if !expected.is_made {
        // What is left of one whose making was cut off is shown, and serves nothing.
        let states: Vec<AggregateState> = list.iter().map(|info| info.state).collect();
        let offline = vec![AggregateState::Offline; list.len()];
        return same("aggregates before one is made", &offline, &states);
    }
    same("aggregates", &1, &list.len())?;
    list.iter().try_for_each(|info| check_aggregate(expected, info))
}

fn check_aggregate(expected: &Expected, info: &AggregateInfo) -> Checked {
    same("the aggregate", &AGGREGATE, &info.name.as_str())?;
    let may_lack_disks = expected.raid != RaidKind::None && info.state == AggregateState::Degraded;
    if !may_lack_disks {
        same("its state", &AggregateState::Online, &info.state)?;
    }
    same("its protection", &expected.raid, &info.raid)?;
    expected.disks.check_shown(&info.disks)?;
    same("its volumes", &(expected.volumes.len() as u64), &info.volumes)?;
    if !expected.count_deleted().contains(&info.deleted_volumes) {
        let kept = expected.deleted.keys();
        return Err(format!("its deleted volumes: expected {kept:?}, shown {info:?}"));
    }
    if let Some(is_on) = expected.area_cleaning {
        same("its area cleaning", &is_on, &info.area_cleaning)?;
    }
    let sum = info.used_bytes + info.reserve_bytes + info.free_bytes + info.guaranteed_bytes;
    // The free blocks of a group that leaves are nobody's room. They are counted some time later.
    let leaving = info.leaving.map_or(0..=0, |leaving| match leaving.used_bytes {
        Some(used) => {
            let free = leaving.size_bytes.saturating_sub(used);
            free..=free
        }
        None => 0..=leaving.size_bytes,
    });
    match info.size_bytes.checked_sub(sum) {
        Some(rest) if leaving.contains(&rest) => Ok(()),
        _ => Err(format!("its bytes used, reserved, free, and leaving {leaving:?}: {info:?}")),
    }
}

fn check_status(expected: &Expected, status: &StatusReply) -> Checked {
    same("volumes in the status", &(expected.volumes.len() as u64), &status.volumes)?;
    let offline = expected.volumes.iter().filter(|(_, volume)| volume.is_offline);
    let offline: Vec<String> = offline.map(|(name, _)| name.clone()).collect();
    same("volumes offline in the status", &offline, &status.offline_volumes)?;
    check_mounts(expected, &status.mounts)?;
    check_aggregates(expected, &status.aggregates)
}
