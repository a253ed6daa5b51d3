//! Waiting for one answer of the engine on a thread of one's own.
//!
//! A thread waits at its [`Desk`]. When an engine is killed some of what it owes is dropped, which
//! ends the wait, and some stays in its memory: the desk is closed then.
//!
//! Invariants: an [`Answer`] comes to an end when it is given, when nobody can give it any more,
//! and when the desk is closed.

use platform::sync::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::Arc;

/// Where a thread waits.
#[derive(Default)]
pub struct Desk {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    static DESK: RefCell<Arc<Desk>> = RefCell::default();
}

impl Desk {
    /// A new desk, at which the calling thread waits from now on.
    #[must_use]
    pub fn sit_down() -> Arc<Self> {
        let desk = Arc::new(Self::default());
        DESK.replace(Arc::clone(&desk));
        desk
    }

    /// Whoever waits here waits no longer.
    pub fn close(&self) {
        *self.is_closed.lock() = true;
        self.changed.notify_all();
    }

    fn look(&self) {
        // Whoever has seen no answer is asleep by now, or will look again.
        drop(self.is_closed.lock());
        self.changed.notify_all();
    }
}

enum Slot<T> {
    Waiting,
    Here(T),
    Never,
}

type Shared<T> = Arc<Mutex<Slot<T>>>;

/// An answer that will come, or never will.
pub struct Answer<T> {
    slot: Shared<T>,
    desk: Arc<Desk>,
}

/// Gives the answer; dropped without it, says that there will be none.
struct Sender<T>(Option<(Shared<T>, Arc<Desk>)>);

impl<T> Sender<T> {
    fn end(&mut self, slot: Slot<T>) {
        if let Some((shared, desk)) = self.0.take() {
            *shared.lock() = slot;
            desk.look();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.end(Slot::Never);
    }
}

impl<T: Send + 'static> Answer<T> {
    /// Starts something that answers.
    pub fn to(start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> Self {
        let slot = Arc::new(Mutex::new(Slot::Waiting));
        let desk = DESK.with_borrow(Arc::clone);
        let mut sender = Sender(Some((Arc::clone(&slot), Arc::clone(&desk))));
        start(Box::new(move |value| sender.end(Slot::Here(value))));
        Self { slot, desk }
    }

    /// Waits; `None` if there will be no answer.
    #[must_use]
    pub fn wait(self) -> Option<T> {
        let mut is_closed = self.desk.is_closed.lock();
        loop {
            match std::mem::replace(&mut *self.slot.lock(), Slot::Waiting) {
                Slot::Here(value) => return Some(value),
                Slot::Never => return None,
                Slot::Waiting if *is_closed => return None,
                Slot::Waiting => {}
            }
            self.desk.changed.wait(&mut is_closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_answer_without_it_and_with_the_desk() {
        assert_eq!(Answer::to(|done: Box<dyn FnOnce(u32) + Send>| done(7)).wait(), Some(7));
        assert_eq!(Answer::to(|done: Box<dyn FnOnce(u32) + Send>| drop(done)).wait(), None);
        let desk = Desk::sit_down();
        let mut kept = None;
        let answer = Answer::to(|done: Box<dyn FnOnce(u32) + Send>| kept = Some(done));
        desk.close();
        assert_eq!(answer.wait(), None);
        assert!(kept.is_some());
    }
}
