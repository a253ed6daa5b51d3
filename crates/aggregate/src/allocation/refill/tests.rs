//! Whose turn it is to be written, and what is left of groups that were removed.

use super::group::Cache;
use super::*;
use ondisk::label::RaidKind;
use std::collections::BTreeSet;

/// Two groups of a disk each, with areas of which so many hundredths are free.
fn two_groups(free_percent: [u64; 2]) -> Refill {
    let first = GroupGeometry::new(RaidKind::None, 2048, 1, Pvbn(0));
    let base = Pvbn(first.blocks_per_disk());
    let second = GroupGeometry::new(RaidKind::None, 2048, 1, base);
    let mut refill = Refill::of_empty(&Geometry::new(vec![first, second]).unwrap());
    for (group, percent) in refill.groups.iter_mut().zip(free_percent) {
        let capacity = group.capacity(0);
        let Cache::All(heap) = &mut group.cache else { panic!("disks have a heap") };
        let used = capacity * (100 - percent) / 100;
        (0..group.areas.areas()).for_each(|area| heap.change(area, -(used as i64)));
    }
    refill
}

fn turn_of(refill: &mut Refill, group: usize) -> Option<usize> {
    refill.turn = group;
    refill.next_group(Tier::Near)
}

#[test]
fn a_group_fills_its_one_good_area_before_it_is_left_out() {
    let mut refill = two_groups([10, 80]);
    assert_eq!(turn_of(&mut refill, 0), Some(1), "it is too fragmented beside the other");
    let good = refill.groups[0].capacity(5) * 9 / 10;
    let Cache::All(heap) = &mut refill.groups[0].cache else { panic!("disks have a heap") };
    heap.change(5, good as i64);
    assert_eq!(turn_of(&mut refill, 0), Some(0));
    assert_eq!(turn_of(&mut refill, 1), Some(1));
    assert_eq!(turn_of(&mut refill, 0), Some(0), "the area has room left");
    refill.groups[0].filling = None;
    assert_eq!(turn_of(&mut refill, 0), Some(1), "its next area is as bad as the others");
}

#[test]
fn an_area_is_left_that_need_not_be_emptied_any_more() {
    let mut refill = two_groups([90, 60]);
    let (group, area, _) = refill.begin_emptying(1).unwrap();
    assert!(group == 0 && refill.is_emptying(group, area));
    refill.leave_areas();
    assert!(!refill.is_emptying(group, area));
    refill.set_leaving(Some(1));
    let (group, area, _) = refill.begin_leaving().unwrap();
    assert_eq!(group, 1);
    refill.leave_areas();
    assert!(refill.is_emptying(group, area), "it is to leave");
    refill.set_leaving(None);
    assert!(!refill.is_emptying(group, area), "it is to stay");
    let areas = refill.groups[1].areas.areas();
    let Cache::All(heap) = &refill.groups[1].cache else { panic!("disks have a heap") };
    assert_eq!(heap.ranked().count(), areas as usize, "all may be filled");
}

/// A group that cannot leave yet does not keep the others from having empty areas.
#[test]
fn others_are_emptied_while_a_group_waits_to_leave() {
    let mut refill = two_groups([90, 0]);
    refill.set_leaving(Some(1));
    for _ in 0..refill.groups[1].areas.areas() {
        let (group, area, _) = refill.begin_leaving().unwrap();
        assert_eq!(group, 1);
        refill.end_emptying(group, area);
    }
    assert_eq!(refill.begin_leaving(), None);
    let (group, area, _) = refill.begin_emptying(1).unwrap();
    assert_eq!(group, 0);
    refill.end_emptying(group, area);
    let (group, ..) = refill.begin_leaving().unwrap();
    assert_eq!(group, 1, "it is tried again");
}

#[test]
fn a_removed_group_has_nothing_to_give() {
    let group = |base| GroupGeometry::new(RaidKind::None, 4, 2, Pvbn(base));
    let blocks = group(0).blocks();
    let whole = Geometry::new(vec![group(0), group(blocks)]).unwrap();
    let left = whole.without(0).unwrap();
    let mut grown = left.groups().to_vec();
    grown.push(group(2 * blocks));
    let grown = Geometry::with_gaps(grown, blocks).unwrap();
    let given = |refill: &mut Refill| {
        let mut given = BTreeSet::new();
        while let Some(group) = refill.next_group(Tier::Near) {
            given.insert(group);
            refill.groups[group].filling = None;
        }
        given.into_iter().collect::<Vec<usize>>()
    };
    let mut refill = Refill::of_empty(&whole);
    refill.grow(&left);
    assert_eq!(given(&mut refill), [1]);
    let mut refill = Refill::of_empty(&whole);
    refill.grow(&left);
    refill.grow(&grown);
    assert_eq!(given(&mut refill), [1, 2]);
    assert_eq!(given(&mut Refill::of_empty(&grown)), [1, 2]);
    // What it freed before is no one's score.
    let mut noted = Vec::new();
    refill.note(&grown, &[1, 2, blocks + 1].map(Pvbn), |_, area, count| noted.push((area, count)));
    assert_eq!(noted, [(0, 1)]);
}
