//! Volumes that are offline: nobody is served, nothing that was answered is lost, and the handles
//! are good again.

use super::*;
use crate::EngineError;

fn set_offline(node: &Node, name: &str, is_offline: bool) -> Result<(), EngineError> {
    node.wait(|done| node.engine.set_volume_offline(name, is_offline, done))
}

/// What a client gets of everything that it can do with a directory.
fn refusals(node: &Node, root: FileHandle) -> Vec<FsError> {
    let told = [
        node.ask(calls::GetAttributes { file: root }).map(drop),
        node.ask(calls::Statistics { file: root }).map(drop),
        node.create_file(root, "new").map(drop),
        node.read_file(root, "file").map(drop),
        node.ask(calls::HoldFile { file: root }).map(drop),
    ];
    told.into_iter().map(|outcome| outcome.expect_err("nobody is served")).collect()
}

fn is_turned_away(node: &Node, name: &str, root: FileHandle) {
    assert_eq!(refusals(node, root), [FsError::Stale; 5]);
    let found = node.ask(calls::Root { name: name.to_owned() });
    assert_eq!(found.map(drop), Err(FsError::NotFound));
    assert!(node.engine.volume_named(name).unwrap().is_offline());
}

fn survives(traditional: bool) {
    let world = SimulatedWorld::new(21);
    let node = Node::create(&world, RaidKind::Raid4, traditional);
    let name = if traditional { "a1" } else { "home" };
    let root = node.root(name);
    // Neither is durable before.
    node.write_file(root, "file", content(1, 90_000));
    let lost = node.create_file(root, "unlogged").unwrap();
    set_offline(&node, name, true).unwrap();
    is_turned_away(&node, name, root);
    let (node, _) = Node::open(&node.power_cut());
    is_turned_away(&node, name, root);
    let told = node.wait(|done| node.engine.root_attributes(name, done));
    assert!(told.is_ok(), "the node looks at it still: {told:?}");
    set_offline(&node, name, false).unwrap();
    assert_eq!(node.root(name), root);
    assert_eq!(node.read_file(root, "file").unwrap(), content(1, 90_000));
    assert!(node.ask(calls::GetAttributes { file: lost }).is_ok());
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.read_file(root, "file").unwrap(), content(1, 90_000));
}

#[test]
fn a_flexible_volume_is_offline_through_a_power_cut_and_comes_back_with_its_handles() {
    survives(false);
}

#[test]
fn a_traditional_volume_does_so_too() {
    survives(true);
}

/// A handle that is told to be stale is forgotten; the power may still go, and the volume be
/// online.
#[test]
fn clients_are_told_that_handles_are_stale_when_that_is_durable() {
    let world = SimulatedWorld::new(22);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let root = node.root("home");
    node.write_file(root, "file", content(1, 9_000));
    let answer = Arc::new(Mutex::new(None));
    let told = Arc::clone(&answer);
    let done = Box::new(move |outcome| *told.lock() = Some(outcome));
    node.engine.set_volume_offline("home", true, done);
    let mut seen = Vec::new();
    while answer.lock().is_none() {
        let asked = Arc::new(Mutex::new(None));
        let told = Arc::clone(&asked);
        let call = calls::GetAttributes { file: root };
        let done = Box::new(move |outcome: Result<_, FsError>| *told.lock() = Some(outcome.err()));
        Service(Arc::clone(&node.engine)).attributes(&Caller::root(), call, done);
        assert!(node.run(), "it is answered");
        let is_answered = answer.lock().is_some();
        seen.extend(asked.lock().take().filter(|_| !is_answered));
    }
    assert!(seen.contains(&None) && seen.contains(&Some(FsError::Offline)), "{seen:?}");
    assert!(!seen.contains(&Some(FsError::Stale)), "{seen:?}");
    assert_eq!(node.ask(calls::GetAttributes { file: root }).map(drop), Err(FsError::Stale));
}

/// What the node does by itself goes on: the blocks of a removed file come back.
#[test]
fn space_comes_back_while_a_volume_is_offline() {
    let name = "home";
    let world = SimulatedWorld::new(23);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let root = node.root("home");
    node.write_file(root, "large", content(1, 12 << 20));
    node.consistency_point();
    let full = node.engine.volume_named("home").unwrap().active_blocks();
    node.ask(calls::Remove { directory: root, name: b"large".to_vec() }).unwrap();
    set_offline(&node, name, true).unwrap();
    for _ in 0..20 {
        node.consistency_point();
    }
    let left = node.engine.volume_named("home").unwrap().active_blocks();
    assert!(left < full / 4, "{left} of {full}");
    let request = SnapshotRequest::Create("s".to_owned());
    node.wait(|done| node.engine.request_snapshot("home", request, done)).unwrap();
    is_turned_away(&node, name, root);
    node.wait(|done| node.engine.delete_volume("home", done)).unwrap();
    assert!(node.engine.is_gone(root.volume));
}
