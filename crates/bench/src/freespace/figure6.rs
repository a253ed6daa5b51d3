//! Figure 6: an aggregate of SSDs, filled to 55 % and aged by random overwrites, with caches of
//! allocation areas and without (FreeSpace section 4.1).

use crate::freespace::drive::Model;
use crate::freespace::plan::{Found, FreespaceBench};
use crate::freespace::span::Metric;
use crate::freespace::variant::{
    AS_IT_IS, Case, GROUPS_BY_CHANCE, Overwrites, Progress, VOLUMES_BY_CHANCE,
};
use crate::node::BenchError;

const LOAD: Overwrites = Overwrites {
    // LUNs, in FreeSpace.
    volumes: 4,
    filled_percent: 55,
    new_groups: 0,
    round_share: 4,
};

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
    let comparison = bench.comparison("6", &CASES, Model::Ssd(bench.ssd()));
    let measured = comparison.of_overwrites(progress, &LOAD, bench.age)?;
    let note = format!(
        "SSDs, {} % full, overwritten {} times; the paper: both caches 24 % more \
         throughput than without that of groups (write amplification 1.77 without), 8 % more than \
         without that of volumes (309 us of processor time, 293 us with it)",
        LOAD.filled_percent, bench.age
    );
    Ok((comparison.rows(&METRICS, &measured), note))
}
