//! A clock of day that is set back and forth while the node runs and while it is off.
//!
//! Nothing may depend on it but the times that clients see: which operation comes after which,
//! which snapshot is older, which label is the latest, when a consistency point comes. The other
//! checks of a life say whether anything does. Nothing checks yet that change counters grow.
//!
//! Invariants: its choices are its own, so a life with a steady clock is what it was.

use crate::seed::choices::{Choices, Purpose};
use crate::seed::trace::Trace;
use platform::simulated::SimulatedWorld;

/// Of 100 lives, those with such a clock.
const UNSTEADY_PERCENT: u64 = 20;
/// Of 100 moments at which time passes, those at which it is set.
const SET_PERCENT: u64 = 10;
/// Bits of the nanoseconds that it is set by: from microseconds to half a day.
const STEP_BITS: (u64, u64) = (10, 45);

/// See the module.
pub struct ClockOfDay {
    choices: Choices,
    is_unsteady: bool,
}

impl ClockOfDay {
    /// The clock of a life.
    #[must_use]
    pub const fn new(seed: u64, salt: u64) -> Self {
        let mut choices = Choices::of(seed, Purpose::Clock, salt);
        let is_unsteady = choices.chance(UNSTEADY_PERCENT);
        Self { choices, is_unsteady }
    }

    /// Whether ages by this clock say nothing.
    #[must_use]
    pub const fn is_unsteady(&self) -> bool {
        self.is_unsteady
    }

    /// Time passes: the clock is set now and then.
    pub fn pass(&mut self, world: &SimulatedWorld, trace: &mut Trace) {
        if !self.is_unsteady || !self.choices.chance(SET_PERCENT) {
            return;
        }
        let (low, high) = STEP_BITS;
        let bits = low + self.choices.below(high - low);
        let nanoseconds = self.choices.below(1 << bits);
        let is_back = self.choices.chance(60);
        trace.fold(nanoseconds);
        if is_back {
            trace.meet("clock: set back");
            world.turn_back(nanoseconds);
        } else {
            trace.meet("clock: set forward");
            world.leap(nanoseconds);
        }
    }
}
