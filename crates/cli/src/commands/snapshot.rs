//! `stroop snapshot`.

use super::differences::differences;
use super::removal::{removal, shown};
use super::space::bar;
use crate::arguments::{Options, SnapshotCommand};
use crate::confirm::confirm;
use crate::output::Output;
use crate::table::{Column, Table};
use crate::terminal::Terminal;
use admin_api::names::parse_snapshot_name;
use admin_api::{
    AdminError, Administration, Removal, SnapshotDelete, SnapshotHold, SnapshotInfo, SnapshotName,
    SnapshotRestore, VolumeFilter,
};
use units::ByteSize;

pub(super) fn run(
    command: &SnapshotCommand,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> Result<Output, AdminError> {
    match command {
        SnapshotCommand::Create { name } => create(node, name),
        SnapshotCommand::List { volume, timeline } => list(node, volume.as_deref(), *timeline),
        SnapshotCommand::Diff { from, to } => differences(node, (from, to)),
        SnapshotCommand::Hold { name } => hold(node, name, true),
        SnapshotCommand::Release { name } => hold(node, name, false),
        SnapshotCommand::Delete { name, through, dry_run } => {
            let (volume, name) = owned(parse_snapshot_name(name)?);
            let request = |dry_run, plan| SnapshotDelete {
                volume: volume.clone(),
                name: name.clone(),
                through: through.clone(),
                dry_run,
                plan,
            };
            let plan = node.snapshot_delete(&request(true, None))?;
            if *dry_run {
                return removal("delete", &plan);
            }
            confirm(terminal, options, "delete", &plan)?;
            let deleted = node.snapshot_delete(&request(false, shown(&plan)))?;
            removal("delete", &Removal { freed_bytes: plan.freed_bytes, ..deleted })
        }
        SnapshotCommand::Restore { name, discard_newer, dry_run } => {
            let (volume, name) = owned(parse_snapshot_name(name)?);
            let request = |dry_run, plan| SnapshotRestore {
                volume: volume.clone(),
                name: name.clone(),
                discard_newer: *discard_newer,
                dry_run,
                plan,
            };
            let plan = node.snapshot_restore(&request(true, None))?;
            if *dry_run {
                return removal("restore", &plan);
            }
            confirm(terminal, options, "restore", &plan)?;
            let restored = node.snapshot_restore(&request(false, shown(&plan)))?;
            let mut output = removal("restore", &restored)?;
            let went = restored.consequences.iter().filter(|line| line.starts_with("snapshot "));
            output.lines.extend(went.map(|snapshot| format!("deleted {snapshot}")));
            Ok(output)
        }
    }
}

fn owned((volume, name): (&str, &str)) -> (String, String) {
    (volume.to_owned(), name.to_owned())
}

fn full_name(snapshot: &SnapshotInfo) -> String {
    format!("{}@{}", snapshot.volume, snapshot.name)
}

fn create(node: &dyn Administration, name: &str) -> Result<Output, AdminError> {
    let (volume, name) = owned(parse_snapshot_name(name)?);
    let snapshot = node.snapshot_create(&SnapshotName { volume, name })?;
    let full_name = full_name(&snapshot);
    Ok(Output::of(&full_name, &snapshot)?
        .line(format!("{full_name}: taken {}", snapshot.created))
        .line(format!(
            "read it under .snapshot/{} of any directory of a mount of {}",
            snapshot.name, snapshot.volume
        )))
}

fn hold(node: &dyn Administration, name: &str, held: bool) -> Result<Output, AdminError> {
    let (volume, name) = owned(parse_snapshot_name(name)?);
    let snapshot = node.snapshot_hold(&SnapshotHold { volume, name, held })?;
    let full_name = full_name(&snapshot);
    let output = Output::of(&full_name, &snapshot)?;
    Ok(match held {
        true => output
            .line(format!("{full_name}: held; neither it nor {} can be deleted", snapshot.volume))
            .next(format!("stroop snapshot release {full_name}, once nobody needs it")),
        false => output.line(format!("{full_name}: released; it can be deleted")),
    })
}

fn list(
    node: &dyn Administration,
    volume: Option<&str>,
    timeline: bool,
) -> Result<Output, AdminError> {
    let snapshots = node.snapshot_list(&VolumeFilter { volume: volume.map(str::to_owned) })?;
    let shown = if timeline { drawn(&snapshots) } else { table(&snapshots) };
    let output = Output::list(&snapshots, full_name, shown)?;
    let (Some(oldest), Some(newest)) = (snapshots.first(), snapshots.last()) else {
        let next = format!("stroop snapshot create {}@NAME", volume.unwrap_or("VOLUME"));
        return Ok(output.line("no snapshots").next(next));
    };
    if !timeline {
        return Ok(output);
    }
    let output =
        output.line("# comes back when that snapshot is deleted, + when all older ones are, too");
    Ok(match volume.filter(|_| snapshots.len() > 1) {
        None => output,
        Some(_) => output.next(format!(
            "stroop snapshot delete {} --through {} --dry-run",
            full_name(oldest),
            newest.name
        )),
    })
}

/// Bytes that may not be known.
pub(super) fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| ByteSize(bytes).to_string())
}

/// A bar for each snapshot: the space that it alone holds, then the space that deleting all older
/// snapshots as well adds to that.
fn drawn(snapshots: &[SnapshotInfo]) -> Table {
    let mut older: Option<(&str, u64)> = None;
    let mut parts = Vec::with_capacity(snapshots.len());
    for snapshot in snapshots {
        let before = older.filter(|(volume, _)| *volume == snapshot.volume);
        let with_older = snapshot.with_older_bytes.or(before.map(|(_, bytes)| bytes));
        let with_older = with_older.unwrap_or_default();
        let added = with_older.saturating_sub(before.map_or(0, |(_, bytes)| bytes));
        let exclusive = snapshot.exclusive_bytes.unwrap_or_default();
        parts.push([exclusive, added.saturating_sub(exclusive)]);
        older = Some((&snapshot.volume, with_older));
    }
    let most = parts.iter().map(|parts| parts.iter().sum()).max().unwrap_or(0);
    let mut table = Table::new(&[
        ("SNAPSHOT", Column::Text),
        ("CREATED", Column::Text),
        ("EXCLUSIVE", Column::Number),
        ("WITH OLDER", Column::Number),
        ("TIMELINE", Column::Text),
    ]);
    for (snapshot, parts) in snapshots.iter().zip(parts) {
        table.row([
            full_name(snapshot),
            snapshot.created.to_string(),
            bytes(snapshot.exclusive_bytes),
            bytes(snapshot.with_older_bytes),
            bar(&[('#', parts[0]), ('+', parts[1])], most),
        ]);
    }
    table
}

fn table(snapshots: &[SnapshotInfo]) -> Table {
    let mut table = Table::new(&[
        ("SNAPSHOT", Column::Text),
        ("CREATED", Column::Text),
        ("EXCLUSIVE", Column::Number),
        ("WITH OLDER", Column::Number),
        ("HELD", Column::Text),
        ("CLONES", Column::Long),
    ]);
    for snapshot in snapshots {
        let clones = match snapshot.clones.as_slice() {
            [] => "-".to_owned(),
            clones => clones.join(", "),
        };
        table.row([
            full_name(snapshot),
            snapshot.created.to_string(),
            bytes(snapshot.exclusive_bytes),
            bytes(snapshot.with_older_bytes),
            if snapshot.held { "yes" } else { "-" }.to_owned(),
            clones,
        ]);
    }
    table
}
