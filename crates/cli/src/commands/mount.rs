//! `stroop mount` and `unmount`: FUSE mounts that the server keeps on this machine.
//!
//! Invariant: the server gets absolute paths, because its working directory is another.

use crate::output::Output;
use crate::table::{Column, Table, printable};
use admin_api::{AdminError, Administration, MountCreate, MountInfo, MountRemove};
use std::path::Path;
use units::shell_word;

pub(super) fn mount(
    node: &dyn Administration,
    (volume, mountpoint): (&str, &Path),
    write_back: bool,
) -> Result<Output, AdminError> {
    let (volume, mountpoint) = (volume.to_owned(), absolute(mountpoint)?);
    let mount = node.fuse_mount(&MountCreate { volume, mountpoint, write_back })?;
    let MountInfo { volume, mountpoint, .. } = &mount;
    let option = if mount.write_back { " with write-back" } else { "" };
    Ok(Output::of(mountpoint, &mount)?
        .line(format!("{volume}: mounted at {mountpoint}{option}"))
        .next(format!("stroop unmount {}", shell_word(mountpoint))))
}

pub(super) fn unmount(node: &dyn Administration, mountpoint: &Path) -> Result<Output, AdminError> {
    let mount = node.fuse_unmount(&MountRemove { mountpoint: absolute(mountpoint)? })?;
    let line = format!("{}: no longer mounted at {}", mount.volume, mount.mountpoint);
    Ok(Output::of(&mount.mountpoint, &mount)?.line(line))
}

pub(super) fn list(node: &dyn Administration) -> Result<Output, AdminError> {
    let mounts = node.mount_list()?;
    let mut table = Table::new(&[
        ("VOLUME", Column::Text),
        ("MOUNTPOINT", Column::Text),
        ("STATE", Column::Text),
        ("OPTIONS", Column::Text),
    ]);
    for MountInfo { volume, mountpoint, write_back, missing } in &mounts {
        let state = missing.as_ref().map_or("mounted", |_| "missing").to_owned();
        let options = if *write_back { "write-back" } else { "-" }.to_owned();
        table.row([volume.clone(), mountpoint.clone(), state, options]);
    }
    let mut output = Output::list(&mounts, |mount| mount.mountpoint.clone(), table)?;
    for MountInfo { mountpoint, missing, .. } in &mounts {
        let line = |cause| format!("{}: {}", printable(mountpoint), printable(cause));
        output.lines.extend(missing.as_deref().map(line));
    }
    if mounts.iter().any(|mount| mount.missing.is_some()) {
        return Ok(output.next("stroop status"));
    }
    if mounts.is_empty() {
        return Ok(output.line("nothing is mounted").next("stroop mount VOLUME DIRECTORY"));
    }
    Ok(output)
}

fn absolute(path: &Path) -> Result<String, AdminError> {
    let shown = path.display().to_string();
    let error = || AdminError::usage("cannot use this mountpoint", &shown);
    // A path that is there is taken as the kernel will show it; a stale mount cannot be looked
    // at, and its path is taken as written.
    let absolute = path.canonicalize().or_else(|_| std::path::absolute(path));
    let absolute = absolute.map_err(|failure| error().because(failure.to_string()))?;
    absolute.into_os_string().into_string().map_err(|_| error().because("it is not UTF-8"))
}
