//! Which connections each client has open, numbered as they were opened.
//!
//! Invariants: a number is given once. A connection is counted from [`Connections::open`] until its
//! [`Open`] is dropped, which is when the server reads no more of it.

use platform::sync::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Default)]
struct State {
    next: u64,
    open: HashMap<IpAddr, Arc<OfClient>>,
}

/// The open connections of one client. Once the last one has closed it stays empty: connections
/// that the client opens later are in a new one.
#[derive(Default)]
pub(crate) struct OfClient(Mutex<BTreeSet<u64>>);

impl OfClient {
    /// Whether a copy of a call that was answered over a connection may still be read late: over
    /// another connection that the client has open. `None` if no connection is left here: the
    /// caller must look the client up again.
    pub(crate) fn may_bring(&self, answered: u64) -> Option<bool> {
        let open = self.0.lock();
        let oldest = *open.first()?;
        Some(open.len() > 1 || oldest < answered)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Connections(Mutex<State>);

/// An open connection.
pub(crate) struct Open {
    connections: Arc<Connections>,
    client: IpAddr,
    number: u64,
}

impl Connections {
    /// A client opens a connection.
    pub(crate) fn open(self: &Arc<Self>, client: IpAddr) -> (u64, Open) {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        state.open.entry(client).or_default().0.lock().insert(number);
        (number, Open { connections: Arc::clone(self), client, number })
    }

    /// How many are open.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().open.values().map(|open| open.0.lock().len() as u64).sum()
    }

    /// A number for what is no connection: a datagram.
    pub(crate) fn number(&self) -> u64 {
        let mut state = self.0.lock();
        state.next += 1;
        state.next - 1
    }

    /// The connections of a client that has any.
    pub(crate) fn of(&self, client: IpAddr) -> Option<Arc<OfClient>> {
        self.0.lock().open.get(&client).map(Arc::clone)
    }

    /// As [`OfClient::may_bring`]; false for a client without a connection.
    pub(crate) fn may_bring(&self, client: IpAddr, answered: u64) -> bool {
        self.of(client).and_then(|open| open.may_bring(answered)).unwrap_or(false)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.connections.0.lock();
        let Some(of_client) = state.open.get(&self.client) else { return };
        let mut open = of_client.0.lock();
        open.remove(&self.number);
        let is_last = open.is_empty();
        drop(open);
        if is_last {
            state.open.remove(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_connections_of_a_client_are_known() {
        let connections = Arc::new(Connections::default());
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let (first, open) = connections.open(one);
        let (second, _others) = connections.open(other);
        assert!(!connections.may_bring(one, first), "the second is another's");
        assert_eq!(connections.count(), 2);
        let (third, newer) = connections.open(one);
        assert_eq!((first, second, third, connections.number()), (0, 1, 2, 3));
        assert!(connections.may_bring(one, first) && !connections.may_bring(other, second));
        drop(open);
        assert!(!connections.may_bring(one, third) && !connections.may_bring(one, first));
        assert!(connections.may_bring(one, third + 2), "the older one is still read");
        drop(newer);
        assert_eq!(connections.0.lock().open.len(), 1);
    }
}
