//! The values of all metrics at one time, as they travel to `stroop status -o json`.
//!
//! Invariants: integers in base units (see [`crate::Unit`]); the order is that of names, then of
//! label values, so that two snapshots of the same values are the same bytes.

use crate::definitions::{Kind, Unit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One series' value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// A count since the start.
    Counter(u64),
    /// A value now.
    Gauge(i64),
    /// Observations by size.
    Histogram {
        /// Upper bounds, inclusive.
        bounds: Vec<u64>,
        /// Observations in each bucket; one more than there are bounds.
        counts: Vec<u64>,
        /// The sum of all observations.
        sum: u64,
    },
}

/// One series.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeriesSnapshot {
    /// Label values by name.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: Value,
}

/// One metric.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MetricSnapshot {
    /// The name.
    pub name: String,
    /// One sentence.
    pub help: String,
    /// The kind.
    pub kind: Kind,
    /// The unit of the integers.
    pub unit: Unit,
    /// The series.
    pub series: Vec<SeriesSnapshot>,
}

/// All metrics that have a series.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// By name.
    pub metrics: Vec<MetricSnapshot>,
}

impl Snapshot {
    /// The value of the series whose label values, in the order of the label names, are these.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[&str]) -> Option<&Value> {
        let metric = self.metrics.iter().find(|metric| metric.name == name)?;
        let definition = crate::definitions::ALL.iter().find(|known| known.name == name)?;
        let wanted: BTreeMap<&str, &str> =
            definition.labels.iter().copied().zip(labels.iter().copied()).collect();
        let matches = |series: &&SeriesSnapshot| {
            let held = series.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            held.eq(wanted.iter().map(|(name, value)| (*name, *value)))
        };
        Some(&metric.series.iter().find(matches)?.value)
    }
}
