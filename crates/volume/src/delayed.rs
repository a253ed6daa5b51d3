//! What a flexible volume has of the delayed frees of its aggregate.
//!
//! Invariants: the aggregate knows the sum of its volumes' delayed frees, as of the last commit;
//! a volume that goes takes its share out.

use cowfs::logical::AggregateShared;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Delayed frees when a consistency point began.
#[derive(Clone, Copy, Default)]
pub(crate) struct DelayedBefore {
    pub blocks: u64,
    /// How many it was to leave.
    pub blocks_max: u64,
}

/// What a volume has of the delayed frees of its aggregate, as of the last commit, while it is
/// there.
pub(crate) struct DelayedShare {
    aggregate: Arc<AggregateShared>,
    blocks: AtomicU64,
}

impl DelayedShare {
    pub(crate) fn new(aggregate: Arc<AggregateShared>, blocks: u64) -> Self {
        let share = Self { aggregate, blocks: AtomicU64::default() };
        share.set(blocks);
        share
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, blocks: u64) {
        let before = self.blocks.swap(blocks, Ordering::Relaxed);
        let total = &self.aggregate.delayed_blocks;
        total.fetch_add(blocks.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Those of all other volumes.
    pub(crate) fn of_others(&self) -> u64 {
        self.aggregate.delayed_blocks.load(Ordering::Relaxed).saturating_sub(self.blocks())
    }
}

impl Drop for DelayedShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowfs::budget::Budget;
    use cowfs::cache::BufferCache;
    use cowfs::dirty_memory::DirtyMemory;

    #[test]
    fn an_aggregate_knows_what_all_its_volumes_delay() {
        let aggregate = Arc::new(AggregateShared {
            budget: Budget::default(),
            reclaim_turns: Arc::default(),
            delayed_blocks: AtomicU64::default(),
            dirty: Arc::new(DirtyMemory::new(0)),
            cache: Arc::new(BufferCache::new(0)),
        });
        let one = DelayedShare::new(Arc::clone(&aggregate), 10);
        let other = DelayedShare::new(Arc::clone(&aggregate), 5);
        assert_eq!((one.of_others(), other.of_others()), (5, 10));
        one.set(3);
        assert_eq!((one.blocks(), other.of_others()), (3, 3));
        drop(one);
        assert_eq!((other.of_others(), other.blocks()), (0, 5));
    }
}
