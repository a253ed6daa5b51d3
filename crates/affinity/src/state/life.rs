//! Workers that sleep, and the scheduler's end.
//!
//! Invariant: each sleeping worker is counted in `sleeping`, or a wake-up for it in `wakeups`; so
//! none is woken twice for one piece of work, and none sleeps while there is work and nobody is
//! on the way to it.

use super::{Life, Phase, State};
use crate::counters::Counters;
use crate::message::Queued;

impl State {
    /// Counts the caller among those that wait for work.
    pub(crate) fn sleep(&mut self) {
        self.sleeping += 1;
    }

    /// The opposite of [`Self::sleep`], whether it was woken or woke of itself.
    pub(crate) fn wake_up(&mut self) {
        match self.wakeups.checked_sub(1) {
            Some(wakeups) => self.wakeups = wakeups,
            None => self.sleeping -= 1,
        }
    }

    /// How many of those that wait for work are to be woken now: as many as there is work for,
    /// less those that are being woken already.
    #[must_use]
    pub(crate) fn wakeups_due(&mut self) -> usize {
        let due = if self.is_over() {
            self.sleeping
        } else {
            self.ready.len().saturating_sub(self.wakeups).min(self.sleeping)
        };
        self.sleeping -= due;
        self.wakeups += due;
        due
    }

    /// Whether nothing is queued, running or suspended.
    pub(crate) const fn is_idle(&self) -> bool {
        self.queued == 0 && self.running == 0 && self.suspended == 0
    }

    /// Whether workers are to return.
    pub(crate) fn is_over(&self) -> bool {
        match self.life {
            Life::Open => false,
            Life::Draining => self.is_idle(),
            Life::Halted => true,
        }
    }

    pub(crate) const fn is_halted(&self) -> bool {
        matches!(self.life, Life::Halted)
    }

    pub(crate) fn drain(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Draining;
        }
    }

    /// Stops everything; the queued messages are the caller's, to be dropped outside the lock.
    #[must_use]
    pub(crate) fn halt(&mut self) -> Vec<Queued> {
        self.life = Life::Halted;
        self.ready.clear();
        self.waiting_below.clear();
        self.queued = 0;
        let mut dropped = Vec::new();
        for node in &mut self.nodes {
            dropped.extend(node.queue.drain(..));
            node.waiters.clear();
            if node.phase != Phase::Running {
                node.phase = Phase::Idle;
            }
        }
        dropped
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let mut counters = self.counters;
        counters.queued = self.queued as u64;
        counters.suspended = self.suspended as u64;
        counters
    }
}
