//! Between an inode's attributes in the core and the attributes that clients see.
//!
//! Invariants: kinds that are not for clients (metafiles, attribute holders) have no
//! [`FileKind`]: such an inode is to a client as if it were free.

use cowfs::inode::InodeAttributes;
use file_service::{AccessList, Attributes, FileKind, NodeChange};
use ondisk::inode as kinds;
use ondisk::inode::PAYLOAD_SIZE;
use ondisk::operation::FileState;
use units::{BLOCK_SIZE_U64, InodeNumber, Timestamp};

/// The unit in which a file that lies in its inode is said to take space: as on other file systems
/// with such files, for programs believe that a file without any block is all hole.
const SECTOR_SIZE: u64 = 512;

/// The code of a kind in inodes and directory entries.
pub(crate) const fn kind_code(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => kinds::KIND_REGULAR,
        FileKind::Directory => kinds::KIND_DIRECTORY,
        FileKind::Symlink => kinds::KIND_SYMLINK,
        FileKind::BlockDevice => kinds::KIND_BLOCK_DEVICE,
        FileKind::CharacterDevice => kinds::KIND_CHARACTER_DEVICE,
        FileKind::Fifo => kinds::KIND_FIFO,
        FileKind::Socket => kinds::KIND_SOCKET,
    }
}

/// The kind behind a code; `None` for what clients do not see.
pub(crate) const fn file_kind(code: u8) -> Option<FileKind> {
    match code {
        kinds::KIND_REGULAR => Some(FileKind::Regular),
        kinds::KIND_DIRECTORY => Some(FileKind::Directory),
        kinds::KIND_SYMLINK => Some(FileKind::Symlink),
        kinds::KIND_BLOCK_DEVICE => Some(FileKind::BlockDevice),
        kinds::KIND_CHARACTER_DEVICE => Some(FileKind::CharacterDevice),
        kinds::KIND_FIFO => Some(FileKind::Fifo),
        kinds::KIND_SOCKET => Some(FileKind::Socket),
        _ => None,
    }
}

/// What clients see of an inode whose file takes at most `blocks`; `None` for what they do not.
pub(crate) fn visible(
    inode: InodeNumber,
    state: &InodeAttributes,
    blocks: u64,
    image_number: u64,
) -> Option<Attributes> {
    Some(Attributes {
        inode,
        generation: state.generation,
        kind: file_kind(state.kind)?,
        mode: u32::from(state.mode),
        acl: if state.has_access_acl { AccessList::Unread } else { AccessList::None },
        links: state.links,
        uid: state.uid,
        gid: state.gid,
        size: state.size,
        used: used_bytes(state, blocks),
        device: state.device,
        file_system: image_number,
        atime: state.atime,
        mtime: state.mtime,
        ctime: state.ctime,
        birth: state.birth,
        change: state.change,
    })
}

fn used_bytes(state: &InodeAttributes, blocks: u64) -> u64 {
    let may_lie_in_inode = matches!(state.kind, kinds::KIND_REGULAR | kinds::KIND_SYMLINK);
    if may_lie_in_inode && state.size <= PAYLOAD_SIZE as u64 {
        return state.size.next_multiple_of(SECTOR_SIZE);
    }
    // A block that was written over since the last consistency point counts twice until the next.
    blocks.min(state.size_blocks()) * BLOCK_SIZE_U64
}

/// Takes over what a rule of `file_service` decided; the size is the content's business.
pub(crate) fn take_over(state: &mut InodeAttributes, decided: &Attributes) {
    state.mode = (decided.mode & 0o7777) as u16;
    state.uid = decided.uid;
    state.gid = decided.gid;
    state.atime = decided.atime;
    state.mtime = decided.mtime;
    state.ctime = decided.ctime;
    state.change = decided.change;
}

/// The attributes as records have them.
pub(crate) fn state_of(state: &InodeAttributes) -> FileState {
    FileState {
        mode: u32::from(state.mode).into(),
        uid: state.uid.into(),
        gid: state.gid.into(),
        reserved: 0.into(),
        size: state.size.into(),
        atime: state.atime.get().into(),
        mtime: state.mtime.get().into(),
        ctime: state.ctime.get().into(),
        change: state.change.into(),
    }
}

/// Takes over what a record says; the size is the content's business.
pub(crate) fn take_over_state(state: &mut InodeAttributes, decided: &FileState) {
    state.mode = (decided.mode.get() & 0o7777) as u16;
    state.uid = decided.uid.get();
    state.gid = decided.gid.get();
    state.atime = Timestamp(decided.atime.get());
    state.mtime = Timestamp(decided.mtime.get());
    state.ctime = Timestamp(decided.ctime.get());
    // Where an unlogged change was lost, the counter must not run twice over the same numbers.
    state.change = state.change.max(decided.change.get());
}

/// The change that took a file from `before` to `after`.
pub(crate) fn change(before: &Attributes, after: Attributes) -> NodeChange {
    NodeChange { before: (before.size, before.mtime, before.ctime), after }
}
