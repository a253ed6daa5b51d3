//! The partial sort beside a sort of everything.

use super::Hbps;
use ondisk::top_areas::{HISTOGRAM_BINS, LISTED_MAX};
use proptest::prelude::*;
use std::collections::BTreeSet;

const SCORE_MAX: u32 = 32 << 10;

/// What a sort of everything says.
struct Model {
    scores: Vec<u32>,
}

impl Model {
    fn check(&self, sorted: &Hbps) {
        assert!(!sorted.is_damaged());
        assert_eq!(sorted.counted() as usize, self.scores.len());
        let mut listed = 0;
        let mut is_whole = true;
        for bin in 0..HISTOGRAM_BINS {
            let is_in = |item: &u32| sorted.bin(self.scores[*item as usize]) == Some(bin);
            let all: BTreeSet<u32> = (0..self.scores.len() as u32).filter(is_in).collect();
            assert_eq!(sorted.bins()[bin] as usize, all.len(), "bin {bin}");
            let here: BTreeSet<u32> = sorted.listed_in(bin).into_iter().collect();
            assert_eq!(here.len(), sorted.listed_in(bin).len(), "bin {bin} lists nothing twice");
            assert!(here.is_subset(&all), "bin {bin} lists its own");
            assert!(is_whole || here.is_empty(), "bin {bin} is listed before a better one is");
            is_whole &= here == all;
            listed += here.len();
        }
        assert_eq!(listed, sorted.listed());
        assert!(listed <= LISTED_MAX);
        self.check_best(sorted);
        let [histogram, list] = sorted.blocks();
        let read = Hbps::from_blocks(SCORE_MAX, &histogram, &list);
        assert!(read.is_ok_and(|read| read.blocks() == sorted.blocks()));
    }

    fn check_best(&self, sorted: &Hbps) {
        let Some(best) = sorted.best(|_| true) else { return };
        let most = self.scores.iter().copied().max().unwrap_or(0);
        let found = self.scores[best as usize];
        let error = f64::from(most - found) / f64::from(SCORE_MAX);
        assert!(error < 0.03125, "{found} was picked, the best is {most}");
    }
}

fn scores() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(SCORE_MAX), 0..=SCORE_MAX, (0..4_u32).prop_map(|few| few << 10)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_agrees_with_a_sort_of_everything(
        first in proptest::collection::vec(scores(), 1..3000),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), scores()), 0..600),
    ) {
        let mut model = Model { scores: Vec::new() };
        let mut sorted = Hbps::new(SCORE_MAX);
        for score in first {
            sorted.count(1, score);
            model.scores.push(score);
        }
        model.check(&sorted);
        for (at, (item, score)) in changes.into_iter().enumerate() {
            let item = item.index(model.scores.len());
            sorted.update(item as u32, model.scores[item], score);
            model.scores[item] = score;
            if at % 16 == 0 {
                model.check(&sorted);
            }
        }
        model.check(&sorted);
    }
}

#[test]
fn a_list_that_was_used_up_is_low_and_another_takes_its_place() {
    let mut sorted = Hbps::new(SCORE_MAX);
    sorted.count(5000, SCORE_MAX);
    let mut model = Model { scores: vec![SCORE_MAX; 5000] };
    model.check(&sorted);
    assert_eq!(sorted.listed(), LISTED_MAX);
    let mut taken = 0;
    while !sorted.runs_low() {
        let Some(best) = sorted.best(|_| true) else { panic!("the list is not empty") };
        sorted.update(best, SCORE_MAX, 0);
        model.scores[best as usize] = 0;
        taken += 1;
    }
    assert!(taken > LISTED_MAX / 2, "{taken} were taken");
    model.check(&sorted);
    let mut fresh = Hbps::new(SCORE_MAX);
    model.scores.iter().for_each(|score| fresh.count(1, *score));
    model.check(&fresh);
    assert_eq!(fresh.listed(), LISTED_MAX);
    assert!(!fresh.runs_low());
}

#[test]
fn the_best_that_nobody_has_in_hand() {
    let mut sorted = Hbps::new(SCORE_MAX);
    for score in [10, SCORE_MAX, SCORE_MAX - 1, 0] {
        sorted.count(1, score);
    }
    assert_eq!(sorted.best(|item| item != 1), Some(2));
    assert_eq!(sorted.best(|item| item == 0), Some(0));
    assert_eq!(sorted.best(|item| item == 3), None, "nothing is free in it");
    assert!(!sorted.runs_low(), "all are listed");
}

#[test]
fn what_cannot_be_marks_the_counts_as_damaged() {
    for (old, new) in [(0, 5), (SCORE_MAX, 0)] {
        let mut sorted = Hbps::new(SCORE_MAX);
        sorted.count(1, 10_000);
        sorted.update(0, old, new);
        assert!(sorted.is_damaged() && sorted.runs_low());
    }
    let mut sorted = Hbps::new(SCORE_MAX);
    sorted.count(1, 10_000);
    sorted.update(7, 5000, 1);
    assert!(!sorted.is_damaged(), "it was not counted yet");
}

#[test]
fn pages_change_only_when_an_item_changes_its_bin() {
    let mut sorted = Hbps::new(SCORE_MAX);
    sorted.count(10, SCORE_MAX);
    assert!(sorted.take_changed());
    sorted.update(3, SCORE_MAX, SCORE_MAX - 1023);
    assert!(!sorted.is_changed());
    sorted.update(3, SCORE_MAX - 1023, SCORE_MAX - 1024);
    assert!(sorted.is_changed());
}

#[test]
fn pages_that_contradict_themselves_are_refused() {
    let mut sorted = Hbps::new(SCORE_MAX);
    sorted.count(3, 100);
    let [histogram, list] = sorted.blocks();
    assert!(Hbps::from_blocks(SCORE_MAX, &histogram, &list).is_ok());
    assert!(Hbps::from_blocks(SCORE_MAX, &list, &histogram).is_err());
    for byte in 0..16 + HISTOGRAM_BINS * 8 {
        let mut damaged = (*histogram).clone();
        damaged.bytes_mut()[byte] ^= 0x11;
        assert!(Hbps::from_blocks(SCORE_MAX, &damaged, &list).is_err(), "byte {byte}");
    }
    let mut damaged = (*list).clone();
    damaged.bytes_mut()[0] = 3;
    assert!(Hbps::from_blocks(SCORE_MAX, &histogram, &damaged).is_err());
}
