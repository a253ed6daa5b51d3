//! Which object holds a block, and what it is called.
//!
//! The blocks before the data area and the last one (labels and superblocks, `media::layout`) are
//! objects of their own, so that writing one of them does not put 4 MiB. Data objects begin with
//! the data area, so that no region straddles two.
//!
//! Invariants: every block of the disk is in exactly one object; keys are of one width and sort as
//! their blocks do.

use media::{DATA_START, RESERVED_END_BLOCKS};
use ondisk::object_range::OBJECT_TRAILER_BYTES;
use std::ops::Range;
use units::BLOCK_SIZE_U64;

/// The object with the descriptor.
pub(crate) const DESCRIPTOR_KEY: &str = "disk";
/// The object with the lease.
pub(crate) const LEASE_KEY: &str = "lease";

const _: () = assert!(RESERVED_END_BLOCKS == 1 && DATA_START <= 100);

/// An object with blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ObjectId {
    /// One block before the data area.
    Head(u64),
    /// Blocks of the data area.
    Data(u64),
    /// The last block.
    Tail,
}

impl ObjectId {
    /// Its key below the prefix.
    pub(crate) fn key(self) -> String {
        match self {
            Self::Head(block) => format!("head-{block:02}"),
            Self::Data(index) => format!("data-{index:016x}"),
            Self::Tail => "tail".to_owned(),
        }
    }
}

/// How a disk of some size is cut into objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) size_blocks: u64,
    pub(crate) blocks_per_object: u32,
}

/// Consecutive blocks of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) object: ObjectId,
    /// The first block's number on the disk.
    pub(crate) block: u64,
    /// The blocks' numbers in the object.
    pub(crate) within: Range<u32>,
}

impl Geometry {
    /// The object of a block, and the block's number in it.
    pub(crate) fn place(&self, block: u64) -> (ObjectId, u32) {
        assert!(block < self.size_blocks, "block {block} of {}", self.size_blocks);
        if block < DATA_START {
            return (ObjectId::Head(block), 0);
        }
        if block == self.tail_block() {
            return (ObjectId::Tail, 0);
        }
        let (index, within) = self.split(block - DATA_START);
        (ObjectId::Data(index), within)
    }

    fn split(&self, data_block: u64) -> (u64, u32) {
        let per_object = u64::from(self.blocks_per_object);
        let Ok(within) = u32::try_from(data_block % per_object) else {
            unreachable!("less than a number of 32 bits")
        };
        (data_block / per_object, within)
    }

    fn tail_block(&self) -> u64 {
        self.size_blocks - RESERVED_END_BLOCKS
    }

    /// How many blocks an object holds.
    pub(crate) fn blocks_of(&self, object: ObjectId) -> u32 {
        match object {
            ObjectId::Head(_) | ObjectId::Tail => 1,
            ObjectId::Data(index) => {
                let start = DATA_START + index * u64::from(self.blocks_per_object);
                let left = self.tail_block().saturating_sub(start);
                u32::try_from(left)
                    .map_or(self.blocks_per_object, |left| left.min(self.blocks_per_object))
            }
        }
    }

    /// How long an object is: its blocks, and the mark of the opening that put it.
    pub(crate) fn bytes_of(&self, object: ObjectId) -> u64 {
        u64::from(self.blocks_of(object)) * BLOCK_SIZE_U64 + OBJECT_TRAILER_BYTES
    }

    /// The disk's block with this number in an object.
    pub(crate) fn block(&self, object: ObjectId, within: u32) -> u64 {
        match object {
            ObjectId::Head(block) => block,
            ObjectId::Tail => self.tail_block(),
            ObjectId::Data(index) => {
                DATA_START + index * u64::from(self.blocks_per_object) + u64::from(within)
            }
        }
    }

    /// The objects of one block.
    pub(crate) fn single_blocks(&self) -> impl Iterator<Item = ObjectId> {
        (0..DATA_START).map(ObjectId::Head).chain([ObjectId::Tail])
    }

    /// Blocks of the disk, object by object. Past its end there are none.
    pub(crate) fn extents(&self, block: u64, count: u64) -> impl Iterator<Item = Extent> {
        let geometry = *self;
        let end = block.saturating_add(count).min(self.size_blocks);
        let mut next = block;
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let (object, start) = geometry.place(next);
            let left = geometry.blocks_of(object) - start;
            let count = u32::try_from(end - next).map_or(left, |count| count.min(left));
            let extent = Extent { object, block: next, within: start..start + count };
            next += u64::from(count);
            Some(extent)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_block_has_one_place() {
        for size_blocks in [DATA_START + 1 + 64, DATA_START + 1 + 3 * 1024, 4096] {
            let geometry = Geometry { size_blocks, blocks_per_object: 1024 };
            let mut seen: BTreeMap<ObjectId, u32> = BTreeMap::new();
            let mut keys = Vec::new();
            for block in 0..size_blocks {
                let (object, within) = geometry.place(block);
                assert_eq!(geometry.block(object, within), block);
                assert!(within < geometry.blocks_of(object), "{block}");
                *seen.entry(object).or_default() += 1;
                keys.push(object.key());
            }
            for (object, blocks) in seen {
                assert_eq!(geometry.blocks_of(object), blocks, "{object:?}");
            }
            let extents: Vec<Extent> = geometry.extents(0, u64::MAX).collect();
            let mut next = 0;
            for extent in &extents {
                assert_eq!((extent.block, extent.within.start), (next, 0));
                next += u64::from(extent.within.end);
            }
            assert_eq!(next, size_blocks);
        }
    }

    #[test]
    fn regions_do_not_straddle_objects_and_keys_sort() {
        let geometry = Geometry { size_blocks: 1 << 30, blocks_per_object: 1024 };
        let layout = media::DeviceLayout { regions: 1000, log_regions: 0 };
        for region in 0..1000 {
            let start = layout.region_start(region);
            assert_eq!(geometry.extents(start, 64).count(), 1);
        }
        assert_eq!(ObjectId::Head(7).key(), "head-07");
        let keys = [1, 9, 10, 255, 256, 1 << 40].map(|index| ObjectId::Data(index).key());
        assert!(keys.is_sorted() && keys.iter().all(|key| key.len() == 21));
    }
}
