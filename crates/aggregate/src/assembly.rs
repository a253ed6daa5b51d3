//! Putting an aggregate into service.
//!
//! Invariants: whatever may call the aggregate from outside is told of it when it is whole.

use crate::allocation::pool::BlockPool;
use crate::background::{stocking, use_of_blocks};
use crate::block_side::deletion::Deletion;
use crate::block_side::evacuation::Evacuation;
use crate::block_side::room::settle_budget;
use crate::block_side::side::BlockSide;
use crate::consistency_point::freeze;
use crate::relocating::temperature;
use crate::relocation::splits::SplitStates;
use crate::relocation::tiers::Tiers;
use crate::service::MemoryHolder;
use crate::service::aggregate::{Aggregate, Parts, Routines};
use crate::service::pins::Pins;
use crate::service::state::ConsistencyPoint;
use crate::service::statistics::Statistics;
use affinity::Partition;
use ondisk::features::MOVED_BLOCKS;
use platform::sync::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use units::VolumeId;

/// What the rooms above do for the aggregate in service.
const ROUTINES: Routines = Routines {
    freeze: freeze::freeze,
    refill: stocking::send_refill,
    note_random_reads: temperature::note_random_reads,
};

impl Aggregate {
    /// Puts an aggregate into service.
    #[must_use]
    pub fn new(parts: Parts, mut block_side: BlockSide) -> Arc<Self> {
        let geometry = parts.store.geometry();
        block_side.refill.tune(&parts.tuning, &geometry);
        block_side.refill.set_leaving(block_side.settings.leaving_group);
        let evacuation = RwLock::new(Evacuation::of(&block_side, &geometry));
        let deletions = RwLock::new(Deletion::all_of(&block_side));
        let leaves_areas = AtomicBool::new(block_side.settings.leaves_areas);
        let statistics = Statistics::default();
        statistics.used_blocks.store(block_side.space.used_blocks, Ordering::Relaxed);
        statistics.active_blocks.store(block_side.space.active_blocks, Ordering::Relaxed);
        statistics.size_blocks.store(geometry.blocks(), Ordering::Relaxed);
        settle_budget(&parts.shared, &block_side, &geometry);
        let filling = AtomicU64::new(parts.log.active_cp().get());
        parts.journal.set_log(Arc::clone(&parts.log));
        parts.journal.limit_epochs(parts.tuning.note_blocks_max);
        let state = Mutex::new(ConsistencyPoint::new(parts.committed, parts.superblock_slot));
        let moved = block_side.table.iter().filter(|slot| slot.record.features.has(&MOVED_BLOCKS));
        let moved = moved.map(|slot| VolumeId(slot.record.volume.get())).collect();
        let parents = block_side
            .containers
            .iter()
            .filter_map(|(clone, container)| container.parent.map(|parent| (*clone, parent)));
        let parents = RwLock::new(parents.collect());
        let splits = SplitStates::of(&block_side.table, &block_side.relocation.splits);
        let tiers = RwLock::new(Tiers::of(&block_side.relocation, &block_side.table));
        let block_side = Partition::new(parts.vbn_affinity, block_side);
        let store = Arc::clone(&parts.store);
        let aggregate = Arc::new(Self {
            parts,
            pool: BlockPool::default(),
            block_side,
            state,
            loads: Arc::default(),
            moved_volumes: RwLock::new(moved),
            parents,
            tiers,
            evacuation,
            evacuation_limit: Mutex::default(),
            splits: Mutex::new(splits),
            deletions,
            pins: Pins::default(),
            leaves_areas,
            reads: Mutex::default(),
            filling,
            failed: AtomicBool::new(false),
            routines: &ROUTINES,
            statistics,
        });
        let holder = MemoryHolder(Arc::downgrade(&aggregate));
        aggregate.parts.shared.dirty.set_holder(Arc::new(holder));
        let watched = Arc::downgrade(&aggregate);
        store.watch_failure(Box::new(move |error| {
            if let Some(aggregate) = watched.upgrade() {
                aggregate.fail(error.into());
            }
        }));
        let watched = Arc::downgrade(&aggregate);
        store.watch_writes(Arc::new(move |blocks| {
            if let Some(aggregate) = watched.upgrade() {
                aggregate.parts.shared.dirty.note_written(blocks);
            }
        }));
        use_of_blocks::answer(&aggregate);
        aggregate
    }
}
