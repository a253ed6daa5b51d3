//! The node: where administration and front ends meet the engine.
//!
//! [`start`] takes the configuration and returns a running [`Node`]; everything around it
//! (signals, lock, admin socket, log) is in `serve`.
//!
//! Order of the start: disks, engine, threads, aggregates (each replays its log), export rules,
//! NFS. The stop goes the other way: FUSE mounts and NFS, then a last consistency point, then
//! threads.
//!
//! Invariants: calls of `Administration` come from threads of the admin server and may block;
//! clients are served only after every aggregate was opened or given up; after [`Node::stop`] has
//! returned no thread of the node runs and no disk is held.
//!
//! Fails: by `AdminError`. One aggregate that cannot be opened does not stop the start: `status`
//! reports it, and the others are served.

mod activity;
mod administration;
mod aggregates;
mod area_map;
mod blocking;
mod candidates;
mod check;
mod checks;
mod core;
mod disk_table;
mod growth;
mod health;
mod journals;
mod leaving;
mod locate;
pub(crate) mod openers;
pub(crate) mod patience;
mod recovery;
mod refusals;
mod replacement;
mod returning;
mod rules;
mod scrub;
mod snapshots;
mod spares;
mod status;
mod threads;
mod upkeep;
mod volumes;

use self::core::Core;
use crate::config::Config;
use crate::front_ends;
use crate::memory::{self, Shares};
use crate::shutdown::Shutdown;
use admin_api::{AdminError, Administration, Code};
use blocking::request;
use dblade::{Configuration, Engine, LogProvider, Tuning};
use disk_table::DiskTable;
use journals::Journals;
use openers::Openers;
use platform::linux::{DiskOpener as LinuxDiskOpener, IoEngineKind, SystemClock, SystemEntropy};
use platform::watched::{Watch, WatchedOpener};
use std::io;
use std::sync::Arc;
use threads::{Threads, Watcher};

/// A consistency point begins at the latest this long after the one before: what a client wrote
/// without asking for stability is lost by a crash only within it.
const CP_INTERVAL_NANOSECONDS: u64 = 10_000_000_000;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// A running node.
pub(crate) struct Node {
    core: Arc<Core>,
    threads: Threads,
    watcher: Option<Watcher>,
    nfs: Option<nfs::Server>,
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
    let journals = Arc::new(Journals::new(config.journal.clone(), Arc::new(opener.clone())));
    let limit_nanoseconds = config.disk_timeout_seconds * NANOSECONDS_PER_SECOND;
    let watch = Watch::new(Arc::new(SystemClock), limit_nanoseconds);
    // Not the journals: a journal that hangs holds its clients up, and is lost to nobody.
    let files = WatchedOpener { inner: Arc::new(opener), watch: Arc::clone(&watch) };
    let openers = Openers::new(Arc::new(files), config)?;
    memory::keep_little(config.memory.0);
    let shares = Shares::of(config.memory.0);
    let configuration = Configuration {
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        logs: Arc::clone(&journals) as Arc<dyn LogProvider>,
        memory_bytes: shares.engine_bytes.saturating_sub(openers.memory_bytes()),
        cp_interval_nanoseconds: CP_INTERVAL_NANOSECONDS,
        tuning: Tuning::default(),
    };
    let engine = Engine::with_gauge(configuration, memory::live_blocks, memory::BLOCK_BYTES);
    let threads = Threads::start(&engine, &watch, config.workers).map_err(failed)?;
    let disks = DiskTable::new(config.disks.clone(), Arc::new(openers), watch);
    let core = Core::new(config, shutdown, Arc::new(SystemClock), engine, disks, journals);
    core.open_aggregates();
    let core = Arc::new(core);
    let mut node = Node { core: Arc::clone(&core), threads, watcher: None, nfs: None };
    let watched = Watcher::start(move || core.watch_disks()).map_err(failed);
    let served = watched.and_then(|watcher| {
        node.watcher = Some(watcher);
        node.serve_nfs()
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
    fn serve_nfs(&mut self) -> Result<(), AdminError> {
        let core = &self.core;
        let Some(address) = core.config.nfs else { return Ok(()) };
        let (service, exports) = (Arc::clone(&core.service), Arc::clone(&core.exports));
        let server = front_ends::start_nfs(
            address,
            &core.config,
            service,
            exports,
            Arc::clone(&core.clock),
            Arc::clone(&core.locks),
        )?;
        let set = core.nfs.set(front_ends::listener(&server));
        assert!(set.is_ok(), "NFS is started once");
        self.nfs = Some(server);
        Ok(())
    }

    /// What administrators talk to.
    pub(crate) fn administration(&self) -> Arc<dyn Administration> {
        Arc::clone(&self.core) as Arc<dyn Administration>
    }

    /// Stops the node: first the front ends, so that nothing more is answered, then the engine.
    ///
    /// # Errors
    /// If its last consistency points fail. Nothing is lost then that was acknowledged: the next
    /// start replays the log.
    pub(crate) fn stop(self) -> Result<(), AdminError> {
        let Self { core, mut threads, watcher, nfs } = self;
        if let Some(watcher) = watcher {
            watcher.stop();
        }
        core.disks.upkeep.stop();
        core.disks.locating.stop();
        core.mounts.stop_all();
        if let Some(mut nfs) = nfs {
            nfs.stop();
        }
        // A consistency point that a tick begins now would only undo the mark of a clean stop.
        threads.stop_ticking();
        let message = "cannot write the last consistency point";
        let stopped = request(message, "", |done| core.engine.stop(done));
        // Messages that wait for an aggregate which has failed would wait for ever.
        let has_failed = core.engine.aggregates().iter().any(|held| held.is_failed());
        let halt = stopped.is_err() || has_failed || core.engine.is_closing();
        threads.stop(halt);
        stopped
    }
}
