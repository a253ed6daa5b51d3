//! The recovery queue: a deleted volume is found under no name that a client can ask for, keeps
//! what it holds, and comes back as it went.

use super::*;
use crate::{CloneRequest, EngineError, Keeping};
use units::Timestamp;

const TITLE: &str = "home~1";

fn keeping() -> Keeping {
    Keeping { deleted: Timestamp(7), purge_after: Timestamp(9) }
}

impl Node {
    fn queue(&self, name: &str) -> Result<(), EngineError> {
        self.wait(|done| self.engine.queue_deletion(name, keeping(), done))
    }

    fn undelete(&self, title: &str, name: &str) -> Result<(), EngineError> {
        self.wait(|done| self.engine.undelete_volume(title, name, done))
    }

    fn change_snapshots(&self, volume: &str, request: SnapshotRequest) -> Result<(), EngineError> {
        self.wait(|done| self.engine.request_snapshot(volume, request, done))
    }

    fn names_found(&self) -> Vec<String> {
        self.engine.volumes().iter().map(|volume| volume.name()).collect()
    }
}

#[test]
fn a_deleted_volume_is_kept_through_power_cuts_and_comes_back_with_its_handles() {
    let node = Node::create(&SimulatedWorld::new(31), RaidKind::Raid4, false);
    let root = node.root("home");
    // Neither is durable before.
    node.write_file(root, "file", content(1, 90_000));
    node.change_snapshots("home", SnapshotRequest::Create("s".to_owned())).unwrap();
    node.write_file(root, "later", content(2, 9_000));
    node.queue("home").unwrap();
    let assert_kept = |node: &Node| {
        assert_eq!(node.names_found(), [TITLE]);
        let served = node.engine.volume_named(TITLE).unwrap();
        assert_eq!(served.queued().unwrap().keeping, keeping());
        assert_eq!(node.read_file(root, "file"), Err(FsError::Stale));
        assert!(!node.engine.is_gone(root.volume));
        for name in ["home", TITLE] {
            let found = node.ask(calls::Root { name: name.to_owned() });
            assert_eq!(found.map(drop), Err(FsError::NotFound), "{name}");
        }
    };
    assert_kept(&node);
    let (node, _) = Node::open(&node.power_cut());
    assert_kept(&node);
    let refused =
        node.change_snapshots(TITLE, SnapshotRequest::Delete("s".to_owned())).unwrap_err();
    assert!(refused.to_string().contains("recovery queue"), "{refused}");
    node.undelete(TITLE, "work").unwrap();
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.names_found(), ["work"]);
    assert_eq!(node.root("work"), root);
    assert_eq!(node.read_file(root, "file").unwrap(), content(1, 90_000));
    assert_eq!(node.read_file(root, "later").unwrap(), content(2, 9_000));
    node.change_snapshots("work", SnapshotRequest::Delete("s".to_owned())).unwrap();
}

/// A volume may be made, deleted and made again under one name.
#[test]
fn the_name_of_a_deleted_volume_is_free_and_stays_whose_it_is() {
    let node = Node::create(&SimulatedWorld::new(32), RaidKind::Raid4, false);
    let first = node.root("home");
    node.write_file(first, "file", content(1, 9_000));
    node.queue("home").unwrap();
    node.create_volume("home");
    node.queue("home").unwrap();
    node.create_volume("home");
    assert_eq!(node.names_found(), ["home", TITLE, "home~2"]);
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.names_found(), ["home", TITLE, "home~2"]);
    let taken = node.undelete(TITLE, "home").unwrap_err();
    assert!(matches!(taken, EngineError::Exists { .. }), "{taken}");
    node.undelete(TITLE, "old").unwrap();
    assert_eq!(node.root("old"), first);
    assert_eq!(node.read_file(first, "file").unwrap(), content(1, 9_000));
    node.wait(|done| node.engine.delete_volume("home~2", done)).unwrap();
    assert_eq!(node.names_found(), ["home", "old"]);
    let gone = node.undelete("home~2", "other").unwrap_err();
    assert!(matches!(gone, EngineError::NotFound { .. }), "{gone}");
    // A live volume does not leave the queue.
    assert!(node.undelete("old", "other").is_err());
}

#[test]
fn a_volume_that_was_offline_comes_back_offline() {
    let node = Node::create(&SimulatedWorld::new(33), RaidKind::Raid4, false);
    let root = node.root("home");
    let set = |node: &Node, is_offline| {
        node.wait(|done| node.engine.set_volume_offline("home", is_offline, done)).unwrap();
    };
    set(&node, true);
    node.queue("home").unwrap();
    let (node, _) = Node::open(&node.power_cut());
    assert!(node.engine.volume_named(TITLE).unwrap().queued().unwrap().is_offline);
    node.undelete(TITLE, "home").unwrap();
    assert_eq!(node.create_file(root, "new").map(drop), Err(FsError::Stale));
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.create_file(root, "new").map(drop), Err(FsError::Stale));
    set(&node, false);
    assert!(node.create_file(root, "new").is_ok());
}

/// The clone reads the parent's blocks, and would when it is back.
#[test]
fn a_deleted_clone_keeps_its_base() {
    let node = Node::create(&SimulatedWorld::new(34), RaidKind::Raid4, false);
    node.change_snapshots("home", SnapshotRequest::Create("s".to_owned())).unwrap();
    let (names, volume, snapshot) = (vec!["copy".to_owned()], "home".to_owned(), "s".to_owned());
    let request = CloneRequest { names, volume, snapshot, guarantee: None, exports: Vec::new() };
    node.wait(|done| node.engine.create_clones(request, done)).unwrap();
    let parent = node.queue("home").unwrap_err();
    assert!(parent.to_string().contains("copy"), "{parent}");
    assert!(!node.engine.volume_named("home").unwrap().is_offline());
    node.queue("copy").unwrap();
    let base = node.change_snapshots("home", SnapshotRequest::Delete("s".to_owned())).unwrap_err();
    assert!(base.to_string().contains("copy~2"), "{base}");
    assert!(node.queue("home").is_err());
    node.wait(|done| node.engine.delete_volume("copy~2", done)).unwrap();
    node.change_snapshots("home", SnapshotRequest::Delete("s".to_owned())).unwrap();
    node.queue("home").unwrap();
}

#[test]
fn a_traditional_volume_is_not_kept() {
    let node = Node::create(&SimulatedWorld::new(35), RaidKind::Raid4, true);
    let refused = node.queue("a1").unwrap_err();
    assert!(matches!(refused, EngineError::Conflict(_)), "{refused}");
}
