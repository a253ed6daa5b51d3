//! One process at a time in a directory: a lock of the operating system on a file in it.
//!
//! The directory is its owner's alone: whoever reads its objects reads the files of all volumes.
//! One that is new, or empty, is made so. One that others may use and that holds something is
//! refused: they may have read it, or put something there.
//!
//! Invariants: the lock is the kernel's, so it ends with the process and not before its last call;
//! the file stays and stays empty. What a killed process left half written is removed once the lock
//! is held, and only that: names with '#', which is how the store calls what it has not published.

use platform::{DiskError, privacy};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use units::shell_word;

/// The file with the lock.
pub(crate) const LOCK_KEY: &str = "lock";

/// The lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

/// Takes the lock. Makes the directory if `make`.
pub(crate) fn take(disk: &str, path: &Path, make: bool) -> Result<DirectoryLock, DiskError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock => DiskError::InUse { disk: disk.to_owned() },
        _ => DiskError::Open { disk: disk.to_owned(), kind: error.to_string() },
    };
    if make {
        privacy::make_private_directory(path).map_err(failed)?;
    }
    refuse_exposed(path).map_err(failed)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(privacy::PRIVATE_FILE_MODE);
    let file = options.open(path.join(LOCK_KEY)).map_err(failed)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
    remove_leftovers(path).map_err(failed)?;
    Ok(DirectoryLock { _file: file })
}

/// Refuses a directory that others than its owner may use; an empty one is taken from them.
fn refuse_exposed(path: &Path) -> io::Result<()> {
    let Some(mode) = privacy::exposed_mode(path) else { return Ok(()) };
    for entry in fs::read_dir(path)? {
        if entry?.file_name() != LOCK_KEY {
            let shown = shell_word(&path.to_string_lossy());
            return Err(io::Error::other(format!(
                "others than its owner may use the directory (mode {mode:04o}); type: chmod -R \
                 go= {shown}"
            )));
        }
    }
    privacy::make_path_private(path)
}

fn remove_leftovers(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_leftover =
            name.to_str().and_then(|name| name.split_once('#')).is_some_and(|(key, number)| {
                !key.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            });
        if is_leftover {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_directory_of_others_is_refused_with_the_command_that_mends_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my range");
        drop(take("d", &path, true).unwrap());
        assert_eq!(privacy::exposed_mode(&path), None, "a new one is private");
        assert_eq!(privacy::exposed_mode(&path.join(LOCK_KEY)), None);
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        drop(take("d", &path, false).unwrap());
        assert_eq!(privacy::exposed_mode(&path), None, "nobody had anything in it");
        fs::write(path.join("data-01"), "data").unwrap();
        mode(0o750);
        let refused = take("d", &path, true).unwrap_err().to_string();
        assert!(refused.contains("(mode 0750)"), "{refused}");
        let command = format!("type: chmod -R go= '{}'", path.display());
        assert!(refused.contains(&command), "{refused}");
        mode(0o700);
        take("d", &path, true).unwrap();
    }

    #[test]
    fn one_has_it_and_leftovers_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made");
        assert!(matches!(take("d", &path, false), Err(DiskError::Open { .. })));
        let lock = take("d", &path, true).unwrap();
        for name in ["data-01#1", "data-01", "notes#x", "#1"] {
            fs::write(path.join(name), name).unwrap();
        }
        let busy = DiskError::InUse { disk: "d".to_owned() };
        assert_eq!(take("d", &path, false).unwrap_err(), busy);
        assert!(path.join("data-01#1").exists(), "who does not have the lock removes nothing");
        drop(lock);
        let _lock = take("d", &path, false).unwrap();
        assert!(!path.join("data-01#1").exists());
        assert!(["data-01", "notes#x", "#1"].iter().all(|name| path.join(name).exists()));
    }
}
