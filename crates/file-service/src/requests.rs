//! Arguments and answers of the calls of [`crate::FileService`].

use crate::{Attributes, FileHandle, FileKind};
use serde::{Deserialize, Serialize};
use units::{BLOCK_SIZE, Block, BlockRef};

/// How durable a WRITE must be before its answer (RFC 1813 `stable_how`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Stability {
    /// May stay in memory until COMMIT.
    Unstable,
    /// The data and what is needed to find it.
    DataSync,
    /// Data and all attributes.
    FileSync,
}

/// What a WRITE did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteResult {
    /// Bytes written, from the start of the data.
    pub count: u32,
    /// How durable they are now.
    pub stability: Stability,
    /// Changes when unstable data may have been lost: at each start of the server.
    pub verifier: u64,
    /// The attributes around the change.
    pub change: NodeChange,
}

/// What a COMMIT did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommitResult {
    /// The attributes around the change.
    pub change: NodeChange,
    /// As [`WriteResult::verifier`].
    pub verifier: u64,
}

/// Attributes before and after an operation, for weak cache consistency.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeChange {
    /// Size, mtime and ctime before.
    pub before: (u64, units::Timestamp, units::Timestamp),
    /// The attributes after.
    pub after: Attributes,
}

/// A file that a name leads to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its handle.
    pub handle: FileHandle,
    /// Its attributes.
    pub attributes: Attributes,
}

/// A piece of a block.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The block.
    pub block: BlockRef,
    /// First byte.
    pub start: u16,
    /// One past the last byte; at most a block.
    pub end: u16,
}

impl Segment {
    /// The piece's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let end = usize::from(self.end).min(BLOCK_SIZE);
        let start = usize::from(self.start).min(end);
        &self.block.bytes()[start..end]
    }
}

/// Data read, as pieces of shared blocks: the front end writes them out without another copy.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct ReadData {
    /// The pieces, in order. On the wire their bytes follow the small part of the message.
    #[serde(skip)]
    pub segments: Vec<Segment>,
    /// Whether the read reached the end of the file.
    pub end_of_file: bool,
    /// The file's attributes after the read.
    pub attributes: Option<Attributes>,
}

impl ReadData {
    /// Bytes read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| usize::from(segment.end - segment.start)).sum()
    }

    /// Pieces with a copy of these bytes.
    #[must_use]
    pub fn segments_of(bytes: &[u8]) -> Vec<Segment> {
        let piece = |bytes: &[u8]| Segment {
            block: Block::shared(bytes),
            start: 0,
            end: bytes.len() as u16,
        };
        bytes.chunks(BLOCK_SIZE).map(piece).collect()
    }

    /// Whether nothing was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces as byte slices.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.segments.iter().map(Segment::bytes)
    }

    /// The bytes, copied together.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.slices().for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }
}

/// How CREATE treats a file that is there (RFC 1813 `createmode3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CreateMode {
    /// Take the existing file; apply only a size.
    Unchecked,
    /// Fail with `Exists`.
    Guarded,
    /// Fail with `Exists` unless the file was made by this verifier.
    Exclusive(u64),
}

/// A node to make other than a regular file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NewNode {
    /// A directory.
    Directory,
    /// A symbolic link to this text; at most 4,095 bytes.
    Symlink(Vec<u8>),
    /// A block device node with major and minor number.
    BlockDevice(u32, u32),
    /// A character device node with major and minor number.
    CharacterDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
}

/// Flags of rename (Linux `renameat2`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RenameFlags {
    /// Fail with `Exists` rather than replace.
    pub no_replace: bool,
    /// Swap the two names; both must exist.
    pub exchange: bool,
}

/// One entry of a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Reading on from this cookie yields the entries after this one.
    pub cookie: u64,
    /// The inode number.
    pub inode: units::InodeNumber,
    /// The kind.
    pub kind: FileKind,
    /// Handle and attributes, when they were asked for.
    pub entry: Option<Entry>,
}

/// A stretch of a directory, with `.` and `..` first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectoryPage {
    /// The entries, in the order of their cookies.
    pub entries: Vec<DirectoryEntry>,
    /// Whether no entry follows.
    pub end: bool,
    /// The directory's attributes.
    pub attributes: Attributes,
}

/// What fallocate is to do with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Allocation {
    /// Promise space for the range, and extend the file to its end unless `keep_size`.
    Reserve {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Make the range a hole; the size stays.
    PunchHole,
    /// Make the range read as zeros, extending the file unless `keep_size`.
    ZeroRange {
        /// Leave the size as it is.
        keep_size: bool,
    },
}

/// What SEEK looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SeekTarget {
    /// The next byte that is not in a hole.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

/// How SETXATTR treats an attribute that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum XattrSetMode {
    /// Make or replace.
    Either,
    /// Fail with `Exists` if it is there.
    Create,
    /// Fail with `NoAttribute` if it is not.
    Replace,
}
