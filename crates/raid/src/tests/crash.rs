//! Power cuts at every moment; then recovery of noted stripes; then the loss of a disk.

use super::model::*;
use crate::*;
use ondisk::label::RaidKind::{self, Dp, Raid4, Tp};
use units::Pvbn;

const STRIPES: u64 = 63 * 2;

/// Writes to places that hold nothing, as a consistency point does.
fn write_some(model: &mut Model, count: u64) {
    let per_disk = model.store.geometry().group(0).blocks_per_disk();
    for _ in 0..count {
        let pvbn = Pvbn(model.choose(3) * per_disk + 1 + model.choose(STRIPES));
        if !model.blocks.contains_key(&pvbn) {
            model.write(pvbn);
        }
    }
}

/// Consistency points with a cut in the middle of each, until `rounds` are over. What was synced
/// before a cut must be readable after it, whichever disk is lost then.
fn run(seed: u64, (kind, disks): (RaidKind, usize), lost_before: &[usize]) {
    let mut model = Model::new(seed, &[(kind, disks)]);
    for lost in lost_before {
        write_some(&mut model, 20);
        assert_eq!(model.sync(), Ok(()));
        model.world.set_gone(&disk_name(0, *lost), true);
    }
    let spare = kind.parity_disks() - lost_before.len();
    for _ in 0..5 {
        let count = 1 + model.choose(40);
        write_some(&mut model, count);
        assert_eq!(model.sync(), Ok(()));
        model.notes.lock().clear();
        let committed = model.blocks.clone();
        let count = 1 + model.choose(40);
        write_some(&mut model, count);
        let steps = model.choose(250);
        model.cut_and_recover(steps, committed);
        model.check_with_disks_lost(disks, lost_before, spare);
    }
}

impl Model {
    /// With as many more disks lost as the group can do without, any of them.
    fn check_with_disks_lost(&mut self, disks: usize, lost_before: &[usize], spare: usize) {
        self.check();
        let image = self.world.snapshot();
        let sets = (1_u32..1 << disks).filter(|set| set.count_ones() as usize == spare);
        for set in sets {
            let lost: Vec<usize> = (0..disks).filter(|disk| set >> disk & 1 == 1).collect();
            if lost.iter().any(|disk| lost_before.contains(disk)) {
                continue;
            }
            lost.iter().for_each(|disk| self.world.set_gone(&disk_name(0, *disk), true));
            self.reassemble().unwrap();
            self.check();
            self.world.restore(&image);
        }
        self.reassemble().unwrap();
    }
}

#[test]
fn synced_blocks_survive_a_cut_and_then_disks() {
    (0..60).for_each(|seed| run(seed, (Raid4, 4), &[]));
    (0..20).for_each(|seed| run(seed, (Dp, 5), &[]));
    (0..8).for_each(|seed| run(seed, (Tp, 6), &[]));
}

#[test]
fn synced_blocks_survive_a_cut_in_a_degraded_group() {
    for seed in 0..60 {
        let lost = (seed % 4) as usize;
        run(seed, (Raid4, 4), &[lost]);
        run(seed, (Dp, 5), &[lost, lost + 1]);
    }
    for seed in 0..20 {
        let lost = (seed % 5) as usize;
        run(seed, (Dp, 5), &[lost]);
        run(seed, (Tp, 6), &[lost, lost + 1]);
        run(seed, (Tp, 6), &[lost % 4, lost % 4 + 1, lost % 4 + 2]);
    }
}

/// A disk goes, its stripes are noted as those of a disk that is there, and the power is cut: what
/// it held in rows that nobody else was writing was forgotten.
#[test]
fn regression_a_disk_lost_between_note_and_cut_keeps_its_blocks() {
    for steps in 0..40 {
        let mut model = Model::new(steps, &[(Raid4, 4)]);
        (1..20).for_each(|row| model.write(Pvbn(row)));
        write_some(&mut model, 20);
        assert_eq!(model.sync(), Ok(()));
        model.notes.lock().clear();
        let committed = model.blocks.clone();
        model.world.set_gone(&disk_name(0, 1), true);
        let free = (20..63).map(Pvbn).filter(|pvbn| !committed.contains_key(pvbn));
        free.take(5).for_each(|pvbn| model.write(pvbn));
        model.cut_and_recover(steps, committed);
        model.check();
    }
}

/// The journal is what it takes: without recovery the same cuts leave stripes that cannot make a
/// lost disk good.
#[test]
fn without_recovery_the_write_hole_is_open() {
    let mut broken = 0;
    for seed in 0..60 {
        let mut model = Model::new(seed, &[(Raid4, 4)]);
        write_some(&mut model, 60);
        assert_eq!(model.sync(), Ok(()));
        let committed = model.blocks.clone();
        write_some(&mut model, 40);
        model.store.sync(Box::new(|_| ()));
        for _ in 0..model.choose(250) {
            model.world.step();
        }
        model.world.power_cut();
        model.blocks = committed;
        model.world.set_gone("g0d1", true);
        model.reassemble().unwrap();
        let is_lost = |pvbn: &Pvbn| model.read(*pvbn, true).is_err();
        broken += u32::from(model.blocks.keys().any(is_lost));
    }
    assert!(broken > 0, "then the tests above prove nothing");
}

/// Two disks of a group that can do without one go while a batch reads, and are back when it
/// writes: what could not be read is not overwritten by what was made up for it.
#[test]
fn regression_nothing_is_written_over_blocks_that_could_not_be_read() {
    for steps in 0..60 {
        let mut model = Model::new(steps, &[(Raid4, 4)]);
        let bases = model.store.geometry().group(0).bases.clone();
        (1..6).for_each(|row| model.write(bases[0].offset(row)));
        (1..6).for_each(|row| model.write(bases[1].offset(row)));
        assert_eq!(model.sync(), Ok(()));
        model.notes.lock().clear();
        model.reassemble().unwrap();
        let committed = model.blocks.clone();
        model.write(bases[2].offset(3));
        model.store.sync(Box::new(|_| ()));
        let set_gone = |is_gone| {
            [1, 2].iter().for_each(|disk| model.world.set_gone(&disk_name(0, *disk), is_gone));
        };
        set_gone(true);
        for _ in 0..steps {
            model.world.step();
        }
        set_gone(false);
        model.cut_and_recover(1000, committed);
        model.check();
    }
}

/// Two disks of a group that can do without one go in the middle of a batch, one a little before
/// the other, and both are there at the start, the first marked missing: what it holds of stripes
/// that were being written in part follows from partial parity.
#[test]
fn one_disk_too_many_that_comes_back_leaves_nothing_lost() {
    for seed in 0..150 {
        let mut model = Model::new(seed, &[(Raid4, 4)]);
        write_some(&mut model, 60);
        assert_eq!(model.sync(), Ok(()));
        model.notes.lock().clear();
        let committed = model.blocks.clone();
        write_some(&mut model, 20);
        let world = model.world.clone();
        let (first, second) = (model.choose(6), model.choose(30));
        model.store.sync(Box::new(|_| ()));
        (0..first).for_each(|_| {
            let _ = world.step();
        });
        [1, 2].iter().for_each(|disk| world.set_gone(&disk_name(0, *disk), true));
        (0..second).for_each(|_| {
            let _ = world.step();
        });
        [1, 2].iter().for_each(|disk| world.set_gone(&disk_name(0, *disk), false));
        model.cut_and_recover(1000, committed);
        model.check();
    }
}
