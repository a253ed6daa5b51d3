//! Aggregates that grow: disks and groups that join beside writes, cuts at every step, and the loss
//! of disks after it.

use super::model::*;
use crate::*;
use ondisk::label::DiskLabel;
use ondisk::label::RaidKind::{self, Dp, None as Unprotected, Raid4, Tp};
use platform::Disk;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{BlockRef, Dbn, DiskUuid, Pvbn};

const KINDS: [(RaidKind, usize); 3] = [(Raid4, 3), (Dp, 4), (Tp, 5)];

/// A disk that was somebody's: it holds garbage in its first regions.
pub(super) fn new_disk(model: &Model, group: usize, disk: usize) -> NewDisk {
    let name = disk_name(group, disk);
    let known = model.world.disk(&name);
    let disk = known.unwrap_or_else(|| model.world.add_disk(&name, DISK_BLOCKS));
    for block in (16..300).filter(|_| model.choose(3) > 0) {
        model.world.write_block(&name, block, &random_block(&model.world));
    }
    let mut identity = DiskUuid([7; 16]);
    identity.0[..8].copy_from_slice(&model.choose(u64::MAX).to_le_bytes());
    NewDisk { disk, identity, profile: media::Profile::Hdd }
}

/// Writes to places that hold nothing, in the first regions of any data disk.
fn write_some(model: &mut Model, count: u64) {
    let geometry = model.store.geometry();
    write_within(model, &geometry, count);
}

/// The same to what there was.
fn write_within(model: &mut Model, geometry: &Geometry, count: u64) {
    for _ in 0..count {
        let group = model.choose(geometry.groups().len() as u64) as u32;
        let disk = model.choose(geometry.group(group).data_disks() as u64) as usize;
        let location = Location { group, disk, stripe: Dbn(1 + model.choose(63 * 3)) };
        let pvbn = geometry.pvbn(location).unwrap();
        if !model.blocks.contains_key(&pvbn) {
            model.write(pvbn);
        }
    }
}

pub(super) type Growing = Arc<Mutex<Option<Result<(), RaidError>>>>;

/// Begins to add so many disks to group 0, or a group of them.
fn begin(model: &Model, as_group: bool, kind: RaidKind, disks: Vec<NewDisk>) -> Growing {
    let answer: Growing = Arc::default();
    let told = Arc::clone(&answer);
    let done: GrowDone = Box::new(move |result| *told.lock() = Some(result));
    match as_group {
        true => model.store.add_groups(vec![NewGroup { kind, disks }], done),
        false => model.store.add_disks(0, disks, &Arc::default(), done),
    }
    answer
}

/// Checks with some sets of disks lost, as many as the group can do without.
fn check_without_any(model: &mut Model, group: usize, disks: usize, spare: usize) {
    model.check();
    let image = model.world.snapshot();
    let sets = (1_u32..1 << disks).filter(|set| set.count_ones() as usize == spare);
    let sets: Vec<u32> = sets.collect();
    for _ in 0..3 {
        let set = sets[model.choose(sets.len() as u64) as usize];
        for disk in (0..disks).filter(|disk| set >> disk & 1 == 1) {
            model.world.set_gone(&disk_name(group, disk), true);
        }
        model.reassemble().unwrap();
        model.check();
        model.world.restore(&image);
    }
    model.reassemble().unwrap();
}

#[test]
fn disks_join_beside_writes_and_nothing_moves() {
    for (seed, (kind, disks)) in (0..2).flat_map(|seed| KINDS.map(|shape| (seed, shape))) {
        let mut model = Model::with_garbage(seed, &[(kind, disks)], seed % 2 == 1);
        write_some(&mut model, 150);
        let before = model.store.geometry();
        let joining = vec![new_disk(&model, 0, disks), new_disk(&model, 0, disks + 1)];
        let growing = begin(&model, false, kind, joining);
        let again = begin(&model, false, kind, vec![new_disk(&model, 1, 0)]);
        assert_eq!(again.lock().take(), Some(Err(RaidError::Growing)));
        while growing.lock().is_none() {
            if model.choose(20) == 0 {
                write_within(&mut model, &before, 5);
                model.store.sync(Box::new(|result| assert_eq!(result, Ok(()))));
            }
            model.world.step();
        }
        assert_eq!(growing.lock().take(), Some(Ok(())));
        let after = model.store.geometry();
        assert_eq!(after.end(), before.end().offset(2 * before.group(0).blocks_per_disk()));
        for pvbn in model.blocks.keys() {
            assert_eq!(after.locate(*pvbn), before.locate(*pvbn));
        }
        for _ in 0..4 {
            write_some(&mut model, 60);
            assert_eq!(model.sync(), Ok(()));
        }
        model.world.set_gone(&disk_name(1, 0), true);
        model.check_parity();
        model.reassemble().unwrap();
        assert!(!model.store.status().is_degraded());
        assert_eq!(model.store.geometry(), after);
        check_without_any(&mut model, 0, disks + 2, kind.parity_disks());
    }
}

#[test]
fn groups_of_other_kinds_and_sizes_join() {
    for (seed, (kind, disks)) in (0..2).flat_map(|seed| KINDS.map(|shape| (seed, shape))) {
        let mut model = Model::new(seed, &[(Raid4, 3)]);
        write_some(&mut model, 50);
        let before = model.store.geometry();
        let joining = (0..disks).map(|disk| new_disk(&model, 1, disk)).collect();
        let growing = begin(&model, true, kind, joining);
        while growing.lock().is_none() {
            if model.choose(20) == 0 {
                write_within(&mut model, &before, 5);
            }
            model.world.step();
        }
        assert_eq!(growing.lock().take(), Some(Ok(())));
        let single = begin(&model, true, Unprotected, vec![new_disk(&model, 2, 0)]);
        model.world.run_until_idle();
        assert_eq!(single.lock().take(), Some(Ok(())));
        write_some(&mut model, 300);
        assert_eq!(model.sync(), Ok(()));
        model.check_parity();
        model.reassemble().unwrap();
        assert_eq!(model.store.geometry().groups().len(), 3);
        check_without_any(&mut model, 1, disks, kind.parity_disks());
    }
}

/// The labels of another group's disks said of theirs that there is diagonal parity.
#[test]
fn regression_disks_that_join_have_no_features_of_another_group() {
    let mut model = Model::new(1, &[(Dp, 4)]);
    model.reassemble().unwrap();
    let single = begin(&model, true, Unprotected, vec![new_disk(&model, 1, 0)]);
    model.world.run_until_idle();
    assert_eq!(single.lock().take(), Some(Ok(())));
    let features = |group: usize| {
        let block = model.world.read_block(&disk_name(group, 0), media::LABEL_BLOCK).unwrap();
        DiskLabel::from_block(&block).unwrap().features.to_string()
    };
    assert_eq!((features(0), features(1)), ("double-parity".to_owned(), String::new()));
}

/// Cut after so many steps of a growth: the aggregate is as before or larger, and whole.
fn cut(steps: u64, as_group: bool) -> bool {
    let mut model = Model::new(steps, &[(Dp, 4)]);
    write_some(&mut model, 60);
    assert_eq!(model.sync(), Ok(()));
    model.notes.lock().clear();
    let committed: BTreeMap<Pvbn, BlockRef> = model.blocks.clone();
    let joining = match as_group {
        true => (0..3).map(|disk| new_disk(&model, 1, disk)).collect(),
        false => vec![new_disk(&model, 0, 4), new_disk(&model, 0, 5)],
    };
    let before = model.store.geometry().end();
    let growing = begin(&model, as_group, Raid4, joining);
    (0..steps).for_each(|_| {
        model.world.step();
    });
    let was_answered = growing.lock().is_some();
    model.cut_and_recover(0, committed);
    let is_larger = model.store.geometry().end() > before;
    assert!(is_larger || !was_answered, "what was answered is kept");
    assert!(!model.store.status().is_degraded());
    model.check();
    // What failed to join joins at the second try.
    if !is_larger {
        let joining = match as_group {
            true => (0..3).map(|disk| new_disk(&model, 1, disk)).collect(),
            false => vec![new_disk(&model, 0, 4), new_disk(&model, 0, 5)],
        };
        let growing = begin(&model, as_group, Raid4, joining);
        model.world.run_until_idle();
        assert_eq!(growing.lock().take(), Some(Ok(())));
    }
    for _ in 0..3 {
        write_some(&mut model, 100);
        assert_eq!(model.sync(), Ok(()));
    }
    model.reassemble().unwrap();
    check_without_any(&mut model, 0, if as_group { 4 } else { 6 }, 2);
    was_answered
}

#[test]
fn a_cut_in_the_middle_leaves_the_smaller_or_the_larger_aggregate() {
    for as_group in [false, true] {
        let mut answered = 0;
        for steps in (0..360).step_by(7) {
            answered += u32::from(cut(steps, as_group));
        }
        assert!(answered > 0, "some cuts came after the answer");
    }
}

#[test]
fn what_cannot_join_is_refused() {
    let model = Model::new(1, &[(Unprotected, 1), (Raid4, 3)]);
    let refused = |group, disks| {
        model
            .world
            .wait(|done| model.store.add_disks(group, disks, &Arc::default(), done))
            .unwrap_err()
    };
    let disk = new_disk(&model, 3, 0);
    assert_eq!(refused(0, vec![disk.clone()]), RaidError::FixedGroup { group: 0 });
    assert_eq!(refused(2, vec![disk.clone()]), RaidError::NoSuchGroup { group: 2, count: 2 });
    let twice = refused(1, vec![disk.clone(), disk.clone()]);
    assert!(matches!(twice, RaidError::Duplicate { .. }));
    let many: Vec<_> = (0..30).map(|at| new_disk(&model, 4, at)).collect();
    assert!(matches!(refused(1, many), RaidError::DiskCount { count: 33, .. }));
    let small: Arc<dyn Disk> = model.world.add_disk("g5d0", DISK_BLOCKS - 64);
    let small = NewDisk { disk: small, identity: DiskUuid([1; 16]), profile: media::Profile::Hdd };
    assert!(matches!(refused(1, vec![small]), RaidError::Media(_)));
    let group = NewGroup { kind: Tp, disks: vec![disk] };
    let refused = model.world.wait(|done| model.store.add_groups(vec![group], done));
    assert!(matches!(refused, Err(RaidError::DiskCount { minimum: 4, .. })));
    assert_eq!(model.store.geometry().groups().len(), 2);
}
