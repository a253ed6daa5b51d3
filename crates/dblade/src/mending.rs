//! Which places of logs are being tried, and when each may be tried again.
//!
//! Invariants: one at a time tries a place, so that no disk becomes two copies.

use std::collections::{BTreeMap, BTreeSet};
use units::AggregateUuid;

/// How long a place that had no copy is let alone.
const RETRY_NANOSECONDS: u64 = 10_000_000_000;

/// A place of an aggregate's log.
pub(crate) type Turn = (AggregateUuid, String);

/// Which places are being tried, and when each may be tried again.
#[derive(Default)]
pub(crate) struct Mending {
    under_way: BTreeSet<Turn>,
    next_nanoseconds: BTreeMap<Turn, u64>,
}

impl Mending {
    /// Whether it is this place's turn; then nobody else tries it meanwhile.
    pub(crate) fn begin(&mut self, turn: &Turn, now_nanoseconds: u64) -> bool {
        let next = self.next_nanoseconds.get(turn).copied().unwrap_or(0);
        if now_nanoseconds < next || !self.under_way.insert(turn.clone()) {
            return false;
        }
        let next = now_nanoseconds.saturating_add(RETRY_NANOSECONDS);
        self.next_nanoseconds.insert(turn.clone(), next);
        true
    }

    pub(crate) fn is_under_way(&self, turn: &Turn) -> bool {
        self.under_way.contains(turn)
    }

    pub(crate) fn end(&mut self, turn: &Turn) {
        self.under_way.remove(turn);
    }
}
