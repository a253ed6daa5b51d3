//! The buffer cache: clean blocks by where they lie in the aggregate, under a hard cap.
//!
//! A block at a PVBN never changes while anything points at it, so the cache needs no invalidation:
//! snapshots and the active image share entries, and an entry whose proof differs from the asker's
//! pointer is simply not the block that was asked for. Dirty blocks are not here; they wait in the
//! overlays of their files ([`crate::overlay`]) until a consistency point places them.
//!
//! This is the one structure that all affinities share: hybrid access in the sense of Waffinity
//! section 5, by short locks over shards.
//!
//! Blocks are elsewhere, too: dirty, on their way to a client or a disk, in a log batch. Where
//! memory has a hard cap the cache is given a [`BlockGauge`], which counts them all, and takes
//! what the others leave: at the cap each block that comes in replaces one, and above it two.
//!
//! Invariants: never more than `capacity` blocks; the replacement is CLOCK (second chance).

use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use rustc_hash::FxHashMap;
use units::{BlockRef, Pvbn};

const SHARDS: usize = 64;
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
    gauge: Option<BlockGauge>,
}

struct Shard {
    slots_max: usize,
    index: FxHashMap<Pvbn, usize>,
    slots: Vec<Slot>,
    hand: usize,
}

struct Slot {
    pvbn: Pvbn,
    check: u32,
    block: BlockRef,
    referenced: bool,
}

impl BufferCache {
    /// A cache of at most `capacity_blocks` blocks, at least one for each shard.
    #[must_use]
    pub fn new(capacity_blocks: usize) -> Self {
        let slots_max = (capacity_blocks / SHARDS).max(1);
        let shard = || Shard { slots_max, index: FxHashMap::default(), slots: Vec::new(), hand: 0 };
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(), gauge: None }
    }

    /// A cache of what others leave of the blocks that `gauge` counts.
    #[must_use]
    pub fn with_gauge(gauge: BlockGauge) -> Self {
        let slots_max = (gauge.blocks_max as usize / SHARDS).max(1);
        // Whole at once: tables that double as they fill would hold the old beside the new.
        let shard = || Shard {
            slots_max,
            index: FxHashMap::with_capacity_and_hasher(slots_max, Default::default()),
            slots: Vec::with_capacity(slots_max),
            hand: 0,
        };
        let shards = (0..SHARDS).map(|_| Mutex::new(shard())).collect();
        Self { shards, gauge: Some(gauge) }
    }

    fn shard(&self, pvbn: Pvbn) -> &Mutex<Shard> {
        // Fibonacci hashing: neighbours go to different shards.
        let hash = pvbn.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.shards[hash as usize % SHARDS]
    }

    /// The block at `pvbn` with this proof, if it is here.
    #[must_use]
    pub fn get(&self, pvbn: Pvbn, check: u32) -> Option<BlockRef> {
        let mut shard = self.shard(pvbn).lock();
        let slot = *shard.index.get(&pvbn)?;
        let slot = &mut shard.slots[slot];
        if slot.check != check && !mutation::broken(Rule::CacheEntryKept) {
            return None;
        }
        slot.referenced = true;
        Some(BlockRef::clone(&slot.block))
    }

    /// Puts a block in, in place of what was known of its PVBN.
    pub fn insert(&self, pvbn: Pvbn, check: u32, block: BlockRef) {
        // The block itself lives already, so at the cap this counts one too many.
        let surplus = self.gauge.map_or(0, |gauge| gauge.excess_blocks().min(SURPLUS_MAX));
        // What goes is freed outside the lock.
        let mut gone = [const { None }; SURPLUS_MAX as usize];
        let mut shard = self.shard(pvbn).lock();
        for slot in gone.iter_mut().take(surplus as usize) {
            *slot = shard.evict();
        }
        shard.insert(Slot { pvbn, check, block, referenced: false });
        drop(shard);
    }

    /// Forgets a PVBN.
    pub fn remove(&self, pvbn: Pvbn) {
        self.shard(pvbn).lock().remove(pvbn);
    }

    /// Blocks in the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shard {
    fn insert(&mut self, slot: Slot) {
        if let Some(&at) = self.index.get(&slot.pvbn) {
            if !mutation::broken(Rule::CacheEntryKept) {
                self.slots[at] = slot;
            }
            return;
        }
        let at = if self.slots.len() < self.slots_max {
            self.slots.len()
        } else {
            let victim = self.victim();
            self.index.remove(&self.slots[victim].pvbn);
            victim
        };
        self.index.insert(slot.pvbn, at);
        if at == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[at] = slot;
        }
    }

    fn victim(&mut self) -> usize {
        loop {
            let at = self.hand % self.slots.len();
            self.hand = at + 1;
            if !std::mem::take(&mut self.slots[at].referenced) {
                return at;
            }
        }
    }

    /// Takes out the block whose turn it is.
    fn evict(&mut self) -> Option<BlockRef> {
        if self.slots.is_empty() {
            return None;
        }
        let victim = self.victim();
        let gone = BlockRef::clone(&self.slots[victim].block);
        self.remove(self.slots[victim].pvbn);
        Some(gone)
    }

    fn remove(&mut self, pvbn: Pvbn) {
        let Some(at) = self.index.remove(&pvbn) else { return };
        self.slots.swap_remove(at);
        if let Some(moved) = self.slots.get(at) {
            self.index.insert(moved.pvbn, at);
        }
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
        let cache = BufferCache::new(SHARDS * 2);
        for pvbn in 1..10_000 {
            cache.insert(Pvbn(pvbn), 1, Arc::new(Block::from_prefix(&pvbn.to_le_bytes())));
        }
        assert!(cache.len() <= SHARDS * 2);
        assert!(cache.get(Pvbn(9_999), 2).is_none());
        let block = cache.get(Pvbn(9_999), 1).unwrap();
        assert_eq!(block[..8], 9_999_u64.to_le_bytes());
        cache.remove(Pvbn(9_999));
        assert!(cache.get(Pvbn(9_999), 1).is_none());
    }
}
