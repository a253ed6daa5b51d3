//! A handle on a simulated disk, and what can be wrong with one.

use crate::simulated::world::{Request, RequestBody, SimulatedWorld};
use crate::{Disk, MediaHints, ReadDone, WriteDone};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::BlockRef;

/// Blocks that would give their room back together: little, so that small disks have many units.
const DISCARD_UNIT_BLOCKS: u64 = 128;

/// How often, of a million blocks, a fault happens by itself; zero by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    /// A block that was read has become unreadable; a write heals it.
    pub latent_error_per_million: u32,
    /// A block that was read has one bit flipped, for good.
    pub bit_flip_per_million: u32,
    /// A write of a block is acknowledged and not applied.
    pub lost_write_per_million: u32,
    /// A write of a block is acknowledged and applied to another block.
    pub misdirected_write_per_million: u32,
    /// A write request or a flush is refused; of a million requests, not blocks.
    pub write_error_per_million: u32,
}

/// What is wrong with a disk.
#[derive(Clone, Default)]
pub(super) struct SimulatedFaults {
    /// Blocks that give an error when read; a write heals them.
    pub unreadable: BTreeSet<u64>,
    /// Blocks whose writes fail.
    pub unwritable: BTreeSet<u64>,
    /// Blocks whose next write is lost.
    pub lose_next: BTreeSet<u64>,
    /// Blocks whose next write goes elsewhere.
    pub misdirect_next: BTreeMap<u64, u64>,
    /// The disk does not answer but with [`crate::DiskError::Gone`].
    pub gone: bool,
    /// What happens by itself.
    pub rates: FaultRates,
}

/// A disk of a [`SimulatedWorld`].
#[derive(Clone)]
pub struct SimulatedDisk {
    world: SimulatedWorld,
    name: Arc<str>,
    size_blocks: u64,
    epoch: u64,
}

impl SimulatedDisk {
    pub(super) fn new(world: SimulatedWorld, name: Arc<str>, size_blocks: u64, epoch: u64) -> Self {
        Self { world, name, size_blocks, epoch }
    }

    fn submit(&self, body: RequestBody) {
        let (disk, epoch) = (Arc::clone(&self.name), self.epoch);
        self.world.submit(Request { disk, epoch, since_nanoseconds: 0, body });
    }
}

impl Disk for SimulatedDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_blocks(&self) -> u64 {
        self.size_blocks
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        self.submit(RequestBody::Read { block, count, done });
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.submit(RequestBody::Write { block, blocks, done: Some(done) });
    }

    fn flush(&self, done: WriteDone) {
        // The world fills in what the flush covers.
        self.submit(RequestBody::Flush { sequence_end: 0, done });
    }

    fn discard(&self, block: u64, count_blocks: u64) {
        self.world.discard(&self.name, self.epoch, block, count_blocks);
    }

    fn hints(&self) -> MediaHints {
        MediaHints { discard_unit_blocks: Some(DISCARD_UNIT_BLOCKS), ..MediaHints::default() }
    }
}
