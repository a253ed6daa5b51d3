//! POSIX permission rules as pure functions, shared by all backends.
//!
//! Invariants: no I/O, no state; root passes every check but executing a file without any execute
//! bit.

use crate::{AccessList, Attributes, Caller, FileKind, FsError};

/// Read data or list a directory (RFC 1813 ACCESS3_READ).
pub const READ: u32 = 0x01;
/// Look up a name in a directory.
pub const LOOKUP: u32 = 0x02;
/// Rewrite existing data or entries.
pub const MODIFY: u32 = 0x04;
/// Write new data or add entries.
pub const EXTEND: u32 = 0x08;
/// Remove an entry.
pub const DELETE: u32 = 0x10;
/// Execute a file.
pub const EXECUTE: u32 = 0x20;

/// Mode bit: read.
pub const MODE_READ: u32 = 4;
/// Mode bit: write.
pub const MODE_WRITE: u32 = 2;
/// Mode bit: execute or search.
pub const MODE_EXECUTE: u32 = 1;

/// Set-user-ID bit.
pub const SETUID: u32 = 0o4000;
/// Set-group-ID bit.
pub const SETGID: u32 = 0o2000;
/// Sticky bit.
pub const STICKY: u32 = 0o1000;

/// Whether `caller` has all `wanted` mode bits on a file: by its access list if it has one. One
/// that was not read permits nothing to whom it may be about.
#[must_use]
pub fn permits(caller: &Caller, attributes: &Attributes, wanted: u32) -> bool {
    let mode = attributes.mode;
    if caller.is_root() {
        let execute = attributes.kind == FileKind::Directory || mode & 0o111 != 0;
        return execute || wanted & MODE_EXECUTE == 0;
    }
    let bits = if caller.uid == attributes.uid {
        mode >> 6
    } else {
        match &attributes.acl {
            AccessList::Read(class) => {
                return class.permits(caller, (mode, attributes.gid), wanted);
            }
            AccessList::Unread => return false,
            AccessList::None if caller.is_member_of(attributes.gid) => mode >> 3,
            AccessList::None => mode,
        }
    };
    bits & wanted == wanted
}

/// Whether what `caller` may do with a file can depend on its access list.
#[must_use]
pub const fn is_up_to_list(caller: &Caller, attributes: &Attributes) -> bool {
    attributes.acl.is_there() && !caller.is_root() && caller.uid != attributes.uid
}

/// # Errors
/// [`FsError::AccessDenied`] unless `caller` has all `wanted` mode bits.
pub fn check(caller: &Caller, attributes: &Attributes, wanted: u32) -> Result<(), FsError> {
    if permits(caller, attributes, wanted) { Ok(()) } else { Err(FsError::AccessDenied) }
}

/// As [`check`] for data, where the owner may always read and write: NFS has no open, so a file
/// that its owner opened and then made read-only must stay writable; and who may execute a file may
/// read it, for that is how a client runs it (RFC 1813 section 4.4). A caller that has the file
/// open was checked at the open ([`Caller::has_opened`]).
///
/// # Errors
/// [`FsError::AccessDenied`].
pub fn check_data(caller: &Caller, attributes: &Attributes, wanted: u32) -> Result<(), FsError> {
    let runs = wanted == MODE_READ && permits(caller, attributes, MODE_EXECUTE);
    let allowed = runs || caller.has_opened || caller.uid == attributes.uid;
    if allowed { Ok(()) } else { check(caller, attributes, wanted) }
}

/// The rights out of `wanted` (as in NFS ACCESS) that `caller` has.
#[must_use]
pub fn access_rights(caller: &Caller, attributes: &Attributes, wanted: u32) -> u32 {
    let granted = |bit| permits(caller, attributes, bit);
    let mut rights = 0;
    if granted(MODE_READ) {
        rights |= READ;
    }
    if granted(MODE_WRITE) {
        rights |= MODIFY | EXTEND;
        if attributes.kind == FileKind::Directory {
            rights |= DELETE;
        }
    }
    if granted(MODE_EXECUTE) {
        rights |= if attributes.kind == FileKind::Directory { LOOKUP } else { EXECUTE };
    }
    rights & wanted
}

/// # Errors
/// [`FsError::NotPermitted`] unless `caller` is root.
pub fn check_root(caller: &Caller) -> Result<(), FsError> {
    if caller.is_root() { Ok(()) } else { Err(FsError::NotPermitted) }
}

/// Whether `caller` is the owner, or root.
///
/// # Errors
/// [`FsError::NotPermitted`].
pub fn check_owner(caller: &Caller, attributes: &Attributes) -> Result<(), FsError> {
    let owner = caller.is_root() || caller.uid == attributes.uid;
    if owner { Ok(()) } else { Err(FsError::NotPermitted) }
}

/// Whether `caller` may remove or rename the entry of `file` in `directory`, whose write
/// permission was checked already: the sticky bit's rule.
///
/// # Errors
/// [`FsError::NotPermitted`].
pub fn check_sticky(
    caller: &Caller,
    directory: &Attributes,
    file: &Attributes,
) -> Result<(), FsError> {
    let free = directory.mode & STICKY == 0
        || caller.is_root()
        || caller.uid == file.uid
        || caller.uid == directory.uid;
    if free { Ok(()) } else { Err(FsError::NotPermitted) }
}
