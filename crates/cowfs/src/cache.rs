//! The buffer cache: clean blocks by where they lie in the aggregate, under a hard cap.
//!
//! A block at a PVBN never changes while anything points at it, so the cache needs no invalidation:
//! snapshots and the active image share entries, and an entry whose proof differs from the asker's
//! pointer is simply not the block that was asked for. Dirty blocks are not here; they wait in the
//! overlays of their files ([`crate::overlay`]) until a consistency point places them.
//!
//! This is the one structure that all affinities share: hybrid access in the sense of Waffinity
//! section 5, by short locks over shards, of which neighbours share one.
//!
//! Blocks are elsewhere, too: dirty, on their way to a client or a disk, in a log batch. Where
//! memory has a hard cap the cache is given a [`BlockGauge`], which counts them all, and takes
//! what the others leave: at the cap each block that comes in replaces one, and above it two.
//!
//! All aggregates of a node use one cache, each through a [`BufferCache`] of its own: their PVBNs
//! are the same numbers, and a proof may have 16 bits, so it does not tell them apart. Each has a
//! *space*, which is part of the numbers in the shards. An aggregate that is closed leaves nothing.
//!
//! Invariants: never more than `capacity_blocks` blocks; the replacement is CLOCK (second chance),
//! and of up to a quarter of the blocks it leaves metadata alone;
//! nothing that was put in through one is found through another.

mod moved;
mod shard;

use moved::Moved;
use ondisk::pointer::BLOCK_NUMBER_MAX;
use platform::sync::{Mutex, RwLock};
use shard::{Gone, RUN_BLOCKS, Shard};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{BlockRef, Pvbn};

/// Shards of a large cache: more than processors that meet in it.
const SHARDS_MAX: usize = 64;
/// Blocks that a shard has at least, so that a small cache is not cut into pieces of chance size.
const SHARD_BLOCKS_MIN: usize = 512;
/// Blocks that go for one that comes when there are too many: two, so that the cache shrinks as
/// fast as others grow.
const SURPLUS_MAX: u64 = 2;
/// Spaces that are in use at a time: what a number in a shard has room for beside a PVBN.
const SPACES_MAX: u64 = u64::MAX / BLOCK_NUMBER_MAX;

/// What a block is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Content of files.
    Data,
    /// What leads to content: nodes of trees and the files of the file system itself.
    Metadata,
}

/// Counts the blocks of a node, whoever has them.
#[derive(Clone, Copy, Debug)]
pub struct BlockGauge {
    /// Blocks that live now, or nearly so many.
    pub live_blocks: fn() -> u64,
    /// How many there may be.
    pub blocks_max: u64,
}

impl BlockGauge {
    fn excess_blocks(&self) -> u64 {
        (self.live_blocks)().saturating_sub(self.blocks_max)
    }
}

/// What all aggregates share.
struct Shards {
    shards: Vec<Mutex<Shard>>,
    capacity_blocks: u64,
    gauge: Option<BlockGauge>,
    /// Spaces in use.
    spaces: Mutex<BTreeSet<u64>>,
}

impl Shards {
    fn shard(&self, number: Pvbn) -> &Mutex<Shard> {
        let hash = shard::hash(number.get() / RUN_BLOCKS) >> 58;
        &self.shards[hash as usize & (self.shards.len() - 1)]
    }

    /// A space that nobody has.
    fn take_space(&self) -> u64 {
        let mut spaces = self.spaces.lock();
        let free = (0..SPACES_MAX).find(|space| !spaces.contains(space));
        let Some(space) = free else { panic!("{SPACES_MAX} aggregates are open, the most") };
        spaces.insert(space);
        space
    }

    /// Nobody has a space any more.
    fn leave_space(&self, space: u64) {
        for shard in &self.shards {
            let gone = shard.lock().remove_all(|number| number.get() / BLOCK_NUMBER_MAX == space);
            drop(gone);
        }
        self.spaces.lock().remove(&space);
    }
}

/// See the module.
pub struct BufferCache {
    shared: Arc<Shards>,
    space: u64,
    moved: RwLock<Moved>,
    /// Whether anything was moved: nobody asks for a lock before.
    has_moved: AtomicBool,
}

impl BufferCache {
    /// A cache of at most `capacity_blocks` blocks, and of one.
    #[must_use]
    pub fn new(capacity_blocks: usize) -> Self {
        Self::first(capacity_blocks, None)
    }

    /// A cache of what others leave of the blocks that `gauge` counts.
    #[must_use]
    pub fn with_gauge(gauge: BlockGauge) -> Self {
        Self::first(gauge.blocks_max as usize, Some(gauge))
    }

    fn first(capacity_blocks: usize, gauge: Option<BlockGauge>) -> Self {
        let count = (capacity_blocks / SHARD_BLOCKS_MIN).clamp(1, SHARDS_MAX).next_power_of_two();
        let blocks_max = (capacity_blocks / count).max(1);
        let shards = (0..count).map(|_| Mutex::new(Shard::new(blocks_max))).collect();
        let (capacity_blocks, spaces) = (capacity_blocks as u64, Mutex::default());
        Self::in_space(Arc::new(Shards { shards, capacity_blocks, gauge, spaces }))
    }

    fn in_space(shared: Arc<Shards>) -> Self {
        let space = shared.take_space();
        Self { shared, space, moved: RwLock::default(), has_moved: AtomicBool::new(false) }
    }

    /// A PVBN as the shards know it.
    const fn number(&self, pvbn: Pvbn) -> Pvbn {
        debug_assert!(pvbn.get() < BLOCK_NUMBER_MAX);
        Pvbn(self.space * BLOCK_NUMBER_MAX + pvbn.get())
    }

    /// The same cache for an aggregate of its own.
    #[must_use]
    pub fn of_another(&self) -> Self {
        Self::in_space(Arc::clone(&self.shared))
    }

    /// The block at `pvbn` with this proof, if it is here, or the one that was moved from there.
    #[must_use]
    pub fn get(&self, pvbn: Pvbn, check: u32) -> Option<BlockRef> {
        let number = self.number(pvbn);
        let found = self.shared.shard(number).lock().get(number, check);
        if found.is_some() || !self.has_moved.load(Ordering::Relaxed) {
            return found;
        }
        let number = self.number(self.moved(pvbn, check)?);
        self.shared.shard(number).lock().get(number, check)
    }

    /// Where the block lies that a pointer says is at `hint`, if it is known to have moved.
    #[must_use]
    pub fn moved(&self, hint: Pvbn, check: u32) -> Option<Pvbn> {
        if !self.has_moved.load(Ordering::Relaxed) {
            return None;
        }
        self.moved.read().get(hint, check)
    }

    /// A block that pointers say is at `hint` lies elsewhere.
    pub fn note_moved(&self, hint: Pvbn, check: u32, place: Pvbn) {
        self.moved.write().note(hint, check, place);
        self.has_moved.store(true, Ordering::Relaxed);
    }

    /// Puts a block in, in place of what was known of its PVBN.
    pub fn insert(&self, pvbn: Pvbn, (check, class): (u32, Class), block: BlockRef) {
        // The block itself lives already, so at the cap this counts one too many.
        let surplus = self.shared.gauge.map_or(0, |gauge| gauge.excess_blocks().min(SURPLUS_MAX));
        // What goes is freed outside the lock.
        let mut gone = Gone::new();
        let number = self.number(pvbn);
        let mut shard = self.shared.shard(number).lock();
        gone.extend((0..surplus).map_while(|_| shard.evict()));
        shard.insert(number, (check, class), block, &mut gone);
        drop(shard);
        drop(gone);
    }

    /// Lets go of blocks until `more` others have room beside what lives now. Nothing without a
    /// gauge, which a node with a cap has.
    pub fn make_room(&self, more: u64) {
        let Some(gauge) = self.shared.gauge else { return };
        let live_blocks = (gauge.live_blocks)().saturating_add(more);
        let mut surplus = live_blocks.saturating_sub(gauge.blocks_max);
        while surplus > 0 {
            let before = surplus;
            for shard in &self.shared.shards {
                let gone = shard.lock().evict();
                surplus = surplus.saturating_sub(u64::from(gone.is_some()));
            }
            if surplus == before {
                // It is empty.
                return;
            }
        }
    }

    /// Forgets a PVBN.
    pub fn remove(&self, pvbn: Pvbn) {
        let number = self.number(pvbn);
        let gone = self.shared.shard(number).lock().remove(number);
        drop(gone);
    }

    /// How many blocks may be in it, those of all aggregates.
    #[must_use]
    pub fn capacity_blocks(&self) -> u64 {
        self.shared.capacity_blocks
    }

    /// Blocks in the cache, those of all aggregates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for BufferCache {
    fn drop(&mut self) {
        self.shared.leave_space(self.space);
    }
}

impl fmt::Debug for BufferCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BufferCache").field("space", &self.space).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use units::Block;

    #[test]
    fn the_cache_takes_what_others_leave() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static OTHERS: AtomicU64 = AtomicU64::new(0);
        static CACHED: AtomicU64 = AtomicU64::new(0);
        const BLOCKS_MAX: u64 = 64 * 64;
        let live_blocks = || OTHERS.load(Ordering::Relaxed) + CACHED.load(Ordering::Relaxed);
        let cache = BufferCache::with_gauge(BlockGauge { live_blocks, blocks_max: BLOCKS_MAX });
        let mut next = 1;
        let mut insert = |count: u64| {
            for pvbn in next..next + count {
                CACHED.fetch_add(1, Ordering::Relaxed);
                cache.insert(Pvbn(pvbn), (1, Class::Data), Arc::new(Block::zeroed()));
                CACHED.store(cache.len() as u64, Ordering::Relaxed);
            }
            next += count;
            cache.len() as u64
        };
        assert!(insert(3 * BLOCKS_MAX) >= BLOCKS_MAX * 7 / 8);
        // Others take three quarters: within as many blocks the cache is down to the rest.
        OTHERS.store(BLOCKS_MAX / 4 * 3, Ordering::Relaxed);
        let left = insert(BLOCKS_MAX);
        assert!(left <= BLOCKS_MAX / 4 + 1, "{left} blocks of {BLOCKS_MAX}");
        OTHERS.store(0, Ordering::Relaxed);
        assert!(insert(3 * BLOCKS_MAX) >= BLOCKS_MAX * 7 / 8, "and grows again");
    }

    #[test]
    fn aggregates_do_not_find_each_others_blocks() {
        let one = BufferCache::new(512);
        let other = one.of_another();
        let block = |byte: u8| Arc::new(Block::from_prefix(&[byte]));
        one.insert(Pvbn(5), (7, Class::Data), block(1));
        assert!(other.get(Pvbn(5), 7).is_none());
        other.insert(Pvbn(5), (7, Class::Data), block(2));
        other.insert(Pvbn(6), (7, Class::Data), block(3));
        other.note_moved(Pvbn(9), 7, Pvbn(6));
        assert_eq!(one.get(Pvbn(5), 7).unwrap()[0], 1);
        assert_eq!(other.get(Pvbn(9), 7).unwrap()[0], 3);
        assert!(one.get(Pvbn(9), 7).is_none() && one.get(Pvbn(6), 7).is_none());
        one.remove(Pvbn(6));
        assert_eq!(other.len(), 3);
        // Of one that is closed nothing is left, for it or for the next with its space.
        drop(other);
        assert_eq!(one.len(), 1);
        assert!(one.of_another().get(Pvbn(5), 7).is_none());
        assert_eq!(one.get(Pvbn(5), 7).unwrap()[0], 1);
    }

    #[test]
    fn the_cap_holds_and_proofs_tell_blocks_apart() {
        let cache = BufferCache::new(512);
        for pvbn in 1..10_000_u64 {
            let block = Arc::new(Block::from_prefix(&pvbn.to_le_bytes()));
            cache.insert(Pvbn(pvbn), (1, Class::Data), block);
        }
        assert!(cache.len() <= 512);
        assert!(cache.get(Pvbn(9_999), 2).is_none());
        let block = cache.get(Pvbn(9_999), 1).unwrap();
        assert_eq!(block[..8], 9_999_u64.to_le_bytes());
        cache.remove(Pvbn(9_999));
        assert!(cache.get(Pvbn(9_999), 1).is_none());
    }
}
