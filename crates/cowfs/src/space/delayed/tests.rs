//! What is delayed is known, given to nobody, and released once; the fullest pages come first.

use super::*;
use crate::cache::BufferCache;
use crate::free_map::{first_of, is_set};
use crate::reader::HeldBlocks;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use units::{Pvbn, VolumeId};

/// A little more than two blocks of the map.
const NUMBERS: u64 = 2 * VBNS_PER_BLOCK + 1000;
const ALL: DelayLimits = DelayLimits { delayed_max: 1 << 20, pages_max: 1 << 20 };

struct Rig {
    cache: BufferCache,
    held: HeldBlocks,
    space: Space<PhysicalPointer>,
    used: BTreeSet<Pvbn>,
    delayed: BTreeSet<Pvbn>,
}

impl Rig {
    fn new() -> Self {
        let (cache, held) = (BufferCache::new(8), HeldBlocks::default());
        let mut space = Space::new(VolumeId(0), NUMBERS);
        space.claim(Pvbn(0));
        Self { cache, held, space, used: BTreeSet::from([Pvbn(0)]), delayed: BTreeSet::new() }
    }

    fn take(&mut self, count: usize) {
        let reader = Reader { cache: &self.cache, held: &self.held };
        self.space.fill_pool(count, &reader).expect("there is room");
        for _ in 0..count {
            let vbn = self.space.take_from_pool();
            assert!(!self.delayed.contains(&vbn), "{vbn} is delayed and given");
            assert!(self.used.insert(vbn), "{vbn} is given twice");
        }
    }

    /// A consistency point that frees these; what it releases.
    fn free(&mut self, numbers: &BTreeSet<Pvbn>, mut limits: DelayLimits) -> BTreeSet<Pvbn> {
        for vbn in numbers {
            assert!(self.used.remove(vbn), "{vbn} is in use");
            self.space.free(*vbn);
        }
        let reader = Reader { cache: &self.cache, held: &self.held };
        self.space.settle(&reader).expect("nothing is waited for");
        self.space.delay_frees(&mut limits, &reader).expect("nothing is waited for");
        self.space.settle_scores(&reader).expect("nothing is waited for");
        let list = self.space.drain_released();
        let released: BTreeSet<Pvbn> = list.iter().copied().collect();
        assert_eq!(list.len(), released.len(), "each is released once");
        let candidates: BTreeSet<Pvbn> = self.delayed.union(numbers).copied().collect();
        assert!(released.is_subset(&candidates));
        self.delayed = candidates.difference(&released).copied().collect();
        // Nothing is written here.
        self.space.freed.drain().for_each(drop);
        self.space.delayed.commit(self.space.delayed_blocks);
        self.space.put_back_areas();
        self.space.search_again();
        self.check();
        released
    }

    /// Consistency points that free these, few of a page at a time, and delay all of them.
    fn delay(&mut self, numbers: &BTreeSet<Pvbn>) {
        for at in 0..PAGE_NUMBERS {
            let is_its = |vbn: &&Pvbn| vbn.get() % PAGE_NUMBERS == at;
            let some: BTreeSet<Pvbn> = numbers.iter().filter(is_its).copied().collect();
            assert!(some.is_empty() || self.free(&some, ALL).is_empty(), "no page is worth it");
        }
    }

    fn check(&mut self) {
        let reader = Reader { cache: &self.cache, held: &self.held };
        assert_eq!(self.space.delayed_blocks, self.delayed.len() as u64);
        for index in (0..NUMBERS.div_ceil(VBNS_PER_BLOCK)).map(Fbn) {
            let map = self.space.delayed_map.read(index, &reader).expect("it is in memory");
            let in_use = self.space.in_use(index, &reader).expect("it is in memory");
            for vbn in first_of::<Pvbn>(index).until(Pvbn(NUMBERS).min(first_of(index.offset(1)))) {
                let is_delayed = self.delayed.contains(&vbn);
                assert_eq!(is_set(&map, vbn), is_delayed, "{vbn}");
                assert_eq!(is_set(&in_use, vbn), is_delayed || self.used.contains(&vbn), "{vbn}");
            }
        }
        let free = NUMBERS - self.used.len() as u64 - self.delayed.len() as u64;
        assert!(self.space.free_numbers() <= free);
    }

    /// Delayed frees by page.
    fn pages(&self) -> BTreeMap<u64, usize> {
        let mut pages = BTreeMap::new();
        for vbn in &self.delayed {
            *pages.entry(page_of(*vbn)).or_default() += 1;
        }
        pages
    }
}

/// Some numbers of each page, fewer than are worth a change of it: one, two, and so on.
fn some(pages: u64) -> BTreeSet<Pvbn> {
    let frees = |page: u64| 0..=page % (PAGE_FREES - 1);
    let numbers = |page| frees(page).map(move |at| Pvbn((page + 1) * PAGE_NUMBERS + at));
    (0..pages).flat_map(numbers).collect()
}

#[test]
fn the_fullest_pages_are_cleared_and_no_more_than_has_to_be() {
    const PAGES: u64 = 60;
    let mut rig = Rig::new();
    rig.take(60_000);
    rig.delay(&some(PAGES));
    // A start: pages are counted from the map.
    rig.space.delayed = Delayed::new();
    let limits = DelayLimits { delayed_max: 300, ..ALL };
    let before = rig.pages();
    let released = rig.free(&BTreeSet::new(), limits);
    let after = rig.pages();
    let cleared = before.keys().filter(|page| !after.contains_key(*page));
    let worst = cleared.map(|page| before[page]).min().expect("some are cleared");
    let best = after.values().copied().max().expect("some are left");
    assert!(worst >= best, "{worst} are cleared, and {best} are left");
    assert!(rig.delayed.len() <= 300 && rig.delayed.len() + worst > 300);
    let counts = rig.space.free_counts;
    assert_eq!(counts.cleared, released.len() as u64);
    assert_eq!(counts.pages, (before.len() - after.len()) as u64);
}

#[test]
fn a_page_that_is_worth_it_is_cleared_at_once() {
    let mut rig = Rig::new();
    rig.take(2000);
    let page = |counts: std::ops::Range<u64>| counts.map(|at| Pvbn(PAGE_NUMBERS + at)).collect();
    let few: BTreeSet<Pvbn> = page(0..PAGE_FREES - 1);
    rig.delay(&few);
    // Not more pages than there was promised for.
    assert!(rig.free(&page(100..101), DelayLimits { pages_max: 0, ..ALL }).is_empty());
    assert_eq!(rig.free(&page(200..201), ALL).len() as u64, PAGE_FREES + 1);
    let many: BTreeSet<Pvbn> = page(300..300 + PAGE_FREES);
    assert_eq!(rig.free(&many, DelayLimits { pages_max: 0, ..ALL }), many, "none were delayed");
}

#[test]
fn where_many_of_each_page_are_freed_none_is_delayed() {
    let mut rig = Rig::new();
    rig.take(60_000);
    rig.delay(&some(20));
    let before = rig.delayed.clone();
    let of_page =
        |page: u64| (0..MEAN_FREES as u64).map(move |at| Pvbn(page * PAGE_NUMBERS + 100 + at));
    let many: BTreeSet<Pvbn> = (5..10).chain(40..45).flat_map(of_page).collect();
    let released = rig.free(&many, ALL);
    assert!(many.is_subset(&released));
    let is_changed = |vbn: &&Pvbn| (5..10).contains(&page_of(**vbn));
    let with_them: BTreeSet<Pvbn> = before.iter().filter(is_changed).copied().collect();
    assert!(!with_them.is_empty());
    assert_eq!(released, many.union(&with_them).copied().collect(), "pages that change anyway");
}

#[test]
fn where_nothing_may_be_delayed_all_is_released() {
    let mut rig = Rig::new();
    rig.take(60_000);
    rig.delay(&some(20));
    let none = DelayLimits { delayed_max: 0, pages_max: 5 };
    assert!(rig.free(&BTreeSet::from([Pvbn(40_000)]), none).contains(&Pvbn(40_000)));
    assert_eq!(rig.pages().len(), 15, "five pages were promised for");
    rig.free(&BTreeSet::new(), DelayLimits { pages_max: 100, ..none });
    assert!(rig.delayed.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn delayed_frees_are_given_to_nobody_and_released_once(
        steps in proptest::collection::vec(
            (
                0..20_000_usize,
                proptest::collection::vec((any::<prop::sample::Index>(), 1..200_usize), 0..60),
                (0..2000_u64, 0..200_u64),
                any::<bool>(),
            ),
            1..10,
        ),
    ) {
        let mut rig = Rig::new();
        for (count, frees, (delayed_max, pages_max), restarts) in steps {
            let room = NUMBERS as usize - rig.used.len() - rig.delayed.len();
            rig.take(room.min(count));
            let used: Vec<Pvbn> = rig.used.iter().copied().skip(1).collect();
            let mut numbers = BTreeSet::new();
            for (at, run) in frees.into_iter().filter(|_| !used.is_empty()) {
                numbers.extend(used.iter().skip(at.index(used.len())).take(run));
            }
            // What was taken is in use from the commit on.
            rig.free(&BTreeSet::new(), DelayLimits { delayed_max, pages_max: 0 });
            rig.free(&numbers, DelayLimits { delayed_max, pages_max });
            if pages_max > NUMBERS.div_ceil(PAGE_NUMBERS) {
                prop_assert!(rig.delayed.len() as u64 <= delayed_max);
            }
            if restarts {
                rig.space.drop_pool();
                rig.space.delayed = Delayed::new();
            }
        }
        let all = DelayLimits { delayed_max: 0, pages_max: u64::MAX };
        rig.free(&BTreeSet::new(), all);
        prop_assert!(rig.delayed.is_empty());
    }
}

/// Frees of pages beyond those that can be told apart are not delayed.
#[test]
fn pages_beyond_those_that_are_counted() {
    let mut rig = Rig::new();
    let far = PAGES_MAX * PAGE_NUMBERS;
    rig.space = Space::new(VolumeId(0), far + 3 * PAGE_NUMBERS);
    let reader = Reader { cache: &rig.cache, held: &rig.held };
    let free = |space: &mut Space<PhysicalPointer>, numbers: &[Pvbn], mut limits: DelayLimits| {
        numbers.iter().for_each(|vbn| space.free(*vbn));
        space.settle(&reader).expect("nothing is waited for");
        space.delay_frees(&mut limits, &reader).expect("nothing is waited for");
        let released = space.drain_released();
        space.freed.drain().for_each(drop);
        space.delayed.commit(space.delayed_blocks);
        released
    };
    let near = [Pvbn(3), Pvbn(far - 1)];
    let beyond = [Pvbn(far), Pvbn(far + 2 * PAGE_NUMBERS)];
    for vbn in near.into_iter().chain(beyond) {
        rig.space.claim(vbn);
    }
    rig.space.settle(&reader).expect("nothing is waited for");
    assert_eq!(free(&mut rig.space, &beyond, ALL).len(), 2);
    assert_eq!(free(&mut rig.space, &near, ALL), []);
    assert_eq!(rig.space.delayed_blocks, 2);
    let none = DelayLimits { delayed_max: 0, ..ALL };
    assert_eq!(free(&mut rig.space, &[], none), near);
}
