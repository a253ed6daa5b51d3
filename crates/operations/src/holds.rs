//! Holds: front ends with open files keep them alive though their last name be removed.
//!
//! Invariants: a hold is memory only; after a restart nobody holds anything, and orphans go.

use crate::attributes::file_kind;
use crate::{Environment, OperationStop};
use cowfs::logical::Logical;
use cowfs::pointer::Pointer;
use cowfs::reader::Reader;
use file_service::{FileHandle, FsError};

/// Holds a file. A file of a snapshot stays anyway, as long as the snapshot does.
///
/// # Errors
/// `Stale`, or what to wait for.
pub fn hold<P: Pointer>(
    logical: &mut Logical<P>,
    reader: &Reader<'_>,
    environment: &Environment,
    file: FileHandle,
) -> Result<(), OperationStop> {
    environment.check(file)?;
    if file.is_read_only() {
        return Ok(());
    }
    let found = logical.find(file.inode, file.generation, reader)?;
    let inode = logical.inodes.get_mut(&file.inode).filter(|_| found).ok_or(FsError::Stale)?;
    let state = &inode.shared.get_mut().attributes;
    let gone = state.links == 0 && inode.holds == 0;
    if gone || file_kind(state.kind).is_none() {
        return Err(FsError::Stale.into());
    }
    inode.holds += 1;
    Ok(())
}

/// Ends a hold; whether the file is to be reaped now ([`crate::Reap`]).
///
/// # Panics
/// If nobody holds the file: a front end's mistake, not a client's.
pub fn release<P: Pointer>(
    logical: &mut Logical<P>,
    environment: &Environment,
    file: FileHandle,
) -> bool {
    if environment.check_active(file).is_err() {
        return false;
    }
    let inode = logical.inodes.get_mut(&file.inode).filter(|inode| inode.holds > 0);
    let Some(inode) = inode else { panic!("release of {} without a hold", file.inode) };
    let state = &inode.shared.get_mut().attributes;
    assert!(state.generation == file.generation, "a held file stays");
    let unnamed = state.links == 0;
    inode.holds -= 1;
    unnamed && inode.holds == 0
}
