//! An [`AreaCache`] that learns scores as it goes: nothing is read when a space is brought online.
//!
//! Areas whose score is not known are tried in order of their number, which in a thin space is
//! where nothing was ever written. A known area is preferred once it is as good as an unknown one
//! is likely to be.
//!
//! Invariants: an area is in at most one of `by_score` and the unknown tail; memory grows with the
//! areas that were ever used, not with the space.

use crate::{AreaCache, AreaNumber};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug)]
pub struct ScoreTable {
    areas: u64,
    area_blocks: u64,
    /// Areas below this were tried at least once.
    unknown_from: u64,
    scores: FxHashMap<AreaNumber, u64>,
    by_score: BTreeSet<(u64, Reverse<AreaNumber>)>,
}

impl ScoreTable {
    /// A table for a space of `areas` areas of `area_blocks` blocks.
    #[must_use]
    pub fn new(areas: u64, area_blocks: u64) -> Self {
        Self {
            areas,
            area_blocks,
            unknown_from: 0,
            scores: FxHashMap::default(),
            by_score: BTreeSet::new(),
        }
    }

    fn forget(&mut self, area: AreaNumber) -> u64 {
        let score = self.scores.remove(&area).unwrap_or(0);
        self.by_score.remove(&(score, Reverse(area)));
        score
    }
}

impl AreaCache for ScoreTable {
    fn grow(&mut self, areas: u64, area_blocks: u64) {
        (self.areas, self.area_blocks) = (areas, area_blocks);
    }

    fn pick(&mut self) -> Option<AreaNumber> {
        let best = self.by_score.last().copied();
        // Half free is as much as can be expected of an area that nothing is known of.
        let good = best.is_some_and(|(score, _)| score * 2 >= self.area_blocks);
        if !good && self.unknown_from < self.areas {
            self.unknown_from += 1;
            return Some(AreaNumber(self.unknown_from - 1));
        }
        let (_, Reverse(area)) = best?;
        self.forget(area);
        Some(area)
    }

    fn set_score(&mut self, area: AreaNumber, free_blocks: u64) {
        self.forget(area);
        if free_blocks > 0 && area.0 < self.unknown_from {
            self.scores.insert(area, free_blocks);
            self.by_score.insert((free_blocks, Reverse(area)));
        }
    }

    fn add_free(&mut self, area: AreaNumber, free_blocks: u64) {
        if area.0 < self.unknown_from {
            let score = self.forget(area);
            self.set_score(area, (score + free_blocks).min(self.area_blocks));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_areas_come_in_order_and_good_ones_first() {
        let mut table = ScoreTable::new(3, 100);
        assert_eq!(table.pick(), Some(AreaNumber(0)));
        assert_eq!(table.pick(), Some(AreaNumber(1)));
        table.add_free(AreaNumber(0), 60);
        assert_eq!(table.pick(), Some(AreaNumber(0)), "more than half free");
        table.add_free(AreaNumber(1), 10);
        assert_eq!(table.pick(), Some(AreaNumber(2)), "unknown before a bad one");
        assert_eq!(table.pick(), Some(AreaNumber(1)));
        assert_eq!(table.pick(), None);
        table.add_free(AreaNumber(2), 1);
        table.add_free(AreaNumber(1), 2);
        table.add_free(AreaNumber(9), 2);
        assert_eq!(table.pick(), Some(AreaNumber(1)));
        assert_eq!(table.pick(), Some(AreaNumber(2)));
        assert_eq!(table.pick(), None);
        table.grow(4, 200);
        table.add_free(AreaNumber(1), 150);
        table.add_free(AreaNumber(3), 150);
        assert_eq!(table.pick(), Some(AreaNumber(1)), "more than its old size");
        assert_eq!(table.pick(), Some(AreaNumber(3)));
        assert_eq!(table.pick(), None);
    }
}
