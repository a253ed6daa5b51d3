//! Figures: medians of several rounds, their spread, and what stands beside them.
//!
//! Invariants: rounds of what is compared were taken in turns, so a share is the median of the
//! shares of each round, and what disturbed the machine for a while disturbed both sides of it.

use crate::latency::Latencies;
use crate::machine::Machine;

/// What a figure counts, each second but where it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Operations.
    Operations,
    /// Files.
    Files,
    /// Entries of a directory.
    Entries,
    /// Bytes; shown as MiB.
    Bytes,
    /// Not a rate but a time, in nanoseconds; shown as milliseconds.
    Duration,
    /// Not a rate but a number of records.
    Records,
    /// Not a rate but bytes; shown as MiB.
    Size,
    /// Not a rate but a share, in hundredths.
    Percent,
    /// Not a rate but a multiple, in millionths.
    Ratio,
    /// Not a rate but a number of what the load's name says.
    Count,
}

impl Unit {
    /// As a table shows it.
    #[must_use]
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Operations => "ops/s",
            Self::Files => "files/s",
            Self::Entries => "names/s",
            Self::Bytes => "MiB/s",
            Self::Duration => "ms",
            Self::Records => "records",
            Self::Size => "MiB",
            Self::Percent => "%",
            Self::Ratio => "x",
            Self::Count => "",
        }
    }

    /// As JSON names it: the base unit.
    #[must_use]
    pub const fn base(self) -> &'static str {
        match self {
            Self::Operations => "operations_per_second",
            Self::Files => "files_per_second",
            Self::Entries => "entries_per_second",
            Self::Bytes => "bytes_per_second",
            Self::Duration => "nanoseconds",
            Self::Records => "records",
            Self::Size => "bytes",
            Self::Percent => "percent",
            Self::Ratio => "millionths",
            Self::Count => "count",
        }
    }

    /// What one of what the table shows is in the base unit.
    #[must_use]
    pub const fn scale(self) -> f64 {
        match self {
            Self::Bytes | Self::Size => (1_u32 << 20) as f64,
            Self::Duration | Self::Ratio => 1e6,
            Self::Operations
            | Self::Files
            | Self::Entries
            | Self::Records
            | Self::Percent
            | Self::Count => 1.0,
        }
    }
}

/// The rounds of one load on one side.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    /// In the base unit, in the order taken.
    pub rounds: Vec<f64>,
    /// Of all rounds.
    pub latencies: Latencies,
    /// Processor time of the load generator over all rounds.
    pub client_nanoseconds: u64,
}

/// The middle of `values`, none of nothing.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    Some((upper + lower) / 2.0)
}

impl Series {
    /// Of rounds without latencies.
    #[must_use]
    pub fn of(rounds: Vec<f64>) -> Self {
        Self { rounds, ..Self::default() }
    }

    /// The middle round.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        median(self.rounds.clone())
    }

    /// Processor time of the load generator for each operation, where it was noted.
    #[must_use]
    pub const fn client_cost(&self) -> Option<u64> {
        match self.client_nanoseconds {
            0 => None,
            nanoseconds => nanoseconds.checked_div(self.latencies.total()),
        }
    }

    /// The slowest round.
    #[must_use]
    pub fn lowest(&self) -> Option<f64> {
        self.rounds.iter().copied().min_by(f64::total_cmp)
    }

    /// The fastest round.
    #[must_use]
    pub fn highest(&self) -> Option<f64> {
        self.rounds.iter().copied().max_by(f64::total_cmp)
    }
}

/// What something stands beside a figure for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It does nothing: the upper bound.
    Limit,
    /// It does the same: what others make of it.
    Peer,
    /// It does something else, for orientation.
    Orientation,
}

/// What stands beside a figure, measured in the same run.
#[derive(Clone, PartialEq, Debug)]
pub struct Beside {
    /// Its name.
    pub name: String,
    /// Why it is there.
    pub role: Role,
    /// Its rounds.
    pub series: Series,
}

/// One line of a bench.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What was done.
    pub load: String,
    /// What is counted.
    pub unit: Unit,
    /// Ours.
    pub ours: Series,
    /// Others.
    pub beside: Vec<Beside>,
}

impl Row {
    /// The one in `role`, if it was measured.
    #[must_use]
    pub fn in_role(&self, role: Role) -> Option<&Beside> {
        self.beside.iter().find(|beside| beside.role == role && !beside.series.rounds.is_empty())
    }

    /// Ours as a multiple of another's.
    #[must_use]
    pub fn share(&self, other: &Series) -> Option<f64> {
        let pairs = self.ours.rounds.iter().zip(&other.rounds);
        median(
            pairs
                .filter(|(_, theirs)| **theirs > 0.0)
                .map(|(ours, theirs)| ours / theirs)
                .collect(),
        )
    }
}

/// What a bench found.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// What it ran on.
    pub machine: Machine,
    /// The lines.
    pub rows: Vec<Row>,
    /// What a reader must know, such as what was skipped and why.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_the_rounds() {
        let series = |rounds: &[f64]| Series::of(rounds.to_vec());
        assert_eq!(series(&[]).median(), None);
        assert_eq!(series(&[3.0]).median(), Some(3.0));
        assert_eq!(series(&[9.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(series(&[9.0, 1.0, 2.0, 4.0]).median(), Some(3.0));
        let series = series(&[9.0, 1.0, 2.0]);
        assert_eq!((series.lowest(), series.highest()), (Some(1.0), Some(9.0)));
    }

    #[test]
    fn shares_compare_rounds_that_were_taken_together() {
        let ours = Series::of(vec![10.0, 1.0, 10.0]);
        let row = Row { load: "x".to_owned(), unit: Unit::Operations, ours, beside: Vec::new() };
        assert_eq!(row.share(&Series::of(vec![20.0, 2.0, 40.0])), Some(0.5));
        assert_eq!(row.share(&Series::default()), None);
    }
}
