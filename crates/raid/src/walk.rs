//! A walk over tetrises in order, some at a time, as fast as it may, which goes on after a restart
//! where it was: what a rebuild and a scrub have in common.
//!
//! The walk knows neither disks nor locks. Its owner asks it for the next steps, tells it which are
//! done, and has its position written to where a restart finds it.
//!
//! Time comes with [`Walk::tick`] and with nothing else: without ticks a walk without a limit goes
//! on, one with a limit stands once its allowance is spent.
//!
//! Invariants: a step is begun once and done once; of the position that is written every step below
//! is done; no more than the steps at a time are under way; `done() <= end()`.

use crate::allowance::Allowance;
use std::collections::{BTreeSet, VecDeque};

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// The time that is looked back on to tell how fast a walk is.
const RECENT_NANOSECONDS: u64 = 60 * NANOSECONDS_PER_SECOND;

/// Between two marks of the way: a dozen of them tell the time that is looked back on.
const MARK_NANOSECONDS: u64 = 5 * NANOSECONDS_PER_SECOND;

/// Steps after which the position is written, at most: with regions of 256 KiB, 64 MiB of a disk.
const STEPS_PER_LABEL_MAX: u64 = 256;

/// Positions of a short walk that are written.
const LABELS_PER_WALK: u64 = 16;

/// How fast a walk is and when it will be over, from what it did of late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// Bytes a second; zero if it does not get on.
    pub bytes_per_second: u64,
    /// Seconds until its end; `None` if it does not get on, or too little is known yet.
    pub seconds_left: Option<u64>,
}

/// See the module.
pub(crate) struct Walk {
    end: u64,
    /// Steps that may be under way at once.
    at_a_time: usize,
    under_way: usize,
    /// All steps below are done.
    below: u64,
    /// Others that are.
    beyond: BTreeSet<u64>,
    /// The next that was not begun.
    next: u64,
    /// The position that is written.
    durable_below: u64,
    is_label_under_way: bool,
    allowance: Allowance,
    /// The time of the last tick.
    now: Option<u64>,
    /// When how many bytes had been done.
    marks: VecDeque<(u64, u64)>,
    done_bytes: u64,
}

impl Walk {
    /// A walk from `begin`, which a label told, to `end`.
    pub(crate) fn new(begin: u64, end: u64, at_a_time: usize) -> Self {
        let below = begin.min(end);
        Self {
            end,
            at_a_time,
            under_way: 0,
            below,
            beyond: BTreeSet::new(),
            next: below,
            durable_below: below,
            is_label_under_way: false,
            allowance: Allowance::default(),
            now: None,
            marks: VecDeque::new(),
            done_bytes: 0,
        }
    }

    /// How many bytes a second it may take from now on.
    pub(crate) fn set_rate(&mut self, rate: Option<u64>) {
        self.allowance = Allowance::new(rate);
    }

    /// How many bytes a second it may take; `None` if there is no limit.
    pub(crate) const fn rate(&self) -> Option<u64> {
        self.allowance.rate()
    }

    /// Whether its rate lets it begin a step now.
    pub(crate) const fn has_allowance(&self) -> bool {
        self.allowance.may_begin()
    }

    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// How many steps are done.
    pub(crate) fn done(&self) -> u64 {
        self.below + self.beyond.len() as u64
    }

    pub(crate) fn has(&self, step: u64) -> bool {
        step < self.below || self.beyond.contains(&step)
    }

    /// Whether a restart would know that the step is done.
    pub(crate) const fn has_durably(&self, step: u64) -> bool {
        step < self.durable_below
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.below == self.end
    }

    /// Whether nothing that was begun is still to end.
    pub(crate) const fn is_at_rest(&self) -> bool {
        self.under_way == 0
    }

    /// The next step, if one may begin now.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        let may_begin = self.under_way < self.at_a_time && self.allowance.may_begin();
        if !may_begin || self.next >= self.end {
            return None;
        }
        let step = self.next;
        self.next += 1;
        self.under_way += 1;
        Some(step)
    }

    /// The step costs so many bytes; only who has begun it knows.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.allowance.spend(bytes);
    }

    /// A step that was begun is done.
    pub(crate) fn finish(&mut self, step: u64, bytes: u64) {
        assert!(step < self.next && !self.has(step), "step {step} was begun and not done");
        self.under_way -= 1;
        self.done_bytes += bytes;
        self.beyond.insert(step);
        while self.beyond.remove(&self.below) {
            self.below += 1;
        }
    }

    pub(crate) const fn is_label_under_way(&self) -> bool {
        self.is_label_under_way
    }

    /// The position to be written, if that is worth it, or wanted for other reasons, and none is
    /// being written; it is, then.
    pub(crate) fn label_due(&mut self, is_wanted: bool) -> Option<u64> {
        let step = (self.end / LABELS_PER_WALK).clamp(1, STEPS_PER_LABEL_MAX);
        let is_news = self.below >= self.durable_below + step
            || self.is_over() && self.durable_below < self.end;
        let is_due = is_wanted || is_news;
        if !is_due || self.is_label_under_way {
            return None;
        }
        self.is_label_under_way = true;
        Some(self.below)
    }

    /// A position that was due is durable.
    pub(crate) fn labelled(&mut self, below: u64) {
        (self.durable_below, self.is_label_under_way) = (below, false);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: u64) {
        let before = self.now.replace(now);
        if let Some(before) = before {
            self.allowance.earn(now.saturating_sub(before));
        }
        if self.marks.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= MARK_NANOSECONDS) {
            self.marks.push_back((now, self.done_bytes));
        }
        // The one that is too old stays as long as it is the last such.
        while self.marks.get(1).is_some_and(|(at, _)| now - at >= RECENT_NANOSECONDS) {
            self.marks.pop_front();
        }
    }

    /// How it gets on, if what is left costs what the steps did that were done of late.
    pub(crate) fn pace(&self, bytes_per_step: u64) -> Pace {
        let (Some(now), Some((then, bytes))) = (self.now, self.marks.front()) else {
            return Pace::default();
        };
        let nanoseconds = u128::from(now.saturating_sub(*then));
        let bytes = u128::from(self.done_bytes - bytes);
        let per_second = (bytes * u128::from(NANOSECONDS_PER_SECOND))
            .checked_div(nanoseconds)
            .map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX));
        let left = u128::from(self.end - self.done()) * u128::from(bytes_per_step);
        let seconds = left.checked_div(u128::from(per_second));
        let seconds_left = seconds.map(|seconds| u64::try_from(seconds).unwrap_or(u64::MAX));
        Pace { bytes_per_second: per_second, seconds_left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_begin_in_order_and_end_in_any() {
        let mut walk = Walk::new(2, 10, 3);
        let begun: Vec<u64> = std::iter::from_fn(|| walk.begin()).collect();
        assert_eq!(begun, [2, 3, 4], "as many as may be under way");
        walk.finish(4, 1);
        assert_eq!((walk.below, walk.done(), walk.has(4), walk.has(3)), (2, 3, true, false));
        assert_eq!(walk.label_due(false), None, "nothing below is new");
        walk.finish(2, 1);
        walk.finish(3, 1);
        assert_eq!((walk.below, walk.is_at_rest()), (5, true));
        assert_eq!(walk.label_due(false), Some(5));
        assert_eq!(walk.label_due(false), None, "one at a time");
        assert!(!walk.has_durably(4));
        walk.labelled(5);
        assert!(walk.has_durably(4) && !walk.has_durably(5));
        while let Some(step) = walk.begin() {
            walk.finish(step, 1);
        }
        assert!(walk.is_over());
        assert_eq!((walk.done(), walk.label_due(false)), (10, Some(10)));
    }

    /// Whatever the steps cost: over a while no more is begun than the rate gives.
    #[test]
    fn a_rate_is_kept() {
        for (rate, cost) in [(1000, 10), (1000, 5000), (1, 1), (1 << 40, 1 << 20)] {
            let mut walk = Walk::new(0, u64::MAX, usize::MAX);
            walk.set_rate(Some(rate));
            let mut spent: u64 = 0;
            for tick in 0..400 {
                walk.tick(tick * NANOSECONDS_PER_SECOND / 10);
                // Some ticks come late, and nothing goes on in between.
                let steps = if tick % 50 < 20 { 0 } else { 100_000 };
                for _ in 0..steps {
                    let Some(step) = walk.begin() else { break };
                    walk.spend(cost);
                    walk.finish(step, cost);
                    spent += cost;
                }
            }
            assert!(spent <= 40 * rate + cost, "{spent} at {rate}");
            assert!(spent >= 20 * rate.min(900_000 * cost), "{spent} at {rate}");
        }
    }

    #[test]
    fn the_pace_is_that_of_the_last_minute() {
        let mut walk = Walk::new(0, 10_000, usize::MAX);
        assert_eq!(walk.pace(100), Pace::default());
        for second in 0..600 {
            walk.tick(second * NANOSECONDS_PER_SECOND);
            // First slow, then fast.
            for _ in 0..if second < 300 { 1 } else { 20 } {
                let step = walk.begin().unwrap();
                walk.finish(step, 100);
            }
        }
        let pace = walk.pace(100);
        assert!((2000..2100).contains(&pace.bytes_per_second), "{pace:?}");
        assert_eq!(pace.seconds_left, Some((10_000 - 6300) * 100 / pace.bytes_per_second));
        // It stands: after a minute that shows.
        (600..700).for_each(|second| walk.tick(second * NANOSECONDS_PER_SECOND));
        assert_eq!(walk.pace(100), Pace { bytes_per_second: 0, seconds_left: None });
    }
}
