//! Variants of the engine, and figures that compare them.
//!
//! Invariant: rounds of variants are taken in turns, each on a rig of its own that was filled and
//! aged by the same loads.

use crate::freespace::loads::Loads;
use crate::freespace::rig::{Rig, Shape};
use crate::freespace::span::{Metric, Span};
use crate::node::BenchError;
use crate::summary::{Beside, Role, Row, Series};
use dblade::{AreaChoice, Configuration, CreateAggregate};

/// Is told what is done.
pub(super) type Progress<'a> = &'a mut dyn FnMut(&str);

/// What is different in an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub name: &'static str,
    /// In the engine, on drives of this shape.
    pub configure: fn(&Shape, &mut Configuration),
    /// In the aggregate that is made.
    pub create: fn(&mut CreateAggregate),
}

/// Nothing is different.
pub(super) const AS_IT_IS: Variant =
    Variant { name: "as it is", configure: |_, _| (), create: |_| () };

/// The areas that groups fill are chosen by chance.
pub(super) const GROUPS_BY_CHANCE: Variant = Variant {
    name: "groups by chance",
    configure: |_, engine| engine.tuning.group_choice = AreaChoice::Any,
    ..AS_IT_IS
};

/// The areas of volumes whose numbers are given are chosen by chance.
pub(super) const VOLUMES_BY_CHANCE: Variant = Variant {
    name: "volumes by chance",
    configure: |_, engine| engine.tuning.volume_choice = AreaChoice::Any,
    ..AS_IT_IS
};

/// A variant in a figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub variant: Variant,
    /// What FreeSpace found for it, as tables show it.
    pub paper: &'static [(Metric, f64)],
}

/// What a figure compares, and on what.
pub(super) struct Comparison {
    pub figure: &'static str,
    pub cases: &'static [Case],
    pub shape: Shape,
    pub rounds: usize,
}

/// Aggregates that are filled, overwritten at random, and measured while that goes on.
pub(super) struct Overwrites {
    pub volumes: usize,
    pub filled_percent: u64,
    /// Groups that join an aged aggregate.
    pub new_groups: usize,
    /// A round overwrites one in so many bytes.
    pub round_share: u64,
}

/// A case and what was measured of it.
pub(super) struct Measured {
    pub case: &'static Case,
    pub rounds: Vec<Span>,
}

impl Comparison {
    /// Prepares all cases, one after another, and measures them in turns.
    pub fn in_turns<T>(
        &self,
        progress: Progress<'_>,
        prepare: impl Fn(&Variant) -> Result<T, BenchError>,
        measure: impl Fn(&Variant, &mut T) -> Result<Span, BenchError>,
    ) -> Result<Vec<Measured>, BenchError> {
        let (mut prepared, mut measured) = (Vec::new(), Vec::new());
        for case in self.cases {
            progress(&format!("figure {}, {}", self.figure, case.variant.name));
            prepared.push(prepare(&case.variant)?);
            measured.push(Measured { case, rounds: Vec::new() });
        }
        progress(&format!("figure {}, measuring", self.figure));
        for _ in 0..self.rounds {
            for (prepared, measured) in prepared.iter_mut().zip(&mut measured) {
                measured.rounds.push(measure(&measured.case.variant, prepared)?);
            }
        }
        Ok(measured)
    }

    /// Fills aggregates, overwrites all of them `age` times, and measures overwrites.
    pub fn of_overwrites(
        &self,
        progress: Progress<'_>,
        load: &Overwrites,
        age: u64,
    ) -> Result<Vec<Measured>, BenchError> {
        let prepare = |variant: &Variant| {
            let rig = Rig::new(&self.shape, variant)?;
            let mut loads = Loads::aged(rig, load.volumes, load.filled_percent, age)?;
            if load.new_groups > 0 {
                loads.rig.add_groups(load.new_groups)?;
            }
            Ok(loads)
        };
        let measure = |_: &Variant, loads: &mut Loads| {
            loads.measure_overwrites(loads.bytes() / load.round_share)
        };
        self.in_turns(progress, prepare, measure)
    }

    /// A row for each metric and case, beside the first case and FreeSpace.
    pub fn rows(&self, metrics: &[Metric], measured: &[Measured]) -> Vec<Row> {
        let first = measured.first();
        let rows = metrics.iter().flat_map(|metric| {
            let beside = |number| first.filter(|_| number > 0);
            measured
                .iter()
                .enumerate()
                .map(move |(number, case)| self.row(*metric, case, beside(number)))
        });
        rows.collect()
    }

    fn row(&self, metric: Metric, measured: &Measured, first: Option<&Measured>) -> Row {
        let first = first.map(|first| Beside {
            name: first.case.variant.name.to_owned(),
            role: Role::Peer,
            series: series(metric, &first.rounds),
        });
        Row {
            load: format!("{}: {}, {}", self.figure, metric.name(), measured.case.variant.name),
            unit: metric.unit(),
            ours: series(metric, &measured.rounds),
            beside: first.into_iter().chain(paper(metric, measured)).collect(),
        }
    }
}

fn series(metric: Metric, rounds: &[Span]) -> Series {
    Series::of(rounds.iter().map(|span| metric.of(span)).collect())
}

/// FreeSpace's figure, as often as there are rounds that it stands beside.
fn paper(metric: Metric, measured: &Measured) -> Option<Beside> {
    let (_, value) = measured.case.paper.iter().find(|(of, _)| *of == metric)?;
    let rounds = vec![value * metric.unit().scale(); measured.rounds.len()];
    Some(Beside { name: "paper".to_owned(), role: Role::Orientation, series: Series::of(rounds) })
}
