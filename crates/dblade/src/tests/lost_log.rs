//! Logs that are lost: after a clean stop, and after any other.

use super::*;
use crate::EngineError;
use aggregate::Phase;
use ondisk::scrub::ScrubPhase;
use platform::simulated::WorldImage;
use units::{Block, BlockRef};

const BEFORE: &[u8] = b"in the last consistency point";
const SINCE: &[u8] = b"in the log alone";

/// What may become of a log.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// A blank disk is in its place.
    Blank,
    /// Both copies of its header have rotted.
    Rotten,
    /// It is an older one of the same aggregate.
    Older,
}

const LOSSES: [Loss; 3] = [Loss::Blank, Loss::Rotten, Loss::Older];

fn node(kind: RaidKind) -> Node {
    let node = Node::create(&SimulatedWorld::new(7), kind, false);
    let root = node.root("home");
    node.write_file(root, "before", BEFORE.to_vec());
    node.consistency_point();
    node.write_file(root, "since", SINCE.to_vec());
    node
}

fn lose(world: &SimulatedWorld, loss: Loss) {
    match loss {
        Loss::Blank => (0..1412).for_each(|at| world.write_block("log", at, &Block::zeroed())),
        Loss::Rotten => (0..2).for_each(|at| world.flip_bit("log", at, 200)),
        Loss::Older => (0..2).for_each(|at| {
            let block = world.read_block("log", at).unwrap();
            let mut header = ondisk::log::LogHeader::from_block(&block).unwrap();
            header.log = units::LogUuid([9; 16]);
            world.write_block("log", at, &header.to_block());
        }),
    }
}

fn stop(node: &Node) {
    node.wait(|done| node.engine.stop(done)).unwrap();
    node.engine.halt();
}

/// All that the disks hold.
fn content_of(world: &SimulatedWorld) -> Vec<Option<BlockRef>> {
    let read = |disk: &str| (0..DISK_BLOCKS).map(|at| world.read_block(disk, at)).collect();
    let disks = world.disk_names();
    disks.iter().flat_map(|disk| -> Vec<_> { read(disk) }).collect()
}

fn open_with(node: &Node, if_lost: LostLog) -> Result<Recovery, EngineError> {
    let disks = node.disks();
    node.wait(|done| node.engine.open_aggregate_with(disks, if_lost, done))
}

fn read(node: &Node, name: &str) -> Option<Vec<u8>> {
    node.read_file(node.root("home"), name).ok()
}

#[test]
fn a_log_that_is_lost_after_a_clean_stop_costs_nothing() {
    for loss in LOSSES {
        let node = node(RaidKind::Dp);
        let world = node.world.clone();
        stop(&node);
        lose(&world, loss);
        let (node, recovery) = Node::open(&world);
        assert!(recovery.clean && recovery.lost_log.is_some(), "{loss:?}: {recovery:?}");
        assert_eq!(read(&node, "since").as_deref(), Some(SINCE), "{loss:?}");
        // The new log is as good as the old one.
        node.write_file(node.root("home"), "later", SINCE.to_vec());
        node.engine.halt();
        world.power_cut();
        let (node, recovery) = Node::open(&world);
        assert_eq!((recovery.clean, recovery.lost_log.is_some()), (false, false), "{loss:?}");
        assert_eq!(read(&node, "later").as_deref(), Some(SINCE), "{loss:?}");
    }
}

/// Work that takes several consistency points went on after the last one, and wrote stripes behind
/// a superblock that says clean.
#[test]
fn regression_no_consistency_point_follows_the_clean_one() {
    let node = node(RaidKind::Dp);
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    node.write_file(node.root("home"), "last", SINCE.to_vec());
    node.wait(|done| node.engine.stop(done)).unwrap();
    let before = content_of(&node.world);
    aggregate.force();
    let more = node.wait(|done| aggregate.request_consistency_point(Some(done)));
    assert!(more.is_err());
    node.settle();
    assert!(content_of(&node.world) == before, "nothing is written");
}

#[test]
fn a_log_that_is_lost_and_needed_is_done_without_if_somebody_says_so() {
    for loss in [Loss::Blank, Loss::Rotten] {
        let node = node(RaidKind::Dp);
        let (world, verifier) = (node.world.clone(), node.engine.verifier());
        node.engine.halt();
        world.power_cut();
        lose(&world, loss);
        let before = content_of(&world);
        let node = Node::start(&world);
        let refused = open_with(&node, LostLog::Refused).unwrap_err();
        assert!(matches!(&refused, EngineError::JournalLost { .. }), "{loss:?}: {refused}");
        node.engine.halt();
        assert!(content_of(&world) == before, "{loss:?}: a refused start changes nothing");
        let node = Node::start(&world);
        let recovery = open_with(&node, LostLog::Replaced).unwrap();
        assert!(!recovery.clean && recovery.lost_log.is_some(), "{loss:?}");
        assert_eq!(read(&node, "before").as_deref(), Some(BEFORE), "{loss:?}");
        assert_eq!(read(&node, "since"), None, "{loss:?}");
        assert_ne!(node.engine.verifier(), verifier, "{loss:?}: clients write again");
        let scrub = node.engine.aggregate_named("a1").unwrap().parts.store.status().scrub;
        assert_eq!(scrub.phase, ScrubPhase::Running, "{loss:?}");
        stop(&node);
        drop(Node::open(&world));
    }
}

/// The new log has the notes of stripes of the start that died: a disk that is lost with it costs
/// nothing.
#[test]
fn a_start_that_dies_after_the_new_log_is_begun_again() {
    let first = node(RaidKind::Raid4);
    let world = first.world.clone();
    stop(&first);
    lose(&world, Loss::Blank);
    let image = world.snapshot();
    for disk in [None, Some("disk0"), Some("disk3")] {
        let mut steps = 0;
        while !dies_after(&world, &image, (steps, disk)) {
            steps += 1;
        }
        assert!(steps > 10);
    }
}

/// Has a start die after so many steps; whether it was over by then.
fn die_after(world: &SimulatedWorld, image: &WorldImage, steps: usize) -> bool {
    world.restore(image);
    let node = Node::start(world);
    let opened: Arc<Mutex<bool>> = Arc::default();
    let slot = Arc::clone(&opened);
    let disks = node.disks();
    node.engine.open_aggregate(disks, Box::new(move |outcome| *slot.lock() = outcome.is_ok()));
    for _ in 0..steps {
        node.run();
    }
    let is_over = *opened.lock();
    node.engine.halt();
    world.power_cut();
    is_over
}

/// Has a start die after so many steps, and perhaps a disk with it, and opens what is left; whether
/// it was over by then.
fn dies_after(
    world: &SimulatedWorld,
    image: &WorldImage,
    (steps, disk): (usize, Option<&str>),
) -> bool {
    let is_over = die_after(world, image, steps);
    if let Some(disk) = disk {
        world.set_gone(disk, true);
    }
    let (node, _) = Node::open(world);
    for (name, content) in [("before", BEFORE), ("since", SINCE)] {
        assert_eq!(read(&node, name).as_deref(), Some(content), "after {steps} steps, {disk:?}");
    }
    node.engine.halt();
    world.power_cut();
    is_over
}

/// A start that made a new log and died has the notes of its stripes there. The old log counts no
/// more, should it be there again: it has none of them.
#[test]
fn regression_an_old_log_that_is_there_again_is_not_the_one_in_use() {
    let first = node(RaidKind::Raid4);
    let world = first.world.clone();
    stop(&first);
    let log = |at| world.read_block("log", at).unwrap();
    let old: Vec<Block> = (0..1412).map(|at| Block::clone(&log(at))).collect();
    lose(&world, Loss::Blank);
    let image = world.snapshot();
    let (mut steps, mut refused) = (0, 0);
    loop {
        let is_over = die_after(&world, &image, steps);
        (0..).zip(&old).for_each(|(at, block)| world.write_block("log", at, block));
        let node = Node::start(&world);
        match open_with(&node, LostLog::Refused) {
            Ok(recovery) => assert!(recovery.clean, "after {steps} steps: {recovery:?}"),
            Err(_) => refused += 1,
        }
        node.engine.halt();
        world.power_cut();
        if is_over {
            break;
        }
        steps += 1;
    }
    assert!(refused > 0);
}

/// The superblock said that the log is not needed until the first consistency point had committed,
/// though that notes in the log which stripes it writes.
#[test]
fn regression_the_log_is_needed_from_the_first_block_on() {
    let first = node(RaidKind::Raid4);
    let world = first.world.clone();
    stop(&first);
    let image = world.snapshot();
    let data = || -> Vec<_> {
        let blocks = |disk| {
            let world = &world;
            let data = media::DATA_START..DISK_BLOCKS - media::DATA_START;
            data.map(move |at| world.read_block(&format!("disk{disk}"), at))
        };
        (0..DISKS).flat_map(blocks).collect()
    };
    let before = data();
    let (mut steps, mut needed) = (0, 0);
    loop {
        let is_over = die_after(&world, &image, steps);
        if data() != before {
            needed += 1;
            lose(&world, Loss::Blank);
            let node = Node::start(&world);
            let opened = open_with(&node, LostLog::Refused);
            assert!(matches!(opened, Err(EngineError::JournalLost { .. })), "after {steps} steps");
            node.engine.halt();
        }
        if is_over {
            break;
        }
        steps += 1;
    }
    assert!(needed > 3, "{needed} of {steps}");
}

/// A stop is asked for while a consistency point is under way. Its superblock said that the log is
/// not needed, though it has what was acknowledged since the freeze.
#[test]
fn regression_only_the_last_consistency_point_says_that_the_log_is_not_needed() {
    let node = node(RaidKind::Dp);
    let world = node.world.clone();
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    aggregate.request_consistency_point(None);
    while aggregate.phase() != Phase::CleaningMembers {
        assert!(node.run());
    }
    let committed = aggregate.committed();
    node.engine.stop(Box::new(|_| ()));
    node.write_file(node.root("home"), "beside", SINCE.to_vec());
    assert!(aggregate.committed() <= committed.next(), "the last one has not committed");
    while aggregate.committed() == committed {
        assert!(node.run());
    }
    node.engine.halt();
    world.power_cut();
    let image = world.snapshot();
    lose(&world, Loss::Blank);
    let node = Node::start(&world);
    let refused = open_with(&node, LostLog::Refused).unwrap_err();
    assert!(matches!(&refused, EngineError::JournalLost { .. }), "{refused}");
    node.engine.halt();
    world.restore(&image);
    let (node, recovery) = Node::open(&world);
    assert!(!recovery.clean && recovery.replayed > 0, "{recovery:?}");
    assert_eq!(read(&node, "beside").as_deref(), Some(SINCE));
}

/// Somebody asks still when the last consistency point is under way: nothing is answered that only
/// the log would have.
#[test]
fn nothing_is_logged_beside_the_last_consistency_point() {
    let node = node(RaidKind::Dp);
    let world = node.world.clone();
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let root = node.root("home");
    node.engine.stop(Box::new(|_| ()));
    while aggregate.phase() != Phase::CleaningMembers {
        assert!(node.run());
    }
    let create = |service: &Service, done| {
        let mode = CreateMode::Guarded;
        let set = SetAttributes::default();
        let call = calls::Create { directory: root, name: b"late".to_vec(), mode, set };
        service.create(&Caller::root(), call, done);
    };
    assert_eq!(node.call(create).unwrap_err(), FsError::Offline);
    while !aggregate.is_failed() {
        assert!(node.run());
    }
    node.engine.halt();
    world.power_cut();
    let (node, recovery) = Node::open(&world);
    assert_eq!((recovery.clean, recovery.replayed), (true, 0));
    assert_eq!(read(&node, "since").as_deref(), Some(SINCE));
}

/// The one in use may be elsewhere, so this one is not done away with.
#[test]
fn another_log_of_the_aggregate_is_left_alone_where_one_is_needed() {
    let node = node(RaidKind::Dp);
    let world = node.world.clone();
    node.engine.halt();
    world.power_cut();
    lose(&world, Loss::Older);
    let before = content_of(&world);
    let node = Node::start(&world);
    for if_lost in [LostLog::Refused, LostLog::Replaced] {
        let refused = open_with(&node, if_lost).unwrap_err();
        assert!(matches!(&refused, EngineError::Journal { .. }), "{refused}");
        assert!(refused.to_string().contains("the one in use is"), "{refused}");
    }
    node.engine.halt();
    assert!(content_of(&world) == before);
}

/// Somebody else's data is where the log should be.
#[test]
fn what_is_neither_blank_nor_a_log_is_left_alone() {
    let node = node(RaidKind::Dp);
    let world = node.world.clone();
    stop(&node);
    lose(&world, Loss::Blank);
    world.write_block("log", 40, &Block::from_prefix(b"x"));
    let before = content_of(&world);
    let node = Node::start(&world);
    for if_lost in [LostLog::Refused, LostLog::Replaced] {
        let refused = open_with(&node, if_lost).unwrap_err().to_string();
        assert!(refused.contains("not blank"), "{refused}");
    }
    node.engine.halt();
    assert!(content_of(&world) == before);
}
