//! Who may add, remove, link and move directory entries, and what becomes of a rename.
//!
//! The order of refusals is Linux's: search permission, existence (the backend's), write
//! permission of the directory, sticky bit, kinds, links.
//!
//! Fails: `AccessDenied`, `NotPermitted`, `NotFound`, `Exists`, `IsDirectory`, `NotDirectory`,
//! `NotEmpty`, `Invalid`, `TooManyLinks`.

use crate::permission::{self, MODE_EXECUTE, MODE_WRITE};
use crate::rules::names;
use crate::{Attributes, Caller, FileKind, FsError, NewNode, RenameFlags};

/// Most links of a file, and of a directory, whose subdirectories each link to it: a limit that
/// 16-bit link counts of clients and archivers can hold.
pub const LINKS_MAX: u32 = 65_000;

/// # Errors
/// `NotDirectory`, or `AccessDenied` unless `caller` may look up names in `directory`.
pub fn check_search(caller: &Caller, directory: &Attributes) -> Result<(), FsError> {
    if directory.kind != FileKind::Directory {
        return Err(FsError::NotDirectory);
    }
    permission::check(caller, directory, MODE_EXECUTE)
}

/// Whether `caller` may add an entry for a file of `kind` to `directory`.
///
/// # Errors
/// `NotFound` in a removed directory that is held open, `AccessDenied`, `TooManyLinks`.
pub fn check_add(caller: &Caller, directory: &Attributes, kind: FileKind) -> Result<(), FsError> {
    if directory.links == 0 {
        return Err(FsError::NotFound);
    }
    permission::check(caller, directory, MODE_WRITE | MODE_EXECUTE)?;
    if kind == FileKind::Directory { check_link_room(directory) } else { Ok(()) }
}

/// # Errors
/// `NotPermitted` unless `caller` may make `node`: device nodes are root's to make, but for the
/// one that overlayfs makes of names that it removed (character device 0, 0; `mknod(2)`).
pub fn check_device(caller: &Caller, node: &NewNode) -> Result<(), FsError> {
    match node {
        NewNode::CharacterDevice(0, 0) => Ok(()),
        NewNode::BlockDevice(..) | NewNode::CharacterDevice(..) => permission::check_root(caller),
        NewNode::Directory | NewNode::Symlink(_) | NewNode::Fifo | NewNode::Socket => Ok(()),
    }
}

/// Whether `caller` may make another link to `file` in `directory`. A file that `is_unnamed`, made
/// without a name and held since, may get its first.
///
/// # Errors
/// `AccessDenied`; `NotPermitted` for directories; `NotFound` for a file without a name left;
/// `TooManyLinks`.
pub fn check_link(
    caller: &Caller,
    file: &Attributes,
    directory: &Attributes,
    is_unnamed: bool,
) -> Result<(), FsError> {
    check_add(caller, directory, FileKind::Regular)?;
    if file.kind == FileKind::Directory {
        return Err(FsError::NotPermitted);
    }
    if file.links == 0 && !is_unnamed {
        return Err(FsError::NotFound);
    }
    check_link_room(file)
}

/// Whether a file may get a name in a directory, as far as quota trees go: directories of the tree
/// that is around the file have its names, and no others.
///
/// # Errors
/// `CrossDevice`.
pub const fn check_tree(around_file: u64, of_directory: u64) -> Result<(), FsError> {
    if around_file == of_directory { Ok(()) } else { Err(FsError::CrossDevice) }
}

fn check_link_room(file: &Attributes) -> Result<(), FsError> {
    if file.links >= LINKS_MAX { Err(FsError::TooManyLinks) } else { Ok(()) }
}

/// What REMOVE says to a name before it is looked up.
///
/// # Errors
/// `Invalid`, `NameTooLong`; `IsDirectory` for `.` and `..`.
pub fn check_removable_name(name: &[u8]) -> Result<(), FsError> {
    names::check_name(name)?;
    if names::is_dot(name) { Err(FsError::IsDirectory) } else { Ok(()) }
}

/// What RMDIR says to a name before it is looked up.
///
/// # Errors
/// `Invalid` (also for `.`), `NameTooLong`; `NotEmpty` for `..`, which has the directory in it.
pub fn check_removable_directory_name(name: &[u8]) -> Result<(), FsError> {
    names::check_name(name)?;
    match name {
        b"." => Err(FsError::Invalid),
        b".." => Err(FsError::NotEmpty),
        _ => Ok(()),
    }
}

/// Whether `caller` may remove the entry of `file` from `directory` by REMOVE.
///
/// # Errors
/// `AccessDenied`, `NotPermitted` (sticky bit), `IsDirectory`.
pub fn check_remove(
    caller: &Caller,
    directory: &Attributes,
    file: &Attributes,
) -> Result<(), FsError> {
    check_take(caller, directory, file)?;
    if file.kind == FileKind::Directory { Err(FsError::IsDirectory) } else { Ok(()) }
}

/// Whether `caller` may remove `victim` from `directory` by RMDIR, once it is empty.
///
/// # Errors
/// `AccessDenied`, `NotPermitted` (sticky bit), `NotDirectory`.
pub fn check_remove_directory(
    caller: &Caller,
    directory: &Attributes,
    victim: &Attributes,
) -> Result<(), FsError> {
    check_take(caller, directory, victim)?;
    if victim.kind == FileKind::Directory { Ok(()) } else { Err(FsError::NotDirectory) }
}

fn check_take(caller: &Caller, directory: &Attributes, file: &Attributes) -> Result<(), FsError> {
    permission::check(caller, directory, MODE_WRITE | MODE_EXECUTE)?;
    permission::check_sticky(caller, directory, file)
}

/// The files that a rename touches.
#[derive(Clone, Copy, Debug)]
pub struct RenameParties<'a> {
    /// The directory that is left.
    pub from_directory: &'a Attributes,
    /// The file that moves.
    pub from_file: &'a Attributes,
    /// The directory that is entered; equal to `from_directory` within one.
    pub to_directory: &'a Attributes,
    /// What has the new name already.
    pub to_file: Option<&'a Attributes>,
}

/// What a rename that is allowed does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameAction {
    /// Nothing: both names lead to one file (POSIX).
    Nothing,
    /// The new name was free.
    Move,
    /// What has the new name is removed, if it is no directory or an empty one (`NotEmpty` is the
    /// backend's to find out).
    Replace,
    /// The names swap.
    Exchange,
}

/// What RENAME says to its names and flags before they are looked up.
///
/// # Errors
/// `Invalid` (also for `.` and `..`, and for flags that exclude each other), `NameTooLong`;
/// `Exists` for a new name that every directory has.
pub fn check_rename_arguments(from: &[u8], to: &[u8], flags: RenameFlags) -> Result<(), FsError> {
    names::check_name(from)?;
    names::check_name(to)?;
    if names::is_dot(from) || names::is_dot(to) || (flags.no_replace && flags.exchange) {
        return Err(FsError::Invalid);
    }
    names::check_new_name(to)
}

/// What a rename does, if `caller` may. The backend has made sure that neither file is an
/// ancestor of the other one's directory (see [`ancestor_error`]).
///
/// # Errors
/// `Exists`, `NotFound` (exchange), `AccessDenied`, `NotPermitted`, `IsDirectory`, `NotDirectory`,
/// `TooManyLinks`.
pub fn check_rename(
    caller: &Caller,
    parties: RenameParties<'_>,
    flags: RenameFlags,
) -> Result<RenameAction, FsError> {
    let RenameParties { from_directory, from_file, to_directory, to_file } = parties;
    let moves = identity(from_directory) != identity(to_directory);
    let from_is_directory = from_file.kind == FileKind::Directory;
    if flags.no_replace && to_file.is_some() {
        return Err(FsError::Exists);
    }
    if flags.exchange && to_file.is_none() {
        return Err(FsError::NotFound);
    }
    if to_file.is_some_and(|to| identity(to) == identity(from_file)) {
        return Ok(RenameAction::Nothing);
    }
    check_take(caller, from_directory, from_file)?;
    let Some(to_file) = to_file else {
        let gains = if moves { from_file.kind } else { FileKind::Regular };
        check_parent_change(caller, from_file, moves)?;
        check_add(caller, to_directory, gains)?;
        return Ok(RenameAction::Move);
    };
    let to_is_directory = to_file.kind == FileKind::Directory;
    check_take(caller, to_directory, to_file)?;
    if !flags.exchange && from_is_directory != to_is_directory {
        return Err(if from_is_directory { FsError::NotDirectory } else { FsError::IsDirectory });
    }
    check_parent_change(caller, from_file, moves)?;
    if !flags.exchange {
        return Ok(RenameAction::Replace);
    }
    check_parent_change(caller, to_file, moves)?;
    if moves && from_is_directory != to_is_directory {
        check_link_room(if from_is_directory { to_directory } else { from_directory })?;
    }
    Ok(RenameAction::Exchange)
}

/// The refusal of a rename where `from` is an ancestor of the directory that it is to enter
/// (`true`), or else where `to` is an ancestor of the directory that is left.
#[must_use]
pub const fn ancestor_error(from_is_ancestor: bool, flags: RenameFlags) -> FsError {
    if from_is_ancestor || flags.exchange { FsError::Invalid } else { FsError::NotEmpty }
}

/// A directory that gets another parent has its `..` rewritten, which is a write to it.
fn check_parent_change(caller: &Caller, file: &Attributes, moves: bool) -> Result<(), FsError> {
    if moves && file.kind == FileKind::Directory {
        return permission::check(caller, file, MODE_WRITE);
    }
    Ok(())
}

fn identity(file: &Attributes) -> (u64, u64, u32) {
    (file.file_system, file.inode.get(), file.generation.get())
}
