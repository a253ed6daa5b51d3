//! `stroop snapshot`.

use super::removal::{removal, shown};
use crate::arguments::{Options, SnapshotCommand};
use crate::confirm::confirm;
use crate::output::Output;
use crate::table::{Column, Table};
use crate::terminal::Terminal;
use admin_api::names::parse_snapshot_name;
use admin_api::{
    AdminError, Administration, SnapshotDelete, SnapshotInfo, SnapshotName, SnapshotRestore,
    VolumeFilter,
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
        SnapshotCommand::List { volume } => {
            let snapshots = node.snapshot_list(&VolumeFilter { volume: volume.clone() })?;
            let output = Output::list(&snapshots, full_name, table(&snapshots))?;
            if snapshots.is_empty() {
                let volume = volume.as_deref().unwrap_or("VOLUME");
                let next = format!("stroop snapshot create {volume}@NAME");
                return Ok(output.line("no snapshots").next(next));
            }
            Ok(output)
        }
        SnapshotCommand::Delete { name, dry_run } => {
            let (volume, name) = owned(parse_snapshot_name(name)?);
            let request = |dry_run, plan| SnapshotDelete {
                volume: volume.clone(),
                name: name.clone(),
                dry_run,
                plan,
            };
            let plan = node.snapshot_delete(&request(true, None))?;
            if *dry_run {
                return removal("delete", &plan);
            }
            confirm(terminal, options, "delete", &plan)?;
            removal("delete", &node.snapshot_delete(&request(false, shown(&plan)))?)
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

fn table(snapshots: &[SnapshotInfo]) -> Table {
    let mut table = Table::new(&[
        ("SNAPSHOT", Column::Text),
        ("CREATED", Column::Text),
        ("EXCLUSIVE", Column::Number),
        ("CLONES", Column::Long),
    ]);
    for snapshot in snapshots {
        let exclusive = snapshot.exclusive_bytes;
        let clones = match snapshot.clones.as_slice() {
            [] => "-".to_owned(),
            clones => clones.join(", "),
        };
        table.row([
            full_name(snapshot),
            snapshot.created.to_string(),
            exclusive.map_or_else(|| "-".to_owned(), |bytes| ByteSize(bytes).to_string()),
            clones,
        ]);
    }
    table
}
