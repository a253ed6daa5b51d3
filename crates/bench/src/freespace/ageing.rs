//! Ageing: an aggregate that is 85 % full is overwritten at random, in tenths, and the last tenth
//! is to be as fast as the second (the first still finds space that was never written).

use crate::freespace::drive::Model;
use crate::freespace::loads::Loads;
use crate::freespace::plan::{Found, FreespaceBench};
use crate::freespace::rig::Rig;
use crate::freespace::span::{Metric, Span};
use crate::freespace::variant::{AS_IT_IS, Progress};
use crate::node::BenchError;
use crate::summary::{Beside, Role, Row, Series};

const FILLED_PERCENT: u64 = 85;
const VOLUMES: usize = 4;
const TENTHS: u64 = 10;

const METRICS: [Metric; 5] = [
    Metric::Rate,
    Metric::ModelledRate,
    Metric::WriteAmplification,
    Metric::FullStripes,
    Metric::BlocksMoved,
];

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let shape = bench.shape(Model::Ssd(bench.ssd()));
    let mut loads = Loads::new(Rig::new(&shape, &AS_IT_IS)?, VOLUMES)?;
    progress("ageing: filling");
    loads.fill(FILLED_PERCENT)?;
    let tenth_bytes = loads.share(100) * bench.age / TENTHS;
    let mut tenths = Vec::new();
    for tenth in 1..=TENTHS {
        progress(&format!("ageing: tenth {tenth}"));
        tenths.push(loads.measure_overwrites(tenth_bytes)?);
    }
    let note = format!(
        "SSDs, {FILLED_PERCENT} % full, overwritten by {} times what the aggregate holds",
        bench.age
    );
    Ok((METRICS.into_iter().flat_map(|metric| rows(metric, &tenths)).collect(), note))
}

/// A row for each tenth; later ones stand beside the second.
fn rows(metric: Metric, tenths: &[Span]) -> Vec<Row> {
    let series = |span: &Span| Series::of(vec![metric.of(span)]);
    let row = |(number, span): (usize, &Span)| {
        let second = tenths.get(1).filter(|_| number > 1);
        let beside = second.map(|second| Beside {
            name: "tenth 2".to_owned(),
            role: Role::Peer,
            series: series(second),
        });
        Row {
            load: format!("ageing: {}, tenth {}", metric.name(), number + 1),
            unit: metric.unit(),
            ours: series(span),
            beside: beside.into_iter().collect(),
        }
    };
    tenths.iter().enumerate().map(row).collect()
}
