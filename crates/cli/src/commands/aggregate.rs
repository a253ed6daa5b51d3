//! `stroop aggr`.

use super::begun::{Begun, newest};
use super::removal::{removal, shown};
use super::space;
use super::taking::Losses;
use super::{area_map, disk, scrub, upkeep};
use crate::arguments::{AggregateCommand, Options};
use crate::confirm::confirm;
use crate::features;
use crate::output::Output;
use crate::quantities::{count, percent};
use crate::table::{Column, Table};
use crate::terminal::Terminal;
use admin_api::{
    AdminError, Administration, AggregateAdd, AggregateCreate, AggregateDelete, AggregateInfo,
    AggregateOnline, AggregateSet, Code, DiskState, GroupRemove, JobKind, JournalCopy,
    JournalCopyState, LeavingGroup, MapShow, Named, ScrubState, duration,
};
use units::ByteSize;

pub(super) fn run(
    command: &AggregateCommand,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> Result<Output, AdminError> {
    match command {
        AggregateCommand::Create { name, disks, spares, raid, group, traditional, dry_run } => {
            let known = node.disk_list()?;
            let disks =
                disk::choose(&known, disks).map_err(|error| not_there(node, name, error))?;
            let others: Vec<_> =
                known.iter().filter(|disk| !disks.contains(&disk.name)).cloned().collect();
            let spares = spares.as_ref().map(|wanted| disk::choose(&others, wanted));
            let spares = spares.transpose()?.unwrap_or_default();
            let losses = Losses::of(&known, &[&*disks, &*spares].concat(), group.force);
            let request = AggregateCreate {
                name: name.clone(),
                disks,
                spares,
                raid: *raid,
                group_size: group.group_size,
                media: group.media.clone(),
                force: group.force,
                abandoned: losses.aggregates.clone(),
                traditional: *traditional,
                dry_run: *dry_run,
            };
            if !dry_run {
                let object = ("create aggregate", name.as_str());
                let plan = AggregateCreate { dry_run: true, ..request.clone() };
                losses.confirm((options, terminal), object, || node.aggregate_create(&plan))?;
            }
            create(node, &request)
        }
        AggregateCommand::Add { name, disks, group, raid, new, dry_run } => {
            let known = node.disk_list()?;
            let disks = disk::choose(&known, disks)?;
            let losses = Losses::of(&known, &disks, new.force);
            let request = AggregateAdd {
                name: name.clone(),
                disks,
                group: *group,
                raid: *raid,
                group_size: new.group_size,
                media: new.media.clone(),
                force: new.force,
                abandoned: losses.aggregates.clone(),
                dry_run: *dry_run,
            };
            if !dry_run {
                let object = ("add disks to aggregate", name.as_str());
                let plan = AggregateAdd { dry_run: true, ..request.clone() };
                losses.confirm((options, terminal), object, || node.aggregate_add(&plan))?;
            }
            add(node, terminal, &request)
        }
        AggregateCommand::RemoveGroup { name, group, cancel, rate, dry_run } => {
            let request = GroupRemove {
                name: name.clone(),
                group: *group,
                cancel: *cancel,
                rate_bytes_per_second: rate.map(|rate| rate.0),
                dry_run: *dry_run,
            };
            remove_group((options, terminal), node, &request)
        }
        AggregateCommand::Online { name, without_journal, dry_run } => {
            let (without_journal, dry_run) = (*without_journal, *dry_run);
            let request = AggregateOnline { name: name.clone(), without_journal, dry_run };
            bring_online((options, terminal), node, &request)
        }
        AggregateCommand::Delete { name, force, dry_run } => {
            let (name, force) = (name.clone(), *force);
            let request =
                |dry_run, plan| AggregateDelete { name: name.clone(), force, dry_run, plan };
            let plan = node.aggregate_delete(&request(true, None))?;
            if *dry_run {
                return removal("delete", &plan);
            }
            confirm(terminal, options, "delete aggregate", &plan)?;
            let removed = node.aggregate_delete(&request(false, shown(&plan)))?;
            let mut output = removal("delete", &removed)?;
            // What could not be done yet is told beside it.
            output.lines.extend(removed.consequences);
            Ok(output)
        }
        AggregateCommand::Set { name, area_cleaning } => {
            let (name, area_cleaning) = (name.clone(), *area_cleaning);
            let aggregate = node.aggregate_set(&AggregateSet { name, area_cleaning })?;
            let line = format!("{}: areas {}", aggregate.name, area_cleaning_of(&aggregate));
            Ok(Output::of(&aggregate.name, &aggregate)?.line(line))
        }
        AggregateCommand::List => {
            let aggregates = node.aggregate_list()?;
            let table = table(&aggregates);
            let output = Output::list(&aggregates, |aggregate| aggregate.name.clone(), table)?;
            if aggregates.is_empty() {
                return Ok(output.line("no aggregates").next("stroop disk list"));
            }
            Ok(output)
        }
        AggregateCommand::Show { name, space: true, .. } => space::show_aggregate(node, name),
        AggregateCommand::Show { name, map, space: false } => {
            let aggregate = node.aggregate_show(&Named { name: name.clone() })?;
            if *map { show_map(node, &aggregate) } else { show(node, &aggregate) }
        }
    }
}

/// The cause of disks that cannot be found: `error`, unless an aggregate of this name exists, which
/// may have them.
fn not_there(node: &dyn Administration, name: &str, error: AdminError) -> AdminError {
    match node.aggregate_show(&Named { name: name.to_owned() }) {
        Err(_) => error,
        Ok(_) => AdminError::new(Code::Conflict, "cannot create aggregate", name)
            .because("there is an aggregate of this name")
            .try_next(format!("stroop aggr show {name}")),
    }
}

fn add(
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
    request: &AggregateAdd,
) -> Result<Output, AdminError> {
    let named = Named { name: request.name.clone() };
    let before = node.aggregate_show(&named)?;
    let mut aggregate = node.aggregate_add(request)?;
    if aggregate.disks.iter().any(|disk| disk.state == DiskState::Zeroing) {
        let added = upkeep::wait_for_zeroing(node, terminal, &request.disks)?;
        if let Some(left) = added.iter().find(|disk| disk.state != DiskState::InUse) {
            return Err(upkeep::not_done("cannot add disk", left));
        }
        aggregate = node.aggregate_show(&named)?;
    }
    let what = format!(
        "{} in {}, {} usable, {} more than before",
        made_of(&aggregate, request.dry_run),
        count(aggregate.groups, "group"),
        ByteSize(aggregate.size_bytes),
        ByteSize(aggregate.size_bytes.saturating_sub(before.size_bytes)),
    );
    let output = Output::of(&aggregate.name, &aggregate)?.line(what);
    if request.dry_run {
        return Ok(output.planned());
    }
    Ok(output.next(format!("stroop aggr show {}", aggregate.name)))
}

fn remove_group(
    (options, terminal): (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
    request: &GroupRemove,
) -> Result<Output, AdminError> {
    let GroupRemove { name, group, cancel, dry_run, .. } = request;
    if *cancel {
        let kept = node.group_remove(request)?;
        let line = format!("{name}: group {group} stays; what has moved stays where it is");
        return Ok(Output::of(name, &kept)?.line(line));
    }
    let plan = node.group_remove(&GroupRemove { dry_run: true, ..request.clone() })?;
    let action = format!("remove group {group} of");
    if *dry_run {
        return removal(&action, &plan);
    }
    confirm(terminal, options, &action, &plan)?;
    let after = newest(node)?;
    let begun = node.group_remove(request)?;
    let output = Output::of(name, &begun)?
        .line(format!("{name}: group {group} is being evacuated, and leaves when it is empty"))
        .next(format!("stroop aggr show {name}"));
    let begun = Begun { kinds: &[JobKind::Evacuation], aggregate: name, target: None, after };
    begun.follow(output, (options, terminal), node)
}

fn bring_online(
    (options, terminal): (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
    request: &AggregateOnline,
) -> Result<Output, AdminError> {
    let name = &request.name;
    if request.without_journal {
        let plan = node.aggregate_online(&AggregateOnline { dry_run: true, ..request.clone() })?;
        let action = "open without its journal";
        if request.dry_run {
            return removal(action, &plan);
        }
        confirm(terminal, options, action, &plan)?;
    }
    let lost = node.aggregate_online(request)?;
    let mut output = Output::of(name, &lost)?.line(format!("{name}: online"));
    for line in &lost.consequences {
        output = output.line(format!("  {line}"));
    }
    Ok(output.next(format!("stroop aggr show {name}")))
}

fn create(node: &dyn Administration, request: &AggregateCreate) -> Result<Output, AdminError> {
    let aggregate = node.aggregate_create(request)?;
    let what = format!(
        "{}, {} usable, {}",
        made_of(&aggregate, request.dry_run),
        ByteSize(aggregate.size_bytes),
        aggregate.protection,
    );
    let output = Output::of(&aggregate.name, &aggregate)?.line(what);
    if request.dry_run {
        return Ok(output.planned());
    }
    let name = &aggregate.name;
    if request.traditional {
        return Ok(output.next(format!("stroop export add {name} --client 127.0.0.1 --access rw")));
    }
    let size = ByteSize((aggregate.free_bytes / 2).max(16 << 20));
    let size = size.to_string().replace("iB", "");
    Ok(output.next(format!(
        "stroop volume create home --aggr {name} --size {size} --export 127.0.0.1:rw"
    )))
}

/// "a1: 3 data + 1 parity", or what it would be.
fn made_of(aggregate: &AggregateInfo, dry_run: bool) -> String {
    let AggregateInfo { name, data_disks, parity_disks, .. } = aggregate;
    let would_be = if dry_run { "would be " } else { "" };
    format!("{name}: {would_be}{data_disks} data + {parity_disks} parity")
}

/// "raid4 3+1".
fn raid(aggregate: &AggregateInfo) -> String {
    format!("{} {}+{}", aggregate.raid, aggregate.data_disks, aggregate.parity_disks)
}

/// Aggregates as a table.
pub(super) fn table(aggregates: &[AggregateInfo]) -> Table {
    let mut table = Table::new(&[
        ("AGGR", Column::Text),
        ("STATE", Column::Text),
        ("RAID", Column::Text),
        ("SIZE", Column::Number),
        ("USED", Column::Number),
        ("TIERED", Column::Number),
        ("FREE", Column::Number),
        ("USE%", Column::Number),
        ("VOLUMES", Column::Number),
        ("LOG%", Column::Number),
        ("SCRUB", Column::Text),
    ]);
    for aggregate in aggregates {
        table.row([
            aggregate.name.clone(),
            aggregate.state.to_string(),
            raid(aggregate),
            ByteSize(aggregate.size_bytes).to_string(),
            ByteSize(aggregate.used_bytes).to_string(),
            ByteSize(aggregate.tiered_bytes).to_string(),
            ByteSize(aggregate.free_bytes).to_string(),
            percent(aggregate.used_bytes, aggregate.size_bytes),
            aggregate.volumes.to_string(),
            percent(aggregate.log_used_bytes, aggregate.log_size_bytes),
            scrub::brief(&aggregate.scrub),
        ]);
    }
    table
}

/// The copies of a journal, if it has, or should have, more than one.
fn journal_copies(copies: &[JournalCopy]) -> Vec<String> {
    let line = |copy: &JournalCopy| {
        let state = match (copy.state, &copy.cause) {
            (JournalCopyState::Whole, _) => "has everything".to_owned(),
            (JournalCopyState::Joining, _) => "joins".to_owned(),
            (JournalCopyState::Lost, None) => "lost".to_owned(),
            (JournalCopyState::Lost, Some(cause)) => format!("lost: {cause}"),
        };
        format!("journal     {} {state}", copy.name)
    };
    if copies.len() > 1 { copies.iter().map(line).collect() } else { Vec::new() }
}

/// "3, and 1 that is deleted and holds 2 GiB".
fn volumes(aggregate: &AggregateInfo) -> String {
    let live = aggregate.volumes;
    let held = ByteSize(aggregate.deleted_bytes);
    match aggregate.deleted_volumes {
        0 => live.to_string(),
        1 => format!("{live}, and 1 that is deleted and holds {held}"),
        deleted => format!("{live}, and {deleted} that are deleted and hold {held}"),
    }
}

fn show(node: &dyn Administration, aggregate: &AggregateInfo) -> Result<Output, AdminError> {
    let features = node.aggregate_features(&Named { name: aggregate.name.clone() })?;
    let output = Output::of(&aggregate.name, aggregate)?;
    let mut output = output.field("features", &features.features)?;
    output.head = head(aggregate);
    if features.refusal.is_none() {
        output.head.extend(features::head(&features.features));
    }
    output.table = Some(disk::table(&aggregate.disks));
    Ok(output)
}

fn show_map(node: &dyn Administration, aggregate: &AggregateInfo) -> Result<Output, AdminError> {
    let wanted = MapShow { name: aggregate.name.clone(), cells: area_map::CELLS_MAX };
    let map = node.aggregate_map(&wanted)?;
    let mut output = Output::of(&aggregate.name, aggregate)?.field("map", &map)?;
    output.head = head(aggregate);
    output.lines = area_map::lines(&map);
    Ok(output)
}

/// "emptied ahead of being filled".
const fn area_cleaning_of(aggregate: &AggregateInfo) -> &'static str {
    match aggregate.area_cleaning {
        true => "emptied ahead of being filled",
        false => "filled as they are",
    }
}

/// "group 1 is being evacuated: 1GiB of 4GiB left".
fn leaving(leaving: &LeavingGroup, scrub: ScrubState) -> String {
    let LeavingGroup { group, used_bytes, size_bytes } = leaving;
    let size = ByteSize(*size_bytes);
    match used_bytes {
        Some(0) if matches!(scrub, ScrubState::Running | ScrubState::Paused) => {
            format!("group {group} is empty, and leaves when the scrub has ended or is stopped")
        }
        Some(used) => {
            format!("group {group} is being evacuated: {} of {size} left", ByteSize(*used))
        }
        None => format!("group {group} is being evacuated: its {size} are being counted"),
    }
}

fn head(aggregate: &AggregateInfo) -> Vec<String> {
    let bytes = ByteSize;
    let mut lines = vec![
        format!("aggregate   {}", aggregate.name),
        format!("state       {}", aggregate.state),
        format!("raid        {}, {}", raid(aggregate), aggregate.protection),
        format!("groups      {}", aggregate.groups),
        format!(
            "kind        {}",
            if aggregate.traditional { "one traditional volume" } else { "room for many volumes" }
        ),
        format!("volumes     {}", volumes(aggregate)),
        format!("size        {}", bytes(aggregate.size_bytes)),
        format!(
            "used        {} ({}), of which metadata {}",
            bytes(aggregate.used_bytes),
            percent(aggregate.used_bytes, aggregate.size_bytes),
            bytes(aggregate.metadata_bytes)
        ),
        format!("in objects  {} of the used", bytes(aggregate.tiered_bytes)),
        format!("reserve     {} (so that deleting always works)", bytes(aggregate.reserve_bytes)),
        format!("guaranteed  {} (free, and each volume's own)", bytes(aggregate.guaranteed_bytes)),
        format!("free        {}", bytes(aggregate.free_bytes)),
        format!(
            "provisioned {} ({} of the size)",
            bytes(aggregate.provisioned_bytes),
            percent(aggregate.provisioned_bytes, aggregate.size_bytes)
        ),
        format!(
            "last cp     {} took {}",
            aggregate.consistency_point,
            duration::format(aggregate.consistency_point_duration_ns)
        ),
        format!(
            "log         {} of {} used",
            bytes(aggregate.log_used_bytes),
            bytes(aggregate.log_size_bytes)
        ),
    ];
    lines.extend(journal_copies(&aggregate.journal_copies));
    lines.extend([
        format!("repaired    {}", count(aggregate.repaired_blocks, "block")),
        format!("scrub       {}", scrub::brief(&aggregate.scrub)),
        format!("areas       {}", area_cleaning_of(aggregate)),
    ]);
    let leaving = aggregate.leaving.iter().map(|group| leaving(group, aggregate.scrub.state));
    lines.extend(leaving.map(|group| format!("leaving     {group}")));
    lines.push(String::new());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_group_waits_for_a_scrub() {
        let group = |used| LeavingGroup { group: 1, used_bytes: Some(used), size_bytes: 1 << 30 };
        let left = "group 1 is being evacuated: 4KiB of 1GiB left";
        assert_eq!(leaving(&group(4096), ScrubState::Paused), left);
        let left = "group 1 is being evacuated: 0B of 1GiB left";
        assert_eq!(leaving(&group(0), ScrubState::Finished), left);
        for state in [ScrubState::Running, ScrubState::Paused] {
            assert!(leaving(&group(0), state).contains("when the scrub has ended or is stopped"));
        }
    }
}
