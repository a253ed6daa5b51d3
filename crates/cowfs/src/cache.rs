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
//! Invariants: never more than `capacity_blocks` blocks; the replacement is CLOCK (second chance).

mod moved;
mod shard;

use moved::Moved;
use platform::sync::{Mutex, RwLock};
use shard::{RUN_BLOCKS, Shard};
use std::sync::atomic::{AtomicBool, Ordering};
use units::{BlockRef, Pvbn};

/// Shards of a large cache: more than processors that meet in it.
const SHARDS_MAX: usize = 64;
/// Blocks that a shard has at least, so that a small cache is not cut into pieces of chance size.
const SHARD_BLOCKS_MIN: usize = 512;
/// Blocks that go for one that comes when there are too many: two, so that the cache shrinks as
/// fast as others grow.
const SURPLUS_MAX: u64 = 2;

/// Counts the blocks of a node, whoever has them.
#[derive(Clone, Copy, Debug)]
pub struct BlockGauge {
    /// Blocks that live now.
    pub live_blocks: fn() -> u64,
    /// How many there may be.
    pub blocks_max: u64,
}

impl BlockGauge {
    fn excess_blocks(&self) -> u64 {
        (self.live_blocks)().saturating_sub(self.blocks_max)
    }
}

/// See the module.
pub struct BufferCache {
    shards: Vec<Mutex<Shard>>,
    moved: RwLock<Moved>,
    /// Whether anything was moved: nobody asks for a lock before.
    has_moved: AtomicBool,
    gauge: Option<BlockGauge>,
}

impl BufferCache {
    /// A cache of at most `capacity_blocks` blocks, and of one.
    #[must_use]
    pub fn new(capacity_blocks: usize) -> Self {
        let count = (capacity_blocks / SHARD_BLOCKS_MIN).clamp(1, SHARDS_MAX).next_power_of_two();
        let blocks_max = (capacity_blocks / count).max(1);
        let shards = (0..count).map(|_| Mutex::new(Shard::new(blocks_max))).collect();
        Self { shards, moved: RwLock::default(), has_moved: AtomicBool::new(false), gauge: None }
    }

    /// A cache of what others leave of the blocks that `gauge` counts.
    #[must_use]
    pub fn with_gauge(gauge: BlockGauge) -> Self {
        Self { gauge: Some(gauge), ..Self::new(gauge.blocks_max as usize) }
    }

    fn shard(&self, pvbn: Pvbn) -> &Mutex<Shard> {
        let hash = shard::hash(pvbn.get() / RUN_BLOCKS) >> 58;
        &self.shards[hash as usize & (self.shards.len() - 1)]
    }

    /// The block at `pvbn` with this proof, if it is here, or the one that was moved from there.
    #[must_use]
    pub fn get(&self, pvbn: Pvbn, check: u32) -> Option<BlockRef> {
        let found = self.shard(pvbn).lock().get(pvbn, check);
        if found.is_some() || !self.has_moved.load(Ordering::Relaxed) {
            return found;
        }
        let place = self.moved(pvbn, check)?;
        self.shard(place).lock().get(place, check)
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
    pub fn insert(&self, pvbn: Pvbn, check: u32, block: BlockRef) {
        // The block itself lives already, so at the cap this counts one too many.
        let surplus = self.gauge.map_or(0, |gauge| gauge.excess_blocks().min(SURPLUS_MAX));
        // What goes is freed outside the lock.
        let mut gone = Vec::new();
        let mut shard = self.shard(pvbn).lock();
        gone.extend((0..surplus).map_while(|_| shard.evict()));
        shard.insert(pvbn, check, block, &mut gone);
        drop(shard);
        drop(gone);
    }

    /// Forgets a PVBN.
    pub fn remove(&self, pvbn: Pvbn) {
        let gone = self.shard(pvbn).lock().remove(pvbn);
        drop(gone);
    }

    /// Forgets everything: PVBNs may mean other blocks from now on.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut gone = Vec::new();
            let mut shard = shard.lock();
            gone.extend(std::iter::from_fn(|| shard.evict()));
            drop(shard);
            drop(gone);
        }
    }

    /// Blocks in the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
                cache.insert(Pvbn(pvbn), 1, Arc::new(Block::zeroed()));
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
    fn the_cap_holds_and_proofs_tell_blocks_apart() {
        let cache = BufferCache::new(512);
        for pvbn in 1..10_000 {
            cache.insert(Pvbn(pvbn), 1, Arc::new(Block::from_prefix(&pvbn.to_le_bytes())));
        }
        assert!(cache.len() <= 512);
        assert!(cache.get(Pvbn(9_999), 2).is_none());
        let block = cache.get(Pvbn(9_999), 1).unwrap();
        assert_eq!(block[..8], 9_999_u64.to_le_bytes());
        cache.remove(Pvbn(9_999));
        assert!(cache.get(Pvbn(9_999), 1).is_none());
    }
}
