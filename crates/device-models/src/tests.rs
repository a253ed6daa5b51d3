//! Tests of the models: figures that follow by hand, and random requests against naive devices.

mod contents;
mod failing;
mod flash;
mod shingled;
mod times;
mod write_cache;

use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use platform::{Disk, DiskError};
use std::sync::Arc;
use units::{Block, BlockRef};

/// Calls, completes what it takes, and gives what the completion got.
fn wait<T: Send + 'static>(
    world: &SimulatedWorld,
    call: impl FnOnce(Box<dyn FnOnce(T) + Send>),
) -> Option<T> {
    let result = Arc::new(Mutex::new(None));
    let shared = Arc::clone(&result);
    call(Box::new(move |value| *shared.lock() = Some(value)));
    assert!(result.lock().is_none(), "a completion never runs before the call returns");
    world.run_until_idle();
    result.lock().take()
}

fn read(world: &SimulatedWorld, disk: &dyn Disk, block: u64, count: usize) -> Vec<BlockRef> {
    try_read(world, disk, block, count).expect("a disk that works")
}

fn try_read(
    world: &SimulatedWorld,
    disk: &dyn Disk,
    block: u64,
    count: usize,
) -> Result<Vec<BlockRef>, DiskError> {
    wait(world, |done| disk.read(block, count, done)).expect("it completes")
}

fn write(
    world: &SimulatedWorld,
    disk: &dyn Disk,
    block: u64,
    count: usize,
    fill: u8,
) -> Result<(), DiskError> {
    wait(world, |done| disk.write(block, filled(count, fill), done)).expect("it completes")
}

fn filled(count: usize, fill: u8) -> Vec<BlockRef> {
    (0..count).map(|index| Block::shared(&[fill, index as u8])).collect()
}
