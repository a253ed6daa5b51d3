//! What comes back when snapshots are deleted, told before and seen after.

use super::{Node, content};
use crate::{CloneRequest, EngineError};
use ondisk::label::RaidKind;
use platform::completion::promise;
use platform::simulated::SimulatedWorld;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use volume::SnapshotRequest;

const FILE_BYTES: usize = 1_000_000;
/// Blocks of such a file, without those that lead to them.
const FILE_BLOCKS: u64 = (FILE_BYTES as u64).div_ceil(4096);
/// Metadata that a snapshot may hold, and that changes with each consistency point.
const SLACK_BLOCKS: u64 = 60;

impl Node {
    fn take(&self, volume: &str, name: &str) {
        let request = SnapshotRequest::Create(name.to_owned());
        self.wait(|done| self.engine.request_snapshot(volume, request, done)).unwrap();
        self.rest();
    }

    fn rest(&self) {
        self.consistency_point();
        self.settle();
    }

    /// A clone of a snapshot of "home".
    fn make_copy_of(&self, snapshot: &str) {
        let request = CloneRequest {
            names: vec!["copy".to_owned()],
            volume: "home".to_owned(),
            snapshot: snapshot.to_owned(),
            guarantee: None,
            exports: Vec::new(),
        };
        self.wait(|done| self.engine.create_clones(request, done)).unwrap();
    }

    fn delete_through(&self, volume: &str, names: (&str, &str)) -> Result<(), EngineError> {
        let request = SnapshotRequest::DeleteThrough(names.0.to_owned(), names.1.to_owned());
        let outcome = self.wait(|done| self.engine.request_snapshot(volume, request, done));
        self.rest();
        outcome
    }

    fn used_of_volume(&self, volume: &str) -> u64 {
        self.engine.volume_named(volume).unwrap().used_blocks()
    }

    fn spans(&self, volume: &str) -> crate::SnapshotSpans {
        let wanted = Arc::default();
        self.wait(|done| self.engine.snapshot_spans(volume, &wanted, done)).unwrap()
    }
}

fn is_near(blocks: u64, expected: u64) -> bool {
    (expected..expected + SLACK_BLOCKS).contains(&blocks)
}

#[test]
fn what_comes_back_is_told_before() {
    for traditional in [false, true] {
        let volume = if traditional { "a1" } else { "home" };
        let node = Node::create(&SimulatedWorld::new(5), RaidKind::Raid4, traditional);
        let root = node.root(volume);
        node.write_file(root, "kept", content(1, FILE_BYTES));
        // One file that "b" alone sees, one that "a" and "b" see, one that all see.
        node.write_file(root, "of-two", content(2, FILE_BYTES));
        node.write_file(root, "of-all", content(3, FILE_BYTES));
        node.take(volume, "a");
        node.write_file(root, "of-one", content(4, FILE_BYTES));
        node.take(volume, "b");
        node.write_file(root, "of-two", content(5, FILE_BYTES));
        node.write_file(root, "of-one", content(6, FILE_BYTES));
        node.take(volume, "c");
        node.write_file(root, "of-all", content(7, FILE_BYTES));
        node.rest();

        let spans = node.spans(volume);
        let exclusive = spans.exclusive_blocks();
        assert!(exclusive[0] < SLACK_BLOCKS, "{traditional} {exclusive:?}");
        assert!(is_near(exclusive[1], FILE_BLOCKS), "{traditional} {exclusive:?}");
        assert!(exclusive[2] < SLACK_BLOCKS, "{traditional} {exclusive:?}");
        let of: BTreeSet<_> = spans.snapshots()[..2].iter().copied().collect();
        let told = spans.freed_with(&of);
        assert!(is_near(told, 2 * FILE_BLOCKS), "{traditional} {told}");
        assert_eq!(spans.cumulative_blocks()[1], told);
        assert!(is_near(spans.cumulative_blocks()[2], 3 * FILE_BLOCKS), "{traditional}");

        let (ids, used) = (spans.snapshots().to_vec(), node.used_of_volume(volume));
        node.delete_through(volume, ("a", "b")).unwrap();
        let freed = used - node.used_of_volume(volume);
        assert!(is_near(freed + SLACK_BLOCKS / 2, told), "{traditional} {freed} {told}");
        let left = node.spans(volume);
        assert_eq!((left.snapshots(), left.deleted_blocks), (&ids[2..], 0), "{traditional}");
        assert!(is_near(left.held_blocks(), FILE_BLOCKS), "{traditional} {left:?}");
    }
}

/// An ancestor has what a clone inherited: a snapshot of the clone gives none of it back.
#[test]
fn what_a_clone_inherited_does_not_come_back() {
    let node = Node::create(&SimulatedWorld::new(6), RaidKind::Raid4, false);
    node.write_file(node.root("home"), "file", content(1, FILE_BYTES));
    node.take("home", "base");
    node.make_copy_of("base");
    node.rest();
    let root = node.root("copy");
    node.write_file(root, "own", content(2, FILE_BYTES));
    node.take("copy", "s");
    node.write_file(root, "file", content(3, FILE_BYTES));
    node.write_file(root, "own", content(4, FILE_BYTES));
    node.rest();
    let spans = node.spans("copy");
    assert!(is_near(spans.exclusive_blocks()[0], FILE_BLOCKS), "{spans:?}");
    assert!(is_near(spans.inherited_blocks, FILE_BLOCKS), "{spans:?}");
    // After a start, too.
    let (node, _) = Node::open(&node.power_cut());
    node.settle();
    assert_eq!(node.spans("copy"), spans);
}

#[test]
fn snapshots_between_two_go_together_or_not_at_all() {
    let node = Node::create(&SimulatedWorld::new(7), RaidKind::Raid4, false);
    ["a", "b", "c", "d"].iter().for_each(|name| node.take("home", name));
    let names = || -> Vec<String> {
        let list = node.wait(|done| node.engine.snapshots("home", done)).unwrap();
        list.into_iter().map(|snapshot| snapshot.name).collect()
    };
    for wrong in [("a", "x"), ("x", "a"), ("c", "b")] {
        node.delete_through("home", wrong).unwrap_err();
    }
    node.make_copy_of("b");
    node.delete_through("home", ("a", "c")).unwrap_err();
    assert_eq!(names(), ["a", "b", "c", "d"]);
    node.delete_through("home", ("c", "d")).unwrap();
    assert_eq!(names(), ["a", "b"]);
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.spans("home").snapshots().len(), 2);
}

/// A count that is under way when its volume goes reads nothing more of it: its blocks are others'
/// soon.
#[test]
fn a_count_ends_with_its_volume() {
    let node = Node::create(&SimulatedWorld::new(8), RaidKind::Raid4, false);
    node.write_file(node.root("home"), "file", content(1, FILE_BYTES));
    for name in ["a", "b"] {
        node.take("home", name);
        node.write_file(node.root("home"), "file", content(2, FILE_BYTES));
    }
    // After a start nothing is in memory that a count could go by.
    let (node, _) = Node::open(&node.power_cut());
    let wanted = Arc::default();
    let counted = promise(|done| node.engine.snapshot_spans("home", &wanted, done));
    node.wait(|done| node.engine.delete_volume("home", done)).unwrap();
    node.settle();
    let outcome = counted.lock().take().expect("it is answered");
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    assert_eq!(aggregate.statistics.lost_blocks.load(Ordering::Relaxed), 0);
    if let Err(error) = outcome {
        assert!(error.to_string().contains("gone"), "{error}");
    }
}
