//! `/dev/fuse`: one file descriptor of a mounted file system.
//!
//! Each event loop has a descriptor of its own (`FUSE_DEV_IOC_CLONE`), because the kernel keeps
//! the requests that were read from one in a list of its own: loops do not contend for it. A reply
//! goes to the descriptor that its request was read from.

use crate::abi::{
    InvalidateInodeOut, NOTIFY_INVALIDATE_INODE, NOTIFY_RETRIEVE, OutHeader, RetrieveOut,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use zerocopy::IntoBytes as _;

/// `_IOR(229, 0, uint32_t)`: makes a newly opened descriptor another one of a mount.
const CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

/// What came of waiting for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// Nothing; wait again.
    Nothing,
    /// The file system was unmounted, or cut off.
    Unmounted,
}

impl Device {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// A descriptor that was mounted by someone else (`fusermount3`).
    pub(crate) fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Another descriptor of the same mount.
    pub(crate) fn sibling(&self) -> io::Result<Self> {
        let new = Self::open()?;
        let source = u32::try_from(self.0.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: this ioctl reads one u32 from the pointer and keeps nothing of it.
        unsafe { ioctl::ioctl(&new.0, ioctl::Setter::<CLONE, u32>::new(source))? };
        Ok(new)
    }

    /// Whether the kernel has not ended the connection.
    pub(crate) fn is_connected(&self) -> bool {
        let mut asked = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec::default();
        match rustix::event::poll(&mut asked, Some(&now)) {
            Ok(_) => !asked[0].revents().contains(PollFlags::ERR),
            Err(_) => true,
        }
    }

    /// Waits for a request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match rustix::io::read(&self.0, buffer) {
            // CONNABORTED: an administrator has cut it, by the kernel's file for that.
            Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::Unmounted),
            Ok(length) => Ok(Received::Request(length)),
            // NOENT: the request was interrupted before it was read.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Has the kernel ask for a file's attributes when it needs them next.
    pub(crate) fn forget_attributes(&self, node: u64) {
        self.invalidate(InvalidateInodeOut { node, offset: -1, length: 0 });
    }

    /// Has the kernel forget a file's pages, and write those that are dirty first: waits until that
    /// is answered, so an event loop cannot call it.
    pub(crate) fn forget_content(&self, node: u64) {
        self.invalidate(InvalidateInodeOut { node, offset: 0, length: 0 });
    }

    fn invalidate(&self, body: InvalidateInodeOut) {
        let length = (size_of::<OutHeader>() + size_of::<InvalidateInodeOut>()) as u32;
        let header = OutHeader { length, error: NOTIFY_INVALIDATE_INODE, unique: 0 };
        // A kernel that does not know the file has nothing to forget.
        self.send(&[IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())]);
    }

    /// Has the kernel make a request on the queue of the processor that this runs on. It brings
    /// nothing that is wanted, and what it is answered does not matter. It is about a regular file,
    /// and has a number that no other request has.
    pub(crate) fn retrieve_nothing(&self, node: u64, unique: u64) {
        let length = (size_of::<OutHeader>() + size_of::<RetrieveOut>()) as u32;
        let header = OutHeader { length, error: NOTIFY_RETRIEVE, unique: 0 };
        let body = RetrieveOut { unique, node, ..RetrieveOut::default() };
        self.send(&[IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())]);
    }

    /// Sends a reply, whole. False if nobody waits for it any more.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> bool {
        loop {
            match rustix::io::writev(&self.0, parts) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                // NOENT: the request was interrupted. Others: the mount is gone.
                Err(_) => return false,
            }
        }
    }
}
