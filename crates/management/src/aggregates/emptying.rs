//! How fast groups are emptied that leave.
//!
//! Invariant: how much is left is the engine's, also after a start; only the pace is kept here.

use aggregate::Leaving;
use platform::sync::Mutex;
use raid::Pace;
use std::collections::{BTreeMap, VecDeque};
use units::BLOCK_SIZE_U64;

/// The pace is that of the last so many nanoseconds: a minute, as for rebuilds.
const RECENT_NANOSECONDS: u64 = 60_000_000_000;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// What was in use in a group, and when.
struct Marks {
    group: u32,
    marks: VecDeque<(u64, u64)>,
}

impl Marks {
    fn add(&mut self, now: u64, used_blocks: u64) {
        self.marks.push_back((now, used_blocks));
        while self.marks.get(1).is_some_and(|(at, _)| now - at >= RECENT_NANOSECONDS) {
            self.marks.pop_front();
        }
    }

    fn pace(&self) -> Pace {
        let (Some((then, before)), Some((now, left))) = (self.marks.front(), self.marks.back())
        else {
            return Pace::default();
        };
        let (nanoseconds, second) = (u128::from(now - then), u128::from(NANOSECONDS_PER_SECOND));
        let bytes = u128::from(before.saturating_sub(*left)) * u128::from(BLOCK_SIZE_U64);
        let per_second = (bytes * second).checked_div(nanoseconds).unwrap_or(0);
        let bytes_left = u128::from(*left) * u128::from(BLOCK_SIZE_U64);
        let number = |wide: u128| u64::try_from(wide).unwrap_or(u64::MAX);
        let seconds_left = bytes_left.checked_div(per_second).map(number);
        Pace { bytes_per_second: number(per_second), seconds_left }
    }
}

/// How fast groups are emptied, by aggregate.
#[derive(Default)]
pub(crate) struct Emptying(Mutex<BTreeMap<String, Marks>>);

impl Emptying {
    /// Notes what is left of the groups that leave; whether others have left since, or stay.
    pub(crate) fn observe(&self, now: u64, leaving: &BTreeMap<String, Leaving>) -> bool {
        let mut known = self.0.lock();
        let before = known.len();
        known.retain(|name, marks| leaving.get(name).is_some_and(|one| one.group == marks.group));
        let has_ended = known.len() < before;
        for (name, one) in leaving {
            let new = || Marks { group: one.group, marks: VecDeque::new() };
            let marks = known.entry(name.clone()).or_insert_with(new);
            one.used_blocks.into_iter().for_each(|used| marks.add(now, used));
        }
        has_ended
    }

    pub(crate) fn pace(&self, aggregate: &str) -> Pace {
        self.0.lock().get(aggregate).map_or_else(Pace::default, Marks::pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = NANOSECONDS_PER_SECOND;

    fn leaving(group: u32, used_blocks: u64) -> BTreeMap<String, Leaving> {
        let one = Leaving { group, used_blocks: Some(used_blocks), blocks: 8192 };
        BTreeMap::from([("a1".to_owned(), one)])
    }

    #[test]
    fn the_pace_is_that_of_the_last_minute() {
        let seen = Emptying::default();
        assert!(!seen.observe(0, &leaving(1, 6000)));
        assert_eq!(seen.pace("a1"), Pace::default());
        // Nothing for a minute, then 20 blocks a second.
        seen.observe(60 * SECOND, &leaving(1, 6000));
        seen.observe(120 * SECOND, &leaving(1, 4800));
        let pace = seen.pace("a1");
        assert_eq!((pace.bytes_per_second, pace.seconds_left), (20 * BLOCK_SIZE_U64, Some(240)));
    }

    #[test]
    fn it_is_seen_that_a_group_has_left_or_another_leaves() {
        let seen = Emptying::default();
        assert!(!seen.observe(0, &BTreeMap::new()) && !seen.observe(0, &leaving(1, 9)));
        assert!(!seen.observe(1, &leaving(1, 8)));
        assert!(seen.observe(2, &leaving(0, 90)));
        assert!(seen.observe(3, &BTreeMap::new()) && !seen.observe(4, &BTreeMap::new()));
    }
}
