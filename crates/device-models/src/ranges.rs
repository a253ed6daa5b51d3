//! A set of block numbers, kept as ranges: half a disk can be bad without taking any memory.
//!
//! Invariant: the ranges are not empty and do not overlap.

use std::collections::BTreeMap;
use std::ops::Range;

/// The set: where each range starts, and its end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockRanges(BTreeMap<u64, u64>);

impl BlockRanges {
    /// Puts blocks in.
    pub(crate) fn insert(&mut self, blocks: Range<u64>) {
        if !blocks.is_empty() {
            self.remove(blocks.clone());
            self.0.insert(blocks.start, blocks.end);
        }
    }

    /// Takes blocks out, those that are there.
    pub(crate) fn remove(&mut self, blocks: Range<u64>) {
        while let Some((start, end)) = self.overlapping(&blocks) {
            self.0.remove(&start);
            if start < blocks.start {
                self.0.insert(start, blocks.start);
            }
            if blocks.end < end {
                self.0.insert(blocks.end, end);
            }
        }
    }

    /// The lowest block of these that is in the set.
    pub(crate) fn first_in(&self, blocks: Range<u64>) -> Option<u64> {
        // Of what begins before, the last reaches furthest.
        let before =
            self.0.range(..=blocks.start).next_back().filter(|(_, end)| **end > blocks.start);
        let inside = || self.0.range(blocks.clone()).next();
        let found = before.or_else(inside).filter(|_| !blocks.is_empty());
        found.map(|(start, _)| (*start).max(blocks.start))
    }

    /// The last range that shares a block with these.
    fn overlapping(&self, blocks: &Range<u64>) -> Option<(u64, u64)> {
        let (start, end) = self.0.range(..blocks.end).next_back()?;
        (!blocks.is_empty() && *end > blocks.start).then_some((*start, *end))
    }
}
