//! Volumes that grow by themselves: a client that writes more than there is room for waits and is
//! not refused, up to the largest size. A volume that has grown stays as large.

use super::*;
use crate::{CloneRequest, EngineError, Keeping, VolumeKind};
use aggregate::AutogrowMax;
use cowfs::budget::Spender;
use file_service::calls;
use units::Timestamp;

const SIZE_BLOCKS: u64 = 1024;
const MAX_BLOCKS: u64 = 2500;
const PIECE_BYTES: usize = 64 << 10;

fn set(node: &Node, maximum: u64) -> Result<(), EngineError> {
    let change =
        VolumeChange { autogrow_max: Some(AutogrowMax(maximum)), ..VolumeChange::default() };
    node.wait(|done| node.engine.change_volume("small", change, done))
}

/// An aggregate with a volume that grows.
fn start(seed: u64) -> Node {
    let node = Node::create(&SimulatedWorld::new(seed), RaidKind::Raid4, false);
    let request = VolumeRequest {
        autogrow_max: AutogrowMax(MAX_BLOCKS),
        ..VolumeRequest::new("small", "a1", SIZE_BLOCKS)
    };
    node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
    node
}

fn sizes(node: &Node, volume: &str) -> (u64, u64) {
    let served = node.engine.volume_named(volume).unwrap();
    (served.size_blocks(), served.autogrow_max().0)
}

/// Writes files, each durable before the next, until one is refused; how many there are.
pub(super) fn fill(node: &Node, volume: &str, files: u64) -> u64 {
    let root = node.root(volume);
    for number in 0..files {
        let name = format!("{number}");
        let made = node.create_file(root, &name).and_then(|file| {
            let data = Bytes::from(content(number, PIECE_BYTES));
            node.ask(calls::Write { file, offset: 0, data, stability: Stability::FileSync })
        });
        match made {
            Ok(_) => {}
            Err(FsError::NoSpace) => return number,
            Err(other) => panic!("{other}"),
        }
    }
    files
}

#[test]
fn a_volume_grows_up_to_its_largest_size_and_stays_as_large() {
    let node = start(81);
    assert_eq!(sizes(&node, "small"), (SIZE_BLOCKS, MAX_BLOCKS));
    let pieces = fill(&node, "small", 1000);
    assert_eq!(sizes(&node, "small"), (MAX_BLOCKS, MAX_BLOCKS));
    let served = node.engine.volume_named("small").unwrap();
    assert_eq!(served.take_growth(), Some((SIZE_BLOCKS, MAX_BLOCKS)));
    assert_eq!(served.take_growth(), None, "it is told once");
    let written = pieces * (PIECE_BYTES as u64 / 4096);
    assert!((MAX_BLOCKS * 4 / 5..MAX_BLOCKS).contains(&written), "{written} blocks");
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(sizes(&node, "small"), (MAX_BLOCKS, MAX_BLOCKS));
    let root = node.root("small");
    for number in 0..pieces {
        let read = node.read_file(root, &format!("{number}")).unwrap();
        assert!(read == content(number, PIECE_BYTES), "file {number}");
    }
    // A volume that is not to grow any more is as large as it is.
    set(&node, 0).unwrap();
    assert_eq!(sizes(&node, "small"), (MAX_BLOCKS, 0));
    let refused = node.create_file(root, "more").and_then(|file| {
        let data = Bytes::from(content(1, PIECE_BYTES));
        node.ask(calls::Write { file, offset: 0, data, stability: Stability::FileSync })
    });
    assert_eq!(refused.unwrap_err(), FsError::NoSpace);
    set(&node, 2 * MAX_BLOCKS).unwrap();
    let data = Bytes::from(content(1, PIECE_BYTES));
    let file = node.create_file(root, "yet more").unwrap();
    node.ask(calls::Write { file, offset: 0, data, stability: Stability::FileSync }).unwrap();
    assert!(sizes(&node, "small").0 > MAX_BLOCKS);
}

#[test]
fn a_largest_size_is_not_less_than_the_size() {
    let node = start(82);
    let refused = set(&node, SIZE_BLOCKS - 1).unwrap_err().to_string();
    assert!(refused.contains("its size is 4MiB already, more than"), "{refused}");
    assert_eq!(sizes(&node, "small"), (SIZE_BLOCKS, MAX_BLOCKS));
    let refused = set(&node, u64::MAX / 4096).unwrap_err().to_string();
    assert!(refused.contains("a volume grows to "), "{refused}");
    set(&node, SIZE_BLOCKS).unwrap();
    let resize = |blocks| node.wait(|done| node.engine.resize_volume("small", blocks, done));
    resize(3000).unwrap();
    assert_eq!(sizes(&node, "small"), (3000, 3000), "it goes with the size");
    resize(2000).unwrap();
    assert_eq!(sizes(&node, "small"), (2000, 3000));
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(sizes(&node, "small"), (2000, 3000));
}

/// The only growth that is left brings room with its commit: who waits for it is woken before.
#[test]
fn regression_a_writer_gets_the_room_of_the_last_growth() {
    let node = start(86);
    set(&node, 0).unwrap();
    fill(&node, "small", 1000);
    node.commit_all();
    set(&node, SIZE_BLOCKS + 300).unwrap();
    let root = node.root("small");
    let file = node.create_file(root, "more").unwrap();
    let data = Bytes::from(content(1, PIECE_BYTES));
    node.ask(calls::Write { file, offset: 0, data, stability: Stability::FileSync }).unwrap();
    assert_eq!(sizes(&node, "small"), (SIZE_BLOCKS + 300, SIZE_BLOCKS + 300));
}

/// One growth is enough for one write that found no room.
#[test]
fn regression_a_volume_grows_once_for_one_shortage() {
    let node = start(87);
    set(&node, 0).unwrap();
    fill(&node, "small", 1000);
    node.commit_all();
    set(&node, 1 << 20).unwrap();
    let root = node.root("small");
    node.write_file(root, "more", content(1, PIECE_BYTES));
    node.commit_all();
    node.consistency_point();
    assert_eq!(sizes(&node, "small").0, SIZE_BLOCKS + 1024);
}

/// A volume does not grow in the freeze that takes its largest size back, nor in one that gives it
/// another size.
#[test]
fn regression_what_is_set_counts_in_the_same_freeze() {
    let node = start(88);
    let root = node.root("small");
    // Less than a tenth stays free, and nothing has committed.
    let size = |node: &Node| sizes(node, "small").0;
    let file = node.create_file(root, "file").unwrap();
    for piece in 0_u64.. {
        let free = node.engine.volume_named("small").unwrap().available_blocks();
        if free < SIZE_BLOCKS / 10 {
            break;
        }
        let data = Bytes::from(content(piece, 4096));
        let (offset, stability) = (piece * 4096, Stability::Unstable);
        node.ask(calls::Write { file, offset, data, stability }).unwrap();
    }
    assert_eq!(size(&node), SIZE_BLOCKS);
    set(&node, 0).unwrap();
    assert_eq!(sizes(&node, "small"), (SIZE_BLOCKS, 0));
    set(&node, 2 * SIZE_BLOCKS).unwrap();
    node.write_file(root, "another", content(1, 4096));
    let resize = |blocks| node.wait(|done| node.engine.resize_volume("small", blocks, done));
    // To less than a tenth free.
    let available = node.engine.volume_named("small").unwrap().available_blocks();
    let smaller = SIZE_BLOCKS - available + 40;
    resize(smaller).unwrap();
    assert_eq!(sizes(&node, "small"), (smaller, 2 * SIZE_BLOCKS));
    // The room that was free before is less than a tenth of a size that he asks for.
    set(&node, 1 << 20).unwrap();
    node.write_file(root, "a third", content(1, 4096));
    resize(20 * SIZE_BLOCKS).unwrap();
    assert_eq!(sizes(&node, "small"), (20 * SIZE_BLOCKS, 1 << 20));
}

/// A volume that was deleted while somebody waited for it to grow does so when it is back.
#[test]
fn regression_a_volume_that_is_back_grows() {
    let node = start(90);
    set(&node, 0).unwrap();
    fill(&node, "small", 1000);
    node.commit_all();
    set(&node, MAX_BLOCKS).unwrap();
    let served = node.engine.volume_named("small").unwrap();
    let VolumeKind::Flexible(volume) = &served.kind else { unreachable!("it is flexible") };
    let shared = &volume.front.shared;
    assert!(shared.ask_to_grow(1, Spender::Common));
    let keeping = Keeping { deleted: Timestamp(7), purge_after: Timestamp(9) };
    node.wait(|done| node.engine.queue_deletion("small", keeping, done)).unwrap();
    assert!(!shared.ask_to_grow(1, Spender::Common), "its record does not change");
    node.wait(|done| node.engine.undelete_volume("small~2", "small", done)).unwrap();
    let root = node.root("small");
    node.write_file(root, "more", content(1, PIECE_BYTES));
    assert!(sizes(&node, "small").0 > SIZE_BLOCKS);
}

/// What a range of a file takes is asked of the size that the volume may have.
#[test]
fn regression_fallocate_heeds_the_growth() {
    let node = start(89);
    let root = node.root("small");
    let file = node.create_file(root, "file").unwrap();
    let allocate = |blocks: u64| {
        let length = blocks * 4096;
        node.ask(calls::Allocate {
            file,
            offset: 0,
            length,
            allocation: file_service::Allocation::Reserve { keep_size: false },
        })
    };
    allocate(MAX_BLOCKS - 100).unwrap();
    assert_eq!(allocate(2 * MAX_BLOCKS).unwrap_err(), FsError::NoSpace);
}

/// A volume that nobody writes to is not made larger though hardly anything of it is free.
#[test]
fn a_volume_at_rest_stays_as_large_as_it_is() {
    let node = start(83);
    set(&node, 0).unwrap();
    fill(&node, "small", 1000);
    node.commit_all();
    set(&node, MAX_BLOCKS).unwrap();
    node.consistency_point();
    node.settle();
    assert_eq!(sizes(&node, "small"), (SIZE_BLOCKS, MAX_BLOCKS));
    assert!(fill(&node, "home", 3) == 3);
    node.consistency_point();
    assert_eq!(sizes(&node, "small"), (SIZE_BLOCKS, MAX_BLOCKS));
}

#[test]
fn a_snapshot_finds_room_in_a_volume_that_grows_and_a_clone_grows_like_its_parent() {
    let node = start(84);
    set(&node, 0).unwrap();
    fill(&node, "small", 1000);
    node.commit_all();
    let snapshot = || {
        let request = SnapshotRequest::Create("s".to_owned());
        node.wait(|done| node.engine.request_snapshot("small", request, done))
    };
    snapshot().unwrap_err();
    set(&node, MAX_BLOCKS).unwrap();
    snapshot().unwrap();
    let (size_blocks, _) = sizes(&node, "small");
    assert!(size_blocks > SIZE_BLOCKS);
    let request = CloneRequest {
        names: vec!["clone".to_owned()],
        volume: "small".to_owned(),
        snapshot: "s".to_owned(),
        guarantee: None,
        exports: Vec::new(),
    };
    node.wait(|done| node.engine.create_clones(request, done)).unwrap();
    assert_eq!(sizes(&node, "clone"), (size_blocks, MAX_BLOCKS));
    node.settle();
    let root = node.root("clone");
    for number in 0..60 {
        node.write_file(root, &format!("new {number}"), content(number, PIECE_BYTES));
    }
    assert!(sizes(&node, "clone").0 > size_blocks);
    assert_eq!(sizes(&node, "small").0, size_blocks);
}

/// Where the aggregate has no room for a write, a volume that may grow refuses it like any other.
#[test]
fn a_full_aggregate_refuses_a_volume_that_may_grow() {
    let node = start(85);
    set(&node, 1 << 30).unwrap();
    let pieces = fill(&node, "small", 100_000);
    let free = node.engine.aggregates()[0].parts.shared.budget.free_blocks();
    assert!(free < 512, "{free} free after {pieces} files");
    let root = node.root("small");
    for number in 0..pieces {
        node.ask(calls::Remove { directory: root, name: format!("{number}").into_bytes() })
            .unwrap();
    }
    node.settle();
    assert!(fill(&node, "small", 5) == 5);
}
