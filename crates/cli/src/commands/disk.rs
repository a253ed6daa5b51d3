//! `stroop disk`, and how other commands name disks.
//!
//! Invariants: a disk may be called by its short name, by its path, by the last part of its path,
//! or by that without `.img`, as long as that means one disk only. The name that a table shows
//! for a disk may be typed for it.

use super::begun::{Begun, newest};
use super::taking::Losses;
use crate::arguments::{DiskCommand, Options, SpareCommand};
use crate::confirm::confirm;
use crate::output::Output;
use crate::table::{Column, Table};
use crate::terminal::Terminal;
use admin_api::{
    AdminError, Administration, AggregateState, Code, DiskClear, DiskFail, DiskInfo, DiskReplace,
    DiskState, JobKind, RaidKind, SpareAdd, SpareRemove,
};
use std::collections::BTreeSet;
use units::ByteSize;

pub(super) fn run(
    command: &DiskCommand,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> Result<Output, AdminError> {
    match command {
        DiskCommand::List => list(node),
        DiskCommand::Fail { disk, dry_run } => {
            let disk = resolve(&members(node)?, disk)?;
            let plan = node.disk_fail(&DiskFail { disk: disk.clone(), dry_run: true })?;
            if *dry_run {
                return super::removal::removal("fail", &plan);
            }
            confirm(terminal, options, "fail disk", &plan)?;
            let done = node.disk_fail(&DiskFail { disk, dry_run: false })?;
            Ok(Output::of(&done.object, &done)?
                .line(format!("{}: failed", done.object))
                .next("stroop disk replace OLD NEW"))
        }
        DiskCommand::Clear { disk, dry_run } => {
            // One that was replaced for being sick is no member any more.
            let disk = resolve(&members(node)?, disk)
                .or_else(|_| resolve(&node.disk_list()?, disk))
                .unwrap_or_else(|_| disk.clone());
            let done = node.disk_clear(&DiskClear { disk, dry_run: *dry_run })?;
            if *dry_run {
                return super::removal::removal("clear", &done);
            }
            let lines = done.consequences.iter().map(|line| format!("{}: {line}", done.object));
            Ok(lines.fold(Output::of(&done.object, &done)?, Output::line))
        }
        DiskCommand::Replace { disk, replacement, rate, force, dry_run } => {
            let known = node.disk_list()?;
            let disk = resolve(&members(node)?, disk)?;
            let replacement = replacement
                .as_ref()
                .map(|name| resolve(&known, name).or_else(|_| resolve(&members(node)?, name)))
                .transpose()?;
            // Of a disk that takes its own place again nothing is lost.
            let wanted = replacement.as_slice().iter().filter(|name| **name != disk);
            let losses = Losses::of(&known, &wanted.cloned().collect::<Vec<_>>(), *force);
            let request = DiskReplace {
                disk,
                replacement,
                force: *force,
                abandoned: losses.aggregates.clone(),
                rate_bytes_per_second: rate.map(|rate| rate.0),
                dry_run: *dry_run,
            };
            if !dry_run {
                let object = ("replace disk", request.disk.as_str());
                let plan = DiskReplace { dry_run: true, ..request.clone() };
                losses.confirm((options, terminal), object, || node.disk_replace(&plan))?;
            }
            replace((options, terminal), node, &request)
        }
        DiskCommand::Locate { disk, seconds, off } => {
            super::upkeep::locate(node, disk, if *off { 0 } else { *seconds })
        }
        DiskCommand::Zero { disk, dry_run } => {
            super::upkeep::zero((options, terminal), node, disk, *dry_run)
        }
        DiskCommand::Spare(SpareCommand::Add { disks, aggr, force, dry_run }) => {
            let known = node.disk_list()?;
            let found: Result<Vec<_>, _> = disks.iter().map(|disk| resolve(&known, disk)).collect();
            let found = found?;
            let losses = Losses::of(&known, &found, *force);
            let request = SpareAdd {
                aggregate: match aggr {
                    Some(name) => name.clone(),
                    None => {
                        super::volume::only_aggregate(node, "cannot add spares", &disks.join(","))?
                    }
                },
                disks: found,
                force: *force,
                abandoned: losses.aggregates.clone(),
                dry_run: *dry_run,
            };
            if !dry_run {
                let object = ("add spares to", request.aggregate.as_str());
                let plan = SpareAdd { dry_run: true, ..request.clone() };
                losses.confirm((options, terminal), object, || node.spare_add(&plan))?;
            }
            add_spares(node, &request)
        }
        DiskCommand::Spare(SpareCommand::Remove { disk, dry_run }) => {
            let disk = resolve(&members(node)?, disk)?;
            let removed = node.spare_remove(&SpareRemove { disk, dry_run: *dry_run })?;
            if *dry_run {
                return super::removal::removal("remove spare", &removed);
            }
            Ok(Output::of(&removed.object, &removed)?
                .line(format!("{}: free to be used", removed.object))
                .next("stroop disk list"))
        }
    }
}

fn add_spares(node: &dyn Administration, request: &SpareAdd) -> Result<Output, AdminError> {
    let added = node.spare_add(request)?;
    let tense = if request.dry_run { "would be" } else { "is" };
    let mut output = Output::list(&added, |disk| disk.name.clone(), table(&added))?;
    for disk in &added {
        output = output.line(format!("{} {tense} a spare of {}", disk.name, request.aggregate));
    }
    if request.dry_run {
        return Ok(output.planned());
    }
    Ok(output.next("stroop disk list"))
}

/// The disks of all aggregates, those that are missing as well.
pub(super) fn members(node: &dyn Administration) -> Result<Vec<DiskInfo>, AdminError> {
    Ok(node.aggregate_list()?.into_iter().flat_map(|aggregate| aggregate.disks).collect())
}

fn replace(
    asked: (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
    request: &DiskReplace,
) -> Result<Output, AdminError> {
    let after = newest(node)?;
    let disk = node.disk_replace(request)?;
    let aggregate = disk.aggregate.clone().unwrap_or_default();
    let tense = if request.dry_run { "would take" } else { "takes" };
    let line = format!(
        "{} {tense} the place of {} in {aggregate} and is rebuilt in the background",
        disk.name, request.disk
    );
    let output = Output::of(&disk.name, &disk)?.line(line);
    if request.dry_run {
        return Ok(output.planned());
    }
    let kinds = &[JobKind::Rebuild, JobKind::Replacement, JobKind::Resync];
    let begun = Begun { kinds, aggregate: &aggregate, target: Some(&disk.name), after };
    begun.follow(output.next(format!("stroop aggr show {aggregate}")), asked, node)
}

fn list(node: &dyn Administration) -> Result<Output, AdminError> {
    let disks = node.disk_list()?;
    let mut output = Output::list(&disks, |disk| disk.name.clone(), table(&disks))?;
    if disks.is_empty() {
        return Ok(output
            .line("no disks: the configuration names none, or none that is there")
            .line("disks are named under [node] disks; the server reads them when it starts"));
    }
    let unused = disks.iter().filter(|disk| disk.state == DiskState::Unused).count();
    let aggregates = node.aggregate_list()?;
    // Whose aggregate is out of service mends that first.
    if unused > 0 && aggregates.iter().all(|one| one.state != AggregateState::Offline) {
        let raid = match unused {
            0..3 => RaidKind::None,
            3..5 => RaidKind::Raid4,
            _ => RaidKind::Dp,
        };
        let taken: BTreeSet<String> =
            aggregates.into_iter().map(|aggregate| aggregate.name).collect();
        // One of these is free: there is one more of them than names that are taken.
        let mut names = (1..=taken.len() + 1).map(|number| format!("a{number}"));
        let free = names.find(|name| !taken.contains(name));
        let name = free.unwrap_or_else(|| "NAME".to_owned());
        output = output.next(format!("stroop aggr create {name} --disks {unused} --raid {raid}"));
    }
    Ok(output)
}

/// Disks as a table.
pub(super) fn table(disks: &[DiskInfo]) -> Table {
    let mut columns = vec![
        ("DISK", Column::Text),
        ("SIZE", Column::Number),
        ("MEDIA", Column::Text),
        ("STATE", Column::Text),
        ("AGGR", Column::Text),
        ("ROLE", Column::Text),
        ("READ", Column::Number),
        ("WRITE", Column::Number),
        ("CKSUM", Column::Number),
    ];
    // A disk without a short name has its path for a name.
    let has_paths = disks.iter().any(|disk| path_of(disk) != disk.name);
    if has_paths {
        columns.push(("PATH", Column::Text));
    }
    columns.push(("NOTE", Column::Long));
    let mut table = Table::new(&columns);
    let has_groups = disks.iter().any(|disk| disk.group.is_some_and(|group| group > 0));
    let role = |disk: &DiskInfo| match (disk.role, disk.group) {
        (Some(role), Some(group)) if has_groups => format!("{role} {group}"),
        (Some(role), _) => role.to_string(),
        (None, _) => "-".to_owned(),
    };
    for disk in disks {
        let mut cells = vec![
            disk.name.clone(),
            ByteSize(disk.size_bytes).to_string(),
            disk.media.clone().unwrap_or_else(|| "-".to_owned()),
            disk.state.to_string(),
            disk.aggregate.clone().unwrap_or_else(|| "-".to_owned()),
            role(disk),
            disk.read_errors.to_string(),
            disk.write_errors.to_string(),
            disk.checksum_errors.to_string(),
        ];
        if has_paths {
            cells.push(disk.path.clone().unwrap_or_else(|| "-".to_owned()));
        }
        cells.push(disk.note.clone().unwrap_or_default());
        table.row(cells);
    }
    table
}

/// The disks that `wanted` means: a number of unused ones, or a list of names.
pub(super) fn choose(disks: &[DiskInfo], wanted: &str) -> Result<Vec<String>, AdminError> {
    let Ok(number) = wanted.parse::<usize>() else {
        return wanted.split(',').map(|name| resolve(disks, name.trim())).collect();
    };
    let unused: Vec<String> = disks
        .iter()
        .filter(|disk| disk.state == DiskState::Unused)
        .map(|disk| disk.name.clone())
        .collect();
    if unused.len() < number {
        return Err(AdminError::new(Code::NotFound, "cannot find disks:", wanted)
            .because(format!("{} of {} disks are unused", unused.len(), disks.len()))
            .try_next("stroop disk list"));
    }
    Ok(unused.into_iter().take(number).collect())
}

/// The disk that is meant; what to call it.
pub(super) fn resolve(disks: &[DiskInfo], typed: &str) -> Result<String, AdminError> {
    let is_meant = |disk: &&DiskInfo| {
        let path = path_of(disk);
        let last = path.rsplit('/').next().unwrap_or_default();
        let is_last = last == typed || last.strip_suffix(".img") == Some(typed);
        disk.name == typed || path == typed || is_last
    };
    let mut found: Vec<&DiskInfo> = Vec::new();
    for disk in disks.iter().filter(is_meant) {
        // A failed disk may be listed beside its successor, with the same name and path.
        if !found.iter().any(|other| (&other.name, &other.path) == (&disk.name, &disk.path)) {
            found.push(disk);
        }
    }
    match found.as_slice() {
        // Another disk may have had the short name once: it is not guessed that the path is meant.
        [disk] if disk.name != typed && is_short_name(typed) && is_short_name(&disk.name) => {
            let (name, path) = (&disk.name, path_of(disk));
            Err(AdminError::new(Code::NotFound, "cannot find disk", typed)
                .because(format!("no disk has this short name; the one at {path} is called {name}"))
                .try_next(name.clone()))
        }
        [disk] => Ok(disk.name.clone()),
        [] => Err(AdminError::new(Code::NotFound, "cannot find disk", typed)
            .because("no disk has this name now, nor this path")
            .try_next("stroop disk list")),
        several => {
            let titles: Vec<String> = several.iter().map(|disk| title(disk)).collect();
            Err(AdminError::usage("cannot tell which disk is", typed)
                .because(titles.join("\n"))
                .try_next("the whole path"))
        }
    }
}

/// Whether it is the form of short names: `d7`.
fn is_short_name(name: &str) -> bool {
    let number = name.strip_prefix('d');
    number.is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The path of a disk, or its name if it is missing.
pub(super) fn path_of(disk: &DiskInfo) -> &str {
    disk.path.as_deref().unwrap_or(&disk.name)
}

/// `d3 (/dev/sdb)`.
fn title(disk: &DiskInfo) -> String {
    let DiskInfo { name, path, .. } = disk;
    match path.as_ref().filter(|path| *path != name) {
        Some(path) => format!("{name} ({path})"),
        None => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_api::memory::MemoryAdministration;

    #[test]
    fn disks_are_chosen_by_number_path_or_short_name() {
        let mut disks = MemoryAdministration::with_disks(4).disk_list().unwrap();
        "/other/d1".clone_into(&mut disks[3].name);
        disks[1].name.push_str(".img");
        disks[2].state = DiskState::Foreign;
        let names = |wanted: &str| choose(&disks, wanted).map(|names| names.join(" "));
        assert_eq!(names("2").unwrap(), "/disks/d1 /disks/d2.img");
        assert_eq!(names("d2, d3").unwrap(), "/disks/d2.img /disks/d3");
        assert_eq!(names("/disks/d1,d2.img").unwrap(), "/disks/d1 /disks/d2.img");
        for (wrong, code) in [
            ("4", Code::NotFound),
            ("d1", Code::Usage),
            ("d9", Code::NotFound),
            ("", Code::NotFound),
        ] {
            assert_eq!(names(wrong).unwrap_err().code, code, "{wrong}");
        }
    }

    #[test]
    fn a_short_name_is_taken_as_long_as_it_means_one_disk() {
        let mut disks = MemoryAdministration::with_disks(4).disk_list().unwrap();
        for (disk, name) in disks.iter_mut().zip(["d7", "d1", "d8"]) {
            disk.path = Some(std::mem::replace(&mut disk.name, name.to_owned()));
        }
        // The third is missing.
        disks[2].path = None;
        let meant = |typed: &str| resolve(&disks, typed).map_err(|error| error.cause.concat());
        for (typed, name) in [
            ("d7", "d7"),
            ("/disks/d1", "d7"),
            ("d8", "d8"),
            ("d4", "/disks/d4"),
            ("/disks/d4", "/disks/d4"),
        ] {
            assert_eq!(meant(typed).as_deref(), Ok(name), "{typed}");
        }
        let other = "no disk has this short name; the one at /disks/d2 is called d1";
        assert_eq!(meant("d2"), Err(other.to_owned()), "it was another's once, perhaps");
        // The short name of one disk, and what another is called in the configuration.
        assert_eq!(meant("d1"), Err("d7 (/disks/d1)\nd1 (/disks/d2)".to_owned()));
        let text = table(&disks).render(true, None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].ends_with("  PATH       NOTE") && lines[1].ends_with("  /disks/d1"),
            "{text}"
        );
        assert!(lines[3].starts_with("d8 ") && lines[3].ends_with("  -"), "{text}");
    }
}
