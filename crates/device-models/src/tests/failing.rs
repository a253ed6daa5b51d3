//! What a disk does that fails on demand.

use super::{filled, read, try_read, wait, write};
use crate::ranges::BlockRanges;
use crate::{FailingDisk, Hang};
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use platform::{Disk, DiskError};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

fn failing() -> (SimulatedWorld, Arc<FailingDisk>) {
    let world = SimulatedWorld::new(1);
    let disk = Arc::new(FailingDisk::new(world.add_disk("bad", 100)));
    (world, disk)
}

fn bad_block<T>(result: Result<T, DiskError>) -> Option<u64> {
    match result {
        Err(DiskError::Io { block, .. }) => Some(block),
        _ => None,
    }
}

#[test]
fn unreadable_blocks_can_be_read_once_they_were_overwritten() {
    let (world, disk) = failing();
    let disk = &*disk;
    disk.failures().make_unreadable(10..20);
    assert_eq!(bad_block(try_read(&world, disk, 5, 10)), Some(10));
    assert_eq!(bad_block(try_read(&world, disk, 12, 1)), Some(12));
    assert_eq!((read(&world, disk, 5, 5).len(), read(&world, disk, 20, 5).len()), (5, 5));
    assert_eq!(write(&world, disk, 8, 4, 7), Ok(()));
    assert_eq!(read(&world, disk, 8, 4), filled(4, 7));
    assert_eq!(bad_block(try_read(&world, disk, 8, 5)), Some(12));
    disk.failures().heal();
    assert_eq!(read(&world, disk, 0, 100).len(), 100);
}

#[test]
fn a_refused_write_has_written_what_comes_before_the_bad_block() {
    let (world, disk) = failing();
    disk.failures().make_unwritable(10..11);
    assert_eq!(bad_block(write(&world, &*disk, 8, 5, 7)), Some(10));
    assert_eq!(bad_block(write(&world, &*disk, 10, 1, 7)), Some(10));
    let durable = Arc::clone(&disk);
    let result = wait(&world, |done| durable.write_durable(9, filled(3, 8), done));
    assert_eq!(result.and_then(bad_block), Some(10));
    let found = read(&world, &*disk, 8, 5);
    assert_eq!([found[0][0], found[1][0], found[2][0], found[3][0]], [7, 8, 0, 0]);
    assert_eq!(write(&world, &*disk, 11, 5, 7), Ok(()));
}

#[test]
fn refused_flushes_refuse_durable_writes() {
    let (world, disk) = failing();
    disk.failures().refuse_flushes();
    assert!(wait(&world, |done| disk.flush(done)).expect("done").is_err());
    let durable = Arc::clone(&disk);
    let result = wait(&world, |done| durable.write_durable(9, filled(1, 8), done));
    assert!(result.expect("done").is_err());
    assert_eq!(read(&world, &*disk, 9, 1)[0][0], 8);
    disk.failures().heal();
    assert_eq!(wait(&world, |done| disk.flush(done)), Some(Ok(())));
    let durable = Arc::clone(&disk);
    assert_eq!(wait(&world, |done| durable.write_durable(9, filled(1, 9), done)), Some(Ok(())));
}

#[test]
fn a_disk_that_is_gone_does_nothing() {
    let (world, disk) = failing();
    disk.failures().go();
    let gone = DiskError::Gone { disk: "bad".to_owned() };
    assert_eq!(try_read(&world, &*disk, 0, 1), Err(gone.clone()));
    assert_eq!(write(&world, &*disk, 0, 1, 7), Err(gone.clone()));
    assert_eq!(wait(&world, |done| disk.flush(done)), Some(Err(gone.clone())));
    let durable = Arc::clone(&disk);
    assert_eq!(wait(&world, |done| durable.write_durable(0, filled(1, 8), done)), Some(Err(gone)));
    disk.failures().heal();
    assert_eq!(read(&world, &*disk, 0, 1)[0][0], 0);
}

#[test]
fn what_hangs_on_the_way_there_has_no_effect_until_it_is_released() {
    let (world, disk) = failing();
    let order = Arc::new(Mutex::new(Vec::new()));
    disk.failures().hang(Hang::Requests);
    for (name, fill) in [("first", 1), ("second", 2)] {
        let order = Arc::clone(&order);
        disk.write(0, filled(1, fill), Box::new(move |_| order.lock().push(name)));
        world.run_until_idle();
    }
    assert_eq!((disk.failures().held_count(), order.lock().len()), (2, 0));
    disk.failures().release();
    assert_eq!(order.lock().len(), 0, "the inner disk has yet to do it");
    while world.complete_one(0) {}
    assert_eq!(*order.lock(), ["first", "second"]);
    assert_eq!((read(&world, &*disk, 0, 1)[0][0], disk.failures().held_count()), (2, 0));
}

#[test]
fn what_hangs_on_the_way_back_has_its_effect() {
    let (world, disk) = failing();
    assert!(
        wait::<Result<(), DiskError>>(&world, |done| {
            disk.write(0, filled(1, 1), done);
            disk.failures().hang(Hang::Completions);
        })
        .is_none()
    );
    disk.failures().make_unreadable(5..6);
    let failed = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&failed);
    disk.read(5, 1, Box::new(move |result| *seen.lock() = result.is_err()));
    world.run_until_idle();
    assert_eq!((disk.failures().held_count(), *failed.lock()), (2, false));
    disk.failures().release();
    assert!(*failed.lock());
    assert_eq!(read(&world, &*disk, 0, 1)[0][0], 1);
}

#[test]
fn what_is_dropped_is_never_answered() {
    let (world, disk) = failing();
    for hang in [Hang::Requests, Hang::Completions] {
        disk.failures().hang(hang);
        let held = Arc::new(());
        let witness = Arc::clone(&held);
        disk.flush(Box::new(move |_| panic!("answered, with {witness:?}")));
        world.run_until_idle();
        assert_eq!((disk.failures().held_count(), Arc::strong_count(&held)), (1, 2));
        disk.failures().drop_held();
        assert_eq!(Arc::strong_count(&held), 1);
        disk.failures().heal();
        disk.flush(Box::new(|_| panic!("it hangs until it is released")));
        world.run_until_idle();
        disk.failures().drop_held();
        disk.failures().release();
        assert_eq!(wait(&world, |done| disk.flush(done)), Some(Ok(())));
    }
}

#[test]
fn requests_past_the_end_are_the_inner_disks_business() {
    let (world, disk) = failing();
    disk.failures().make_unreadable(0..u64::MAX);
    disk.failures().make_unwritable(0..u64::MAX);
    for result in [
        try_read(&world, &*disk, u64::MAX, 2).map(drop),
        try_read(&world, &*disk, 99, 2).map(drop),
        write(&world, &*disk, 99, 2, 1),
        write(&world, &*disk, u64::MAX, 2, 1),
    ] {
        assert!(matches!(result, Err(DiskError::OutOfRange { .. })), "{result:?}");
    }
}

proptest! {
    #[test]
    fn ranges_are_a_set(
        changes in prop::collection::vec((any::<bool>(), 0..40_u64, 0..12_u64), 1..40),
        question in (0..50_u64, 0..12_u64),
    ) {
        let (mut ranges, mut naive) = (BlockRanges::default(), BTreeSet::new());
        for (is_in, start, count) in changes {
            let blocks = start..start + count;
            if is_in {
                ranges.insert(blocks.clone());
                naive.extend(blocks);
            } else {
                ranges.remove(blocks.clone());
                naive.retain(|block| !blocks.contains(block));
            }
            let (start, count) = question;
            for asked in [start..start + count, 0..100, 5..6] {
                let expected = naive.range(asked.clone()).next().copied();
                prop_assert_eq!(ranges.first_in(asked), expected);
            }
        }
    }
}
