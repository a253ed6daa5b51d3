//! The kernel's side of a mount: a connection, which has a number and can be cut.
//!
//! The kernel gives the number of a connection that has ended to the next one, of this process or
//! of another.
//!
//! Invariants: what is cut is this connection and no other. The file that cuts is opened by number
//! first. If this connection lives after that, the number was its own, and the file is its own.
//!
//! Fails: where it cannot be cut, programs keep it alive as long as they are in the mount.

use crate::device::Device;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u32,
    /// Its event loops own them. The kernel ends a connection without open descriptors.
    devices: Vec<Weak<Device>>,
}

impl Connection {
    /// The connection of `number`, whose event loops have `devices`.
    pub(crate) fn new(number: u32, devices: &[Arc<Device>]) -> Self {
        Self { number, devices: devices.iter().map(Arc::downgrade).collect() }
    }

    /// The kernel's number, which is its own while it lives.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Whether the kernel has not ended it.
    pub(crate) fn lives(&self) -> bool {
        self.devices.iter().filter_map(Weak::upgrade).any(|device| device.is_connected())
    }

    /// Ends it: requests under way and to come fail. True if it is at its end, false if it cannot
    /// be cut and lives.
    pub(crate) fn cut(&self) -> bool {
        self.cut_if(control(self.number))
    }

    /// Cuts it by the file of its number, which was opened before.
    fn cut_if(&self, control: io::Result<OwnedFd>) -> bool {
        !self.lives() || control.is_ok_and(|file| rustix::io::write(file, b"1").is_ok())
    }
}

/// Whether this process can cut the connection which has a number now.
pub(crate) fn can_be_cut(number: u32) -> bool {
    control(number).is_ok()
}

/// The file that cuts the connection which has a number now. The control file system may be mounted
/// nowhere (in containers it is not), so it is opened without a place.
fn control(number: u32) -> io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let root = fsmount(&context, flags, MountAttrFlags::empty())?;
    let file = format!("{number}/abort");
    Ok(rustix::fs::openat(&root, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_mount::detach_dead;
    use crate::tests::service;
    use crate::{FuseMount, MountOptions};

    /// The end of one mount cut another one, which was made meanwhile and had its number.
    #[test]
    fn regression_a_mount_that_got_the_number_of_an_ended_one_is_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let options = MountOptions::new("home", folder.path());
        let Ok(mount) = FuseMount::start(options, service()) else {
            println!("skipped: FUSE cannot be used here");
            return;
        };
        let number = mount.connection.as_ref().unwrap().number();
        let ended = Connection::new(number, &[]);
        let control = control(number);
        assert!(control.is_ok() && ended.cut_if(control), "it has ended");
        std::fs::write(folder.path().join("file"), "text").unwrap();
        let own = mount.connection.as_ref().unwrap();
        assert!(own.lives() && own.cut() && !own.lives());
        assert!(folder.path().join("file").metadata().is_err());
        mount.stop().unwrap();
        // A mount whose connection was cut stays where it is, dead.
        assert_eq!(detach_dead(folder.path()).unwrap(), 1);
    }
}
