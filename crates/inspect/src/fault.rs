//! What exactly is wrong, of things that can be wrong in several ways.

use ondisk::damage::Damage;
use ondisk::directory::DirectoryDamage;
use ondisk::identity::BlockOwner;
use thiserror::Error;
use units::{CpNumber, MemberNumber, Pvbn};

/// What is wrong with the identity beside a block.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum IdentityFault {
    /// It is none.
    #[error("{0}")]
    Damaged(Damage),
    /// It names another place.
    #[error("says that the block belongs to {0}")]
    Elsewhere(Pvbn),
    /// It names another owner.
    #[error("says that the block belongs to {found}, pointers to it say {expected}")]
    Owner {
        /// What it says.
        found: BlockOwner,
        /// What it should say, as far as it is known: otherwise as found.
        expected: BlockOwner,
    },
    /// It names another content.
    #[error("has the checksum of another content")]
    Content,
    /// It was written after the superblock, though the superblock reaches it.
    #[error("is of {0}, which the superblock has not reached")]
    Future(CpNumber),
    /// Its checksum block can neither be read nor made good.
    #[error("cannot be read")]
    Unreadable,
}

/// What is wrong with a directory as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DirectoryFault {
    /// A block is not what it should be.
    #[error(transparent)]
    Block(DirectoryDamage),
    /// A block below the end is a hole or cannot be read.
    #[error("block {0} does not exist")]
    Missing(u64),
    /// The size is not that of whole blocks, or beyond every directory's.
    #[error("the size is {0} bytes")]
    Size(u64),
    /// The tree reaches a block twice, or the free list does.
    #[error("block {0} is used twice")]
    Twice(u64),
    /// A block is neither in the tree nor on the free list.
    #[error("block {0} is not used")]
    Lost(u64),
    /// A name is not where its hash says.
    #[error("the name with cookie {0:#x} has another hash")]
    Hash(u64),
    /// A name stands twice.
    #[error("the name with cookie {0:#x} is there twice")]
    Duplicate(u64),
    /// The header counts other entries or free blocks than there are.
    #[error("the header counts {recorded} entries or free blocks, there are {counted}")]
    Totals {
        /// By the header.
        recorded: u64,
        /// Found.
        counted: u64,
    },
    /// `.` is not the directory itself.
    #[error("'.' leads to inode {0}")]
    This(u64),
    /// `..` is not the directory that it is in.
    #[error("'..' leads to inode {found} and not to inode {expected}")]
    Parent {
        /// Where it leads.
        found: u64,
        /// Where it should.
        expected: u64,
    },
}

/// What is wrong with an entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EntryFault {
    /// Leads to an inode without a file.
    #[error("leads to inode {0}, which is free")]
    Free(u64),
    /// Leads to an earlier file of the inode.
    #[error("leads to generation {found} of inode {inode}, which is of generation {expected}")]
    Generation {
        /// The inode.
        inode: u64,
        /// The entry's.
        found: u32,
        /// The inode's.
        expected: u32,
    },
    /// Has another kind than the inode.
    #[error("says that inode {inode} is of kind {found}, the inode says {expected}")]
    Kind {
        /// The inode.
        inode: u64,
        /// The entry's.
        found: u8,
        /// The inode's.
        expected: u8,
    },
    /// Leads to a file that can have no name: a metafile or a file of extended attributes.
    #[error("leads to inode {0}, which can have no name")]
    Hidden(u64),
    /// Leads to another member of a group of volumes, which the volume is not in.
    #[error("leads to {0}")]
    Member(MemberNumber),
    /// Is the second name of a directory: a cycle, or two parents.
    #[error("is a second name of directory {0}")]
    SecondParent(u64),
}

/// What is wrong with the orphan list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum OrphanFault {
    /// The inode is free.
    #[error("is free")]
    Free,
    /// It is on the list twice.
    #[error("is on the list twice")]
    Twice,
    /// It has a name.
    #[error("has {0} names")]
    Named(u32),
    /// It cannot be an orphan.
    #[error("is of kind {0}")]
    Kind(u8),
}

/// What is wrong with a snapshot's record.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SnapshotFault {
    /// It is none.
    #[error("{0}")]
    Damaged(Damage),
    /// The table ends before it, or cannot be read.
    #[error("is not there")]
    Missing,
    /// Another has its number or its name, or the next snapshot will.
    #[error("has the number or name of another")]
    Duplicate,
    /// Made after the superblock.
    #[error("is of {0}, which the superblock has not reached")]
    Future(CpNumber),
}

/// What is wrong with the superblock slots of a disk.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SlotFault {
    /// The disk cannot read the slot.
    #[error("cannot read superblock slot {0}")]
    Unreadable(usize),
    /// The slot holds something else than a superblock.
    #[error("has no superblock in slot {0}: {1}")]
    Damaged(usize, Damage),
    /// No slot holds the superblock of the last consistency point.
    #[error("lacks the superblock of {0}")]
    Missing(CpNumber),
}
