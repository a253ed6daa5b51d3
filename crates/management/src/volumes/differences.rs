//! What changed between two snapshots, as administrators see it.
//!
//! Invariants: no other administrator is held up meanwhile. A comparison goes on though its client
//! has gone; so few run at a time ([`super::comparisons`]).
//!
//! Fails: as the engine's comparison does ([`dblade::Differences`]).

use crate::volumes::comparisons::COMPARISONS_MAX;
use crate::volumes::room::Volumes;
use crate::volumes::snapshots::{full_name, place};
use admin_api::differences::shown_path;
use admin_api::{AdminError, Code, FileChange, FileDifference, SnapshotDiff, SnapshotDifferences};
use dblade::{Change, Difference, Differences, Found};
use ondisk::inode;
use std::sync::Arc;
use units::SnapshotId;

pub(crate) fn of_snapshots(
    volumes: &Volumes,
    wanted: &SnapshotDiff,
) -> Result<SnapshotDifferences, AdminError> {
    let message = "cannot compare";
    let volume = volumes.find(message, &wanted.volume)?;
    let (name, list) = (volume.name(), volumes.snapshots_of(&volume)?);
    let of = |snapshot: &str| -> Result<SnapshotId, AdminError> {
        Ok(list[place(message, &full_name(&name, snapshot), &list, snapshot)?].id)
    };
    let snapshots = [of(&wanted.from)?, of(&wanted.to)?];
    let (object, is_wanted) = (full_name(&name, &wanted.from), Arc::new(()));
    let Some(_comparison) = volumes.comparisons.begin() else {
        return Err(AdminError::new(Code::Conflict, message, object)
            .because(format!("{COMPARISONS_MAX} comparisons of snapshots are under way"))
            .try_next("the same command when one of them is over"));
    };
    let found: Found = volumes.node.waits.request(message, &object, |done| {
        volumes.node.engine.snapshot_differences(&name, snapshots, &is_wanted, done);
    })?;
    let found: Differences = found.in_order();
    Ok(SnapshotDifferences {
        volume: name,
        from: wanted.from.clone(),
        to: wanted.to.clone(),
        files: found.files.into_iter().map(shown).collect(),
        unreadable_directories: found.unreadable_directories,
        unreadable_inodes: found.unreadable_inodes,
    })
}

fn shown(file: Difference) -> FileDifference {
    let paths = |paths: Vec<Vec<u8>>| paths.iter().map(|path| shown_path(path)).collect();
    FileDifference {
        change: match file.change {
            Change::Created => FileChange::Created,
            Change::Removed => FileChange::Removed,
            Change::Modified => FileChange::Modified,
            Change::Renamed => FileChange::Renamed,
        },
        modified: file.is_modified,
        kind: kind(file.kind).to_owned(),
        inode: file.inode.get(),
        old_paths: paths(file.old_paths),
        new_paths: paths(file.new_paths),
        old_size_bytes: file.old_size,
        new_size_bytes: file.new_size,
    }
}

const fn kind(kind: u8) -> &'static str {
    match kind {
        inode::KIND_DIRECTORY => "directory",
        inode::KIND_SYMLINK => "symlink",
        inode::KIND_BLOCK_DEVICE | inode::KIND_CHARACTER_DEVICE => "device",
        inode::KIND_FIFO => "fifo",
        inode::KIND_SOCKET => "socket",
        _ => "file",
    }
}
