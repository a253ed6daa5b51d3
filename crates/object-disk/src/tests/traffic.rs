//! Which requests are made: how many, of what, and when.

use super::rig::{
    Machine, Verb, flush, in_memory, limits, numbered, read, start_flush, start_write, write,
};
use crate::limits::Limits;
use platform::DiskError;
use std::sync::Arc;

const SIZE_BLOCKS: u64 = 16 + 4 * 1024 + 1;

fn puts(taken: &[(Verb, String)]) -> Vec<&str> {
    let puts = taken.iter().filter(|(verb, _)| *verb == Verb::Put);
    puts.map(|(_, key)| key.as_str()).collect()
}

#[test]
fn labels_are_small_objects_and_whole_objects_are_not_read_first() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    assert_eq!(store.taken(), []);
    write(&*disk, 0, 1, 1);
    write(&*disk, SIZE_BLOCKS - 1, 1, 2);
    flush(&*disk).unwrap();
    let taken = store.taken();
    let mut put = puts(&taken);
    put.sort_unstable();
    assert_eq!(put, ["head-00", "tail"]);
    // Whole: put at once, without being read, and without a flush.
    write(&*disk, 16, 1024, 3);
    assert_eq!(store.arrival(), "data-0000000000000000");
    flush(&*disk).unwrap();
    assert_eq!(store.taken(), [(Verb::Put, "data-0000000000000000".to_owned())]);
    // In part: read, merged, put whole.
    write(&*disk, 20, 2, 4);
    flush(&*disk).unwrap();
    let key = "data-0000000000000000".to_owned();
    assert_eq!(store.taken(), [(Verb::Get, key.clone()), (Verb::Put, key.clone())]);
    assert_eq!(read(&*disk, 18, 5).unwrap(), [3, 3, 4, 4, 3]);
    assert_eq!(store.taken(), [(Verb::Get, key)], "neighbours are one request");
    assert_eq!(read(&*disk, 2000, 2).unwrap(), [0, 0], "what is not there is zeros");
}

#[test]
fn a_read_sees_what_is_in_memory_and_fetches_the_rest() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    write(&*disk, 1030, 20, 1);
    flush(&*disk).unwrap();
    write(&*disk, 1035, 2, 2);
    store.taken();
    let expected = [1, 1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    assert_eq!(read(&*disk, 1030, 20).unwrap(), expected);
    // Two objects, and a gap of two blocks in the first.
    assert_eq!(store.taken().len(), 3);
    write(&*disk, 1030, 20, 3);
    assert_eq!(read(&*disk, 1030, 20).unwrap(), [3; 20]);
    assert_eq!(store.taken(), []);
}

#[test]
fn what_is_written_during_an_upload_goes_with_the_next() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    write(&*disk, 16, 2, 1);
    store.hold();
    let first = start_flush(&*disk);
    store.arrival();
    write(&*disk, 17, 2, 2);
    assert_eq!(read(&*disk, 16, 3).unwrap(), [1, 2, 2]);
    let second = start_flush(&*disk);
    store.let_go(1);
    first.wait().unwrap();
    assert_eq!(store.arrival(), "data-0000000000000000");
    assert!(second.is_open(), "its block is in the second upload");
    store.let_go(1);
    second.wait().unwrap();
    drop(disk);
    let disk = machine.open(&store, None).unwrap();
    assert_eq!(read(&*disk, 16, 3).unwrap(), [1, 2, 2]);
}

#[test]
fn writers_wait_when_memory_is_full() {
    let limits = Limits { dirty_bytes_max: 100 * 4096, ..limits() };
    let machine = Machine::new(1, &Arc::default(), limits);
    let store = in_memory();
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    store.hold();
    write(&*disk, 16, 80, 1);
    let waiting = start_write(&*disk, 3000, vec![numbered(2); 30]);
    assert_eq!(store.arrival(), "data-0000000000000000", "room is made without a flush");
    assert!(waiting.is_open());
    store.let_go(1);
    waiting.wait().unwrap();
    store.let_go(1);
    flush(&*disk).unwrap();
    assert_eq!(read(&*disk, 3000, 1).unwrap(), [2]);
}

#[test]
fn a_discarded_object_is_deleted_and_parts_of_one_become_zeros() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    write(&*disk, 16, 2048, 1);
    flush(&*disk).unwrap();
    store.taken();
    disk.discard(16, 1024 + 10);
    assert_eq!(read(&*disk, 16, 1).unwrap(), [0]);
    flush(&*disk).unwrap();
    assert_eq!(store.taken(), [(Verb::Delete, "data-0000000000000000".to_owned())]);
    // The second object lost ten blocks; they go when it is put the next time.
    write(&*disk, 2000, 1, 2);
    flush(&*disk).unwrap();
    drop(disk);
    let disk = machine.open(&store, None).unwrap();
    assert_eq!(read(&*disk, 1040, 11).unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(read(&*disk, 16, 2).unwrap(), [0, 0]);
    // Past the end is nothing; written again, it is there.
    disk.discard(SIZE_BLOCKS, 5);
    write(&*disk, 16, 1, 7);
    flush(&*disk).unwrap();
    assert_eq!(read(&*disk, 16, 2).unwrap(), [7, 0]);
}

#[test]
fn past_the_end_is_an_error() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    let refused = read(&*disk, SIZE_BLOCKS - 1, 2).unwrap_err();
    assert!(matches!(refused, DiskError::OutOfRange { size_blocks: SIZE_BLOCKS, .. }), "{refused}");
    let refused = start_write(&*disk, SIZE_BLOCKS, vec![numbered(1)]).wait();
    assert!(matches!(refused, Err(DiskError::OutOfRange { .. })));
    assert_eq!(read(&*disk, 5, 0).unwrap(), [0; 0]);
}

#[test]
fn a_disk_that_is_dropped_ends_the_flush_that_somebody_waits_for() {
    let (machine, store) = (Machine::one(), in_memory());
    let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
    write(&*disk, 16, 10, 5);
    let flushing = start_flush(&*disk);
    drop(disk);
    flushing.wait().unwrap();
    let disk = machine.open(&store, None).unwrap();
    assert_eq!(read(&*disk, 16, 1).unwrap(), [5]);
}
