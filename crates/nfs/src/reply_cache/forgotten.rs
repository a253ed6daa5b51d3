//! Calls whose answers were forgotten while a copy of them may still come.
//!
//! Invariants: of each call the newest connection is known that has had its answer. The last so
//! many calls are kept, by checksums with a key of this process: nobody can make two that meet.

use super::Key;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

/// See the module.
pub(super) struct Forgotten {
    keyed: RandomState,
    connections: HashMap<u64, u64>,
    /// The oldest first.
    order: VecDeque<u64>,
    max: usize,
}

impl Forgotten {
    pub(super) fn new(max: usize) -> Self {
        let (connections, order) = (HashMap::new(), VecDeque::new());
        Self { keyed: RandomState::new(), connections, order, max }
    }

    /// The answer that a connection has had is forgotten.
    pub(super) fn add(&mut self, key: &Key, connection: u64) {
        let checksum = self.keyed.hash_one(key);
        if let Some(known) = self.connections.get_mut(&checksum) {
            *known = connection.max(*known);
            return;
        }
        if self.order.len() >= self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.connections.remove(&oldest);
        }
        self.order.push_back(checksum);
        self.connections.insert(checksum, connection);
    }

    /// Whether a call was answered over this connection, or a newer one.
    pub(super) fn was_answered(&self, key: &Key, connection: u64) -> bool {
        // Nothing is kept of clients that have one connection.
        !self.connections.is_empty()
            && self
                .connections
                .get(&self.keyed.hash_one(key))
                .is_some_and(|answered| connection <= *answered)
    }
}
