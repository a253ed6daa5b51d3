//! One server for one state directory.
//!
//! Invariants: whoever holds the lock on `stroop.lock` is the only server of the directory; the
//! lock goes with the process, however it ends. The file holds the process' number, for people
//! and scripts, and stays when the server ends: removing it would let two servers lock two files
//! of one name.

use crate::directory::DirectoryOwner;
use admin_api::{AdminError, Code};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::Path;
use units::shell_word;

/// The file's name within the state directory.
const LOCK_FILE: &str = "stroop.lock";

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the lock of `state_directory`.
    ///
    /// # Errors
    /// `Conflict`, naming the process, if another server has it.
    pub(crate) fn take(state_directory: &Path) -> Result<Self, AdminError> {
        Self::take_for("cannot start a server on", state_directory)
    }

    /// The same for something else than a server, which `message` names.
    ///
    /// # Errors
    /// `Conflict`, naming the process, if a server has it.
    pub(crate) fn take_for(message: &str, state_directory: &Path) -> Result<Self, AdminError> {
        let path = state_directory.join(LOCK_FILE);
        let shown = path.display().to_string();
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::PermissionDenied => denied(&shown, state_directory, &error),
            _ => AdminError::new(Code::Failed, "cannot lock", &shown).because(error.to_string()),
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = (&file).take(32).read_to_string(&mut holder);
                let shown = state_directory.display().to_string();
                return Err(AdminError::new(Code::Conflict, message, shown)
                    .because(format!("process {} runs a server or a check on it", holder.trim()))
                    .try_next("stroop status"));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(failed)?;
        // A check by root must not keep the service out.
        if let Some(owner) = DirectoryOwner::other_than_root(state_directory) {
            owner.take(&path).map_err(failed)?;
        }
        Ok(Self { _file: file })
    }
}

/// The file, or its directory, is somebody else's: of root, say, who ran a server here once.
fn denied(shown: &str, state_directory: &Path, error: &std::io::Error) -> AdminError {
    let directory = shell_word(&state_directory.to_string_lossy());
    AdminError::new(Code::Denied, "cannot lock", shown)
        .because(format!("{error}; all in the state directory must belong to its owner"))
        .try_next(format!("sudo chown -R --reference={directory} {directory}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_refused_by_name_until_the_first_ends() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateLock::take(directory.path()).unwrap();
        let error = StateLock::take(directory.path()).unwrap_err();
        assert_eq!(error.code, Code::Conflict);
        assert!(error.to_string().contains(&format!("process {} ", std::process::id())));
        drop(first);
        StateLock::take(directory.path()).unwrap();
    }
}
