//! What the scheduler counts, for each kind of affinity: which kinds are busy, and how often coarse
//! ones shut others out.

use crate::AffinityKind;
use std::ops::Index;

/// One kind's counts since the scheduler was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KindCounters {
    /// Runs of messages; a message that was suspended counts again when it runs again.
    pub messages: u64,
    /// Turns that affinities got, each of one or more messages.
    pub turns: u64,
    /// Turns that were run by the sender's own thread.
    pub direct_turns: u64,
    /// Runs that ended with a wait for something to be loaded.
    pub suspends: u64,
    /// Runs that ended with the message being sent to another affinity.
    pub reroutes: u64,
    /// Runs that gave way and were queued again.
    pub yields: u64,
    /// Times that an affinity with work had to wait for another one.
    pub waits: u64,
    /// Waits so long that the affinity's ancestors and descendants were held back for it.
    pub reservations: u64,
    /// Time spent running messages.
    pub busy_nanoseconds: u64,
}

/// The scheduler's counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    kinds: [KindCounters; AffinityKind::ALL.len()],
    /// Wakers that were dropped without a wake: each is a bug in whoever held it.
    pub wakers_dropped: u64,
    /// Messages queued at this moment.
    pub queued: u64,
    /// Messages suspended at this moment.
    pub suspended: u64,
}

impl Counters {
    pub(crate) const fn kind_mut(&mut self, kind: AffinityKind) -> &mut KindCounters {
        &mut self.kinds[kind as usize]
    }
}

impl Index<AffinityKind> for Counters {
    type Output = KindCounters;
    fn index(&self, kind: AffinityKind) -> &KindCounters {
        &self.kinds[kind as usize]
    }
}
