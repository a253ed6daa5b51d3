//! Free PVBNs in stock, for the volumes and the aggregate to place blocks at: reserve, acquire,
//! forfeit.
//!
//! The pool is filled a tetris at a time ([`super::refill`]). A volume that cleans takes a run of
//! numbers, uses them in order, and at the end gives back what it did not use.
//!
//! Invariants: a number is in stock, in the hands of one taker, or in `used`; `used` is drained
//! into the free map by the aggregate's part of the same consistency point.

use affinity::Waker;
use platform::sync::Mutex;
use std::collections::VecDeque;
use units::Pvbn;

/// See the module.
#[derive(Default)]
pub struct BlockPool(Mutex<State>);

#[derive(Default)]
struct State {
    stock: VecDeque<Pvbn>,
    used: Vec<Pvbn>,
    waiters: Vec<Waker>,
    refilling: bool,
}

impl BlockPool {
    /// The first `count` numbers in stock, or as many as there are: whoever needs more waits for a
    /// refill and comes again, so that every refill brings somebody on.
    #[must_use]
    pub fn reserve(&self, count: usize) -> Vec<Pvbn> {
        let mut state = self.0.lock();
        let count = count.min(state.stock.len());
        state.stock.drain(..count).collect()
    }

    /// Ends a taker's work: what it used, and what it did not, in order.
    pub fn forfeit(&self, used: Vec<Pvbn>, unused: impl DoubleEndedIterator<Item = Pvbn>) {
        let mut state = self.0.lock();
        state.used.extend(used);
        unused.rev().for_each(|pvbn| state.stock.push_front(pvbn));
    }

    /// Takes one number; the caller notes its use itself.
    #[must_use]
    pub fn take(&self) -> Option<Pvbn> {
        self.0.lock().stock.pop_front()
    }

    /// Takes the next number if it is one that `accepts` says; the caller notes its use itself.
    #[must_use]
    pub fn take_if(&self, accepts: impl Fn(Pvbn) -> bool) -> Option<Pvbn> {
        let mut state = self.0.lock();
        state.stock.front().copied().filter(|pvbn| accepts(*pvbn))?;
        state.stock.pop_front()
    }

    /// Takes those numbers out of stock that `is_taken` says.
    #[must_use]
    pub fn take_out(&self, is_taken: impl Fn(Pvbn) -> bool) -> Vec<Pvbn> {
        let mut state = self.0.lock();
        let stock = std::mem::take(&mut state.stock).into_iter();
        let (taken, left): (Vec<_>, Vec<_>) = stock.partition(|pvbn| is_taken(*pvbn));
        state.stock = left.into();
        taken
    }

    /// Adds found numbers.
    pub fn stock(&self, found: impl Iterator<Item = Pvbn>) {
        self.0.lock().stock.extend(found);
    }

    /// Numbers in stock.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().stock.len()
    }

    /// Whether none is in stock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers used by takers since the last call.
    #[must_use]
    pub fn drain_used(&self) -> Vec<Pvbn> {
        std::mem::take(&mut self.0.lock().used)
    }

    /// The numbers in stock.
    #[must_use]
    pub fn in_stock(&self) -> Vec<Pvbn> {
        self.0.lock().stock.iter().copied().collect()
    }

    /// Registers a message that waits for stock; whether the caller must start a refill.
    #[must_use]
    pub fn wait(&self, waker: Waker) -> bool {
        let mut state = self.0.lock();
        state.waiters.push(waker);
        !std::mem::replace(&mut state.refilling, true)
    }

    /// Ends a refill: the messages that wait, to be woken.
    #[must_use]
    pub fn end_refill(&self) -> Vec<Waker> {
        let mut state = self.0.lock();
        state.refilling = false;
        std::mem::take(&mut state.waiters)
    }
}
