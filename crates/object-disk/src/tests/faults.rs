//! Requests that fail, end half way, or are never answered.

use super::rig::{Fault, Machine, Verb, flush, in_memory, limits, read, write};
use crate::limits::Limits;
use platform::DiskError;
use std::sync::Arc;
use std::time::Duration;

const SIZE_BLOCKS: u64 = 16 + 4 * 1024 + 1;
const ALWAYS: usize = usize::MAX;

#[test]
fn a_request_that_fails_once_is_tried_again() {
    for fault in [Fault::Fail, Fault::LoseAnswer, Fault::Precondition] {
        let (machine, store) = (Machine::one(), in_memory());
        let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
        for key in ["disk", "data-", "head-"] {
            store.fail(Verb::Put, key, fault, 0, 1);
        }
        write(&*disk, 0, 1, 1);
        write(&*disk, 16, 1024, 2);
        flush(&*disk).unwrap();
        store.fail(Verb::Put, "data-", fault, 0, 2);
        store.fail(Verb::Get, "data-", Fault::Fail, 1, 1);
        write(&*disk, 17, 1, 3);
        flush(&*disk).unwrap();
        store.heal();
        assert_eq!(read(&*disk, 16, 3).unwrap(), [2, 3, 2], "{fault:?}");
        assert_eq!(read(&*disk, 0, 1).unwrap(), [1]);
    }
}

#[test]
fn of_a_flush_that_fails_in_part_the_rest_stays_to_be_written() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    write(&*disk, 16, 3 * 1024, 1);
    flush(&*disk).unwrap();
    for block in [20, 1044, 2068] {
        write(&*disk, block, 2, 2);
    }
    store.fail(Verb::Put, "data-0000000000000001", Fault::Fail, 0, ALWAYS);
    let failed = flush(&*disk).unwrap_err();
    let text = "I/O error on disk s3://bucket/range at block 1040: object data-0000000000000001: \
                told to fail";
    assert_eq!(failed.to_string(), text);
    // Another opening, by the node that has it, sees what a crash would leave.
    assert_eq!(read(&*disk, 1044, 1).unwrap(), [2], "it is still in memory");
    store.heal();
    store.taken();
    flush(&*disk).unwrap();
    let taken = store.taken();
    assert!(taken.iter().all(|(_, key)| key == "data-0000000000000001"), "{taken:?}");
    drop(disk);
    let disk = machine.open(&store, None).unwrap();
    for block in [20, 1044, 2068] {
        assert_eq!(read(&*disk, block, 3).unwrap(), [2, 2, 1]);
    }
}

#[test]
fn answers_that_are_short_or_wrong_are_errors() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    write(&*disk, 16, 1024, 1);
    flush(&*disk).unwrap();
    store.fail(Verb::Get, "data-", Fault::Short, 0, 1);
    assert_eq!(read(&*disk, 16, 2).unwrap(), [1, 1], "once is made good");
    store.fail(Verb::Get, "data-", Fault::Short, 0, ALWAYS);
    let short = read(&*disk, 16, 2).unwrap_err().to_string();
    assert!(short.contains("8191 bytes instead of 8192"), "{short}");
    write(&*disk, 16, 1, 2);
    assert!(flush(&*disk).is_err(), "a merge with a short answer is none");
    store.heal();
    flush(&*disk).unwrap();
    assert_eq!(read(&*disk, 16, 2).unwrap(), [2, 1]);
    // An object that somebody cut off.
    drop(disk);
    let path = object_store::path::Path::from("range/data-0000000000000000");
    let cut = object_store::ObjectStoreExt::put(&*store.inner, &path, vec![0; 40_960].into());
    futures_util::FutureExt::now_or_never(cut).unwrap().unwrap();
    let disk = machine.open(&store, None).unwrap();
    let cut = read(&*disk, 16, 1).unwrap_err().to_string();
    assert!(cut.contains("40960 bytes instead of 4194320"), "{cut}");
    write(&*disk, 16, 1, 2);
    assert!(flush(&*disk).is_err());
}

#[test]
fn a_request_that_is_never_answered_fails() {
    let limits = Limits { request_timeout: Duration::from_millis(20), attempts_max: 2, ..limits() };
    let machine = Machine::new(1, &Arc::default(), limits);
    let store = in_memory();
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    write(&*disk, 16, 10, 1);
    store.fail(Verb::Put, "data-", Fault::Hang, 0, ALWAYS);
    let failed = flush(&*disk).unwrap_err();
    assert!(failed.to_string().contains("no answer in time"), "{failed}");
    store.heal();
    flush(&*disk).unwrap();
    store.fail(Verb::Get, "data-", Fault::Hang, 0, ALWAYS);
    assert!(matches!(read(&*disk, 16, 1), Err(DiskError::Io { block: 16, .. })));
}

#[test]
fn a_deletion_that_fails_is_asked_for_again() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    write(&*disk, 16, 1024, 1);
    flush(&*disk).unwrap();
    platform::Disk::discard(&*disk, 16, 1024);
    store.fail(Verb::Delete, "data-", Fault::Fail, 0, 2);
    flush(&*disk).unwrap();
    assert_eq!(store.taken().iter().filter(|(verb, _)| *verb == Verb::Delete).count(), 3);
    write(&*disk, 16, 1024, 2);
    flush(&*disk).unwrap();
    platform::Disk::discard(&*disk, 16, 1024);
    store.fail(Verb::Delete, "data-", Fault::Fail, 0, ALWAYS);
    assert!(flush(&*disk).is_err());
    // What is written then is put, and the object stays.
    write(&*disk, 30, 1, 3);
    store.heal();
    flush(&*disk).unwrap();
    assert_eq!(read(&*disk, 29, 3).unwrap(), [0, 3, 0]);
}
