//! `stroop volume delete`, `undelete`, `purge`, and the list of deleted volumes.

use super::export::exported;
use super::removal::{removal, shown};
use crate::Options;
use crate::confirm::confirm;
use crate::output::Output;
use crate::quantities::count;
use crate::table::{Column, Table};
use crate::terminal::Terminal;
use admin_api::{
    AdminError, Administration, DeletedVolume, VolumeDelete, VolumePurge, VolumeUndelete, duration,
};
use std::time::Duration;
use units::ByteSize;

pub(super) fn delete(
    (options, terminal): (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
    (name, queue_for): (&str, Duration),
    dry_run: bool,
) -> Result<Output, AdminError> {
    let request = |dry_run, plan| VolumeDelete {
        name: name.to_owned(),
        queue_for_seconds: Some(queue_for.as_secs()),
        dry_run,
        plan,
    };
    let plan = node.volume_delete(&request(true, None))?;
    if dry_run {
        return removal("delete", &plan);
    }
    confirm(terminal, options, "delete", &plan)?;
    let removed = node.volume_delete(&request(false, shown(&plan)))?;
    let Some(title) = &removed.kept_as else {
        return removal("delete", &removed);
    };
    let nanoseconds = u64::try_from(queue_for.as_nanos()).unwrap_or(u64::MAX);
    let time = duration::format(nanoseconds);
    let line = format!("{name}: deleted, kept for {time} as {title}");
    let undelete = format!("stroop volume undelete {title}");
    Ok(Output::of(&removed.object, &removed)?.line(line).next(undelete))
}

pub(super) fn undelete(
    node: &dyn Administration,
    request: &VolumeUndelete,
) -> Result<Output, AdminError> {
    let volume = node.volume_undelete(request)?;
    let name = &volume.name;
    let is = if request.dry_run { "would be back" } else { "back" };
    let state = if volume.taken_offline { ", offline as it was" } else { "" };
    let line = format!(
        "{name}: {is}{state}, {}, {}",
        count(volume.snapshots, "snapshot"),
        exported(&volume.exports)
    );
    let output = Output::of(name, &volume)?.line(line);
    if request.dry_run {
        return Ok(output.planned());
    }
    Ok(match volume.taken_offline {
        true => output.next(format!("stroop volume online {name}")),
        false => output,
    })
}

pub(super) fn purge(
    (options, terminal): (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
    name: &str,
    dry_run: bool,
) -> Result<Output, AdminError> {
    let request = |name: &str, dry_run, plan| {
        node.volume_purge(&VolumePurge { name: name.to_owned(), dry_run, plan })
    };
    let plan = request(name, true, None)?;
    if dry_run {
        return removal("purge", &plan);
    }
    confirm(terminal, options, "purge", &plan)?;
    // Another may have been deleted under the same name meanwhile.
    removal("purge", &request(&plan.object, false, shown(&plan))?)
}

pub(super) fn list(node: &dyn Administration) -> Result<Output, AdminError> {
    let volumes = node.volume_list_deleted()?;
    let output = Output::list(&volumes, |volume| volume.name.clone(), table(&volumes))?;
    if volumes.is_empty() {
        return Ok(output.line("no deleted volumes are kept"));
    }
    let damaged = volumes.iter().filter_map(|one| Some((&one.name, one.damage.as_ref()?)));
    Ok(damaged.fold(output, |output, (name, damage)| output.line(format!("{name}: {damage}"))))
}

fn table(volumes: &[DeletedVolume]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Column::Text),
        ("AGGR", Column::Text),
        ("DELETED", Column::Text),
        ("PURGED AFTER", Column::Text),
        ("HOLDS", Column::Number),
        ("SNAPSHOTS", Column::Number),
        ("FILES", Column::Number),
    ]);
    for volume in volumes {
        table.row([
            volume.name.clone(),
            volume.aggregate.clone(),
            volume.deleted.to_string(),
            volume.purge_after.to_string(),
            ByteSize(volume.held_bytes).to_string(),
            volume.snapshots.to_string(),
            volume.files.to_string(),
        ]);
    }
    table
}
