//! Messages in the middle of messages: what a second thread would do.
//!
//! A message runs on one thread from its beginning to its end, so a simulation in one thread
//! would never see two of them at once. Where a message submits a request to a disk it holds no
//! lock (an invariant of `raid` and `nvlog`), and another thread might run something there: so now
//! and then something runs there, as far as the scheduler lets it.
//!
//! Invariants: one level deep. Whatever the scheduler offers in the middle of a message excludes
//! neither that message's affinity nor is excluded by it; if it does, that is the finding. That is
//! checked at every request that a message submits, whether anything runs there or not.

use crate::seed::choices::Choices;
use affinity::AffinityId;
use dblade::Engine;
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use std::sync::{Arc, Weak};

/// See the module.
pub struct Overlap {
    percent: u64,
    state: Arc<Mutex<State>>,
}

struct State {
    choices: Choices,
    is_inside: bool,
    count: u64,
    violation: Option<String>,
}

impl Overlap {
    /// At `percent` of 100 submissions something else runs.
    #[must_use]
    pub fn new(choices: Choices, percent: u64) -> Self {
        let state = State { choices, is_inside: false, count: 0, violation: None };
        Self { percent, state: Arc::new(Mutex::new(state)) }
    }

    /// Has it happen in this world, to this engine.
    pub fn watch(&self, world: &SimulatedWorld, engine: &Arc<Engine>) {
        let (percent, state) = (self.percent, Arc::clone(&self.state));
        let engine: Weak<Engine> = Arc::downgrade(engine);
        world.set_submit_hook(Some(Arc::new(move || {
            let Some(engine) = engine.upgrade() else { return };
            let scheduler = engine.scheduler();
            {
                let mut state = state.lock();
                if state.is_inside {
                    return;
                }
                state.check(&scheduler.running(), &scheduler.ready());
                if !state.choices.chance(percent) {
                    return;
                }
                state.is_inside = true;
            }
            let ran = scheduler.run_one_of(&mut |ready| state.lock().choices.index(ready.len()));
            let mut state = state.lock();
            state.count += u64::from(ran);
            state.is_inside = false;
        })));
    }

    /// Messages that ran in the middle of others since the last call.
    pub fn take_count(&self) -> u64 {
        std::mem::take(&mut self.state.lock().count)
    }

    /// What the scheduler should not have offered.
    pub fn take_violation(&self) -> Option<String> {
        self.state.lock().violation.take()
    }
}

impl State {
    fn check(&mut self, running: &[AffinityId], ready: &[AffinityId]) {
        for one in running {
            if let Some(other) = ready.iter().find(|other| other.excludes(*one)) {
                self.violation = Some(format!("{other} was to run while {one} runs"));
            }
        }
    }
}
