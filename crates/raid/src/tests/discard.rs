//! Discarded regions: all of them goes, nothing beside, and nothing that is written later.

use super::model::*;
use crate::*;
use ondisk::label::RaidKind::{None as Bare, Raid4};
use std::collections::BTreeSet;
use units::Pvbn;

fn regions_in_use(model: &Model) -> BTreeSet<DiskRegion> {
    let geometry = model.store.geometry();
    let region = |pvbn: &Pvbn| {
        let at = geometry.locate(*pvbn).unwrap();
        DiskRegion { disk: at.disk, tetris: at.tetris() }
    };
    model.blocks.keys().map(region).collect()
}

/// Whether a region is zeros on its disk, identities included.
fn is_zero(model: &Model, region: DiskRegion) -> bool {
    let first = model.store.geometry().device_block(region.tetris, 0);
    let name = disk_name(region.tetris.group as usize, region.disk);
    (first..first + 64).all(|block| model.world.read_block(&name, block).unwrap().is_zero())
}

#[test]
fn regions_go_as_a_whole_and_no_others() {
    for seed in 0..30 {
        let mut model = Model::new(seed, &[(Raid4, 3), (Bare, 3)]);
        let geometry = model.store.geometry();
        assert_eq!(model.store.discard_unit_regions(0), None);
        assert_eq!(model.store.discard_unit_regions(1), Some(2));
        let first = geometry.group(1).bases[0].get();
        let end = geometry.end().get();
        for _ in 0..6 {
            for _ in 0..100 {
                let pvbn = Pvbn(first + model.choose((end - first).min(63 * 40)));
                if !model.blocks.contains_key(&pvbn) {
                    model.write(pvbn);
                }
            }
            model.write(Pvbn(1 + model.choose(600)));
            assert_eq!(model.sync(), Ok(()));
            let mut used = regions_in_use(&model);
            used.retain(|region| region.tetris.group == 1);
            let gone: Vec<_> = used.into_iter().filter(|_| model.choose(3) == 0).collect();
            model.blocks.retain(|pvbn, _| {
                let at = geometry.locate(*pvbn).unwrap();
                !gone.contains(&DiskRegion { disk: at.disk, tetris: at.tetris() })
            });
            model.store.discard(&gone);
            // Some of it is written again at once.
            for region in gone.iter().step_by(4) {
                let (stripe, group) = (region.tetris.stripe(0), region.tetris.group);
                let stripe = stripe.offset(model.choose(63));
                let at = Location { group, disk: region.disk, stripe };
                model.write(geometry.pvbn(at).unwrap());
            }
            model.world.run_until_idle();
            assert_eq!(model.sync(), Ok(()));
            let used = regions_in_use(&model);
            for region in gone.iter().filter(|region| !used.contains(region)) {
                assert!(is_zero(&model, *region), "{region:?}");
            }
            model.check();
        }
        model.reassemble().unwrap();
        model.check();
    }
}

#[test]
fn what_a_batch_that_waits_takes_along_stays() {
    let mut model = Model::new(3, &[(Bare, 2)]);
    let per_disk = model.store.geometry().group(0).blocks_per_disk();
    let tetris = TetrisId { group: 0, region: 0 };
    // One batch is on its way, another waits for it; then comes the discard, then a write.
    for number in [5, 6] {
        model.write(Pvbn(per_disk + number));
        model.store.start_batch_of(tetris);
    }
    model.store.discard(&[DiskRegion { disk: 0, tetris }]);
    model.write(Pvbn(7));
    assert_eq!(model.sync(), Ok(()));
    model.check();
}

#[test]
#[should_panic(expected = "a disk with parity beside it")]
fn parity_is_not_discarded() {
    let model = Model::new(4, &[(Raid4, 3)]);
    model.store.discard(&[DiskRegion { disk: 0, tetris: TetrisId { group: 0, region: 0 } }]);
}
