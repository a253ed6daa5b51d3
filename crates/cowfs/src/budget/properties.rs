//! Promises of space beside a naive model: lists of what was promised.
//!
//! Rules, after every call:
//!
//! - A promise is granted if, with it, the floor of its spender is left of what the last commit
//!   left free. One that was made before, replay's, is always granted.
//! - What is promised is the sum of the promises of the active and the frozen image; one that is
//!   refused, or taken back, leaves nothing.
//! - A consistency point that all its promises fit never lacks a block: nothing is overdrawn,
//!   unless replay said so, or a commit left less than was promised.
//! - What a volume's changes cost its aggregate beside depends on how many there were, and not on
//!   how they came.

use super::*;
use crate::accounts::{Accounts, GuaranteedRoom};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Promise(u64, Spender),
    /// One of the active promises is taken back.
    Forgo(prop::sample::Index),
    Freeze,
    /// A freeze that found nothing changed.
    Clear,
    /// A commit, after which so much is free.
    Settle(u64),
}

fn spender() -> impl Strategy<Value = Spender> {
    prop_oneof![
        6 => Just(Spender::Common),
        2 => Just(Spender::Restore),
        4 => Just(Spender::Free),
        2 => Just(Spender::Reclaim),
        1 => Just(Spender::Owed),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..400_u64, spender()).prop_map(|(blocks, spender)| Step::Promise(blocks, spender)),
        3 => any::<prop::sample::Index>().prop_map(Step::Forgo),
        2 => Just(Step::Freeze),
        1 => Just(Step::Clear),
        2 => (0..3000_u64).prop_map(Step::Settle),
    ]
}

/// Of the reserve, what a spender leaves alone.
fn floor(spender: Spender, reserve: u64) -> u64 {
    match spender {
        Spender::Common => reserve,
        Spender::Restore => reserve * 3 / 4,
        Spender::Free => reserve / 2,
        Spender::Reclaim => reserve / 4,
        Spender::Owed => 0,
    }
}

#[derive(Default)]
struct Naive {
    free: u64,
    reserve: u64,
    active: Vec<u64>,
    frozen: Vec<u64>,
    /// Replay was granted something, or a commit left less than was promised.
    may_lack: bool,
}

impl Naive {
    fn promised(&self) -> u64 {
        self.active.iter().chain(&self.frozen).sum()
    }

    /// Whether so much may be promised in all.
    fn may_be(&self, promised: u64, spender: Spender) -> bool {
        let is_above_floor = promised + floor(spender, self.reserve) <= self.free;
        // Where less than a floor is left, what makes room may have half of it.
        let is_last = spender == Spender::Reclaim && promised <= self.free / 2;
        spender == Spender::Owed || is_above_floor || is_last
    }

    fn grants(&self, blocks: u64, spender: Spender) -> bool {
        // Whoever asks for nothing is only refused beside others who were promised too much.
        let is_nothing = blocks == 0 && self.active.iter().sum::<u64>() == 0;
        is_nothing || self.may_be(self.promised() + blocks, spender)
    }

    fn check(&self, budget: &Budget) {
        assert_eq!(budget.promised_blocks(), self.promised());
        assert_eq!(budget.has_promises(), self.promised() > 0);
        let common = self.free.saturating_sub(self.reserve + self.promised());
        assert_eq!(budget.free_blocks(), common);
        for spender in [Spender::Common, Spender::Restore, Spender::Free, Spender::Reclaim] {
            for blocks in [0, 1, 100, 1000, 3000] {
                let could_be = blocks == 0 || self.may_be(blocks, spender);
                assert_eq!(budget.could_promise(blocks, spender), could_be, "{blocks} {spender:?}");
            }
        }
        assert!(self.may_lack || self.promised() <= self.free, "a block is promised twice");
        assert!(self.may_lack || !budget.is_overdrawn());
    }
}

fn run(reserve: u64, steps: Vec<Step>) {
    let budget = Budget::default();
    let mut naive = Naive { free: 2000, reserve, ..Naive::default() };
    budget.settle(naive.free, reserve);
    for step in steps {
        match step {
            Step::Promise(blocks, spender) => {
                let is_granted = naive.grants(blocks, spender);
                assert_eq!(budget.promise(blocks, spender), is_granted, "{step:?}");
                if is_granted {
                    naive.active.push(blocks);
                    naive.may_lack |= spender == Spender::Owed;
                }
                assert_eq!(budget.take_refused(), !is_granted);
            }
            Step::Forgo(which) => {
                if !naive.active.is_empty() {
                    let blocks = naive.active.remove(which.index(naive.active.len()));
                    budget.forgo(blocks);
                }
            }
            Step::Freeze => {
                budget.freeze();
                naive.frozen.append(&mut naive.active);
            }
            Step::Clear => {
                budget.clear();
                naive.active.clear();
            }
            Step::Settle(free) => {
                budget.settle(free, reserve);
                naive.frozen.clear();
                naive.free = free;
                naive.may_lack = naive.promised() > free;
            }
        }
        naive.check(&budget);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_promise_leaves_the_floor_of_its_spender(
        reserve in 0..1000_u64,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        run(reserve, steps);
    }

    #[test]
    fn overhead_depends_on_how_much_was_changed_and_not_on_how(
        numbers in prop_oneof![Just(0_u64), 1..200_000_u64],
        changes in proptest::collection::vec((0..300_u64, 0..6_u8), 1..40),
        aggregate_free in 0..6000_u64,
    ) {
        let (volume, aggregate, overhead) = <(Budget, Budget, Overhead)>::default();
        if numbers > 0 {
            overhead.set_numbers(numbers);
        }
        volume.settle(100_000, 0);
        aggregate.settle(aggregate_free, 0);
        let maps = numbers / NUMBERS_PER_BLOCK + LEVELS_BLOCKS;
        let extra = |touched: u64| {
            let is_charged = touched > 0 && numbers > 0;
            if is_charged { VOLUME_OVERHEAD_BLOCKS + maps.min(2 * touched) } else { 0 }
        };
        let (mut all, mut frozen, mut touched) = (0, 0, 0);
        for (blocks, deed) in changes {
            if deed == 0 {
                // What was promised is the consistency point's, with its overhead.
                [&volume, &aggregate].into_iter().for_each(Budget::freeze);
                overhead.reset();
                (frozen, touched) = (frozen + touched + extra(touched), 0);
            }
            let after = touched + blocks;
            let fits = frozen + after + extra(after) <= aggregate_free;
            let accounts = Accounts {
                volume: &volume,
                overhead: &overhead,
                guaranteed: &GuaranteedRoom::default(),
                aggregate: &aggregate,
            };
            prop_assert_eq!(accounts.promise(blocks, Spender::Common).is_some(), fits);
            if fits {
                (all, touched) = (all + blocks, after);
            }
            let promised = frozen + touched + extra(touched);
            prop_assert_eq!(aggregate.promised_blocks(), promised);
            prop_assert_eq!(volume.promised_blocks(), all, "what is refused leaves nothing");
        }
    }
}
