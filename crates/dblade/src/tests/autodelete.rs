//! Snapshots that go by themselves where room is short: a client that writes more than there is
//! room for waits and is not refused, as long as there is a snapshot that may go.

use super::growing::fill;
use super::*;
use crate::{CloneRequest, EngineError, SnapshotAutodelete};
use aggregate::AutogrowMax;
use file_service::calls;

const SIZE_BLOCKS: u64 = 2048;
const PIECE_BYTES: usize = 64 << 10;

fn start(seed: u64, autodelete: SnapshotAutodelete) -> Node {
    let node = Node::create(&SimulatedWorld::new(seed), RaidKind::Raid4, false);
    let request = VolumeRequest { autodelete, ..VolumeRequest::new("small", "a1", SIZE_BLOCKS) };
    node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
    node
}

fn request(node: &Node, request: SnapshotRequest) -> Result<(), EngineError> {
    node.wait(|done| node.engine.request_snapshot("small", request, done))
}

fn create(node: &Node, name: &str) {
    request(node, SnapshotRequest::Create(name.to_owned())).unwrap();
}

fn names(node: &Node) -> Vec<String> {
    let listed = node.wait(|done| node.engine.snapshots("small", done)).unwrap();
    listed.into_iter().map(|one| one.name).collect()
}

/// Writes a file anew, so that snapshots alone have what it was.
fn overwrite(node: &Node, number: u64) -> Result<(), FsError> {
    let file = node.create_file(node.root("small"), "file")?;
    for piece in 0..4 {
        let data = Bytes::from(content(4 * number + piece, PIECE_BYTES));
        let offset = piece * PIECE_BYTES as u64;
        node.ask(calls::Write { file, offset, data, stability: Stability::FileSync })?;
    }
    Ok(())
}

/// Takes a snapshot of each name, with a file that was written anew before it.
fn with_snapshots(node: &Node, names: &[&str]) {
    for (number, name) in (0..).zip(names) {
        overwrite(node, number).unwrap();
        create(node, name);
    }
}

const MIXED: [&str; 5] =
    ["mine", "hourly.2026-11-30_1000", "daily.2026-11-30_0000", "yours", "hourly.2026-11-30_1100"];

#[test]
fn snapshots_of_schedules_go_oldest_first_and_others_stay() {
    let node = start(91, SnapshotAutodelete::Scheduled);
    with_snapshots(&node, &MIXED);
    let written = fill(&node, "small", 1000);
    node.commit_all();
    assert_eq!(names(&node), ["mine", "yours"]);
    let served = node.engine.volume_named("small").unwrap();
    // The newest of a schedule goes last of them.
    assert_eq!(served.take_autodeleted(), [MIXED[1], MIXED[2], MIXED[4]]);
    assert_eq!(served.take_autodeleted(), [""; 0], "they are told once");
    // Two of the three had blocks that nothing else has, eight pieces in all.
    let off = start(91, SnapshotAutodelete::Off);
    with_snapshots(&off, &MIXED);
    let before = fill(&off, "small", 1000);
    assert_eq!(names(&off), MIXED);
    assert!(written >= before + 8, "{written} pieces, {before} without");
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(names(&node), ["mine", "yours"]);
    for number in 0..written {
        let read = node.read_file(node.root("small"), &format!("{number}")).unwrap();
        assert!(read == content(number, PIECE_BYTES), "file {number}");
    }
}

#[test]
fn all_go_where_all_may_but_those_that_are_held_or_are_bases() {
    let node = start(92, SnapshotAutodelete::All);
    with_snapshots(&node, &MIXED);
    request(&node, SnapshotRequest::Hold(MIXED[1].to_owned())).unwrap();
    let clone = CloneRequest {
        names: vec!["clone".to_owned()],
        volume: "small".to_owned(),
        snapshot: "mine".to_owned(),
        guarantee: None,
        exports: Vec::new(),
    };
    node.wait(|done| node.engine.create_clones(clone, done)).unwrap();
    fill(&node, "small", 1000);
    node.commit_all();
    assert_eq!(names(&node), ["mine", MIXED[1]]);
    let served = node.engine.volume_named("small").unwrap();
    assert_eq!(served.take_autodeleted(), [MIXED[2], MIXED[4], "yours"]);
    assert_eq!(node.engine.volume_named("clone").unwrap().autodelete(), SnapshotAutodelete::All);
    // Who is refused is refused again, and nobody waits for what never goes.
    assert_eq!(overwrite(&node, 9), Err(FsError::NoSpace));
    request(&node, SnapshotRequest::Release(MIXED[1].to_owned())).unwrap();
    overwrite(&node, 9).unwrap();
    assert_eq!(names(&node), ["mine"]);
}

/// No client finds the volume full: little is left, and the next write has room at once.
#[test]
fn a_snapshot_goes_before_the_volume_is_full() {
    let node = start(93, SnapshotAutodelete::Scheduled);
    with_snapshots(&node, &MIXED);
    let served = node.engine.volume_named("small").unwrap();
    let mut written = 0;
    while served.available_blocks() > SIZE_BLOCKS / 20 {
        let file = node.create_file(node.root("small"), &format!("f{written}")).unwrap();
        let data = Bytes::from(content(written, PIECE_BYTES / 4));
        node.ask(calls::Write { file, offset: 0, data, stability: Stability::FileSync }).unwrap();
        node.commit_all();
        written += 1;
        assert!(written < 1000);
        if names(&node).len() < MIXED.len() {
            return;
        }
    }
    node.create_file(node.root("small"), "last").unwrap();
    node.commit_all();
    assert_eq!(names(&node).len(), MIXED.len() - 1);
}

#[test]
fn a_volume_grows_before_it_deletes() {
    let node = start(94, SnapshotAutodelete::All);
    let change = VolumeChange {
        autogrow_max: Some(AutogrowMax(2 * SIZE_BLOCKS)),
        ..VolumeChange::default()
    };
    node.wait(|done| node.engine.change_volume("small", change, done)).unwrap();
    with_snapshots(&node, &MIXED);
    let served = node.engine.volume_named("small").unwrap();
    for number in 0.. {
        let file = node.create_file(node.root("small"), &format!("{number}")).unwrap();
        let data = Bytes::from(content(number, PIECE_BYTES));
        node.ask(calls::Write { file, offset: 0, data, stability: Stability::FileSync }).unwrap();
        if names(&node).len() < MIXED.len() {
            break;
        }
    }
    assert_eq!(served.size_blocks(), 2 * SIZE_BLOCKS);
}

#[test]
fn the_choice_is_kept_over_power_cuts_and_can_be_taken_back() {
    let node = start(95, SnapshotAutodelete::All);
    let (node, _) = Node::open(&node.power_cut());
    let chosen = |node: &Node| node.engine.volume_named("small").unwrap().autodelete();
    assert_eq!(chosen(&node), SnapshotAutodelete::All);
    let set = |which| {
        let change = VolumeChange { autodelete: Some(which), ..VolumeChange::default() };
        node.wait(|done| node.engine.change_volume("small", change, done)).unwrap();
    };
    set(SnapshotAutodelete::Off);
    with_snapshots(&node, &MIXED);
    fill(&node, "small", 1000);
    assert_eq!(names(&node), MIXED);
    set(SnapshotAutodelete::Scheduled);
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(chosen(&node), SnapshotAutodelete::Scheduled);
    overwrite(&node, 9).unwrap();
    assert!(names(&node).len() < MIXED.len());
}

/// A volume that is larger than its aggregate: what is short is the aggregate's room.
#[test]
fn snapshots_go_where_the_aggregate_is_full() {
    let node = start(96, SnapshotAutodelete::All);
    node.wait(|done| node.engine.resize_volume("small", 1 << 24, done)).unwrap();
    with_snapshots(&node, &MIXED);
    request(&node, SnapshotRequest::Hold("mine".to_owned())).unwrap();
    fill(&node, "small", 100_000);
    node.commit_all();
    assert_eq!(names(&node), ["mine"]);
    let budget = || node.engine.aggregates()[0].parts.shared.budget.free_blocks();
    assert!(budget() < 512, "{} blocks are free", budget());
    // Nobody waits for what never goes.
    assert_eq!(overwrite(&node, 9), Err(FsError::NoSpace));
}

/// A restore beside clients that wait for room finds its snapshot.
#[test]
fn a_restored_snapshot_does_not_go() {
    let node = start(97, SnapshotAutodelete::All);
    with_snapshots(&node, &MIXED);
    node.commit_all();
    let root = node.root("small");
    // All that can be promised is, and somebody waits.
    for number in 0..400_u64 {
        let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
        let name = format!("waits {number}").into_bytes();
        let create = calls::Create { directory: root, name, mode, set };
        create.send(&node.service, &Caller::root(), Box::new(drop));
    }
    let restore = SnapshotRequest::Restore(MIXED[1].to_owned());
    request(&node, restore).unwrap();
    assert_eq!(names(&node), MIXED[..2]);
}
