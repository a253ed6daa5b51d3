//! How fast groups are emptied that leave.
//!
//! Invariant: how much is left is the engine's, also after a start; only the pace is kept here.

use crate::pace::Recent;
use aggregate::Evacuation;
use platform::sync::Mutex;
use raid::Pace;
use std::collections::BTreeMap;
use units::BLOCK_SIZE_U64;

/// What was free in a group of late, and how much is left.
struct Marks {
    group: u32,
    left_bytes: u64,
    recent: Recent,
}

impl Marks {
    fn add(&mut self, now: u64, used_blocks: u64, blocks: u64) {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_SIZE_U64);
        self.left_bytes = bytes(used_blocks);
        self.recent.add(now, bytes(blocks.saturating_sub(used_blocks)));
    }

    fn pace(&self) -> Pace {
        self.recent.pace(self.left_bytes)
    }
}

/// How fast groups are emptied, by aggregate.
#[derive(Default)]
pub(crate) struct Emptying(Mutex<BTreeMap<String, Marks>>);

impl Emptying {
    /// Notes what is left of the groups that leave; whether others have left since, or stay.
    pub(crate) fn observe(&self, now: u64, leaving: &BTreeMap<String, Evacuation>) -> bool {
        let mut known = self.0.lock();
        let before = known.len();
        known.retain(|name, marks| leaving.get(name).is_some_and(|one| one.group == marks.group));
        let has_ended = known.len() < before;
        for (name, one) in leaving {
            let new = || Marks { group: one.group, left_bytes: 0, recent: Recent::default() };
            let marks = known.entry(name.clone()).or_insert_with(new);
            one.used_blocks.into_iter().for_each(|used| marks.add(now, used, one.blocks));
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

    const SECOND: u64 = 1_000_000_000;

    fn leaving(group: u32, used_blocks: u64) -> BTreeMap<String, Evacuation> {
        let one = Evacuation { group, used_blocks: Some(used_blocks), blocks: 8192 };
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
