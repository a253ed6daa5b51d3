//! The directory below a mount. While nothing is mounted on it programs would write into it, and
//! the mount would hide what they wrote; so it is sealed: immutable where the file system and the
//! privileges of this process allow that, else without any permission.
//!
//! Invariants: a directory that is sealed was looked at before, and [`Below::unseal`] gives back
//! what was there then; what is mounted on it is never touched: the directory is opened before, and
//! [`Below::open`] does not take a FUSE mount for it.
//!
//! Fails: a directory that cannot be sealed stays as it is.

use rustix::fs::{FsWord, IFlags, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What `statfs` says of a FUSE mount (`statfs(2)`).
const FUSE_MAGIC: FsWord = 0x6573_5546;
/// Permission bits, with setuid, setgid and sticky.
const MODE_BITS: u32 = 0o7777;

/// How a directory was before it was sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Before {
    pub mode: u32,
    pub is_immutable: bool,
}

impl Before {
    /// Whether it is as a directory that was sealed.
    pub(super) const fn is_sealed(self) -> bool {
        self.is_immutable || self.mode == 0
    }
}

/// A directory that something is mounted on, or is to be.
pub(super) struct Below(OwnedFd);

impl Below {
    /// The directory at `path`; none if a FUSE mount is there.
    ///
    /// # Errors
    /// If it cannot be looked at.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        // For nothing but its place: permissions may be missing.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let is_fuse = rustix::fs::fstatfs(&directory)?.f_type == FUSE_MAGIC;
        Ok((!is_fuse).then_some(Self(directory)))
    }

    /// How it is.
    ///
    /// # Errors
    /// If it cannot be looked at.
    pub(super) fn look(&self) -> io::Result<Before> {
        let mode = rustix::fs::fstat(&self.0)?.st_mode & MODE_BITS;
        // Where there are no flags, or they cannot be read, none is set.
        let flags = self.readable().and_then(|file| Ok(rustix::fs::ioctl_getflags(&file)?));
        let is_immutable = flags.is_ok_and(|flags| flags.contains(IFlags::IMMUTABLE));
        Ok(Before { mode, is_immutable })
    }

    /// The same directory, whatever is mounted on it, by a path.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    fn readable(&self) -> io::Result<File> {
        File::open(self.path())
    }

    /// Takes care that nobody writes into it.
    ///
    /// # Errors
    /// If it can be neither immutable nor without permissions.
    pub(super) fn seal(&self) -> io::Result<()> {
        self.set_immutable(true).or_else(|_| self.set_mode(0))
    }

    /// Has it be as before.
    ///
    /// # Errors
    /// If it cannot be changed.
    pub(super) fn unseal(&self, before: Before) -> io::Result<()> {
        let now = self.look()?;
        if now.is_immutable && !before.is_immutable {
            self.set_immutable(false)?;
        }
        if now.mode == 0 && before.mode != 0 {
            self.set_mode(before.mode)?;
        }
        Ok(())
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::chmod(self.path(), Mode::from_raw_mode(mode))?)
    }

    fn set_immutable(&self, is_immutable: bool) -> io::Result<()> {
        let file = self.readable()?;
        let mut flags = rustix::fs::ioctl_getflags(&file)?;
        flags.set(IFlags::IMMUTABLE, is_immutable);
        Ok(rustix::fs::ioctl_setflags(&file, flags)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_sealed_directory_is_as_before_when_it_is_unsealed() {
        let directory = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(directory.path()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1750)).unwrap();
        let below = Below::open(&path).unwrap().unwrap();
        let before = below.look().unwrap();
        assert_eq!(before, Before { mode: 0o1750, is_immutable: false });
        below.seal().unwrap();
        let sealed = below.look().unwrap();
        assert!(sealed.is_immutable || sealed.mode == 0, "{sealed:?}");
        if sealed.is_immutable {
            assert!(fs::write(path.join("file"), "text").is_err(), "not even for root");
        }
        // A second look at it must not be taken for how it was.
        below.unseal(before).unwrap();
        assert_eq!(below.look().unwrap(), before);
        below.unseal(before).unwrap();
        fs::write(path.join("file"), "text").unwrap();
    }

    #[test]
    fn without_the_flag_it_has_no_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(directory.path()).unwrap();
        let below = Below::open(&path).unwrap().unwrap();
        let before = below.look().unwrap();
        below.set_mode(0).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & MODE_BITS, 0);
        below.unseal(before).unwrap();
        assert_eq!(below.look().unwrap(), before);
        assert!(Below::open(&path.join("missing")).is_err());
    }
}
