//! An engine on file-backed disks in a directory, for the time of a bench.
//!
//! Invariants: the directory is the caller's; what was made in it is removed with the node.

use dblade::{
    Configuration, CreateAggregate, Engine, LogProvider, LogUnavailable, Service, Tuning,
    VolumeRequest,
};
use ondisk::label::RaidKind;
use platform::disk::DiskOpener;
use platform::linux::{IoEngineKind, SystemClock, SystemEntropy, create_file_disk};
use platform::sync::{Condvar, Mutex};
use platform::thread::{JoinHandle, spawn, spawn_batch};
use platform::{Disk, DiskError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thiserror::Error;
use units::{AggregateUuid, BLOCK_SIZE_U64};

/// Why a bench ended early.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A disk could not be made or opened.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] dblade::EngineError),
    /// An operation failed.
    #[error("{load}: {error}")]
    Operation {
        /// The load.
        load: &'static str,
        /// What the engine answered.
        error: file_service::FsError,
    },
    /// A load over a protocol failed.
    #[error("{load}, {target}: {why}")]
    Load {
        /// The load.
        load: String,
        /// The server.
        target: String,
        /// What went wrong.
        why: String,
    },
    /// A server was not to be had.
    #[error("{what} does not serve: {why}")]
    Server {
        /// Which.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// A file system of others could not be made.
    #[error("cannot make {name}: {why}")]
    FileSystem {
        /// Which.
        name: &'static str,
        /// Why not.
        why: String,
    },
    /// No load has such a name.
    #[error("there is no load of this name; the loads are: {known}")]
    NoLoad {
        /// All names.
        known: String,
    },
    /// The operating system refused.
    #[error("{what}: {error}")]
    System {
        /// What was asked.
        what: &'static str,
        /// What it said.
        error: std::io::Error,
    },
}

/// How often the engine is ticked.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// Data disks and one of parity.
const DISKS: usize = 4;
const LOG_BYTES: u64 = 256 << 20;

/// See the module.
pub(crate) struct Node {
    pub engine: Arc<Engine>,
    pub service: Arc<Service>,
    directory: PathBuf,
    threads: Vec<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
}

/// A log that is a file.
pub(crate) struct FileLog {
    pub opener: Arc<platform::linux::DiskOpener>,
    pub path: PathBuf,
}

impl LogProvider for FileLog {
    fn create(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        create_file_disk(&self.path, LOG_BYTES).map_err(|error| error.to_string())?;
        self.open(aggregate).map_err(|error| error.to_string())
    }

    fn open(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        Ok(self.opener.open(&self.path.display().to_string())?)
    }
}

/// Waits for an answer.
pub(crate) fn wait<T: Send + 'static>(start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
    let slot: Arc<(Mutex<Option<T>>, Condvar)> = Arc::new((Mutex::new(None), Condvar::new()));
    let same = Arc::clone(&slot);
    start(Box::new(move |value| {
        *same.0.lock() = Some(value);
        same.1.notify_one();
    }));
    let mut answer = slot.0.lock();
    loop {
        if let Some(value) = answer.take() {
            return value;
        }
        slot.1.wait(&mut answer);
    }
}

/// What an engine is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePlan {
    /// The size of each disk.
    pub disk_bytes: u64,
    pub memory_bytes: u64,
    pub workers: usize,
    /// Whether the aggregate is a traditional volume.
    pub traditional: bool,
}

impl Node {
    /// An engine with one raid4 aggregate and one volume called `bench`.
    pub fn start(directory: &Path, plan: NodePlan) -> Result<Self, BenchError> {
        let NodePlan { disk_bytes, memory_bytes, workers, traditional } = plan;
        let system = |what| move |error| BenchError::System { what, error };
        std::fs::create_dir_all(directory).map_err(system("cannot make the directory"))?;
        let opener = platform::linux::DiskOpener::new(IoEngineKind::Automatic);
        let opener = Arc::new(opener.map_err(system("cannot start disk I/O"))?);
        let mut disks = Vec::new();
        for disk in 0..DISKS {
            let path = directory.join(format!("bench-disk{disk}.img"));
            create_file_disk(&path, disk_bytes)?;
            disks.push(opener.open(&path.display().to_string())?);
        }
        let path = directory.join("bench-journal.img");
        let engine = Engine::new(Configuration {
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            logs: Arc::new(FileLog { opener, path }),
            memory_bytes,
            cp_interval_nanoseconds: 10_000_000_000,
            tuning: Tuning::default(),
        });
        let stopping = Arc::new(AtomicBool::new(false));
        let threads = start_threads(&engine, &stopping, workers, (TICK, |engine| engine.tick()));
        let threads = threads.map_err(system("cannot start threads"))?;
        let service = Arc::new(Service(Arc::clone(&engine)));
        let directory = directory.to_owned();
        let node = Self { engine, service, directory, threads, stopping };
        let kind = RaidKind::Raid4;
        let request = CreateAggregate::new("bench", kind, disks);
        let request = CreateAggregate { force: true, traditional, ..request };
        wait(|done| node.engine.create_aggregate(request, done))?;
        if traditional {
            return Ok(node);
        }
        let size_blocks = disk_bytes / BLOCK_SIZE_U64 * (DISKS as u64 - 1);
        let volume = VolumeRequest::new("bench", "bench", size_blocks);
        wait(|done| node.engine.create_volumes(volume, done))?;
        Ok(node)
    }
}

/// Threads that run messages, and one that does something after each `period` until `stopping`.
pub(crate) fn start_threads(
    engine: &Arc<Engine>,
    stopping: &Arc<AtomicBool>,
    workers: usize,
    (period, mut each): (Duration, impl FnMut(&Arc<Engine>) + Send + 'static),
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let worker = |number| {
        let scheduler = engine.scheduler().clone();
        spawn_batch(&format!("worker-{number}"), move || scheduler.worker_loop())
    };
    let mut threads = (0..workers).map(worker).collect::<std::io::Result<Vec<_>>>()?;
    let (engine, stopping) = (Arc::clone(engine), Arc::clone(stopping));
    threads.push(spawn("ticker", move || {
        let (never, lock) = (Condvar::new(), Mutex::new(()));
        while !stopping.load(Ordering::Acquire) {
            let _ = never.wait_for(&mut lock.lock(), period);
            each(&engine);
        }
    })?);
    Ok(threads)
}

impl Drop for Node {
    fn drop(&mut self) {
        // The disks are thrown away: what the last consistency point says matters to nobody.
        let _ = wait(|done| self.engine.stop(done));
        self.stopping.store(true, Ordering::Release);
        self.engine.scheduler().shutdown();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for disk in 0..DISKS {
            let _ = std::fs::remove_file(self.directory.join(format!("bench-disk{disk}.img")));
        }
        let _ = std::fs::remove_file(self.directory.join("bench-journal.img"));
    }
}
