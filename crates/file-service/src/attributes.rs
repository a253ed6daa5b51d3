//! What is known of a file, and what can be set.

use crate::acl::AccessList;
use serde::{Deserialize, Serialize};
use units::{Generation, InodeNumber, Timestamp};

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device node.
    BlockDevice,
    /// A character device node.
    CharacterDevice,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
}

/// A file's attributes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attributes {
    /// The inode number.
    pub inode: InodeNumber,
    /// Which of the inode's files.
    pub generation: Generation,
    /// The kind.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 12 bits.
    pub mode: u32,
    /// The access list, of which the mode is a part.
    pub acl: AccessList,
    /// Hard links; of a directory, 2 and one for each directory in it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes that the file's blocks take, holes not counted.
    pub used: u64,
    /// Device number's major and minor part, of device nodes.
    pub device: (u32, u32),
    /// A number for the file system that is the same for all files of one image (`st_dev`).
    pub file_system: u64,
    /// Last read (relatime).
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub birth: Timestamp,
    /// Grows with every change of content or attributes.
    pub change: u64,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This time.
    To(Timestamp),
}

/// What to change; `None` leaves as is.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SetAttributes {
    /// Permission bits (12).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length: truncates or extends with a hole.
    pub size: Option<u64>,
    /// Time of last read.
    pub atime: Option<SetTime>,
    /// Time of last change of content.
    pub mtime: Option<SetTime>,
    /// The change is made only if the file's ctime is this (NFSv3 SETATTR guard).
    pub guard: Option<Timestamp>,
}

/// Sizes of a volume, in bytes and inodes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct FileSystemStatistics {
    /// The volume's size.
    pub total_bytes: u64,
    /// Room left: the smaller of the volume's and its aggregate's.
    pub free_bytes: u64,
    /// Room left for callers other than root.
    pub available_bytes: u64,
    /// Inodes there can be.
    pub total_files: u64,
    /// Inodes left.
    pub free_files: u64,
}
