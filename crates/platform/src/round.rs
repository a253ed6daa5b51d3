//! Work that is worth doing once for many: put off to the end of what a thread has in hand.
//!
//! A thread that has several things to do in a row (calls that arrived together, waiters of one
//! log batch) opens a [`Round`]. What each of them would do on its own and all can share (start a
//! write, send replies) it leaves to [`at_end`]. Without a round it is done at once, so a single
//! call waits for nothing.
//!
//! Invariants: what was put off runs on the same thread, in order, when the outermost round ends
//! or [`Round::run`] is called; nobody may wait for another thread within a round without calling
//! that, since what he waits for may have been put off.

use crate::sync::thread_local;
use std::cell::RefCell;
use std::collections::VecDeque;

type Work = Box<dyn FnOnce()>;

#[derive(Default)]
struct State {
    depth: usize,
    work: VecDeque<Work>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<T>(body: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|state| body(&mut state.borrow_mut()))
}

/// An open round of the current thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Round(());

impl Round {
    /// Opens one. Within another it changes nothing.
    #[must_use]
    pub fn open() -> Self {
        with(|state| state.depth += 1);
        Self(())
    }

    /// Does now what was put off so far.
    pub fn run(&self) {
        run();
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let last = with(|state| {
            state.depth -= 1;
            state.depth == 0
        });
        if last {
            run();
        }
    }
}

/// Runs `work` at the end of the thread's round, or at once if none is open.
pub fn at_end(work: impl FnOnce() + 'static) {
    let now = with(|state| {
        if state.depth == 0 {
            return Some(work);
        }
        state.work.push_back(Box::new(work));
        None
    });
    if let Some(work) = now {
        work();
    }
}

/// Whether the thread is in a round.
#[must_use]
pub fn is_open() -> bool {
    with(|state| state.depth > 0)
}

/// Does now what the thread has put off: before it waits for something.
pub fn run() {
    // One by one: if one of them calls this, the rest is done.
    while let Some(work) = with(|state| state.work.pop_front()) {
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn work_is_put_off_to_the_end_of_the_outermost_round() {
        let log = Rc::new(RefCell::new(Vec::new()));
        let note = |name: &'static str| {
            let log = Rc::clone(&log);
            move || log.borrow_mut().push(name)
        };
        at_end(note("at once"));
        let outer = Round::open();
        at_end(note("first"));
        {
            let _inner = Round::open();
            at_end(note("second"));
        }
        assert_eq!(*log.borrow(), ["at once"]);
        outer.run();
        assert_eq!(*log.borrow(), ["at once", "first", "second"]);
        // Work that waits for something runs the rest of the round first.
        let waited = note("waited");
        at_end(move || {
            run();
            waited();
        });
        at_end(note("the rest"));
        outer.run();
        assert_eq!(log.borrow()[3..], ["the rest", "waited"]);
        log.borrow_mut().truncate(3);
        let third = note("third");
        at_end(move || at_end(third));
        assert!(is_open());
        drop(outer);
        assert_eq!(*log.borrow(), ["at once", "first", "second", "third"]);
        assert!(!is_open());
    }
}
