//! One disk more goes than parity covers, and comes back.

use super::*;
use crate::EngineError;
use aggregate::AggregateError;
use file_service::calls;
use raid::{MemberState, RaidError};
use std::sync::atomic::{AtomicBool, Ordering};
use units::AggregateUuid;

/// Commits, with these disks gone, until the aggregate knows.
fn lose(node: &Node, disks: &[usize]) -> Result<(), AggregateError> {
    for disk in disks {
        node.world.set_gone(&format!("disk{disk}"), true);
    }
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    aggregate.force();
    node.wait(|done| aggregate.request_consistency_point(Some(done)))
}

fn open(node: &Node) -> Result<Recovery, EngineError> {
    let disks = node.disks();
    node.wait(|done| node.engine.open_aggregate(disks, done))
}

fn comes_back(kind: RaidKind, traditional: bool, lost: &[usize]) {
    let volume = if traditional { "a1" } else { "home" };
    let world = SimulatedWorld::new(lost.len() as u64 + 77);
    let node = Node::create(&world, kind, traditional);
    let root = node.root(volume);
    for number in 0..20_u64 {
        node.write_file(root, &format!("file{number}"), content(number, number as usize * 777));
    }
    node.consistency_point();
    for number in 20..40_u64 {
        node.write_file(root, &format!("file{number}"), content(number, number as usize * 777));
    }
    let (verifier, losses_before) = (node.service.0.verifier(), node.service.0.losses(&root));
    let dirty = node.engine.memory_blocks().1;
    assert!(dirty > 0);
    let error = lose(&node, lost).unwrap_err();
    assert!(error.is_of_disks(), "{error}");
    // From this moment on nothing is answered but that: not by the old one, not after its end.
    for is_closed in [false, true] {
        assert_eq!(node.create_file(root, "more"), Err(FsError::Offline));
        assert_eq!(node.read_file(root, "file1"), Err(FsError::Offline));
        let found = node.ask(calls::Root { name: volume.to_owned() });
        assert_eq!(found.map(drop), Err(FsError::Offline));
        let statistics = node.ask(calls::Statistics { file: root });
        assert!(!is_closed || statistics == Err(FsError::Offline), "{statistics:?}");
        node.settle();
        node.engine.tick();
        node.settle();
    }
    assert!(node.engine.is_closed(&node.engine.outages()[0].summary.identity), "something is left");
    assert_eq!(node.engine.memory_blocks().1, 0, "dirty memory was not given back");
    let outage = node.engine.outages().remove(0);
    let members = &outage.summary.status.groups.iter().flat_map(|group| &group.members);
    let failed = members.clone().filter(|member| member.state != MemberState::Online).count();
    assert_eq!(failed, lost.len(), "{:?}", outage.summary.status);
    let still = open(&node).unwrap_err();
    assert!(
        matches!(
            still,
            EngineError::Aggregate(AggregateError::Raid(RaidError::TooFewDisks { .. }))
        ),
        "{still}"
    );
    assert_eq!(node.read_file(root, "file1"), Err(FsError::Offline));
    for disk in lost {
        world.set_gone(&format!("disk{disk}"), false);
    }
    let recovery = open(&node).unwrap();
    assert!(recovery.replayed > 0);
    assert!(node.engine.outages().is_empty());
    assert_eq!((losses_before, node.service.0.losses(&root)), (0, 1));
    let other = FileHandle { volume: units::VolumeUuid([1; 16]), ..root };
    assert_eq!(node.service.0.losses(&other), 0);
    assert_ne!(node.service.0.verifier(), verifier);
    // The handle of before is good.
    for number in 0..40_u64 {
        let expected = content(number, number as usize * 777);
        assert_eq!(node.read_file(root, &format!("file{number}")).unwrap(), expected);
    }
    node.write_file(root, "more", content(9, 100_000));
    node.consistency_point();
    node.settle();
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let found = aggregate.parts.store.status().groups[0].missing_disks();
    // The first one that went had been given up before.
    assert!(found <= kind.parity_disks(), "{found}");
}

#[test]
fn an_aggregate_comes_back_with_its_disks() {
    comes_back(RaidKind::Raid4, false, &[1, 3]);
    comes_back(RaidKind::Raid4, true, &[0, 2]);
    comes_back(RaidKind::Dp, false, &[0, 1, 3]);
    comes_back(RaidKind::None, false, &[2]);
}

/// A close whose open was lost with the aggregate ended the hold of a later open.
#[test]
fn regression_a_close_after_an_outage_ends_no_hold_of_a_later_open() {
    let world = SimulatedWorld::new(5);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let root = node.root("home");
    let file = node.write_file(root, "file", content(1, 9_000));
    let hold = |node: &Node| node.ask(calls::HoldFile { file });
    let first = hold(&node).unwrap();
    lose(&node, &[1, 2]).unwrap_err();
    assert_eq!(hold(&node), Err(FsError::Offline));
    node.engine.tick();
    assert_eq!(hold(&node), Err(FsError::Offline));
    // The volumes of the aggregate are known: this is none of them.
    let missing = FileHandle { volume: units::VolumeUuid([1; 16]), ..root };
    assert_eq!(node.read_file(missing, "x"), Err(FsError::Stale));
    node.settle();
    for disk in [1, 2] {
        world.set_gone(&format!("disk{disk}"), false);
    }
    open(&node).unwrap();
    let second = hold(&node).unwrap();
    assert_ne!(first, second);
    node.ask(calls::Remove { directory: root, name: b"file".to_vec() }).unwrap();
    node.service.release(&Caller::root(), calls::ReleaseHold { hold: first }, Box::new(drop));
    node.settle();
    node.ask(calls::GetAttributes { file }).unwrap();
    node.service.release(&Caller::root(), calls::ReleaseHold { hold: second }, Box::new(drop));
    node.settle();
    let gone = node.ask(calls::GetAttributes { file });
    assert_eq!(gone.unwrap_err(), FsError::Stale);
}

/// A read finds out, before anything is written.
#[test]
fn a_read_that_parity_cannot_answer_is_refused_and_ends_the_service() {
    let world = SimulatedWorld::new(3);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let root = node.root("home");
    node.write_file(root, "file", content(1, 2_000_000));
    node.consistency_point();
    node.settle();
    let world = node.power_cut();
    let (node, _) = Node::open(&world);
    let root = node.root("home");
    for disk in [1, 2, 3] {
        world.set_gone(&format!("disk{disk}"), true);
    }
    assert_eq!(node.read_file(root, "file"), Err(FsError::Offline));
    assert!(node.engine.aggregate_named("a1").unwrap().is_failed());
    node.engine.tick();
    node.settle();
    for disk in [1, 2, 3] {
        world.set_gone(&format!("disk{disk}"), false);
    }
    open(&node).unwrap();
    assert_eq!(node.read_file(root, "file").unwrap(), content(1, 2_000_000));
}

/// Another aggregate of the node works on.
#[test]
fn other_aggregates_are_not_disturbed() {
    let world = SimulatedWorld::new(4);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let missing = FileHandle { volume: units::VolumeUuid([1; 16]), ..node.root("home") };
    assert_eq!(node.read_file(missing, "x"), Err(FsError::Stale));
    node.engine.expect_aggregate(AggregateUuid([9; 16]));
    assert_eq!(node.read_file(missing, "x"), Err(FsError::Offline));
    let root = node.root("home");
    node.write_file(root, "file", content(1, 2_000_000));
    assert_eq!(node.read_file(root, "file").unwrap(), content(1, 2_000_000));
}

/// What a write puts into memory may be lost with the time that the write came in.
#[test]
fn a_write_is_answered_with_the_verifier_of_the_time_it_came_in() {
    let world = SimulatedWorld::new(6);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let file = node.write_file(node.root("home"), "file", content(1, 9_000));
    let stripe_bytes = cowfs::overlay::STRIPE_BLOCKS * units::BLOCK_SIZE_U64;
    let (within_a_stripe, across_two) = (0, stripe_bytes - units::BLOCK_SIZE_U64);
    for offset in [within_a_stripe, across_two] {
        let verifier = node.engine.verifier();
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let data = Bytes::from(content(2, 8192));
        let write = calls::Write { file, offset, data, stability: Stability::Unstable };
        let done = Box::new(move |outcome| *slot.lock() = Some(outcome));
        let scheduler = node.engine.scheduler();
        // Beside a message that shuts everything out, it is put in line.
        scheduler.exclusive(|_| node.service.write(&Caller::root(), write, done));
        node.engine.renew_verifier();
        node.settle();
        let written = answer.lock().take().unwrap().unwrap();
        assert_eq!(written.verifier, verifier, "at {offset}");
    }
}

/// Whoever looked while an aggregate came back saw no aggregate.
#[test]
fn regression_an_aggregate_is_known_while_it_goes_and_comes_back() {
    let world = SimulatedWorld::new(10);
    let node = Node::create(&world, RaidKind::None, false);
    let (engine, is_over) = (Arc::clone(&node.engine), AtomicBool::new(false));
    let look = || {
        while !is_over.load(Ordering::Relaxed) {
            let (summaries, outages) = engine.summaries_and_outages();
            assert_eq!(summaries.len() + outages.len(), 1, "{summaries:?} {outages:?}");
        }
    };
    std::thread::scope(|scope| {
        let looking = [scope.spawn(look), scope.spawn(look)];
        for _ in 0..30 {
            lose(&node, &[2]).unwrap_err();
            node.settle();
            node.engine.tick();
            node.settle();
            world.set_gone("disk2", false);
            // Those who look may hold what is left of it for a moment.
            while open(&node).is_err() {}
        }
        is_over.store(true, Ordering::Relaxed);
        looking.into_iter().for_each(|one| one.join().unwrap());
    });
}
