//! The roots: the superblock of an aggregate and the vol_info block of a volume (FlexVol section
//! 2). Both describe one file system image with a [`FileSystemRoot`]; everything else is found from
//! there.
//!
//! The superblock is written last in a consistency point, to every disk, to the slot that the one
//! before is not in; the valid one with the highest CP number is the aggregate's state. The
//! vol_info block lies at [`VOL_INFO_VVBN`] of its container file and is written anew, elsewhere in
//! the aggregate, by every consistency point that changes the volume.
//!
//! Invariants: `magic` and `version` never move. The superblock's checksum covers the whole block
//! with the checksum field as zero. A power cut tears a write at 512 bytes, and everything that one
//! superblock has other than the next lies in the first two sectors. Both sectors have the CP
//! number, as `cp` and `cp_again`: a torn superblock has two different numbers, a rotten one has
//! the same number twice.
//!
//! Fails: `validate` names the field.

use crate::damage::Damage;
use crate::features::{FeatureScope, FeatureSet};
use crate::identity::crc32c;
use crate::inode::{InodeRecord, KIND_METAFILE};
use crate::pointer::BLOCK_NUMBER_MAX;
use crate::versions::FORMAT_VERSION;
use std::fmt;
use units::{AggregateUuid, BLOCK_SIZE, Block, CpNumber, LogUuid, Vvbn};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of a superblock.
pub const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"STRPsupr");
/// First bytes of a vol_info block.
pub const VOL_INFO_MAGIC: u64 = u64::from_le_bytes(*b"STRPvoli");
/// Where the vol_info block lies in its container.
pub const VOL_INFO_VVBN: Vvbn = Vvbn(1);
/// Slots for superblocks on each disk, written in turn.
pub const SUPERBLOCK_SLOTS: u64 = 2;

/// Inode numbers of the metafiles, the same in every file system image.
pub mod metafile {
    /// The free map of the active image: one bit per VBN, set when in use.
    pub const ACTIVE_MAP: u64 = 1;
    /// The OR of the snapshots' free maps.
    pub const SUMMARY_MAP: u64 = 2;
    /// One bit per inode, set when in use.
    pub const INODE_MAP: u64 = 3;
    /// The orphan list: inode numbers of files without a name, four bytes each.
    pub const ORPHANS: u64 = 4;
    /// In an aggregate: the volume table, one block per volume.
    pub const VOLUME_TABLE: u64 = 5;
    /// The best allocation areas; see [`crate::top_areas`].
    pub const TOP_AREAS: u64 = 6;
    /// In a flexible volume: one bit per VVBN that no image uses, of which the container map still
    /// says where its block lay (FlexVol section 3.4).
    pub const DELAYED_MAP: u64 = 7;
    /// What users, groups and trees use, and may use; see [`crate::quota`].
    pub const QUOTAS: u64 = 8;
    /// The snapshot table, which is in no inode file: a root has its inode.
    pub const SNAPSHOT_TABLE: u64 = 63;
    /// The user-visible root directory.
    pub const ROOT_DIRECTORY: u64 = 64;
    /// The first inode number for files.
    pub const FIRST_FILE: u64 = 65;
}

/// What a file system image is.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FileSystemRoot {
    /// Block numbers of the image: 0 to this, exclusive.
    pub size_blocks: U64,
    /// Block numbers in use by the active image or a snapshot.
    pub used_blocks: U64,
    /// Inodes in use.
    pub used_inodes: U64,
    /// The generation that the next created file gets.
    pub next_generation: U32,
    /// The number that the next snapshot gets.
    pub next_snapshot: U32,
    /// Snapshots in the snapshot table.
    pub snapshot_count: U32,
    /// Entries of the orphan list.
    pub orphan_count: U32,
    /// Block numbers in use by the active image.
    pub active_blocks: U64,
    /// Block numbers that no image uses and that the container map still has: delayed frees.
    pub delayed_blocks: U64,
    /// Reserved; zero.
    pub reserved: [u8; 8],
    /// The inode of the inode file.
    pub inode_file: InodeRecord,
    /// The inode of the snapshot table, which lies outside the inode file because it names it.
    pub snapshot_table: InodeRecord,
}

const _: () = assert!(size_of::<FileSystemRoot>() == 64 + 2 * 256);

impl FileSystemRoot {
    /// # Errors
    /// The first field that cannot be right.
    pub fn validate(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: "file system root", field });
        if self.size_blocks.get() > crate::pointer::BLOCK_NUMBER_MAX {
            return wrong("size_blocks");
        }
        if self.used_blocks.get() > self.size_blocks.get() {
            return wrong("used_blocks");
        }
        if self.active_blocks.get() > self.used_blocks.get() {
            return wrong("active_blocks");
        }
        if self.delayed_blocks.get() > self.size_blocks.get() - self.used_blocks.get() {
            return wrong("delayed_blocks");
        }
        Damage::unless_zero("file system root", &[&self.reserved])?;
        for (inode, field) in
            [(&self.inode_file, "inode_file"), (&self.snapshot_table, "snapshot_table")]
        {
            inode.validate()?;
            if inode.kind != KIND_METAFILE {
                return wrong(field);
            }
        }
        Ok(())
    }
}

/// The superblock of an aggregate.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Superblock {
    /// [`SUPERBLOCK_MAGIC`].
    pub magic: U64,
    /// Format version.
    pub version: U16,
    /// 1 after a clean stop: the log holds nothing that is not in this image.
    pub clean: U16,
    /// CRC32C of the block with this field as zero.
    pub checksum: U32,
    /// The aggregate's identity.
    pub aggregate: AggregateUuid,
    /// The identity of its log.
    pub log: LogUuid,
    /// The consistency point that this superblock completes.
    pub cp: U64,
    /// When, in nanoseconds since the epoch.
    pub time: I64,
    /// The number that the next volume gets.
    pub next_volume: U32,
    /// 1 when the root directory is user-visible: a traditional volume.
    pub traditional: U32,
    /// The group that is being emptied to leave, and one; 0: none is.
    pub leaving_group: U32,
    /// 1 when allocation areas are not emptied ahead of being filled.
    pub leaves_areas: U32,
    /// Reserved; zero.
    pub reserved: [u8; 48],
    /// The aggregate's file system.
    pub root: FileSystemRoot,
    /// The same as `cp`, in the last sector that a consistency point changes.
    pub cp_again: U64,
    /// What the aggregate's content uses, volumes, disks and log left out.
    pub features: FeatureSet,
    /// Zero.
    pub padding: [u8; BLOCK_SIZE - 136 - size_of::<FileSystemRoot>() - size_of::<FeatureSet>()],
}

/// What a power cut tears a write into.
const SECTOR_SIZE: usize = 512;

const _: () = {
    assert!(size_of::<Superblock>() == BLOCK_SIZE);
    assert!(std::mem::offset_of!(Superblock, version) == 8);
    assert!(std::mem::offset_of!(Superblock, root) == 128);
    // Each sector that a consistency point changes has the number.
    assert!(std::mem::offset_of!(Superblock, cp) / SECTOR_SIZE == 0);
    assert!(std::mem::offset_of!(Superblock, cp_again) / SECTOR_SIZE == 1);
    assert!(std::mem::offset_of!(Superblock, padding) <= 2 * SECTOR_SIZE);
};

impl Superblock {
    /// All zero but magic and version.
    #[must_use]
    pub fn new() -> Self {
        let mut block = <Self as zerocopy::FromZeros>::new_zeroed();
        block.magic = U64::new(SUPERBLOCK_MAGIC);
        block.version = U16::new(FORMAT_VERSION);
        block
    }

    /// Makes it the superblock of this consistency point.
    pub fn set_cp(&mut self, cp: CpNumber) {
        (self.cp, self.cp_again) = (U64::new(cp.get()), U64::new(cp.get()));
    }

    /// The block for media, with its checksum.
    #[must_use]
    pub fn to_block(mut self) -> Block {
        self.checksum = U32::new(0);
        self.checksum = U32::new(crc32c(&Block::from_prefix(self.as_bytes())));
        Block::from_prefix(self.as_bytes())
    }

    /// The superblock in `block`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_block(block: &Block) -> Result<Self, Damage> {
        let mut found = Self::read_from_bytes(block.bytes().as_slice())
            .map_err(|_| Damage::Field { structure: "superblock", field: "size" })?;
        if found.magic.get() != SUPERBLOCK_MAGIC {
            return Err(Damage::Field { structure: "superblock", field: "magic" });
        }
        let checksum = found.checksum;
        found.checksum = U32::new(0);
        if crc32c(&Block::from_prefix(found.as_bytes())) != checksum.get() {
            return Err(Damage::Field { structure: "superblock", field: "checksum" });
        }
        found.checksum = checksum;
        Damage::unless_read("superblock", found.version.get())?;
        if found.cp != found.cp_again {
            return Err(Damage::Field { structure: "superblock", field: "cp_again" });
        }
        found.features.validate(FeatureScope::Aggregate, "superblock")?;
        // Of what is 0 or 1 the other bits are nobody's yet.
        let (clean, traditional) = (found.clean & U16::new(!1), found.traditional & U32::new(!1));
        let leaves_areas = found.leaves_areas & U32::new(!1);
        let reserved: [&[u8]; 5] = [
            &found.reserved,
            &found.padding,
            clean.as_bytes(),
            traditional.as_bytes(),
            leaves_areas.as_bytes(),
        ];
        found.features.check_reserved(FeatureScope::Aggregate, "superblock", &reserved)?;
        found.root.validate()?;
        Ok(found)
    }

    /// The superblock in a block of which only one of the two CP numbers is wrong: that number has
    /// rotted, or the other sector was torn and is the same as before.
    ///
    /// # Errors
    /// What is wrong with it: that a newer build wrote it, if it is one with either number.
    pub fn mended(block: &Block) -> Result<Self, Damage> {
        let found = Self::read_from_bytes(block.bytes().as_slice())
            .map_err(|_| Damage::Field { structure: "superblock", field: "size" })?;
        let tried = [found.cp, found.cp_again].map(|cp| {
            let mut mended = found;
            (mended.cp, mended.cp_again) = (cp, cp);
            Self::from_block(&Block::from_prefix(mended.as_bytes()))
        });
        match tried {
            [Ok(mended), _] | [_, Ok(mended)] => Ok(mended),
            [_, Err(damage)] if damage.is_of_newer_build() => Err(damage),
            [Err(damage), _] => Err(damage),
        }
    }

    /// Whether a block that is no valid superblock was one, and later than `newest`: all of it was
    /// written, so it may have been the commit, and then it has rotted.
    #[must_use]
    pub fn has_rotted(block: &Block, newest: CpNumber) -> bool {
        let Ok(found) = Self::read_from_bytes(block.bytes().as_slice()) else { return false };
        found.cp == found.cp_again && found.cp() > newest && Self::from_block(block).is_err()
    }

    /// The consistency point.
    #[must_use]
    pub fn cp(&self) -> CpNumber {
        CpNumber(self.cp.get())
    }
}

impl Default for Superblock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Superblock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "superblock version {} cp {} clean {} used {}/{} blocks, {} inodes",
            self.version,
            self.cp,
            self.clean,
            self.root.used_blocks,
            self.root.size_blocks,
            self.root.used_inodes
        )
    }
}

impl fmt::Debug for Superblock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The trees of a clone's base that the clone has no use for, by inode number, in the order in
/// which it lets go of them: it has no snapshots, delayed frees or scores of areas yet.
pub const DISCARDED_TREES: [u64; 4] =
    [metafile::SUMMARY_MAP, metafile::DELAYED_MAP, metafile::TOP_AREAS, metafile::SNAPSHOT_TABLE];

/// The vol_info block of a volume.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct VolInfo {
    /// [`VOL_INFO_MAGIC`].
    pub magic: U64,
    /// Format version.
    pub version: U16,
    /// Reserved; zero.
    pub reserved_a: U16,
    /// The volume's number.
    pub volume: U32,
    /// The consistency point that wrote this.
    pub cp: U64,
    /// When, in nanoseconds since the epoch.
    pub time: I64,
    /// Of a clone: the tree of its base that it is letting go of, as [`DISCARDED_TREES`] has them
    /// in order. Those before it are none of the clone's any more.
    pub discard_tree: U32,
    /// Reserved; zero.
    pub reserved_b: U32,
    /// Blocks of that tree before this one are none of the clone's any more.
    pub discard_next: U64,
    /// Reserved; zero.
    pub reserved_c: [u8; 80],
    /// The volume's file system.
    pub root: FileSystemRoot,
    /// Zero.
    pub padding: [u8; BLOCK_SIZE - 128 - size_of::<FileSystemRoot>()],
}

const _: () = {
    assert!(size_of::<VolInfo>() == BLOCK_SIZE);
    assert!(std::mem::offset_of!(VolInfo, version) == 8);
    assert!(std::mem::offset_of!(VolInfo, root) == 128);
};

impl VolInfo {
    /// All zero but magic and version.
    #[must_use]
    pub fn new() -> Self {
        let mut block = <Self as zerocopy::FromZeros>::new_zeroed();
        block.magic = U64::new(VOL_INFO_MAGIC);
        block.version = U16::new(FORMAT_VERSION);
        block
    }

    /// The block for media. Its proof is the identifier and the container map's check.
    #[must_use]
    pub fn to_block(&self) -> Block {
        Block::from_prefix(self.as_bytes())
    }

    /// The vol_info in `block`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_block(block: &Block) -> Result<Self, Damage> {
        let found = Self::read_from_bytes(block.bytes().as_slice())
            .map_err(|_| Damage::Field { structure: "vol_info", field: "size" })?;
        if found.magic.get() != VOL_INFO_MAGIC {
            return Err(Damage::Field { structure: "vol_info", field: "magic" });
        }
        Damage::unless_read("vol_info", found.version.get())?;
        let reserved = [
            found.reserved_a.as_bytes(),
            found.reserved_b.as_bytes(),
            &found.reserved_c,
            &found.padding,
        ];
        Damage::unless_zero("vol_info", &reserved)?;
        if found.discard_tree.get() as usize > DISCARDED_TREES.len()
            || found.discard_next.get() > BLOCK_NUMBER_MAX
        {
            return Err(Damage::Field { structure: "vol_info", field: "discard_tree" });
        }
        found.root.validate()?;
        Ok(found)
    }
}

impl Default for VolInfo {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for VolInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "vol_info {} version {} cp {} used {}/{} blocks, {} inodes, {} snapshots",
            self.volume,
            self.version,
            self.cp,
            self.root.used_blocks,
            self.root.size_blocks,
            self.root.used_inodes,
            self.root.snapshot_count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::FeatureClass;

    fn superblock(cp: u64) -> Superblock {
        let mut superblock = Superblock::new();
        superblock.set_cp(CpNumber(cp));
        superblock.root.inode_file.kind = KIND_METAFILE;
        superblock.root.snapshot_table.kind = KIND_METAFILE;
        superblock.root.snapshot_table.size = U64::new(cp);
        superblock
    }

    /// Every bit that rots in the newest superblock is noticed, and no tear is taken for rot.
    #[test]
    fn a_superblock_that_has_rotted_is_told_from_one_that_was_torn() {
        let (old, new) = (superblock(5).to_block(), superblock(7).to_block());
        let newest = CpNumber(6);
        let is_told = |block: &Block| {
            let mended = Superblock::mended(block).is_ok_and(|found| found.cp() == CpNumber(7));
            mended || Superblock::has_rotted(block, newest)
        };
        for bit in 0..BLOCK_SIZE * 8 {
            let mut rotten = new.clone();
            rotten.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::from_block(&rotten).is_err());
            assert!(is_told(&rotten), "bit {bit}");
        }
        for before in [old, Block::from_prefix(&[])] {
            for sectors in 0..1_u32 << (BLOCK_SIZE / SECTOR_SIZE) {
                let mut torn = before.clone();
                for at in (0..BLOCK_SIZE).filter(|at| sectors >> (at / SECTOR_SIZE) & 1 == 1) {
                    torn.bytes_mut()[at] = new.bytes()[at];
                }
                let is_whole = Superblock::from_block(&torn).is_ok();
                let is_rotten = Superblock::has_rotted(&torn, newest);
                assert!(is_whole || !is_rotten, "sectors {sectors:b}");
            }
        }
    }

    /// A superblock of a newer build is neither torn nor rotten, and must not be passed over for an
    /// older one.
    #[test]
    fn a_superblock_of_a_newer_build_is_told_from_damage() {
        let changes: [fn(&mut Superblock); 7] = [
            |newer| newer.clean = U16::new(2),
            |newer| newer.traditional = U32::new(1 << 31),
            |newer| newer.leaves_areas = U32::new(3),
            |newer| newer.version = U16::new(FORMAT_VERSION + 1),
            |newer| newer.features.set_named(FeatureClass::Incompatible, 9, "later"),
            |newer| newer.features.set_named(FeatureClass::ReadOnlyCompatible, 9, "later"),
            |newer| newer.padding[3000] = 1,
        ];
        for change in changes {
            let mut newer = superblock(7);
            change(&mut newer);
            let refused = Superblock::from_block(&newer.to_block()).unwrap_err();
            assert!(refused.is_of_newer_build(), "{refused}");
            // One of its numbers has rotted, or both are as they were written.
            for at in
                [std::mem::offset_of!(Superblock, cp), std::mem::offset_of!(Superblock, cp_again)]
            {
                for bit in [0, 1] {
                    let mut block = newer.to_block();
                    block.bytes_mut()[at] ^= bit;
                    assert_eq!(Superblock::mended(&block).unwrap_err(), refused);
                }
            }
        }
        let mut rotten = superblock(7).to_block();
        rotten.bytes_mut()[3000] = 1;
        assert!(!Superblock::from_block(&rotten).unwrap_err().is_of_newer_build());
    }
}
