//! The node at a glance, and its metrics.
//!
//! Invariants: metrics of space, health and the like are set when somebody asks for them, out of
//! the same numbers that status shows; nothing is counted in the background for them.

use super::core::Core;
use super::health::{
    check_aggregate, check_damage, check_left_out, check_offline, check_outage, check_volume,
};
use super::recovery::OfflineAggregate;
use crate::memory;
use admin_api::{
    AggregateInfo, HealthCheck, LeavingGroup, Listener, MemoryUse, Recovery, StatusReply, Time,
    VolumeInfo,
};
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

impl Core {
    /// The node at a glance.
    pub(super) fn report(&self) -> StatusReply {
        let now = self.clock.monotonic_nanoseconds();
        let uptime_ns = now.saturating_sub(self.started_monotonic_nanoseconds);
        let aggregates = self.aggregate_list();
        let volumes: Vec<VolumeInfo> =
            self.served().iter().map(|volume| self.volume_info(volume)).collect();
        let checks = self.checks(&aggregates, &volumes);
        let admin = Listener {
            protocol: "admin".to_owned(),
            address: self.config.admin_socket.display().to_string(),
        };
        let (cached, dirty) = self.engine.memory_blocks();
        let recovery = self.recovery();
        self.registry.gauge(&definitions::UPTIME, &[]).set_count(uptime_ns);
        let memory = memory::report(self.config.memory.0, cached, dirty);
        self.measure(&aggregates, &volumes, &checks, &memory);
        StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.config.name.clone(),
            health: StatusReply::health_of(&checks),
            checks,
            now: self.emptying_groups(),
            started: Time(self.started),
            uptime_ns,
            recovery,
            memory,
            listeners: self.nfs.get().cloned().into_iter().chain([admin]).collect(),
            aggregates,
            volumes: volumes.len() as u64,
            mounts: self.mounts.list(),
            metrics: self.registry.snapshot(),
        }
    }

    /// What the start had to replay; nothing if all aggregates had been stopped cleanly.
    fn recovery(&self) -> Option<Recovery> {
        let held = self.recoveries.lock();
        let mut unclean = held.iter().filter(|recovery| !recovery.clean).peekable();
        unclean.peek()?;
        let none = Recovery { operations: 0, bytes: 0, duration_ns: 0 };
        Some(unclean.fold(none, |sum, one| Recovery {
            operations: sum.operations + one.replayed,
            bytes: sum.bytes + one.replayed_bytes,
            duration_ns: sum.duration_ns + one.nanoseconds,
        }))
    }

    fn checks(&self, aggregates: &[AggregateInfo], volumes: &[VolumeInfo]) -> Vec<HealthCheck> {
        let offline = self.offline.lock().clone();
        let mut checks = Vec::new();
        let outages = self.engine.outages();
        for outage in &outages {
            let of = |one: &&OfflineAggregate| one.identity == outage.summary.identity;
            let info = self.outage_info(outage);
            let check = check_outage(outage, &info, offline.iter().find(of));
            checks.push(self.with_reader(check, &outage.summary.identity));
        }
        let is_known = |one: &&OfflineAggregate| {
            outages.iter().any(|outage| outage.summary.identity == one.identity)
        };
        let unopened = offline.iter().filter(|one| !is_known(one));
        checks.extend(
            unopened.map(|offline| self.with_reader(check_offline(offline), &offline.identity)),
        );
        checks.extend(self.left_out.lock().iter().filter_map(check_left_out));
        for summary in self.engine.aggregate_summaries() {
            let found = aggregates.iter().find(|info| info.name == summary.name);
            let journal = self.journals.title(&summary.identity);
            let of = |info| check_aggregate(info, &summary, &journal);
            checks.extend(found.into_iter().flat_map(of));
        }
        checks.extend(volumes.iter().filter_map(check_volume));
        checks.extend(volumes.iter().filter_map(check_damage));
        checks
    }

    /// Says, too, that somebody reads an aggregate which is out of service: it does not come back
    /// by itself meanwhile.
    fn with_reader(&self, mut check: HealthCheck, identity: &[u8; 16]) -> HealthCheck {
        if self.checks.is_at_rest(identity) {
            check.action.push_str(
                "; a 'stroop check aggr' reads it, and it stays out of service until that ends",
            );
        }
        check
    }

    /// Has a counter be at `sum`, unless it is past it: an aggregate that was opened again counts
    /// from zero, and a counter never goes back.
    fn count_to(&self, definition: &'static Definition, labels: &[&str], sum: u64) {
        let counter = self.registry.counter(definition, labels);
        counter.add(sum.saturating_sub(counter.get()));
    }

    /// How good the areas were that an aggregate chose, what it emptied of others, how many stripes
    /// it wrote whole, and in how long runs.
    fn measure_writes(&self, name: &str) {
        let Some(aggregate) = self.engine.aggregate_named(name) else { return };
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

    fn measure(
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
        let replayed = self.recovery().map_or(0, |recovery| recovery.operations);
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
