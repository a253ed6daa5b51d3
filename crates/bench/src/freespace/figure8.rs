//! Figure 8: an aggregate of SSDs, filled to 85 % and aged, with areas of the size that suits hard
//! disks and with areas of whole erase blocks (section 4.3).
//!
//! An erase block is the 64th part of a disk, rounded down to a power of two: a group has 16 areas
//! of four erase blocks. Areas of the other size are as small beside an erase block as 4 Ki stripes
//! are beside one of 64 MiB: a quarter of it, on disks of 1 GiB.

use crate::freespace::drive::Model;
use crate::freespace::loads::Loads;
use crate::freespace::span::Metric;
use crate::freespace::variant::{AS_IT_IS, Case, Comparison, Variant};
use crate::freespace::{Found, FreespaceBench, Progress};
use crate::node::BenchError;
use device_models::SsdConfiguration;

const FILLED_PERCENT: u64 = 85;
const VOLUMES: usize = 4;
/// Erase blocks of a disk.
const ERASE_BLOCKS: u64 = 64;
/// A round overwrites one in so many bytes.
const ROUND_SHARE: u64 = 4;

/// Areas do not know of erase blocks.
const SMALL_AREAS: Variant = Variant {
    name: "small areas",
    configure: |engine| engine.tuning.area_stripes = Some(16 * 63),
    ..AS_IT_IS
};

const CASES: [Case; 2] =
    [Case { variant: AS_IT_IS, paper: &[] }, Case { variant: SMALL_AREAS, paper: &[] }];

const METRICS: [Metric; 6] = [
    Metric::GroupPicks,
    Metric::WriteAmplification,
    Metric::FullStripes,
    Metric::BlocksWritten,
    Metric::ModelledRate,
    Metric::Rate,
];

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let erase_block_bytes = 1 << (bench.disk.0 / ERASE_BLOCKS).max(1).ilog2();
    let ssd = SsdConfiguration { erase_block_bytes, ..bench.ssd() };
    let comparison = Comparison {
        figure: "8",
        cases: &CASES,
        shape: bench.shape(Model::Ssd(ssd)),
        rounds: bench.rounds,
    };
    let measured = comparison.in_turns(
        progress,
        |rig| Loads::aged(rig, VOLUMES, FILLED_PERCENT, bench.age),
        |loads| loads.measure_overwrites(loads.bytes() / ROUND_SHARE),
    )?;
    let note = format!(
        "SSDs with erase blocks of {} MiB, {FILLED_PERCENT} % full, overwritten {} times; the \
         paper: areas of whole erase blocks halve write amplification, 26 % more throughput",
        erase_block_bytes >> 20,
        bench.age
    );
    Ok((comparison.rows(&METRICS, &measured), note))
}
