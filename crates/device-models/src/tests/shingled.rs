//! The zones of an SMR drive on platters that know the rule of shingles.

use crate::shingled::{CleaningPolicy, ShingledLayout, ShingledSizes, ShingledStep, Source};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SIZES: ShingledSizes = ShingledSizes {
    logical_blocks: 40,
    zone_blocks: 10,
    cache_blocks: 4,
    streams_max: 1,
    stream_blocks_min: 2,
    cleaning: CleaningPolicy::OldestZone,
};

/// What lies where, and how far each zone is written since its start was.
struct NaivePlatters {
    sizes: ShingledSizes,
    content: BTreeMap<u64, (u64, u32)>,
    pointers: BTreeMap<u64, u64>,
    rewrites: u64,
}

impl NaivePlatters {
    fn put(&mut self, at: u64, content: Option<(u64, u32)>) {
        if let Some(in_zones) = at.checked_sub(self.sizes.cache_blocks) {
            let (zone, offset) =
                (in_zones / self.sizes.zone_blocks, in_zones % self.sizes.zone_blocks);
            let pointer = self.pointers.entry(zone).or_default();
            if offset == 0 {
                *pointer = 0;
            }
            assert_eq!(*pointer, offset, "zone {zone} is written from start to end");
            *pointer = offset + 1;
            // The track overlaps all that follow.
            let end = at - offset + self.sizes.zone_blocks;
            self.content.retain(|position, _| !(at..end).contains(position));
        }
        if let Some(content) = content {
            self.content.insert(at, content);
        }
    }

    fn write(&mut self, layout: &mut ShingledLayout, block: u64, count: u64, version: u32) {
        let mut host = block..block + count;
        layout.write(block, count, |step| match step {
            ShingledStep::Stream { to, count } => {
                (to..to + count).for_each(|at| self.put(at, host.next().map(|b| (b, version))));
            }
            ShingledStep::Cache { to } => self.put(to, host.next().map(|b| (b, version))),
            ShingledStep::Rewrite { from, to, count, patches } => {
                self.rewrites += 1;
                let source = |index| {
                    let patch = patches.iter().find(|patch| patch.index == index);
                    patch.map_or(from + index, |patch| patch.slot)
                };
                let contents: Vec<_> =
                    (0..count).map(|index| self.content.get(&source(index)).copied()).collect();
                (to..).zip(contents).for_each(|(at, content)| self.put(at, content));
            }
        });
        assert!(host.is_empty(), "all that the host wrote went somewhere");
    }
}

fn new(sizes: ShingledSizes) -> (ShingledLayout, NaivePlatters) {
    let (content, pointers) = (BTreeMap::new(), BTreeMap::new());
    (ShingledLayout::new(sizes), NaivePlatters { sizes, content, pointers, rewrites: 0 })
}

proptest! {
    #[test]
    fn every_block_is_found_where_the_platters_have_it(
        writes in prop::collection::vec((0..37_u64, 1..14_u64, any::<bool>()), 1..80),
        cache_blocks in 1..12_u64,
        streams_max in 1..4_usize,
        is_oldest in any::<bool>(),
    ) {
        let cleaning =
            if is_oldest { CleaningPolicy::OldestZone } else { CleaningPolicy::LeastCost };
        // The last zone is short.
        let logical_blocks = 37;
        let sizes =
            ShingledSizes { logical_blocks, cache_blocks, streams_max, cleaning, ..SIZES };
        let (mut layout, mut platters) = new(sizes);
        let mut expected = BTreeMap::new();
        let mut last_end = 0;
        for (version, (block, count, goes_on)) in (1..).zip(writes) {
            // Half of the writes go on where the last one ended: streams.
            let block = if goes_on && last_end < logical_blocks { last_end } else { block };
            let count = count.min(logical_blocks - block);
            platters.write(&mut layout, block, count, version);
            last_end = block + count;
            expected.extend((block..last_end).map(|block| (block, (block, version))));
            for block in 0..logical_blocks {
                let at = layout.locate(block);
                prop_assert!(at.is_none_or(|at| at < layout.physical_blocks()));
                let found = at.and_then(|at| platters.content.get(&at));
                prop_assert_eq!(found, expected.get(&block), "block {}", block);
            }
            prop_assert!(layout.cached_blocks() <= cache_blocks);
        }
    }

    #[test]
    fn filling_in_order_rewrites_nothing(pieces in prop::collection::vec(1..17_u64, 40)) {
        let (mut layout, mut platters) = new(SIZES);
        // Twice: the second time over what is there, a piece at each zone's start.
        for _ in 0..2 {
            let mut at = 0;
            for piece in &pieces {
                let to_zone_end = 10 - at % 10;
                // No piece begins a zone with a single block, which would not pass for a stream.
                let count = (*piece).max(2).min(to_zone_end).min(40 - at);
                let count = if to_zone_end - count == 1 { to_zone_end } else { count };
                if count > 0 {
                    platters.write(&mut layout, at, count, 1);
                }
                at += count;
            }
        }
        prop_assert_eq!((platters.rewrites, layout.cached_blocks()), (0, 0));
    }
}

/// What a step was, with its patches.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Stream(u64, u64),
    Cache(u64),
    Rewrite(u64, u64, u64, Vec<Source>),
}

fn write(layout: &mut ShingledLayout, block: u64, count: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    layout.write(block, count, |step| {
        steps.push(match step {
            ShingledStep::Stream { to, count } => Step::Stream(to, count),
            ShingledStep::Cache { to } => Step::Cache(to),
            ShingledStep::Rewrite { from, to, count, patches } => {
                Step::Rewrite(from, to, count, patches.to_vec())
            }
        });
    });
    steps
}

fn filled(sizes: ShingledSizes) -> ShingledLayout {
    let mut layout = ShingledLayout::new(sizes);
    let streamed: Vec<Step> = (0..4).map(|zone| Step::Stream(4 + zone * 10, 10)).collect();
    assert_eq!(write(&mut layout, 0, 40), streamed);
    layout
}

#[test]
fn a_full_cache_has_the_oldest_zone_rewritten() {
    let mut layout = filled(SIZES);
    // A block may be cached again; its old slot is free then.
    for (block, slot) in [(3, 0), (15, 1), (3, 2), (8, 3), (25, 0)] {
        assert_eq!(write(&mut layout, block, 1), [Step::Cache(slot)]);
    }
    // Zone 0 was cached first. Zones 4 and 5 are the spare ones, behind four slots and 40 blocks.
    let patches = vec![Source { index: 3, slot: 2 }, Source { index: 8, slot: 3 }];
    assert_eq!(write(&mut layout, 26, 1), [Step::Rewrite(4, 44, 10, patches), Step::Cache(2)]);
    assert_eq!(
        (layout.locate(3), layout.locate(26), layout.cached_blocks()),
        (Some(47), Some(2), 3)
    );
}

#[test]
fn least_cost_rewrites_the_zone_with_most_cached() {
    let mut layout = filled(ShingledSizes { cleaning: CleaningPolicy::LeastCost, ..SIZES });
    for (block, slot) in [(3, 0), (15, 1), (18, 2), (35, 3)] {
        assert_eq!(write(&mut layout, block, 1), [Step::Cache(slot)]);
    }
    let patches = vec![Source { index: 5, slot: 1 }, Source { index: 8, slot: 2 }];
    assert_eq!(write(&mut layout, 20, 1), [Step::Rewrite(14, 44, 10, patches), Step::Cache(1)]);
}

#[test]
fn a_stream_over_a_whole_zone_rewrites_nothing_and_one_that_stops_pays_for_the_rest() {
    let mut layout = filled(SIZES);
    assert_eq!(write(&mut layout, 10, 6), [Step::Stream(44, 6)]);
    assert_eq!(write(&mut layout, 16, 4), [Step::Stream(50, 4)]);
    // The old zone 1 is spare now, behind zone 5. A stream over half of zone 2 goes to zone 5.
    assert_eq!(write(&mut layout, 20, 5), [Step::Stream(54, 5)]);
    assert_eq!(write(&mut layout, 27, 1), [Step::Cache(0)]);
    // Another stream: the rest of zone 2 has to be put behind the first half.
    let patches = vec![Source { index: 2, slot: 0 }];
    let steps = [Step::Rewrite(29, 59, 5, patches), Step::Stream(14, 5)];
    assert_eq!(write(&mut layout, 30, 5), steps);
    assert_eq!(layout.cached_blocks(), 0);
}

#[test]
fn short_writes_and_those_behind_a_gap_are_cached() {
    let mut layout = filled(SIZES);
    assert_eq!(write(&mut layout, 10, 1), [Step::Cache(0)], "shorter than a stream begins");
    let mut layout = ShingledLayout::new(SIZES);
    assert_eq!(write(&mut layout, 2, 1), [Step::Cache(0)]);
    assert_eq!(write(&mut layout, 0, 2), [Step::Stream(4, 2)]);
    assert_eq!(write(&mut layout, 1, 3), [Step::Cache(1), Step::Stream(6, 2)], "in two parts");
    assert_eq!(layout.cached_blocks(), 1, "block 2 is in its zone, block 1 is not");
}
