//! The node at a glance, and its metrics.
//!
//! Invariants: metrics of space, health and the like are set when somebody asks for them, out of
//! the same numbers that status shows; nothing is counted in the background for them.

use crate::aggregates::naming::Naming;
use crate::disks::shown::Told as _;
use crate::node::OfflineAggregate;
use crate::status::health::{check_aggregate, check_left_out, check_offline, check_outage};
use crate::status::measures::Found;
use crate::status::node_health::{
    check_audit, check_deletions, check_disk_names, check_lock_list, check_memory, check_mount,
    check_mount_record, check_unwritten,
};
use crate::status::room::Status;
use crate::status::volume_health::{check_damage, check_name, check_schedule, check_volume};
use crate::volumes::Volumes;
use admin_api::{
    AggregateInfo, HealthCheck, JobInfo, MemoryUse, MountInfo, Recovery, StatusReply, Time,
    VolumeInfo,
};
use telemetry::Snapshot;
use units::AggregateUuid;

impl Status {
    /// The node at a glance.
    pub(crate) fn report(&self, jobs: &[JobInfo]) -> StatusReply {
        let now = self.node.clock.monotonic_nanoseconds();
        let uptime_ns = now.saturating_sub(self.started_monotonic_nanoseconds);
        let aggregates = self.aggregates.aggregate_list();
        let volumes: Vec<VolumeInfo> = self.volumes.volume_infos(&self.node.served());
        let mounts = self.node.front_ends.mounts();
        let mut checks = self.health_checks(&aggregates, &volumes);
        checks.extend(mounts.iter().filter_map(check_mount));
        let (cached, dirty) = self.node.engine.memory_blocks();
        let recovery = self.replayed();
        let memory = self.process.memory(cached, dirty);
        let found = Found { aggregates: &aggregates, volumes: &volumes, checks: &checks, jobs };
        let metrics = self.metrics(&found, &memory, &mounts);
        StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.name.clone(),
            health: StatusReply::health_of(&checks),
            checks,
            now: self.aggregates.emptying_groups(),
            started: Time(self.started),
            uptime_ns,
            recovery,
            memory,
            listeners: self.node.front_ends.listeners(),
            aggregates,
            volumes: volumes.len() as u64,
            offline_volumes: volumes
                .iter()
                .filter(|volume| volume.taken_offline)
                .map(|volume| volume.name.clone())
                .collect(),
            mounts,
            metrics,
        }
    }

    /// The metrics alone. Nothing waits for the engine, so this answers while an aggregate is in an
    /// outage.
    pub(crate) fn glance_at_metrics(&self, jobs: &[JobInfo]) -> (Vec<HealthCheck>, Snapshot) {
        let (aggregates, volumes, checks) = self.look();
        let mounts = self.node.front_ends.mounts();
        let (cached, dirty) = self.node.engine.memory_blocks();
        let memory = self.process.memory(cached, dirty);
        let found = Found { aggregates: &aggregates, volumes: &volumes, checks: &checks, jobs };
        let metrics = self.metrics(&found, &memory, &mounts);
        (checks, metrics)
    }

    /// What is measured now, and what the front ends count.
    fn metrics(&self, found: &Found<'_>, memory: &MemoryUse, mounts: &[MountInfo]) -> Snapshot {
        let mut snapshot = {
            // Nobody sees the series of another, half made.
            let _turn = self.measuring.lock();
            self.measure(found, memory, mounts);
            self.registry.snapshot()
        };
        snapshot.metrics.extend(self.node.front_ends.operations());
        snapshot.metrics.sort_by(|one, other| one.name.cmp(&other.name));
        snapshot
    }

    /// What the start had to replay; nothing if all aggregates had been stopped cleanly.
    pub(crate) fn replayed(&self) -> Option<Recovery> {
        let held = self.recovery.recoveries.lock();
        let mut unclean = held.iter().filter(|recovery| !recovery.clean).peekable();
        unclean.peek()?;
        let none = Recovery { operations: 0, bytes: 0, duration_ns: 0 };
        Some(unclean.fold(none, |sum, one| Recovery {
            operations: sum.operations + one.replayed,
            bytes: sum.bytes + one.replayed_bytes,
            duration_ns: sum.duration_ns + one.nanoseconds,
        }))
    }

    /// The aggregates and volumes as far as checks need them, and the checks that do not pass.
    /// Nothing waits for the engine.
    pub(crate) fn look(&self) -> (Vec<AggregateInfo>, Vec<VolumeInfo>, Vec<HealthCheck>) {
        let aggregates = self.aggregates.aggregate_list();
        let volumes: Vec<VolumeInfo> = self.node.served().iter().map(Volumes::glimpse).collect();
        let mut checks = self.health_checks(&aggregates, &volumes);
        checks.extend(self.node.front_ends.lost_mounts().iter().filter_map(check_mount));
        (aggregates, volumes, checks)
    }

    fn health_checks(
        &self,
        aggregates: &[AggregateInfo],
        volumes: &[VolumeInfo],
    ) -> Vec<HealthCheck> {
        let offline = self.node.offline.lock().clone();
        let mut checks = Vec::new();
        let (summaries, outages) = self.node.engine.summaries_and_outages();
        for outage in &outages {
            let of = |one: &&OfflineAggregate| one.identity == outage.summary.identity;
            let info = self.aggregates.outage_info(outage);
            let check = check_outage(outage, &info, offline.iter().find(of));
            checks.push(self.with_reader(check, &outage.summary.identity));
        }
        let is_known = |one: &&OfflineAggregate| {
            let away = outages.iter().map(|outage| &outage.summary);
            summaries.iter().chain(away).any(|known| known.identity == one.identity)
        };
        let unopened = offline.iter().filter(|one| !is_known(one));
        checks.extend(
            unopened.map(|offline| self.with_reader(check_offline(offline), &offline.identity)),
        );
        checks.extend(self.node.left_out.lock().iter().filter_map(check_left_out));
        for summary in &summaries {
            let found = aggregates.iter().find(|info| info.name == summary.name);
            let journal = match summary.is_log_on_disks {
                true => format!("the disks of aggregate {}", summary.name),
                false => self.journals.title(&summary.identity),
            };
            let of = |info| check_aggregate(info, summary, &journal);
            checks.extend(found.into_iter().flat_map(of));
        }
        checks.extend(volumes.iter().filter_map(|volume| {
            let its = aggregates.iter().find(|one| one.name == volume.aggregate);
            check_volume(volume, its.map_or(0, |one| one.free_bytes))
        }));
        checks.extend(volumes.iter().filter_map(check_damage));
        let (served, looks) = (self.node.served(), &self.volumes.looks);
        checks.extend(served.iter().filter_map(|volume| check_name(volume)));
        checks.extend(served.iter().filter_map(|volume| {
            check_schedule(&volume.name(), looks.failure(volume.environment.identity))
        }));
        let record = self.node.front_ends.mount_record_failure();
        checks.extend(record.as_deref().map(check_mount_record));
        checks.extend(self.disks.deleted.trouble().map(check_deletions));
        let (cached, dirty) = self.node.engine.memory_blocks();
        checks.extend(check_memory(&self.process.memory(cached, dirty)));
        checks.extend(self.process.audit_failure().as_ref().map(check_audit));
        checks.extend(self.disks.short_names.failure().map(check_disk_names));
        checks.extend(self.node.front_ends.lock_list_trouble().map(check_lock_list));
        let unwritten = self.node.unwritten.list();
        checks.extend(unwritten.iter().map(|(title, cause)| check_unwritten(title, cause)));
        checks.tell(&Naming(&self.aggregates).shown());
        checks
    }

    /// Says, too, that somebody reads an aggregate which is out of service: it does not come back
    /// by itself meanwhile.
    fn with_reader(&self, mut check: HealthCheck, identity: &AggregateUuid) -> HealthCheck {
        if self.checks.table.is_at_rest(identity) {
            check.action.push_str(
                "; a 'stroop check aggr' reads it, and it stays out of service until that ends",
            );
        }
        check
    }
}
