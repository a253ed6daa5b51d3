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
        self.phase = to;
        tracing::debug!(phase = ?to, nanoseconds = clock.monotonic_nanoseconds(), "phase");
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
