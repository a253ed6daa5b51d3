//! PVBNs and places.

use crate::*;
use ondisk::label::RaidKind;
use proptest::prelude::*;
use units::Pvbn;

fn geometry(shapes: &[(bool, usize, u64)]) -> Geometry {
    let mut base = 0;
    let mut groups = Vec::new();
    for (is_raid4, data_disks, regions) in shapes.iter().copied() {
        let kind = if is_raid4 { RaidKind::Raid4 } else { RaidKind::None };
        let group = GroupGeometry { base: Pvbn(base), kind, data_disks, regions };
        base += group.blocks();
        groups.push(group);
    }
    Geometry::new(groups)
}

proptest! {
    #[test]
    fn places_and_numbers_agree(
        shapes in prop::collection::vec((any::<bool>(), 1_usize..5, 1_u64..4), 1..4)
    ) {
        let geometry = geometry(&shapes);
        let mut number = 0;
        for (group, shape) in geometry.groups().iter().enumerate() {
            for disk in 0..shape.data_disks {
                for stripe in 0..shape.blocks_per_disk() {
                    let location = Location { group: group as u32, disk, stripe };
                    prop_assert_eq!(geometry.pvbn(location), Some(Pvbn(number)));
                    prop_assert_eq!(geometry.locate(Pvbn(number)), Some(location));
                    let tetris = location.tetris();
                    let block = geometry.device_block(tetris, location.row());
                    prop_assert_eq!(block, shape.layout().data_block(stripe));
                    number += 1;
                }
            }
        }
        prop_assert_eq!(geometry.end(), Pvbn(number));
        prop_assert_eq!(geometry.locate(Pvbn(number)), None);
        prop_assert_eq!(geometry.locate(Pvbn(u64::MAX)), None);
        let beyond = Location { group: 0, disk: 99, stripe: 0 };
        prop_assert_eq!(geometry.pvbn(beyond), None);
    }
}
