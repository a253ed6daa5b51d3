//! Where free space is taken, and what a start knows of it.

use super::{Node, content};
use crate::{AddDisks, Joining, Tuning};
use aggregate::{AreaCell, GroupMap};
use file_service::calls;
use ondisk::label::RaidKind;
use platform::disk::DiskOpener;
use platform::simulated::SimulatedWorld;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use volume::SnapshotRequest;

impl Node {
    fn area_map(&self) -> Vec<GroupMap> {
        let aggregate = self.engine.aggregate_named("a1").unwrap();
        self.wait(|done| aggregate.area_map(u64::MAX, done))
    }
}

fn used_blocks(group: &GroupMap) -> u64 {
    group.cells.iter().map(|cell| cell.counted_blocks - cell.free_blocks).sum()
}

fn counted_areas(group: &GroupMap) -> u64 {
    group.cells.iter().filter(|cell| cell.counted_blocks > 0).count() as u64
}

#[test]
fn all_groups_are_filled_at_once() {
    let world = SimulatedWorld::new(1);
    let node = Node::create(&world, RaidKind::None, false);
    let root = node.root("home");
    node.write_file(root, "file", content(1, 8 << 20));
    node.consistency_point();
    let map = node.area_map();
    assert_eq!(map.len(), 4, "a disk without parity is a group");
    let used: Vec<u64> = map.iter().map(used_blocks).collect();
    let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    assert!(*least > 400, "{used:?}");
    assert!(most - least <= 2 * 63, "turns are taken tetris by tetris: {used:?}");
    assert!(map.iter().all(|group| !group.is_left_out));
}

#[test]
fn a_start_knows_the_areas_that_the_last_consistency_point_knew() {
    let world = SimulatedWorld::new(2);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let root = node.root("home");
    node.write_file(root, "file", content(2, 4 << 20));
    node.consistency_point();
    node.settle();
    let before = node.area_map();
    let world = node.power_cut();
    let (node, _) = Node::open(&world);
    node.settle();
    let after = node.area_map();
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(counted_areas(after), after.areas, "all are counted in the end");
        let (before, after) = (used_blocks(before), used_blocks(after));
        assert!(before.abs_diff(after) < 100, "a start writes little: {before}, {after}");
    }
    assert_eq!(node.read_file(node.root("home"), "file").unwrap(), content(2, 4 << 20));
}

fn empty_areas(group: &GroupMap) -> usize {
    let is_empty = |cell: &&AreaCell| cell.free_blocks == cell.counted_blocks;
    group.cells.iter().filter(is_empty).count()
}

/// Files of which a few stay of each area: all kinds of blocks are in the way, data and nodes and
/// maps of the volume, and what the aggregate has of its own.
#[test]
fn areas_are_emptied_as_a_whole() {
    for kind in [RaidKind::Raid4, RaidKind::Dp] {
        let world = SimulatedWorld::new(3);
        drop(Node::create(&world, kind, false));
        let tuning = Tuning { empty_areas: u32::MAX, ..Tuning::default() };
        let (node, _) = Node::open_tuned(&world, tuning);
        let root = node.root("home");
        let files = 0..160_u64;
        let is_kept = |number: &u64| number.is_multiple_of(16);
        let name = |number: u64| format!("file{number}");
        for number in files.clone() {
            node.write_file(root, &name(number), content(number, 100_000));
            if number % 4 == 3 {
                node.consistency_point();
            }
        }
        for number in files.clone().filter(|number| !is_kept(number)) {
            let name = name(number);
            node.ask(calls::Remove { directory: root, name: name.as_bytes().to_vec() }).unwrap();
        }
        let aggregate = node.engine.aggregate_named("a1").unwrap();
        let emptied = || aggregate.statistics.emptied_areas.load(Ordering::Relaxed);
        // Until there is nothing left to empty.
        let mut last = u64::MAX;
        while std::mem::replace(&mut last, emptied()) != emptied() {
            (0..12).for_each(|_| {
                node.consistency_point();
                node.settle();
            });
        }
        let map = node.area_map();
        let rewritten = &aggregate.statistics.emptying_rewritten_blocks;
        assert!(rewritten.load(Ordering::Relaxed) > 0, "the aggregate's own blocks are in the way");
        for group in &map {
            let needed = used_blocks(group).div_ceil(group.area_blocks) as usize;
            let in_use = group.areas as usize - empty_areas(group);
            assert!(in_use <= needed + 2, "{in_use} areas have blocks, {needed} could hold all");
        }
        drop(aggregate);
        let world = node.power_cut();
        let (node, _) = Node::open(&world);
        let root = node.root("home");
        for number in files.filter(is_kept) {
            let found = node.read_file(root, &name(number)).unwrap();
            assert!(found == content(number, 100_000), "file {number}");
        }
    }
}

impl Node {
    /// A disk of a group that has left joins as a group of its own.
    pub(super) fn add_group(&self, disk: &str) {
        let joining = AddDisks {
            disks: vec![self.world.open(disk).unwrap()],
            to: Joining::NewGroups { kind: RaidKind::None, group_size: 1 },
            media: None,
            // The store has erased what tells of what it held.
            force: false,
            zeroing: Arc::default(),
        };
        self.wait(|done| self.engine.add_disks("a1", joining, done)).unwrap();
    }

    /// Consistency points until the group that is to leave has left.
    pub(super) fn wait_until_left(&self) {
        let aggregate = self.engine.aggregate_named("a1").unwrap();
        for _ in 0..200 {
            self.consistency_point();
            self.settle();
            if aggregate.evacuation().is_none() {
                return;
            }
        }
        panic!("a group is still leaving: {:?}", aggregate.evacuation());
    }
}

#[test]
fn a_group_leaves_and_its_disk_can_be_used_again() {
    let world = SimulatedWorld::new(5);
    let node = Node::create(&world, RaidKind::None, false);
    let root = node.root("home");
    node.write_file(root, "file", content(1, 6 << 20));
    node.consistency_point();
    let request = SnapshotRequest::Create("before".to_owned());
    node.wait(|done| node.engine.request_snapshot("home", request, done)).unwrap();
    node.write_file(root, "file", content(2, 6 << 20));
    node.consistency_point();
    node.settle();
    let size = |node: &Node| node.engine.aggregate_named("a1").unwrap().size_blocks();
    let before = size(&node);
    // The first has number 0; with the other goes half of what there was.
    for group in [0, 2] {
        node.wait(|done| node.engine.remove_group("a1", group, None, done)).unwrap();
        node.wait_until_left();
    }
    assert_eq!(size(&node), before / 2);
    let map = node.area_map();
    assert!(map[0].areas == 0 && map[2].areas == 0, "nothing is placed there");
    let refused = node.wait(|done| node.engine.remove_group("a1", 2, None, done));
    assert!(refused.is_err(), "it has left");
    let world = node.power_cut();
    let node = Node::start(&world);
    let disks = [1, 3].map(|disk| world.open(&format!("disk{disk}")).unwrap());
    node.wait(|done| node.engine.open_aggregate(disks.to_vec(), done)).unwrap();
    let root = node.root("home");
    assert!(node.read_file(root, "file").unwrap() == content(2, 6 << 20));
    node.add_group("disk0");
    assert_eq!(size(&node), before * 3 / 4);
    node.write_file(root, "file", content(3, 6 << 20));
    node.consistency_point();
    assert!(node.read_file(root, "file").unwrap() == content(3, 6 << 20));
    let lookup = |directory, name: &str| {
        node.ask(calls::Lookup { directory, name: name.as_bytes().to_vec() })
    };
    let snapshots = lookup(root, ".snapshot").unwrap().handle;
    let image = lookup(snapshots, "before").unwrap().handle;
    assert!(node.read_file(image, "file").unwrap() == content(1, 6 << 20));
}

#[test]
fn a_removal_goes_on_after_a_start_and_can_be_given_up() {
    let world = SimulatedWorld::new(6);
    let node = Node::create(&world, RaidKind::None, false);
    node.write_file(node.root("home"), "file", content(1, 8 << 20));
    node.consistency_point();
    node.wait(|done| node.engine.remove_group("a1", 1, None, done)).unwrap();
    let world = node.power_cut();
    let (node, _) = Node::open(&world);
    let leaving = node.engine.aggregate_named("a1").unwrap().evacuation().unwrap();
    assert_eq!(leaving.group, 1);
    node.wait(|done| node.engine.keep_group("a1", done)).unwrap();
    assert!(node.engine.aggregate_named("a1").unwrap().evacuation().is_none());
    node.consistency_point();
    node.settle();
    node.wait(|done| node.engine.remove_group("a1", 3, None, done)).unwrap();
    let world = node.power_cut();
    let (node, _) = Node::open(&world);
    node.wait_until_left();
    assert!(node.read_file(node.root("home"), "file").unwrap() == content(1, 8 << 20));
    let planned = node.wait(|done| node.engine.plan_removal("a1", 0, done)).unwrap();
    assert!(planned.group == 0 && planned.used_blocks.is_some_and(|used| used < planned.blocks));
    assert!(node.engine.aggregate_named("a1").unwrap().evacuation().is_none(), "it is a plan");
    // What is left has no room for what a third group has.
    node.write_file(node.root("home"), "more", content(2, 16 << 20));
    node.consistency_point();
    node.wait(|done| node.engine.remove_group("a1", 0, None, done)).unwrap();
    node.wait_until_left();
    let refused = node.wait(|done| node.engine.remove_group("a1", 1, None, done));
    let Err(error) = refused else { panic!("8192 blocks cannot hold all") };
    let planned = node.wait(|done| node.engine.plan_removal("a1", 1, done));
    assert!(planned.unwrap_err().to_string().contains("are needed"));
    assert!(error.to_string().contains("are needed"), "{error}");
}

/// Nodes of a container map are in the group, and nothing below them that would take them along.
#[test]
fn nodes_leave_without_what_is_below_them() {
    let world = SimulatedWorld::new(7);
    let node = Node::create(&world, RaidKind::None, false);
    let root = node.root("home");
    let name = |number: u64| format!("file{number}");
    let is_kept = |number: &u64| number.is_multiple_of(4);
    for number in 0..64 {
        node.write_file(root, &name(number), content(number, 128 << 10));
    }
    node.consistency_point();
    node.wait(|done| node.engine.remove_group("a1", 3, None, done)).unwrap();
    node.wait_until_left();
    node.add_group("disk3");
    // What is in stock of the other groups is used up.
    node.write_file(root, "more", content(64, 3 << 19));
    // Of the nodes only entries of what is freed change. Some are written to the new group.
    for name in (0..64).filter(|number| !is_kept(number)).map(name) {
        node.ask(calls::Remove { directory: root, name: name.as_bytes().to_vec() }).unwrap();
        node.consistency_point();
    }
    node.settle();
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let rewritten = || aggregate.statistics.emptying_rewritten_blocks.load(Ordering::Relaxed);
    let before = rewritten();
    node.wait(|done| node.engine.remove_group("a1", 4, None, done)).unwrap();
    node.wait_until_left();
    assert!(rewritten() > before, "there was none");
    for number in (0..64).filter(is_kept) {
        assert!(node.read_file(root, &name(number)).unwrap() == content(number, 128 << 10));
    }
}
