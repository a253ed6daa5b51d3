//! Which series exist.
//!
//! A counter may follow a sum that is counted elsewhere ([`Registry::follow`]): the sum of an
//! aggregate begins at zero when the aggregate is opened again, the counter does not.
//!
//! Invariants: one lock, taken only to ask for a handle, to follow a sum, to forget series and to
//! take a snapshot; asking twice for the same labels gives the same series; no counter goes back.

use crate::definitions::{Definition, Kind};
use crate::handles::{Counter, Gauge, Histogram};
use crate::snapshot::{MetricSnapshot, SeriesSnapshot, Snapshot, Value};
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Series of one metric. Reached by 1,000 volumes times the operations of two protocols only if
/// nearly all are busy; at 64 to 300 bytes each a metric stays below some megabytes.
pub const SERIES_PER_METRIC_MAX: usize = 16_384;

/// The value of every label of the series that takes what is past the limit.
pub(crate) const OVERFLOW: &str = "(overflow)";

#[derive(Clone)]
enum Series {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// What becomes of a sum that a counter follows when the place that counts it begins anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sum {
    /// It begins at zero: a sum that is less than the last one is all new.
    Restarts,
    /// It is kept elsewhere, and what is kept may be a little old, or be cleared: a sum that is
    /// less than the last one is nothing new.
    Kept,
}

struct Metric {
    definition: &'static Definition,
    series: BTreeMap<Vec<String>, Series>,
    /// The last sum of each counter that follows one.
    followed: BTreeMap<Vec<String>, u64>,
}

/// The metrics of one node.
#[derive(Default)]
pub struct Registry {
    metrics: Mutex<BTreeMap<&'static str, Metric>>,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The counter with these label values.
    ///
    /// # Panics
    /// If the definition is no counter or has another number of labels.
    #[must_use]
    pub fn counter(&self, definition: &'static Definition, labels: &[&str]) -> Counter {
        let Series::Counter(counter) = self.series(definition, labels, Kind::Counter) else {
            unreachable!("the kind was checked");
        };
        counter
    }

    /// Adds to a counter what a sum that is counted elsewhere grew by since the last time. The
    /// first time that is all of it.
    ///
    /// A sum that begins anew and passes its last value before it is followed again cannot be told
    /// from one that went on: its counter then grows by too little, and never by too much.
    ///
    /// # Panics
    /// If the definition is no counter or has another number of labels.
    pub fn follow(&self, definition: &'static Definition, labels: &[&str], sum: u64, kind: Sum) {
        let counter = self.counter(definition, labels);
        let key: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut metrics = self.metrics.lock();
        let Some(metric) = metrics.get_mut(definition.name) else { return };
        // Past the limit of series many share one, and sums of several would be taken for one that
        // begins anew again and again.
        if !metric.series.contains_key(&key) {
            return;
        }
        let last = metric.followed.insert(key, sum).unwrap_or(0);
        counter.add(match sum.checked_sub(last) {
            Some(new) => new,
            None if kind == Sum::Restarts => sum,
            None => 0,
        });
    }

    /// The gauge with these label values.
    ///
    /// # Panics
    /// If the definition is no gauge or has another number of labels.
    #[must_use]
    pub fn gauge(&self, definition: &'static Definition, labels: &[&str]) -> Gauge {
        let Series::Gauge(gauge) = self.series(definition, labels, Kind::Gauge) else {
            unreachable!("the kind was checked");
        };
        gauge
    }

    /// The histogram with these label values.
    ///
    /// # Panics
    /// If the definition is no histogram or has another number of labels.
    #[must_use]
    pub fn histogram(&self, definition: &'static Definition, labels: &[&str]) -> Histogram {
        let Series::Histogram(histogram) = self.series(definition, labels, Kind::Histogram) else {
            unreachable!("the kind was checked");
        };
        histogram
    }

    /// Drops every series whose `label` is `value`: the volume was deleted, say. Handles that are
    /// still held stay usable; nobody reads them.
    pub fn forget(&self, label: &str, value: &str) {
        self.retain(label, |held| held != value);
    }

    /// The same of one metric: it says nothing of what has this label now.
    pub fn forget_of(&self, definition: &'static Definition, label: &str, value: &str) {
        if let Some(metric) = self.metrics.lock().get_mut(definition.name) {
            metric.retain(label, |held| held != value);
        }
    }

    /// Drops every series whose `label` has another value than those that `is_there` knows: volumes
    /// and disks come and go.
    pub fn retain(&self, label: &str, is_there: impl Fn(&str) -> bool) {
        for metric in self.metrics.lock().values_mut() {
            metric.retain(label, |held| held == OVERFLOW || is_there(held));
        }
    }

    /// Shows a histogram that is counted elsewhere, in place of the one with these label values.
    ///
    /// # Panics
    /// If the definition is no histogram of these bounds or has another number of labels.
    pub fn show(&self, definition: &'static Definition, labels: &[&str], shown: &Histogram) {
        assert!(shown.0.bounds == definition.bounds, "{}: bounds", definition.name);
        let _made = self.histogram(definition, labels);
        let key: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut metrics = self.metrics.lock();
        let metric = metrics.get_mut(definition.name);
        if let Some(series) = metric.and_then(|metric| metric.series.get_mut(&key)) {
            *series = Series::Histogram(shown.clone());
        }
    }

    /// All values, now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let metrics = self.metrics.lock();
        let metrics = metrics.values().filter(|metric| !metric.series.is_empty());
        Snapshot { metrics: metrics.map(Metric::snapshot).collect() }
    }

    fn series(&self, definition: &'static Definition, labels: &[&str], kind: Kind) -> Series {
        assert!(definition.kind == kind, "{} is a {:?}", definition.name, definition.kind);
        assert!(definition.labels.len() == labels.len(), "{}: labels", definition.name);
        let mut metrics = self.metrics.lock();
        let metric = metrics.entry(definition.name).or_insert_with(|| Metric::new(definition));
        let mut key: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        if metric.series.len() >= SERIES_PER_METRIC_MAX && !metric.series.contains_key(&key) {
            key.iter_mut().for_each(|label| OVERFLOW.clone_into(label));
        }
        let new = || match kind {
            Kind::Counter => Series::Counter(Counter::default()),
            Kind::Gauge => Series::Gauge(Gauge::default()),
            Kind::Histogram => Series::Histogram(Histogram::new(definition.bounds)),
        };
        metric.series.entry(key).or_insert_with(new).clone()
    }
}

impl Metric {
    const fn new(definition: &'static Definition) -> Self {
        Self { definition, series: BTreeMap::new(), followed: BTreeMap::new() }
    }

    fn retain(&mut self, label: &str, is_kept: impl Fn(&str) -> bool) {
        let mut labels = self.definition.labels.iter();
        let Some(place) = labels.position(|name| *name == label) else { return };
        let is_kept = |values: &[String]| values.get(place).is_none_or(|held| is_kept(held));
        self.series.retain(|values, _| is_kept(values));
        self.followed.retain(|values, _| is_kept(values));
    }

    fn snapshot(&self) -> MetricSnapshot {
        let labels = self.definition.labels;
        let series = self.series.iter().map(|(values, series)| SeriesSnapshot {
            labels: labels.iter().map(|name| (*name).to_owned()).zip(values.clone()).collect(),
            value: series.value(),
        });
        MetricSnapshot {
            name: self.definition.name.to_owned(),
            help: self.definition.help.to_owned(),
            kind: self.definition.kind,
            unit: self.definition.unit,
            series: series.collect(),
        }
    }
}

impl Series {
    fn value(&self) -> Value {
        match self {
            Self::Counter(counter) => Value::Counter(counter.get()),
            Self::Gauge(gauge) => Value::Gauge(gauge.get()),
            Self::Histogram(histogram) => {
                let buckets = &histogram.0;
                let counts = buckets.counts.iter().map(|count| count.load(Ordering::Relaxed));
                Value::Histogram {
                    bounds: buckets.bounds.to_vec(),
                    counts: counts.collect(),
                    sum: buckets.sum.load(Ordering::Relaxed),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::{
        CP_BACK_TO_BACK, CP_COMMITTED, CP_DURATION, VOLUME_BYTES, VOLUME_FILES,
    };

    #[test]
    fn the_same_labels_give_the_same_series() {
        let registry = Registry::new();
        registry.gauge(&VOLUME_BYTES, &["home", "live"]).set(7);
        registry.gauge(&VOLUME_BYTES, &["home", "live"]).add(1);
        registry.gauge(&VOLUME_BYTES, &["data", "live"]).set(3);
        let snapshot = registry.snapshot();
        assert_eq!(
            snapshot.value("stroop_volume_bytes", &["home", "live"]),
            Some(&Value::Gauge(8))
        );
        registry.forget("volume", "home");
        let snapshot = registry.snapshot();
        assert_eq!(snapshot.value("stroop_volume_bytes", &["home", "live"]), None);
        assert_eq!(
            snapshot.value("stroop_volume_bytes", &["data", "live"]),
            Some(&Value::Gauge(3))
        );
    }

    #[test]
    fn only_what_is_there_is_kept() {
        let registry = Registry::new();
        for volume in ["home", "work"] {
            registry.gauge(&VOLUME_BYTES, &[volume, "live"]).set(1);
        }
        let shown = Histogram::durations();
        registry.show(&CP_DURATION, &["a1", "all"], &shown);
        registry.show(&CP_DURATION, &["a1", "all"], &shown);
        shown.observe(7);
        registry.retain("volume", |name| name == "work");
        let snapshot = registry.snapshot();
        let value = |name, labels: &[&str]| snapshot.value(name, labels).cloned();
        assert_eq!(value("stroop_volume_bytes", &["home", "live"]), None);
        assert_eq!(value("stroop_volume_bytes", &["work", "live"]), Some(Value::Gauge(1)));
        let counted = value("stroop_cp_duration_seconds", &["a1", "all"]);
        assert!(matches!(counted, Some(Value::Histogram { sum: 7, .. })), "{counted:?}");
    }

    #[test]
    fn a_counter_grows_by_what_a_sum_that_began_anew_counts() {
        let registry = Registry::new();
        let shown = |sum, kind| {
            registry.follow(&CP_COMMITTED, &["a1"], sum, kind);
            registry.counter(&CP_COMMITTED, &["a1"]).get()
        };
        assert_eq!([41, 41, 44].map(|sum| shown(sum, Sum::Restarts)), [41, 41, 44]);
        // The aggregate was away, and was opened again.
        assert_eq!([0, 3, 12, 0, 1].map(|sum| shown(sum, Sum::Restarts)), [44, 47, 56, 56, 57]);
        registry.forget("aggregate", "a1");
        assert_eq!([5, 7].map(|sum| shown(sum, Sum::Kept)), [5, 7]);
        // It came back without the last of them.
        assert_eq!([6, 7, 0, 2].map(|sum| shown(sum, Sum::Kept)), [7, 8, 8, 10]);
        registry.retain("aggregate", |_| false);
        assert_eq!(shown(3, Sum::Restarts), 3, "the aggregate was deleted, and made again");
    }

    #[test]
    fn one_metric_of_a_label_is_forgotten() {
        let registry = Registry::new();
        registry.gauge(&VOLUME_BYTES, &["home", "live"]).set(7);
        registry.gauge(&VOLUME_BYTES, &["work", "live"]).set(7);
        registry.gauge(&VOLUME_FILES, &["home"]).set(7);
        registry.forget_of(&VOLUME_BYTES, "volume", "home");
        let snapshot = registry.snapshot();
        let is_shown = |name, labels: &[&str]| snapshot.value(name, labels).is_some();
        assert!(!is_shown("stroop_volume_bytes", &["home", "live"]));
        assert!(is_shown("stroop_volume_bytes", &["work", "live"]));
        assert!(is_shown("stroop_volume_files", &["home"]));
    }

    #[test]
    fn series_are_bounded() {
        let registry = Registry::new();
        for index in 0..SERIES_PER_METRIC_MAX + 100 {
            registry.gauge(&VOLUME_BYTES, &[&format!("v{index}"), "live"]).add(1);
        }
        let snapshot = registry.snapshot();
        assert_eq!(snapshot.metrics[0].series.len(), SERIES_PER_METRIC_MAX + 1);
        let overflow = snapshot.value("stroop_volume_bytes", &[OVERFLOW, OVERFLOW]);
        assert_eq!(overflow, Some(&Value::Gauge(100)));
    }

    #[test]
    #[should_panic(expected = "stroop_cp_back_to_back_total")]
    fn a_wrong_kind_is_refused() {
        let _ = Registry::new().gauge(&CP_BACK_TO_BACK, &["a1"]);
    }

    #[test]
    #[should_panic(expected = "labels")]
    fn missing_labels_are_refused() {
        let _ = Registry::new().histogram(&CP_DURATION, &[]);
    }
}
