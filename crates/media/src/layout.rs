//! Where things lie on a device.

use ondisk::identity::{REGION_BLOCKS, REGION_DATA_BLOCKS};
use std::ops::Range;
use units::Dbn;

/// The label's first copy. The second is in the last block.
pub const LABEL_BLOCK: u64 = 0;
/// The first superblock slot. Apart from the label by more than any write that tears.
pub const SUPERBLOCK_BLOCK: u64 = 8;
/// Superblock slots: consistency points alternate, so the one before the last is always whole.
pub const SUPERBLOCK_SLOTS: usize = 2;
/// The first block of the data area. What is reserved and unused is for later formats.
pub const DATA_START: u64 = 16;
/// Blocks reserved at the end: the label's second copy.
pub const RESERVED_END_BLOCKS: u64 = 1;
/// The smallest disk, 16 MiB: four of them make an aggregate of 64 MiB, and below that metadata
/// would be most of what is stored.
pub const DISK_BLOCKS_MIN: u64 = 4096;

const REGION_BLOCKS_U64: u64 = REGION_BLOCKS as u64;

const _: () = {
    assert!(SUPERBLOCK_BLOCK + SUPERBLOCK_SLOTS as u64 <= DATA_START);
    assert!(DISK_BLOCKS_MIN >= DATA_START + REGION_BLOCKS_U64 + RESERVED_END_BLOCKS);
};

/// Regions that a disk of `size_blocks` has room for.
#[must_use]
pub const fn regions_of(size_blocks: u64) -> u64 {
    size_blocks.saturating_sub(DATA_START + RESERVED_END_BLOCKS) / REGION_BLOCKS_U64
}

/// Device blocks of a disk's data area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceLayout {
    /// Regions in use; a disk may have room for more than its group uses.
    pub regions: u64,
    /// Regions behind them in which a copy of the aggregate's log may be.
    pub log_regions: u64,
}

impl DeviceLayout {
    /// Blocks of a disk that has so many regions and nothing more.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.log_blocks().end + RESERVED_END_BLOCKS
    }

    /// The device blocks in which a copy of the log may be.
    #[must_use]
    pub const fn log_blocks(&self) -> Range<u64> {
        let start = DATA_START + self.regions * REGION_BLOCKS_U64;
        start..start + self.log_regions * REGION_BLOCKS_U64
    }

    /// Data blocks, checksum blocks not counted.
    #[must_use]
    pub const fn data_blocks(&self) -> u64 {
        self.regions * REGION_DATA_BLOCKS as u64
    }

    /// The device block of the region's first data block.
    ///
    /// # Panics
    /// If there is no such region.
    #[must_use]
    pub const fn region_start(&self, region: u64) -> u64 {
        assert!(region < self.regions);
        DATA_START + region * REGION_BLOCKS_U64
    }

    /// The device block of the region's checksum block.
    #[must_use]
    pub const fn checksum_block(&self, region: u64) -> u64 {
        self.region_start(region) + REGION_DATA_BLOCKS as u64
    }

    /// The device block of a data block.
    #[must_use]
    pub const fn data_block(&self, dbn: Dbn) -> u64 {
        let (index, per_region) = (dbn.get(), REGION_DATA_BLOCKS as u64);
        self.region_start(index / per_region) + index % per_region
    }
}
