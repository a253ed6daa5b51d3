//! Read-modify-write: what is wrong on the disks does not get into parity, power and disks may go
//! at any moment.

use super::model::*;
use crate::*;
use ondisk::label::RaidKind::{self, Dp, Raid4, Tp};
use units::Pvbn;

/// Rows that are full at first.
const ROWS: u64 = 50;
const WIDE: [(RaidKind, usize); 3] = [(Raid4, 7), (Dp, 10), (Tp, 13)];

impl Model {
    /// A wide group whose first rows are full.
    fn filled(seed: u64, kind: (RaidKind, usize)) -> Self {
        let mut model = Self::new(seed, &[kind]);
        for pvbn in model.places() {
            model.write(pvbn);
        }
        assert_eq!(model.sync(), Ok(()));
        model.notes.lock().clear();
        model
    }

    fn places(&self) -> Vec<Pvbn> {
        let bases = self.store.geometry().group(0).bases.clone();
        bases.iter().flat_map(|base| (1..ROWS).map(|row| base.offset(row))).collect()
    }

    /// Frees some blocks.
    fn free_some(&mut self, count: u64) -> Vec<Pvbn> {
        let places = self.places();
        let chosen = (0..count).map(|_| places[self.choose(places.len() as u64) as usize]);
        let freed: Vec<Pvbn> = chosen.collect();
        freed.iter().for_each(|pvbn| {
            self.blocks.remove(pvbn);
        });
        freed
    }

    /// Has as many disks as it can do without go, one set or another, and reads everything.
    fn check_without_disks(&mut self) {
        let group = self.store.geometry().group(0).clone();
        let image = self.world.snapshot();
        for _ in 0..4 {
            for _ in 0..group.kind.parity_disks() {
                let lost = self.choose(group.disks() as u64) as usize;
                self.world.set_gone(&disk_name(0, lost), true);
            }
            self.reassemble().unwrap();
            self.check();
            self.world.restore(&image);
        }
        self.reassemble().unwrap();
    }

    fn modified_stripes(&self) -> u64 {
        self.store.status().counters.modified_stripes
    }
}

#[test]
fn parity_is_right_whichever_way_a_stripe_is_written() {
    for (seed, kind) in (0..12).flat_map(|seed| WIDE.map(|kind| (seed, kind))) {
        let mut model = Model::filled(seed, kind);
        for _ in 0..4 {
            let freed = model.free_some(1 + seed * 6);
            // Some in one batch, some in the next.
            let (first, rest) = freed.split_at(freed.len() / 2);
            first.iter().for_each(|pvbn| model.write(*pvbn));
            assert_eq!(model.sync(), Ok(()));
            rest.iter().for_each(|pvbn| model.write(*pvbn));
            assert_eq!(model.sync(), Ok(()));
            model.check_parity();
        }
        let counters = model.store.status().counters;
        // Only row parity can be proved.
        assert_eq!(counters.modified_stripes > 0, kind.0 == Raid4, "{kind:?} {counters:?}");
        model.check_without_disks();
    }
}

/// A parity block has rotted, is old, or a block that is overwritten is: all that is left is read,
/// and parity is right.
#[test]
fn old_parity_that_is_wrong_is_not_used() {
    for (seed, kind) in (0..8).flat_map(|seed| WIDE.map(|kind| (seed, kind))) {
        let mut model = Model::filled(seed, kind);
        let before = model.modified_stripes();
        let pvbn = model.places()[model.choose(200) as usize];
        let (data_disk, block) = model.place(pvbn);
        let parity = model.choose(kind.0.parity_disks() as u64) as usize;
        let wrong = if seed % 2 == 0 { disk_name(0, parity) } else { data_disk };
        if seed % 4 < 2 {
            model.world.flip_bit(&wrong, block, 7);
        } else {
            model.world.fail_block(&wrong, block);
        }
        model.write(pvbn);
        assert_eq!(model.sync(), Ok(()));
        model.check_parity();
        model.check_without_disks();
        if seed % 2 == 0 {
            assert_eq!(model.modified_stripes(), before, "{kind:?}");
        }
    }
}

#[test]
fn power_and_disks_may_go_in_the_middle() {
    for (seed, kind) in (0..25).flat_map(|seed| WIDE.map(|kind| (seed, kind))) {
        let mut model = Model::filled(seed, kind);
        for _ in 0..3 {
            let freed = model.free_some(12);
            let committed = model.blocks.clone();
            for (number, pvbn) in freed.into_iter().enumerate() {
                model.write(pvbn);
                if number % 4 == 3 {
                    model.sync_in_background();
                    let steps = model.choose(120);
                    (0..steps).for_each(|_| {
                        model.world.step();
                    });
                }
            }
            let lost: Vec<usize> =
                (0..kind.0.parity_disks()).map(|_| model.choose(kind.1 as u64) as usize).collect();
            let image = model.world.snapshot();
            let notes = model.notes.lock().clone();
            model.cut(committed.clone(), &lost);
            model.check();
            model.world.restore(&image);
            *model.notes.lock() = notes;
            model.cut(committed, &[]);
            model.check();
            model.notes.lock().clear();
        }
    }
}
