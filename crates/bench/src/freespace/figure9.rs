//! Figure 9: sequential writes to a new aggregate of SMR drives, with areas that heed zones and
//! without (section 4.3).
//!
//! A zone is the 16th part of a drive, its media cache the 64th.

use crate::freespace::drive::Model;
use crate::freespace::loads::Loads;
use crate::freespace::span::Metric;
use crate::freespace::variant::{AS_IT_IS, Case, Comparison, Variant};
use crate::freespace::{Found, FreespaceBench, Progress};
use crate::node::BenchError;
use device_models::SmrConfiguration;

/// Of the aggregate, in all rounds.
const FILLED_PERCENT: u64 = 60;
/// One stream: of several, tetrises reach drives in no order.
const VOLUMES: usize = 1;
const ZONES: u64 = 16;
const MEDIA_CACHE_SHARE: u64 = 64;

/// Areas do not know of zones, and end within AZCS regions: 4 Ki stripes.
const UNALIGNED_AREAS: Variant = Variant {
    name: "4 Ki stripes",
    configure: |engine| engine.tuning.area_stripes = Some(4096),
    ..AS_IT_IS
};

const CASES: [Case; 2] =
    [Case { variant: AS_IT_IS, paper: &[] }, Case { variant: UNALIGNED_AREAS, paper: &[] }];

const METRICS: [Metric; 5] = [
    Metric::ModelledBytes,
    Metric::WriteAmplification,
    Metric::MediaCache,
    Metric::FullStripes,
    Metric::BlocksWritten,
];

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let zone_bytes = 1 << (bench.disk.0 / ZONES).max(1).ilog2();
    let media_cache_bytes = 1 << (bench.disk.0 / MEDIA_CACHE_SHARE).max(1).ilog2();
    let smr = SmrConfiguration { zone_bytes, media_cache_bytes, ..SmrConfiguration::default() };
    let comparison = Comparison {
        figure: "9",
        cases: &CASES,
        shape: bench.shape(Model::Smr(smr)),
        rounds: bench.rounds,
    };
    let measured = comparison.in_turns(
        progress,
        |rig| Loads::new(rig, VOLUMES),
        |loads| loads.measure_extension(loads.share(FILLED_PERCENT) / bench.rounds as u64),
    )?;
    let note = format!(
        "SMR drives with zones of {} MiB, new, written in order; the paper: areas of whole zones \
         and checksum regions 7 % more throughput",
        zone_bytes >> 20
    );
    Ok((comparison.rows(&METRICS, &measured), note))
}
