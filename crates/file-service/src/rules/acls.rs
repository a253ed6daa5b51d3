//! What setting and removing an access control list does (`acl(5)`; decision 48).
//!
//! Invariants: an access list that says no more than a mode can becomes the mode. Only directories
//! have default lists.
//!
//! Fails: `Invalid`, `AttributeTooLarge` (the value); `NotSupported` for symbolic links;
//! `AccessDenied` for a default list of anything but a directory; `NotPermitted` unless the caller
//! owns the file.

use super::attributes::{may_keep_setgid, touch};
use crate::acl::{ACL_ACCESS, ACL_DEFAULT, Acl};
use crate::permission::{self, SETGID};
use crate::{AccessList, Attributes, Caller, FileKind, FsError};
use units::Timestamp;

/// Which list of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclKind {
    /// Who may do what with it.
    Access,
    /// What the files inherit that are made in it.
    Default,
}

impl AclKind {
    /// The list that an extended attribute stands for.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<Self> {
        match name {
            ACL_ACCESS => Some(Self::Access),
            ACL_DEFAULT => Some(Self::Default),
            _ => None,
        }
    }

    /// The attribute's name.
    #[must_use]
    pub const fn name(self) -> &'static [u8] {
        match self {
            Self::Access => ACL_ACCESS,
            Self::Default => ACL_DEFAULT,
        }
    }
}

/// What there is to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AclChange {
    /// The attributes, with the access list among them.
    Access(Attributes),
    /// The default list, or that there is none; and the attributes.
    Default(Option<Acl>, Attributes),
    /// Nothing: a list is removed that is not there.
    Nothing,
}

/// What a change of a list makes of `file`; an empty value removes the list. Setgid goes, in
/// silence, where the caller is not in the file's group, and where `drops_setgid` says that a front
/// end found so.
///
/// # Errors
/// See the module.
pub fn changed(
    (caller, drops_setgid): (&Caller, bool),
    file: &Attributes,
    (kind, value): (AclKind, &[u8]),
    now: Timestamp,
) -> Result<AclChange, FsError> {
    if file.kind == FileKind::Symlink {
        return Err(FsError::NotSupported);
    }
    let list = Acl::parse(value)?;
    if kind == AclKind::Default && file.kind != FileKind::Directory {
        return if list.is_some() { Err(FsError::AccessDenied) } else { Ok(AclChange::Nothing) };
    }
    permission::check_owner(caller, file)?;
    let mut next = file.clone();
    touch(&mut next, now);
    match (kind, list) {
        (AclKind::Default, list) => Ok(AclChange::Default(list, next)),
        (AclKind::Access, None) if !file.acl.is_there() => Ok(AclChange::Nothing),
        (AclKind::Access, None) => {
            next.acl = AccessList::None;
            Ok(AclChange::Access(next))
        }
        (AclKind::Access, Some(list)) => {
            let (mode, class) = list.into_access();
            next.mode = next.mode & !0o777 | mode;
            if drops_setgid || !may_keep_setgid(caller, file.gid) {
                next.mode &= !SETGID;
            }
            next.acl = class.into();
            Ok(AclChange::Access(next))
        }
    }
}
