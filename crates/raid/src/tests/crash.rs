//! Power cuts at every moment; then recovery of noted stripes; then the loss of a disk.

use super::model::*;
use crate::*;
use ondisk::label::RaidKind::Raid4;
use std::collections::BTreeMap;
use units::{BlockRef, Pvbn};

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
fn run(seed: u64, lost_before: Option<usize>) {
    let mut model = Model::new(seed, &[(Raid4, 4)]);
    if let Some(lost) = lost_before {
        write_some(&mut model, 20);
        assert_eq!(model.sync(), Ok(()));
        model.world.set_gone(&disk_name(0, lost), true);
    }
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
        model.check_with_each_disk_lost(lost_before);
    }
}

impl Model {
    /// Writes what is queued, with a cut after so many steps; then what was `committed` counts.
    fn cut_and_recover(&mut self, steps: u64, committed: BTreeMap<Pvbn, BlockRef>) {
        self.store.sync(Box::new(|_| ()));
        for _ in 0..steps {
            self.world.step();
        }
        self.world.power_cut();
        self.blocks = committed;
        self.reassemble().unwrap();
        let notes = self.notes.lock().clone();
        let recovered = wait(&self.world, |done| self.store.recover_stripes(notes, done));
        assert_eq!(recovered, Ok(()));
    }

    fn check_with_each_disk_lost(&mut self, lost_before: Option<usize>) {
        self.check();
        if lost_before.is_some() {
            return;
        }
        let image = self.world.snapshot();
        for lost in 0..4 {
            self.world.set_gone(&disk_name(0, lost), true);
            self.reassemble().unwrap();
            self.check();
            self.world.restore(&image);
        }
        self.reassemble().unwrap();
    }
}

#[test]
fn synced_blocks_survive_a_cut_and_then_a_disk() {
    (0..60).for_each(|seed| run(seed, None));
}

#[test]
fn synced_blocks_survive_a_cut_in_a_degraded_group() {
    for seed in 0..60 {
        run(seed, Some((seed % 4) as usize));
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
        model.world.set_gone(&disk_name(0, 0), true);
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
        model.world.set_gone("g0d0", true);
        model.reassemble().unwrap();
        let is_lost = |pvbn: &Pvbn| model.read(*pvbn, true).is_err();
        broken += u32::from(model.blocks.keys().any(is_lost));
    }
    assert!(broken > 0, "then the tests above prove nothing");
}
