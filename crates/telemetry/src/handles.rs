//! What code updates: a few atomics behind an `Arc`.
//!
//! Invariants: updates are relaxed and never lock, allocate or fail. Readers may see a histogram's
//! sum and counts a few observations apart; each number on its own is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A number in a cache line of its own: two busy counters must not slow each other down.
#[derive(Default, Debug)]
#[repr(align(64))]
pub(crate) struct Cell<T>(pub(crate) T);

/// Only grows.
#[derive(Clone, Default, Debug)]
pub struct Counter(pub(crate) Arc<Cell<AtomicU64>>);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }
}

/// Goes up and down.
#[derive(Clone, Default, Debug)]
pub struct Gauge(pub(crate) Arc<Cell<AtomicI64>>);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: i64) {
        self.0.0.store(value, Ordering::Relaxed);
    }

    /// Replaces the value by a count, which saturates at the largest a gauge holds.
    pub fn set_count(&self, value: u64) {
        self.set(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Adds `change`, which may be negative.
    pub fn add(&self, change: i64) {
        self.0.0.fetch_add(change, Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Buckets {
    pub(crate) bounds: &'static [u64],
    /// One more than there are bounds: the last holds what is above all of them.
    pub(crate) counts: Box<[AtomicU64]>,
    pub(crate) sum: AtomicU64,
}

/// Counts observations by size.
#[derive(Clone, Debug)]
pub struct Histogram(pub(crate) Arc<Buckets>);

impl Histogram {
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Buckets { bounds, counts, sum: AtomicU64::new(0) }))
    }

    /// Counts durations, for whoever counts before a registry asks ([`crate::Registry::show`]).
    #[must_use]
    pub fn durations() -> Self {
        Self::new(crate::definitions::CP_DURATION.bounds)
    }

    /// Counts one observation, in the definition's unit.
    pub fn observe(&self, value: u64) {
        let bucket = self.0.bounds.partition_point(|bound| *bound < value);
        // In range: partition_point is at most the number of bounds, and there is one bucket more.
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// How many observations there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_are_inclusive() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, u64::MAX >> 1] {
            histogram.observe(value);
        }
        let counts: Vec<u64> =
            histogram.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [2, 2, 2]);
    }

    proptest! {
        #[test]
        fn buckets_agree_with_a_naive_count(values in prop::collection::vec(0_u64..2000, 0..200)) {
            const BOUNDS: &[u64] = &[1, 7, 64, 500, 1000];
            let histogram = Histogram::new(BOUNDS);
            values.iter().for_each(|value| histogram.observe(*value));
            let mut below = 0;
            for (index, bound) in BOUNDS.iter().enumerate() {
                below += histogram.0.counts[index].load(Ordering::Relaxed);
                let expected = values.iter().filter(|value| *value <= bound).count();
                prop_assert_eq!(below, expected as u64);
            }
            prop_assert_eq!(histogram.count(), values.len() as u64);
            prop_assert_eq!(histogram.0.sum.load(Ordering::Relaxed), values.iter().sum::<u64>());
        }
    }
}
