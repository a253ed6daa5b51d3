//! An engine on modelled drives, for the time of a figure.
//!
//! Consistency points begin when a share of the memory is dirty, never because of the time, and the
//! memory is a share of the aggregate: what the drives are asked depends on the loads alone, not on
//! how fast or how busy the machine is.
//!
//! Invariant: nothing is left behind; all of it is memory.

use crate::freespace::drive::{Drive, Model};
use crate::freespace::variant::Variant;
use crate::memory::{Completions, MemoryDisk};
use crate::node::{BenchError, TICK, start_threads, wait};
use aggregate::Aggregate;
use dblade::{
    AddDisks, Configuration, CreateAggregate, Engine, Joining, LogProvider, LogUnavailable,
    Service, Tuning, VolumeRequest,
};
use file_service::{
    Caller, CreateMode, Done, FileHandle, FileService, FsError, SetAttributes, calls,
};
use media::Profile;
use ondisk::label::RaidKind;
use platform::Disk;
use platform::linux::{SystemClock, SystemEntropy};
use platform::thread::{JoinHandle, spawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{AggregateUuid, BLOCK_SIZE_U64};

const NAME: &str = "freespace";
const LOG_BYTES: u64 = 128 << 20;
const WORKERS: usize = 2;
/// Threads that run completions, and with them much of what writes stripes.
const COMPLETERS: usize = 2;
/// The engine's memory as a share of the aggregate. It begins a consistency point when an eighth of
/// that is dirty: a 64th of the aggregate, an area of 4 Ki stripes where disks have 1 GiB.
const MEMORY_SHARE: u64 = 8;
/// Below this the engine's tables have no room.
const MEMORY_BYTES_MIN: u64 = 32 << 20;
/// Longer than any figure takes.
const CP_INTERVAL_NANOSECONDS: u64 = 24 * 3600 * 1_000_000_000;

/// What a rig is made of.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub kind: RaidKind,
    /// Groups; without parity each disk is one.
    pub groups: usize,
    /// Data disks of a group.
    pub data_disks: usize,
    pub disk_bytes: u64,
    pub model: Model,
}

impl Shape {
    /// Disks of a group, parity included.
    pub const fn group_disks(&self) -> usize {
        self.data_disks + self.kind.parity_disks()
    }

    /// What its data disks hold at the most, for the size of memory and volumes.
    pub const fn data_bytes(&self) -> u64 {
        self.disk_bytes * (self.groups * self.data_disks) as u64
    }
}

/// See the module.
pub(super) struct Rig {
    shape: Shape,
    pub engine: Arc<Engine>,
    pub service: Arc<Service>,
    drives: Vec<Drive>,
    /// What labels say of drives, also of those that join.
    media: Option<Profile>,
    completions: Arc<Completions>,
    log: Arc<MemoryDisk>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    completers: Vec<JoinHandle<()>>,
}

/// An engine and its threads.
struct Running {
    engine: Arc<Engine>,
    service: Arc<Service>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

struct Log(Arc<MemoryDisk>);

fn no_threads(error: std::io::Error) -> BenchError {
    BenchError::System { what: "cannot start threads", error }
}

impl LogProvider for Log {
    fn create(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        self.open(aggregate).map_err(|error| error.to_string())
    }

    fn open(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        Ok(Arc::clone(&self.0) as _)
    }
}

/// Starts an engine that has no disks yet.
fn start(shape: &Shape, variant: &Variant, log: &Arc<MemoryDisk>) -> Result<Running, BenchError> {
    let mut configuration = Configuration {
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        logs: Arc::new(Log(Arc::clone(log))),
        memory_bytes: (shape.data_bytes() / MEMORY_SHARE).max(MEMORY_BYTES_MIN),
        cp_interval_nanoseconds: CP_INTERVAL_NANOSECONDS,
        tuning: Tuning::default(),
    };
    (variant.configure)(shape, &mut configuration);
    let engine = Engine::new(configuration);
    let stopping = Arc::new(AtomicBool::new(false));
    let threads = start_threads(&engine, &stopping, WORKERS, (TICK, |engine| engine.tick()));
    let threads = threads.map_err(no_threads)?;
    let service = Arc::new(Service(Arc::clone(&engine)));
    Ok(Running { engine, service, stopping, threads })
}

impl Rig {
    /// A new aggregate on new drives.
    pub fn new(shape: &Shape, variant: &Variant) -> Result<Self, BenchError> {
        let completions = Arc::new(Completions::default());
        let log_blocks = LOG_BYTES / BLOCK_SIZE_U64;
        let log = MemoryDisk::new("journal".to_owned(), log_blocks, &completions);
        let completer = |number| {
            let completions = Arc::clone(&completions);
            spawn(&format!("completer-{number}"), move || completions.work())
        };
        let completers =
            (0..COMPLETERS).map(completer).collect::<Result<_, _>>().map_err(no_threads)?;
        let Running { engine, service, stopping, threads } = start(shape, variant, &log)?;
        let (shape, drives, media) = (shape.clone(), Vec::new(), None);
        let mut rig = Self {
            shape,
            engine,
            service,
            drives,
            media,
            completions,
            log,
            stopping,
            threads,
            completers,
        };
        rig.create(variant)?;
        Ok(rig)
    }

    fn create(&mut self, variant: &Variant) -> Result<(), BenchError> {
        let disks = self.make_drives(self.shape.groups);
        let mut request = CreateAggregate {
            group_size: self.shape.group_disks(),
            media: Some(self.shape.model.media()),
            ..CreateAggregate::new(NAME, self.shape.kind, disks)
        };
        (variant.create)(&mut request);
        self.media = request.media;
        Ok(wait(|done| self.engine.create_aggregate(request, done))?)
    }

    fn make_drives(&mut self, groups: usize) -> Vec<Arc<dyn Disk>> {
        let known = self.drives.len();
        let drive = |number| {
            let (name, size_bytes) = (format!("drive{number}"), self.shape.disk_bytes);
            Drive::new(name, size_bytes, &self.shape.model, &self.completions)
        };
        let made = (known..known + groups * self.shape.group_disks()).map(drive);
        let made: Vec<Drive> = made.collect();
        self.drives.extend(made);
        self.drives[known..].iter().map(Drive::disk).collect()
    }

    /// Makes the aggregate larger by groups like those that it has.
    pub fn add_groups(&mut self, groups: usize) -> Result<(), BenchError> {
        let (kind, group_size) = (self.shape.kind, self.shape.group_disks());
        let request = AddDisks {
            disks: self.make_drives(groups),
            to: Joining::NewGroups { kind, group_size },
            media: self.media,
            force: false,
            zeroing: Arc::default(),
        };
        Ok(wait(|done| self.engine.add_disks(NAME, request, done))?)
    }

    /// A new volume with an empty file.
    pub fn new_file(&self, volume: &str, volume_blocks: u64) -> Result<FileHandle, BenchError> {
        let request = VolumeRequest::new(volume, NAME, volume_blocks);
        wait(|done| self.engine.create_volumes(request, done))?;
        let failed = |error: FsError| BenchError::Operation { load: "create", error };
        let root = wait(|done: Done<_>| {
            self.service.root(&Caller::root(), calls::Root { name: volume.to_owned() }, done)
        })
        .map_err(failed)?;
        let made = wait(|done| {
            let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
            self.service.create(
                &Caller::root(),
                calls::Create { directory: root.handle, name: b"data".to_vec(), mode, set },
                done,
            );
        });
        made.map(|(entry, _)| entry.handle).map_err(failed)
    }

    pub fn aggregate(&self) -> Arc<Aggregate> {
        let Some(aggregate) = self.engine.aggregate_named(NAME) else {
            unreachable!("the rig has made it")
        };
        aggregate
    }

    /// Has everything that was done so far committed.
    pub fn commit(&self) -> Result<(), BenchError> {
        let aggregate = self.aggregate();
        aggregate.force();
        let committed = wait(|done| aggregate.request_consistency_point(Some(done)));
        Ok(committed.map_err(dblade::EngineError::from)?)
    }

    /// Stops the engine, and starts one that knows nothing of the drives until it opens them.
    pub fn restart(&mut self, variant: &Variant) -> Result<(), BenchError> {
        self.stop()?;
        let running = start(&self.shape, variant, &self.log)?;
        (self.engine, self.service) = (running.engine, running.service);
        (self.stopping, self.threads) = (running.stopping, running.threads);
        Ok(())
    }

    /// Has an engine that was started again open the aggregate.
    pub fn open(&self) -> Result<(), BenchError> {
        let disks = self.drives.iter().map(Drive::disk).collect();
        wait(|done| self.engine.open_aggregate(disks, done))?;
        Ok(())
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        let stopped = wait(|done| self.engine.stop(done));
        self.stopping.store(true, Ordering::Release);
        self.engine.scheduler().shutdown();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        // What aggregate and store know of each other would keep the drives' memory.
        self.engine.halt();
        Ok(stopped?)
    }

    /// The drives of each group, the parity drives first.
    pub fn groups(&self) -> impl Iterator<Item = &[Drive]> {
        let alone = self.shape.kind == RaidKind::None;
        self.drives.chunks(if alone { 1 } else { self.shape.group_disks() })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The drives are thrown away: what the last consistency point says matters to nobody.
        let _ = self.stop();
        self.completions.end();
        self.completers.drain(..).for_each(|thread| drop(thread.join()));
    }
}
