//! Bringing an aggregate's own file system into memory: fresh, or from a superblock.
//!
//! Invariants: mounting reads only; it is run from the top again after each wait. What it reads
//! grows with the number of volumes and snapshots, not with the amount of data.
//!
//! Fails: [`AggregateError::Unreadable`], [`AggregateError::Damaged`].

use super::settings::Settings;
use super::side::{BlockSide, FileFacts, VOLUMES_MAX};
use crate::allocation::reclaim::Reclaim;
use crate::allocation::refill::Refill;
use crate::containers::{Container, VolumeSlot, container_inode};
use crate::error::AggregateError;
use crate::relocation::plan::Relocation;
use cowfs::buftree::{self, FileKey, Root};
use cowfs::content::Content;
use cowfs::logical::read_record;
use cowfs::reader::{Progress, Reader, Stop, all};
use cowfs::space::Space;
use ondisk::inode::{INODE_QUARANTINED, InodeRecord};
use ondisk::pointer::PhysicalPointer;
use ondisk::records::{STATE_DELETING, STATE_EMPTY, STATE_ONLINE, VOLUME_FLEXIBLE, VolumeRecord};
use ondisk::root::{Superblock, metafile};
use raid::Geometry;
use std::collections::{BTreeMap, BTreeSet};
use units::{BLOCK_SIZE_U64, Fbn, InodeNumber, Pvbn, VolumeId};

/// The aggregate's file system as the superblock describes it.
pub struct Mounted {
    /// Its block side.
    pub block_side: BlockSide,
    /// The superblock.
    pub superblock: Superblock,
    /// Where it was.
    pub slot: usize,
}

/// Blocks that an aggregate has at least: its metafiles and reserve, and some room.
pub const AGGREGATE_BLOCKS_MIN: u64 = 2048;

/// The block side of a new aggregate.
///
/// # Errors
/// If the disks are too small.
pub fn format_block_side(
    geometry: &Geometry,
    traditional: bool,
) -> Result<BlockSide, AggregateError> {
    let size_blocks = geometry.end().get();
    if size_blocks < AGGREGATE_BLOCKS_MIN {
        return Err(AggregateError::TooSmall {
            found_blocks: size_blocks,
            minimum_blocks: AGGREGATE_BLOCKS_MIN,
        });
    }
    let mut space = Space::new(VolumeId(0), size_blocks).without_areas();
    // Number 0 marks holes and is never a block.
    space.claim(Pvbn(0));
    Ok(BlockSide {
        space,
        refill: Refill::of_empty(geometry),
        is_counting: false,
        reclaim: Reclaim::default(),
        relocation: Relocation::default(),
        settings: Settings::default(),
        is_group_taken_out: false,
        containers: BTreeMap::new(),
        table: Vec::new(),
        table_file: (Root::default(), 0),
        dirty_slots: BTreeSet::new(),
        not_understood: BTreeMap::new(),
        next_volume: 1,
        traditional,
        file_facts: FileFacts { next_generation: 1, used_inodes: 0, orphan_count: 0 },
        cleaned: None,
        cleaning: None,
    })
}

/// Reads the block side that `superblock` describes.
///
/// # Errors
/// What to wait for.
pub fn mount(
    superblock: &Superblock,
    geometry: &Geometry,
    reader: &Reader<'_>,
) -> Progress<BlockSide> {
    let space = Space::<PhysicalPointer>::load(VolumeId(0), &superblock.root, reader)?;
    let mut space = space.without_areas();
    let Some(_) = geometry.end().get().checked_sub(space.size_blocks) else {
        return Err(Stop::Contradiction("the disks have fewer blocks than the superblock says"));
    };
    // Disks may have joined after the last consistency point.
    space.grow(geometry.end().get());
    let table_inode = InodeNumber(metafile::VOLUME_TABLE);
    let inode_file = space.inode_file.0;
    let record = read_record(&inode_file, VolumeId(0), table_inode, reader)?;
    let (table_file, table) = match record.filter(|record| !record.is_free()) {
        Some(record) => read_table(&record, reader)?,
        None => ((Root::default(), 0), Vec::new()),
    };
    let flexible = table
        .iter()
        .filter(|slot| slot.record.state != STATE_EMPTY && slot.record.kind == VOLUME_FLEXIBLE);
    let containers = all(flexible.map(|slot| {
        let volume = VolumeId(slot.record.volume.get());
        let number = container_inode(volume);
        let found = read_record(&inode_file, VolumeId(0), number, reader)?;
        let Some(record) = found.filter(|record| !record.is_free()) else {
            return Err(Stop::Damaged(Pvbn(0)));
        };
        let container = Container {
            root: Root::of(&record),
            blocks: record.blocks.get(),
            deleting: slot.record.state == STATE_DELETING,
            quarantined: record.flags.get() & INODE_QUARANTINED != 0,
            parent: slot.record.parent(),
        };
        Ok((volume, container))
    }))?;
    let mut refill = Refill::new(geometry);
    // Where disks have joined since, scores are not what TopAA says.
    if space.size_blocks == superblock.root.size_blocks.get() {
        refill.seed(&space, reader)?;
    } else {
        refill.touch();
    }
    let online = table.iter().filter(|slot| slot.record.state == STATE_ONLINE);
    let mut relocation = Relocation::of(online);
    let containers: BTreeMap<VolumeId, Container> = containers.into_iter().collect();
    for (volume, _) in containers.iter().filter(|(_, one)| !one.is_live()) {
        relocation.remove(*volume);
    }
    Ok(BlockSide {
        space,
        refill,
        is_counting: false,
        reclaim: Reclaim::default(),
        relocation,
        settings: Settings::of(superblock, geometry),
        is_group_taken_out: false,
        containers,
        table,
        table_file,
        dirty_slots: BTreeSet::new(),
        not_understood: BTreeMap::new(),
        next_volume: superblock.next_volume.get(),
        traditional: superblock.traditional.get() == 1,
        file_facts: FileFacts::of(&superblock.root),
        cleaned: None,
        cleaning: None,
    })
}

/// The tree of the volume table's file and its data blocks, and the slots.
type Table = ((Root<PhysicalPointer>, u64), Vec<VolumeSlot>);

fn read_table(record: &InodeRecord, reader: &Reader<'_>) -> Progress<Table> {
    let slots_count = record.size.get() / BLOCK_SIZE_U64;
    if slots_count > VOLUMES_MAX as u64 {
        return Err(Stop::Contradiction("the volume table has more slots than there are"));
    }
    let root = Root::of(record);
    let slots = (0..slots_count).map(|slot| read_slot(&root, slot, reader));
    Ok(((root, record.blocks.get()), all(slots)?))
}

fn read_slot(root: &Root<PhysicalPointer>, slot: u64, reader: &Reader<'_>) -> Progress<VolumeSlot> {
    let inode = InodeNumber(metafile::VOLUME_TABLE);
    let key = FileKey { volume: VolumeId(0), inode, content: Content::Data };
    let record = match buftree::read(root, &key, Fbn(slot), reader)? {
        Some(block) => VolumeRecord::from_block(&block).map_err(|damage| {
            tracing::error!(slot, %damage, "the volume table");
            match Stop::of_damage(damage, Pvbn(0)) {
                Stop::Damaged(_) => Stop::Contradiction("a record of its volume table is wrong"),
                stop => stop,
            }
        })?,
        None => VolumeRecord::empty(),
    };
    Ok(VolumeSlot { record })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowfs::cache::BufferCache;
    use cowfs::reader::HeldBlocks;

    /// Found by the fuzz target `mount_image`: holes are empty slots, so a size that nobody checks
    /// takes all memory that there is.
    #[test]
    fn regression_a_table_that_is_too_long_is_an_error() {
        let (cache, held) = (BufferCache::new(0), HeldBlocks::default());
        let reader = Reader { cache: &cache, held: &held };
        let mut record = InodeRecord::zeroed();
        record.size.set(VOLUMES_MAX as u64 * BLOCK_SIZE_U64);
        assert!(read_table(&record, &reader).is_ok());
        record.size.set(u64::MAX);
        let refused = read_table(&record, &reader);
        assert!(matches!(refused, Err(Stop::Contradiction(_))));
    }
}
