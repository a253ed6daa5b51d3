//! Calls whose answers were forgotten while a copy of them may still come.
//!
//! Invariants: of each call the newest connection is known that has had its answer. The last so
//! many calls are kept, by checksums with a key of this process: nobody can make two that meet. Of
//! too many, the client with most loses its oldest: a busy client does not make the server forget
//! what others did.

use super::Key;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

/// See the module.
pub(super) struct Forgotten {
    keyed: RandomState,
    connections: HashMap<u64, u64>,
    /// The calls of each client, the oldest first.
    orders: HashMap<IpAddr, VecDeque<u64>>,
    /// The clients that have calls here, by how many.
    by_calls: BTreeSet<(usize, IpAddr)>,
    max: usize,
}

impl Forgotten {
    pub(super) fn new(max: usize) -> Self {
        Self {
            keyed: RandomState::new(),
            connections: HashMap::new(),
            orders: HashMap::new(),
            by_calls: BTreeSet::new(),
            max,
        }
    }

    /// The answer that a connection has had is forgotten.
    pub(super) fn add(&mut self, key: &Key, connection: u64) {
        let checksum = self.keyed.hash_one(key.whole());
        if let Some(known) = self.connections.get_mut(&checksum) {
            *known = connection.max(*known);
            return;
        }
        if self.connections.len() >= self.max
            && let Some((_, loser)) = self.by_calls.last().copied()
        {
            let oldest = self.change(loser, VecDeque::pop_front);
            oldest.and_then(|oldest| self.connections.remove(&oldest));
        }
        self.change(key.client, |order| order.push_back(checksum));
        self.connections.insert(checksum, connection);
    }

    fn change<T>(&mut self, client: IpAddr, change: impl FnOnce(&mut VecDeque<u64>) -> T) -> T {
        let order = self.orders.entry(client).or_default();
        self.by_calls.remove(&(order.len(), client));
        let changed = change(order);
        match order.len() {
            0 => drop(self.orders.remove(&client)),
            calls => drop(self.by_calls.insert((calls, client))),
        }
        changed
    }

    /// Whether a call was answered over this connection, or a newer one.
    pub(super) fn was_answered(&self, key: &Key, connection: u64) -> bool {
        // Nothing is kept of clients that have one connection.
        !self.connections.is_empty()
            && self
                .connections
                .get(&self.keyed.hash_one(key.whole()))
                .is_some_and(|answered| connection <= *answered)
    }
}
