//! The metrics that are set when somebody asks for them, out of the numbers that status shows.

use crate::status::room::Status;
use admin_api::{AggregateInfo, HealthCheck, LeavingGroup, MemoryUse, VolumeInfo};
use std::sync::atomic::{AtomicU64, Ordering};
use telemetry::{Definition, definitions};
use units::BLOCK_SIZE_U64;

/// Bytes of a group that leaves which are free, and nobody's room.
const fn unusable_bytes(leaving: &LeavingGroup) -> u64 {
    leaving.size_bytes.saturating_sub(match leaving.used_bytes {
        Some(used) => used,
        None => 0,
    })
}

impl Status {
    /// Has a counter be at `sum`, unless it is past it: an aggregate that was opened again counts
    /// from zero, and a counter never goes back.
    fn count_to(&self, definition: &'static Definition, labels: &[&str], sum: u64) {
        let counter = self.registry.counter(definition, labels);
        counter.add(sum.saturating_sub(counter.get()));
    }

    /// How good the areas were that an aggregate chose, what it emptied of others, how many stripes
    /// it wrote whole, and in how long runs.
    fn measure_writes(&self, name: &str) {
        let Some(aggregate) = self.node.engine.aggregate_named(name) else { return };
        let statistics = &aggregate.statistics;
        for (kind, picks) in
            [("group", statistics.group_picks.sum()), ("volume", statistics.volume_picks.sum())]
        {
            self.count_to(&definitions::PICKED_AREAS, &[name, kind], picks.areas);
            self.count_to(&definitions::PICKED_FREE_BLOCKS, &[name, kind], picks.free_blocks);
            self.count_to(&definitions::PICKED_BLOCKS, &[name, kind], picks.blocks);
        }
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.count_to(&definitions::EMPTIED_AREAS, &[name], number(&statistics.emptied_areas));
        for (kind, blocks) in [
            ("moved", &statistics.emptying_moved_blocks),
            ("rewritten", &statistics.emptying_rewritten_blocks),
        ] {
            self.count_to(&definitions::EMPTYING_BLOCKS, &[name, kind], number(blocks));
        }
        let counters = aggregate.parts.store.status().counters;
        self.count_to(&definitions::CHAINS, &[name], counters.device_writes);
        self.count_to(&definitions::CHAIN_BLOCKS, &[name], counters.device_blocks);
        let partial = counters.stripes.saturating_sub(counters.full_stripes);
        self.count_to(&definitions::STRIPES, &[name, "full"], counters.full_stripes);
        self.count_to(&definitions::STRIPES, &[name, "partial"], partial);
    }

    pub(crate) fn measure(
        &self,
        aggregates: &[AggregateInfo],
        volumes: &[VolumeInfo],
        checks: &[HealthCheck],
        memory: &MemoryUse,
    ) {
        let set = |definition, labels: &[&str], value| {
            self.registry.gauge(definition, labels).set_count(value);
        };
        for info in aggregates {
            for (kind, bytes) in [
                ("size", info.size_bytes),
                ("used", info.used_bytes),
                ("tiered", info.tiered_bytes),
                ("metadata", info.metadata_bytes),
                ("reserve", info.reserve_bytes),
                ("free", info.free_bytes),
                ("leaving", info.leaving.map_or(0, |leaving| unusable_bytes(&leaving))),
            ] {
                set(&definitions::AGGREGATE_BYTES, &[&info.name, kind], bytes);
            }
            set(&definitions::LOG_USED, &[&info.name], info.log_used_bytes);
            self.count_to(&definitions::REPAIRED_BLOCKS, &[&info.name], info.repaired_blocks);
            self.measure_writes(&info.name);
        }
        for info in volumes {
            for (kind, bytes) in [
                ("size", info.size_bytes),
                ("live", info.live_bytes),
                ("snapshots", info.snapshot_bytes),
                ("tiered", info.tiered_bytes),
                ("delayed_free", info.delayed_free_bytes),
                ("available", info.available_bytes),
            ] {
                set(&definitions::VOLUME_BYTES, &[&info.name, kind], bytes);
            }
            let delayed_blocks = info.delayed_free_bytes / BLOCK_SIZE_U64;
            set(&definitions::DELAYED_FREE_BLOCKS, &[&info.name], delayed_blocks);
        }
        for consumer in &memory.consumers {
            set(&definitions::MEMORY_BYTES, &[&consumer.name], consumer.bytes);
        }
        set(&definitions::MEMORY_LIMIT, &[], memory.limit_bytes);
        set(&definitions::MEMORY_PEAK, &[], memory.peak_bytes);
        let refused = self.node.front_ends.refused();
        self.count_to(&definitions::NFS_REFUSED_MOUNTS, &[], refused.mounts);
        self.count_to(&definitions::NFS_DENIED_CALLS, &[], refused.calls);
        let replayed = self.replayed().map_or(0, |recovery| recovery.operations);
        set(&definitions::REPLAYED_OPERATIONS, &[], replayed);
        for severity in ["warning", "error"] {
            self.registry.forget("severity", severity);
        }
        for check in checks {
            let severity = check.severity.to_string();
            set(&definitions::HEALTH_CHECK, &[&check.code, &severity], 1);
        }
    }
}
