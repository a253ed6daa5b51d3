//! What the parts of a node share: the engine, its disks, its front ends and the clock.
//!
//! Invariants: changes asked for by administrators are made one at a time, in the turn of
//! [`Core::turn`], because each first looks and then acts. The turn is held while the engine works;
//! nobody waits for it but other administrators, never a thread that serves files.

use super::checks::Checks;
use super::disk_table::DiskTable;
use super::journals::Journals;
use super::leaving::Emptying;
use super::recovery::{LeftOut, OfflineAggregate};
use super::returning::Tries;
use super::rules;
use crate::config::Config;
use crate::front_ends::{ExportTable, Mounts};
use crate::shutdown::Shutdown;
use admin_api::Listener;
use dblade::{Engine, Recovery, ServedVolume};
use file_service::FileService;
use locks::{Limits, LockManager};
use platform::Clock;
use platform::linux::SystemEntropy;
use platform::sync::{Mutex, MutexGuard};
use std::sync::{Arc, OnceLock};
use telemetry::Registry;
use units::Timestamp;

/// See the module.
pub(super) struct Core {
    pub config: Config,
    pub shutdown: Shutdown,
    pub clock: Arc<dyn Clock>,
    pub started: Timestamp,
    pub started_monotonic_nanoseconds: u64,
    pub registry: Registry,
    pub engine: Arc<Engine>,
    pub service: Arc<dyn FileService>,
    pub disks: DiskTable,
    pub journals: Arc<Journals>,
    pub exports: Arc<ExportTable>,
    pub mounts: Mounts,
    /// The locks of all front ends.
    pub locks: Arc<LockManager>,
    /// The NFS server's address once it runs.
    pub nfs: OnceLock<Listener>,
    /// What opening each aggregate came to.
    pub recoveries: Mutex<Vec<Recovery>>,
    /// Aggregates that could not be opened.
    pub offline: Mutex<Vec<OfflineAggregate>>,
    /// Disks that could not be used when the server started.
    pub left_out: Mutex<Vec<LeftOut>>,
    /// What came of bringing back aggregates that are away.
    pub tries: Tries,
    /// How fast groups are emptied that leave.
    pub emptying: Emptying,
    /// Checks that another process makes.
    pub checks: Checks,
    turns: Mutex<()>,
}

impl Core {
    /// A core without aggregates as yet.
    pub(super) fn new(
        config: &Config,
        shutdown: &Shutdown,
        clock: Arc<dyn Clock>,
        engine: Arc<Engine>,
        disks: DiskTable,
        journals: Arc<Journals>,
    ) -> Self {
        Self {
            config: config.clone(),
            shutdown: shutdown.clone(),
            started: clock.wall(),
            started_monotonic_nanoseconds: clock.monotonic_nanoseconds(),
            locks: Arc::new(LockManager::new(Arc::clone(&clock), Limits::default())),
            clock,
            registry: Registry::new(),
            service: Arc::new(dblade::Service(Arc::clone(&engine))),
            engine,
            disks,
            journals,
            exports: Arc::default(),
            mounts: Mounts::default(),
            nfs: OnceLock::new(),
            recoveries: Mutex::default(),
            offline: Mutex::default(),
            left_out: Mutex::default(),
            tries: Tries::default(),
            emptying: Emptying::default(),
            checks: Checks::new(&SystemEntropy),
            turns: Mutex::default(),
        }
    }

    /// The right to make changes, until it is dropped.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turns.lock()
    }

    /// Whether a volume's aggregate is in service: volumes of one whose opening failed half way
    /// are known to the engine and served by nobody.
    pub(super) fn is_in_service(&self, volume: &ServedVolume) -> bool {
        let name = &volume.aggregate.parts.identity.name;
        let found = self.engine.aggregate_named(name);
        found.is_some_and(|aggregate| Arc::ptr_eq(&aggregate, &volume.aggregate))
    }

    /// Lets NFS clients see a volume as its rules say from now on.
    pub(super) fn publish_exports(&self, volume: &ServedVolume) {
        let key = (volume.environment.file_system, volume.environment.volume);
        let rules = rules::from_records(&volume.name, &volume.exports());
        self.exports.set(&volume.name, key, &rules);
    }
}
