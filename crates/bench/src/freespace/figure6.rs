//! Figure 6: an aggregate of SSDs, filled to 55 % and aged by random overwrites, with caches of
//! allocation areas and without (section 4.1).

use crate::freespace::drive::Model;
use crate::freespace::loads::Loads;
use crate::freespace::span::Metric;
use crate::freespace::variant::{AS_IT_IS, Case, Comparison, GROUPS_BY_CHANCE, VOLUMES_BY_CHANCE};
use crate::freespace::{Found, FreespaceBench, Progress};
use crate::node::BenchError;

const FILLED_PERCENT: u64 = 55;
/// LUNs, in the paper.
const VOLUMES: usize = 4;
/// A round overwrites one in so many bytes.
const ROUND_SHARE: u64 = 4;

const CASES: [Case; 3] = [
    Case {
        variant: AS_IT_IS,
        paper: &[
            (Metric::GroupPicks, 61.0),
            (Metric::VolumePicks, 78.0),
            (Metric::WriteAmplification, 1.46),
            (Metric::ProcessorTime, 293_000.0),
            (Metric::GroupScores, 0.002),
            (Metric::VolumeScores, 0.002),
        ],
    },
    Case {
        variant: GROUPS_BY_CHANCE,
        paper: &[(Metric::GroupPicks, 46.0), (Metric::WriteAmplification, 1.77)],
    },
    Case {
        variant: VOLUMES_BY_CHANCE,
        paper: &[(Metric::VolumePicks, 61.0), (Metric::ProcessorTime, 309_000.0)],
    },
];

const METRICS: [Metric; 10] = [
    Metric::GroupPicks,
    Metric::VolumePicks,
    Metric::WriteAmplification,
    Metric::FullStripes,
    Metric::BlocksWritten,
    Metric::ModelledRate,
    Metric::ProcessorTime,
    Metric::GroupScores,
    Metric::VolumeScores,
    Metric::Rate,
];

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let comparison = Comparison {
        figure: "6",
        cases: &CASES,
        shape: bench.shape(Model::Ssd(bench.ssd())),
        rounds: bench.rounds,
    };
    let measured = comparison.in_turns(
        progress,
        |rig| Loads::aged(rig, VOLUMES, FILLED_PERCENT, bench.age),
        |loads| loads.measure_overwrites(loads.bytes() / ROUND_SHARE),
    )?;
    let note = format!(
        "SSDs, {FILLED_PERCENT} % full, overwritten {} times; the paper: both caches 24 % more \
         throughput than without that of groups (write amplification 1.77 without), 8 % more than \
         without that of volumes (309 us of processor time, 293 us with it)",
        bench.age
    );
    Ok((comparison.rows(&METRICS, &measured), note))
}
