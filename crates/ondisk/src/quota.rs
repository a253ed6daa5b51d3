//! The quota file of a volume: what each user, group and tree uses of it, and what they may use.
//!
//! The file has a record for each number that a user, a group or a tree can have, most of them in
//! holes. Blocks of the three kinds take turns ([`place_of`]), so that small numbers make a shallow
//! buftree; of four turns the first is nobody's. Block 0 has the [`QuotaHeader`] and, after it, a
//! record for each kind with the limits of those that have none of their own.
//!
//! A tree is a directory with all that is beneath it, and its number is the directory's inode. Each
//! inode says which tree it counts to.
//!
//! Invariants: the usage is that of the image that the file belongs to. It counts the inodes below
//! `counted_inodes`, and a file is all that an inode has: its data blocks, and the inode itself.
//!
//! Fails: `validate` names the field.

use crate::damage::Damage;
use crate::inode::{InodeRecord, KIND_ATTRIBUTES, KIND_CONTAINER, KIND_METAFILE};
use std::fmt;
use units::{BLOCK_SIZE, Block, Fbn};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Records in a block of the quota file.
pub const QUOTAS_PER_BLOCK: usize = BLOCK_SIZE / size_of::<QuotaRecord>();
/// First bytes of block 0 of the quota file.
pub const QUOTA_MAGIC: u64 = u64::from_le_bytes(*b"STRPquot");
/// `counted_inodes` once all inodes are counted.
pub const ALL_INODES: u64 = u64::MAX;
/// `flags` of a record whose limits an administrator has set: those of its kind do not count.
pub const QUOTA_SET: u32 = 1;

/// What a quota is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QuotaKind {
    /// The files that a user owns.
    User,
    /// The files of a group.
    Group,
    /// A directory, and the files beneath it.
    Tree,
}

/// Kinds of quotas.
pub const QUOTA_KINDS: usize = 3;

impl QuotaKind {
    /// All kinds.
    pub const ALL: [Self; QUOTA_KINDS] = [Self::User, Self::Group, Self::Tree];

    /// Which of the blocks that take turns is the kind's.
    const fn turn(self) -> u64 {
        match self {
            Self::User => 1,
            Self::Group => 2,
            Self::Tree => 3,
        }
    }
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Tree => "tree",
        })
    }
}

/// A user, a group or a tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QuotaKey {
    /// Which of them.
    pub kind: QuotaKind,
    /// Its number; of a tree: the inode of its directory.
    pub id: u32,
}

impl fmt::Display for QuotaKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.id)
    }
}

/// The block of the quota file that has a record, and its slot there. A turn has 64 numbers of a
/// kind.
#[must_use]
pub const fn place_of(key: QuotaKey) -> (Fbn, usize) {
    let per_block = QUOTAS_PER_BLOCK as u64;
    let (group, slot) = (key.id as u64 / per_block, key.id as u64 % per_block);
    (Fbn(group * 4 + key.kind.turn()), slot as usize)
}

/// The slot of block 0 with the limits of those of a kind that have none of their own.
#[must_use]
pub const fn default_slot(kind: QuotaKind) -> usize {
    kind.turn() as usize
}

/// Whose record a slot of a block has; none for nobody's turns, and beyond the largest number.
#[must_use]
pub fn key_at(fbn: Fbn, slot: usize) -> Option<QuotaKey> {
    let kind = match fbn.get() % 4 {
        1 => QuotaKind::User,
        2 => QuotaKind::Group,
        3 => QuotaKind::Tree,
        _ => return None,
    };
    let id = fbn.get() / 4 * QUOTAS_PER_BLOCK as u64 + slot as u64;
    Some(QuotaKey { kind, id: u32::try_from(id).ok()? })
}

/// Whose quotas a file counts to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The tree; 0: none.
    pub tree: u32,
}

impl Owner {
    /// Its quotas.
    pub fn keys(self) -> impl Iterator<Item = QuotaKey> {
        let tree = QuotaKey { kind: QuotaKind::Tree, id: self.tree };
        [
            Some(QuotaKey { kind: QuotaKind::User, id: self.uid }),
            Some(QuotaKey { kind: QuotaKind::Group, id: self.gid }),
            (self.tree != 0).then_some(tree),
        ]
        .into_iter()
        .flatten()
    }

    /// Whether this is one of its quotas.
    #[must_use]
    pub const fn has(self, key: QuotaKey) -> bool {
        match key.kind {
            QuotaKind::User => key.id == self.uid,
            QuotaKind::Group => key.id == self.gid,
            QuotaKind::Tree => key.id != 0 && key.id == self.tree,
        }
    }
}

/// What an inode counts for: its owner, data blocks and files. None for what is no user's.
#[must_use]
pub fn counted(record: &InodeRecord) -> Option<(Owner, u64, u64)> {
    if record.is_free() || matches!(record.kind, KIND_METAFILE | KIND_CONTAINER) {
        return None;
    }
    let owner = Owner { uid: record.uid.get(), gid: record.gid.get(), tree: record.tree.get() };
    // What holds a file's extended attributes is no file of its own.
    Some((owner, record.blocks.get(), u64::from(record.kind != KIND_ATTRIBUTES)))
}

/// The first bytes of block 0.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct QuotaHeader {
    /// [`QUOTA_MAGIC`].
    pub magic: U64,
    /// The inodes below this number are counted.
    pub counted_inodes: U64,
    /// Reserved; zero.
    pub reserved: [u8; 48],
}

/// What a user, a group or a tree uses and may use.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct QuotaRecord {
    /// `QUOTA_` bits.
    pub flags: U32,
    /// Reserved; zero.
    pub reserved_a: U32,
    /// Data blocks of its files.
    pub used_blocks: U64,
    /// Files.
    pub used_files: U64,
    /// Above so many blocks an event tells of the owner; 0: none does.
    pub soft_blocks: U64,
    /// Blocks that it may use; 0: no limit.
    pub hard_blocks: U64,
    /// Above so many files an event tells of the owner; 0: none does.
    pub soft_files: U64,
    /// Files that it may have; 0: no limit.
    pub hard_files: U64,
    /// Reserved; zero.
    pub reserved_b: U64,
}

const _: () = {
    assert!(size_of::<QuotaHeader>() == 64);
    assert!(size_of::<QuotaRecord>() == 64);
};

impl QuotaHeader {
    /// A header that says that the inodes below a number are counted.
    #[must_use]
    pub const fn new(counted_inodes: u64) -> Self {
        Self {
            magic: U64::new(QUOTA_MAGIC),
            counted_inodes: U64::new(counted_inodes),
            reserved: [0; 48],
        }
    }

    /// The header in block 0.
    ///
    /// # Errors
    /// The first field that cannot be right.
    pub fn from_block(block: &Block) -> Result<Self, Damage> {
        let Ok((header, _)) = Self::read_from_prefix(block.bytes()) else {
            unreachable!("a block is larger than a header")
        };
        if header.magic.get() != QUOTA_MAGIC {
            return Err(Damage::Field { structure: "quota header", field: "magic" });
        }
        Damage::unless_zero("quota header", &[&header.reserved])?;
        Ok(header)
    }

    /// Stores the header in block 0.
    pub fn store(&self, block: &mut Block) {
        block.bytes_mut()[..size_of::<Self>()].copy_from_slice(self.as_bytes());
    }
}

impl QuotaRecord {
    /// Nothing is used, and everything may be.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// The record in a slot of a block.
    ///
    /// # Errors
    /// The first field that cannot be right.
    pub fn from_block(block: &Block, slot: usize) -> Result<Self, Damage> {
        let start = slot * size_of::<Self>();
        let Ok(record) = Self::read_from_bytes(&block.bytes()[start..start + size_of::<Self>()])
        else {
            unreachable!("a slot is as large as a record")
        };
        let flags = U32::new(record.flags.get() & !QUOTA_SET);
        let reserved =
            [flags.as_bytes(), record.reserved_a.as_bytes(), record.reserved_b.as_bytes()];
        Damage::unless_zero("quota record", &reserved)?;
        Ok(record)
    }

    /// Stores the record in a slot of a block.
    pub fn store(&self, block: &mut Block, slot: usize) {
        let start = slot * size_of::<Self>();
        block.bytes_mut()[start..start + size_of::<Self>()].copy_from_slice(self.as_bytes());
    }

    /// Whether an administrator has set its limits.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.flags.get() & QUOTA_SET != 0
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::zeroed()
    }
}

impl fmt::Debug for QuotaRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "blocks {} of {}/{} files {} of {}/{}{}",
            self.used_blocks,
            self.soft_blocks,
            self.hard_blocks,
            self.used_files,
            self.soft_files,
            self.hard_files,
            if self.is_set() { " (set)" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_has_a_place_of_its_own() {
        let mut places = std::collections::BTreeSet::new();
        for kind in QuotaKind::ALL {
            for id in [0, 1, 63, 64, 1000, 65_534, u32::MAX] {
                let key = QuotaKey { kind, id };
                let (fbn, slot) = place_of(key);
                assert!(fbn.get() % 4 != 0 && slot < QUOTAS_PER_BLOCK, "{key}");
                assert!(places.insert((fbn, slot)), "{key}");
                assert_eq!(key_at(fbn, slot), Some(key));
            }
        }
        assert_eq!(key_at(Fbn(0), 1), None);
    }

    #[test]
    fn a_header_and_records_survive_their_block() {
        let mut block = Block::zeroed();
        assert!(QuotaHeader::from_block(&block).is_err(), "nothing is no header");
        QuotaHeader::new(77).store(&mut block);
        let mut record = QuotaRecord::zeroed();
        assert!(record.is_empty() && !record.is_set());
        (record.flags, record.hard_blocks) = (U32::new(QUOTA_SET), U64::new(5));
        record.store(&mut block, 3);
        assert_eq!(
            QuotaHeader::from_block(&block).map(|header| header.counted_inodes.get()),
            Ok(77)
        );
        assert_eq!(QuotaRecord::from_block(&block, 3), Ok(record));
        assert_eq!(QuotaRecord::from_block(&block, 2), Ok(QuotaRecord::zeroed()));
        block.bytes_mut()[3 * 64 + 1] = 1;
        assert!(QuotaRecord::from_block(&block, 3).is_err(), "a flag that there is not");
    }
}
