//! The room of events: looks, and what is listed.
//!
//! Order of locks: the record before the jobs and anything of the engine. A look is taken in under
//! the record's lock, so that an older look never comes after a newer one; the log is written and
//! the file stored without it.

use crate::events::conditions::{Condition, Failing};
use crate::events::disks::Sight;
use crate::events::growth::{autodeletion_of, growth_of};
use crate::events::quotas::ToldQuotas;
use crate::events::ring::Happening;
use crate::events::stored::{self, Record};
use crate::events::works::turn_of;
use crate::jobs::Jobs;
use crate::keeping::{Keeper, Print, keep_aside};
use crate::node::Node;
use crate::ports::StateFile;
use crate::recovery::Recovery;
use crate::status::Status;
use admin_api::{
    AdminError, AggregateInfo, AggregateState, Event, EventList, EventSeverity, HealthCheck, Time,
    VolumeInfo,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use units::{AggregateUuid, ByteSize, DiskUuid};

const STARTED: &str = "SERVER_STARTED";
const STOPPED: &str = "SERVER_STOPPED";
/// Checks that are about an aggregate as a whole: whether they pass is known whatever its state.
const OF_SERVICE: [&str; 2] = ["AGGR_OFFLINE", "AGGR_FAILED"];
/// The check that the room of disks tells of, disk by disk.
const OF_DISKS: &str = "DISK_SICK";
/// The check of mounts, which are made some time after the start.
const OF_MOUNTS: &str = "MOUNT_MISSING";

/// See the module.
pub(crate) struct Events {
    node: Arc<Node>,
    recovery: Arc<Recovery>,
    keeper: Keeper<Record>,
    /// Events below this number are listed: the file has them, or cannot be written.
    listed_below: AtomicU64,
    /// Openings of aggregates that were told.
    openings: AtomicUsize,
    quotas: ToldQuotas,
}

impl Print for Record {
    const TITLE: &'static str = "list of events";

    fn print(&self) -> String {
        stored::print(self)
    }
}

impl Events {
    /// The events that the file tells of.
    pub(crate) fn new(node: Arc<Node>, recovery: Arc<Recovery>, file: Arc<dyn StateFile>) -> Self {
        // The file has no number above the time in seconds, unless it has one that tells.
        let next_min = u64::try_from(node.clock.wall().seconds()).unwrap_or(0).max(1);
        let (record, damaged) = match file.load() {
            Ok(None) => (Record::empty(1), None),
            Ok(Some(text)) if text.is_empty() => {
                let cause = "the file of events is empty; the events of before are lost";
                (Record::empty(next_min), Some(cause.to_owned()))
            }
            Ok(Some(text)) => {
                let (record, lines) = stored::parse(&text, next_min);
                let cause = format!("{lines} entries of the file of events are damaged, and lost");
                (record, (lines > 0).then_some(cause))
            }
            Err(error) => {
                let cause = format!("{error}; the events of before are lost");
                (Record::empty(next_min), Some(cause))
            }
        };
        // Before the first look writes it anew.
        let damaged = damaged.map(|cause| format!("{cause}; {}", keep_aside(&*file)));
        let listed_below = AtomicU64::new(record.ring.next());
        let keeper = Keeper::new(record, file, Arc::clone(&node.unwritten));
        let events = Self {
            node,
            recovery,
            keeper,
            listed_below,
            openings: AtomicUsize::default(),
            quotas: ToldQuotas::default(),
        };
        if let Some(cause) = damaged {
            events.tell(vec![Happening::new(
                EventSeverity::Warning,
                "EVENTS_DAMAGED",
                "file of events",
                cause,
            )]);
        }
        events
    }

    /// The server was started; the file of jobs may be damaged.
    pub(crate) fn note_start(&self, damaged_jobs: Option<&str>) {
        let is_clean = {
            let kept = self.keeper.kept.lock();
            let last = kept.table.ring.events().next_back();
            last.is_none_or(|event| event.code == STOPPED)
        };
        let version = env!("CARGO_PKG_VERSION");
        let told = match is_clean {
            true => Happening::new(EventSeverity::Info, STARTED, "server", version),
            false => {
                let cause = format!(
                    "{version}; the server before ended without a stop: it was killed, or the \
                     power went"
                );
                Happening::new(EventSeverity::Warning, STARTED, "server", cause)
            }
        };
        let damaged = damaged_jobs.map(|cause| {
            Happening::new(
                EventSeverity::Warning,
                "JOBS_DAMAGED",
                "file of jobs",
                format!(
                    "{cause}; jobs that are over are forgotten, and so is which were paused or had \
                     a rate"
                ),
            )
            .next("stroop job list; pause jobs and set their rates again")
        });
        self.tell([told].into_iter().chain(damaged).collect());
        self.store();
    }

    /// The server was stopped, and all is in the last consistency points, or why it is not.
    pub(crate) fn note_stop(&self, error: Option<&AdminError>) {
        let (severity, cause) = match error {
            None => {
                let cause = "with a last consistency point of each aggregate";
                (EventSeverity::Info, cause.to_owned())
            }
            Some(error) => (EventSeverity::Warning, format!("the next start replays: {error}")),
        };
        self.tell(vec![Happening::new(severity, STOPPED, "server", cause)]);
        self.store();
    }

    /// Looks what has happened, and has the file say it.
    pub(crate) fn look(&self, status: &Status, jobs: &Jobs) {
        self.look_without_file(status, jobs);
        self.store();
    }

    /// The same around a call, which does not wait for the file: the next look does.
    pub(crate) fn look_without_file(&self, status: &Status, jobs: &Jobs) {
        let mut kept = self.keeper.kept.lock();
        let now = self.node.clock.monotonic_nanoseconds();
        // Before the others: one that is opened meanwhile is in one of the lists.
        let unopened: Vec<AggregateUuid> =
            self.node.offline.lock().iter().map(|one| one.identity).collect();
        let (summaries, outages) = self.node.engine.summaries_and_outages();
        let (aggregates, volumes, checks) = status.look();
        let short_name = |disk: &DiskUuid| self.recovery.disks.short_names.name(disk);
        let in_sight = summaries.iter().chain(outages.iter().map(|outage| &outage.summary));
        let sights: Vec<Sight<'_>> = in_sight
            .map(|summary| Sight {
                identity: summary.identity,
                name: &summary.name,
                status: &summary.status,
                short_name: &short_name,
            })
            .collect();
        let mut happened = self.opened();
        let disks = &mut kept.table.disks;
        let before = disks.0.clone();
        let is_deleted = |one: &AggregateUuid| self.recovery.disks.deleted.has(one);
        happened.extend(disks.observe(now, &sights, &unopened, is_deleted));
        let has_changed = disks.0 != before;
        let turns = jobs.take_turns();
        happened.extend(turns.iter().filter_map(|job| turn_of(job, &summaries)));
        let served = self.node.engine.volumes();
        happened.extend(served.iter().filter_map(|volume| growth_of(volume)));
        happened.extend(served.iter().filter_map(|volume| autodeletion_of(volume)));
        happened.extend(self.quotas.happened(now, &self.node.engine, &served));
        let failing = failing(&checks, &aggregates, &volumes);
        let is_away = |name: &str| {
            let mut named = aggregates.iter().filter(|one| one.name == name);
            named.any(|one| one.state == AggregateState::Offline)
        };
        let untried = self.untried_mounts();
        let nobody_can_tell = |known: &Condition| {
            known.aggregate.as_deref().is_some_and(is_away)
                || (known.code == OF_MOUNTS && untried.contains(&known.object))
        };
        happened.extend(kept.table.conditions.observe(now, &failing, &nobody_can_tell));
        kept.changes += u64::from(has_changed || !happened.is_empty());
        let events = push(&mut kept.table, &self.node, happened);
        drop(kept);
        events.iter().for_each(log);
    }

    /// Mounts that are missing because their turn has not come: the server has just started, or it
    /// stops.
    fn untried_mounts(&self) -> BTreeSet<String> {
        let missing = self.node.front_ends.mounts().into_iter().filter(|one| one.missing.is_some());
        let mut untried: BTreeSet<String> = missing.map(|one| one.mountpoint).collect();
        for lost in self.node.front_ends.lost_mounts() {
            untried.remove(&lost.mountpoint);
        }
        untried
    }

    /// Events that the file has, oldest first; all of them, as long as it cannot be written.
    pub(crate) fn list(&self, wanted: &EventList) -> Vec<Event> {
        let below = self.listed_below.load(Ordering::Relaxed);
        let (now, kept) = (Time(self.node.clock.wall()), self.keeper.kept.lock());
        wanted.choose(now, kept.table.ring.events().filter(|event| event.sequence < below))
    }

    /// Aggregates that came into service since the last look.
    fn opened(&self) -> Vec<Happening> {
        let recoveries = self.recovery.recoveries.lock();
        let seen = self.openings.swap(recoveries.len(), Ordering::Relaxed);
        let mut happened = Vec::new();
        for opened in recoveries.iter().skip(seen) {
            let name = &opened.aggregate;
            if let Some(cause) = &opened.lost_log {
                let cause = format!("its journal is lost ({cause}); a new one was made");
                let told = Happening::new(EventSeverity::Warning, "JOURNAL_REPLACED", name, cause);
                happened.push(told);
            }
            let (replayed, skipped) = (opened.replayed, opened.skipped);
            let cause = match opened.clean {
                true => "it had been stopped, and nothing was replayed".to_owned(),
                false => format!(
                    "replayed {replayed} operations, {}, in {} ms",
                    ByteSize(opened.replayed_bytes),
                    opened.nanoseconds / 1_000_000
                ),
            };
            happened.push(match skipped {
                0 => Happening::new(EventSeverity::Info, "AGGR_OPENED", name, cause),
                skipped => {
                    let cause = format!("{cause}; {skipped} operations of the journal are lost");
                    Happening::new(EventSeverity::Error, "AGGR_OPENED", name, cause)
                        .next(format!("stroop check aggr {name}"))
                }
            });
        }
        happened
    }

    fn tell(&self, happened: Vec<Happening>) {
        let events = {
            let mut kept = self.keeper.kept.lock();
            kept.changes += u64::from(!happened.is_empty());
            push(&mut kept.table, &self.node, happened)
        };
        events.iter().for_each(log);
    }

    fn store(&self) {
        let next = self.keeper.kept.lock().table.ring.next();
        self.keeper.store();
        // What could not be written is listed all the same.
        self.listed_below.fetch_max(next, Ordering::Relaxed);
    }
}

fn push(record: &mut Record, node: &Node, happened: Vec<Happening>) -> Vec<Event> {
    let now = node.clock.wall();
    happened.into_iter().map(|one| record.ring.push(now, one)).collect()
}

/// The checks that do not pass and are told as such, and what must be in service for telling.
fn failing<'a>(
    checks: &'a [HealthCheck],
    aggregates: &[AggregateInfo],
    volumes: &[VolumeInfo],
) -> Vec<Failing<'a>> {
    let told = checks.iter().filter(|check| check.code != OF_DISKS);
    told.map(|check| {
        let own = aggregates.iter().find(|one| one.name == check.object);
        let volume = volumes.iter().find(|one| one.name == check.object);
        let aggregate = match check.code.as_str() {
            code if OF_SERVICE.contains(&code) => None,
            code if code.starts_with("VOLUME_") => volume.map(|one| one.aggregate.clone()),
            "FEATURE_LACKING" => volume.map(|one| one.aggregate.clone()),
            _ => own.map(|one| one.name.clone()),
        };
        Failing { check, aggregate }
    })
    .collect()
}

/// The same event, in the log.
fn log(event: &Event) {
    let Event { sequence, code, object, cause, .. } = event;
    let next = event.next.as_deref();
    match event.severity {
        EventSeverity::Info => tracing::info!(event = sequence, object, next, "{code}: {cause}"),
        EventSeverity::Warning => tracing::warn!(event = sequence, object, next, "{code}: {cause}"),
        EventSeverity::Error => tracing::error!(event = sequence, object, next, "{code}: {cause}"),
    }
}
