//! When the power goes, and what it takes with it.

use crate::seed::choices::Choices;
use aggregate::Phase;
use platform::simulated::Fate;

/// A cut is at most about 2^this many steps after a round began.
const CUT_STEPS_BITS: u64 = 11;

/// When the power goes.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// At a step.
    At(u64),
    /// When so many writes and flushes have been submitted or have completed in the world's life.
    AtBoundary(u64),
    /// Some steps after a consistency point, from a step on, has come to a phase.
    InPhase {
        /// The phase.
        phase: Phase,
        /// The step.
        after: u64,
        /// Steps from the phase's beginning.
        steps: u64,
    },
}

impl Cut {
    /// A moment of the seed's choice, from `step` on.
    #[must_use]
    pub fn choose(choices: &mut Choices, step: u64) -> Self {
        let at = step + choices.scaled(CUT_STEPS_BITS);
        if choices.chance(40) {
            return Self::At(at);
        }
        let phases = [
            Phase::Freezing,
            Phase::CleaningMembers,
            Phase::CleaningAggregate,
            Phase::Syncing,
            Phase::Sealing,
            Phase::Committing,
        ];
        Self::InPhase { phase: choices.pick(&phases), after: at, steps: choices.below(16) }
    }
}

/// What a cut of the seed's choice does to unflushed writes: mostly each by itself. Where nothing
/// but superblocks is under way half of the cuts tear all: one that is whole hides the others. Of
/// the rest some leave the superblock on `disk` alone, which is the disk's place by name.
pub fn choose_fate(
    choices: &mut Choices,
    phase: Option<Phase>,
    disk: impl FnOnce(&mut Choices) -> Option<usize>,
) -> Fate {
    match choices.below(10) {
        0 => Fate::AllLost,
        1 => Fate::AllKept,
        2 => Fate::AllTorn,
        3..6 if phase == Some(Phase::Sealing) => Fate::AllTorn,
        6..9 if phase == Some(Phase::Sealing) => match disk(choices) {
            Some(disk) => Fate::KeptOnOne(disk),
            None => Fate::Each,
        },
        _ => Fate::Each,
    }
}

/// The name of a phase in the coverage.
#[must_use]
pub const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "cut: between consistency points",
        Phase::Freezing => "cut: freezing",
        Phase::CleaningMembers => "cut: cleaning volumes",
        Phase::CleaningAggregate => "cut: cleaning the aggregate",
        Phase::Syncing => "cut: syncing",
        Phase::Sealing => "cut: sealing",
        Phase::Committing => "cut: committing",
        Phase::Failed => "cut: out of service",
    }
}
