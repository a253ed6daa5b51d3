//! Access control lists: getting, setting and removing them, and what a directory hands down.
//!
//! Fails: as `file_service::rules::acls` refuse; damage.

use crate::attributes::take_over;
use crate::file::File;
use crate::holder::{self, Holder, load, store};
use crate::lists::{damaged, note, stored};
use crate::mutation::{prefix, reference};
use crate::view::View;
use crate::{Executed, Files, Outcome, Record, Scope};
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use file_service::acl::{ACL_DEFAULT, Acl, GroupClass};
use file_service::rules::acls::{AclChange, AclKind, changed};
use file_service::rules::xattrs::check_names_room;
use file_service::{AccessList, Attributes, FileHandle, FsError};
use ondisk::operation::{FileReference, KIND_SET_ACL, LIST_ACCESS, LIST_DEFAULT, SetAclRecord};
use zerocopy::FromZeros;

/// The value of a list as clients see it.
///
/// # Errors
/// What to wait for; `NoAttribute`; damage.
pub(crate) fn value<P: Pointer>(
    view: &mut View<'_, '_, P>,
    file: &Attributes,
    kind: AclKind,
) -> Outcome<Vec<u8>> {
    let has = |state: &InodeAttributes, _| match kind {
        AclKind::Access => state.has_access_acl,
        AclKind::Default => state.has_default_acl,
    };
    if !file.acl.is_there() && kind == AclKind::Access {
        return Err(FsError::NoAttribute.into());
    }
    if view.is_directory_of_snapshots() || view.look(file.inode, has)? != Some(true) {
        return Err(FsError::NoAttribute.into());
    }
    let bytes = stored(file.inode, view.xattr(file.inode, kind.name())?)?;
    let list = match kind {
        AclKind::Access => {
            GroupClass::of_stored(&bytes).map(|class| Acl::of_access(file.mode, &class))
        }
        AclKind::Default => Acl::of_default(&bytes),
    };
    Ok(list.map_err(damaged(file.inode))?.value())
}

/// Sets a list, or removes it: an empty value.
///
/// # Errors
/// As the calls `SetXattr` and `RemoveXattr`.
pub(crate) fn set<P: Pointer>(
    files: &mut Files<'_, '_, P>,
    Scope { caller, now }: &Scope,
    (handle, drops_setgid): (FileHandle, bool),
    (kind, value): (AclKind, &[u8]),
) -> Outcome<Executed<()>> {
    let found = files.open(handle)?;
    let (inode, before) = (found.inode, &found.attributes);
    let (stored, after) = match changed((caller, drops_setgid), before, (kind, value), *now)? {
        AclChange::Nothing => return Ok(Executed::silent(())),
        AclChange::Default(None, _) if !found.state.has_default_acl => {
            return Ok(Executed::silent(()));
        }
        AclChange::Default(list, after) => (list.map(|list| list.value()), after),
        AclChange::Access(after) => {
            let AccessList::Read(class) = &after.acl else {
                return remove(files, (&found, &after), kind);
            };
            (Some(class.stored()), after)
        }
    };
    let Some(stored) = stored else { return remove(files, (&found, &after), kind) };
    let mut list = load(files.transaction, inode)?;
    if !list.contains_key(kind.name()) {
        check_names_room(list.keys().map(|name| name.len() + 1).sum(), kind.name())?;
    }
    list.insert(kind.name().to_vec(), stored.clone());
    if ondisk::xattr::encoded_size(&list) as u64 > holder::XATTRS_BYTES_MAX {
        return Err(FsError::AttributeTooLarge.into());
    }
    files.transaction.now = *now;
    let holder = store(files.transaction, inode, &list, None)?;
    let state = files.transaction.edit(inode)?;
    note(state, kind, true);
    take_over(state, &after);
    let record = record(files, (&found, &after), kind, Some((holder, &stored)));
    Ok(Executed::storing((), record))
}

fn remove<P: Pointer>(
    files: &mut Files<'_, '_, P>,
    (found, after): (&File, &Attributes),
    kind: AclKind,
) -> Outcome<Executed<()>> {
    let is_there = match kind {
        AclKind::Access => found.state.has_access_acl,
        AclKind::Default => found.state.has_default_acl,
    };
    if is_there {
        files.transaction.now = after.ctime;
        holder::remove(files.transaction, found.inode, kind.name())?;
    }
    let state = files.transaction.edit(found.inode)?;
    note(state, kind, false);
    take_over(state, after);
    let record = record(files, (found, after), kind, None);
    // Without a list it is a change of the mode, which frees nothing.
    Ok(if is_there { Executed::freeing((), record) } else { Executed::storing((), record) })
}

fn record<P: Pointer>(
    files: &Files<'_, '_, P>,
    (found, after): (&File, &Attributes),
    kind: AclKind,
    list: Option<(Holder, &[u8])>,
) -> Record {
    let (holder, value) = match list {
        Some(((holder, generation), value)) => (reference(holder, generation), value),
        None => (FileReference::new_zeroed(), [].as_slice()),
    };
    let record = SetAclRecord {
        prefix: prefix(files.environment.volume, after.ctime),
        file: reference(found.inode, found.state.generation),
        holder,
        mode: after.mode.into(),
        value_size: (value.len() as u32).into(),
        list: match kind {
            AclKind::Access => LIST_ACCESS,
            AclKind::Default => LIST_DEFAULT,
        },
        reserved: [0; 7],
        change: after.change.into(),
    };
    Record::new(KIND_SET_ACL, &record, &[value])
}

/// The list that files inherit that are made in a directory.
///
/// # Errors
/// What to wait for; damage.
pub(crate) fn default_of<P: Pointer>(
    files: &mut Files<'_, '_, P>,
    directory: &File,
) -> Outcome<Option<Acl>> {
    if !directory.state.has_default_acl {
        return Ok(None);
    }
    let found = holder::find(files.transaction, directory.inode, ACL_DEFAULT)?;
    let bytes = stored(directory.inode, found)?;
    Acl::of_default(&bytes).map(Some).map_err(damaged(directory.inode))
}
