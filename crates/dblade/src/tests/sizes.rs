//! What is large: offsets and block numbers beyond 32 bits, trees of four levels, COMMITs that the
//! log does not take, a thousand snapshots; and times that are far off.

use super::full::tiny;
use super::*;
use file_service::SeekTarget;
use file_service::calls;
use platform::simulated::IoKind;
use units::BLOCK_SIZE_U64;

/// 16 TiB: four of them have 2^34 blocks.
const HUGE_DISK_BLOCKS: u64 = 1 << 32;
const YEAR_NANOSECONDS: u64 = 31_556_952_000_000_000;

fn huge(world: &SimulatedWorld, kind: RaidKind, traditional: bool, tuning: Tuning) -> Node {
    for disk in 0..DISKS {
        world.add_disk(&format!("disk{disk}"), HUGE_DISK_BLOCKS);
    }
    world.add_disk("log", 1412);
    let node = Node::start_tuned(world, tuning);
    let request = CreateAggregate { traditional, ..CreateAggregate::new("a1", kind, node.disks()) };
    node.wait(|done| node.engine.create_aggregate(request, done)).unwrap();
    if !traditional {
        let request = VolumeRequest::new("home", "a1", 1 << 34);
        node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
    }
    node
}

/// On both sides of where the tree of a file has another level (7 or 14 pointers in the inode, 256
/// or 512 in a block), of 2^32 blocks, and at the end of the largest file.
fn offsets() -> Vec<u64> {
    let levels = |root: u64, fanout: u64| (0..4).map(move |level| root * fanout.pow(level));
    let borders = levels(7, 256).chain(levels(14, 512)).map(|blocks| blocks * BLOCK_SIZE_U64);
    let borders = borders.chain([16 << 40]).filter(|border| *border < 1 << 46);
    let mut offsets: Vec<u64> = borders.map(|border| border - 6000).collect();
    offsets.extend([0, (1 << 46) - 12_000]);
    offsets.sort_unstable();
    offsets
}

#[test]
fn files_volumes_and_aggregates_beyond_16_tib() {
    let any = Tuning {
        group_choice: crate::AreaChoice::Any,
        volume_choice: crate::AreaChoice::Any,
        ..Tuning::default()
    };
    for (kind, traditional, tuning) in [
        (RaidKind::None, false, any),
        (RaidKind::Raid4, false, Tuning::default()),
        (RaidKind::None, true, any),
    ] {
        let volume = if traditional { "a1" } else { "home" };
        let node = huge(&SimulatedWorld::new(67), kind, traditional, tuning);
        let root = node.root(volume);
        let file = node.write_file(root, "file", Vec::new());
        let _caller = Caller::root();
        let write = |node: &Node, offset: u64, seed: u64| {
            let data = Bytes::from(content(seed, 12_000));
            let stability = [Stability::Unstable, Stability::FileSync][seed as usize % 2];
            let written = node.ask(calls::Write { file, offset, data, stability });
            written.unwrap();
        };
        let check = |node: &Node, seed: u64| {
            for (number, offset) in (0_u64..).zip(offsets()) {
                let read = node.ask(calls::Read { file, offset, count: 12_000 });
                assert!(read.unwrap().to_vec() == content(seed + number, 12_000), "at {offset}");
                let seek = |offset, target| node.ask(calls::Seek { file, offset, target }).unwrap();
                let hole = seek(offset, SeekTarget::Hole);
                assert!(
                    (1..8 * BLOCK_SIZE_U64).contains(&(hole - offset)),
                    "{hole} after {offset}"
                );
            }
        };
        for round in 0..3 {
            for (number, offset) in (0_u64..).zip(offsets()) {
                write(&node, offset, round * 100 + number);
            }
            if round == 1 {
                node.consistency_point();
            }
        }
        check(&node, 200);
        node.ask(calls::Commit::of(file)).unwrap();
        let (node, recovery) = Node::open_tuned(&node.power_cut(), tuning);
        assert!(recovery.replayed > 0);
        check(&node, 200);
        node.consistency_point();
        let request =
            |request| node.wait(|done| node.engine.request_snapshot(volume, request, done));
        request(SnapshotRequest::Create("s".to_owned())).unwrap();
        let set = SetAttributes { size: Some((16 << 40) + 1), ..SetAttributes::default() };
        node.ask(calls::SetFileAttributes { file, set }).unwrap();
        node.consistency_point();
        if traditional {
            request(SnapshotRequest::Delete("s".to_owned())).unwrap();
        } else {
            request(SnapshotRequest::Restore("s".to_owned())).unwrap();
            check(&node, 200);
        }
        node.ask(calls::Remove { directory: root, name: b"file".to_vec() }).unwrap();
        node.consistency_point();
        node.settle();
        let found = node.ask(calls::Statistics { file: root }).unwrap();
        assert!(found.available_bytes > 15 << 40, "{found:?}");
        let (node, _) = Node::open_tuned(&node.power_cut(), tuning);
        assert_eq!(node.engine.aggregate_summaries()[0].lost_blocks, 0);
    }
}

#[test]
fn commits_of_more_than_the_log_takes() {
    let world = SimulatedWorld::new(71);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let points = |node: &Node| node.engine.aggregate_summaries()[0].consistency_points;
    let root = node.root("home");
    node.settle();
    let before = points(&node);
    // Memory of 16 MiB holds a quarter of that dirty, so that most is committed on the way.
    node.write_file(root, "large", content(1, 12_000_000));
    assert!(points(&node) > before);
    let tuning = Tuning { commit_bytes_max: 1 << 20, ..Tuning::default() };
    let (node, _) = Node::open_tuned(&node.power_cut(), tuning);
    let root = node.root("home");
    assert!(node.read_file(root, "large").unwrap() == content(1, 12_000_000));
    node.consistency_point();
    node.settle();
    for (blocks, by_point) in [(256, 0), (257, 1)] {
        let before = points(&node);
        let name = format!("of {blocks}");
        node.write_file(root, &name, content(blocks, blocks as usize * 4096));
        assert_eq!(points(&node), before + by_point, "{blocks} blocks");
        let (node, _) = Node::open_tuned(&node.world.clone(), tuning);
        drop(node);
    }
    let (node, _) = Node::open_tuned(&node.power_cut(), tuning);
    let root = node.root("home");
    for blocks in [256, 257] {
        let expected = content(blocks, blocks as usize * 4096);
        assert!(node.read_file(root, &format!("of {blocks}")).unwrap() == expected);
    }
}

#[test]
fn as_many_snapshots_as_there_may_be() {
    const MOST: usize = 1023;
    let node = Node::create(&SimulatedWorld::new(73), RaidKind::None, false);
    let root = node.root("home");
    let create = |number: usize| SnapshotRequest::Create(format!("s{number}"));
    let request = |node: &Node, request| {
        node.wait(|done| node.engine.request_snapshot("home", request, done))
    };
    let names = |node: &Node| -> Vec<String> {
        let found = node.wait(|done| node.engine.snapshots("home", done)).unwrap();
        found.into_iter().map(|snapshot| snapshot.name).collect()
    };
    // Some at one freeze, the others with a change between them.
    let at_once = node.together(&(0..100).map(create).collect::<Vec<_>>());
    assert!(at_once.iter().all(Option::is_none));
    for number in 100..MOST {
        let data = number.to_le_bytes().repeat(512);
        node.write_file(root, "file", data);
        request(&node, create(number)).unwrap();
    }
    let refused = request(&node, create(MOST)).unwrap_err().to_string();
    assert!(refused.contains("the volume has 1023 snapshots, the most"), "{refused}");
    let (node, _) = Node::open(&node.power_cut());
    let expected: Vec<String> = (0..MOST).map(|number| format!("s{number}")).collect();
    assert_eq!(names(&node), expected);
    let root = node.root("home");
    let _caller = Caller::root();
    let lookup = |directory, name: &str| {
        node.ask(calls::Lookup { directory, name: name.as_bytes().to_vec() })
    };
    let all = lookup(root, ".snapshot").unwrap().handle;
    for number in [100, 555, MOST - 1] {
        let image = lookup(all, &format!("s{number}")).unwrap().handle;
        let expected = number.to_le_bytes().repeat(512);
        assert_eq!(node.read_file(image, "file").unwrap(), expected);
    }
    // Deleted and restored at the same freeze, and what was full has room again.
    let deletes = (0..MOST).step_by(2).map(|number| SnapshotRequest::Delete(format!("s{number}")));
    let mut requests: Vec<_> = deletes.collect();
    requests.push(SnapshotRequest::Restore("s555".to_owned()));
    assert!(node.together(&requests).iter().all(Option::is_none));
    let expected: Vec<String> =
        (0..556).filter(|number| number % 2 == 1).map(|number| format!("s{number}")).collect();
    assert_eq!(names(&node), expected);
    assert_eq!(node.read_file(root, "file").unwrap(), 555_usize.to_le_bytes().repeat(512));
    request(&node, create(MOST)).unwrap();
    let rest = names(&node).into_iter().map(SnapshotRequest::Delete).collect::<Vec<_>>();
    assert!(node.together(&rest).iter().all(Option::is_none));
    node.consistency_point();
    node.settle();
    let summary = &node.engine.volume_summaries()[0];
    assert!(summary.used_blocks < summary.active_blocks + 10, "{summary:?}");
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(names(&node), Vec::<String>::new());
}

/// A read ahead of somebody is under way while its file is removed and its blocks are used again:
/// what it finds is no block of the file any more.
#[test]
fn regression_a_block_that_is_freed_while_it_is_read_is_not_lost() {
    let world = SimulatedWorld::new(79);
    let node = tiny(&world, RaidKind::None, 1);
    node.write_file(node.root("v0"), "old", content(1, 8_000_000));
    node.consistency_point();
    node.settle();
    let (node, _) = Node::open(&node.power_cut());
    let root = node.root("v0");
    let caller = Caller::root();
    let old = node.ask(calls::Lookup { directory: root, name: b"old".to_vec() }).unwrap();
    for piece in 0..6 {
        let (file, offset) = (old.handle, piece << 16);
        node.ask(calls::Read { file, offset, count: 1 << 16 }).unwrap();
    }
    let reads: Vec<_> = world.pending().into_iter().filter(|io| io.kind == IoKind::Read).collect();
    assert!(reads.iter().map(|io| io.count).sum::<usize>() > 20, "{reads:?}");
    let is_held = |io: &platform::simulated::PendingIo| {
        io.kind == IoKind::Read
            && reads.iter().any(|held| (&held.disk, held.block) == (&io.disk, io.block))
    };
    let run = || {
        let next = || world.pending().iter().position(|io| !is_held(io));
        node.engine.scheduler().run_one(&mut |_| 0)
            || next().is_some_and(|index| world.complete_one(index))
    };
    let remove = calls::Remove { directory: root, name: b"old".to_vec() };
    completion::wait(|done| node.service.remove(&caller, remove, done), run).unwrap();
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    for _ in 0..3 {
        completion::wait(|done| aggregate.request_consistency_point(Some(done)), run).unwrap();
        while run() {}
    }
    // Until nothing is free that it had.
    let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
    let create = calls::Create { directory: root, name: b"new".to_vec(), mode, set };
    let made = completion::wait(|done| node.service.create(&caller, create, done), run);
    let file = made.unwrap().0.handle;
    let write = |piece: u64| {
        let data = Bytes::from(content(piece + 9, 1 << 16));
        let write =
            calls::Write { file, offset: piece << 16, data, stability: Stability::Unstable };
        completion::wait(|done| node.service.write(&caller, write, done), run).is_ok()
    };
    let pieces = (0..).take_while(|piece| write(*piece)).count();
    assert!(pieces > 500, "{pieces} fit");
    while run() {}
    assert!(world.pending_count() >= reads.len(), "the reads are still under way");
    node.settle();
    assert_eq!(node.engine.aggregate_summaries()[0].lost_blocks, 0);
}

/// In 2109 the numbers of labels ended: the next label that was written would have been the oldest.
#[test]
fn regression_labels_are_found_after_2109() {
    let world = SimulatedWorld::new(83);
    world.advance(95 * YEAR_NANOSECONDS);
    let mut node = Node::create(&world, RaidKind::Raid4, false);
    for round in 0..3_u64 {
        let root = node.root("home");
        node.write_file(root, "file", content(round, 500_000));
        let lost = format!("disk{}", round + 1);
        world.set_gone(&lost, true);
        node.write_file(root, "file", content(round + 10, 500_000));
        node.consistency_point();
        node.settle();
        let world = node.power_cut();
        world.set_gone(&lost, false);
        node = Node::open(&world).0;
        let root = node.root("home");
        assert!(node.read_file(root, "file").unwrap() == content(round + 10, 500_000));
        // The disk gets what it missed.
        let aggregate = node.engine.aggregate_named("a1").unwrap();
        while aggregate.parts.store.status().is_degraded() {
            world.advance(1_000_000_000);
            node.engine.tick();
            node.settle();
        }
    }
    assert_eq!(node.engine.aggregate_summaries()[0].lost_blocks, 0);
}

/// The answer is made before the write is applied.
#[test]
fn a_write_is_answered_with_the_blocks_that_it_adds() {
    let world = SimulatedWorld::new(8);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let file = node.write_file(node.root("home"), "file", content(1, 9_000));
    let block = BLOCK_SIZE_U64;
    let stripe_bytes = cowfs::overlay::STRIPE_BLOCKS * block;
    // The file has three blocks. Within a stripe one is added, across two stripes two are.
    for (offset, count, blocks) in [(5 * block, block, 4), (stripe_bytes - block, 2 * block, 6)] {
        let (data, stability) = (Bytes::from(content(2, count as usize)), Stability::Unstable);
        let written = node.ask(calls::Write { file, offset, data, stability }).unwrap();
        assert_eq!(written.change.after.used, blocks * block, "at {offset}");
        let attributes = node.ask(calls::GetAttributes { file }).unwrap();
        assert_eq!(written.change.after, attributes);
    }
}
