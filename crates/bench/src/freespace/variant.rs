//! Variants of the engine, and figures that compare them.
//!
//! Invariant: rounds of variants are taken in turns, each on a rig of its own that was filled and
//! aged by the same loads.

use crate::freespace::Progress;
use crate::freespace::loads::Loads;
use crate::freespace::rig::{Rig, Shape};
use crate::freespace::span::{Metric, Span};
use crate::node::BenchError;
use crate::summary::{Beside, Role, Row, Series};
use dblade::{AreaChoice, Configuration, CreateAggregate};

/// What is different in an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub name: &'static str,
    /// In the engine.
    pub configure: fn(&mut Configuration),
    /// In the aggregate that is made.
    pub create: fn(&mut CreateAggregate),
}

/// Nothing is different.
pub(super) const AS_IT_IS: Variant =
    Variant { name: "as it is", configure: |_| (), create: |_| () };

/// The areas that groups fill are chosen by chance.
pub(super) const GROUPS_BY_CHANCE: Variant = Variant {
    name: "groups by chance",
    configure: |engine| engine.tuning.group_choice = AreaChoice::Any,
    ..AS_IT_IS
};

/// The areas of volumes whose numbers are given are chosen by chance.
pub(super) const VOLUMES_BY_CHANCE: Variant = Variant {
    name: "volumes by chance",
    configure: |engine| engine.tuning.volume_choice = AreaChoice::Any,
    ..AS_IT_IS
};

/// A variant in a figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub variant: Variant,
    /// What the paper found for it, as tables show it.
    pub paper: &'static [(Metric, f64)],
}

/// What a figure compares, and on what.
pub(super) struct Comparison {
    pub figure: &'static str,
    pub cases: &'static [Case],
    pub shape: Shape,
    pub rounds: usize,
}

/// A case and what was measured of it.
pub(super) struct Measured {
    pub case: &'static Case,
    pub rounds: Vec<Span>,
}

impl Comparison {
    /// Prepares all cases, one after another, and measures them in turns.
    pub fn in_turns(
        &self,
        progress: Progress<'_>,
        prepare: impl Fn(Rig) -> Result<Loads, BenchError>,
        measure: impl Fn(&mut Loads) -> Result<Span, BenchError>,
    ) -> Result<Vec<Measured>, BenchError> {
        let (mut prepared, mut measured) = (Vec::new(), Vec::new());
        for case in self.cases {
            progress(&format!("figure {}, {}", self.figure, case.variant.name));
            prepared.push(prepare(Rig::new(&self.shape, &case.variant)?)?);
            measured.push(Measured { case, rounds: Vec::new() });
        }
        progress(&format!("figure {}, measuring", self.figure));
        for _ in 0..self.rounds {
            for (loads, measured) in prepared.iter_mut().zip(&mut measured) {
                measured.rounds.push(measure(loads)?);
            }
        }
        Ok(measured)
    }

    /// A row for each metric and case, beside the first case and the paper.
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

/// The paper's figure, as often as there are rounds that it stands beside.
fn paper(metric: Metric, measured: &Measured) -> Option<Beside> {
    let (_, value) = measured.case.paper.iter().find(|(of, _)| *of == metric)?;
    let rounds = vec![value * metric.unit().scale(); measured.rounds.len()];
    Some(Beside { name: "paper".to_owned(), role: Role::Orientation, series: Series::of(rounds) })
}
