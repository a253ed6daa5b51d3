//! The phases of a scrub, and what changes them.
//!
//! The table [`TRANSITIONS`] has every change that there may be; `docs/disk-states.md` has its
//! diagram, and a test compares the two.
//!
//! Fails: an order that the table has no row for is refused, with what may be ordered instead.

use crate::error::RaidError;
use ondisk::scrub::ScrubPhase;

/// Receives the end of an order: the labels say what it changed.
pub type ScrubDone = Box<dyn FnOnce(Result<(), RaidError>) + Send>;

/// What may be asked of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubOrder {
    /// Begins one from the beginning.
    Start {
        /// Bytes a second that it may read from the disks; `None` if there is no limit.
        rate: Option<u64>,
    },
    /// Begins one from the beginning, whatever the one before does, without a limit. Data counts in
    /// it where parity contradicts it: the notes of stripes that were being written are lost. It
    /// goes on when the store resumes, so it may be ordered while an aggregate is opened.
    MakeParity,
    /// Has it wait.
    Pause,
    /// Has it go on where it was, or changes how fast.
    Resume {
        /// Bytes a second from now on, 0 if there is no limit; `None` if as before.
        rate: Option<u64>,
    },
    /// Changes how fast it goes, or will go when it is resumed.
    SetRate {
        /// Bytes a second from now on; `None` if there is no limit.
        rate: Option<u64>,
    },
    /// Gives it up.
    Stop,
}

/// What changes the phase of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// It is ordered to begin.
    Start,
    /// One that makes parity is ordered.
    MakeParity,
    /// It is ordered to wait.
    Pause,
    /// It is ordered to go on as before.
    Resume,
    /// It is ordered to go on at a rate.
    ResumeAtRate,
    /// It is ordered to go faster or slower, now or when it is resumed.
    SetRate,
    /// It is ordered to give up.
    Stop,
    /// It has seen the last tetris.
    End,
}

impl Cause {
    pub(crate) const fn of(order: ScrubOrder) -> Self {
        match order {
            ScrubOrder::Start { .. } => Self::Start,
            ScrubOrder::MakeParity => Self::MakeParity,
            ScrubOrder::Pause => Self::Pause,
            ScrubOrder::Resume { rate: None } => Self::Resume,
            ScrubOrder::Resume { rate: Some(_) } => Self::ResumeAtRate,
            ScrubOrder::SetRate { .. } => Self::SetRate,
            ScrubOrder::Stop => Self::Stop,
        }
    }
}

/// Every change that there may be.
pub(crate) const TRANSITIONS: [(ScrubPhase, Cause, ScrubPhase); 17] = {
    use Cause::*;
    use ScrubPhase::*;
    [
        (Never, Start, Running),
        (Finished, Start, Running),
        (Stopped, Start, Running),
        (Never, MakeParity, Running),
        (Finished, MakeParity, Running),
        (Stopped, MakeParity, Running),
        (Running, MakeParity, Running),
        (Paused, MakeParity, Running),
        (Running, Pause, Paused),
        (Running, ResumeAtRate, Running),
        (Running, SetRate, Running),
        (Running, Stop, Stopped),
        (Running, End, Finished),
        (Paused, Resume, Running),
        (Paused, ResumeAtRate, Running),
        (Paused, SetRate, Paused),
        (Paused, Stop, Stopped),
    ]
};

/// What follows from a phase.
pub(crate) fn next(phase: ScrubPhase, cause: Cause) -> Result<ScrubPhase, RaidError> {
    let fits = |(from, by, _): &&(ScrubPhase, Cause, ScrubPhase)| *from == phase && *by == cause;
    match (TRANSITIONS.iter().find(fits), phase) {
        (Some((_, _, then)), _) => Ok(*then),
        (None, ScrubPhase::Paused) if cause == Cause::Pause => Err(RaidError::ScrubPaused),
        (None, ScrubPhase::Running | ScrubPhase::Paused) => Err(RaidError::ScrubUnderWay),
        (None, ScrubPhase::Never | ScrubPhase::Finished | ScrubPhase::Stopped) => {
            Err(RaidError::NoScrub)
        }
    }
}

/// The phases and their changes in the language of Graphviz, as `docs/disk-states.md` has them.
#[cfg(test)]
fn dot() -> String {
    let mut text = String::from("digraph scrub {\n");
    for (from, cause, to) in TRANSITIONS {
        text.push_str(&format!("    {from:?} -> {to:?} [label={cause:?}];\n"));
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagram_is_that_of_the_code() {
        let document = include_str!("../../../../docs/disk-states.md");
        assert!(document.contains(&dot()), "the document lacks\n{}", dot());
    }
}
