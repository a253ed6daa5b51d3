//! Superblocks that a power cut left on one disk only, and slots that cannot be read.

use super::*;
use crate::EngineError;
use aggregate::{AggregateError, Phase};
use file_service::WriteResult;
use file_service::calls;
use media::SUPERBLOCK_BLOCK;
use platform::simulated::Fate;

/// Of the steps of a start every so many are tried.
const STEPS_BETWEEN_CUTS: usize = 3;

/// An aggregate that is three quarters full, with areas that are being emptied, at the moment at
/// which a superblock is on its way to all disks. And what its files must hold.
fn sealing_node(seed: u64) -> (Node, Vec<(String, Vec<u8>)>) {
    let world = SimulatedWorld::new(seed);
    let node = Node::create_on(&world, 4096, RaidKind::Dp, false);
    let root = node.root("home");
    let (mut files, mut handles) = (Vec::new(), Vec::new());
    for number in 0..24_u64 {
        let (name, data) = (format!("file{number}"), content(seed + number, 1 << 20));
        handles.push(node.write_file(root, &name, data.clone()));
        files.push((name, data));
        if number.is_multiple_of(8) {
            node.consistency_point();
        }
    }
    // What is overwritten is free after the next consistency point.
    for round in 0..3_u64 {
        for number in (0..24_usize).filter(|number| number % 3 == round as usize) {
            let data = content(100 + seed + number as u64, 1 << 20);
            node.write_file(root, &files[number].0, data.clone());
            files[number].1 = data;
        }
        node.consistency_point();
    }
    for (number, (name, data)) in files.iter_mut().enumerate().take(8) {
        *data = content(200 + seed + number as u64, 1 << 19);
        node.write_file(root, name, data.clone());
        data.extend(&content(100 + seed + number as u64, 1 << 20)[1 << 19..]);
    }
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    aggregate.force();
    aggregate.request_consistency_point(None);
    while aggregate.phase() != Phase::CleaningAggregate {
        assert!(node.run());
    }
    // The start has this to replay, into blocks that the consistency point under way frees.
    let root = Caller::root();
    let written: Arc<Mutex<usize>> = Arc::default();
    for (number, handle) in handles.iter().enumerate().skip(8).take(12) {
        let piece = content(300 + seed, 1 << 16);
        files[number].1[..piece.len()].copy_from_slice(&piece);
        let count = Arc::clone(&written);
        let done = move |outcome: Result<WriteResult, FsError>| {
            outcome.unwrap();
            *count.lock() += 1;
        };
        let piece = Bytes::from(piece);
        node.service.write(
            &root,
            calls::Write { file: *handle, offset: 0, data: piece, stability: Stability::FileSync },
            Box::new(done),
        );
    }
    while aggregate.phase() != Phase::Sealing {
        assert!(node.run(), "{:?}", aggregate.phase());
    }
    assert_eq!(*written.lock(), 12, "all are in the log");
    (node, files)
}

fn check_files(node: &Node, files: &[(String, Vec<u8>)]) {
    let root = node.root("home");
    for (name, data) in files {
        assert!(node.read_file(root, name).unwrap() == *data, "{name}");
    }
}

/// Opens without the disk, after a start that ended after so many steps; whether the start had
/// come to its end.
fn opens_without(node: &Node, disk: usize, steps: usize, files: &[(String, Vec<u8>)]) -> bool {
    let world = node.world.clone();
    let first = Node::start(&world);
    let opened: Arc<Mutex<Option<Recovery>>> = Arc::default();
    let slot = Arc::clone(&opened);
    let disks = first.disks();
    let done = move |outcome: Result<Recovery, EngineError>| *slot.lock() = outcome.ok();
    first.engine.open_aggregate(disks, Box::new(done));
    for _ in 0..steps {
        first.run();
    }
    let is_over = opened.lock().is_some();
    first.engine.halt();
    // Nothing of what was on its way came to the disks, superblocks least of all.
    world.power_cut_with(Fate::AllLost);
    world.set_gone(&format!("disk{disk}"), true);
    let (second, _) = Node::open(&world);
    check_files(&second, files);
    second.engine.halt();
    is_over
}

/// The start wrote into blocks that the consistency point before used, and then the one disk was
/// lost that had the superblock: the aggregate never opened again.
#[test]
fn regression_a_superblock_of_one_disk_is_written_to_all_before_recovery() {
    let (node, files) = sealing_node(3);
    let image = node.world.snapshot();
    // A parity disk and a data disk.
    for disk in [0, DISKS - 1] {
        let mut steps = 0;
        loop {
            node.engine.halt();
            node.world.restore(&image);
            let name = format!("disk{disk}");
            let place = node.world.disk_names().iter().position(|other| **other == *name).unwrap();
            node.world.power_cut_with(Fate::KeptOnOne(place));
            let is_over = opens_without(&node, disk, steps, &files);
            node.world.set_gone(&name, false);
            if is_over {
                break;
            }
            steps += STEPS_BETWEEN_CUTS;
        }
        assert!(steps > 10 * STEPS_BETWEEN_CUTS, "a start takes more than {steps} steps");
    }
}

/// The slot with the newest superblock could not be read on the only disk, and the start took the
/// other one without a word.
#[test]
fn regression_an_older_superblock_is_not_opened_beside_one_that_cannot_be_read() {
    let world = SimulatedWorld::new(5);
    let node = Node::create(&world, RaidKind::Raid4, false);
    node.write_file(node.root("home"), "file", content(1, 100_000));
    node.consistency_point();
    node.consistency_point();
    node.settle();
    node.engine.halt();
    world.power_cut();
    for slot in 0..2 {
        let image = world.snapshot();
        for disk in 0..DISKS {
            world.fail_block(&format!("disk{disk}"), SUPERBLOCK_BLOCK + slot);
        }
        let node = Node::start(&world);
        let disks = node.disks();
        let opened = node.wait(|done| node.engine.open_aggregate(disks, done));
        let Err(EngineError::Aggregate(AggregateError::SuperblockUnreadable { .. })) = opened
        else {
            panic!("slot {slot}: {opened:?}");
        };
        node.engine.halt();
        world.restore(&image);
        // One disk that tells is enough.
        for disk in 1..DISKS {
            world.fail_block(&format!("disk{disk}"), SUPERBLOCK_BLOCK + slot);
        }
        let (node, _) = Node::open(&world);
        assert!(node.read_file(node.root("home"), "file").unwrap() == content(1, 100_000));
        node.engine.halt();
        world.restore(&image);
    }
}

/// The newest superblock of the only disk has rotted. A start that takes it for one that a power
/// cut tore opens the consistency point before it, and loses acknowledged data without a word.
#[test]
fn regression_an_older_superblock_is_not_opened_beside_one_that_has_rotted() {
    let world = SimulatedWorld::new(6);
    world.add_disk("disk0", 4 * DISK_BLOCKS);
    world.add_disk("log", 1412);
    let tuning = Tuning { commit_bytes_max: 1 << 20, ..Tuning::default() };
    let node = Node::start_tuned(&world, tuning);
    let disks = || vec![world.open("disk0").unwrap()];
    let request = CreateAggregate {
        traditional: true,
        ..CreateAggregate::new("a1", RaidKind::None, disks())
    };
    node.wait(|done| node.engine.create_aggregate(request, done)).unwrap();
    node.write_file(node.root("a1"), "first", content(1, 100_000));
    node.consistency_point();
    node.settle();
    // So much that COMMIT is answered after a consistency point, and nothing of it is logged.
    let file = node.write_file(node.root("a1"), "file", Vec::new());
    node.consistency_point();
    node.settle();
    for piece in 0..48_u64 {
        let data = Bytes::from(content(piece, 1 << 16));
        let written = node.ask(calls::Write {
            file,
            offset: piece << 16,
            data,
            stability: Stability::Unstable,
        });
        written.unwrap();
    }
    node.ask(calls::Commit::of(file)).unwrap();
    node.engine.halt();
    world.power_cut();
    let cp = |slot| {
        let block = world.read_block("disk0", SUPERBLOCK_BLOCK + slot).unwrap();
        ondisk::root::Superblock::from_block(&block).unwrap().cp()
    };
    let newest = if cp(0) < cp(1) { 1 } else { 0 };
    world.flip_bit("disk0", SUPERBLOCK_BLOCK + newest, 777);
    let node = Node::start_tuned(&world, tuning);
    let opened = node.wait(|done| node.engine.open_aggregate(disks(), done));
    let Err(EngineError::Aggregate(AggregateError::SuperblockUnreadable { .. })) = opened else {
        panic!("{opened:?}");
    };
}

fn slot_block(world: &SimulatedWorld, slot: u64) -> units::Block {
    (*world.read_block("disk0", SUPERBLOCK_BLOCK + slot).unwrap()).clone()
}

fn number_in(block: &units::Block) -> Option<u64> {
    ondisk::root::Superblock::from_block(block).ok().map(|found| found.cp().get())
}

/// Two attempts at one consistency point, each torn by a power cut: the first sector is of one, the
/// second of the other, and both have the same number.
fn tear_twice(changes_table: bool) {
    let world = SimulatedWorld::new(6);
    world.add_disk("disk0", 4 * DISK_BLOCKS);
    world.add_disk("log", 1412);
    let node = Node::start(&world);
    let disks = || vec![world.open("disk0").unwrap()];
    let request = CreateAggregate {
        traditional: true,
        ..CreateAggregate::new("a1", RaidKind::None, disks())
    };
    node.wait(|done| node.engine.create_aggregate(request, done)).unwrap();
    let root = node.root("a1");
    node.write_file(root, "first", content(1, 100_000));
    node.consistency_point();
    node.settle();
    // The table of snapshots changes, and with it the second sector of the superblock.
    let snapshot = |name: &str| volume::SnapshotRequest::Create(name.to_owned());
    node.wait(|done| node.engine.request_snapshot("a1", snapshot("one"), done)).unwrap();
    node.settle();
    let newest = u64::from(number_in(&slot_block(&world, 0)) < number_in(&slot_block(&world, 1)));
    let (committed, other) = (number_in(&slot_block(&world, newest)).unwrap(), 1 - newest);
    let mut torn = slot_block(&world, other);
    let mut tear = |written: &units::Block, sector: usize| {
        let bytes = sector * 512..(sector + 1) * 512;
        torn.bytes_mut()[bytes.clone()].copy_from_slice(&written.bytes()[bytes]);
        world.write_block("disk0", SUPERBLOCK_BLOCK + other, &torn);
    };
    for number in 0..3 {
        node.write_file(root, &format!("later{number}"), content(number, 50_000));
    }
    match changes_table {
        true => node.engine.request_snapshot("a1", snapshot("two"), Box::new(|_| ())),
        false => node.engine.aggregate_named("a1").unwrap().request_consistency_point(None),
    }
    let attempt = |node: &Node| {
        while number_in(&slot_block(&world, other)) != Some(committed + 1) {
            assert!(node.run());
        }
        let written = slot_block(&world, other);
        node.engine.halt();
        world.power_cut_with(Fate::AllLost);
        written
    };
    tear(&attempt(&node), 0);
    let node = Node::start(&world);
    node.engine.open_aggregate(disks(), Box::new(|_| ()));
    tear_over(&world, other, &attempt(&node));
    let node = Node::start(&world);
    node.wait(|done| node.engine.open_aggregate(disks(), done)).unwrap();
    let root = node.root("a1");
    node.write_file(root, "new", content(9, 1_000_000));
    node.consistency_point();
    assert!(node.engine.aggregate_named("a1").unwrap().failure().is_none());
    assert!(node.read_file(root, "first").unwrap() == content(1, 100_000));
    for number in 0..3 {
        assert!(
            node.read_file(root, &format!("later{number}")).unwrap() == content(number, 50_000)
        );
    }
}

/// Writes only the second sector of `written` to the slot.
fn tear_over(world: &SimulatedWorld, slot: u64, written: &units::Block) {
    let mut torn = slot_block(world, slot);
    torn.bytes_mut()[512..1024].copy_from_slice(&written.bytes()[512..1024]);
    world.write_block("disk0", SUPERBLOCK_BLOCK + slot, &torn);
}

/// The start was refused for ever, as if the superblock had rotted.
#[test]
fn regression_a_superblock_that_is_torn_twice_is_not_taken_for_rot() {
    tear_twice(true);
}

/// The image of the attempt that never committed was opened, after the other had written its own.
#[test]
fn regression_two_torn_superblocks_are_not_one_whole() {
    tear_twice(false);
}
