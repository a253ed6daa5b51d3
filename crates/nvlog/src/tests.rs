//! The log on simulated disks.

mod behaviour;
mod copies;
mod crash;
mod damage;
#[cfg(shuttle)]
mod interleavings;
mod notes;

use crate::{Log, LogError, LogIdentity, LogPosition, Record};
use ondisk::log::{LOG_HEADER_BLOCKS, LOG_NOTES_BLOCKS_MIN};
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use platform::{Disk, DiskError};
use std::sync::Arc;
use units::{AggregateUuid, CpNumber, LogUuid};

const DISK: &str = "log";
const IDENTITY: LogIdentity =
    LogIdentity { aggregate: AggregateUuid([1; 16]), log: LogUuid([2; 16]) };

fn disk(world: &SimulatedWorld) -> Arc<dyn Disk> {
    world.disk(DISK).expect("there is a disk")
}

fn format(world: &SimulatedWorld, size_blocks: u64) {
    world.add_disk(DISK, size_blocks);
    let result = world.wait(|done| Log::format(&disk(world), IDENTITY, done));
    assert_eq!(result, Ok(()));
}

fn try_open(world: &SimulatedWorld, committed: u64) -> Result<(Log, Vec<Record>), LogError> {
    world.wait(|done| Log::open(&disk(world), IDENTITY, CpNumber(committed), done))
}

fn open(world: &SimulatedWorld, committed: u64) -> (Log, Vec<Record>) {
    try_open(world, committed).expect("the log opens")
}

/// The size of a disk for two halves of `half_blocks`, and notes.
fn size_blocks(half_blocks: u64) -> u64 {
    LOG_HEADER_BLOCKS + 2 * half_blocks + LOG_NOTES_BLOCKS_MIN
}

/// A world with a formatted log of two halves of `half_blocks`, open.
fn fresh(half_blocks: u64) -> (SimulatedWorld, Log) {
    let world = SimulatedWorld::new(1);
    format(&world, size_blocks(half_blocks));
    let (log, records) = open(&world, 0);
    assert_eq!(records, []);
    (world, log)
}

/// What a waiter was told.
type Told = Arc<Mutex<Option<Result<(), DiskError>>>>;

fn wait(log: &Log, position: LogPosition) -> Told {
    let told = Told::default();
    let teller = Arc::clone(&told);
    log.when_durable(position, Box::new(move |result| *teller.lock() = Some(result)));
    told
}

fn append(log: &Log, body: &[u8]) -> LogPosition {
    log.append(log.active_cp(), 7, &[body]).expect("there is room")
}

/// Appends and makes durable.
fn log_durably(world: &SimulatedWorld, log: &Log, body: &[u8]) {
    let told = wait(log, append(log, body));
    world.run_until_idle();
    assert_eq!(*told.lock(), Some(Ok(())));
}

fn bodies(records: &[Record]) -> Vec<&[u8]> {
    records.iter().map(|record| record.body.as_slice()).collect()
}
