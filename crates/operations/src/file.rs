//! Finding the files that an operation is about, in the active image.
//!
//! Invariants: a file without a name that nobody holds is gone for clients, though it may wait on
//! the orphan list for its blocks to be freed.

use crate::attributes::visible;
use crate::{Environment, OperationStop};
use cowfs::directory::{Entry as NameEntry, Member};
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::{Attributes, Entry, FileHandle, FsError};
use units::{InodeNumber, SnapshotId};

/// A file as it is before or amid an operation.
#[derive(Clone, Debug)]
pub struct File {
    pub inode: InodeNumber,
    /// As the core has it.
    pub state: InodeAttributes,
    /// As clients see it.
    pub attributes: Attributes,
}

impl File {
    /// How directory entries name it.
    pub fn member(&self) -> Member {
        Member::of_this_volume(self.inode, self.state.generation)
    }

    pub fn is_directory(&self) -> bool {
        self.attributes.kind == file_service::FileKind::Directory
    }
}

/// The file that a client's handle names.
///
/// # Errors
/// `Stale`, `ReadOnly`, or what to wait for.
pub fn open<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    environment: &Environment,
    handle: FileHandle,
) -> Result<File, OperationStop> {
    environment.check_active(handle)?;
    let state = transaction.file(handle.inode, handle.generation)?;
    let file = state.and_then(|state| seen(transaction, environment, handle.inode, state));
    let file = file.ok_or(FsError::Stale)?;
    if is_gone(transaction, handle.inode, &file.state) {
        return Err(FsError::Stale.into());
    }
    Ok(file)
}

/// Whether a file has no name and nobody who holds it.
pub fn is_gone<P: Pointer>(
    transaction: &Transaction<'_, P>,
    inode: InodeNumber,
    state: &InodeAttributes,
) -> bool {
    state.links == 0 && !is_held(transaction, inode, state)
}

/// Whether front ends hold a file.
pub fn is_held<P: Pointer>(
    transaction: &Transaction<'_, P>,
    inode: InodeNumber,
    state: &InodeAttributes,
) -> bool {
    transaction.logical().holds.has(inode, state.generation)
}

fn seen<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    environment: &Environment,
    inode: InodeNumber,
    state: InodeAttributes,
) -> Option<File> {
    let blocks = transaction.blocks_in_use(inode);
    let image_number = environment.image_number(SnapshotId::ACTIVE);
    let attributes = visible(inode, &state, blocks, image_number)?;
    Some(File { inode, state, attributes })
}

/// A file that an earlier step found, as it is now.
///
/// # Errors
/// `Dangling` if it is not there, or what to wait for.
pub fn known<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    environment: &Environment,
    inode: InodeNumber,
) -> Result<File, OperationStop> {
    let state = transaction.attributes(inode)?;
    let file = state.and_then(|state| seen(transaction, environment, inode, state));
    file.ok_or(OperationStop::Dangling { inode })
}

/// The file that a directory entry leads to.
///
/// # Errors
/// As [`known`].
pub fn named<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    environment: &Environment,
    entry: NameEntry,
) -> Result<File, OperationStop> {
    let member = entry.member;
    let file = known(transaction, environment, member.inode)?;
    if file.member() != member {
        return Err(OperationStop::Dangling { inode: member.inode });
    }
    Ok(file)
}

/// A file's attributes as they are now.
///
/// # Errors
/// As [`known`].
pub fn attributes<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    environment: &Environment,
    inode: InodeNumber,
) -> Result<Attributes, OperationStop> {
    known(transaction, environment, inode).map(|file| file.attributes)
}

/// A file's handle and attributes as they are now.
///
/// # Errors
/// As [`known`].
pub fn entry<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    environment: &Environment,
    inode: InodeNumber,
) -> Result<Entry, OperationStop> {
    let attributes = attributes(transaction, environment, inode)?;
    let handle = environment.handle(inode, attributes.generation, SnapshotId::ACTIVE);
    Ok(Entry { handle, attributes })
}
