//! Blocks that cannot be read, and no parity to make them good: the file is lost, and nothing else.

use super::blocks::find;
use super::*;
use file_service::NodeChange;
use file_service::calls;
use units::InodeNumber;

const BLOCK: usize = 4096;
/// File blocks below one lowest-level node, and some: a file of them has several nodes.
const FILE_BYTES: usize = 600 * BLOCK;

/// Where the newest block of a file's tree lies, by its level and place in it.
fn block_of(world: &SimulatedWorld, inode: InodeNumber, level: u8, index: u64) -> (String, u64) {
    find(world, |identity| {
        identity.inode.get() == inode.get()
            && identity.level == level
            && identity.fbn.get() == index
            && identity.volume.get() != 0
    })
}

fn write(node: &Node, file: FileHandle, block: usize, data: Vec<u8>) -> Result<(), FsError> {
    let (offset, data) = ((block * BLOCK) as u64, Bytes::from(data));
    node.ask(calls::Write { file, offset, data, stability: Stability::FileSync }).map(drop)
}

fn remove(node: &Node, directory: FileHandle, name: &str) -> Result<NodeChange, FsError> {
    node.ask(calls::Remove { directory, name: name.as_bytes().to_vec() })
}

/// A start with a file of which one lowest-level node cannot be read, and one that is well.
fn damaged() -> (Node, FileHandle) {
    damaged_of(FILE_BYTES, Tuning::default())
}

fn damaged_of(file_bytes: usize, tuning: Tuning) -> (Node, FileHandle) {
    let world = SimulatedWorld::new(21);
    let node = Node::create(&world, RaidKind::None, false);
    let root = node.root("home");
    node.write_file(root, "well", content(1, FILE_BYTES));
    let file = node.write_file(root, "file", content(2, file_bytes));
    node.commit_all();
    let world = node.power_cut();
    let (disk, block) = block_of(&world, file.inode, 1, 1);
    world.fail_block(&disk, block);
    let (node, _) = Node::open_tuned(&world, tuning);
    // Its inode is in memory from now on.
    node.ask(calls::GetAttributes { file }).unwrap();
    (node, file)
}

fn check_others(node: &Node) {
    let root = node.root("home");
    assert!(node.read_file(root, "well").unwrap() == content(1, FILE_BYTES));
    assert!(node.engine.aggregate_named("a1").unwrap().failure().is_none());
}

fn is_refused(node: &Node, file: FileHandle) {
    assert_eq!(write(node, file, 300, content(3, BLOCK)), Err(FsError::Io));
    // Blocks that can be read, too: what was acknowledged may have been in them.
    let read = node.ask(calls::Read { file, offset: 0, count: 4096 });
    assert_eq!(read.map(drop), Err(FsError::Io));
    let commit = node.ask(calls::Commit::of(file));
    assert_eq!(commit.map(drop), Err(FsError::Io));
    for size in [0, 1 << 30] {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let set = node.ask(calls::SetFileAttributes { file, set });
        assert_eq!(set.map(drop), Err(FsError::Io), "{size}");
    }
    node.ask(calls::GetAttributes { file }).unwrap();
}

/// One WRITE of a whole block took the aggregate out of service, and each start after it failed.
#[test]
fn regression_a_node_that_cannot_be_read_costs_its_file_only() {
    let (node, file) = damaged();
    assert_eq!(write(&node, file, 300, content(3, BLOCK)), Ok(()), "nobody looks at the node");
    write(&node, file, 1, content(4, BLOCK)).unwrap();
    node.consistency_point();
    is_refused(&node, file);
    check_others(&node);
    node.write_file(node.root("home"), "new", content(5, FILE_BYTES));
    node.commit_all();
    // A start remembers it.
    let world = node.power_cut();
    let (node, recovery) = Node::open(&world);
    assert_eq!(recovery.skipped, 0);
    is_refused(&node, file);
    check_others(&node);
    assert!(node.read_file(node.root("home"), "new").unwrap() == content(5, FILE_BYTES));
    remove(&node, node.root("home"), "file").unwrap();
    for _ in 0..3 {
        node.consistency_point();
        node.settle();
    }
    assert!(node.read_file(node.root("home"), "file").is_err());
    check_others(&node);
    let world = node.power_cut();
    check_others(&Node::open(&world).0);
}

/// The consistency point that was to make the data durable gave the file up.
#[test]
fn regression_a_commit_of_what_is_given_up_is_refused() {
    let tuning = Tuning { commit_bytes_max: 1 << 20, ..Tuning::default() };
    let (node, file) = damaged_of(FILE_BYTES, tuning);
    for block in (260..580).step_by(32) {
        let (offset, data) = ((block * BLOCK) as u64, Bytes::from(content(3, 32 * BLOCK)));
        node.ask(calls::Write { file, offset, data, stability: Stability::Unstable }).unwrap();
    }
    let before = node.engine.aggregate_summaries()[0].consistency_points;
    let commit = node.ask(calls::Commit::of(file));
    assert!(node.engine.aggregate_summaries()[0].consistency_points > before);
    assert_eq!(commit.map(drop), Err(FsError::Io));
    check_others(&node);
}

/// A file that is so large that it is freed in steps, and was quarantined before it was removed.
#[test]
fn regression_of_a_quarantined_file_all_is_freed_that_can_be_found() {
    const BLOCKS: usize = 1600;
    let (node, file) = damaged_of(BLOCKS * BLOCK, Tuning::default());
    write(&node, file, 300, content(3, BLOCK)).unwrap();
    node.consistency_point();
    is_refused(&node, file);
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let before = aggregate.used_blocks();
    remove(&node, node.root("home"), "file").unwrap();
    for _ in 0..6 {
        node.consistency_point();
        node.settle();
    }
    // What is below the node stays in use.
    let kept = 255;
    assert!(aggregate.used_blocks() + (BLOCKS - kept) as u64 <= before);
    check_others(&node);
}

#[test]
fn regression_replay_goes_on_beside_a_node_that_cannot_be_read() {
    let (node, file) = damaged();
    write(&node, file, 300, content(3, BLOCK)).unwrap();
    node.write_file(node.root("home"), "new", content(5, FILE_BYTES));
    let world = node.power_cut();
    let (node, recovery) = Node::open(&world);
    assert!(recovery.replayed > 0 && recovery.skipped == 0, "{recovery:?}");
    is_refused(&node, file);
    check_others(&node);
    assert!(node.read_file(node.root("home"), "new").unwrap() == content(5, FILE_BYTES));
}

#[test]
fn regression_a_block_that_cannot_be_read_keeps_no_record_from_being_replayed() {
    let world = SimulatedWorld::new(22);
    let node = Node::create(&world, RaidKind::None, false);
    let root = node.root("home");
    node.write_file(root, "well", content(1, FILE_BYTES));
    let file = node.write_file(root, "file", content(2, FILE_BYTES));
    node.consistency_point();
    node.settle();
    node.write_file(root, "new", content(5, FILE_BYTES));
    node.commit_all();
    // A part of a block, which must be read again to be replayed.
    write(&node, file, 300, content(3, 100)).unwrap();
    // Those of the same file that follow find it quarantined.
    write(&node, file, 300, content(4, 100)).unwrap();
    write(&node, file, 301, content(4, BLOCK)).unwrap();
    let world = node.power_cut();
    let (disk, block) = block_of(&world, file.inode, 0, 300);
    world.fail_block(&disk, block);
    let (node, recovery) = Node::open(&world);
    assert_eq!(recovery.skipped, 3);
    is_refused(&node, file);
    check_others(&node);
    assert!(node.read_file(node.root("home"), "new").unwrap() == content(5, FILE_BYTES));
}

/// A removed file whose blocks cannot be found is gone; what it took stays in use.
#[test]
fn regression_a_node_that_cannot_be_read_keeps_no_file_from_being_removed() {
    for bytes in [FILE_BYTES, 6 << 20] {
        let world = SimulatedWorld::new(23);
        let node = Node::create(&world, RaidKind::None, false);
        let root = node.root("home");
        node.write_file(root, "well", content(1, FILE_BYTES));
        let file = node.write_file(root, "file", content(2, bytes));
        node.commit_all();
        let world = node.power_cut();
        let (disk, block) = block_of(&world, file.inode, 1, 1);
        world.fail_block(&disk, block);
        let (node, _) = Node::open(&world);
        remove(&node, node.root("home"), "file").unwrap();
        for _ in 0..4 {
            node.consistency_point();
            node.settle();
        }
        assert!(node.read_file(node.root("home"), "file").is_err());
        check_others(&node);
        // Other files' blocks come back as before.
        let used = || node.engine.volume_summaries()[0].used_blocks;
        node.write_file(node.root("home"), "more", content(4, FILE_BYTES));
        node.consistency_point();
        node.settle();
        let before = used();
        remove(&node, node.root("home"), "more").unwrap();
        for _ in 0..4 {
            node.consistency_point();
            node.settle();
        }
        assert!(used() + 590 < before, "{before}, {}", used());
        let world = node.power_cut();
        let (node, _) = Node::open(&world);
        check_others(&node);
        // Nobody waits for the blocks of an orphan that cannot be freed: a full volume says so.
        let fill = node.write_file(node.root("home"), "fill", Vec::new());
        let refused =
            (0..600).find_map(|piece| write(&node, fill, piece * 16, content(6, 1 << 16)).err());
        assert_eq!(refused, Some(FsError::NoSpace));
        check_others(&node);
    }
}

/// A stable write whose record waits for a log that is slow, while a consistency point gives the
/// file up: it was answered as done.
#[test]
fn regression_a_write_that_is_dropped_before_it_is_logged_is_not_answered_as_done() {
    for is_after_the_freeze in [false, true] {
        let (node, file) = damaged();
        let aggregate = node.engine.aggregate_named("a1").unwrap();
        if is_after_the_freeze {
            let (data, done) = (Bytes::from(content(3, BLOCK)), Box::new(drop));
            let at = 300 * BLOCK as u64;
            node.service.write(
                &Caller::root(),
                calls::Write { file, offset: at, data, stability: Stability::Unstable },
                done,
            );
            node.settle();
        }
        node.world.set_hung("log", true);
        if is_after_the_freeze {
            aggregate.request_consistency_point(None);
            while aggregate.phase() != aggregate::Phase::CleaningMembers {
                assert!(node.run());
            }
        }
        let answer: Arc<Mutex<Option<Result<(), FsError>>>> = Arc::default();
        let slot = Arc::clone(&answer);
        let done = Box::new(move |outcome: Result<_, _>| *slot.lock() = Some(outcome.map(drop)));
        let (data, at) = (Bytes::from(content(4, BLOCK)), 301 * BLOCK as u64);
        node.service.write(
            &Caller::root(),
            calls::Write { file, offset: at, data, stability: Stability::FileSync },
            done,
        );
        while !is_after_the_freeze && node.run() {}
        assert_eq!(*answer.lock(), None);
        if is_after_the_freeze {
            while aggregate.phase() != aggregate::Phase::Idle {
                assert!(node.run());
            }
        } else {
            node.consistency_point();
        }
        node.world.set_hung("log", false);
        node.settle();
        assert_eq!(answer.lock().take(), Some(Err(FsError::Io)), "{is_after_the_freeze}");
        is_refused(&node, file);
        check_others(&node);
    }
}
