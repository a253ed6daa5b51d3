//! Waiting for one answer of the engine on a thread of one's own.
//!
//! Invariants: an [`Answer`] comes to an end whenever its sender does: called or, after a kill,
//! dropped. So nobody waits for an engine that is gone.

use platform::sync::{Condvar, Mutex};
use std::sync::Arc;

enum Slot<T> {
    Waiting,
    Here(T),
    Never,
}

type Shared<T> = Arc<(Mutex<Slot<T>>, Condvar)>;

/// An answer that will come, or never will.
pub struct Answer<T>(Shared<T>);

/// Gives the answer; dropped without it, says that there will be none.
struct Sender<T>(Option<Shared<T>>);

impl<T> Sender<T> {
    fn end(&mut self, slot: Slot<T>) {
        if let Some(shared) = self.0.take() {
            *shared.0.lock() = slot;
            shared.1.notify_all();
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
        let shared = Arc::new((Mutex::new(Slot::Waiting), Condvar::new()));
        let mut sender = Sender(Some(Arc::clone(&shared)));
        start(Box::new(move |value| sender.end(Slot::Here(value))));
        Self(shared)
    }

    /// Waits; `None` if there will be no answer.
    #[must_use]
    pub fn wait(self) -> Option<T> {
        let mut slot = self.0.0.lock();
        loop {
            match std::mem::replace(&mut *slot, Slot::Waiting) {
                Slot::Here(value) => return Some(value),
                Slot::Never => return None,
                Slot::Waiting => self.0.1.wait(&mut slot),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_dropped_ends_the_wait() {
        assert_eq!(Answer::to(|done: Box<dyn FnOnce(u32) + Send>| done(7)).wait(), Some(7));
        assert_eq!(Answer::to(|done: Box<dyn FnOnce(u32) + Send>| drop(done)).wait(), None);
    }
}
