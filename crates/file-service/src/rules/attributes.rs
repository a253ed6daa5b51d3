//! How attributes come to be and change: creation, SETATTR, the side effects of reads and writes.
//!
//! Invariants: functions return the attributes as they shall be; `used` is the backend's to keep;
//! `change` grows with every change of content or attributes, and not with a read.
//!
//! Fails: `AccessDenied`, `NotPermitted`, `GuardMismatch`, `Invalid`, `IsDirectory`,
//! `FileTooLarge`.

use crate::acl::Acl;
use crate::permission::{self, MODE_WRITE, SETGID, SETUID};
use crate::{AccessList, Attributes, Caller, FileKind, FsError, SetAttributes, SetTime};
use units::{Generation, InodeNumber, Timestamp};

/// The mode bits that can be set.
pub const MODE_MASK: u32 = 0o7777;
/// Those that say who may read, write and execute.
const PERMISSIONS: u32 = 0o777;
/// Execute permission of the group; with setgid it makes a program, without it means nothing.
const GROUP_EXECUTE: u32 = 0o010;
/// A read moves atime at least this often, though nothing was written since the last (relatime).
const RELATIME_NANOSECONDS: i64 = 24 * 60 * 60 * 1_000_000_000;
/// The user and group that nobody is: `chown` and system calls take it for "leave as it is".
pub const NO_ID: u32 = u32::MAX;
/// Mode of a file that was created without one: for its owner alone.
const FILE_MODE_DEFAULT: u32 = 0o600;
/// Mode of a directory that was created without one.
const DIRECTORY_MODE_DEFAULT: u32 = 0o700;
/// Mode of symbolic links, always.
const SYMLINK_MODE: u32 = 0o777;

/// Which file a creation makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewIdentity {
    /// Its inode number.
    pub inode: InodeNumber,
    /// Its generation.
    pub generation: Generation,
    /// Its kind.
    pub kind: FileKind,
}

/// The attributes of a file that `caller` makes in `directory`, before any size in `set` is
/// applied. The group is the directory's where that has setgid (and a new directory inherits the
/// bit), else the caller's. A setgid program is not made for a group that the caller is not in.
/// Permissions are those of `set` without the caller's umask; in a directory with a default list
/// they are what that list allows of `set`, whatever the umask, and the file gets an access list.
/// A user and a group in `set` count if root makes the file; others' are passed over, as Linux does
/// it: there are clients that send their own with every file.
///
/// # Errors
/// `Invalid` for [`NO_ID`].
pub fn created(
    caller: &Caller,
    (directory, default): (&Attributes, Option<&Acl>),
    identity: NewIdentity,
    set: &SetAttributes,
    now: Timestamp,
) -> Result<Attributes, FsError> {
    let kind = identity.kind;
    let inherits = directory.mode & SETGID != 0;
    let mut mode = match (kind, set.mode) {
        (FileKind::Symlink, _) => SYMLINK_MODE,
        (_, Some(mode)) => mode & MODE_MASK,
        (FileKind::Directory, None) => DIRECTORY_MODE_DEFAULT,
        (_, None) => FILE_MODE_DEFAULT,
    };
    let mut gid = if inherits { directory.gid } else { caller.gid };
    if caller.is_root() {
        gid = set.gid.unwrap_or(gid);
    }
    // Before a list or the umask takes the group's right to execute away, which makes a program.
    let is_program = kind != FileKind::Directory && mode & GROUP_EXECUTE != 0;
    if is_program && !may_keep_setgid(caller, gid) {
        mode &= !SETGID;
    }
    let mut acl = AccessList::None;
    if kind != FileKind::Symlink {
        match default {
            None => mode &= !(caller.umask & PERMISSIONS),
            Some(default) => {
                let (left, class) = default.inherited(mode);
                mode = left;
                acl = class.into();
            }
        }
    }
    let mut file = Attributes {
        inode: identity.inode,
        generation: identity.generation,
        kind,
        mode,
        acl,
        links: if kind == FileKind::Directory { 2 } else { 1 },
        uid: caller.uid,
        gid,
        size: 0,
        used: 0,
        device: (0, 0),
        file_system: directory.file_system,
        atime: time_or(set.atime, now, now),
        mtime: time_or(set.mtime, now, now),
        ctime: now,
        birth: now,
        change: 1,
    };
    check_ids(set)?;
    if caller.is_root() {
        file.uid = set.uid.unwrap_or(file.uid);
    }
    if kind == FileKind::Directory && inherits {
        mode |= SETGID;
    }
    file.mode = mode;
    Ok(file)
}

/// The attributes after `set`, all or nothing.
///
/// - owner: root only. Group: root, or the owner into a group that the owner is in.
/// - mode: the owner; setgid is dropped in silence for a group that the caller is not in.
/// - times: the owner; the server's time also by those who may write.
/// - size: those who may write, and the owner (see [`permission::check_data`]).
/// - a change of owner or group clears setuid and setgid of programs, whoever makes it; a change
///   of size does so unless root makes it.
///
/// # Errors
/// `GuardMismatch`, `NotPermitted`, `AccessDenied`, `Invalid` for [`NO_ID`]; for sizes also
/// `IsDirectory`, `Invalid`, `FileTooLarge` (more than `file_bytes_max`).
pub fn changed(
    caller: &Caller,
    current: &Attributes,
    set: &SetAttributes,
    file_bytes_max: u64,
    now: Timestamp,
) -> Result<Attributes, FsError> {
    if set.guard.is_some_and(|guard| guard != current.ctime) {
        return Err(FsError::GuardMismatch);
    }
    if (SetAttributes { guard: None, ..set.clone() }) == SetAttributes::default() {
        return Ok(current.clone());
    }
    check_ids(set)?;
    check_owner_change(caller, current, set)?;
    if set.mode.is_some() {
        permission::check_owner(caller, current)?;
    }
    check_time_change(caller, current, set)?;
    if let Some(size) = set.size {
        check_size_change(caller, current, size, file_bytes_max)?;
    }
    let mut next = current.clone();
    next.uid = set.uid.unwrap_or(current.uid);
    next.gid = set.gid.unwrap_or(current.gid);
    next.size = set.size.unwrap_or(current.size);
    next.mode = changed_mode(caller, current, set, next.gid);
    let content = if set.size.is_some() { now } else { current.mtime };
    next.atime = time_or(set.atime, now, current.atime);
    next.mtime = time_or(set.mtime, now, content);
    touch(&mut next, now);
    Ok(next)
}

fn changed_mode(caller: &Caller, current: &Attributes, set: &SetAttributes, gid: u32) -> u32 {
    let mut mode = current.mode;
    if set.size.is_some() {
        mode = mode_after_write(caller, current);
    }
    if let Some(wanted) = set.mode {
        mode = wanted & MODE_MASK;
        if !may_keep_setgid(caller, gid) {
            mode &= !SETGID;
        }
    }
    let owner_changes = set.uid.is_some() || set.gid.is_some();
    if owner_changes && current.kind != FileKind::Directory {
        mode = mode_without_privilege(caller, mode, current.gid);
    }
    mode
}

fn check_ids(set: &SetAttributes) -> Result<(), FsError> {
    let is_no_id = [set.uid, set.gid].contains(&Some(NO_ID));
    if is_no_id { Err(FsError::Invalid) } else { Ok(()) }
}

fn check_owner_change(
    caller: &Caller,
    current: &Attributes,
    set: &SetAttributes,
) -> Result<(), FsError> {
    let owns = caller.uid == current.uid;
    let uid_allowed = set.uid.is_none_or(|uid| owns && uid == current.uid);
    let gid_allowed =
        set.gid.is_none_or(|gid| owns && (gid == current.gid || caller.is_member_of(gid)));
    let allowed = caller.is_root() || (uid_allowed && gid_allowed);
    if allowed { Ok(()) } else { Err(FsError::NotPermitted) }
}

fn check_time_change(
    caller: &Caller,
    current: &Attributes,
    set: &SetAttributes,
) -> Result<(), FsError> {
    let times = [set.atime, set.mtime];
    if times.iter().flatten().next().is_none() {
        return Ok(());
    }
    let owner = permission::check_owner(caller, current);
    if times.iter().flatten().all(|time| *time == SetTime::Now) {
        return owner.or_else(|_| permission::check(caller, current, MODE_WRITE));
    }
    owner
}

fn check_size_change(
    caller: &Caller,
    current: &Attributes,
    size: u64,
    file_bytes_max: u64,
) -> Result<(), FsError> {
    check_has_data(current)?;
    permission::check_data(caller, current, MODE_WRITE)?;
    if size > file_bytes_max { Err(FsError::FileTooLarge) } else { Ok(()) }
}

/// # Errors
/// `IsDirectory` for a directory and `Invalid` for what else has no data of its own.
pub fn check_has_data(file: &Attributes) -> Result<(), FsError> {
    match file.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(FsError::IsDirectory),
        _ => Err(FsError::Invalid),
    }
}

/// The end of a range of a file.
///
/// # Errors
/// `FileTooLarge` if it lies beyond `file_bytes_max`.
pub fn check_range(offset: u64, length: u64, file_bytes_max: u64) -> Result<u64, FsError> {
    let end = offset.checked_add(length).filter(|end| *end <= file_bytes_max);
    end.ok_or(FsError::FileTooLarge)
}

/// The mode of a file after `caller` changed its content: setuid goes, and setgid of programs,
/// unless root wrote. File capabilities (`security.capability`) go whoever wrote; that is the
/// backend's to do.
#[must_use]
pub fn mode_after_write(caller: &Caller, file: &Attributes) -> u32 {
    if caller.is_root() || file.kind != FileKind::Regular {
        return file.mode;
    }
    mode_without_privilege(caller, file.mode, file.gid)
}

/// Without setuid, and without setgid where it makes a program or `caller` may not hold it.
fn mode_without_privilege(caller: &Caller, mode: u32, gid: u32) -> u32 {
    let keeps = mode & GROUP_EXECUTE == 0 && may_keep_setgid(caller, gid);
    mode & !SETUID & if keeps { MODE_MASK } else { !SETGID }
}

pub(super) fn may_keep_setgid(caller: &Caller, gid: u32) -> bool {
    caller.is_root() || caller.is_member_of(gid)
}

fn time_or(set: Option<SetTime>, now: Timestamp, otherwise: Timestamp) -> Timestamp {
    match set {
        Some(SetTime::Now) => now,
        Some(SetTime::To(time)) => time,
        None => otherwise,
    }
}

/// Marks a change of attributes.
pub fn touch(file: &mut Attributes, now: Timestamp) {
    file.ctime = now;
    file.change += 1;
}

/// Marks a change of content: of data, or of a directory's entries.
pub fn touch_content(file: &mut Attributes, now: Timestamp) {
    file.mtime = now;
    touch(file, now);
}

/// Whether a read at `now` moves atime (relatime): nothing was read since the last change, or the
/// last read is a day old.
#[must_use]
pub fn atime_is_due(file: &Attributes, now: Timestamp) -> bool {
    file.atime <= file.mtime
        || file.atime <= file.ctime
        || now.get().saturating_sub(file.atime.get()) >= RELATIME_NANOSECONDS
}
