//! Where free space is taken, and what a start knows of it.

use super::{Node, content};
use crate::Tuning;
use aggregate::{AreaCell, GroupMap};
use file_service::{Caller, FileService};
use ondisk::label::RaidKind;
use platform::simulated::SimulatedWorld;
use std::sync::atomic::Ordering;

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
        let caller = Caller::root();
        for number in files.clone().filter(|number| !is_kept(number)) {
            let name = name(number);
            node.call(|service, done| service.remove(&caller, root, name.as_bytes(), done))
                .unwrap();
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
