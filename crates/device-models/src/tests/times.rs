//! Times and counts that follow by hand.

use super::{read, wait, write};
use crate::*;
use platform::Disk;
use platform::simulated::SimulatedWorld;
use std::sync::Arc;

const MILLISECOND: u64 = 1_000_000;

/// A block takes a microsecond in the outer half and two in the inner one.
fn mechanics() -> HddConfiguration {
    HddConfiguration {
        seek_shortest_nanoseconds: MILLISECOND,
        seek_longest_nanoseconds: 5 * MILLISECOND,
        rotation_nanoseconds: 8 * MILLISECOND,
        zone_bytes_per_second: vec![4_096_000_000, 2_048_000_000],
    }
}

#[test]
fn a_head_takes_time_to_move_to_wait_and_to_transfer() {
    let world = SimulatedWorld::new(1);
    let disk = HddModel::new(world.add_disk("hdd", 1600), mechanics());
    let busy = || disk.take_statistics().busy_nanoseconds;
    read(&world, &disk, 0, 10);
    assert_eq!(busy(), 4 * MILLISECOND + 10_000, "half a turn, for the head is there");
    read(&world, &disk, 10, 10);
    assert_eq!(busy(), 10_000, "it goes on");
    // A quarter of the way: half of what the longest seek takes more than the shortest.
    assert_eq!(write(&world, &disk, 420, 1, 1), Ok(()));
    assert_eq!(busy(), (1 + 2) * MILLISECOND + 4 * MILLISECOND + 1000);
    assert_eq!(write(&world, &disk, 421, 1, 1), Ok(()));
    assert_eq!(busy(), 1000);
    wait(&world, |done| disk.flush(done)).expect("done").expect("flushed");
    assert_eq!(write(&world, &disk, 422, 1, 1), Ok(()));
    assert_eq!(busy(), 4 * MILLISECOND + 1000, "the host waited, the disk turned on");
    read(&world, &disk, 23, 1);
    assert_eq!(busy(), (1 + 2 + 4) * MILLISECOND + 1000);
    read(&world, &disk, 24, 800);
    assert_eq!(busy(), 776_000 + 24 * 2000, "776 blocks outside, 24 inside");
}

#[test]
fn a_drive_counts_what_its_head_does() {
    let world = SimulatedWorld::new(1);
    let disk = Arc::new(HddModel::new(world.add_disk("hdd", 1600), mechanics()));
    read(&world, &*disk, 0, 4);
    read(&world, &*disk, 4, 4);
    assert_eq!(write(&world, &*disk, 108, 2, 1), Ok(()));
    let durable = Arc::clone(&disk);
    wait(&world, |done| durable.write_durable(110, super::filled(3, 2), done))
        .expect("done")
        .expect("written");
    assert!(super::try_read(&world, &*disk, 1599, 2).is_err(), "past the end");
    let busy_nanoseconds = disk.statistics().busy_nanoseconds;
    let expected = HddStatistics {
        reads: 2,
        writes: 2,
        flushes: 1,
        blocks_read: 8,
        blocks_written: 5,
        sequential_requests: 2,
        seeks: 1,
        seek_distance_blocks: 100,
        busy_nanoseconds,
    };
    assert_eq!(disk.take_statistics(), expected);
    // A sixteenth of the way: a quarter of the four milliseconds.
    assert_eq!(busy_nanoseconds, 13_000 + (4 + 1 + 1 + 4) * MILLISECOND);
    assert_eq!(disk.statistics(), HddStatistics::default());
    assert!(disk.hints().is_rotational);
}

#[test]
fn an_ssd_is_as_busy_as_its_busiest_channel() {
    let world = SimulatedWorld::new(1);
    let configuration = SsdConfiguration {
        mapping: FlashMapping::Pages,
        erase_block_bytes: 4 * 4096,
        over_provisioning_percent: 0,
        channels: 2,
        read_nanoseconds: 10,
        program_nanoseconds: 100,
        erase_nanoseconds: 1000,
    };
    let disk = SsdModel::new(world.add_disk("ssd", 8), configuration);
    read(&world, &disk, 0, 8);
    assert_eq!(disk.take_statistics().busy_nanoseconds, 0, "nothing is mapped");
    assert_eq!(write(&world, &disk, 0, 8, 1), Ok(()));
    assert_eq!(disk.take_statistics().busy_nanoseconds, 4 * 100);
    read(&world, &disk, 1, 3);
    assert_eq!(disk.take_statistics().busy_nanoseconds, 2 * 10, "pages 1 and 3 share a channel");
    // Block 0 keeps page 3, as in the test of the victim: page 3 goes to 12, page 5 to 13.
    assert_eq!(write(&world, &disk, 0, 3, 1), Ok(()));
    assert_eq!(write(&world, &disk, 4, 2, 1), Ok(()));
    let expected = SsdStatistics {
        host_pages_read: 0,
        host_pages_written: 5,
        pages_relocated: 1,
        blocks_erased: 1,
        flushes: 0,
        // Channel 0 programs 8, 10 and 12; channel 1 programs 9, 11 and 13 and reads 3.
        busy_nanoseconds: 3 * 100 + 10 + 1000,
    };
    let found = disk.take_statistics();
    assert_eq!(found, expected);
    assert!((found.write_amplification() - 1.2).abs() < 1e-9);
    disk.invalidate(0..8);
    read(&world, &disk, 0, 8);
    assert_eq!(disk.take_statistics().busy_nanoseconds, 0);
    assert!((SsdStatistics::default().write_amplification() - 1.0).abs() < 1e-9);
    assert!(!disk.hints().is_rotational);
}

#[test]
fn an_smr_drive_pays_for_random_writes_when_its_cache_is_full() {
    let world = SimulatedWorld::new(1);
    // Two zones, two spare ones and the cache: 4 + 4 * 99 = 400 blocks.
    let configuration = SmrConfiguration {
        zone_bytes: 99 * 4096,
        media_cache_bytes: 4 * 4096,
        write_cache_bytes: 0,
        streams_max: 1,
        stream_blocks_min: 4,
        cleaning: CleaningPolicy::OldestZone,
        mechanics: HddConfiguration { zone_bytes_per_second: vec![4_096_000_000], ..mechanics() },
    };
    let disk = SmrModel::new(world.add_disk("smr", 198), configuration);
    for block in (0..198).step_by(33) {
        assert_eq!(write(&world, &disk, block, 33, 1), Ok(()));
    }
    let filled = disk.take_statistics();
    assert_eq!((filled.blocks_streamed, filled.blocks_cached, filled.zone_rewrites), (198, 0, 0));
    assert_eq!(filled.seeks, 1, "over the media cache to the first zone");
    for (block, fill) in [(10, 2), (20, 3), (30, 4), (40, 5)] {
        assert_eq!(write(&world, &disk, block, 1, fill), Ok(()));
    }
    let cached = disk.take_statistics();
    assert_eq!((cached.blocks_cached, cached.zone_rewrites, cached.seeks), (4, 0, 1));
    assert_eq!(write(&world, &disk, 50, 1, 6), Ok(()));
    let cleaned = disk.take_statistics();
    assert_eq!(
        (cleaned.zone_rewrites, cleaned.blocks_rewritten, cleaned.blocks_cached),
        (1, 99, 1)
    );
    // To slot 0 and on over four slots to the zone behind them, to the spare one, and back.
    assert_eq!(cleaned.seeks, 3);
    read(&world, &disk, 49, 3);
    assert_eq!(disk.take_statistics().seeks, 3, "zone, cache, zone");
    assert!(disk.hints().is_rotational);
}

#[test]
fn an_smr_drive_with_a_write_cache_pays_when_it_writes() {
    let world = SimulatedWorld::new(1);
    let configuration = SmrConfiguration {
        zone_bytes: 64 * 4096,
        media_cache_bytes: 4 * 4096,
        write_cache_bytes: 32 * 4096,
        ..SmrConfiguration::default()
    };
    let disk = SmrModel::new(world.add_disk("smr", 128), configuration);
    for block in [8, 0, 16] {
        assert_eq!(write(&world, &disk, block, 8, 1), Ok(()));
    }
    read(&world, &disk, 0, 24);
    let waiting = disk.take_statistics();
    assert_eq!(
        (waiting.blocks_streamed, waiting.blocks_cached, waiting.busy_nanoseconds),
        (0, 0, 0)
    );
    assert_eq!(wait(&world, |done| disk.flush(done)), Some(Ok(())));
    let flushed = disk.take_statistics();
    assert_eq!((flushed.blocks_streamed, flushed.blocks_cached, flushed.seeks), (24, 0, 1));
    assert!(flushed.busy_nanoseconds > 0);
}
