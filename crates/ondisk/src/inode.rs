//! The inode: 256 bytes that describe a file, sixteen to a block of the inode file (FlexVol
//! section 2).
//!
//! The last 112 bytes hold the file's content when it is tiny (depth 0), else pointers that are all
//! at one level: at depth 1 they point at data, at depth 2 at indirect blocks, and so on.
//!
//! Invariants: a free inode has kind [`KIND_FREE`] and only its generation is meaningful; `depth`
//! is at most [`DEPTH_MAX`]; a hole pointer is all zero.
//!
//! Fails: [`InodeRecord::validate`] names the field.

use crate::damage::Damage;
use std::fmt;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of an inode.
pub const INODE_SIZE: usize = 256;
/// Inodes in a block of the inode file.
pub const INODES_PER_BLOCK: usize = units::BLOCK_SIZE / INODE_SIZE;
/// Bytes for inline content or pointers.
pub const PAYLOAD_SIZE: usize = 112;
/// Levels of a buftree at most: 7 pointers and 256-way indirection at depth 5 reach 112 TiB;
/// 14 pointers and 512-way indirection at depth 6 reach beyond 2^44 blocks.
pub const DEPTH_MAX: u8 = 6;

/// `kind` of an inode that holds no file.
pub const KIND_FREE: u8 = 0;
/// `kind` of a regular file.
pub const KIND_REGULAR: u8 = 1;
/// `kind` of a directory.
pub const KIND_DIRECTORY: u8 = 2;
/// `kind` of a symbolic link.
pub const KIND_SYMLINK: u8 = 3;
/// `kind` of a block device node.
pub const KIND_BLOCK_DEVICE: u8 = 4;
/// `kind` of a character device node.
pub const KIND_CHARACTER_DEVICE: u8 = 5;
/// `kind` of a named pipe.
pub const KIND_FIFO: u8 = 6;
/// `kind` of a Unix socket.
pub const KIND_SOCKET: u8 = 7;
/// `kind` of a file that holds another file's extended attributes.
pub const KIND_ATTRIBUTES: u8 = 8;
/// `kind` of a metafile (inode file, maps, tables).
pub const KIND_METAFILE: u8 = 9;
/// `kind` of a container file: its blocks are a volume's blocks.
pub const KIND_CONTAINER: u8 = 10;

/// `flags` of a quarantined file: a block that leads to its content cannot be read, and changes to
/// it were dropped. Its content is refused to clients.
pub const INODE_QUARANTINED: u32 = 1;
/// `flags` of a file with an access list among its extended attributes (`crate::acl`).
pub const INODE_ACCESS_ACL: u32 = 2;
/// `flags` of a directory with a default list among its extended attributes.
pub const INODE_DEFAULT_ACL: u32 = 4;
/// Bits of `flags` that there are.
pub const INODE_FLAGS: u32 = INODE_QUARANTINED | INODE_ACCESS_ACL | INODE_DEFAULT_ACL;

/// An inode on media.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InodeRecord {
    /// One of the `KIND_` constants.
    pub kind: u8,
    /// Levels of the buftree; 0 when the payload is the content.
    pub depth: u8,
    /// Permission bits, 12 of them.
    pub mode: U16,
    /// `INODE_` bits.
    pub flags: U32,
    /// Hard links; zero for a file on the orphan list.
    pub links: U32,
    /// Which of the files that this inode held.
    pub generation: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Length in bytes.
    pub size: U64,
    /// Blocks that the file's data takes, indirect blocks not counted.
    pub blocks: U64,
    /// Time of last read, nanoseconds since the epoch.
    pub atime: I64,
    /// Time of last change of content.
    pub mtime: I64,
    /// Time of last change.
    pub ctime: I64,
    /// Time of creation.
    pub birth: I64,
    /// Major device number, of device nodes.
    pub device_major: U32,
    /// Minor device number.
    pub device_minor: U32,
    /// The inode that holds this file's extended attributes, or 0.
    pub attributes_inode: U32,
    /// The inode of the quota tree's directory that the file lies beneath, or is; 0: none.
    pub tree: U32,
    /// Grows with every change.
    pub change: U64,
    /// The verifier of an exclusive create, or 0.
    pub create_verifier: U64,
    /// Reserved; zero.
    pub reserved_b: [u8; 40],
    /// Content, or pointers.
    pub payload: [u8; PAYLOAD_SIZE],
}

const _: () = {
    assert!(size_of::<InodeRecord>() == INODE_SIZE);
    assert!(std::mem::offset_of!(InodeRecord, payload) == INODE_SIZE - PAYLOAD_SIZE);
    assert!(INODES_PER_BLOCK == 16);
};

impl InodeRecord {
    /// A free inode.
    #[must_use]
    pub fn free(generation: u32) -> Self {
        let mut record = Self::zeroed();
        record.generation = U32::new(generation);
        record
    }

    /// The tree that a directory must count to in which the file has a name: a tree's own directory
    /// lies in none.
    #[must_use]
    pub const fn tree_around(&self, number: u64) -> u32 {
        tree_around(number, self.tree.get())
    }

    /// All zero.
    #[must_use]
    pub fn zeroed() -> Self {
        <Self as zerocopy::FromZeros>::new_zeroed()
    }

    /// Whether no file is here.
    #[must_use]
    pub const fn is_free(&self) -> bool {
        self.kind == KIND_FREE
    }

    /// # Errors
    /// The first field that cannot be right.
    pub fn validate(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: "inode", field });
        if self.kind > KIND_CONTAINER {
            return wrong("kind");
        }
        if self.depth > DEPTH_MAX {
            return wrong("depth");
        }
        if self.mode.get() > 0o7777 {
            return wrong("mode");
        }
        let flags = U32::new(self.flags.get() & !INODE_FLAGS);
        let reserved = [flags.as_bytes(), &self.reserved_b];
        Damage::unless_zero("inode", &reserved)?;
        if self.depth == 0 && self.kind == KIND_DIRECTORY && self.size.get() != 0 {
            return wrong("size");
        }
        Ok(())
    }
}

/// See [`InodeRecord::tree_around`]; of the file with this inode, which counts to `tree`.
#[must_use]
pub const fn tree_around(number: u64, tree: u32) -> u32 {
    if tree as u64 == number { 0 } else { tree }
}

impl fmt::Display for InodeRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "kind {} depth {} mode {:o} links {} generation {} owner {}:{} size {} blocks {}",
            self.kind,
            self.depth,
            self.mode,
            self.links,
            self.generation,
            self.uid,
            self.gid,
            self.size,
            self.blocks
        )
    }
}

impl fmt::Debug for InodeRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
