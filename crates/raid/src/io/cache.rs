//! A few checksum blocks in memory, so that not every partial write and every proof by identity
//! reads one.
//!
//! Invariants: a cached block is what the disk's region has, or what a missing disk would have
//! there. Readers do not exclude writers. So a block from a reader is cached only if no write of
//! the tetris began or ended meanwhile; generations tell. A reader does not compare with parity, so
//! it may have read an old block whose last write was lost. Writers fold the block into new parity,
//! so they use only blocks that a writer cached. The caches of a node's aggregates share a
//! [`ChecksumMemory`].

use crate::layout::TetrisId;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use units::BlockRef;

/// Blocks in the cache: 16 MiB, the identities of a GiB.
const CACHED_BLOCKS_MAX: usize = 4096;

/// What a cache has that shares with nobody: of a store that is not in service yet, or no more.
const UNSHARED_BLOCKS_MAX: usize = 64;
/// The least that caches share: some tetrises.
const SHARED_BLOCKS_MIN: usize = 64;
/// Blocks that a cache which has too many lets go of at once, so that nobody waits for it.
const SURPLUS_MAX: usize = 2;
/// And in a tick.
const TICK_SURPLUS_MAX: usize = 64;

/// How many checksum blocks the aggregates of a node may have in memory.
///
/// Each may have its part of them. It may have more as long as all together have no more than they
/// may, and gives that back within some ticks when others want theirs.
#[derive(Debug)]
pub struct ChecksumMemory {
    blocks_max: usize,
    blocks: AtomicUsize,
    caches: AtomicUsize,
}

impl ChecksumMemory {
    /// Room for so many blocks, or a few more.
    #[must_use]
    pub const fn new(blocks_max: usize) -> Self {
        let most = if blocks_max < SHARED_BLOCKS_MIN { SHARED_BLOCKS_MIN } else { blocks_max };
        Self { blocks_max: most, blocks: AtomicUsize::new(0), caches: AtomicUsize::new(0) }
    }

    /// Whether a cache of so many has too many.
    fn is_over(&self, blocks: usize) -> bool {
        let part = self.blocks_max / self.caches.load(Ordering::Relaxed).max(1);
        let all = self.blocks.load(Ordering::Relaxed);
        blocks > CACHED_BLOCKS_MAX || blocks > part && all > self.blocks_max
    }
}

/// Counters of writes. Tetrises share them by number: a collision costs a read, no more.
const GENERATIONS_COUNT: usize = 256;

type Key = (TetrisId, usize);

struct Cached {
    block: BlockRef,
    is_from_writer: bool,
}

/// Checksum blocks by tetris and disk.
pub(crate) struct ChecksumCache {
    memory: Arc<ChecksumMemory>,
    blocks: HashMap<Key, Cached>,
    /// Oldest first. First in, first out: a region's write burst is what the cache is for.
    order: VecDeque<Key>,
    generations: [u64; GENERATIONS_COUNT],
}

impl ChecksumCache {
    /// An empty one, with little memory of its own.
    pub(crate) fn new() -> Self {
        let memory = Arc::new(ChecksumMemory::new(UNSHARED_BLOCKS_MAX));
        memory.caches.fetch_add(1, Ordering::Relaxed);
        let (blocks, order) = (HashMap::new(), VecDeque::new());
        Self { memory, blocks, order, generations: [0; GENERATIONS_COUNT] }
    }

    /// From now on it shares memory with others.
    pub(crate) fn share(&mut self, memory: &Arc<ChecksumMemory>) {
        self.leave();
        self.memory = Arc::clone(memory);
        memory.caches.fetch_add(1, Ordering::Relaxed);
        memory.blocks.fetch_add(self.order.len(), Ordering::Relaxed);
    }

    fn leave(&self) {
        self.memory.blocks.fetch_sub(self.order.len(), Ordering::Relaxed);
        self.memory.caches.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives back some of what others want.
    pub(crate) fn tick(&mut self) {
        self.shrink(TICK_SURPLUS_MAX);
    }

    /// Forgets the oldest blocks while there are too many, so many at most.
    fn shrink(&mut self, blocks_max: usize) {
        for _ in 0..blocks_max {
            if !self.memory.is_over(self.order.len()) {
                return;
            }
            let Some(oldest) = self.order.pop_front() else { return };
            self.blocks.remove(&oldest);
            self.memory.blocks.fetch_sub(1, Ordering::Relaxed);
        }
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
        self.memory.blocks.fetch_add(1, Ordering::Relaxed);
        self.shrink(SURPLUS_MAX);
    }

    /// Forgets a tetris: what its disks hold is not known.
    pub(crate) fn forget(&mut self, tetris: TetrisId) {
        let before = self.blocks.len();
        self.blocks.retain(|key, _| key.0 != tetris);
        let forgotten = before - self.blocks.len();
        if forgotten > 0 {
            self.order.retain(|key| key.0 != tetris);
            self.memory.blocks.fetch_sub(forgotten, Ordering::Relaxed);
        }
    }

    /// Forgets one disk's.
    pub(crate) fn forget_disk(&mut self, tetris: TetrisId, disk: usize) {
        if self.blocks.remove(&(tetris, disk)).is_some() {
            self.order.retain(|key| *key != (tetris, disk));
            self.memory.blocks.fetch_sub(1, Ordering::Relaxed);
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

impl Drop for ChecksumCache {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::zero_block;

    fn fill(cache: &mut ChecksumCache, count: u64) {
        for region in 0..count {
            cache.insert_from_reader(TetrisId { group: 0, region }, 0, zero_block());
        }
    }

    fn blocks(memory: &ChecksumMemory) -> usize {
        memory.blocks.load(Ordering::Relaxed)
    }

    #[test]
    fn one_cache_has_all_of_the_memory_and_several_their_parts() {
        let memory = Arc::new(ChecksumMemory::new(100));
        let mut caches: Vec<_> = (0..4).map(|_| ChecksumCache::new()).collect();
        for cache in &mut caches {
            cache.share(&memory);
            fill(cache, 1000);
            assert_eq!(cache.blocks.len(), cache.order.len());
            // The oldest went.
            assert!(cache.get(TetrisId { group: 0, region: 999 }, 0).is_some());
            assert!(cache.get(TetrisId { group: 0, region: 0 }, 0).is_none());
        }
        let lengths = |caches: &[ChecksumCache]| {
            caches.iter().map(|cache| cache.order.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&caches), [100, 50, 33, 25]);
        // Caches that came first give back the blocks beyond their part, though they insert none.
        for _ in 0..2 {
            caches.iter_mut().for_each(ChecksumCache::tick);
        }
        assert!(blocks(&memory) <= 100, "{:?}", lengths(&caches));
        assert!(lengths(&caches).iter().all(|blocks| *blocks >= 25));
    }

    #[test]
    fn a_cache_that_has_too_many_lets_go_of_few_at_once() {
        let memory = Arc::new(ChecksumMemory::new(1000));
        let mut caches = [ChecksumCache::new(), ChecksumCache::new()];
        for cache in &mut caches {
            cache.share(&memory);
            fill(cache, 1000);
        }
        let before = caches[0].order.len();
        caches[0].insert_from_reader(TetrisId { group: 1, region: 0 }, 0, zero_block());
        assert_eq!(caches[0].order.len(), before + 1 - SURPLUS_MAX);
        caches[0].tick();
        assert_eq!(caches[0].order.len(), before + 1 - SURPLUS_MAX - TICK_SURPLUS_MAX);
    }

    #[test]
    fn what_is_forgotten_counts_no_more() {
        let memory = Arc::new(ChecksumMemory::new(100));
        let mut cache = ChecksumCache::new();
        fill(&mut cache, 50);
        cache.share(&memory);
        assert_eq!(blocks(&memory), 50);
        let (first, second) = (TetrisId { group: 0, region: 0 }, TetrisId { group: 0, region: 1 });
        cache.insert_from_writer(first, 1, zero_block());
        cache.forget(first);
        cache.forget_disk(second, 0);
        cache.forget_disk(second, 0);
        assert_eq!((blocks(&memory), cache.order.len()), (48, 48));
        drop(cache);
        assert_eq!((blocks(&memory), memory.caches.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_cache_has_its_most_however_much_memory_there_is() {
        let memory = Arc::new(ChecksumMemory::new(1 << 20));
        let mut cache = ChecksumCache::new();
        cache.share(&memory);
        fill(&mut cache, CACHED_BLOCKS_MAX as u64 + 10);
        assert_eq!(cache.order.len(), CACHED_BLOCKS_MAX);
    }
}
