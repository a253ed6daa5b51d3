//! The block pool beside a naive one.
//!
//! The model keeps the stock as a list, and what each taker has in hand as another. Rules, after
//! every call:
//!
//! - Every number that was ever stocked is in one place: in stock, in one taker's hands, used, or
//!   taken out.
//! - Takers get the numbers in the order of the stock, and what they give back comes first again.
//! - Of those who wait for stock the first one since the last refill starts the next.

use crate::BlockPool;
use affinity::{Access, AffinityKind, Outcome, Scheduler};
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use units::Pvbn;

const TAKERS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Stock(u64),
    Reserve(usize, usize),
    /// A taker places blocks at the first of its numbers.
    Use(usize, usize),
    Forfeit(usize),
    Take,
    /// The next number, if it is such a multiple.
    TakeIf(u64),
    /// All multiples.
    TakeOut(u64),
    DrainUsed,
    /// A message waits for stock.
    Wait,
    EndRefill,
}

fn step() -> impl Strategy<Value = Step> {
    let multiple = || prop_oneof![Just(2_u64), Just(5), Just(63)];
    prop_oneof![
        3 => (0..130_u64).prop_map(Step::Stock),
        5 => (0..TAKERS, 0..90_usize).prop_map(|(taker, count)| Step::Reserve(taker, count)),
        4 => (0..TAKERS, 0..60_usize).prop_map(|(taker, count)| Step::Use(taker, count)),
        3 => (0..TAKERS).prop_map(Step::Forfeit),
        2 => Just(Step::Take),
        1 => multiple().prop_map(Step::TakeIf),
        1 => multiple().prop_map(Step::TakeOut),
        1 => Just(Step::DrainUsed),
        1 => Just(Step::Wait),
        1 => Just(Step::EndRefill),
    ]
}

/// What a taker has in hand, and what it has used of it.
#[derive(Default)]
struct Hand {
    unused: VecDeque<Pvbn>,
    used: Vec<Pvbn>,
}

struct Naive {
    stocked: u64,
    stock: VecDeque<Pvbn>,
    hands: [Hand; TAKERS],
    used: Vec<Pvbn>,
    /// Out of the pool for good.
    gone: Vec<Pvbn>,
    waiting: usize,
}

impl Naive {
    /// Each number is in one place.
    fn check(&self) {
        let in_hand = self.hands.iter().flat_map(|hand| hand.unused.iter().chain(&hand.used));
        let all = self.stock.iter().chain(in_hand).chain(&self.used).chain(&self.gone);
        let numbers: Vec<u64> = all.map(|pvbn| pvbn.get()).collect();
        let different: BTreeSet<u64> = numbers.iter().copied().collect();
        assert_eq!((numbers.len(), different.len()), (self.stocked as usize, numbers.len()));
    }
}

/// A message that waits for stock; whether it is to start a refill.
fn wait_for(pool: &Arc<BlockPool>, scheduler: &Scheduler, woken: &Arc<Mutex<usize>>) -> bool {
    let (pool, woken) = (Arc::clone(pool), Arc::clone(woken));
    let starts = Arc::new(Mutex::new(false));
    let (noted, mut has_waited) = (Arc::clone(&starts), false);
    let message = move |_: &mut Access<'_>| {
        if std::mem::replace(&mut has_waited, true) {
            *woken.lock() += 1;
            return Outcome::Done;
        }
        let (pool, noted) = (Arc::clone(&pool), Arc::clone(&noted));
        Outcome::Suspend(Box::new(move |waker| *noted.lock() = pool.wait(waker)))
    };
    let affinity = scheduler.add(scheduler.root(), AffinityKind::Aggregate);
    scheduler.send(affinity, Box::new(message));
    scheduler.run_until_idle();
    *starts.lock()
}

fn run(steps: Vec<Step>) {
    let (pool, woken) = (Arc::new(BlockPool::default()), Arc::new(Mutex::new(0)));
    let scheduler = Scheduler::new(Arc::new(SimulatedWorld::new(0)));
    let mut naive = Naive {
        stocked: 0,
        stock: VecDeque::new(),
        hands: Default::default(),
        used: Vec::new(),
        gone: Vec::new(),
        waiting: 0,
    };
    let is_multiple = |of: u64| move |pvbn: Pvbn| pvbn.get().is_multiple_of(of);
    for step in steps {
        match step {
            Step::Stock(count) => {
                let new = naive.stocked..naive.stocked + count;
                pool.stock(new.clone().map(Pvbn));
                naive.stock.extend(new.map(Pvbn));
                naive.stocked += count;
            }
            Step::Reserve(taker, count) => {
                let count = count.min(naive.stock.len());
                let expected: Vec<Pvbn> = naive.stock.drain(..count).collect();
                assert_eq!(pool.reserve(count), expected);
                naive.hands[taker].unused.extend(expected);
            }
            Step::Use(taker, count) => {
                let hand = &mut naive.hands[taker];
                let count = count.min(hand.unused.len());
                hand.used.extend(hand.unused.drain(..count));
            }
            Step::Forfeit(taker) => {
                let Hand { unused, used } = std::mem::take(&mut naive.hands[taker]);
                pool.forfeit(used.clone(), unused.clone().into_iter());
                naive.used.extend(used);
                naive.stock = unused.into_iter().chain(naive.stock).collect();
            }
            Step::Take => {
                let expected = naive.stock.pop_front();
                assert_eq!(pool.take(), expected);
                naive.gone.extend(expected);
            }
            Step::TakeIf(of) => {
                let expected = naive.stock.pop_front_if(|pvbn| is_multiple(of)(*pvbn));
                assert_eq!(pool.take_if(is_multiple(of)), expected);
                naive.gone.extend(expected);
            }
            Step::TakeOut(of) => {
                let (out, left): (Vec<_>, Vec<_>) =
                    naive.stock.iter().partition(|pvbn| is_multiple(of)(**pvbn));
                assert_eq!(pool.take_out(is_multiple(of)), out);
                (naive.stock, _) = (left.into(), naive.gone.extend(out));
            }
            Step::DrainUsed => {
                let expected = std::mem::take(&mut naive.used);
                assert_eq!(pool.drain_used(), expected);
                naive.gone.extend(expected);
            }
            Step::Wait => {
                assert_eq!(wait_for(&pool, &scheduler, &woken), naive.waiting == 0);
                naive.waiting += 1;
            }
            Step::EndRefill => {
                affinity::Waker::wake_all(pool.end_refill());
                scheduler.run_until_idle();
                let waiting = std::mem::take(&mut naive.waiting);
                assert_eq!(std::mem::take(&mut *woken.lock()), waiting, "all are woken, once");
            }
        }
        naive.check();
        assert_eq!((pool.len(), pool.is_empty()), (naive.stock.len(), naive.stock.is_empty()));
        assert_eq!(naive.stock, pool.in_stock());
    }
    affinity::Waker::wake_all(pool.end_refill());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_number_is_in_one_place(steps in proptest::collection::vec(step(), 1..80)) {
        run(steps);
    }
}
