//! The rooms together: a node that is managed.
//!
//! Order of the start: [`Management::new`], then [`Management::open_aggregates`]; from then on
//! [`Management::watch`] is called once a second, by one thread.

use crate::aggregates::Aggregates;
use crate::aggregates::naming::Naming;
use crate::checks::{CheckTable, Checks};
use crate::disk_administration::DiskAdministration;
use crate::disks::deleted::DeletedAggregates;
use crate::disks::names::DiskNames;
use crate::disks::table::DiskTable;
use crate::events::Events;
use crate::jobs::Jobs;
use crate::keeping::Unwritten;
use crate::node::Node;
use crate::ports::{DiskSource, FrontEnds, JournalPlaces, Process, StateFile};
use crate::recovery::{Erasing, Recovery, Tries};
use crate::scrub::Scrubs;
use crate::status::Status;
use crate::volumes::comparisons::Comparisons;
use crate::volumes::looks::Looks;
use crate::volumes::{Due, RecoveryQueue, Volumes, schedules};
use crate::waits::Waits;
use admin_api::{AdminError, HealthCheck};
use dblade::Engine;
use platform::sync::Mutex;
use platform::watched::Watch;
use platform::{Clock, Entropy};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use telemetry::{Registry, Snapshot};

/// The share of the memory cap that remembering what is kept for a check may take.
const CHECK_MEMORY_SHARE: u64 = 64;

/// What a node is made of.
pub struct Parts {
    /// Its name.
    pub name: String,
    /// Its memory cap.
    pub memory_bytes: u64,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// Its randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Its engine.
    pub engine: Arc<Engine>,
    /// How calls wait for the engine.
    pub waits: Waits,
    /// Its disks.
    pub disks: Arc<dyn DiskSource>,
    /// What gives the requests to its disks a time.
    pub watch: Arc<Watch>,
    /// Where its journals are.
    pub journals: Arc<dyn JournalPlaces>,
    /// Its front ends.
    pub front_ends: Arc<dyn FrontEnds>,
    /// Its process.
    pub process: Arc<dyn Process>,
    /// Keeps its jobs.
    pub job_file: Arc<dyn StateFile>,
    /// Keeps its events.
    pub event_file: Arc<dyn StateFile>,
    /// Keeps which aggregates were deleted.
    pub deleted_file: Arc<dyn StateFile>,
    /// Keeps the short names of disks.
    pub name_file: Arc<dyn StateFile>,
}

/// See the module.
pub struct Management {
    pub(crate) node: Arc<Node>,
    pub(crate) disks: Arc<DiskTable>,
    pub(crate) aggregates: Arc<Aggregates>,
    pub(crate) disk_administration: DiskAdministration,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) scrubs: Scrubs,
    pub(crate) jobs: Jobs,
    pub(crate) checks: Arc<Checks>,
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) status: Status,
    pub(crate) events: Events,
    pub(crate) process: Arc<dyn Process>,
}

impl Management {
    /// A node without aggregates as yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { name, memory_bytes, clock, entropy, engine, .. } = parts;
        let (waits, watch, journals, process) =
            (parts.waits, parts.watch, parts.journals, parts.process);
        let unwritten = Arc::new(Unwritten::default());
        let names = DiskNames::of(parts.name_file, Arc::clone(&unwritten));
        let kept = (DeletedAggregates::of(parts.deleted_file), names);
        let disks = Arc::new(DiskTable::new(parts.disks, kept, watch, waits.clone()));
        let node = Arc::new(Node::new(engine, clock, parts.front_ends, (waits, unwritten)));
        let registry = Arc::new(Registry::new());
        let aggregates = Arc::new(Aggregates::new(Arc::clone(&node), Arc::clone(&disks)));
        let disk_administration = DiskAdministration {
            node: Arc::clone(&node),
            disks: Arc::clone(&disks),
            aggregates: Arc::clone(&aggregates),
        };
        let volumes = Arc::new(Volumes {
            node: Arc::clone(&node),
            aggregates: Arc::clone(&aggregates),
            registry: Arc::clone(&registry),
            due: Due::default(),
            comparisons: Comparisons::default(),
            looks: Looks::default(),
        });
        let checks = Arc::new(Checks {
            node: Arc::clone(&node),
            disks: Arc::clone(&disks),
            table: CheckTable::new(&*entropy),
            memory_bytes: memory_bytes / CHECK_MEMORY_SHARE,
        });
        let recovery = Arc::new(Recovery {
            node: Arc::clone(&node),
            disks: Arc::clone(&disks),
            aggregates: Arc::clone(&aggregates),
            checks: Arc::clone(&checks),
            journals: Arc::clone(&journals),
            tries: Tries::default(),
            erasing: Erasing::default(),
            probed_nanoseconds: AtomicU64::default(),
            recoveries: Mutex::default(),
        });
        let status = Status {
            name,
            started: node.clock.wall(),
            started_monotonic_nanoseconds: node.clock.monotonic_nanoseconds(),
            registry,
            measuring: Mutex::default(),
            disks: Arc::clone(&disks),
            process: Arc::clone(&process),
            journals,
            node: Arc::clone(&node),
            aggregates: Arc::clone(&aggregates),
            volumes: Arc::clone(&volumes),
            checks: Arc::clone(&checks),
            recovery: Arc::clone(&recovery),
        };
        let scrubs = Scrubs { node: Arc::clone(&node) };
        let jobs = Jobs::new(Arc::clone(&aggregates), parts.job_file);
        let events = Events::new(Arc::clone(&node), Arc::clone(&recovery), parts.event_file);
        Self {
            node,
            disks,
            aggregates,
            disk_administration,
            volumes,
            scrubs,
            jobs,
            checks,
            recovery,
            status,
            events,
            process,
        }
    }

    /// Opens every aggregate that the disks hold.
    pub fn open_aggregates(&self) {
        self.events.note_start(self.jobs.damage());
        self.recovery.resume_deletions();
        self.recovery.open_aggregates();
        Naming(&self.aggregates).name_disks();
        self.jobs.look();
        self.events.look(&self.status, &self.jobs);
    }

    /// What is to be done about disks, deleted volumes and schedules every second.
    pub fn watch(&self) {
        self.disks.locating.tick(self.node.clock.monotonic_nanoseconds());
        self.aggregates.watch_leaving();
        RecoveryQueue(&self.volumes).purge_due();
        schedules::take_due(&self.volumes);
        self.checks.expire_checks();
        self.recovery.probe_journals();
        // A disk that left and is there again within the second was away all the same.
        self.events.look_without_file(&self.status, &self.jobs);
        self.recovery.resume_deletions();
        self.recovery.bring_back();
        Naming(&self.aggregates).name_disks();
        Naming(&self.aggregates).number_labels();
        self.jobs.look();
        self.events.look(&self.status, &self.jobs);
    }

    /// The health checks that do not pass, and all metrics, now. Nothing waits for the engine.
    #[must_use]
    pub fn metrics(&self) -> (Vec<HealthCheck>, Snapshot) {
        self.status.glance_at_metrics(&self.jobs.known())
    }

    /// Ends what was begun with disks and would go on by itself: the node is about to stop.
    pub fn end_upkeep(&self) {
        self.disks.upkeep.stop();
        self.disks.locating.stop();
    }

    /// Writes the last consistency points.
    ///
    /// # Errors
    /// If they fail. Nothing is lost then that was acknowledged: the next start replays the log.
    pub fn stop(&self) -> Result<(), AdminError> {
        // What happened since the last look would be told by the next start only, and work that
        // has ended by then would count as broken off.
        self.jobs.look_before();
        self.events.look_without_file(&self.status, &self.jobs);
        let message = "cannot write the last consistency point";
        let stopped = self.node.waits.request(message, "", |done| self.node.engine.stop(done));
        // A directory that hangs holds up no consistency point.
        self.jobs.keeper.store();
        self.events.note_stop(stopped.as_ref().err());
        stopped
    }
}
