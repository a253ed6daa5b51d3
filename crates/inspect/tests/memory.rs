//! How much memory a check takes, by the figure that `stroop check aggr` asks for before it begins
//! (`server/src/check_command/memory.rs`): 48 bytes for each block in use, and 192 MiB.
//!
//! This test has a program of its own, so that the peak of the process is that of the check.

#![allow(clippy::unwrap_used, reason = "a test's helpers")]

mod logs;
mod node;

use dblade::{CreateAggregate, VolumeRequest};
use file_service::{Caller, CreateMode, Done, FileService, SetAttributes, calls};
use inspect::Inspector;
use node::Node;
use ondisk::label::RaidKind;
use platform::disk::DiskOpener;
use platform::simulated::SimulatedWorld;
use volume::SnapshotRequest;

const FILES: usize = 25_000;
const SNAPSHOTS: usize = 60;
const DISK_BLOCKS: u64 = 32_768;

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
    let node = Node::start_with(&world, false, 64 << 20);
    let disks = || vec![world.open("disk").unwrap()];
    let request = CreateAggregate::new("a1", RaidKind::None, disks());
    node.wait(|done| node.engine.create_aggregate(request, done)).unwrap();
    let request = VolumeRequest::new("home", "a1", 16_384);
    node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
    let directory = node.root();
    for file in 0..FILES {
        let (set, mode) = (SetAttributes::default(), CreateMode::Guarded);
        let name = format!("f{file}").into_bytes();
        let create = calls::Create { directory, name, mode, set };
        node.wait(|done: Done<_>| node.service.create(&Caller::root(), create, done)).unwrap();
    }
    for snapshot in 0..SNAPSHOTS {
        node.snapshot(SnapshotRequest::Create(format!("s{snapshot}"))).unwrap();
    }
    node.wait(|done| node.engine.stop(done)).unwrap();
    node.engine.halt();
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
