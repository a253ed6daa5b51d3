//! How much memory a check takes, by the figure that `stroop check aggr` asks for before it begins
//! (`server/src/check_command/memory.rs`): 48 bytes for each block in use, and 192 MiB.
//!
//! This test has a program of its own, so that the peak of the process is that of the check.

#![allow(clippy::unwrap_used, reason = "a test's helpers")]

mod logs;

use dblade::{Configuration, CreateAggregate, Engine, Service, Tuning, VolumeRequest};
use file_service::{Caller, CreateMode, Done, FileService, SetAttributes, calls};
use inspect::Inspector;
use logs::Logs;
use ondisk::label::RaidKind;
use platform::disk::DiskOpener;
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use std::sync::Arc;
use volume::SnapshotRequest;

const FILES: usize = 25_000;
const SNAPSHOTS: usize = 60;
const DISK_BLOCKS: u64 = 32_768;

fn wait<T: Send + 'static>(
    engine: &Engine,
    world: &SimulatedWorld,
    start: impl FnOnce(Box<dyn FnOnce(T) + Send>),
) -> T {
    let answer: Arc<Mutex<Option<T>>> = Arc::default();
    let slot = Arc::clone(&answer);
    start(Box::new(move |value| *slot.lock() = Some(value)));
    loop {
        if let Some(value) = answer.lock().take() {
            return value;
        }
        let mut choose = |count: usize| world.choose(count as u64) as usize;
        assert!(engine.scheduler().run_one(&mut choose) || world.step(), "it stands still");
    }
}

/// Bytes of a line of `/proc/self/status`.
fn memory(line: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = text.lines().find(|found| found.starts_with(line)).unwrap();
    found.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Small files take a sixteenth of a block each, and snapshots share them.
#[test]
fn a_check_of_many_files_and_snapshots_takes_no_more_memory_than_it_says() {
    let world = SimulatedWorld::new(1);
    world.add_disk("disk", DISK_BLOCKS);
    world.add_disk("log", 4096);
    let engine = Engine::new(Configuration {
        clock: Arc::new(world.clone()),
        entropy: Arc::new(world.clone()),
        logs: Arc::new(Logs(world.clone())),
        memory_bytes: 64 << 20,
        cp_interval_nanoseconds: 10_000_000_000,
        tuning: Tuning::default(),
    });
    let service = Service(Arc::clone(&engine));
    let disks = || vec![world.open("disk").unwrap()];
    let request = CreateAggregate::new("a1", RaidKind::None, disks());
    wait(&engine, &world, |done| engine.create_aggregate(request, done)).unwrap();
    let request = VolumeRequest {
        name: "home".to_owned(),
        aggregate: "a1".to_owned(),
        size_blocks: 16_384,
        root: (0, 0, 0o755),
        exports: Vec::new(),
        tiering: dblade::Tiering::default(),
    };
    wait(&engine, &world, |done| engine.create_volume(request, done)).unwrap();
    let root = wait(&engine, &world, |done: Done<_>| {
        service.root(&Caller::root(), calls::Root { name: "home".to_owned() }, done)
    })
    .unwrap()
    .handle;
    for file in 0..FILES {
        let (set, mode) = (SetAttributes::default(), CreateMode::Guarded);
        let name = format!("f{file}");
        let made = wait(&engine, &world, |done: Done<_>| {
            service.create(
                &Caller::root(),
                calls::Create { directory: root, name: name.as_bytes().to_vec(), mode, set },
                done,
            );
        });
        made.unwrap();
    }
    for snapshot in 0..SNAPSHOTS {
        let request = SnapshotRequest::Create(format!("s{snapshot}"));
        wait(&engine, &world, |done| engine.request_snapshot("home", request, done)).unwrap();
    }
    wait(&engine, &world, |done| engine.stop(done)).unwrap();
    engine.halt();
    let same = world.clone();
    let mut drive = move || {
        same.run_until_idle();
    };
    let mut inspector = Inspector::open(disks(), &mut drive).unwrap();
    let needed = inspector.used_blocks() * 48 + (192 << 20);
    // The peak counts from here.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory("VmRSS:");
    let report = inspector.check().unwrap();
    let taken = memory("VmHWM:").saturating_sub(before);
    assert!(report.is_clean(), "{report}");
    assert!(taken <= needed, "{taken} bytes were taken, {needed} are said to be needed");
}
