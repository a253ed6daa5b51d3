//! One process at a time in a directory: a lock of the operating system on a file in it.
//!
//! Invariants: the lock is the kernel's, so it ends with the process and not before its last call;
//! the file stays and stays empty. What a killed process left half written is removed once the lock
//! is held, and only that: names with '#', which is how the store calls what it has not published.

use platform::DiskError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

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
        fs::create_dir_all(path).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = options.open(path.join(LOCK_KEY)).map_err(failed)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
    remove_leftovers(path).map_err(failed)?;
    Ok(DirectoryLock { _file: file })
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
