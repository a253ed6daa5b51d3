//! `stroop snapshot diff`.

use crate::output::Output;
use crate::table::{Column, Table};
use admin_api::names::parse_snapshot_name;
use admin_api::{AdminError, Administration, Code, FileChange, FileDifference, SnapshotDiff};

pub(super) fn differences(
    node: &dyn Administration,
    (from, to): (&str, &str),
) -> Result<Output, AdminError> {
    let (volume, from) = parse_snapshot_name(from)?;
    let to = match to.contains('@') {
        false => to,
        true => match parse_snapshot_name(to)? {
            (other, to) if other == volume => to,
            (other, _) => {
                return Err(AdminError::new(Code::Usage, "cannot compare", to)
                    .because(format!("'{other}' is not the volume of '{volume}@{from}'"))
                    .try_next(format!("stroop snapshot list {volume}")));
            }
        },
    };
    let request =
        SnapshotDiff { volume: volume.to_owned(), from: from.to_owned(), to: to.to_owned() };
    let found = node.snapshot_diff(&request)?;
    let mut table =
        Table::new(&[("CHANGE", Column::Text), ("KIND", Column::Text), ("PATH", Column::Long)]);
    for file in &found.files {
        table.row([file.change.to_string(), file.kind.clone(), path(file)]);
    }
    let output = Output::list(&found.files, path, table)?
        .field("unreadable_directories", &found.unreadable_directories)?
        .field("unreadable_inodes", &found.unreadable_inodes)?;
    let output = output.line(match found.files.len() {
        0 => "nothing differs".to_owned(),
        1 => "1 file differs".to_owned(),
        count => format!("{count} files differ"),
    });
    let (directories, inodes) = (found.unreadable_directories, found.unreadable_inodes);
    Ok(match directories + inodes {
        0 => output,
        _ => output
            .line(format!(
                "not all is told: {directories} directories and {inodes} inodes cannot be read"
            ))
            .next("stroop status"),
    })
}

/// Where a file is, and where it was.
fn path(file: &FileDifference) -> String {
    let (old, new) = (file.old_paths.join(", "), file.new_paths.join(", "));
    match file.change {
        _ if old.is_empty() && new.is_empty() => format!("inode {}, of unknown name", file.inode),
        FileChange::Removed => old,
        FileChange::Created => new,
        // A name that could not be read may be anything.
        FileChange::Modified | FileChange::Renamed if old == new || old.is_empty() => new,
        FileChange::Modified | FileChange::Renamed if new.is_empty() => old,
        FileChange::Modified | FileChange::Renamed => format!("{old} -> {new}"),
    }
}
