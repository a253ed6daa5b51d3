//! A set of half-open ranges of file block numbers: holes that were made and are not yet in the
//! tree.
//!
//! Invariants: ranges are sorted, disjoint, not empty, and do not touch.

use units::Fbn;

/// See the module.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RangeSet {
    ranges: Vec<(Fbn, Fbn)>,
}

impl RangeSet {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self { ranges: vec![(Fbn(0), Fbn::END)] }
    }

    /// Adds `start..end`.
    pub fn add(&mut self, start: Fbn, end: Fbn) {
        if start >= end {
            return;
        }
        if self.ranges.last().is_none_or(|last| last.1 < start) {
            self.ranges.push((start, end)); // most are added in order
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = self.ranges.partition_point(|range| range.0 <= end);
        let merged = self.ranges[first..last]
            .iter()
            .fold((start, end), |all, range| (all.0.min(range.0), all.1.max(range.1)));
        self.ranges.splice(first..last, [merged]);
    }

    /// Whether `fbn` is in the set.
    #[must_use]
    pub fn contains(&self, fbn: Fbn) -> bool {
        let at = self.ranges.partition_point(|range| range.1 <= fbn);
        self.ranges.get(at).is_some_and(|range| range.0 <= fbn)
    }

    /// Whether all of `start..end` is in the set.
    #[must_use]
    pub fn covers(&self, start: Fbn, end: Fbn) -> bool {
        let at = self.ranges.partition_point(|range| range.1 <= start);
        start >= end || self.ranges.get(at).is_some_and(|range| range.0 <= start && end <= range.1)
    }

    /// The ranges in order.
    #[must_use]
    pub fn ranges(&self) -> &[(Fbn, Fbn)] {
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
                ranges.add(Fbn(start), Fbn(end));
                naive.extend(start..end);
            }
            for number in 0..60 {
                prop_assert_eq!(ranges.contains(Fbn(number)), naive.contains(&number));
                for end in number..60 {
                    let covered = (number..end).all(|n| naive.contains(&n));
                    prop_assert_eq!(ranges.covers(Fbn(number), Fbn(end)), covered);
                }
            }
            prop_assert!(ranges.ranges().windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
