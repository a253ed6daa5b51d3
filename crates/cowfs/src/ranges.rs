//! A set of half-open ranges of file block numbers: holes that were made and are not yet in the
//! tree.
//!
//! Invariants: ranges are sorted, disjoint, not empty, and do not touch.

/// See the module.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RangeSet {
    ranges: Vec<(u64, u64)>,
}

impl RangeSet {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self { ranges: vec![(0, u64::MAX)] }
    }

    /// Adds `start..end`.
    pub fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = self.ranges.partition_point(|range| range.0 <= end);
        let merged = self.ranges[first..last]
            .iter()
            .fold((start, end), |all, range| (all.0.min(range.0), all.1.max(range.1)));
        self.ranges.splice(first..last, [merged]);
    }

    /// Whether `number` is in the set.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.1 <= number);
        self.ranges.get(at).is_some_and(|range| range.0 <= number)
    }

    /// Whether all of `start..end` is in the set.
    #[must_use]
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.1 <= start);
        start >= end || self.ranges.get(at).is_some_and(|range| range.0 <= start && end <= range.1)
    }

    /// The ranges in order.
    #[must_use]
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_equal_a_set(adds in prop::collection::vec((0_u64..60, 0_u64..60), 0..20)) {
            let mut ranges = RangeSet::default();
            let mut naive = std::collections::BTreeSet::new();
            for (start, end) in adds {
                ranges.add(start, end);
                naive.extend(start..end);
            }
            for number in 0..60 {
                prop_assert_eq!(ranges.contains(number), naive.contains(&number));
                for end in number..60 {
                    let covered = (number..end).all(|n| naive.contains(&n));
                    prop_assert_eq!(ranges.covers(number, end), covered);
                }
            }
            prop_assert!(ranges.ranges().windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
