//! The write cache beside a set of blocks that wait.

use crate::write_cache::WriteCache;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn what_waits_goes_down_once_and_in_sweeps(
        requests in prop::collection::vec((0..90_u64, 0..12_u64, 0..8_u8), 1..80),
        blocks_max in 1..40_u64,
    ) {
        let (mut cache, mut waiting) = (WriteCache::new(blocks_max), BTreeSet::new());
        let mut head = 0;
        for (block, count, kind) in requests {
            let mut runs = Vec::new();
            let is_flush = kind == 0;
            if is_flush {
                cache.flush(|first, count| runs.push(first..first + count));
            } else {
                waiting.extend(block..block + count);
                cache.write(block, count, |first, count| runs.push(first..first + count));
            }
            for run in runs {
                let next = waiting.range(head..).next().or_else(|| waiting.first()).copied();
                prop_assert_eq!(Some(run.start), next, "the head goes up, and then begins anew");
                for block in run.clone() {
                    prop_assert!(waiting.remove(&block), "{block} did not wait");
                }
                prop_assert!(!waiting.contains(&run.end), "a run goes down whole");
                head = run.end;
            }
            let room = if is_flush { 0 } else { blocks_max };
            prop_assert!(waiting.len() as u64 <= room);
            prop_assert_eq!(cache.waiting_blocks(), waiting.len() as u64);
            prop_assert!((0..110).all(|block| cache.contains(block) == waiting.contains(&block)));
        }
    }
}

#[test]
fn what_was_overtaken_goes_down_in_its_place() {
    let (mut cache, mut down) = (WriteCache::new(100), Vec::new());
    for (block, count) in [(0, 10), (20, 10), (10, 10), (25, 5)] {
        cache.write(block, count, |first, count| down.push((first, count)));
    }
    cache.flush(|first, count| down.push((first, count)));
    assert_eq!(down, [(0, 30)]);
}

#[test]
fn without_memory_each_request_goes_down_as_it_comes() {
    let (mut cache, mut down) = (WriteCache::new(0), Vec::new());
    for (block, count) in [(20, 10), (0, 25)] {
        cache.write(block, count, |first, count| down.push((first, count)));
    }
    cache.flush(|first, count| down.push((first, count)));
    assert_eq!(down, [(20, 10), (0, 25)]);
}
