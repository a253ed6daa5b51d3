//! Figure 9: sequential writes to a new aggregate of SMR drives, with areas that heed zones and
//! without (section 4.3).
//!
//! A zone is the 16th part of a drive, its media cache the 64th, its write cache half of a zone.
//!
//! Each round writes to an aggregate of its own: the tracks of a disk become shorter from its edge
//! inwards, so that rounds which went on where others ended would not be the same. The first fifth
//! is written before: the area in which the aggregate's first blocks lie is left over, and the
//! drive pays once for a start in the middle of a zone.
//!
//! In a new aggregate areas are used in order. Choosing them by chance shows what an area's edges
//! cost where the next one lies elsewhere.

use crate::freespace::drive::Model;
use crate::freespace::loads::Loads;
use crate::freespace::rig::Rig;
use crate::freespace::span::Metric;
use crate::freespace::variant::{AS_IT_IS, Case, GROUPS_BY_CHANCE, Variant};
use crate::freespace::{Found, FreespaceBench, Progress};
use crate::node::BenchError;
use device_models::SmrConfiguration;

/// Of the aggregate, before each round.
const FILLED_PERCENT: u64 = 20;
/// Of the aggregate, in each round.
const WRITTEN_PERCENT: u64 = 40;
const VOLUMES: usize = 1;
const ZONES: u64 = 16;
const MEDIA_CACHE_SHARE: u64 = 64;
/// Drives with zones of 256 MiB have 128 MiB of memory.
const WRITE_CACHES_OF_ZONE: u64 = 2;

/// Areas do not know of zones, and end within AZCS regions: 4 Ki stripes.
const UNALIGNED_AREAS: Variant = Variant {
    name: "4 Ki stripes",
    configure: |_, engine| engine.tuning.area_stripes = Some(4096),
    ..AS_IT_IS
};

const BY_CHANCE_UNALIGNED: Variant = Variant {
    name: "4 Ki stripes by chance",
    configure: |shape, engine| {
        (UNALIGNED_AREAS.configure)(shape, engine);
        (GROUPS_BY_CHANCE.configure)(shape, engine);
    },
    ..AS_IT_IS
};

const CASES: [Case; 4] = [
    Case { variant: AS_IT_IS, paper: &[] },
    Case { variant: UNALIGNED_AREAS, paper: &[] },
    Case { variant: GROUPS_BY_CHANCE, paper: &[] },
    Case { variant: BY_CHANCE_UNALIGNED, paper: &[] },
];

const METRICS: [Metric; 6] = [
    Metric::ModelledBytes,
    Metric::WriteAmplification,
    Metric::MediaCache,
    Metric::ChecksumBlocks,
    Metric::FullStripes,
    Metric::BlocksWritten,
];

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let zone_bytes = 1 << (bench.disk.0 / ZONES).max(1).ilog2();
    let media_cache_bytes = 1 << (bench.disk.0 / MEDIA_CACHE_SHARE).max(1).ilog2();
    let smr = SmrConfiguration {
        zone_bytes,
        media_cache_bytes,
        write_cache_bytes: zone_bytes / WRITE_CACHES_OF_ZONE,
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
