//! The metrics that are set when somebody asks for them, out of the numbers that status shows.
//!
//! Invariants: what is not there any more (a volume, a disk, an aggregate) leaves no series; an
//! aggregate that is out of service has no series of its space, which nobody knows then; its
//! counters go on from where they were when it is opened again; nothing waits for the engine.

use crate::status::room::Status;
use admin_api::{
    AggregateInfo, AggregateState, DiskInfo, HealthCheck, JobInfo, JobKind, JobState, LeavingGroup,
    MemoryUse, MountInfo, VolumeInfo,
};
use platform::watched::RequestKind;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use telemetry::{Definition, Sum, definitions};
use units::BLOCK_SIZE_U64;

/// Bytes of a group that leaves which are free, and nobody's room.
const fn unusable_bytes(leaving: &LeavingGroup) -> u64 {
    leaving.size_bytes.saturating_sub(match leaving.used_bytes {
        Some(used) => used,
        None => 0,
    })
}

/// A state as the value of a label: `in_use`.
fn label(state: impl ToString) -> String {
    state.to_string().to_lowercase().replace(' ', "_")
}

/// What there is.
pub(crate) struct Found<'a> {
    pub aggregates: &'a [AggregateInfo],
    pub volumes: &'a [VolumeInfo],
    pub checks: &'a [HealthCheck],
    pub jobs: &'a [JobInfo],
}

impl Status {
    /// Has a counter grow by what `sum` grew by. An aggregate that was opened again counts from
    /// zero.
    fn count_to(&self, definition: &'static Definition, labels: &[&str], sum: u64) {
        self.registry.follow(definition, labels, sum, Sum::Restarts);
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
        self.count_to(&definitions::SPLIT_BLOCKS, &[name], number(&statistics.split_blocks));
        let reallocated = number(&statistics.reallocated_blocks);
        self.count_to(&definitions::REALLOCATED_BLOCKS, &[name], reallocated);
        let counters = aggregate.parts.store.status().counters;
        self.count_to(&definitions::CHAINS, &[name], counters.device_writes);
        self.count_to(&definitions::CHAIN_BLOCKS, &[name], counters.device_blocks);
        let partial = counters.stripes.saturating_sub(counters.full_stripes);
        self.count_to(&definitions::STRIPES, &[name, "full"], counters.full_stripes);
        self.count_to(&definitions::STRIPES, &[name, "partial"], partial);
    }

    /// The consistency points of an aggregate.
    fn measure_consistency_points(&self, name: &str) {
        let Some(aggregate) = self.node.engine.aggregate_named(name) else { return };
        for (phase, durations) in aggregate.phase_durations().named() {
            self.registry.show(&definitions::CP_DURATION, &[name, phase], durations);
        }
        let statistics = &aggregate.statistics;
        for (definition, number) in [
            (&definitions::CP_COMMITTED, &statistics.consistency_points),
            (&definitions::CP_BACK_TO_BACK, &statistics.back_to_back),
            (&definitions::CP_BLOCKS, &statistics.blocks_written),
        ] {
            self.count_to(definition, &[name], number.load(Ordering::Relaxed));
        }
    }

    /// The space of an aggregate and its log. Out of service it says nothing: no free space would
    /// be taken for a full aggregate.
    fn measure_space(&self, info: &AggregateInfo) {
        if info.state == AggregateState::Offline {
            for definition in
                [&definitions::AGGREGATE_BYTES, &definitions::LOG_USED, &definitions::LOG_SIZE]
            {
                self.registry.forget_of(definition, "aggregate", &info.name);
            }
            return;
        }
        let set = |definition, labels: &[&str], value| {
            self.registry.gauge(definition, labels).set_count(value);
        };
        for (kind, bytes) in [
            ("size", info.size_bytes),
            ("used", info.used_bytes),
            ("tiered", info.tiered_bytes),
            ("metadata", info.metadata_bytes),
            ("reserve", info.reserve_bytes),
            ("guaranteed", info.guaranteed_bytes),
            ("free", info.free_bytes),
            ("leaving", info.leaving.map_or(0, |leaving| unusable_bytes(&leaving))),
        ] {
            set(&definitions::AGGREGATE_BYTES, &[&info.name, kind], bytes);
        }
        set(&definitions::LOG_USED, &[&info.name], info.log_used_bytes);
        set(&definitions::LOG_SIZE, &[&info.name], info.log_size_bytes);
    }

    fn measure_disk(&self, aggregate: &str, info: &DiskInfo) {
        let state = label(info.state);
        let labels = [aggregate, info.name.as_str(), state.as_str()];
        self.registry.gauge(&definitions::DISK_STATE, &labels).set(1);
        for (kind, errors) in [
            ("read", info.read_errors),
            ("write", info.write_errors),
            ("checksum", info.checksum_errors),
        ] {
            // The disk's label has them, as they were a minute ago at most.
            let labels = [info.name.as_str(), kind];
            self.registry.follow(&definitions::DISK_ERRORS, &labels, errors, Sum::Kept);
        }
        let Some(counts) = self.disks.counts(&info.name) else { return };
        for (kind, count) in RequestKind::ALL.into_iter().zip(counts) {
            let operation = match kind {
                RequestKind::Read => "read",
                RequestKind::Write => "write",
                RequestKind::Flush => "flush",
            };
            let labels = [info.name.as_str(), operation];
            self.count_to(&definitions::DISK_OPERATIONS, &labels, count.requests);
            self.count_to(&definitions::DISK_TIME, &labels, count.nanoseconds);
            if kind != RequestKind::Flush {
                let bytes = count.blocks * BLOCK_SIZE_U64;
                self.count_to(&definitions::DISK_TRANSFERRED, &labels, bytes);
            }
        }
    }

    /// Drops the series of what is not there any more.
    fn forget_gone(&self, aggregates: &[AggregateInfo], volumes: &[VolumeInfo]) {
        let names: BTreeSet<&str> = aggregates.iter().map(|info| info.name.as_str()).collect();
        self.registry.retain("aggregate", |name| names.contains(name));
        let names: BTreeSet<&str> = volumes.iter().map(|info| info.name.as_str()).collect();
        self.registry.retain("volume", |name| names.contains(name));
        let disks = aggregates.iter().flat_map(|info| &info.disks);
        let names: BTreeSet<&str> = disks.map(|disk| disk.name.as_str()).collect();
        self.registry.retain("disk", |name| names.contains(name));
        // A state that was left, a job that is over.
        for label in ["state", "severity"] {
            self.registry.retain(label, |_| false);
        }
    }

    /// The jobs that are not over.
    fn measure_jobs(&self, jobs: &[JobInfo]) {
        for state in JobState::ALL.into_iter().filter(|state| !state.is_over()) {
            for kind in JobKind::ALL {
                let its = jobs.iter().filter(|job| (job.kind, job.state) == (kind, state));
                let labels = [kind.to_string(), state.to_string()];
                let [kind, state] = labels.each_ref().map(String::as_str);
                let gauge = self.registry.gauge(&definitions::JOBS, &[kind, state]);
                gauge.set_count(its.count() as u64);
            }
        }
    }

    /// Sets all that is set when somebody asks for it.
    pub(crate) fn measure(&self, found: &Found<'_>, memory: &MemoryUse, mounts: &[MountInfo]) {
        let Found { aggregates, volumes, checks, jobs } = *found;
        self.forget_gone(aggregates, volumes);
        self.measure_jobs(jobs);
        let now = self.node.clock.monotonic_nanoseconds();
        let uptime_ns = now.saturating_sub(self.started_monotonic_nanoseconds);
        self.registry.gauge(&definitions::UPTIME, &[]).set_count(uptime_ns);
        let set = |definition, labels: &[&str], value| {
            self.registry.gauge(definition, labels).set_count(value);
        };
        set(&definitions::BUILD, &[env!("CARGO_PKG_VERSION")], 1);
        for info in aggregates {
            set(&definitions::AGGREGATE_STATE, &[&info.name, &label(info.state)], 1);
            info.disks.iter().for_each(|disk| self.measure_disk(&info.name, disk));
            self.measure_space(info);
            self.count_to(&definitions::REPAIRED_BLOCKS, &[&info.name], info.repaired_blocks);
            self.measure_writes(&info.name);
            self.measure_consistency_points(&info.name);
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
            set(&definitions::VOLUME_FILES, &[&info.name], info.files);
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
        for (protocol, connections) in self.node.front_ends.connections() {
            set(&definitions::CLIENT_CONNECTIONS, &[protocol], connections);
        }
        let missing = mounts.iter().filter(|mount| mount.missing.is_some()).count() as u64;
        set(&definitions::MOUNTS, &["missing"], missing);
        set(&definitions::MOUNTS, &["mounted"], mounts.len() as u64 - missing);
        for check in checks {
            let severity = check.severity.to_string();
            set(&definitions::HEALTH_CHECK, &[&check.code, &severity], 1);
        }
    }
}
