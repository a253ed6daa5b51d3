//! What a writer asked for and was answered, with where the log of writes ended then.
//!
//! An answer is noted after it came, with the length of the log at that moment: all that made it
//! durable lies below. A request is noted before it is made: nothing of it lies below.
//!
//! Invariants: a writer has one request at a time, so the order of its history is that of what is
//! there.

use crate::tree::{Operation, Tree};
use std::fs::File;
use std::sync::Arc;

/// Tells where the log of writes ends now.
#[derive(Clone)]
pub struct Meter(Arc<File>);

impl Meter {
    /// Of this log.
    #[must_use]
    pub fn new(log: File) -> Self {
        Self(Arc::new(log))
    }

    /// # Panics
    /// If the file system cannot tell.
    #[must_use]
    pub fn position(&self) -> u64 {
        match self.0.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) => panic!("the log of writes: {error}"),
        }
    }
}

struct Step {
    operation: Operation,
    asked: u64,
    answered: Option<u64>,
    promises: bool,
}

/// See the module.
pub struct History {
    meter: Meter,
    base: Tree,
    steps: Vec<Step>,
}

/// What may be there after a power cut.
pub struct Allowed {
    /// What must be there.
    pub durable: Tree,
    /// What may have come on top, in order.
    pub later: Vec<Operation>,
}

impl History {
    /// One that begins with a tree of which everything is durable.
    #[must_use]
    pub const fn new(meter: Meter, base: Tree) -> Self {
        Self { meter, base, steps: Vec::new() }
    }

    /// A request is about to be made.
    pub fn ask(&mut self, operation: Operation) {
        let asked = self.meter.position();
        self.steps.push(Step { operation, asked, answered: None, promises: false });
    }

    /// It was answered; whether the answer promises that all so far is durable.
    pub fn answer(&mut self, promises: bool) {
        let answered = self.meter.position();
        if let Some(step) = self.steps.last_mut() {
            (step.answered, step.promises) = (Some(answered), promises);
        }
    }

    /// Answers that came while the log was no longer than `position`.
    #[must_use]
    pub fn answered_until(&self, position: u64) -> usize {
        let is_before = |step: &&Step| step.answered.is_some_and(|answered| answered <= position);
        self.steps.iter().filter(is_before).count()
    }

    /// What may be there if everything in the log below `durable` is on the media, and nothing from
    /// `end` on.
    #[must_use]
    pub fn at(&self, durable: u64, end: u64) -> Allowed {
        let mut current = self.base.clone();
        let mut allowed = Allowed { durable: self.base.clone(), later: Vec::new() };
        for step in self.steps.iter().take_while(|step| step.asked < end) {
            current.apply(&step.operation);
            allowed.later.push(step.operation.clone());
            let is_kept = step.answered.is_some_and(|answered| answered <= durable);
            if is_kept && step.promises {
                allowed.durable = current.clone();
                allowed.later.clear();
            }
        }
        allowed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn what_was_promised_below_a_position_must_be_there() {
        let log = tempfile::tempfile().unwrap();
        let mut history = History::new(Meter::new(log.try_clone().unwrap()), Tree::default());
        let mut length = 0;
        let mut grow = || {
            length += 10;
            log.write_all_at(&[0], length - 1).unwrap();
        };
        for (name, promises) in [("a", false), ("b", true), ("c", true)] {
            history.ask(Operation::Create(name.to_owned()));
            grow();
            history.answer(promises);
        }
        let at = |durable, end| {
            let Allowed { durable, later } = history.at(durable, end);
            let names: Vec<String> = durable.names.into_keys().collect();
            (names.concat(), later.len())
        };
        // Asked at 0, 10 and 20, answered at 10, 20 and 30.
        assert_eq!(at(0, 0), (String::new(), 0));
        assert_eq!(at(0, 5), (String::new(), 1));
        assert_eq!(at(10, 15), (String::new(), 2));
        assert_eq!(at(20, 20), ("ab".to_owned(), 0));
        assert_eq!(at(20, 25), ("ab".to_owned(), 1));
        assert_eq!(at(30, 30), ("abc".to_owned(), 0));
        assert_eq!((history.answered_until(9), history.answered_until(20)), (0, 2));
    }
}
