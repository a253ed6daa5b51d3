//! Holds: front ends with open files keep them alive though their last name be removed
//! ([`cowfs::holds`]).
//!
//! Invariants: a hold is memory only; after a restart nobody holds anything, and orphans go.
//! Nothing here panics by what a front end asks for.

use crate::attributes::file_kind;
use crate::{Environment, Outcome};
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
) -> Outcome<()> {
    environment.check(file)?;
    if file.is_read_only() {
        return Ok(());
    }
    let found = logical.find(file.inode, file.generation, reader)?;
    let inode = logical.inodes.get_mut(&file.inode).filter(|_| found).ok_or(FsError::Stale)?;
    let state = &inode.shared.get_mut().attributes;
    let gone = state.links == 0 && !logical.holds.has(file.inode, file.generation);
    if gone || file_kind(state.kind).is_none() {
        return Err(FsError::Stale.into());
    }
    logical.holds.add(file.inode, file.generation);
    Ok(())
}

/// Ends a hold; whether the file may have to be reaped now ([`crate::Reap`] finds out). After a
/// restore the file may be another than the inode's, or none: then there is nothing to reap.
pub fn release<P: Pointer>(
    logical: &mut Logical<P>,
    environment: &Environment,
    file: FileHandle,
) -> bool {
    if environment.check_active(file).is_err() {
        return false;
    }
    let was_held = logical.holds.remove(file.inode, file.generation);
    if !was_held || logical.holds.has(file.inode, file.generation) {
        return false;
    }
    // Held files stay in memory, but after a restore: then it is not known whether it has a name.
    let found = logical.in_memory(file.inode, file.generation);
    found.is_none_or(|inode| inode.shared.lock().attributes.links == 0)
}
