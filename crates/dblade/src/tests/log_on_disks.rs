//! Logs on the disks of their aggregates.

use super::*;
use nvlog::CopyState;
use raid::DiskPlace;
use units::{Block, DiskUuid, Timestamp};

fn node(kind: RaidKind) -> Node {
    let world = SimulatedWorld::new(7);
    Node::create_without_log(&world, DISK_BLOCKS, kind, false)
}

/// The disks that have a copy with everything.
fn whole(node: &Node) -> Vec<String> {
    let copies = node.engine.aggregate_summaries().remove(0).log_copies.into_iter();
    copies.filter(|copy| copy.state == CopyState::Whole).map(|copy| copy.disk).collect()
}

fn mend(node: &Node) {
    node.world.advance(11_000_000_000);
    node.engine.mend_logs();
    node.settle();
    // Copies elsewhere are let go of when there are as many as there should be.
    node.engine.mend_logs();
    node.settle();
}

fn write(node: &Node, name: &str) {
    node.write_file(node.root("home"), name, name.as_bytes().to_vec());
}

fn check(node: &Node, names: &[&str]) {
    for name in names {
        let read = node.read_file(node.root("home"), name);
        assert_eq!(read.as_deref(), Ok(name.as_bytes()), "{name}");
    }
}

/// Opens it with all disks but some.
fn open_without(world: &SimulatedWorld, missing: &[&str]) -> (Node, Recovery) {
    let node = Node::start(world);
    let disks = node.disks().into_iter().filter(|disk| !missing.contains(&disk.name()));
    let disks: Vec<Arc<dyn Disk>> = disks.collect();
    let recovery = node.wait(|done| node.engine.open_aggregate(disks, done)).unwrap();
    (node, recovery)
}

/// Opens it with the disks of its first group, and that of the other.
fn open_both(world: &SimulatedWorld) -> Node {
    let node = Node::start(world);
    let mut disks = node.disks();
    disks.push(world.open("joined").unwrap());
    let recovery = node.wait(|done| node.engine.open_aggregate(disks, done)).unwrap();
    assert!(recovery.lost_log.is_none() && recovery.replayed > 0, "{recovery:?}");
    node
}

#[test]
fn a_log_has_one_copy_more_than_disks_may_fail() {
    for (kind, copies) in [(RaidKind::None, 1), (RaidKind::Raid4, 2), (RaidKind::Dp, 3)] {
        let node = node(kind);
        let disks: Vec<String> = (0..copies).map(|disk| format!("disk{disk}")).collect();
        assert_eq!(whole(&node), disks, "{kind}");
        // A start leaves it with as many.
        write(&node, "since");
        let world = node.power_cut();
        let (node, recovery) = Node::open(&world);
        assert!(recovery.lost_log.is_none() && recovery.replayed > 0, "{kind}: {recovery:?}");
        assert_eq!(whole(&node).len(), copies, "{kind}");
        check(&node, &["since"]);
    }
}

#[test]
fn what_was_acknowledged_survives_the_disks_that_the_group_can_do_without() {
    for lost in [["disk0", "disk1"], ["disk1", "disk2"], ["disk0", "disk3"]] {
        let node = node(RaidKind::Dp);
        write(&node, "since");
        let world = node.power_cut();
        let (node, recovery) = open_without(&world, &lost);
        assert!(recovery.lost_log.is_none() && recovery.replayed > 0, "{lost:?}: {recovery:?}");
        check(&node, &["since"]);
        assert_eq!(whole(&node).len(), 2, "{lost:?}: on both disks that are left");
    }
}

#[test]
fn a_disk_that_fails_is_done_without_and_another_gets_its_copy() {
    let node = node(RaidKind::Raid4);
    node.world.set_gone("disk0", true);
    write(&node, "without");
    assert!(node.engine.aggregate_named("a1").unwrap().failure().is_none());
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    node.wait(|done| aggregate.request_consistency_point(Some(done))).unwrap();
    mend(&node);
    assert_eq!(whole(&node), ["disk1", "disk2"]);
    write(&node, "again");
    let world = node.power_cut();
    let (node, recovery) = open_without(&world, &["disk0"]);
    assert!(recovery.lost_log.is_none(), "{recovery:?}");
    check(&node, &["without", "again"]);
}

#[test]
fn a_disk_whose_place_another_has_is_not_written_any_more() {
    let node = node(RaidKind::Raid4);
    let place = DiskPlace { group: 0, member: 0 };
    node.world.add_disk("new", DISK_BLOCKS);
    let new = node.world.open("new").unwrap();
    let store = Arc::clone(&node.engine.aggregate_named("a1").unwrap().parts.store);
    node.wait(|done| store.fail_disk(place, done)).unwrap();
    node.wait(|done| store.replace_disk(place, new, DiskUuid([9; 16]), None, done)).unwrap();
    node.settle();
    let before: Vec<_> =
        (0..DISK_BLOCKS).map(|block| node.world.read_block("disk0", block)).collect();
    write(&node, "since");
    mend(&node);
    write(&node, "later");
    for (block, content) in (0..).zip(before) {
        assert_eq!(node.world.read_block("disk0", block), content, "block {block}");
    }
    assert!(!whole(&node).contains(&"disk0".to_owned()) && whole(&node).len() == 2);
}

#[test]
fn a_disk_is_not_replaced_before_the_log_has_left_it() {
    // With triple parity there are as many copies as a log may have.
    for kind in [RaidKind::Raid4, RaidKind::Dp, RaidKind::Tp] {
        let node = node(kind);
        let place = DiskPlace { group: 0, member: 0 };
        node.world.add_disk("new", DISK_BLOCKS);
        let new = node.world.open("new").unwrap();
        let store = Arc::clone(&node.engine.aggregate_named("a1").unwrap().parts.store);
        let name = || store.status().groups[0].members[0].name.clone();
        node.wait(|done| store.replace_disk(place, new, DiskUuid([9; 16]), None, done)).unwrap();
        node.settle();
        store.tick(1, Timestamp(1));
        node.settle();
        // It holds everything, and waits.
        write(&node, "while it waits");
        assert_eq!(
            (whole(&node).len(), name().as_deref()),
            (kind.parity_disks() + 1, Some("disk0"))
        );
        mend(&node);
        store.tick(2, Timestamp(2));
        node.settle();
        assert_eq!(name().as_deref(), Some("new"), "{kind}");
        assert!(!whole(&node).contains(&"disk0".to_owned()), "{kind}");
        write(&node, "after");
        check(&node, &["while it waits", "after"]);
    }
}

/// A log with as many copies as it may have took no further one, so none could leave.
#[test]
fn regression_a_log_with_all_copies_leaves_a_disk_that_is_replaced() {
    let world = SimulatedWorld::new(7);
    let names: Vec<String> = (0..6).map(|disk| format!("disk{disk}")).collect();
    names.iter().for_each(|name| drop(world.add_disk(name, DISK_BLOCKS)));
    let node = Node::start(&world);
    let disks = names.iter().map(|name| world.open(name).unwrap()).collect();
    let request = CreateAggregate::new("a1", RaidKind::Tp, disks);
    node.wait(|done| node.engine.create_aggregate(request, done)).unwrap();
    node.create_volume("home");
    mend(&node);
    assert_eq!(whole(&node).len(), 4);
    let place = DiskPlace { group: 0, member: 0 };
    world.add_disk("new", DISK_BLOCKS);
    let new = world.open("new").unwrap();
    let store = Arc::clone(&node.engine.aggregate_named("a1").unwrap().parts.store);
    node.wait(|done| store.replace_disk(place, new, DiskUuid([9; 16]), None, done)).unwrap();
    for second in 1..4 {
        node.settle();
        store.tick(second, Timestamp(second as i64));
        mend(&node);
    }
    let name = store.status().groups[0].members[0].name.clone();
    assert_eq!((name.as_deref(), whole(&node).len()), (Some("new"), 4));
    write(&node, "after");
    check(&node, &["after"]);
}

/// The group that stays can lose no disk, so one copy survives all that it survives.
#[test]
fn a_log_leaves_a_group_that_leaves_and_returns_to_one_that_stays() {
    let node = node(RaidKind::Tp);
    node.world.add_disk("joined", 2 * DISK_BLOCKS);
    node.add_group("joined");
    mend(&node);
    let mut first = whole(&node);
    first.sort_unstable();
    assert_eq!(first, ["disk0", "disk1", "disk2", "disk3"]);
    // The group stays while somebody looks at what is in it.
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    node.wait(|done| aggregate.pin_image(1 << 20, done)).unwrap();
    node.wait(|done| node.engine.remove_group("a1", 0, None, done)).unwrap();
    mend(&node);
    node.commit_all();
    assert!(aggregate.evacuation().is_some_and(|leaving| leaving.used_blocks == Some(0)));
    assert_eq!(whole(&node), ["joined"]);
    write(&node, "while it leaves");
    let world = node.power_cut();
    let node = open_both(&world);
    check(&node, &["while it leaves"]);
    node.wait(|done| node.engine.keep_group("a1", done)).unwrap();
    mend(&node);
    assert_eq!(whole(&node).len(), 4, "the group that stays can lose three disks");
    write(&node, "kept");
    node.wait(|done| node.engine.remove_group("a1", 0, None, done)).unwrap();
    mend(&node);
    node.wait_until_left();
    assert_eq!(whole(&node), ["joined"]);
    check(&node, &["while it leaves", "kept"]);
}

#[test]
fn a_log_goes_to_places_of_its_own() {
    let node = node(RaidKind::Raid4);
    write(&node, "on disks");
    let world = node.power_cut();
    // The configuration names places now.
    world.add_disk("log", 1472);
    world.add_disk(LOG_COPY, 1472);
    let (node, recovery) = Node::open(&world);
    assert!(recovery.lost_log.is_none() && recovery.replayed > 0, "{recovery:?}");
    mend(&node);
    let mut elsewhere = whole(&node);
    elsewhere.sort_unstable();
    assert_eq!(elsewhere, ["log", LOG_COPY]);
    write(&node, "elsewhere");
    let world = node.power_cut();
    let (node, recovery) = Node::open(&world);
    assert!(recovery.lost_log.is_none() && recovery.replayed > 0, "{recovery:?}");
    check(&node, &["on disks", "elsewhere"]);
}

#[test]
fn a_log_that_is_lost_with_too_many_disks_is_not_passed_over() {
    let node = node(RaidKind::Raid4);
    write(&node, "since");
    let world = node.power_cut();
    // Both copies rot; the disks are there.
    for disk in ["disk0", "disk1"] {
        let first = DISK_BLOCKS - 1 - 1472;
        for block in first - 64..DISK_BLOCKS - 1 {
            world.write_block(disk, block, &Block::zeroed());
        }
    }
    let node = Node::start(&world);
    let disks = node.disks();
    let refused = node.wait(|done| node.engine.open_aggregate(disks, done)).unwrap_err();
    assert!(matches!(refused, crate::EngineError::JournalLost { .. }), "{refused}");
    let disks = node.disks();
    let open = |done| node.engine.open_aggregate_with(disks, crate::LostLog::Replaced, done);
    let recovery = node.wait(open).unwrap();
    assert!(recovery.lost_log.is_some(), "{recovery:?}");
    assert_eq!(whole(&node).len(), 2);
}
