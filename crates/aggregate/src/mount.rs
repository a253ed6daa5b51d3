//! Bringing an aggregate's own file system into memory: fresh, or from a superblock.
//!
//! Invariants: mounting reads only; it is run from the top again after each wait. What it reads
//! grows with the number of volumes and snapshots, not with the amount of data.
//!
//! Fails: [`AggregateError::Unreadable`], [`AggregateError::Damaged`].

use crate::block_side::{BlockSide, Container, FileFacts, Settings, VOLUMES_MAX, VolumeSlot};
use crate::error::AggregateError;
use crate::member::container_inode;
use crate::reclaim::Reclaim;
use crate::refill::Refill;
use crate::relocate::Relocation;
use cowfs::buftree::{self, FileKey, Root};
use cowfs::content::Content;
use cowfs::logical::read_record;
use cowfs::reader::{Progress, Reader, Stop, all};
use cowfs::space::Space;
use ondisk::inode::{INODE_QUARANTINED, InodeRecord};
use ondisk::pointer::PhysicalPointer;
use ondisk::records::{STATE_DELETING, STATE_EMPTY, STATE_ONLINE, VOLUME_FLEXIBLE, VolumeRecord};
use ondisk::root::{Superblock, metafile};
use platform::mutation::{self, Rule};
use raid::{Geometry, SuperblockCopy};
use std::collections::{BTreeMap, BTreeSet};
use units::{BLOCK_SIZE_U64, Block, Fbn, InodeNumber, Pvbn, VolumeId};

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

/// The superblock of the last consistency point that may have committed, and its slot.
///
/// A consistency point commits when every disk in use has its superblock, and superblocks go to
/// the two slots in turn. So a disk that shows a superblock tells of every slot that can be read
/// and has not rotted: no later consistency point committed there. Where no disk can tell of a
/// slot, a later one may have committed there, and an older superblock must not be taken for the
/// newest: blocks that it names may have been overwritten.
///
/// # Errors
/// If no superblock is valid, or a slot can be read on no disk that has one.
pub fn choose_superblock(
    copies: &[SuperblockCopy],
    aggregate: &[u8; 16],
) -> Result<(Superblock, usize), AggregateError> {
    let mut valid: Vec<(&SuperblockCopy, Superblock)> = Vec::new();
    let mut last = String::from("nothing could be read");
    for copy in copies {
        let read = |block| {
            Superblock::from_block(block).or_else(|damage| Superblock::mended(block).ok_or(damage))
        };
        match copy.block.as_deref().map(read) {
            Some(Ok(found)) if found.aggregate == *aggregate => valid.push((copy, found)),
            Some(Ok(_)) => {
                last = format!("disk {} slot {}: of another aggregate", copy.disk, copy.slot);
            }
            Some(Err(damage)) if damage.is_of_newer_build() => {
                return Err(AggregateError::Damaged { what: "a disk of the aggregate", damage });
            }
            Some(Err(damage)) => last = format!("disk {} slot {}: {damage}", copy.disk, copy.slot),
            None => last = format!("disk {} slot {}: cannot be read", copy.disk, copy.slot),
        }
    }
    let mut best: Option<(Superblock, usize)> = None;
    for (copy, found) in &valid {
        let is_older = |(best, _): &(Superblock, usize)| {
            let is_lower = best.cp() < found.cp();
            // Broken, the lowest wins.
            is_lower != mutation::broken(Rule::LowerSuperblockWins)
        };
        if best.as_ref().is_none_or(is_older) {
            best = Some((*found, copy.slot));
        }
    }
    let Some((superblock, slot)) = best else { return Err(AggregateError::NoSuperblock { last }) };
    let is_readable = |copy: &SuperblockCopy| {
        let block = copy.block.as_deref();
        let has_rotted = |block| {
            Superblock::has_rotted(block, superblock.cp())
                && !mutation::broken(Rule::RottenSlotIgnored)
        };
        block.is_some_and(|block| !has_rotted(block))
    };
    let tells = |copy: &SuperblockCopy| {
        is_readable(copy) && valid.iter().any(|(other, _)| other.disk == copy.disk)
    };
    let untold = copies.iter().find(|copy| {
        let same_slot = |other: &&SuperblockCopy| other.slot == copy.slot;
        !copies.iter().filter(same_slot).any(tells)
    });
    match untold {
        None => Ok((superblock, slot)),
        Some(_) if mutation::broken(Rule::UnreadableSlotIgnored) => Ok((superblock, slot)),
        Some(copy) => Err(AggregateError::SuperblockUnreadable {
            disk: copy.disk.clone(),
            slot: copy.slot,
            found: superblock.cp(),
        }),
    }
}

/// Whether a superblock slot holds a superblock, or was never written. Else a write of it was torn,
/// or it has rotted.
#[must_use]
pub fn is_whole_slot(block: &Block) -> bool {
    block.is_zero() || Superblock::from_block(block).is_ok()
}

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
    space.claim(0);
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
        };
        Ok((volume, container))
    }))?;
    let containers = containers.into_iter().collect();
    let mut refill = Refill::new(geometry);
    // Where disks have joined since, scores are not what TopAA says.
    if space.size_blocks == superblock.root.size_blocks.get() {
        refill.seed(&space, reader)?;
    } else {
        refill.touch();
    }
    let online = table.iter().filter(|slot| slot.record.state == STATE_ONLINE);
    let relocation = Relocation::of(online);
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
            Stop::Damaged(Pvbn(0))
        })?,
        None => VolumeRecord::empty(),
    };
    Ok(VolumeSlot { record })
}

/// The place of a VVBN's block: its container map entry.
///
/// # Errors
/// What to wait for.
pub fn container_lookup(
    volume: VolumeId,
    container: &Container,
    vvbn: u64,
    reader: &Reader<'_>,
) -> Progress<PhysicalPointer> {
    let inode = container_inode(volume);
    let key = FileKey { volume: VolumeId(0), inode, content: Content::Data };
    buftree::find(&container.root, &key, Fbn(vvbn), reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowfs::cache::BufferCache;
    use cowfs::reader::HeldBlocks;
    use std::sync::Arc;
    use units::Block;
    use units::CpNumber;

    const AGGREGATE: [u8; 16] = [7; 16];

    /// A slot of a disk with the superblock of a consistency point; `None`: it cannot be read.
    fn copy(disk: &str, slot: usize, cp: Option<u64>) -> SuperblockCopy {
        let block = cp.map(|cp| {
            let mut superblock = Superblock::new();
            superblock.aggregate = AGGREGATE;
            superblock.set_cp(CpNumber(cp));
            superblock.root.inode_file.kind = ondisk::inode::KIND_METAFILE;
            superblock.root.snapshot_table.kind = ondisk::inode::KIND_METAFILE;
            Arc::new(superblock.to_block())
        });
        SuperblockCopy { disk: disk.to_owned(), slot, block }
    }

    /// A slot that was never written, or was being written when the power went.
    fn empty(disk: &str, slot: usize) -> SuperblockCopy {
        SuperblockCopy { disk: disk.to_owned(), slot, block: Some(Block::shared(&[])) }
    }

    fn chosen(copies: &[SuperblockCopy]) -> Result<(u64, usize), (String, usize)> {
        match choose_superblock(copies, &AGGREGATE) {
            Ok((superblock, slot)) => Ok((superblock.cp().get(), slot)),
            Err(AggregateError::SuperblockUnreadable { disk, slot, .. }) => Err((disk, slot)),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_newest_superblock_of_any_disk_is_chosen() {
        let two = [copy("a", 0, Some(4)), copy("a", 1, Some(3))];
        assert_eq!(chosen(&two), Ok((4, 0)));
        let sealed_on_one = [
            copy("a", 0, Some(4)),
            copy("a", 1, Some(3)),
            copy("b", 0, Some(4)),
            copy("b", 1, Some(5)),
        ];
        assert_eq!(chosen(&sealed_on_one), Ok((5, 1)));
        assert_eq!(chosen(&[copy("a", 0, Some(1)), empty("a", 1)]), Ok((1, 0)));
    }

    /// The only disk opened with the image before the last one, of which blocks had been
    /// overwritten.
    #[test]
    fn regression_a_slot_that_cannot_be_read_is_not_older() {
        assert_eq!(chosen(&[copy("a", 0, Some(4)), copy("a", 1, None)]), Err(("a".to_owned(), 1)));
        // Another disk tells what was committed there.
        let told = [
            copy("a", 0, Some(4)),
            copy("a", 1, None),
            copy("b", 0, Some(4)),
            copy("b", 1, Some(3)),
        ];
        assert_eq!(chosen(&told), Ok((4, 0)));
        // Each tells of one slot, and both together of all.
        let apart =
            [copy("a", 0, Some(4)), copy("a", 1, None), copy("b", 0, None), copy("b", 1, Some(3))];
        assert_eq!(chosen(&apart), Ok((4, 0)));
        // A disk that has no superblock yet knows nothing.
        let newcomer = [copy("a", 0, Some(4)), copy("a", 1, None), empty("b", 0), empty("b", 1)];
        assert_eq!(chosen(&newcomer), Err(("a".to_owned(), 1)));
    }

    /// The newest superblock of the only disk had rotted, and the image before was opened.
    #[test]
    fn regression_a_superblock_that_has_rotted_is_not_older() {
        let rotten = |disk: &str, slot: usize, cp: u64| {
            let mut copy = copy(disk, slot, Some(cp));
            let block = copy.block.as_mut().map(Arc::make_mut);
            block.unwrap().bytes_mut()[300] ^= 1;
            copy
        };
        assert_eq!(chosen(&[copy("a", 0, Some(4)), rotten("a", 1, 5)]), Err(("a".to_owned(), 1)));
        assert_eq!(chosen(&[copy("a", 0, Some(4)), rotten("a", 1, 3)]), Ok((4, 0)));
        let told = [
            copy("a", 0, Some(4)),
            rotten("a", 1, 5),
            copy("b", 0, Some(4)),
            copy("b", 1, Some(5)),
        ];
        assert_eq!(chosen(&told), Ok((5, 1)));
        // Only its number has rotted.
        let mut number = copy("a", 1, Some(5));
        number.block.as_mut().map(Arc::make_mut).unwrap().bytes_mut()[48] ^= 1;
        assert_eq!(chosen(&[copy("a", 0, Some(4)), number]), Ok((5, 1)));
    }

    #[test]
    fn a_superblock_of_another_aggregate_counts_for_nothing() {
        let copies = [copy("a", 0, Some(4)), empty("a", 1)];
        let refused = choose_superblock(&copies, &[8; 16]);
        assert!(matches!(refused, Err(AggregateError::NoSuperblock { .. })));
    }

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
