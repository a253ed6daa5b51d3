//! An engine on the model's disks and cores, put together as a node puts it together: one aggregate
//! of raid4 groups, a log on a device of its own, several volumes.
//!
//! Invariant: nothing is left behind; all of it is memory.

use super::cores::{Cores, Lanes};
use super::disk::{Medium, ModelDisk};
use super::world::{Costs, World};
use super::{ModelBench, Shape};
use crate::node::{BenchError, TICK};
use aggregate::Aggregate;
use dblade::{
    Configuration, CreateAggregate, Engine, LogProvider, LogUnavailable, Service, Tuning,
    VolumeRequest,
};
use file_service::{
    Caller, CreateMode, Done, FileHandle, FileService, FsError, SetAttributes, calls,
};
use ondisk::label::RaidKind;
use platform::completion;
use platform::linux::completion_threads_count;
use platform::sync::Mutex;
use platform::{Disk, Entropy, Seeded};
use std::sync::Arc;
use units::{AggregateUuid, BLOCK_SIZE_U64};

const NAME: &str = "model";
const LOG_BYTES: u64 = 1 << 30;
/// What a disk has beside its share of the files: room for two images of them, and metadata.
const ROOM_FACTOR: u64 = 3;
/// Threads that write the log, as the real node has them.
const LOG_THREADS: usize = 2;
const CP_INTERVAL_NANOSECONDS: u64 = 10_000_000_000;

struct Log(Arc<ModelDisk>);

impl LogProvider for Log {
    fn create(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        Ok(Arc::clone(&self.0) as _)
    }

    fn open(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        Ok(Arc::clone(&self.0) as _)
    }
}

/// The same identities in each run.
struct Identities(Mutex<Seeded>);

impl Entropy for Identities {
    fn next_u64(&self) -> u64 {
        self.0.lock().number()
    }
}

/// See the module.
pub(super) struct Rig {
    pub world: Arc<World>,
    pub cores: Cores,
    pub service: Arc<Service>,
    pub completion_threads: usize,
    engine: Arc<Engine>,
    disks: Vec<Arc<ModelDisk>>,
    log: Arc<ModelDisk>,
}

impl Rig {
    /// A new aggregate on new disks.
    pub fn new(bench: &ModelBench, shape: Shape, costs: Costs) -> Result<Self, BenchError> {
        let world = Arc::new(World::new(costs));
        let log = ModelDisk::new(&world, "log".to_owned(), LOG_BYTES, Medium::NVME);
        let engine = Engine::new(Configuration {
            clock: Arc::clone(&world) as _,
            entropy: Arc::new(Identities(Mutex::new(Seeded::new(1)))),
            logs: Arc::new(Log(Arc::clone(&log))),
            memory_bytes: bench.memory.0,
            cp_interval_nanoseconds: CP_INTERVAL_NANOSECONDS,
            tuning: Tuning::default(),
        });
        let of_node = || completion_threads_count(shape.cores);
        let completion_threads = bench.completion_threads.unwrap_or_else(of_node);
        let lanes = Lanes {
            workers: shape.cores,
            completions: completion_threads,
            log: LOG_THREADS,
            // A thread for each client's connection, and the thread that ticks.
            calls: bench.streams() + 1,
        };
        let mut cores = Cores::new(&world, engine.scheduler(), shape.cores, lanes);
        let same = Arc::clone(&engine);
        cores.tick_every(TICK.as_nanos() as u64, Arc::new(move || same.tick()));
        let service = Arc::new(Service(Arc::clone(&engine)));
        let disks = Vec::new();
        let mut rig = Self { world, cores, service, completion_threads, engine, disks, log };
        rig.create(bench, shape)?;
        Ok(rig)
    }

    fn create(&mut self, bench: &ModelBench, shape: Shape) -> Result<(), BenchError> {
        let disk_bytes = (bench.size.0 * ROOM_FACTOR / shape.data_disks() as u64).max(1 << 30);
        let disk =
            |number| ModelDisk::new(&self.world, format!("disk{number}"), disk_bytes, bench.medium);
        self.disks = (0..shape.disks).map(disk).collect();
        let disks = self.disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Disk>).collect();
        let kind = if shape.disks == 1 { RaidKind::None } else { RaidKind::Raid4 };
        let group_size = shape.group_size;
        let request = CreateAggregate { group_size, ..CreateAggregate::new(NAME, kind, disks) };
        let engine = Arc::clone(&self.engine);
        self.wait(|done| engine.create_aggregate(request, done))?;
        for volume in 0..bench.volumes {
            let size_blocks = bench.size.0 / BLOCK_SIZE_U64 * 2;
            let request = VolumeRequest::new(&volume_name(volume), NAME, size_blocks);
            self.wait(|done| engine.create_volumes(request, done))?;
        }
        let aggregate = self.aggregate();
        self.cores.watch(Box::new(move || aggregate.phase()));
        Ok(())
    }

    /// Takes steps until an answer is there.
    pub fn wait<T: Send + 'static>(&mut self, start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
        completion::wait(start, || self.cores.step())
    }

    pub fn aggregate(&self) -> Arc<Aggregate> {
        let Some(aggregate) = self.engine.aggregate_named(NAME) else {
            unreachable!("the rig has made it")
        };
        aggregate
    }

    /// A new file in a volume.
    pub fn new_file(&mut self, volume: usize, file: usize) -> Result<FileHandle, BenchError> {
        let failed = |error: FsError| BenchError::Operation { load: "create", error };
        let (service, caller) = (Arc::clone(&self.service), Caller::root());
        let name = volume_name(volume);
        let root = self.wait(|done: Done<_>| service.root(&caller, calls::Root { name }, done));
        let directory = root.map_err(failed)?.handle;
        let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
        let create =
            calls::Create { directory, name: format!("file{file}").into_bytes(), mode, set };
        let made = self.wait(|done: Done<_>| service.create(&caller, create, done));
        made.map(|(entry, _)| entry.handle).map_err(failed)
    }

    /// Has everything that was done so far committed.
    pub fn commit(&mut self) -> Result<(), BenchError> {
        let aggregate = self.aggregate();
        aggregate.force();
        let committed = self.wait(|done| aggregate.request_consistency_point(Some(done)));
        Ok(committed.map_err(dblade::EngineError::from)?)
    }

    /// Time in which each disk moved bytes since the last call, and the log's device.
    pub fn take_busy(&self) -> (Vec<u64>, u64) {
        (self.disks.iter().map(|disk| disk.take_busy()).collect(), self.log.take_busy())
    }
}

fn volume_name(volume: usize) -> String {
    format!("volume{volume}")
}

impl Drop for Rig {
    fn drop(&mut self) {
        // What aggregate and store know of each other would keep the disks' memory.
        self.engine.scheduler().halt();
        self.engine.halt();
    }
}
