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
//! Invariants: never more than `capacity` blocks; the replacement is CLOCK (second chance).

use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use rustc_hash::FxHashMap;
use units::{BlockRef, Pvbn};

const SHARDS: usize = 64;

/// See the module.
pub struct BufferCache {
    shards: Vec<Mutex<Shard>>,
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
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect() }
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
        self.shard(pvbn).lock().insert(Slot { pvbn, check, block, referenced: false });
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
