//! The node: where management and front ends meet the engine.
//!
//! [`start`] takes the configuration and returns a running [`Node`]; everything around it
//! (signals, lock, admin socket, log) is in `serve`.
//!
//! Order of the start: disks, engine, threads, aggregates (each replays its log), export rules,
//! NFS, the FUSE mounts of before. The stop goes the other way: FUSE mounts and NFS, then a last
//! consistency point, then threads.
//!
//! Invariants: calls of `Administration` come from threads of the admin server and may block;
//! clients are served only after every aggregate was opened or given up; after [`Node::stop`] has
//! returned no thread of the node runs and no disk is held.
//!
//! Fails: by `AdminError`. One aggregate that cannot be opened does not stop the start: `status`
//! reports it, and the others are served.

mod journals;
mod populating;
mod threads;
mod watchdog;

use crate::audit::AuditFile;
use crate::disks::openers::Openers;
use crate::front_ends::FrontEnds;
use crate::memory::{self, Shares};
use crate::metrics::NodeMetrics;
use crate::shutdown::Shutdown;
use crate::state_file::StateFile;
use admin_api::{AdminError, Code, MemoryUse};
use admin_server::Served;
use dblade::{Configuration, Engine, LogProvider, Service, Tuning};
use journals::Journals;
use management::{AuditFailure, JournalPlaces, Management, Parts, Process, Waits};
use platform::DiskOpener;
use platform::linux::{DiskOpener as LinuxDiskOpener, IoEngineKind, SystemClock, SystemEntropy};
use platform::watched::{Watch, WatchedOpener};
use populating::Populating;
use server::config::Config;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
pub(crate) use threads::Watcher;
use threads::{Threads, WATCH_INTERVAL};

/// A consistency point begins at the latest this long after the one before: what a client wrote
/// without asking for stability is lost by a crash only within it.
const CP_INTERVAL_NANOSECONDS: u64 = 10_000_000_000;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// The file of the state directory that keeps which jobs there are.
const JOB_FILE: &str = "jobs";
/// The file of the state directory that keeps which aggregates were deleted.
const DELETED_FILE: &str = "deleted-aggregates";
/// In the state directory: the short names of disks.
const NAME_FILE: &str = "disk-names";

/// The file of the state directory that keeps what has happened.
const EVENT_FILE: &str = "events";

/// A running node.
pub(crate) struct Node {
    engine: Arc<Engine>,
    management: Arc<Management>,
    front_ends: Arc<FrontEnds>,
    threads: Threads,
    populating: Option<Populating>,
    watcher: Option<Watcher>,
    watchdog: Option<Watcher>,
    nfs: Option<nfs::Server>,
    audit: Arc<AuditFile>,
}

/// The process, as management knows it.
struct ServerProcess {
    shutdown: Shutdown,
    memory_bytes: u64,
    front_ends: Arc<FrontEnds>,
    audit: Arc<AuditFile>,
}

impl Process for ServerProcess {
    fn request_shutdown(&self) {
        self.shutdown.request("asked over the admin socket");
    }

    fn memory(&self, cached: u64, dirty: u64) -> MemoryUse {
        memory::report(self.memory_bytes, (cached, dirty), self.front_ends.meter_bytes())
    }

    fn audit_failure(&self) -> Option<AuditFailure> {
        self.audit.failure()
    }
}

/// Starts a node: the engine, then its front ends.
///
/// # Errors
/// If threads cannot be started, or NFS cannot be served where the configuration says.
pub(crate) fn start(config: &Config, shutdown: &Shutdown) -> Result<Node, AdminError> {
    let failed = |error: io::Error| {
        AdminError::new(Code::Failed, "cannot start the engine", "").because(error.to_string())
    };
    let opener = LinuxDiskOpener::new(IoEngineKind::Automatic).map_err(failed)?;
    tracing::debug!(kind = ?opener.engine().kind(), "disk I/O");
    let limit_nanoseconds = config.disk_timeout_seconds * NANOSECONDS_PER_SECOND;
    let watch = Watch::new(Arc::new(SystemClock), limit_nanoseconds);
    let plain = Arc::new(opener);
    let files = WatchedOpener { inner: Arc::clone(&plain) as _, watch: Arc::clone(&watch) };
    // A journal in one place that hangs holds its clients up, and is lost to nobody. Of several
    // copies one that hangs is done without.
    let of_journals: Arc<dyn DiskOpener> = match config.journals.len() {
        1 => plain,
        _ => Arc::new(files.clone()),
    };
    let journals = Journals::new(&config.journals, config.journal_on_disks, of_journals);
    let journals = Arc::new(journals);
    let openers = Openers::new(Arc::new(files), config)?;
    memory::keep_little(config.memory.0);
    let shares = Shares::of(config.memory.0);
    let engine_bytes = shares.engine_bytes.saturating_sub(openers.memory_bytes());
    let configuration = Configuration {
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        logs: Arc::clone(&journals) as Arc<dyn LogProvider>,
        memory_bytes: engine_bytes,
        cp_interval_nanoseconds: CP_INTERVAL_NANOSECONDS,
        tuning: Tuning::default(),
    };
    let engine = Engine::with_memory(configuration, memory::blocks());
    let threads = Threads::start(&engine, &watch, config.workers).map_err(failed)?;
    let service = Arc::new(Service(Arc::clone(&engine)));
    let front_ends = Arc::new(FrontEnds::new(config, service, Arc::new(SystemClock)));
    let audit = Arc::new(AuditFile::new(&config.state_directory));
    let process = ServerProcess {
        shutdown: shutdown.clone(),
        memory_bytes: config.memory.0,
        front_ends: Arc::clone(&front_ends),
        audit: Arc::clone(&audit),
    };
    let management = Arc::new(Management::new(Parts {
        name: config.name.clone(),
        memory_bytes: config.memory.0,
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        engine: Arc::clone(&engine),
        waits: Waits::default(),
        disks: Arc::new(openers),
        watch,
        journals: journals as Arc<dyn JournalPlaces>,
        front_ends: Arc::clone(&front_ends) as Arc<dyn management::FrontEnds>,
        process: Arc::new(process),
        job_file: Arc::new(StateFile::new(&config.state_directory, JOB_FILE)),
        event_file: Arc::new(StateFile::new(&config.state_directory, EVENT_FILE)),
        deleted_file: Arc::new(StateFile::new(&config.state_directory, DELETED_FILE)),
        name_file: Arc::new(StateFile::new(&config.state_directory, NAME_FILE)),
    }));
    management.open_aggregates();
    let watched = Arc::clone(&management);
    let fronts = Arc::clone(&front_ends);
    let mut node = Node {
        engine,
        management,
        front_ends,
        threads,
        populating: None,
        watcher: None,
        watchdog: None,
        nfs: None,
        audit,
    };
    let watch = move || {
        watched.watch();
        fronts.bring_mounts_back();
    };
    let watcher = Watcher::start("disk-watch", WATCH_INTERVAL, watch).map_err(failed);
    let served = watcher.and_then(|watcher| {
        node.watcher = Some(watcher);
        node.nfs = node.front_ends.serve_nfs(config)?;
        node.front_ends.bring_mounts_back();
        node.front_ends.await_mounts();
        node.watchdog = watchdog::start(&node.engine, node.threads.ticks()).map_err(failed)?;
        let blocks_max = Engine::blocks_max(engine_bytes, memory::BLOCK_BYTES);
        let populating = Populating::start(blocks_max, config.populate_at_start);
        node.populating = Some(populating.map_err(failed)?);
        Ok(())
    });
    match served {
        Ok(()) => Ok(node),
        Err(error) => {
            if let Err(also) = node.stop() {
                tracing::error!(%also, "the engine could not be stopped cleanly");
            }
            Err(error)
        }
    }
}

impl Node {
    /// What administrators talk to.
    pub(crate) fn served(&self) -> Served {
        Served {
            node: Arc::clone(&self.management) as _,
            audit: Arc::clone(&self.audit) as _,
            clock: Arc::new(SystemClock),
        }
    }

    /// What is shown over HTTP at `address`.
    pub(crate) fn metrics(&self, address: SocketAddr) -> NodeMetrics {
        self.front_ends.note_metrics(address);
        NodeMetrics(Arc::clone(&self.management))
    }

    /// Stops the node: first the front ends, so that nothing more is answered, then the engine.
    ///
    /// # Errors
    /// If its last consistency points fail. Nothing is lost then that was acknowledged: the next
    /// start replays the log.
    pub(crate) fn stop(self) -> Result<(), AdminError> {
        let Self {
            engine,
            management,
            front_ends,
            mut threads,
            populating,
            watcher,
            watchdog,
            nfs,
            audit: _,
        } = self;
        populating.into_iter().for_each(Populating::stop);
        for watcher in [watchdog, watcher].into_iter().flatten() {
            watcher.stop();
        }
        management.end_upkeep();
        front_ends.stop_mounts();
        if let Some(mut nfs) = nfs {
            nfs.stop();
        }
        // Ticks would look at aggregates that are being stopped.
        threads.stop_ticking();
        let stopped = management.stop();
        // Messages that wait for an aggregate which failed, or was stopped, would wait for ever.
        let has_failed = engine.aggregates().iter().any(|held| held.is_failed());
        let halt = stopped.is_err() || has_failed || engine.is_closing();
        threads.stop(halt);
        stopped
    }
}
