//! Figure 9: sequential writes to a new aggregate of SMR drives, with areas of the three sorts of
//! FreeSpace's figure 4: (A) 4 Ki stripes, (B) areas larger than zones, (C) such that begin and end
//! with AZCS regions as well, which are what an SMR group has (FreeSpace section 4.3).
//!
//! A zone and the media cache are the 64th part of a drive each, its write cache half of a zone.
//!
//! Each round writes to an aggregate of its own. The first fifth is written before: the area in
//! which the aggregate's first blocks lie is left over, and the drive pays once for a start in the
//! middle of a zone. Large areas leave more over, at the edge of the disk; so that this is not
//! taken for what areas are worth, all tracks are of one length.
//!
//! In a new aggregate areas are used in order, and the store writes a region that two of them share
//! once. Choosing them by chance shows what an area's edges cost where the next one lies elsewhere,
//! as it does in an aggregate that was used.

use crate::freespace::drive::Model;
use crate::freespace::loads::Loads;
use crate::freespace::plan::{Found, FreespaceBench};
use crate::freespace::rig::Rig;
use crate::freespace::span::Metric;
use crate::freespace::variant::{AS_IT_IS, Case, GROUPS_BY_CHANCE, Progress, Variant};
use crate::node::BenchError;
use device_models::{HddConfiguration, SmrConfiguration};
use units::BLOCK_SIZE_U64;

/// Of the aggregate, before each round.
const FILLED_PERCENT: u64 = 20;
/// Of the aggregate, in each round.
const WRITTEN_PERCENT: u64 = 40;
const VOLUMES: usize = 1;
const ZONES: u64 = 64;
const MEDIA_CACHE_SHARE: u64 = 64;
/// Drives with zones of 256 MiB have 128 MiB of memory.
const WRITE_CACHES_OF_ZONE: u64 = 2;
/// Of an area, as the engine has it.
const AREA_ZONES: u64 = 4;
/// The mean of the model's drives.
const BYTES_PER_SECOND: u64 = 187_500_000;

/// (A): areas do not know of zones, and end within AZCS regions.
const SMALL_AREAS: Variant = Variant {
    name: "4 Ki stripes",
    configure: |_, engine| engine.tuning.area_stripes = Some(4096),
    ..AS_IT_IS
};

/// (B): areas are as large as zones, as if all blocks of these held data, and end within AZCS
/// regions.
const ACROSS_REGIONS: Variant = Variant {
    name: "across regions",
    configure: |shape, engine| {
        let zone_blocks = zone_bytes(shape.disk_bytes) / BLOCK_SIZE_U64;
        engine.tuning.area_stripes = Some(AREA_ZONES * zone_blocks);
    },
    ..AS_IT_IS
};

const SMALL_BY_CHANCE: Variant = Variant {
    name: "4 Ki stripes by chance",
    configure: |shape, engine| {
        (SMALL_AREAS.configure)(shape, engine);
        (GROUPS_BY_CHANCE.configure)(shape, engine);
    },
    ..AS_IT_IS
};

const ACROSS_BY_CHANCE: Variant = Variant {
    name: "across regions by chance",
    configure: |shape, engine| {
        (ACROSS_REGIONS.configure)(shape, engine);
        (GROUPS_BY_CHANCE.configure)(shape, engine);
    },
    ..AS_IT_IS
};

const CASES: [Case; 6] = [
    Case { variant: AS_IT_IS, paper: &[] },
    Case { variant: ACROSS_REGIONS, paper: &[] },
    Case { variant: SMALL_AREAS, paper: &[] },
    Case { variant: GROUPS_BY_CHANCE, paper: &[] },
    Case { variant: ACROSS_BY_CHANCE, paper: &[] },
    Case { variant: SMALL_BY_CHANCE, paper: &[] },
];

const METRICS: [Metric; 6] = [
    Metric::ModelledBytes,
    Metric::WriteAmplification,
    Metric::MediaCache,
    Metric::ChecksumBlocks,
    Metric::FullStripes,
    Metric::BlocksWritten,
];

/// The zones of drives of so many bytes.
const fn zone_bytes(disk_bytes: u64) -> u64 {
    let zone_bytes = disk_bytes / ZONES;
    1 << if zone_bytes == 0 { 0 } else { zone_bytes.ilog2() }
}

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let zone_bytes = zone_bytes(bench.disk.0);
    let media_cache_bytes = 1 << (bench.disk.0 / MEDIA_CACHE_SHARE).max(1).ilog2();
    let smr = SmrConfiguration {
        zone_bytes,
        media_cache_bytes,
        write_cache_bytes: zone_bytes / WRITE_CACHES_OF_ZONE,
        mechanics: HddConfiguration {
            zone_bytes_per_second: vec![BYTES_PER_SECOND],
            ..HddConfiguration::default()
        },
        ..SmrConfiguration::default()
    };
    let comparison = bench.comparison("9", &CASES, Model::Smr(smr));
    let measured = comparison.in_turns(
        progress,
        |_| Ok(()),
        |variant, ()| {
            let mut loads = Loads::new(Rig::new(&comparison.shape, variant)?, VOLUMES)?;
            loads.fill(FILLED_PERCENT)?;
            loads.measure_extension(loads.share(WRITTEN_PERCENT))
        },
    )?;
    let note = format!(
        "SMR drives with zones of {} MiB, new, written in order; by chance: areas are not used in \
         order; the paper: areas of whole zones and checksum regions 7 % more throughput",
        zone_bytes >> 20
    );
    Ok((comparison.rows(&METRICS, &measured), note))
}
