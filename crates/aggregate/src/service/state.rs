//! Where the consistency point of an aggregate is, and who waits for it.
//!
//! ```text
//! Idle -> Freezing -> CleaningMembers -> CleaningAggregate -> Syncing -> Sealing -> Committing
//! -> Idle
//! ```
//!
//! What happens in each state is told in [`crate::consistency_point`].
//!
//! Invariants: one runs at a time. The state changes as [`TRANSITIONS`] says, and by a failure.

use super::action::{Action, CpDone};
use super::member::Member;
use crate::containers::MemberCleaned;
use crate::error::AggregateError;
use affinity::Waker;
use platform::Clock;
use std::collections::BTreeMap;
use std::sync::Arc;
use telemetry::Histogram;
use units::{CpNumber, VolumeId};

/// The states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// None is running.
    Idle,
    /// See the module.
    Freezing,
    /// See the module.
    CleaningMembers,
    /// See the module.
    CleaningAggregate,
    /// See the module.
    Syncing,
    /// See the module.
    Sealing,
    /// See the module.
    Committing,
    /// Out of service.
    Failed,
}

impl Phase {
    /// The states in which a consistency point runs, in their order, as metrics name them.
    const RUNNING: [(Self, &'static str); 6] = [
        (Self::Freezing, "freezing"),
        (Self::CleaningMembers, "cleaning_members"),
        (Self::CleaningAggregate, "cleaning_aggregate"),
        (Self::Syncing, "syncing"),
        (Self::Sealing, "sealing"),
        (Self::Committing, "committing"),
    ];
}

/// How long the states took, of consistency points that wrote something.
#[derive(Clone)]
pub struct PhaseDurations {
    phases: [Histogram; Phase::RUNNING.len()],
    all: Histogram,
}

impl Default for PhaseDurations {
    fn default() -> Self {
        Self {
            phases: std::array::from_fn(|_| Histogram::durations()),
            all: Histogram::durations(),
        }
    }
}

impl PhaseDurations {
    /// Each with its name; `all` is from the freeze to the end.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        let phases = Phase::RUNNING.iter().map(|(_, name)| *name).zip(&self.phases);
        phases.chain([("all", &self.all)])
    }

    /// A consistency point has committed.
    pub(crate) fn note_whole(&self, nanoseconds: u64) {
        self.all.observe(nanoseconds);
    }

    fn note(&self, (from, to): (Phase, Phase), nanoseconds: u64) {
        // A freeze that found nothing changed was none.
        if to == Phase::Idle && from != Phase::Committing {
            return;
        }
        let phases = Phase::RUNNING.iter().zip(&self.phases);
        for (_, durations) in phases.filter(|((phase, _), _)| *phase == from) {
            durations.observe(nanoseconds);
        }
    }
}

/// The legal changes of state.
pub const TRANSITIONS: &[(Phase, Phase)] = &[
    (Phase::Idle, Phase::Freezing),
    (Phase::Freezing, Phase::Idle),
    (Phase::Freezing, Phase::CleaningMembers),
    (Phase::CleaningMembers, Phase::CleaningAggregate),
    (Phase::CleaningAggregate, Phase::Syncing),
    (Phase::Syncing, Phase::Sealing),
    (Phase::Sealing, Phase::Committing),
    (Phase::Committing, Phase::Idle),
];

/// The state of an aggregate's consistency points.
pub(crate) struct ConsistencyPoint {
    pub phase: Phase,
    pub committed: CpNumber,
    pub running_cp: CpNumber,
    pub superblock_slot: usize,
    pub requested: bool,
    pub forced: bool,
    pub stopping: bool,
    pub actions: Vec<(Action, CpDone)>,
    pub waiting: Vec<CpDone>,
    /// Messages that wait for room: woken at each step that makes some.
    pub room: Vec<Waker>,
    pub running: Vec<CpDone>,
    pub members: BTreeMap<VolumeId, Arc<dyn Member>>,
    pub cleaning_members: usize,
    pub cleaned: Vec<MemberCleaned>,
    pub failure: Option<AggregateError>,
    pub started_nanoseconds: u64,
    /// When it came into its state.
    entered_nanoseconds: u64,
    pub durations: PhaseDurations,
}

impl ConsistencyPoint {
    pub fn new(committed: CpNumber, superblock_slot: usize) -> Self {
        Self {
            phase: Phase::Idle,
            committed,
            running_cp: committed,
            superblock_slot,
            requested: false,
            forced: false,
            stopping: false,
            actions: Vec::new(),
            waiting: Vec::new(),
            room: Vec::new(),
            running: Vec::new(),
            members: BTreeMap::new(),
            cleaning_members: 0,
            cleaned: Vec::new(),
            failure: None,
            started_nanoseconds: 0,
            entered_nanoseconds: 0,
            durations: PhaseDurations::default(),
        }
    }

    pub const fn phase(&self) -> Phase {
        self.phase
    }

    pub const fn committed(&self) -> CpNumber {
        self.committed
    }

    pub fn failure(&self) -> Option<AggregateError> {
        self.failure.clone()
    }

    pub fn is_due(&self) -> bool {
        self.requested || self.phase != Phase::Idle
    }

    pub fn request(&mut self, action: Option<(Action, CpDone)>, done: Option<CpDone>) {
        self.requested = true;
        self.actions.extend(action);
        self.waiting.extend(done);
    }

    /// Goes on to the next state, and tells whoever traces it when: `stroop bench nfs` draws the
    /// phases beside what clients saw meanwhile. False, and nothing is changed, if the aggregate
    /// has failed: a consistency point that was under way ends where it is.
    #[must_use]
    pub fn advance(&mut self, to: Phase, clock: &dyn Clock) -> bool {
        if self.phase == Phase::Failed {
            return false;
        }
        assert!(
            TRANSITIONS.contains(&(self.phase, to)),
            "a consistency point does not go from {:?} to {to:?}",
            self.phase
        );
        let now = clock.monotonic_nanoseconds();
        self.durations.note((self.phase, to), now.saturating_sub(self.entered_nanoseconds));
        self.entered_nanoseconds = now;
        self.phase = to;
        tracing::debug!(phase = ?to, nanoseconds = now, "phase");
        true
    }
}

/// The states and their changes in the language of Graphviz.
#[must_use]
pub fn dot() -> String {
    let mut text = String::from("digraph consistency_point {\n");
    for (from, to) in TRANSITIONS {
        text.push_str(&format!("    {from:?} -> {to:?};\n"));
    }
    text.push_str("}\n");
    text
}
