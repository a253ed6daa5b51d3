//! Who may read and set extended attributes, by namespace (Linux `xattr(7)`).
//!
//! | namespace | read | set, remove |
//! | --- | --- | --- |
//! | `user.` | read permission; files and directories only | write permission; in a sticky directory's own attributes the owner |
//! | `trusted.` | root; others see nothing | root |
//! | `security.` | everyone | root |
//! | `system.posix_acl_access`, `system.posix_acl_default` | everyone; not of symbolic links | the owner, by [`super::acls`] |
//! | other `system.` | not supported | |
//!
//! Invariants: what a caller cannot read, its listing does not show (`trusted.`).
//! Fails: `NotSupported`, `Invalid`, `Range` (name), `AttributeTooLarge`, `NoAttribute`,
//! `NotPermitted`, `AccessDenied`.

use super::acls::AclKind;
use crate::permission::{self, MODE_READ, MODE_WRITE, STICKY};
use crate::{Attributes, Caller, FileKind, FsError};

/// Longest attribute name with its namespace: Linux's `XATTR_NAME_MAX`.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value: Linux's `XATTR_SIZE_MAX`.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of all names of one file, each with a NUL: Linux's `XATTR_LIST_MAX`, beyond which
/// no program could list them.
pub const XATTR_NAMES_BYTES_MAX: usize = 64 << 10;
/// A program's capabilities: gone when the program is changed.
pub const CAPABILITY: &[u8] = b"security.capability";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Namespace {
    User,
    Trusted,
    Security,
    AccessControl,
}

fn namespace(name: &[u8]) -> Result<Namespace, FsError> {
    const KNOWN: [(&[u8], Namespace); 3] = [
        (b"user.", Namespace::User),
        (b"trusted.", Namespace::Trusted),
        (b"security.", Namespace::Security),
    ];
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
        return Err(FsError::Range);
    }
    if name.contains(&0) {
        return Err(FsError::Invalid);
    }
    if AclKind::of_name(name).is_some() {
        return Ok(Namespace::AccessControl);
    }
    let known = KNOWN.iter().find(|(prefix, _)| name.starts_with(prefix));
    let (prefix, namespace) = known.ok_or(FsError::NotSupported)?;
    if name.len() == prefix.len() { Err(FsError::Invalid) } else { Ok(*namespace) }
}

fn has_user_attributes(file: &Attributes) -> bool {
    matches!(file.kind, FileKind::Regular | FileKind::Directory)
}

/// # Errors
/// Unless `caller` may read attribute `name` of `file`.
pub fn check_get(caller: &Caller, file: &Attributes, name: &[u8]) -> Result<(), FsError> {
    match namespace(name)? {
        Namespace::AccessControl if file.kind == FileKind::Symlink => Err(FsError::NotSupported),
        Namespace::Security | Namespace::AccessControl => Ok(()),
        Namespace::Trusted if caller.is_root() => Ok(()),
        Namespace::User if has_user_attributes(file) => permission::check(caller, file, MODE_READ),
        Namespace::Trusted | Namespace::User => Err(FsError::NoAttribute),
    }
}

/// # Errors
/// Unless `caller` may set attribute `name` of `file` to a value of `value_bytes`, or remove it. An
/// access control list is not set so, but by [`super::acls`].
pub fn check_set(
    caller: &Caller,
    file: &Attributes,
    name: &[u8],
    value_bytes: usize,
) -> Result<(), FsError> {
    let namespace = namespace(name)?;
    if value_bytes > XATTR_VALUE_BYTES_MAX {
        return Err(FsError::AttributeTooLarge);
    }
    match namespace {
        Namespace::User if has_user_attributes(file) => {
            // Anyone may write to a sticky directory such as /tmp, but not decorate it.
            if file.kind == FileKind::Directory && file.mode & STICKY != 0 {
                permission::check_owner(caller, file)?;
            }
            permission::check(caller, file, MODE_WRITE)
        }
        Namespace::Trusted | Namespace::Security if caller.is_root() => Ok(()),
        Namespace::AccessControl => Err(FsError::NotSupported),
        Namespace::User | Namespace::Trusted | Namespace::Security => Err(FsError::NotPermitted),
    }
}

/// Whether a listing for `caller` shows `name`.
#[must_use]
pub fn is_listed(caller: &Caller, name: &[u8]) -> bool {
    caller.is_root() || namespace(name).is_ok_and(|namespace| namespace != Namespace::Trusted)
}

/// # Errors
/// `AttributeTooLarge` unless one more `name` fits beside names of `names_bytes` (NULs included).
pub fn check_names_room(names_bytes: usize, name: &[u8]) -> Result<(), FsError> {
    let room = names_bytes + name.len() < XATTR_NAMES_BYTES_MAX;
    if room { Ok(()) } else { Err(FsError::AttributeTooLarge) }
}
