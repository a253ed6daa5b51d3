//! A node over simulated disks, and the reader of media beside it.

#![allow(dead_code, reason = "each test program uses a part")]

use crate::logs::Logs;
use dblade::{Configuration, CreateAggregate, Engine, EngineError, Service, Tuning, VolumeRequest};
use file_service::{Caller, Done, Durability, FileService, calls};
use inspect::{Inspector, Report};
use model_fs::Executor;
use ondisk::label::RaidKind;
use platform::completion;
use platform::simulated::SimulatedWorld;
use platform::{Disk, disk::DiskOpener};
use std::sync::Arc;
use volume::SnapshotRequest;

pub const DISK_BLOCKS: u64 = 8192;
pub const DISKS: usize = 4;

pub struct Node {
    pub world: SimulatedWorld,
    pub engine: Arc<Engine>,
    pub service: Arc<Service>,
    pub volume: &'static str,
}

impl Node {
    pub fn start(world: &SimulatedWorld, traditional: bool) -> Self {
        Self::start_with(world, traditional, 16 << 20)
    }

    pub fn start_with(world: &SimulatedWorld, traditional: bool, memory_bytes: u64) -> Self {
        let engine = Engine::new(Configuration {
            clock: Arc::new(world.clone()),
            entropy: Arc::new(world.clone()),
            logs: Arc::new(Logs(world.clone())),
            memory_bytes,
            cp_interval_nanoseconds: 10_000_000_000,
            tuning: Tuning::default(),
        });
        let service = Arc::new(Service(Arc::clone(&engine)));
        let volume = if traditional { "a1" } else { "home" };
        Self { world: world.clone(), engine, service, volume }
    }

    pub fn create(seed: u64, kind: RaidKind, traditional: bool) -> Self {
        let world = SimulatedWorld::new(seed);
        for disk in 0..DISKS {
            world.add_disk(&format!("disk{disk}"), DISK_BLOCKS);
        }
        world.add_disk("log", 1024);
        let node = Self::start(&world, traditional);
        let disks = node.disks();
        let request = CreateAggregate { traditional, ..CreateAggregate::new("a1", kind, disks) };
        node.wait(|done| node.engine.create_aggregate(request, done)).unwrap();
        if !traditional {
            node.create_volume("home").unwrap();
        }
        node
    }

    pub fn create_volume(&self, name: &str) -> Result<(), EngineError> {
        let request = VolumeRequest::new(name, "a1", 8192);
        self.wait(|done| self.engine.create_volumes(request, done))
    }

    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        (0..DISKS).map(|disk| self.world.open(&format!("disk{disk}")).unwrap()).collect()
    }

    pub fn run(&self) -> bool {
        let world = self.world.clone();
        let mut choose = |count: usize| world.choose(count as u64) as usize;
        self.engine.scheduler().run_one(&mut choose) || self.world.step()
    }

    pub fn settle(&self) {
        while self.run() {}
    }

    pub fn wait<T: Send + 'static>(&self, start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
        completion::wait(start, || self.run())
    }

    pub fn root(&self) -> file_service::FileHandle {
        let root = |done: Done<_>| {
            self.service.root(&Caller::root(), calls::Root { name: self.volume.to_owned() }, done)
        };
        self.wait(root).unwrap().handle
    }

    pub fn executor(&self) -> Executor {
        Executor::new(Arc::clone(&self.service) as _, self.root(), Durability::Logged)
    }

    pub fn snapshot(&self, request: SnapshotRequest) -> Result<(), EngineError> {
        self.wait(|done| self.engine.request_snapshot(self.volume, request, done))
    }

    pub fn consistency_point(&self) {
        let aggregate = self.engine.aggregate_named("a1").unwrap();
        self.wait(|done| aggregate.request_consistency_point(Some(done))).unwrap();
        self.settle();
    }

    /// One consistency point, without those that it leads to.
    pub fn consistency_point_only(&self) {
        let aggregate = self.engine.aggregate_named("a1").unwrap();
        self.wait(|done| aggregate.request_consistency_point(Some(done))).unwrap();
    }

    pub fn power_cut(self) -> Self {
        self.engine.halt();
        self.world.power_cut();
        Self::open(&self.world, self.volume == "a1")
    }

    /// The node that opens what is on the disks of a world.
    pub fn open(world: &SimulatedWorld, traditional: bool) -> Self {
        let node = Self::start(world, traditional);
        let disks = node.disks();
        node.wait(|done| node.engine.open_aggregate(disks, done)).unwrap();
        node.settle();
        node
    }

    pub fn inspect<T>(&self, work: impl FnOnce(&mut Inspector<'_>) -> T) -> T {
        let world = self.world.clone();
        let mut drive = move || {
            world.run_until_idle();
        };
        work(&mut Inspector::open(self.disks(), &mut drive).unwrap())
    }

    pub fn check(&self) -> Report {
        self.inspect(|inspector| inspector.check().unwrap())
    }

    #[track_caller]
    pub fn expect_clean(&self, when: &str) {
        let report = self.check();
        assert!(report.is_clean(), "{when}: {report}");
    }
}
