//! When an aggregate that is away is tried again.
//!
//! Invariants: a try that failed is repeated later and later, up to [`RETRY_NANOSECONDS_MAX`], but
//! at once when another disk comes.

use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use units::{AggregateUuid, DiskUuid};

/// How long others may come later than those that are enough: a shelf's disks start one after
/// another, and one that is there when the aggregate is opened need not be missed first.
const REST_NANOSECONDS: u64 = 5_000_000_000;
/// The wait after an opening that failed; each further one is twice as long.
const RETRY_NANOSECONDS_MIN: u64 = 2_000_000_000;
/// And at most: what failed for another reason than disks is opened within a minute of its end.
const RETRY_NANOSECONDS_MAX: u64 = 60_000_000_000;

/// What came of the last try with an aggregate.
struct Try {
    found: BTreeSet<DiskUuid>,
    wait_nanoseconds: u64,
    not_before_nanoseconds: u64,
}

/// The tries, by aggregate.
#[derive(Default)]
pub(crate) struct Tries(Mutex<BTreeMap<AggregateUuid, Try>>);

impl Tries {
    /// Whether to try now, with these disks.
    pub(crate) fn is_due(
        &self,
        aggregate: AggregateUuid,
        disks: (&BTreeSet<DiskUuid>, bool),
        now: u64,
    ) -> bool {
        let (found, is_complete) = disks;
        let mut tries = self.0.lock();
        match tries.get(&aggregate) {
            Some(last) if last.found == *found => now >= last.not_before_nanoseconds,
            _ if is_complete => true,
            _ => {
                let (wait_nanoseconds, found) = (RETRY_NANOSECONDS_MIN / 2, found.clone());
                let not_before_nanoseconds = now.saturating_add(REST_NANOSECONDS);
                let next = Try { found, wait_nanoseconds, not_before_nanoseconds };
                tries.insert(aggregate, next);
                false
            }
        }
    }

    /// Notes a try: the next one with these disks comes later. One that went well long ago does not
    /// count.
    pub(crate) fn note(&self, aggregate: AggregateUuid, found: BTreeSet<DiskUuid>, now: u64) {
        let mut tries = self.0.lock();
        let wait = tries.get(&aggregate).map_or(RETRY_NANOSECONDS_MIN, |last| {
            let is_old = now >= last.not_before_nanoseconds.saturating_add(RETRY_NANOSECONDS_MAX);
            let doubled = (2 * last.wait_nanoseconds).min(RETRY_NANOSECONDS_MAX);
            if is_old { RETRY_NANOSECONDS_MIN } else { doubled }
        });
        let not_before_nanoseconds = now.saturating_add(wait);
        let next = Try { found, wait_nanoseconds: wait, not_before_nanoseconds };
        tries.insert(aggregate, next);
    }

    /// Whether so many tries failed that the wait is as long as it becomes.
    pub(crate) fn is_rare(&self, aggregate: AggregateUuid) -> bool {
        let tries = self.0.lock();
        tries.get(&aggregate).is_some_and(|last| last.wait_nanoseconds == RETRY_NANOSECONDS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_failed_is_repeated_later_and_at_once_with_another_disk() {
        let tries = Tries::default();
        let (one, two) = (
            BTreeSet::from([DiskUuid([1; 16])]),
            BTreeSet::from([DiskUuid([1; 16]), DiskUuid([2; 16])]),
        );
        let is_due = |at: u8, found, now| tries.is_due(AggregateUuid([at; 16]), (found, true), now);
        assert!(is_due(7, &one, 0));
        tries.note(AggregateUuid([7; 16]), one.clone(), 0);
        assert!(!is_due(7, &one, RETRY_NANOSECONDS_MIN - 1));
        assert!(is_due(7, &one, RETRY_NANOSECONDS_MIN));
        assert!(is_due(7, &two, 1) && is_due(8, &one, 1));
        tries.note(AggregateUuid([7; 16]), one.clone(), RETRY_NANOSECONDS_MIN);
        let next = 3 * RETRY_NANOSECONDS_MIN;
        assert!(!is_due(7, &one, next - 1) && is_due(7, &one, next));
        assert!(!tries.is_rare(AggregateUuid([7; 16])));
        (0..40).for_each(|_| tries.note(AggregateUuid([7; 16]), one.clone(), next));
        assert!(is_due(7, &one, next + RETRY_NANOSECONDS_MAX));
        assert!(tries.is_rare(AggregateUuid([7; 16])) && !tries.is_rare(AggregateUuid([8; 16])));
        let late = next + 2 * RETRY_NANOSECONDS_MAX;
        tries.note(AggregateUuid([7; 16]), one.clone(), late);
        assert!(is_due(7, &one, late + RETRY_NANOSECONDS_MIN));
    }

    #[test]
    fn disks_that_are_enough_wait_a_moment_for_the_others() {
        let tries = Tries::default();
        let (one, two) = (
            BTreeSet::from([DiskUuid([1; 16])]),
            BTreeSet::from([DiskUuid([1; 16]), DiskUuid([2; 16])]),
        );
        let is_due = |found, is_complete, now| {
            tries.is_due(AggregateUuid([7; 16]), (found, is_complete), now)
        };
        assert!(!is_due(&one, false, 0) && !is_due(&one, false, REST_NANOSECONDS - 1));
        assert!(is_due(&one, false, REST_NANOSECONDS));
        assert!(!is_due(&two, false, REST_NANOSECONDS), "another may follow this one");
        assert!(is_due(&BTreeSet::from([DiskUuid([3; 16])]), true, REST_NANOSECONDS));
    }
}
