//! Figures: medians of several rounds, their spread, and what stands beside them.
//!
//! Invariants: rounds of what is compared were taken in turns, so a share is the median of the
//! shares of each round, and what disturbed the machine for a while disturbed both sides of it.

use crate::latency::Latencies;
use crate::machine::Machine;
use crate::measured::Sample;
use std::collections::BTreeMap;
use std::fmt;

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
    /// What the device below moved over all rounds, where it was counted.
    pub device: Option<DeviceBytes>,
}

/// Bytes that a device moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceBytes {
    /// From it.
    pub read: u64,
    /// To it.
    pub written: u64,
}

impl DeviceBytes {
    /// What came since an earlier count.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        let read = self.read.saturating_sub(earlier.read);
        let written = self.written.saturating_sub(earlier.written);
        Self { read, written }
    }
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

    /// Adds a round.
    pub(crate) fn note(&mut self, sample: &Sample) {
        self.rounds.push(sample.rate);
        self.latencies.add(&sample.latencies);
        self.client_nanoseconds += sample.client_nanoseconds;
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
    /// What the server did during some of the loads.
    pub spans: Vec<Span>,
}

/// What a server's threads did during a load, over all its rounds: sums over samples. Threads are
/// by the stages, and what waited by the queues, of `platform::stage`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// The load.
    pub load: String,
    /// How long it was looked at.
    pub nanoseconds: u64,
    /// Processor time of the server.
    pub processor_nanoseconds: u64,
    /// Samples that were taken.
    pub samples: u64,
    /// Threads that ran, or would if they had a processor.
    pub running: BTreeMap<String, u64>,
    /// Threads that slept in a stage.
    pub asleep: BTreeMap<String, u64>,
    /// What waited.
    pub waiting: BTreeMap<String, u64>,
    /// Samples in which anything waited.
    pub busy: BTreeMap<String, u64>,
}

impl Span {
    /// A sum as a mean over the samples, in millionths.
    #[must_use]
    pub fn mean_millionths(&self, sum: u64) -> u64 {
        (sum * 1_000_000).checked_div(self.samples).unwrap_or(0)
    }

    /// The means of some sums in percent, the largest first, those of half a percent and more.
    fn shares(&self, sums: &BTreeMap<String, u64>) -> String {
        let mut sums: Vec<_> = sums.iter().collect();
        sums.sort_by_key(|(_, sum)| std::cmp::Reverse(**sum));
        let share = |(name, sum): (&String, &u64)| {
            let percent = (self.mean_millionths(*sum) + 5_000) / 10_000;
            (percent > 0).then(|| format!("{name} {percent} %"))
        };
        let shares: Vec<_> = sums.into_iter().filter_map(share).collect();
        if shares.is_empty() { "nothing".to_owned() } else { shares.join(", ") }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processors = self.processor_nanoseconds as f64 / self.nanoseconds.max(1) as f64;
        let mean = |(name, sum): (&String, &u64)| {
            let mean = self.mean_millionths(*sum) as f64 / 1e6;
            let busy = self.mean_millionths(self.busy.get(name).copied().unwrap_or(0)) / 10_000;
            format!("{name} {mean:.1} (any in {busy} % of the time)")
        };
        let waiting: Vec<_> = self.waiting.iter().map(mean).collect();
        write!(
            formatter,
            "{}: {processors:.2} processors; running: {}; asleep: {}; waiting: {}",
            self.load,
            self.shares(&self.running),
            self.shares(&self.asleep),
            if waiting.is_empty() { "nothing".to_owned() } else { waiting.join(", ") },
        )
    }
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
    fn a_span_says_who_ran_and_what_waited_on_average() {
        let sums = |sums: &[(&str, u64)]| {
            sums.iter().map(|(name, sum)| ((*name).to_owned(), *sum)).collect()
        };
        let span = Span {
            load: "write".to_owned(),
            nanoseconds: 1_000,
            processor_nanoseconds: 1_500,
            samples: 200,
            running: sums(&[("copy", 50), ("parity", 100), ("reply", 0)]),
            asleep: sums(&[]),
            waiting: sums(&[("device-writes", 500)]),
            busy: sums(&[("device-writes", 150)]),
        };
        assert_eq!(
            span.to_string(),
            "write: 1.50 processors; running: parity 50 %, copy 25 %; asleep: nothing; \
             waiting: device-writes 2.5 (any in 75 % of the time)"
        );
    }

    #[test]
    fn shares_compare_rounds_that_were_taken_together() {
        let ours = Series::of(vec![10.0, 1.0, 10.0]);
        let row = Row { load: "x".to_owned(), unit: Unit::Operations, ours, beside: Vec::new() };
        assert_eq!(row.share(&Series::of(vec![20.0, 2.0, 40.0])), Some(0.5));
        assert_eq!(row.share(&Series::default()), None);
    }
}
