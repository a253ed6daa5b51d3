//! Latencies, counted by size.
//!
//! Invariants: 32 buckets for each power of two, so a quantile is right within three percent; the
//! size is fixed, whatever is recorded.

/// Buckets of each power of two.
const STEPS: u32 = 32;
const STEPS_LOG2: u32 = STEPS.trailing_zeros();

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latencies {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; ((64 - STEPS_LOG2 + 1) * STEPS) as usize], total: 0 }
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let power = nanoseconds.checked_ilog2().unwrap_or(0);
    if power < STEPS_LOG2 {
        return nanoseconds as usize;
    }
    let shift = power - STEPS_LOG2;
    ((shift * STEPS) as u64 + (nanoseconds >> shift)) as usize
}

/// The highest value of a bucket.
fn highest(bucket: usize) -> u64 {
    let (bucket, steps) = (bucket as u64, u64::from(STEPS));
    if bucket < 2 * steps {
        return bucket;
    }
    let shift = bucket / steps - 1;
    ((bucket % steps + steps + 1) << shift).wrapping_sub(1)
}

impl Latencies {
    /// Counts one.
    pub fn record(&mut self, nanoseconds: u64) {
        if let Some(count) = self.counts.get_mut(bucket(nanoseconds)) {
            *count += 1;
        }
        self.total += 1;
    }

    /// Adds what another counted.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.total += other.total;
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// How many were counted.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// What `share` of a thousand lies at or below; none if nothing was counted.
    #[must_use]
    pub fn quantile(&self, thousandths: u64) -> Option<u64> {
        let wanted = (self.total * thousandths).div_ceil(1000).max(1);
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        place.filter(|_| self.total > 0).map(highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_hold_what_falls_into_them() {
        let mut last = 0;
        for power in 0..63_u32 {
            for value in [1_u64 << power, (1 << power) + (1 << power) / 3, (2 << power) - 1] {
                let found = bucket(value);
                assert!(found >= last, "{value}");
                last = found;
                let high = highest(found);
                assert!(high >= value && high - value <= value / 32, "{value} {high}");
            }
        }
        assert!(bucket(u64::MAX) < Latencies::default().counts.len());
    }

    #[test]
    fn quantiles_are_within_three_percent() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(500), None);
        (1..=10_000).for_each(|value| latencies.record(value * 1000));
        for (thousandths, expected) in [(500, 5_000_000), (990, 9_900_000), (1000, 10_000_000)] {
            let found = latencies.quantile(thousandths).unwrap();
            assert!(found.abs_diff(expected) <= expected / 32, "{thousandths}: {found}");
        }
        let copy = latencies.clone();
        latencies.add(&copy);
        assert_eq!(latencies.total(), 20_000);
        latencies.clear();
        assert_eq!(latencies, Latencies::default());
    }
}
