//! A few checksum blocks in memory, so that not every partial write and every proof by identity
//! reads one.
//!
//! Invariants: a cached block is what the disk's region has, or what a missing disk would have
//! there. Readers do not exclude writers. So a block from a reader is cached only if no write of
//! the tetris began or ended meanwhile; generations tell. A reader does not compare with parity, so
//! it may have read an old block whose last write was lost. Writers fold the block into new parity,
//! so they use only blocks that a writer cached.

use crate::layout::TetrisId;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use units::BlockRef;

/// Blocks in the cache: 16 MiB, the identities of a GiB.
const CACHED_BLOCKS_MAX: usize = 4096;

/// Counters of writes. Tetrises share them by number: a collision costs a read, no more.
const GENERATIONS_COUNT: usize = 256;

type Key = (TetrisId, usize);

struct Cached {
    block: BlockRef,
    is_from_writer: bool,
}

/// Checksum blocks by tetris and disk.
pub(crate) struct ChecksumCache {
    blocks: HashMap<Key, Cached>,
    /// Oldest first. First in, first out: a region's write burst is what the cache is for.
    order: VecDeque<Key>,
    generations: [u64; GENERATIONS_COUNT],
}

impl ChecksumCache {
    pub(crate) fn new() -> Self {
        Self { blocks: HashMap::new(), order: VecDeque::new(), generations: [0; GENERATIONS_COUNT] }
    }

    /// For proving a block that was read.
    pub(crate) fn get(&self, tetris: TetrisId, disk: usize) -> Option<BlockRef> {
        self.blocks.get(&(tetris, disk)).map(|cached| Arc::clone(&cached.block))
    }

    /// For folding into parity.
    pub(crate) fn get_from_writer(&self, tetris: TetrisId, disk: usize) -> Option<BlockRef> {
        let cached = self.blocks.get(&(tetris, disk)).filter(|cached| cached.is_from_writer);
        cached.map(|cached| Arc::clone(&cached.block))
    }

    pub(crate) fn insert_from_writer(&mut self, tetris: TetrisId, disk: usize, block: BlockRef) {
        self.insert((tetris, disk), Cached { block, is_from_writer: true });
    }

    /// What a writer put in stays.
    pub(crate) fn insert_from_reader(&mut self, tetris: TetrisId, disk: usize, block: BlockRef) {
        let key = (tetris, disk);
        if self.blocks.get(&key).is_none_or(|cached| !cached.is_from_writer) {
            self.insert(key, Cached { block, is_from_writer: false });
        }
    }

    fn insert(&mut self, key: Key, cached: Cached) {
        if self.blocks.insert(key, cached).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > CACHED_BLOCKS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.blocks.remove(&oldest);
        }
    }

    /// Forgets a tetris: what its disks hold is not known.
    pub(crate) fn forget(&mut self, tetris: TetrisId) {
        self.blocks.retain(|key, _| key.0 != tetris);
        self.order.retain(|key| key.0 != tetris);
    }

    /// Forgets one disk's.
    pub(crate) fn forget_disk(&mut self, tetris: TetrisId, disk: usize) {
        if self.blocks.remove(&(tetris, disk)).is_some() {
            self.order.retain(|key| *key != (tetris, disk));
        }
    }

    pub(crate) fn generation(&self, tetris: TetrisId) -> u64 {
        self.generations[Self::index(tetris)]
    }

    /// A write of the tetris begins or ends.
    pub(crate) fn advance_generation(&mut self, tetris: TetrisId) {
        self.generations[Self::index(tetris)] += 1;
    }

    fn index(tetris: TetrisId) -> usize {
        (tetris.region.wrapping_add(u64::from(tetris.group)) % GENERATIONS_COUNT as u64) as usize
    }
}
