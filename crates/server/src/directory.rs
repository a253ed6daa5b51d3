//! Directories of the server's own.
//!
//! Fails: `Denied` if the place may not be written to.

use admin_api::{AdminError, Code};
use platform::privacy::make_private_directory;
use rustix::fs::{Gid, Mode, Uid};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Makes a directory that is nobody else's business.
pub(crate) fn make_directory(path: &Path) -> Result<(), AdminError> {
    make_private_directory(path).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Code::Denied,
            _ => Code::Failed,
        };
        AdminError::new(code, "cannot make directory", path.display().to_string())
            .because(error.to_string())
    })
}

/// Whose a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirectoryOwner {
    user: u32,
    group: u32,
}

impl DirectoryOwner {
    /// Whose `directory` is, if root makes something in it for another user: the state directory of
    /// a service belongs to the user that the service runs as.
    pub(crate) fn other_than_root(directory: &Path) -> Option<Self> {
        let found = directory.metadata().ok()?;
        let is_for_another = rustix::process::geteuid().is_root() && found.uid() != 0;
        is_for_another.then(|| Self { user: found.uid(), group: found.gid() })
    }

    /// The user's number.
    pub(crate) const fn user(self) -> u32 {
        self.user
    }

    /// Gives the owner what was made.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn take(self, made: &Path) -> io::Result<()> {
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        Ok(rustix::fs::chown(made, Some(user), Some(group))?)
    }

    /// Lets the owner's group read a file that stays root's, and nobody else.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn may_read(self, made: &Path) -> io::Result<()> {
        rustix::fs::chown(made, None, Some(Gid::from_raw(self.group)))?;
        Ok(rustix::fs::chmod(made, Mode::RUSR | Mode::WUSR | Mode::RGRP)?)
    }
}
