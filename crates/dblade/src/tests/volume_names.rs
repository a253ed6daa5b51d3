//! Volumes of one name in two aggregates, and volumes that are about to go.

use super::*;
use crate::EngineError;

const OTHERS: usize = 4;

/// A second aggregate on disks of its own.
fn create_other(node: &Node) {
    let disk = |disk: usize| node.world.add_disk(&format!("other{disk}"), DISK_BLOCKS);
    let disks = (0..OTHERS).map(|at| -> Arc<dyn Disk> { disk(at) }).collect();
    let request = CreateAggregate::new("a2", RaidKind::Raid4, disks);
    node.wait(|done| node.engine.create_aggregate(request, done)).unwrap();
}

fn create_in_other(node: &Node, name: &str) -> Result<(), EngineError> {
    let request = VolumeRequest::new(name, "a2", 8192);
    node.wait(|done| node.engine.create_volumes(request, done))
}

fn open_first(node: &Node) {
    let disks = node.disks();
    node.wait(|done| node.engine.open_aggregate(disks, done)).unwrap();
}

fn go(node: &Node, disks: &[usize], is_gone: bool) {
    disks.iter().for_each(|disk| node.world.set_gone(&format!("disk{disk}"), is_gone));
}

/// Their aggregate was not there when the other volume was made.
#[test]
fn volumes_of_one_name_are_both_served_and_told_apart() {
    let world = SimulatedWorld::new(7);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let first = node.root("home");
    node.write_file(first, "file", content(1, 9_000));
    let node = Node::start(&node.power_cut());
    create_other(&node);
    create_in_other(&node, "home").unwrap();
    let second = node.root("home");
    node.write_file(second, "file", content(2, 9_000));
    open_first(&node);
    let names: Vec<String> = node.engine.volumes().iter().map(|one| one.name()).collect();
    assert_eq!(names, ["home", "home.a1"]);
    assert_eq!((node.root("home"), node.root("home.a1")), (second, first));
    assert_eq!(node.read_file(first, "file").unwrap(), content(1, 9_000));
    node.wait(|done| node.engine.delete_volume("home", done)).unwrap();
    assert_eq!(node.read_file(second, "file"), Err(FsError::Stale));
    assert_eq!(node.read_file(first, "file").unwrap(), content(1, 9_000));
    // At the next start it has its own name again.
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.root("home"), first);
}

#[test]
fn the_name_of_a_volume_that_is_away_is_not_given_to_another() {
    let world = SimulatedWorld::new(8);
    let node = Node::create(&world, RaidKind::Raid4, false);
    create_other(&node);
    let root = node.root("home");
    go(&node, &[1, 3], true);
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    aggregate.force();
    node.wait(|done| aggregate.request_consistency_point(Some(done))).unwrap_err();
    drop(aggregate);
    for _ in 0..2 {
        let refused = create_in_other(&node, "home").unwrap_err();
        assert!(matches!(refused, EngineError::Exists { .. }), "{refused}");
        node.engine.tick();
        node.settle();
    }
    go(&node, &[1, 3], false);
    open_first(&node);
    assert_eq!(node.root("home"), root);
}

/// Clients wait until the deletion is durable: it may be undone till then.
#[test]
fn a_volume_that_is_being_deleted_is_stale_only_when_it_is_gone() {
    let world = SimulatedWorld::new(9);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let root = node.root("home");
    node.write_file(root, "file", content(1, 9_000));
    node.consistency_point();
    let begin = |node: &Node| {
        let answer = Arc::new(Mutex::new(None));
        let told = Arc::clone(&answer);
        node.engine.delete_volume("home", Box::new(move |outcome| *told.lock() = Some(outcome)));
        while node.engine.volume_named("home").is_some() {
            assert!(node.run(), "it goes");
        }
        assert!(answer.lock().is_none(), "it is not durable yet");
        answer
    };
    let answer = begin(&node);
    go(&node, &[1, 3], true);
    while answer.lock().is_none() {
        assert!(node.run(), "it is answered");
    }
    assert!(matches!(answer.lock().take(), Some(Err(error)) if error.to_string().contains("disk")));
    for _ in 0..2 {
        assert_eq!(node.read_file(root, "file"), Err(FsError::Offline));
        assert!(!node.engine.is_gone(root.volume));
        node.settle();
        node.engine.tick();
        node.settle();
    }
    go(&node, &[1, 3], false);
    open_first(&node);
    assert_eq!(node.read_file(root, "file").unwrap(), content(1, 9_000));
    let answer = begin(&node);
    assert_eq!(node.read_file(root, "file"), Err(FsError::Offline));
    node.settle();
    assert!(matches!(answer.lock().take(), Some(Ok(()))));
    assert_eq!(node.read_file(root, "file"), Err(FsError::Stale));
    assert!(node.engine.is_gone(root.volume));
}

fn rename(node: &Node, from: &str, to: &str) -> Result<(), EngineError> {
    node.wait(|done| node.engine.rename_volume(from, to, done))
}

/// The names of all volumes, as they are served and as they were given.
fn names(node: &Node) -> Vec<(String, String)> {
    let names = node.engine.volumes().into_iter().map(|volume| volume.names());
    names.map(|names| (names.served, names.given)).collect()
}

fn plain(name: &str) -> (String, String) {
    (name.to_owned(), name.to_owned())
}

#[test]
fn a_volume_that_is_renamed_keeps_its_handles_and_its_name_through_a_power_cut() {
    let world = SimulatedWorld::new(10);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let root = node.root("home");
    node.write_file(root, "file", content(1, 9_000));
    rename(&node, "home", "work").unwrap();
    assert_eq!(names(&node), [plain("work")]);
    assert_eq!(node.root("work"), root);
    assert_eq!(node.read_file(root, "file").unwrap(), content(1, 9_000));
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(names(&node), [plain("work")]);
    assert_eq!(node.root("work"), root);
    assert_eq!(node.read_file(root, "file").unwrap(), content(1, 9_000));
    let refused = rename(&node, "home", "other").unwrap_err();
    assert!(matches!(refused, EngineError::NotFound { .. }), "{refused}");
    // The old name is free.
    node.wait(|done| node.engine.create_volumes(VolumeRequest::new("home", "a1", 4096), done))
        .unwrap();
    for (from, to) in [("home", "work"), ("work", "home")] {
        let refused = rename(&node, from, to).unwrap_err();
        assert!(matches!(refused, EngineError::Exists { .. }), "{refused}");
    }
    assert_eq!(names(&node), [plain("home"), plain("work")]);
}

/// Nobody finds it under a name that a crash may take back.
#[test]
fn a_new_name_is_seen_when_it_is_durable() {
    let world = SimulatedWorld::new(11);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let answer = Arc::new(Mutex::new(None));
    let told = Arc::clone(&answer);
    let done = Box::new(move |outcome| *told.lock() = Some(outcome));
    node.engine.rename_volume("home", "work", done);
    while answer.lock().is_none() {
        assert!(node.engine.volume_named("home").is_some());
        assert!(node.engine.volume_named("work").is_none());
        assert!(node.run(), "it is answered");
    }
    assert!(node.engine.volume_named("work").is_some());
}

/// The way out for volumes of one name.
#[test]
fn one_of_two_volumes_of_one_name_gets_another() {
    let world = SimulatedWorld::new(12);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let first = node.root("home");
    let node = Node::start(&node.power_cut());
    create_other(&node);
    create_in_other(&node, "home").unwrap();
    open_first(&node);
    let derived = ("home.a1".to_owned(), "home".to_owned());
    assert_eq!(names(&node), [plain("home"), derived]);
    let refused = rename(&node, "home.a1", "home").unwrap_err();
    assert!(matches!(refused, EngineError::Exists { .. }), "{refused}");
    rename(&node, "home", "work").unwrap();
    rename(&node, "home.a1", "home").unwrap();
    assert_eq!(names(&node), [plain("home"), plain("work")]);
    assert_eq!(node.root("home"), first);
}

/// It would be served under two names, or find its own taken, when it is back.
#[test]
fn the_name_of_a_volume_that_is_away_is_nobodys_new_name() {
    let world = SimulatedWorld::new(13);
    let node = Node::create(&world, RaidKind::Raid4, false);
    create_other(&node);
    create_in_other(&node, "work").unwrap();
    go(&node, &[1, 3], true);
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    aggregate.force();
    node.wait(|done| aggregate.request_consistency_point(Some(done))).unwrap_err();
    drop(aggregate);
    for _ in 0..2 {
        let refused = rename(&node, "work", "home").unwrap_err();
        assert!(matches!(refused, EngineError::Exists { .. }), "{refused}");
        node.engine.tick();
        node.settle();
    }
    assert!(rename(&node, "home", "other").is_err(), "it is away");
}

/// One consistency point makes them. A name that is taken leaves none of the others made.
#[test]
fn volumes_that_are_made_together_are_all_made_or_none() {
    let world = SimulatedWorld::new(12);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let create = |node: &Node, names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let request = VolumeRequest { names, ..VolumeRequest::new("", "a1", 4096) };
        node.wait(|done| node.engine.create_volumes(request, done))
    };
    create(&node, &["b", "a", "c"]).unwrap();
    let before = names(&node);
    assert_eq!(before, ["a", "b", "c", "home"].map(plain));
    let long = "x".repeat(300);
    for wrong in [["d", "home"], ["d", "a"], ["d", &long]] {
        create(&node, &wrong).unwrap_err();
        assert_eq!(names(&node), before);
    }
    let roots: Vec<FileHandle> = before.iter().map(|name| node.root(&name.0)).collect();
    for (number, root) in roots.iter().enumerate() {
        node.write_file(*root, "file", content(number as u64, 9_000));
    }
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(names(&node), before);
    for (number, root) in roots.iter().enumerate() {
        assert_eq!(node.read_file(*root, "file").unwrap(), content(number as u64, 9_000));
    }
    // There is no room for so many, though there is for some of them.
    let many: Vec<String> = (0..1000).map(|number| format!("v{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let refused = create(&node, &many).unwrap_err().to_string();
    assert!(refused.contains("996 volumes more"), "{refused}");
    assert_eq!(names(&node), before);
}
