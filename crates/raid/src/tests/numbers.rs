//! Numbers of disks, which labels keep.

use super::model::*;
use super::rebuild::write_some;
use crate::*;
use ondisk::label::RaidKind::Raid4;
use platform::Disk;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::DiskUuid;

const DISKS: usize = 4;
const SPARE: DiskUuid = DiskUuid([77; 16]);
const NEW: DiskUuid = DiskUuid([78; 16]);

fn identities(model: &Model) -> Vec<DiskUuid> {
    model.store.status().groups[0].members.iter().map(|member| member.identity).collect()
}

fn number(model: &Model, numbers: &BTreeMap<DiskUuid, u32>) {
    model.world.wait(|done| model.store.number_disks(numbers, done)).unwrap();
    assert_eq!(model.store.status().numbers, *numbers);
}

/// Until no disk is filled any more.
fn fill(model: &mut Model) {
    while !model.store.status().fillings.is_empty() {
        model.world.run_until_idle();
        model.commit();
    }
    assert!(!model.store.status().is_degraded());
}

#[test]
fn numbers_stay_with_their_disks() {
    let mut model = Model::new(1, &[(Raid4, DISKS)]);
    write_some(&mut model, 100);
    model.commit();
    let spare: Arc<dyn Disk> = model.world.add_disk("gspare", DISK_BLOCKS);
    model.world.wait(|done| model.store.add_spare(spare, SPARE, done)).unwrap();
    assert!(model.store.status().numbers.is_empty());
    let mut numbers: BTreeMap<DiskUuid, u32> = identities(&model).into_iter().zip(5..).collect();
    numbers.insert(SPARE, 2);
    number(&model, &numbers);
    model.reassemble().unwrap();
    assert_eq!(model.store.status().numbers, numbers);
    // Another disk takes a place: its label was made from those of others.
    let (place, old) = (DiskPlace { group: 0, member: 2 }, identities(&model)[2]);
    let new: Arc<dyn Disk> = model.world.add_disk("gnew", DISK_BLOCKS);
    model.world.wait(|done| model.store.replace_disk(place, new, NEW, None, done)).unwrap();
    numbers.insert(NEW, 9);
    number(&model, &numbers);
    fill(&mut model);
    numbers.remove(&old);
    assert_eq!(model.store.status().numbers, numbers);
    model.reassemble().unwrap();
    assert_eq!(model.store.status().numbers, numbers);
    // A spare keeps its number in a place.
    let place = DiskPlace { group: 0, member: 1 };
    model.world.set_gone(&disk_name(0, 1), true);
    numbers.remove(&identities(&model)[1]);
    model.reassemble().unwrap();
    model.world.wait(|done| model.store.take_spare(place, SPARE, None, done)).unwrap();
    fill(&mut model);
    number(&model, &numbers);
    model.reassemble().unwrap();
    assert_eq!(model.store.status().numbers, numbers);
    model.check();
}
