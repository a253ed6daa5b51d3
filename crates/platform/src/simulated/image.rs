//! What a simulated disk holds: the durable image, and the completed writes above it.
//!
//! Invariants: `durable` is what survives any power cut; `volatile` holds, per block, the
//! completed writes that no flush covers, oldest first; blocks absent from both read as zero.

use crate::simulated::disk::SimulatedFaults;
use crate::simulated::world::WorldCounters;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{BLOCK_SIZE, Block, BlockRef, zero_block};

/// The unit that a device writes whole: a power cut never tears inside of it.
pub(super) const SECTOR_BYTES: usize = 512;

/// A completed write of one block that a power cut may still undo.
#[derive(Clone)]
pub(super) struct VolatileWrite {
    /// The count of writes that the disk had completed before this one.
    pub sequence: u64,
    /// What was written.
    pub content: BlockRef,
}

/// A disk's content and faults, as far as they outlive a power cut.
#[derive(Clone)]
pub(super) struct DiskImage {
    /// Size in blocks.
    pub size_blocks: u64,
    /// What survives.
    pub durable: BTreeMap<u64, BlockRef>,
    /// What a cut may undo.
    pub volatile: BTreeMap<u64, Vec<VolatileWrite>>,
    /// Writes completed, ever.
    pub writes_completed: u64,
    /// What is wrong with the disk.
    pub faults: SimulatedFaults,
}

/// A write that had been submitted and not completed.
#[derive(Clone)]
pub(super) struct GhostWrite {
    /// The disk's name.
    pub disk: Arc<str>,
    /// The first block.
    pub block: u64,
    /// The contents.
    pub blocks: Vec<BlockRef>,
}

/// All disks of a world at one moment, the submitted writes included: restore it, cut the power,
/// and see what recovery makes of it.
#[derive(Clone)]
pub struct WorldImage {
    pub(super) disks: BTreeMap<Arc<str>, DiskImage>,
    pub(super) ghosts: Vec<GhostWrite>,
}

impl DiskImage {
    pub(super) fn new(size_blocks: u64) -> Self {
        Self {
            size_blocks,
            durable: BTreeMap::new(),
            volatile: BTreeMap::new(),
            writes_completed: 0,
            faults: SimulatedFaults::default(),
        }
    }

    /// What a read of `block` sees.
    pub(super) fn current(&self, block: u64) -> BlockRef {
        self.volatile
            .get(&block)
            .and_then(|writes| writes.last())
            .map(|write| &write.content)
            .or_else(|| self.durable.get(&block))
            .map_or_else(zero_block, Arc::clone)
    }

    /// A write of `block` completes.
    pub(super) fn apply(&mut self, block: u64, content: BlockRef) {
        let sequence = self.writes_completed;
        self.writes_completed += 1;
        self.volatile.entry(block).or_default().push(VolatileWrite { sequence, content });
    }

    /// A flush that was submitted after `sequence_end` completed writes completes.
    pub(super) fn make_durable(&mut self, sequence_end: u64) {
        let durable = &mut self.durable;
        self.volatile.retain(|block, writes| {
            let covered = writes.partition_point(|write| write.sequence < sequence_end);
            if let Some(last) = writes.drain(..covered).next_back() {
                durable.insert(*block, last.content);
            }
            !writes.is_empty()
        });
    }

    /// The power goes: each write that no flush covers is kept, lost or torn.
    pub(super) fn cut(&mut self, judge: &mut Judge<'_>) {
        for (block, writes) in std::mem::take(&mut self.volatile) {
            for write in writes {
                self.settle(block, &write.content, judge);
            }
        }
    }

    /// Decides the fate of one write of one block.
    pub(super) fn settle(&mut self, block: u64, content: &BlockRef, judge: &mut Judge<'_>) {
        let choice = match judge.fate {
            Fate::Each => judge.random.next_u32() % 3,
            Fate::AllLost => 0,
            Fate::AllKept => 1,
            Fate::AllTorn => 2,
            Fate::KeptOnOne(_) => unreachable!("a disk's own fate is all or nothing"),
        };
        match choice {
            0 => judge.counters.lost_at_cuts += 1,
            1 => {
                judge.counters.kept_at_cuts += 1;
                self.durable.insert(block, Arc::clone(content));
            }
            _ => {
                judge.counters.torn_at_cuts += 1;
                let old = self.durable.get(&block).map_or_else(zero_block, Arc::clone);
                self.durable.insert(block, Arc::new(torn(&old, content, judge.random)));
            }
        }
    }

    /// Changes what is stored, wherever it is, behind everyone's back.
    pub(super) fn corrupt(&mut self, block: u64, change: impl FnOnce(&mut Block)) {
        let mut content = Block::clone(&self.current(block));
        change(&mut content);
        self.volatile.remove(&block);
        self.durable.insert(block, Arc::new(content));
    }
}

/// What a power cut does to the writes that no flush covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fate {
    /// Each block is kept, lost or torn, by itself: what writes in any order leave.
    #[default]
    Each,
    /// Nothing was written.
    AllLost,
    /// All is there, what was under way as well.
    AllKept,
    /// Each block is partly there.
    AllTorn,
    /// All is there on one disk, by its place in the order of names, and nothing on the others:
    /// what was about to be on all disks is on one.
    KeptOnOne(usize),
}

impl Fate {
    /// What becomes of the writes of one disk, by its place in the order of names.
    pub(super) const fn of_disk(self, place: usize) -> Self {
        match self {
            Self::KeptOnOne(kept) if kept == place => Self::AllKept,
            Self::KeptOnOne(_) => Self::AllLost,
            fate => fate,
        }
    }
}

/// Decides fates.
pub(super) struct Judge<'a> {
    pub fate: Fate,
    pub random: &'a mut ChaCha8Rng,
    pub counters: &'a mut WorldCounters,
}

/// Each sector from `old` or `new`.
fn torn(old: &Block, new: &Block, random: &mut ChaCha8Rng) -> Block {
    let choice = random.next_u32();
    let mut result = old.clone();
    for sector in 0..BLOCK_SIZE / SECTOR_BYTES {
        if choice >> sector & 1 == 1 {
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            result[range.clone()].copy_from_slice(&new[range]);
        }
    }
    result
}
