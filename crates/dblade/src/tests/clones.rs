//! Clones: what they begin with, what they share, and what they keep from being deleted.

use super::{Node, content};
use crate::{CloneRequest, EngineError};
use aggregate::AggregateError;
use file_service::{FileHandle, FsError, calls};
use ondisk::label::RaidKind;
use platform::completion::promise;
use platform::simulated::SimulatedWorld;
use volume::SnapshotRequest;

pub(super) const FILES: u64 = 12;
pub(super) const FILE_BYTES: usize = 150_000;

pub(super) fn node(seed: u64) -> (Node, FileHandle) {
    let node = Node::create(&SimulatedWorld::new(seed), RaidKind::Raid4, false);
    let root = node.root("home");
    (node, root)
}

pub(super) fn name(number: u64) -> String {
    format!("file{number}")
}

impl Node {
    pub(super) fn keep_image(&self, volume: &str, name: &str) {
        let request = SnapshotRequest::Create(name.to_owned());
        self.wait(|done| self.engine.request_snapshot(volume, request, done)).unwrap();
    }

    pub(super) fn remove_snapshot(&self, volume: &str, name: &str) -> Result<(), EngineError> {
        let request = SnapshotRequest::Delete(name.to_owned());
        self.wait(|done| self.engine.request_snapshot(volume, request, done))
    }

    pub(super) fn clone_volume(
        &self,
        volume: &str,
        snapshot: &str,
        name: &str,
    ) -> Result<(), EngineError> {
        self.wait(|done| self.engine.create_clones(request(volume, snapshot, name), done))
    }

    pub(super) fn delete(&self, volume: &str) -> Result<(), EngineError> {
        self.wait(|done| self.engine.delete_volume(volume, done))
    }

    pub(super) fn write_files(&self, root: FileHandle, seed: u64) {
        for number in 0..FILES {
            self.write_file(root, &name(number), content(seed + number, FILE_BYTES));
        }
    }

    /// Panics unless the volume has these files and no others.
    pub(super) fn assert_files(&self, volume: &str, seed: u64) {
        let root = self.root(volume);
        for number in 0..FILES {
            let found = self.read_file(root, &name(number)).unwrap();
            assert!(found == content(seed + number, FILE_BYTES), "{volume} {number}");
        }
        let beyond = self.read_file(root, &name(FILES));
        assert_eq!(beyond, Err(FsError::NotFound), "{volume}");
    }

    fn used_of(&self, volume: &str) -> u64 {
        self.engine.volume_named(volume).unwrap().used_blocks()
    }

    pub(super) fn aggregate_used(&self) -> u64 {
        self.engine.aggregate_named("a1").unwrap().used_blocks()
    }
}

pub(super) fn request(volume: &str, snapshot: &str, name: &str) -> CloneRequest {
    CloneRequest {
        names: vec![name.to_owned()],
        volume: volume.to_owned(),
        snapshot: snapshot.to_owned(),
        guarantee: None,
        exports: Vec::new(),
    }
}

pub(super) fn refusal(outcome: Result<(), EngineError>) -> String {
    match outcome {
        Err(EngineError::Aggregate(AggregateError::Refused(text))) => text,
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_clone_has_what_the_snapshot_has_and_changes_alone() {
    let (node, root) = node(1);
    node.write_files(root, 100);
    node.keep_image("home", "s");
    node.write_files(root, 200);
    node.commit_all();
    let before = node.aggregate_used();
    node.clone_volume("home", "s", "dev").unwrap();
    let cost = node.aggregate_used() - before;
    assert!(cost < 64, "a clone took {cost} blocks");
    node.assert_files("dev", 100);
    node.assert_files("home", 200);
    node.write_files(node.root("dev"), 300);
    node.commit_all();
    node.assert_files("dev", 300);
    node.assert_files("home", 200);
    let (node, _) = Node::open(&node.power_cut());
    node.assert_files("dev", 300);
    node.assert_files("home", 200);
    // And again with nothing to replay, from the disks alone.
    node.commit_all();
    let (node, _) = Node::open(&node.power_cut());
    node.assert_files("dev", 300);
    node.assert_files("home", 200);
}

#[test]
fn a_clone_is_read_after_a_restart_before_it_was_written_to() {
    let (node, root) = node(2);
    node.write_files(root, 100);
    node.keep_image("home", "s");
    node.clone_volume("home", "s", "dev").unwrap();
    node.commit_all();
    let (node, _) = Node::open(&node.power_cut());
    node.assert_files("dev", 100);
    node.clone_volume("home", "s", "second").unwrap();
    node.assert_files("second", 100);
}

#[test]
fn what_a_clone_needs_is_not_deleted_and_the_refusal_names_the_clones() {
    let (node, root) = node(3);
    node.write_files(root, 100);
    node.keep_image("home", "before");
    node.keep_image("home", "s");
    node.keep_image("home", "after");
    node.clone_volume("home", "s", "dev").unwrap();
    node.clone_volume("home", "s", "test").unwrap();
    let of_snapshot = refusal(node.remove_snapshot("home", "s"));
    assert_eq!(of_snapshot, "clones use a snapshot that would go: dev, test");
    let restore = SnapshotRequest::Restore("before".to_owned());
    let of_restore = refusal(node.wait(|done| node.engine.request_snapshot("home", restore, done)));
    assert_eq!(of_restore, "clones use a snapshot that would go: dev, test");
    let of_volume = refusal(node.delete("home"));
    assert_eq!(of_volume, "clones use its snapshots: dev, test");
    node.remove_snapshot("home", "before").unwrap();
    node.remove_snapshot("home", "after").unwrap();
    node.delete("dev").unwrap();
    assert!(refusal(node.remove_snapshot("home", "s")).ends_with(": test"));
    node.assert_files("test", 100);
    let (node, _) = Node::open(&node.power_cut());
    assert!(refusal(node.delete("home")).ends_with(": test"));
    node.delete("test").unwrap();
    node.remove_snapshot("home", "s").unwrap();
    node.delete("home").unwrap();
}

/// One freeze takes in a restore, and then a clone of a snapshot that the restore takes away.
#[test]
fn regression_a_clone_beside_a_restore_that_takes_its_snapshot_away_is_refused() {
    let (node, root) = node(10);
    node.write_files(root, 100);
    node.keep_image("home", "old");
    node.write_files(root, 200);
    node.keep_image("home", "new");
    node.write_file(root, "more", content(1, FILE_BYTES));
    node.engine.aggregate_named("a1").unwrap().request_consistency_point(None);
    // Both wait for the next freeze.
    node.run_to_cleaning();
    let restored = node.begin(SnapshotRequest::Restore("old".to_owned()));
    let cloned = promise(|done| node.engine.create_clones(request("home", "new", "dev"), done));
    node.settle();
    restored.lock().take().unwrap().unwrap();
    let cloned = cloned.lock().take().unwrap();
    assert_eq!(refusal(cloned), "there is no snapshot 'new'");
    node.assert_files("home", 100);
}

/// The newest of the images is a restore's to go back to, and is no newer one.
#[test]
fn a_volume_is_restored_to_the_snapshot_that_its_clone_began_with() {
    let (node, root) = node(4);
    node.write_files(root, 100);
    node.keep_image("home", "s");
    node.write_files(root, 200);
    node.clone_volume("home", "s", "dev").unwrap();
    let restore = SnapshotRequest::Restore("s".to_owned());
    node.wait(|done| node.engine.request_snapshot("home", restore, done)).unwrap();
    node.assert_files("home", 100);
    node.assert_files("dev", 100);
    node.write_files(node.root("home"), 300);
    node.write_files(node.root("dev"), 400);
    node.commit_all();
    node.assert_files("home", 300);
    node.assert_files("dev", 400);
}

#[test]
fn clones_of_clones_share_blocks_with_all_their_ancestors() {
    let (node, root) = node(5);
    node.write_files(root, 100);
    node.keep_image("home", "s");
    node.clone_volume("home", "s", "c1").unwrap();
    node.write_file(node.root("c1"), &name(0), content(7, FILE_BYTES));
    node.keep_image("c1", "s");
    node.clone_volume("c1", "s", "c2").unwrap();
    node.write_file(node.root("c2"), &name(1), content(8, FILE_BYTES));
    node.commit_all();
    let (node, _) = Node::open(&node.power_cut());
    let root = node.root("c2");
    assert!(node.read_file(root, &name(0)).unwrap() == content(7, FILE_BYTES));
    assert!(node.read_file(root, &name(1)).unwrap() == content(8, FILE_BYTES));
    for number in 2..FILES {
        let found = node.read_file(root, &name(number)).unwrap();
        assert!(found == content(100 + number, FILE_BYTES));
    }
    assert!(refusal(node.delete("home")).contains("c1"));
    assert!(refusal(node.delete("c1")).contains("c2"));
    node.delete("c2").unwrap();
    node.delete("c1").unwrap();
    node.delete("home").unwrap();
}

/// A clone lets go of the parent's maps and snapshot table in the background, and then of nothing
/// that is the parent's.
#[test]
fn a_clone_lets_go_of_the_parents_snapshots_and_keeps_its_own() {
    let (node, root) = node(6);
    for round in 0..6 {
        node.write_files(root, 1000 * round);
        node.keep_image("home", &format!("s{round}"));
    }
    node.write_files(root, 77_000);
    let of_parent = node.used_of("home");
    node.clone_volume("home", "s3", "dev").unwrap();
    node.settle();
    assert!(node.used_of("dev") < of_parent / 2);
    assert_eq!(node.wait(|done| node.engine.snapshots("dev", done)).unwrap(), []);
    node.keep_image("dev", "own");
    node.write_files(node.root("dev"), 9000);
    node.commit_all();
    node.settle();
    let (node, _) = Node::open(&node.power_cut());
    node.assert_files("dev", 9000);
    let restore = SnapshotRequest::Restore("own".to_owned());
    node.wait(|done| node.engine.request_snapshot("dev", restore, done)).unwrap();
    node.assert_files("dev", 3000);
    node.assert_files("home", 77_000);
}

#[test]
fn what_is_freed_in_a_clone_is_free_again_only_where_it_is_the_clones_own() {
    let (node, root) = node(7);
    node.write_files(root, 100);
    node.keep_image("home", "s");
    node.clone_volume("home", "s", "dev").unwrap();
    node.settle();
    let shared = node.aggregate_used();
    let root = node.root("dev");
    for number in 0..FILES {
        node.ask(calls::Remove { directory: root, name: name(number).into_bytes() }).unwrap();
    }
    node.commit_all();
    assert!(node.aggregate_used() + 64 > shared, "inherited blocks were freed");
    node.assert_files("home", 100);
    node.write_files(root, 500);
    node.commit_all();
    assert!(node.aggregate_used() > shared + FILES * FILE_BYTES as u64 / 4096);
    node.delete("dev").unwrap();
    node.settle();
    node.commit_all();
    assert!(node.aggregate_used() <= shared, "the clone's own blocks came back");
    node.assert_files("home", 100);
}

#[test]
fn a_clone_of_nothing_is_refused() {
    let (node, _) = node(8);
    node.keep_image("home", "s");
    assert_eq!(refusal(node.clone_volume("home", "t", "dev")), "there is no snapshot 't'");
    assert!(matches!(
        node.clone_volume("home", "s", "home"),
        Err(EngineError::Exists { kind: "volume", .. })
    ));
    assert!(matches!(
        node.clone_volume("nothing", "s", "dev"),
        Err(EngineError::NotFound { kind: "volume", .. })
    ));
    let traditional = Node::create(&SimulatedWorld::new(9), RaidKind::Raid4, true);
    traditional.keep_image("a1", "s");
    assert!(matches!(traditional.clone_volume("a1", "s", "dev"), Err(EngineError::Conflict(_))));
}
