//! Delayed frees (FlexVol section 3.4): how many updates of the container map random overwrites
//! take, and what they write.
//!
//! Consistency points are small: what one frees lies in more pages of the container map than it has
//! frees, as in volumes that are large beside what is written to them in ten seconds.

use crate::freespace::drive::Model;
use crate::freespace::loads::Loads;
use crate::freespace::plan::{Found, FreespaceBench};
use crate::freespace::rig::Rig;
use crate::freespace::span::Metric;
use crate::freespace::variant::{AS_IT_IS, Case, Progress, Variant};
use crate::node::BenchError;

const VOLUMES: usize = 1;
const FILLED_PERCENT: u64 = 55;
/// Overwrites between two consistency points: with 2 GiB of data in a volume they free two or three
/// numbers of each page that they free any of.
const POINT_OPERATIONS: u64 = 256;
const POINTS: u64 = 128;

const AT_ONCE: Variant = Variant {
    name: "at once",
    configure: |_, engine| engine.tuning.delayed_permille = 0,
    ..AS_IT_IS
};

const CASES: [Case; 2] = [
    Case { variant: AS_IT_IS, paper: &[(Metric::FreesOfPage, 10.0)] },
    Case { variant: AT_ONCE, paper: &[] },
];

const METRICS: [Metric; 5] = [
    Metric::FreesOfPage,
    Metric::BlocksWritten,
    Metric::ModelledRate,
    Metric::ProcessorTime,
    Metric::Rate,
];

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let comparison = bench.comparison("frees", &CASES, Model::Ssd(bench.ssd()));
    let prepare = |variant: &Variant| {
        let rig = Rig::new(&comparison.shape, variant)?;
        Loads::aged(rig, VOLUMES, FILLED_PERCENT, bench.age)
    };
    let measure = |_: &Variant, loads: &mut Loads| loads.measure_points(POINTS, POINT_OPERATIONS);
    let measured = comparison.in_turns(progress, prepare, measure)?;
    let note = format!(
        "SSDs, {FILLED_PERCENT} % full, overwritten {} times; {POINTS} consistency points of \
         {POINT_OPERATIONS} overwrites; the paper: less than one update of the container map for \
         ten frees",
        bench.age
    );
    Ok((comparison.rows(&METRICS, &measured), note))
}
