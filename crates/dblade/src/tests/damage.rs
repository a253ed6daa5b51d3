//! Blocks that a volume cannot live without cannot be read, and no parity makes them good: the
//! volume is read-only, or refused if it cannot be loaded, and nothing else is lost.

use super::blocks::find;
use super::*;
use crate::{ServedVolume, VolumeKind};
use file_service::calls;
use ondisk::identity::BlockIdentity;
use ondisk::root::{VOL_INFO_VVBN, metafile};
use units::VolumeId;

const FILE_BYTES: usize = 600 * 4096;
/// So little that the log keeps it.
const SMALL_BYTES: usize = 40_000;

/// A block of a metafile of a volume.
fn of_metafile(volume: VolumeId, inode: u64, level: u8) -> impl Fn(&BlockIdentity) -> bool {
    move |identity| {
        identity.volume.get() == volume.get()
            && identity.inode.get() == inode
            && identity.level == level
            && identity.vvbn.get() != VOL_INFO_VVBN.get()
            && identity.cp.get() > 0
    }
}

fn volume(node: &Node, name: &str) -> Arc<ServedVolume> {
    node.engine.volume_named(name).unwrap()
}

impl ServedVolume {
    /// Whether a deletion of snapshots is under way.
    fn is_reclaiming(&self) -> bool {
        let VolumeKind::Flexible(volume) = &self.kind else { unreachable!("it is flexible") };
        volume.front.shared.reclaiming.load(std::sync::atomic::Ordering::Relaxed)
    }
}

fn number(node: &Node, name: &str) -> VolumeId {
    volume(node, name).environment.volume
}

/// Two volumes with a file each, in the last consistency point.
fn two_volumes(seed: u64) -> Node {
    let world = SimulatedWorld::new(seed);
    let node = Node::create(&world, RaidKind::None, false);
    node.create_volume("other");
    for name in ["home", "other"] {
        node.write_file(node.root(name), "file", content(1, FILE_BYTES));
    }
    node.commit_all();
    node
}

fn create(node: &Node, volume: &str, name: &str) -> Result<(), FsError> {
    node.create_file(node.root(volume), name).map(drop)
}

fn write(node: &Node, file: FileHandle, data: Vec<u8>) -> Result<(), FsError> {
    let data = Bytes::from(data);
    node.ask(calls::Write { file, offset: 0, data, stability: Stability::FileSync }).map(drop)
}

/// The volume is as the last commit before the damage has it, and takes no changes.
fn is_read_only(node: &Node) {
    assert!(volume(node, "home").damage().is_some());
    let root = node.root("home");
    assert!(node.read_file(root, "file").unwrap() == content(1, FILE_BYTES));
    assert_eq!(node.read_file(root, "lost").unwrap_err(), FsError::NotFound);
    assert_eq!(create(node, "home", "refused"), Err(FsError::ReadOnly));
    let file = node.ask(calls::Lookup { directory: root, name: b"file".to_vec() });
    let file = file.unwrap().handle;
    assert_eq!(write(node, file, content(9, 100)), Err(FsError::ReadOnly));
    assert_eq!(write(node, file, content(9, 1 << 20)), Err(FsError::ReadOnly));
    let commit = node.ask(calls::Commit::of(file));
    assert_eq!(commit.map(drop), Err(FsError::ReadOnly));
    for request in
        [SnapshotRequest::Create("refused".to_owned()), SnapshotRequest::Release("held".to_owned())]
    {
        let refused = node.wait(|done| node.engine.request_snapshot("home", request, done));
        assert!(refused.unwrap_err().to_string().contains("read-only"));
    }
}

/// The other volume has lost nothing and goes on.
fn check_other(node: &Node, names: &[&str]) {
    assert!(node.engine.aggregate_named("a1").unwrap().failure().is_none());
    assert!(volume(node, "other").damage().is_none());
    for name in names {
        let data = node.read_file(node.root("other"), name).unwrap();
        assert!(data.len() >= SMALL_BYTES && data == content(1, data.len()));
    }
}

/// The volume can be deleted, so many of its blocks come back, and another can have its name.
fn delete(node: &Node, blocks: u64) {
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let before = aggregate.used_blocks();
    node.wait(|done| node.engine.delete_volume("home", done)).unwrap();
    for _ in 0..4 {
        node.consistency_point();
        node.settle();
    }
    assert!(aggregate.used_blocks() + blocks < before, "{before}, {}", aggregate.used_blocks());
    check_other(node, &["file"]);
    node.create_volume("home");
    node.write_file(node.root("home"), "new", content(2, FILE_BYTES));
    node.consistency_point();
    assert!(node.read_file(node.root("home"), "new").unwrap() == content(2, FILE_BYTES));
}

/// A consistency point meets the damage.
fn while_in_service(seed: u64, freed_blocks: u64, block: impl Fn(&Node) -> (String, u64)) {
    let node = two_volumes(seed);
    let block = block(&node);
    // After a crash each volume is written to at once.
    node.wait(|done| node.engine.stop(done)).unwrap();
    let (node, _) = node.cut_and_fail(&block);
    assert!(volume(&node, "home").damage().is_none());
    let verifier = node.service.0.verifier();
    node.write_file(node.root("home"), "lost", content(1, SMALL_BYTES));
    node.write_file(node.root("other"), "more", content(1, FILE_BYTES));
    node.consistency_point();
    node.settle();
    is_read_only(&node);
    assert_ne!(node.service.0.verifier(), verifier, "what was written unstably is gone");
    check_other(&node, &["file", "more"]);
    node.commit_all();
    // A start remembers it; what is logged for the others is replayed.
    node.write_file(node.root("other"), "again", content(1, FILE_BYTES));
    let world = node.power_cut();
    let (node, recovery) = Node::open(&world);
    assert_eq!(recovery.skipped, 0);
    is_read_only(&node);
    check_other(&node, &["file", "more", "again"]);
    delete(&node, freed_blocks);
    let world = node.power_cut();
    check_other(&Node::open(&world).0, &["file", "more", "again"]);
}

#[test]
fn regression_a_free_map_that_cannot_be_read_costs_its_volume_only() {
    while_in_service(31, 590, |node| {
        find(&node.world, of_metafile(number(node, "home"), metafile::ACTIVE_MAP, 0))
    });
}

#[test]
fn regression_a_container_map_that_cannot_be_read_costs_its_volume_only() {
    // What is below the node stays in use.
    while_in_service(32, 500, |node| {
        let container = aggregate::container_inode(number(node, "home")).get();
        // A node of VVBNs that no file of the test lies in.
        let own = of_metafile(VolumeId(0), container, 1);
        find(&node.world, |identity| own(identity) && identity.fbn.get() > 0)
    });
}

#[test]
fn regression_an_inode_map_that_cannot_be_read_costs_its_volume_only() {
    let node = two_volumes(33);
    let map = of_metafile(number(&node, "home"), metafile::INODE_MAP, 0);
    let block = find(&node.world, map);
    // The log has operations of both volumes.
    node.write_file(node.root("home"), "lost", content(1, SMALL_BYTES));
    node.write_file(node.root("other"), "more", content(1, SMALL_BYTES));
    let (node, recovery) = node.cut_and_fail(&block);
    assert!(recovery.skipped > 0 && recovery.replayed > 0, "{recovery:?}");
    is_read_only(&node);
    check_other(&node, &["file", "more"]);
    let world = node.power_cut();
    let (node, recovery) = Node::open(&world);
    assert_eq!(recovery.skipped, 0);
    is_read_only(&node);
    delete(&node, 590);
}

#[test]
fn regression_a_volume_that_cannot_be_loaded_keeps_no_aggregate_closed() {
    let node = two_volumes(34);
    let home = number(&node, "home");
    let (disk, at) = find(&node.world, |identity| {
        identity.volume.get() == home.get() && identity.vvbn.get() == VOL_INFO_VVBN.get()
    });
    node.write_file(node.root("home"), "lost", content(1, SMALL_BYTES));
    node.write_file(node.root("other"), "more", content(1, SMALL_BYTES));
    let world = node.power_cut();
    world.fail_block(&disk, at);
    let mut world = world;
    for is_first in [true, false] {
        let (node, recovery) = Node::open(&world);
        assert_eq!(recovery.skipped > 0, is_first, "{recovery:?}");
        assert!(volume(&node, "home").is_unreadable());
        let root = node.ask(calls::Root { name: "home".to_owned() });
        assert_eq!(root.map(drop).unwrap_err(), FsError::Io);
        check_other(&node, &["file", "more"]);
        node.write_file(node.root("other"), "file", content(1, FILE_BYTES));
        node.commit_all();
        world = node.power_cut();
    }
    // The block can be read again: what the log had is lost all the same, and that is known.
    world.set_unreadable(&disk, at, false);
    let (node, _) = Node::open(&world);
    is_read_only(&node);
    delete(&node, 590);
}

/// What a restore needs of its snapshot cannot be read: the volume goes on as it is.
#[test]
fn regression_a_restore_of_a_damaged_snapshot_costs_the_restore_only() {
    let node = two_volumes(36);
    let request = |node: &Node, request| {
        node.wait(|done| node.engine.request_snapshot("home", request, done))
    };
    request(&node, SnapshotRequest::Create("old".to_owned())).unwrap();
    let snapshots = node.wait(|done| node.engine.snapshots("home", done)).unwrap();
    let own = of_metafile(number(&node, "home"), metafile::ACTIVE_MAP, 0);
    let cp = snapshots[0].cp.get();
    let block = find(&node.world, |identity| own(identity) && identity.cp.get() == cp);
    node.write_file(node.root("home"), "new", content(3, FILE_BYTES));
    node.commit_all();
    let (node, _) = node.cut_and_fail(&block);
    node.write_file(node.root("home"), "newer", content(4, FILE_BYTES));
    let refused = request(&node, SnapshotRequest::Restore("old".to_owned())).unwrap_err();
    assert_eq!(volume(&node, "home").damage(), None);
    assert!(refused.to_string().contains("snapshot 'old' cannot be restored"), "{refused}");
    node.write_file(node.root("home"), "newest", content(5, FILE_BYTES));
    node.commit_all();
    let world = node.power_cut();
    let (node, _) = Node::open(&world);
    for (name, seed) in [("file", 1), ("new", 3), ("newer", 4), ("newest", 5)] {
        let data = node.read_file(node.root("home"), name).unwrap();
        assert!(data == content(seed, FILE_BYTES), "{name}");
    }
    check_other(&node, &["file"]);
}

/// A deleted snapshot goes, and what its map alone could tell of stays in use.
#[test]
fn regression_a_snapshots_map_that_cannot_be_read_keeps_it_from_no_deletion() {
    let node = two_volumes(35);
    let request = |node: &Node, request| {
        node.wait(|done| node.engine.request_snapshot("home", request, done))
    };
    request(&node, SnapshotRequest::Create("old".to_owned())).unwrap();
    let snapshots = |node: &Node| node.wait(|done| node.engine.snapshots("home", done)).unwrap();
    let cp = snapshots(&node)[0].cp;
    let own = of_metafile(number(&node, "home"), metafile::ACTIVE_MAP, 0);
    let block = find(&node.world, |identity| own(identity) && identity.cp.get() == cp.get());
    node.write_file(node.root("home"), "file", content(1, FILE_BYTES));
    node.commit_all();
    let (node, _) = node.cut_and_fail(&block);
    request(&node, SnapshotRequest::Delete("old".to_owned())).unwrap();
    for _ in 0..4 {
        node.consistency_point();
        node.settle();
    }
    assert!(snapshots(&node).is_empty());
    let home = volume(&node, "home");
    assert!(home.damage().is_none() && home.given_up()[0].leaked_blocks.is_some());
    node.write_file(node.root("home"), "file", content(2, FILE_BYTES));
    node.commit_all();
    let world = node.power_cut();
    let (node, _) = Node::open(&world);
    assert!(node.read_file(node.root("home"), "file").unwrap() == content(2, FILE_BYTES));
    check_other(&node, &["file"]);
    // The record is gone, or its deletion would go on.
    assert!(!volume(&node, "home").is_reclaiming());
}

/// The record of a CREATE waits for a slow log while a consistency point drops the CREATE. The
/// consistency point then retired the log, and the CREATE was answered as done.
fn dropped_before_it_is_logged(seed: u64, block: impl Fn(&Node) -> (String, u64)) {
    let node = two_volumes(seed);
    let block = block(&node);
    node.wait(|done| node.engine.stop(done)).unwrap();
    let (node, _) = node.cut_and_fail(&block);
    let root = node.root("home");
    node.world.set_hung("log", true);
    let answer: Arc<Mutex<Option<Result<(), FsError>>>> = Arc::default();
    let slot = Arc::clone(&answer);
    let (set, mode) = (SetAttributes::default(), CreateMode::Guarded);
    let answered = move |outcome: Result<_, _>| *slot.lock() = Some(outcome.map(drop));
    node.service.create(
        &Caller::root(),
        calls::Create { directory: root, name: b"lost".to_vec(), mode, set },
        Box::new(answered),
    );
    node.settle();
    assert_eq!(*answer.lock(), None);
    node.consistency_point();
    assert!(volume(&node, "home").damage().is_some());
    node.world.set_hung("log", false);
    node.settle();
    assert_eq!(answer.lock().take(), Some(Err(FsError::Io)));
    is_read_only(&node);
}

#[test]
fn regression_what_a_damaged_volume_drops_is_not_answered_as_done() {
    dropped_before_it_is_logged(37, |node| {
        find(&node.world, of_metafile(number(node, "home"), metafile::ACTIVE_MAP, 0))
    });
    dropped_before_it_is_logged(38, |node| {
        let container = aggregate::container_inode(number(node, "home")).get();
        let own = of_metafile(VolumeId(0), container, 1);
        find(&node.world, |identity| own(identity) && identity.fbn.get() > 0)
    });
}
