//! Figure 7: two groups of hard disks that are filled and aged until half of their blocks, at
//! random, are in use, and two that joined after that: how many blocks and tetrises go where
//! (FreeSpace section 4.2).

use crate::freespace::drive::{Model, Work};
use crate::freespace::plan::{Found, FreespaceBench};
use crate::freespace::rig::Shape;
use crate::freespace::span::{Metric, Span};
use crate::freespace::variant::{AS_IT_IS, Case, Measured, Overwrites, Progress};
use crate::node::BenchError;
use crate::summary::{Row, Series, Unit};
use device_models::HddConfiguration;

const AGED_GROUPS: usize = 2;
const NEW_GROUPS: usize = 2;
const LOAD: Overwrites = Overwrites {
    volumes: 2,
    filled_percent: 50,
    new_groups: NEW_GROUPS,
    // All rounds leave the new groups emptier than the aged.
    round_share: 16,
};

const CASES: [Case; 1] = [Case { variant: AS_IT_IS, paper: &[] }];

const METRICS: [Metric; 3] = [Metric::FullStripes, Metric::ModelledRate, Metric::Rate];

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let mut comparison = bench.comparison("7", &CASES, Model::Hdd(HddConfiguration::default()));
    comparison.shape.groups = AGED_GROUPS;
    let measured = comparison.of_overwrites(progress, &LOAD, bench.age)?;
    let mut found = comparison.rows(&METRICS, &measured);
    for measured in &measured {
        let groups = 0..AGED_GROUPS + NEW_GROUPS;
        found.extend(groups.flat_map(|group| of_group(measured, group, &comparison.shape)));
    }
    let note = format!(
        "hard disks, groups 0 and 1 {} % full and overwritten {} times, groups 2 and \
         3 added after that; blocks are those of a data disk, checksum blocks included: median, \
         lowest and highest are over the disks; the paper: equally many on disks of one age, more \
         on the newer groups, in slightly fewer tetrises",
        LOAD.filled_percent, bench.age
    );
    Ok((found, note))
}

/// What went to a group in all rounds: blocks of each data disk, tetrises, and blocks in a tetris.
fn of_group(measured: &Measured, group: usize, shape: &Shape) -> [Row; 3] {
    let of_disk = |disk: usize, of: fn(&Work) -> u64| {
        let rounds =
            measured.rounds.iter().filter_map(|span: &Span| span.work.get(group)?.get(disk));
        rounds.map(of).sum::<u64>() as f64
    };
    let disks = shape.kind.parity_disks()..shape.group_disks();
    let blocks: Vec<f64> = disks.map(|disk| of_disk(disk, |work| work.host_blocks)).collect();
    let tetrises = of_disk(0, |work| work.regions);
    let in_tetris = blocks.iter().sum::<f64>() / tetrises.max(1.0);
    let row = |what: &str, values: Vec<f64>| Row {
        load: format!("7: {what}, group {group}, {}", measured.case.variant.name),
        unit: Unit::Count,
        ours: Series::of(values),
        beside: Vec::new(),
    };
    [
        row("blocks", blocks),
        row("tetrises", vec![tetrises]),
        row("blocks in a tetris", vec![in_tetris]),
    ]
}
