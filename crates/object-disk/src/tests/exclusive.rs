//! Two who want one range.

use super::rig::{
    Fault, Faulty, Machine, ManualClock, Verb, flush, in_memory, limits, read, start_flush, write,
};
use crate::limits::LIMITS_DEFAULT;
use crate::name::RangeName;
use platform::DiskError;
use std::sync::Arc;

const SIZE_BLOCKS: u64 = 16 + 4 * 1024 + 1;
const ALWAYS: usize = usize::MAX;

fn in_use() -> DiskError {
    DiskError::InUse { disk: "s3://bucket/range".to_owned() }
}

#[test]
fn a_range_has_one_owner_until_it_is_given_back() {
    let clock = Arc::new(ManualClock::default());
    let (first, second) = (Machine::new(1, &clock, limits()), Machine::new(2, &clock, limits()));
    let store = in_memory();
    let disk = first.open(&store, Some(SIZE_BLOCKS)).unwrap();
    assert_eq!(first.open(&store, None).err(), Some(in_use()), "twice in a process");
    assert_eq!(second.open(&store, Some(SIZE_BLOCKS)).err(), Some(in_use()));
    write(&*disk, 16, 1, 1);
    flush(&*disk).unwrap();
    drop(disk);
    // Opening waits for the disk to be closed and the lease to be given back.
    drop(first.open(&store, None).unwrap());
    drop(first.open(&store, None).unwrap());
}

#[test]
fn an_expired_lease_is_taken_over_and_its_holder_is_told() {
    let clock = Arc::new(ManualClock::default());
    let (first, second) = (Machine::new(1, &clock, limits()), Machine::new(2, &clock, limits()));
    let store = in_memory();
    let old = first.open(&store, Some(SIZE_BLOCKS)).unwrap();
    write(&*old, 16, 1024, 1);
    flush(&*old).unwrap();
    let lease_seconds = LIMITS_DEFAULT.lease_nanoseconds / 1_000_000_000;
    clock.advance(lease_seconds + 9);
    assert_eq!(second.open(&store, None).err(), Some(in_use()), "clocks may differ by this");
    clock.advance(2);
    let new = second.open(&store, None).unwrap();
    write(&*new, 17, 1, 2);
    flush(&*new).unwrap();
    write(&*old, 18, 1, 3);
    let gone = DiskError::Gone { disk: "s3://bucket/range".to_owned() };
    assert_eq!(flush(&*old), Err(gone.clone()));
    assert_eq!(flush(&*old), Err(gone), "for good");
    assert_eq!(read(&*new, 16, 3).unwrap(), [1, 2, 1]);
}

#[test]
fn a_lease_that_nobody_took_is_renewed_late() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    for fault in [Fault::Fail, Fault::LoseAnswer] {
        machine.clock.advance(1000);
        write(&*disk, 16, 1, 1);
        store.fail(Verb::Put, "lease", fault, 0, 1);
        flush(&*disk).unwrap();
    }
    machine.clock.advance(1000);
    write(&*disk, 16, 1, 2);
    store.fail(Verb::Put, "lease", Fault::Fail, 0, ALWAYS);
    assert!(matches!(flush(&*disk), Err(DiskError::Io { .. })), "nothing is put without it");
    store.heal();
    flush(&*disk).unwrap();
}

#[test]
fn a_node_takes_back_its_own_lease_and_late_puts_of_its_dead_process_replace_nothing() {
    for late_comes_first in [false, true] {
        let clock = Arc::new(ManualClock::default());
        let (dead, new) = (Machine::new(1, &clock, limits()), Machine::new(1, &clock, limits()));
        let old_way = in_memory();
        let new_way = Faulty::new(Arc::clone(&old_way.inner));
        let old = dead.open(&old_way, Some(SIZE_BLOCKS)).unwrap();
        write(&*old, 16, 1024, 1);
        flush(&*old).unwrap();
        old_way.arrival();
        // Its put is on the way when it dies.
        write(&*old, 20, 1, 2);
        old_way.hold();
        let late = start_flush(&*old);
        old_way.arrival();
        let disk = new.open(&new_way, None).unwrap();
        write(&*disk, 30, 1, 3);
        if late_comes_first {
            // The new one has read the object and is about to put it.
            new_way.hold();
            let flushing = start_flush(&*disk);
            new_way.arrival();
            old_way.let_go(1);
            late.wait().unwrap();
            new_way.let_go(100);
            flushing.wait().unwrap();
            assert_eq!(read(&*disk, 20, 1).unwrap(), [2], "it was put before");
        } else {
            flush(&*disk).unwrap();
            old_way.let_go(1);
            assert!(matches!(late.wait(), Err(DiskError::Gone { .. })));
            assert_eq!(read(&*disk, 20, 1).unwrap(), [1]);
        }
        assert_eq!(read(&*disk, 30, 1).unwrap(), [3], "late first: {late_comes_first}");
        write(&*old, 40, 1, 9);
        old_way.let_go(100);
        if !late_comes_first {
            assert!(matches!(flush(&*old), Err(DiskError::Gone { .. })));
        }
        write(&*disk, 31, 1, 4);
        flush(&*disk).unwrap();
        assert_eq!(read(&*disk, 30, 2).unwrap(), [3, 4]);
    }
}

#[test]
fn a_superblock_of_a_dead_process_that_arrives_late_is_shut_out() {
    let clock = Arc::new(ManualClock::default());
    let (dead, new) = (Machine::new(1, &clock, limits()), Machine::new(1, &clock, limits()));
    let old_way = in_memory();
    let new_way = Faulty::new(Arc::clone(&old_way.inner));
    let old = dead.open(&old_way, Some(SIZE_BLOCKS)).unwrap();
    write(&*old, 8, 1, 1);
    flush(&*old).unwrap();
    // One slot that was written before and one that was not; both puts are on the way.
    old_way.hold_heads();
    write(&*old, 8, 2, 2);
    let late = start_flush(&*old);
    assert_eq!(old_way.arrival()[..5], *"head-");
    assert_eq!(old_way.arrival()[..5], *"head-");
    let disk = new.open(&new_way, None).unwrap();
    assert_eq!(read(&*disk, 8, 2).unwrap(), [1, 0]);
    old_way.let_go(100);
    assert!(late.wait().is_err());
    assert_eq!(read(&*disk, 8, 2).unwrap(), [1, 0]);
    // After a clean end nothing is marked.
    drop(disk);
    let disk = new.open(&new_way, None).unwrap();
    new_way.taken();
    drop(disk);
    drop(new.open(&new_way, None).unwrap());
    assert_eq!(new_way.taken(), []);
}

#[test]
fn of_two_that_make_a_range_at_once_one_remains() {
    let clock = Arc::new(ManualClock::default());
    let (first, second) = (Machine::new(1, &clock, limits()), Machine::new(2, &clock, limits()));
    let store = in_memory();
    // Both believe that they may: the first was away for longer than its lease.
    let loser = first.open(&store, Some(SIZE_BLOCKS)).unwrap();
    clock.advance(1000);
    let winner = second.open(&store, Some(SIZE_BLOCKS + 64)).unwrap();
    write(&*winner, 0, 1, 1);
    flush(&*winner).unwrap();
    write(&*loser, 0, 1, 2);
    assert!(matches!(flush(&*loser), Err(DiskError::Gone { .. })));
    drop(winner);
    let disk = second.open(&store, None).unwrap();
    assert_eq!((disk.size_blocks(), read(&*disk, 0, 1).unwrap()), (SIZE_BLOCKS + 64, vec![1]));
}

#[test]
fn looking_at_a_range_makes_none_and_what_holds_something_else_is_not_taken() {
    let (machine, store) = (Machine::one(), in_memory());
    let refused = machine.open(&store, None).err().unwrap().to_string();
    assert!(refused.contains("no object range") && refused.contains("?size="), "{refused}");
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    assert_eq!(read(&*disk, 0, 1).unwrap(), [0]);
    flush(&*disk).unwrap();
    drop(disk);
    assert!(machine.open(&store, None).is_err(), "nothing was written");
    let path = object_store::path::Path::from("range/photo.jpg");
    let put = object_store::ObjectStoreExt::put(&*store.inner, &path, vec![0; 10].into());
    futures_util::FutureExt::now_or_never(put).unwrap().unwrap();
    let refused = machine.open(&store, Some(SIZE_BLOCKS)).err().unwrap().to_string();
    assert!(refused.contains("something else, such as photo.jpg"), "{refused}");
}

#[test]
fn a_range_in_a_directory_is_opened_by_name_and_locked() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("range").display().to_string();
    let name = |size: &str| RangeName::parse(&format!("object:{path}{size}")).unwrap();
    let (first, second) = (Machine::one(), Machine::one());
    let refused = first.opener.open_range(&name("")).err().unwrap().to_string();
    assert!(refused.contains("no object range"), "{refused}");
    assert!(!place.path().join("range").exists());
    let disk = first.opener.open_range(&name("?size=20M")).unwrap();
    assert_eq!((disk.name(), disk.size_blocks()), (format!("object:{path}").as_str(), 5120));
    let busy = Some(DiskError::InUse { disk: format!("object:{path}") });
    assert_eq!(second.opener.open_range(&name("")).err().map(|_| ()), Some(()));
    assert_eq!(second.opener.open_range(&name("?size=20M")).err(), busy);
    write(&*disk, 16, 1024, 1);
    write(&*disk, 0, 1, 2);
    flush(&*disk).unwrap();
    write(&*disk, 16, 1024, 9);
    drop(disk);
    let disk = first.opener.open_range(&name("?size=30M")).unwrap();
    assert_eq!(disk.size_blocks(), 5120, "it keeps its size");
    assert_eq!(read(&*disk, 0, 1).unwrap(), [2]);
    let keys = ["disk", "head-00", "data-0000000000000000", "lock"];
    assert!(keys.iter().all(|key| place.path().join("range").join(key).exists()));
    platform::Disk::discard(&*disk, 16, 1024);
    flush(&*disk).unwrap();
    assert!(!place.path().join("range/data-0000000000000000").exists());
}
