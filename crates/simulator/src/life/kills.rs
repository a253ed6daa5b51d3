//! Ends of the process instead of the machine: what was written and never flushed is there at the
//! next start, and a power cut, most often one during that start, may still take it.
//!
//! A start that goes by what it reads must make that durable before it writes what depends on it.
//!
//! Invariants: kills have choices of their own, so that a life without them is what it was.

use crate::machine::Machine;
use crate::seed::choices::{Choices, Purpose};
use crate::seed::lives::Lives;

/// Of 100 lives, those with kills.
const LIVES_PERCENT: u64 = 30;
/// Of 100 ends in such a life, those that are kills.
const KILL_PERCENT: u64 = 50;
/// Of 100 starts after a kill, those that are cut off.
const CUT_PERCENT: u64 = 60;

/// See the module.
pub(crate) struct Kills {
    /// None in lives without.
    choices: Option<Choices>,
    /// The last end was one.
    was_killed: bool,
}

impl Kills {
    /// Those of a seed.
    pub fn new(seed: u64, lives: &Lives) -> Self {
        let mut choices = Choices::of(seed, Purpose::Kills, lives.reduction.salt);
        let has_some = lives.boundary.is_none() && (choices.chance(LIVES_PERCENT) || lives.kills);
        Self { choices: has_some.then_some(choices), was_killed: false }
    }

    fn is_next(&mut self) -> bool {
        let is_kill = self.choices.as_mut().is_some_and(|choices| choices.chance(KILL_PERCENT));
        self.was_killed = is_kill;
        is_kill
    }

    /// Whether the start that comes is cut off because the process was killed before.
    pub fn cuts_recovery(&mut self) -> bool {
        let was_killed = self.was_killed;
        self.choices.as_mut().is_some_and(|choices| was_killed && choices.chance(CUT_PERCENT))
    }

    /// The power goes, or the process dies.
    pub fn end(&mut self, machine: &mut Machine<'_>, events: &mut Choices) {
        match self.is_next() {
            true => machine.kill(),
            false => machine.cut_power(events),
        }
    }
}
