//! PVBNs and places.

use crate::*;
use ondisk::label::RaidKind;
use proptest::prelude::*;
use units::{Dbn, Pvbn};

/// Groups of so many data disks and regions, and after all of them so many disks more for each.
fn geometry(shapes: &[(usize, u64, usize)]) -> Geometry {
    let mut base = Pvbn(0);
    let mut groups = Vec::new();
    for (data_disks, regions, _) in shapes {
        let group = GroupGeometry::new(RaidKind::Raid4, *regions, *data_disks, base);
        base = base.offset(group.blocks());
        groups.push(group);
    }
    for (group, (_, _, joining)) in groups.iter_mut().zip(shapes) {
        group.extend(*joining, base);
        base = base.offset(group.blocks_per_disk() * *joining as u64);
    }
    Geometry::new(groups).unwrap()
}

#[test]
fn gaps_and_overlaps_are_refused() {
    let group = |base| GroupGeometry::new(RaidKind::Dp, 2, 3, Pvbn(base));
    assert!(Geometry::new(Vec::new()).is_none());
    assert!(Geometry::new(vec![group(0), group(3 * 126)]).is_some());
    assert!(Geometry::new(vec![group(3 * 126), group(0)]).is_some(), "in any order");
    for base in [3 * 126 - 1, 3 * 126 + 1, 0] {
        assert!(Geometry::new(vec![group(0), group(base)]).is_none(), "{base}");
    }
    assert!(Geometry::new(vec![group(1)]).is_none());
}

#[test]
fn gaps_are_as_large_as_what_was_removed() {
    let group = |base| GroupGeometry::new(RaidKind::Dp, 2, 3, Pvbn(base));
    let removed = GroupGeometry::removed;
    let blocks = group(0).blocks();
    assert!(Geometry::with_gaps(vec![removed(), group(blocks)], blocks).is_some());
    let last = Geometry::with_gaps(vec![group(0), removed()], blocks).unwrap();
    assert_eq!((last.end(), last.removed_blocks()), (Pvbn(2 * blocks), blocks));
    assert!(Geometry::with_gaps(vec![removed(), group(blocks + 1)], blocks).is_none());
    assert!(Geometry::with_gaps(vec![group(0), group(1), removed()], blocks).is_none(), "overlap");
    assert!(Geometry::with_gaps(vec![group(0), removed()], 0).is_none());
    assert!(Geometry::with_gaps(vec![group(0)], blocks).is_none());
    assert!(Geometry::with_gaps(vec![removed()], blocks).is_none(), "nothing is left");
    assert_eq!(Geometry::new(vec![group(0)]).unwrap().without(0), None);
}

proptest! {
    #[test]
    fn places_and_numbers_agree(
        shapes in prop::collection::vec((1_usize..5, 1_u64..4, 0_usize..3), 1..4)
    ) {
        let geometry = geometry(&shapes);
        let mut seen = std::collections::BTreeSet::new();
        for (group, shape) in geometry.groups().iter().enumerate() {
            for disk in 0..shape.data_disks() {
                for stripe in 0..shape.blocks_per_disk() {
                    let location = Location { group: group as u32, disk, stripe: Dbn(stripe) };
                    let pvbn = geometry.pvbn(location).unwrap();
                    prop_assert!(seen.insert(pvbn), "{} twice", pvbn);
                    prop_assert_eq!(geometry.locate(pvbn), Some(location));
                    let block = geometry.device_block(location.tetris(), location.row());
                    prop_assert_eq!(block, shape.layout().data_block(Dbn(stripe)));
                }
            }
        }
        let number = seen.len() as u64;
        prop_assert_eq!(geometry.end(), Pvbn(number));
        prop_assert_eq!(geometry.locate(Pvbn(number)), None);
        prop_assert_eq!(geometry.locate(Pvbn(u64::MAX)), None);
        let beyond = Location { group: 0, disk: 99, stripe: Dbn(0) };
        prop_assert_eq!(geometry.pvbn(beyond), None);
    }

    #[test]
    fn numbers_of_removed_groups_are_nobodys_and_the_others_stay(
        shapes in prop::collection::vec((1_usize..4, 1_u64..3, 0_usize..3), 2..5),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
    ) {
        let whole = geometry(&shapes);
        let mut geometry = whole.clone();
        for index in removed {
            let group = index.index(shapes.len()) as u32;
            if !geometry.group(group).is_removed() && let Some(next) = geometry.without(group) {
                geometry = next;
            }
        }
        prop_assert_eq!(geometry.end(), whole.end());
        let mut nobodys = 0;
        for number in 0..whole.end().get() {
            let before = whole.locate(Pvbn(number)).unwrap();
            let is_removed = geometry.group(before.group).is_removed();
            nobodys += u64::from(is_removed);
            prop_assert_eq!(geometry.locate(Pvbn(number)), Some(before).filter(|_| !is_removed));
            prop_assert_eq!(geometry.pvbn(before).is_some(), !is_removed);
        }
        prop_assert_eq!(geometry.removed_blocks(), nobodys);
        let again = Geometry::with_gaps(geometry.groups().to_vec(), nobodys);
        prop_assert_eq!(again, Some(geometry));
    }
}
