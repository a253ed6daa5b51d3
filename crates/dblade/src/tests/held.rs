//! Snapshots that an administrator holds: nobody deletes them, through power cuts, until he
//! releases them.

use super::*;
use crate::{EngineError, Keeping};
use platform::completion::promise;
use units::Timestamp;

impl Node {
    fn ask_snapshots(&self, request: SnapshotRequest) -> Result<(), EngineError> {
        let volume = self.engine.volumes()[0].name();
        self.wait(|done| self.engine.request_snapshot(&volume, request, done))
    }

    /// The snapshots, and whether each is held.
    fn held(&self) -> Vec<(String, bool)> {
        let volume = self.engine.volumes()[0].name();
        let list = self.wait(|done| self.engine.snapshots(&volume, done)).unwrap();
        list.into_iter().map(|one| (one.name, one.held)).collect()
    }

    fn take_all(&self) {
        for name in ["a", "b", "c"] {
            self.ask_snapshots(SnapshotRequest::Create(name.to_owned())).unwrap();
        }
    }
}

fn expected(held: [bool; 3]) -> Vec<(String, bool)> {
    ["a", "b", "c"].iter().zip(held).map(|(name, held)| ((*name).to_owned(), held)).collect()
}

fn is_held(refused: Result<(), EngineError>) {
    let refused = refused.expect_err("a snapshot is held").to_string();
    assert!(refused.contains("'b' is held"), "{refused}");
}

#[test]
fn nothing_deletes_a_held_snapshot() {
    for traditional in [false, true] {
        let node = Node::create(&SimulatedWorld::new(6), RaidKind::Raid4, traditional);
        node.take_all();
        let none = node.ask_snapshots(SnapshotRequest::Hold("x".to_owned())).unwrap_err();
        assert!(none.to_string().contains("there is no snapshot"), "{none}");
        node.ask_snapshots(SnapshotRequest::Hold("b".to_owned())).unwrap();
        let (node, _) = Node::open(&node.power_cut());
        assert_eq!(node.held(), expected([false, true, false]));
        is_held(node.ask_snapshots(SnapshotRequest::Delete("b".to_owned())));
        is_held(node.ask_snapshots(SnapshotRequest::DeleteThrough("a".to_owned(), "c".to_owned())));
        if !traditional {
            is_held(node.ask_snapshots(SnapshotRequest::Restore("a".to_owned())));
            is_held(node.wait(|done| node.engine.delete_volume("home", done)));
            let keeping = Keeping { deleted: Timestamp(7), purge_after: Timestamp(9) };
            is_held(node.wait(|done| node.engine.queue_deletion("home", keeping, done)));
            node.ask_snapshots(SnapshotRequest::Restore("c".to_owned())).unwrap();
        }
        assert_eq!(node.held(), expected([false, true, false]));
        node.ask_snapshots(SnapshotRequest::Release("b".to_owned())).unwrap();
        let (node, _) = Node::open(&node.power_cut());
        assert_eq!(node.held(), expected([false; 3]));
        node.ask_snapshots(SnapshotRequest::DeleteThrough("a".to_owned(), "c".to_owned())).unwrap();
        assert_eq!(node.held(), []);
    }
}

/// Requests of one freeze, one after the other.
#[test]
fn a_hold_and_what_takes_its_snapshot_away_exclude_each_other() {
    let all_at_once = |requests: [SnapshotRequest; 2]| {
        let node = Node::create(&SimulatedWorld::new(7), RaidKind::Raid4, false);
        node.take_all();
        let ask = |request| promise(|done| node.engine.request_snapshot("home", request, done));
        let answers = requests.map(ask);
        node.consistency_point();
        node.consistency_point();
        answers.map(|answer| answer.lock().take().expect("it was answered").is_ok())
    };
    let hold = || SnapshotRequest::Hold("b".to_owned());
    for taking in [
        SnapshotRequest::Delete("b".to_owned()),
        SnapshotRequest::DeleteThrough("a".to_owned(), "b".to_owned()),
        SnapshotRequest::Restore("a".to_owned()),
    ] {
        assert_eq!(all_at_once([hold(), taking.clone()]), [true, false], "{taking:?}");
        assert_eq!(all_at_once([taking.clone(), hold()]), [true, false], "{taking:?}");
    }
}
