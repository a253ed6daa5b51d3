//! Whether the engine still runs messages: what a watchdog asks.
//!
//! The probe is a message in the Serial affinity. It runs when every message that runs at that time
//! has ended, so one message that hangs, in whatever aggregate, keeps it unanswered. Messages that
//! wait for a disk or for memory do not run, and hold it up no longer than others.
//!
//! Invariants: a probe changes nothing, and waits for nothing but workers.
//!
//! Fails: never; a probe of a scheduler that was halted stays unanswered.

use crate::engine::Engine;
use affinity::{Access, Outcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A question to the workers.
#[derive(Clone, Default, Debug)]
pub struct Probe(Arc<AtomicBool>);

impl Probe {
    /// Asks the workers of an engine whether they still run messages.
    #[must_use]
    pub fn ask(engine: &Engine) -> Self {
        let probe = Self::default();
        let asked = probe.clone();
        let message = move |_: &mut Access<'_>| {
            asked.answer();
            Outcome::Done
        };
        let scheduler = engine.scheduler();
        scheduler.send(scheduler.root(), Box::new(message));
        probe
    }

    /// Whether a worker has answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Answers.
    pub fn answer(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
