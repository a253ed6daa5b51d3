//! What a name and a symbolic link's text may be.
//!
//! Invariants: a name that passed [`check_name`] has 1 to [`NAME_BYTES_MAX`] bytes, no `/`, no NUL.
//! Fails: `Invalid`, `NameTooLong`; `Exists` for names that every directory has.

use crate::FsError;

/// Longest name in bytes: what Linux's `NAME_MAX` and every client allow.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest text of a symbolic link: Linux's `PATH_MAX` without the NUL.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// The name that leads to a directory's snapshots; no listing shows it.
pub const SNAPSHOT_DIRECTORY: &[u8] = b".snapshot";

/// Whether `name` is `.` or `..`.
#[must_use]
pub fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// # Errors
/// `Invalid` or `NameTooLong` unless `name` can be a name.
pub fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(FsError::Invalid);
    }
    if name.len() > NAME_BYTES_MAX { Err(FsError::NameTooLong) } else { Ok(()) }
}

/// As [`check_name`], for a name that is to be made: every directory has `.`, `..` and the
/// snapshot directory already.
///
/// # Errors
/// `Invalid`, `NameTooLong` or `Exists`.
pub fn check_new_name(name: &[u8]) -> Result<(), FsError> {
    check_name(name)?;
    let taken = is_dot(name) || name == SNAPSHOT_DIRECTORY;
    if taken { Err(FsError::Exists) } else { Ok(()) }
}

/// # Errors
/// `Invalid` or `NameTooLong` unless `text` can be a symbolic link's text.
pub fn check_symlink(text: &[u8]) -> Result<(), FsError> {
    if text.is_empty() || text.contains(&0) {
        return Err(FsError::Invalid);
    }
    if text.len() > SYMLINK_BYTES_MAX { Err(FsError::NameTooLong) } else { Ok(()) }
}
