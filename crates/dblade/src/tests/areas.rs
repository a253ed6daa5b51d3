//! Where free space is taken, and what a start knows of it.

use super::{Node, content};
use aggregate::GroupMap;
use ondisk::label::RaidKind;
use platform::simulated::SimulatedWorld;

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
