//! A model holds what a plain disk would hold.

use super::{filled, read, wait, write};
use crate::*;
use platform::Disk;
use platform::simulated::SimulatedWorld;
use proptest::prelude::*;
use std::sync::Arc;

const SIZE_BLOCKS: u64 = 60;

fn small_ssd(inner: Arc<dyn Disk>) -> Arc<dyn Disk> {
    let configuration = SsdConfiguration { erase_block_bytes: 4 * 4096, ..Default::default() };
    Arc::new(SsdModel::new(inner, configuration))
}

fn coarse_ssd(inner: Arc<dyn Disk>) -> Arc<dyn Disk> {
    let (mapping, erase_block_bytes) = (FlashMapping::EraseBlocks, 4 * 4096);
    let configuration = SsdConfiguration { mapping, erase_block_bytes, ..Default::default() };
    Arc::new(SsdModel::new(inner, configuration))
}

fn small_smr(inner: Arc<dyn Disk>) -> Arc<dyn Disk> {
    let small = SmrConfiguration {
        zone_bytes: 16 * 4096,
        media_cache_bytes: 5 * 4096,
        write_cache_bytes: 3 * 4096,
        ..Default::default()
    };
    Arc::new(SmrModel::new(inner, small))
}

fn hdd(inner: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(HddModel::new(inner, HddConfiguration::default()))
}

fn healthy(inner: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(FailingDisk::new(inner))
}

/// Models may stand on one another.
fn stacked(inner: Arc<dyn Disk>) -> Arc<dyn Disk> {
    healthy(hdd(small_smr(small_ssd(inner))))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn content_is_that_of_a_plain_disk(
        requests in prop::collection::vec((0..SIZE_BLOCKS + 5, 1..20_usize, 0..4_u8), 1..60),
    ) {
        let world = SimulatedWorld::new(1);
        let plain: Arc<dyn Disk> = world.add_disk("plain", SIZE_BLOCKS);
        let models = [small_ssd, coarse_ssd, small_smr, hdd, healthy, stacked];
        let disks: Vec<Arc<dyn Disk>> = (0..)
            .zip(models)
            .map(|(index, model)| model(world.add_disk(&format!("inner {index}"), SIZE_BLOCKS)))
            .collect();
        for (fill, (block, count, kind)) in (1..).zip(requests) {
            let request = |disk: &Arc<dyn Disk>| match kind {
                0 => wait(&world, |done| disk.flush(done)).map(|result| result.is_ok()),
                1 => wait(&world, |done| {
                    Arc::clone(disk).write_durable(block, filled(count, fill), done);
                })
                .map(|result| result.is_ok()),
                _ => Some(write(&world, &**disk, block, count, fill).is_ok()),
            };
            let expected = request(&plain);
            for disk in &disks {
                prop_assert_eq!(request(disk), expected);
            }
        }
        let expected = read(&world, &*plain, 0, SIZE_BLOCKS as usize);
        for disk in &disks {
            prop_assert_eq!(disk.size_blocks(), SIZE_BLOCKS);
            prop_assert_eq!(read(&world, &**disk, 0, SIZE_BLOCKS as usize), expected.clone());
        }
    }
}
