//! The form of the tables that say what takes part in a freeze and in a commit.
//!
//! Invariants: steps run in the order of their table, each once, to the end of the table or to the
//! first that ends it.

use std::ops::ControlFlow;

/// A step of a freeze or a commit.
pub struct Step<S> {
    /// What it does.
    pub name: &'static str,
    /// Why it stands where it stands.
    pub reason: &'static str,
    /// Does it; breaks if the steps after it are not to run.
    pub run: fn(&mut S) -> ControlFlow<()>,
}

/// Runs the steps of a table in their order.
pub(crate) fn run<S>(steps: &[Step<S>], on: &mut S) {
    let _ = steps.iter().try_for_each(|step| (step.run)(on));
}

/// A table as docs/consistency-point.md has it.
#[must_use]
pub fn table<S>(steps: &[Step<S>]) -> String {
    let mut text = String::new();
    for (number, Step { name, reason, .. }) in (1..).zip(steps) {
        text.push_str(&format!("| {number} | {name} | {reason} |\n"));
    }
    text
}
