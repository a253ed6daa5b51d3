//! What is seen of an operation, in a form that two right services agree on.
//!
//! Invariants: see the crate. A [`FileView`]'s number tells files apart and recognises them again;
//! the executor gives numbers in the order of first sight.

use file_service::{FileKind, FsError, Stability};
use units::Timestamp;

/// Times below this were set by an operation; services' clocks are beyond it (1970-01-02).
pub const SET_TIME_LIMIT: Timestamp = Timestamp(86_400_000_000_000);

/// A file's attributes without what services may choose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileView {
    /// Which file, among those seen so far.
    pub number: u32,
    /// The kind.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length; of a directory, the service's affair.
    pub size: Option<u64>,
    /// Device number.
    pub device: (u32, u32),
    /// Time of last read, if it was set.
    pub atime: Option<Timestamp>,
    /// Time of last change, if it was set.
    pub mtime: Option<Timestamp>,
}

/// An entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryView {
    /// The name.
    pub name: Vec<u8>,
    /// The kind.
    pub kind: FileKind,
    /// The file, when attributes were asked for.
    pub file: Option<FileView>,
}

/// Bytes, short enough to print: their number, a hash, and the first few.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Digest {
    /// Bytes.
    pub length: usize,
    /// A hash of all of them.
    pub hash: u64,
    /// The first sixteen.
    pub head: Vec<u8>,
}

impl Digest {
    /// Of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        // FNV-1a over words: for printing and comparing, not against an adversary.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ bytes.len() as u64;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x0000_0100_0000_01b3);
            hash ^= hash >> 29;
        }
        for byte in rest {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self { length: bytes.len(), hash, head: bytes.iter().take(16).copied().collect() }
    }
}

/// What was seen of one operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Observation {
    /// It was refused.
    Failed(FsError),
    /// It was done, and there is nothing to see.
    Done,
    /// Attributes, or a file found.
    File(FileView),
    /// A file changed; its size before, where files have one.
    Changed {
        /// Length before.
        size_before: Option<u64>,
        /// The file after.
        after: FileView,
    },
    /// An entry was made: the file, and the directory after it.
    Made {
        /// The file.
        file: FileView,
        /// The directory.
        directory: FileView,
    },
    /// Both directories after a rename.
    Renamed {
        /// The one that was left.
        from: FileView,
        /// The one that was entered.
        to: FileView,
    },
    /// ACCESS.
    Rights {
        /// The rights.
        rights: u32,
        /// The file.
        file: FileView,
    },
    /// A symbolic link's text.
    Text {
        /// The text.
        text: Vec<u8>,
        /// The link.
        file: FileView,
    },
    /// Data read.
    Data {
        /// The bytes.
        digest: Digest,
        /// Whether the read reached the end.
        end_of_file: bool,
        /// The file, if the service told.
        file: Option<FileView>,
    },
    /// Data written.
    Wrote {
        /// Bytes.
        count: u32,
        /// How durable the service says they are.
        stability: Stability,
        /// Length before.
        size_before: Option<u64>,
        /// The file after.
        after: FileView,
    },
    /// A whole directory, sorted by name.
    Entries(Vec<EntryView>),
    /// An extended attribute's value.
    Value(Digest),
    /// Names of extended attributes, sorted.
    Names(Vec<Vec<u8>>),
    /// Where data or a hole was found.
    Offset(u64),
    /// The service broke the trait's contract; equal to nothing (see `Tolerance::agrees`).
    Broken(String),
}

impl Observation {
    /// Whether the operation was done.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::Broken(_))
    }
}
