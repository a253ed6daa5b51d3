//! The write hole: power and disks go together, in the middle of batches that write the same
//! stripes one after the other, with every set of disks that the group can do without.

use super::model::*;
use crate::*;
use ondisk::label::RaidKind::{self, Dp, Raid4, Tp};
use std::collections::{BTreeMap, BTreeSet};
use units::{BlockRef, Pvbn};

/// Two regions.
const STRIPES: u64 = 63 * 2;

impl Model {
    /// Writes to places that hold nothing, and has it go to the disks, with nothing flushed.
    fn write_batch(&mut self, count: u64) {
        let geometry = self.store.geometry();
        let per_disk = geometry.group(0).blocks_per_disk();
        let mut tetrises = BTreeSet::new();
        for _ in 0..count {
            let pvbn = Pvbn(self.choose(3) * per_disk + 1 + self.choose(STRIPES));
            if !self.blocks.contains_key(&pvbn) {
                self.write(pvbn);
                tetrises.extend(geometry.tetris_of(pvbn));
            }
        }
        tetrises.into_iter().for_each(|tetris| self.store.start_batch_of(tetris));
    }

    fn step(&self, count: u64) {
        (0..count).for_each(|_| {
            self.world.step();
        });
    }

    fn lose(&self, lost: &[usize]) {
        lost.iter().for_each(|disk| self.world.set_gone(&disk_name(0, *disk), true));
    }
}

/// All sets of so many disks.
fn sets(disks: usize, count: usize) -> impl Iterator<Item = Vec<usize>> {
    let sets = (0_u32..1 << disks).filter(move |set| set.count_ones() as usize == count);
    sets.map(move |set| (0..disks).filter(|disk| set >> disk & 1 == 1).collect())
}

/// Consistency points that end with a cut. What was synced before is readable with any disks lost
/// with the power; and when others go once it has recovered, or when recovery is cut as well.
fn run(seed: u64, (kind, disks): (RaidKind, usize), lost_before: &[usize]) {
    let mut model = Model::new(seed, &[(kind, disks)]);
    model.capacity_blocks = [1, 40, 300, u64::MAX][model.choose(4) as usize];
    model.reassemble().unwrap();
    model.write_batch(60);
    assert_eq!(model.sync(), Ok(()));
    model.lose(lost_before);
    let spare = kind.parity_disks() - lost_before.len();
    for _ in 0..3 {
        model.write_batch(10);
        assert_eq!(model.sync(), Ok(()));
        model.notes.lock().clear();
        let committed = model.blocks.clone();
        for _ in 0..1 + model.choose(4) {
            let (count, steps) = (1 + model.choose(15), model.choose(60));
            model.write_batch(count);
            model.step(steps);
        }
        model.sync_in_background();
        let steps = model.choose(200);
        model.step(steps);
        model.store.abandon();
        model.world.power_cut();
        for lost in (0..=spare).flat_map(|count| sets(disks, count)) {
            if !lost.iter().any(|disk| lost_before.contains(disk)) {
                model.recover_without(&committed, lost_before, &lost, disks);
            }
        }
        model.cut(committed, &[]);
        model.check();
    }
}

impl Model {
    /// Recovers with disks lost, one way or the other, and goes back.
    fn recover_without(
        &mut self,
        committed: &BTreeMap<Pvbn, BlockRef>,
        lost_before: &[usize],
        lost: &[usize],
        disks: usize,
    ) {
        let tolerated = self.store.geometry().group(0).kind.parity_disks();
        let image = self.world.snapshot();
        let notes = self.notes.lock().clone();
        let mut gone = [lost_before, lost].concat();
        self.lose(lost);
        if self.choose(3) == 0 {
            // Recovery is cut, and what else may go goes.
            self.reassemble().unwrap();
            self.store.recover_stripes(self.noted(), Box::new(|_| ()));
            let steps = self.choose(80);
            self.step(steps);
            let more: Vec<usize> = (0..disks).filter(|disk| !gone.contains(disk)).collect();
            gone.extend(more.into_iter().take(tolerated - gone.len()));
        }
        self.cut(committed.clone(), &gone);
        self.check();
        // What was made whole can do without as many disks as before.
        let more = (0..disks).rev().filter(|disk| !gone.contains(disk));
        let more: Vec<usize> = more.take(tolerated - gone.len()).collect();
        self.lose(&more);
        self.reassemble().unwrap();
        self.check();
        self.world.restore(&image);
        *self.notes.lock() = notes;
    }
}

#[test]
fn synced_blocks_survive_power_and_disks_that_go_together() {
    (0..40).for_each(|seed| run(seed, (Raid4, 4), &[]));
    (0..12).for_each(|seed| run(seed, (Dp, 5), &[]));
    (0..4).for_each(|seed| run(seed, (Tp, 6), &[]));
}

#[test]
fn synced_blocks_survive_power_and_disks_in_a_degraded_group() {
    for seed in 0..12 {
        let lost = (seed % 4) as usize;
        run(seed, (Dp, 5), &[lost]);
        run(seed, (Raid4, 4), &[lost]);
        run(seed, (Dp, 5), &[lost, lost + 1]);
    }
    for seed in 0..4 {
        run(seed, (Tp, 6), &[seed as usize]);
        run(seed, (Tp, 6), &[seed as usize, seed as usize + 1]);
    }
}

/// However little room there is for notes, a consistency point of many stripes gets through.
#[test]
fn batches_wait_for_room_and_none_for_ever() {
    for capacity_blocks in [1, 10, 200] {
        let mut model = Model::new(capacity_blocks, &[(Tp, 6), (Raid4, 3)]);
        model.capacity_blocks = capacity_blocks;
        model.reassemble().unwrap();
        let geometry = model.store.geometry();
        for _ in 0..3 {
            for stripe in (1..geometry.group(0).blocks_per_disk()).step_by(40) {
                for base in geometry.groups().iter().map(|group| group.bases[0]) {
                    let pvbn = base.offset(stripe + model.choose(40));
                    if !model.blocks.contains_key(&pvbn) && geometry.tetris_of(pvbn).is_some() {
                        model.write(pvbn);
                    }
                }
            }
            assert_eq!(model.sync(), Ok(()));
            let epochs: BTreeSet<u64> =
                model.notes.lock().iter().map(|(epoch, _)| *epoch).collect();
            assert_eq!(epochs.len(), 2, "{epochs:?}");
            let kept: u64 = model.notes.lock().iter().map(|(_, note)| note.blocks()).sum();
            assert!(kept <= 2 * capacity_blocks.max(10), "{kept} of {capacity_blocks}");
        }
        model.check();
        model.check_parity();
    }
}
