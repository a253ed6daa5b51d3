//! What the simulated world promises.

use super::*;
use crate::sync::Mutex;
use crate::{Clock, Disk, DiskError, DiskOpener, Entropy};
use std::sync::Arc;
use units::{Block, BlockRef};

fn filled(byte: u8) -> BlockRef {
    let mut block = Block::zeroed();
    block.bytes_mut().fill(byte);
    Arc::new(block)
}

fn write(world: &SimulatedWorld, disk: &dyn Disk, block: u64, byte: u8) -> Result<(), DiskError> {
    let result = Arc::new(Mutex::new(None));
    let shared = Arc::clone(&result);
    disk.write(block, vec![filled(byte)], Box::new(move |done| *shared.lock() = Some(done)));
    assert!(result.lock().is_none(), "no completion before the world steps");
    world.run_until_idle();
    let result = result.lock().take();
    result.expect("completed")
}

fn read(world: &SimulatedWorld, disk: &dyn Disk, block: u64) -> Result<u8, DiskError> {
    let result = Arc::new(Mutex::new(None));
    let shared = Arc::clone(&result);
    disk.read(block, 1, Box::new(move |done| *shared.lock() = Some(done)));
    world.run_until_idle();
    let blocks = result.lock().take().expect("completed")?;
    Ok(blocks[0][0])
}

fn flush(world: &SimulatedWorld, disk: &dyn Disk) {
    disk.flush(Box::new(|done| assert_eq!(done, Ok(()))));
    world.run_until_idle();
}

#[test]
fn flushed_writes_survive_and_dead_handles_are_silent() {
    for seed in 0..20 {
        let world = SimulatedWorld::new(seed);
        let disk = world.add_disk("a", 16);
        write(&world, &*disk, 3, 7).unwrap();
        flush(&world, &*disk);
        world.power_cut();
        disk.write(3, vec![filled(9)], Box::new(|_| panic!("the machine is dead")));
        assert_eq!(world.pending_count(), 0);
        let disk = world.disk("a").unwrap();
        assert_eq!(read(&world, &*disk, 3), Ok(7));
        assert_eq!(read(&world, &*disk, 4), Ok(0));
    }
}

#[test]
fn a_flush_covers_only_what_had_completed() {
    let mut lost = 0;
    for seed in 0..50 {
        let world = SimulatedWorld::new(seed);
        let disk = world.add_disk("a", 16);
        disk.write(0, vec![filled(1)], Box::new(|_| ()));
        disk.flush(Box::new(|_| ()));
        assert!(world.complete_one(0));
        assert!(world.complete_one(0));
        world.power_cut();
        let found = world.read_block("a", 0).unwrap();
        assert!(found.iter().all(|byte| *byte <= 1));
        lost += u32::from(*found != *filled(1));
    }
    assert!(lost > 10, "a write that completed after the flush's submission must be at risk");
}

#[test]
fn cuts_tear_at_sectors_and_nowhere_else() {
    let (mut whole, mut none, mut torn) = (0, 0, 0);
    for seed in 0..100 {
        let world = SimulatedWorld::new(seed);
        let disk = world.add_disk("a", 16);
        disk.write(5, vec![filled(1), filled(2)], Box::new(|_| panic!("dropped")));
        world.power_cut();
        for (block, byte) in [(5, 1), (6, 2)] {
            let found = world.read_block("a", block).unwrap();
            let written = found
                .chunks(512)
                .filter(|sector| {
                    assert!(sector.iter().all(|found| *found == sector[0]));
                    assert!(sector[0] == 0 || sector[0] == byte);
                    sector[0] == byte
                })
                .count();
            match written {
                0 => none += 1,
                8 => whole += 1,
                _ => torn += 1,
            }
        }
    }
    assert!(whole > 20 && none > 20 && torn > 20, "{whole} {none} {torn}");
}

#[test]
fn one_seed_one_run() {
    let run = |seed| {
        let world = SimulatedWorld::new(seed);
        let disk = world.add_disk("a", 64);
        let order = Arc::new(Mutex::new(Vec::new()));
        for block in 0..40_u64 {
            let order = Arc::clone(&order);
            let byte = u8::try_from(block).unwrap();
            let done = Box::new(move |_| order.lock().push(block));
            disk.write(block % 20, vec![filled(byte)], done);
        }
        (0..30).for_each(|_| assert!(world.step()));
        world.power_cut();
        let content: Vec<_> = (0..64).map(|block| world.read_block("a", block)).collect();
        let order = order.lock().clone();
        (order, content, world.next_u64(), world.wall(), world.monotonic_nanoseconds())
    };
    assert!(run(1) == run(1));
    assert!(run(1) != run(2));
}

#[test]
fn faults_do_what_they_say() {
    let world = SimulatedWorld::new(1);
    let disk = world.open("a").map(|_| ()).unwrap_err();
    assert!(matches!(disk, DiskError::Open { .. }));
    let disk = world.add_disk("a", 16);
    assert!(world.open("a").is_ok());
    world.fail_block("a", 1);
    assert!(matches!(read(&world, &*disk, 1), Err(DiskError::Io { block: 1, .. })));
    write(&world, &*disk, 1, 1).unwrap();
    assert_eq!(read(&world, &*disk, 1), Ok(1));
    world.flip_bit("a", 1, 1);
    assert_eq!(read(&world, &*disk, 1), Ok(3));
    world.lose_next_write("a", 2);
    write(&world, &*disk, 2, 5).unwrap();
    assert_eq!(read(&world, &*disk, 2), Ok(0));
    world.misdirect_next_write("a", 2, 9);
    write(&world, &*disk, 2, 6).unwrap();
    assert_eq!((read(&world, &*disk, 2), read(&world, &*disk, 9)), (Ok(0), Ok(6)));
    world.fail_writes("a", 4, true);
    assert!(write(&world, &*disk, 4, 1).is_err());
    assert!(matches!(read(&world, &*disk, 16), Err(DiskError::OutOfRange { size_blocks: 16, .. })));
    world.set_gone("a", true);
    assert_eq!(read(&world, &*disk, 1), Err(DiskError::Gone { disk: "a".to_owned() }));
    world.set_gone("a", false);
    assert_eq!(read(&world, &*disk, 9), Ok(6));
    let rates = FaultRates { lost_write_per_million: 1_000_000, ..FaultRates::default() };
    world.set_fault_rates("a", rates);
    write(&world, &*disk, 10, 6).unwrap();
    assert_eq!(read(&world, &*disk, 10), Ok(0));
}

#[test]
fn images_can_be_put_back_and_cut() {
    let world = SimulatedWorld::new(3);
    let disk = world.add_disk("a", 16);
    write(&world, &*disk, 0, 1).unwrap();
    flush(&world, &*disk);
    disk.write(1, vec![filled(2)], Box::new(|_| ()));
    let image = world.snapshot();
    world.run_until_idle();
    let mut outcomes = [0; 2];
    for seed in 0..50 {
        let other = SimulatedWorld::new(seed);
        other.restore(&image);
        assert_eq!(other.pending_count(), 1);
        other.power_cut();
        assert_eq!(other.read_block("a", 0), Some(filled(1)));
        outcomes[usize::from(other.read_block("a", 1) == Some(filled(2)))] += 1;
    }
    assert!(outcomes[0] > 5 && outcomes[1] > 5);
}
