//! The calls that one room of the cache knows. Each call is in a slot and is found by its key. The
//! answers of each client form a list, the oldest first.
//!
//! A call keeps its slot until it ends. Whoever does the call holds a token ([`Begun`]) that names
//! the slot, so that ending a call needs no search. The buffer of an evicted answer is used for the
//! answer that it was evicted for, so that a busy client's answers need no allocation.
//!
//! Invariants: the index has every call's slot and no other; an answer is in its client's order
//! once, a call that is being done is in none; a client is known as long as it has a call here.
//!
//! Fails: never. Ending a call twice is a mistake of this crate, and panics.

use super::{Key, ReplyLimits};
use crate::connections::{Connections, OfClient};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use platform::mutation::{self, Rule};
use slab::Slab;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

/// The token of a call that is being done. It is handed back once, when the call ends.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Begun {
    pub(super) is_write: bool,
    slot: usize,
    number: u64,
}

/// How far a call is.
pub(super) enum State<R> {
    /// Being done; the newest copy waits, if it is not the first.
    Begun(Option<R>),
    /// Done: the answer behind the RPC header.
    Done { answer: Vec<u8>, answered_nanoseconds: u64 },
}

/// A call.
pub(super) struct Entry<R> {
    pub(super) state: State<R>,
    /// The newest connection that brought a copy: connections are numbered as they are opened.
    pub(super) connection: u64,
    pub(super) key: Key,
    /// Distinguishes the call from earlier calls in the same slot.
    number: u64,
    client: usize,
    /// Its neighbours in the order of its client's answers.
    older: Option<usize>,
    newer: Option<usize>,
}

impl<R> Entry<R> {
    /// The call is done. Gives the newest copy of it, if that is not the first.
    fn end(&mut self, done: State<R>) -> Option<R> {
        match std::mem::replace(&mut self.state, done) {
            State::Begun(newest) => newest,
            State::Done { .. } => None,
        }
    }

    /// The newest copy of a call that is being done, if it is not the first.
    pub(super) fn newest(self) -> Option<R> {
        match self.state {
            State::Begun(newest) => newest,
            State::Done { .. } => None,
        }
    }
}

/// A client, with its calls and connections.
struct Client {
    address: IpAddr,
    /// Its calls that are being done.
    pending: usize,
    /// Its calls that have answers, and the ends of their order.
    answers: usize,
    oldest: Option<usize>,
    newest: Option<usize>,
    /// Its open connections. Looked up when first needed, and again after the last of them has
    /// closed.
    connections: Option<Arc<OfClient>>,
}

/// A call whose answer was evicted to make room for another answer.
pub(super) struct Evicted {
    pub(super) key: Key,
    pub(super) connection: u64,
    /// Whether a copy of its call may still be read.
    pub(super) may_come: bool,
}

/// The largest buffer that is used for another answer. Most answers take less; an answer of NLM,
/// which repeats its client's cookie, may take 1 KiB, and must not leave that to all later ones.
const REUSED_BYTES_MAX: usize = 320;

/// See the module. Hashed with keys of this process that nobody outside knows. It is no
/// cryptographic hash: whoever finds out that its calls meet makes the server look through its own,
/// which are limited.
pub(super) struct Known<R> {
    hasher: RandomState,
    index: HashTable<usize>,
    entries: Slab<Entry<R>>,
    clients: Slab<Client>,
    by_address: HashMap<IpAddr, usize, RandomState>,
    /// The clients that have answers, by how many.
    by_answers: BTreeSet<(usize, IpAddr)>,
    answers: usize,
    pending: usize,
    next_number: u64,
}

impl<R> Known<R> {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            index: HashTable::new(),
            entries: Slab::new(),
            clients: Slab::new(),
            by_address: HashMap::default(),
            by_answers: BTreeSet::new(),
            answers: 0,
            pending: 0,
            next_number: 0,
        }
    }

    /// Calls.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory of all answers.
    #[cfg(test)]
    pub(super) fn answer_bytes(&self) -> usize {
        let states = self.entries.iter().map(|(_, entry)| &entry.state);
        states
            .map(|state| if let State::Done { answer, .. } = state { answer.capacity() } else { 0 })
            .sum()
    }

    /// The numbers of all calls, of calls with answers, of calls that are being done, of clients.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize, usize, usize) {
        (self.index.len(), self.answers, self.pending, self.clients.len())
    }

    /// The calls of a client that have answers, the oldest first, along the list in both
    /// directions.
    #[cfg(test)]
    pub(super) fn order(&self, address: IpAddr) -> [Vec<Key>; 2] {
        let client = self.by_address.get(&address).map(|place| &self.clients[*place]);
        let (oldest, newest) = client.map_or((None, None), |it| (it.oldest, it.newest));
        let walk = |start: Option<usize>, next: fn(&Entry<R>) -> Option<usize>| {
            let slots = std::iter::successors(start, |slot| next(&self.entries[*slot]));
            slots.map(|slot| self.entries[slot].key).collect::<Vec<_>>()
        };
        let mut backwards = walk(newest, |entry| entry.older);
        backwards.reverse();
        [walk(oldest, |entry| entry.newer), backwards]
    }

    /// Where a call is.
    pub(super) fn find(&self, key: &Key) -> Option<usize> {
        let is_it = |slot: &usize| self.entries.get(*slot).is_some_and(|entry| entry.key == *key);
        self.index.find(self.hasher.hash_one(key), is_it).copied()
    }

    /// The call in a slot.
    pub(super) fn at(&mut self, slot: usize) -> Option<&mut Entry<R>> {
        self.entries.get_mut(slot)
    }

    /// The slot of a call that is being done. `None` only under the mutation
    /// [`Rule::RepeatedCallRunsBeside`], when another copy has ended the call.
    pub(super) fn slot(&self, begun: &Begun) -> Option<usize> {
        let is_it = |entry: &Entry<R>| {
            entry.number == begun.number && matches!(entry.state, State::Begun(_))
        };
        let is_pending = self.entries.get(begun.slot).is_some_and(is_it);
        assert!(
            is_pending || mutation::broken(Rule::RepeatedCallRunsBeside),
            "a call is done once"
        );
        is_pending.then_some(begun.slot)
    }

    /// Under the mutation [`Rule::RepeatedCallRunsBeside`]: a second token for a call that is being
    /// done.
    pub(super) fn beside(&self, slot: usize) -> Option<Begun> {
        let entry = self.entries.get(slot)?;
        let begun = Begun { is_write: entry.key.is_write, slot, number: entry.number };
        matches!(entry.state, State::Begun(_)).then_some(begun)
    }

    /// A call that is not known begins; `None` if too many are being done.
    pub(super) fn begin(&mut self, key: Key, connection: u64, pending_max: usize) -> Option<Begun> {
        let left = pending_max.saturating_sub(self.pending);
        let known = self.by_address.get(&key.client).copied();
        let pending = known.and_then(|client| self.clients.get(client)).map_or(0, |it| it.pending);
        if pending >= left {
            return None;
        }
        let client = known.unwrap_or_else(|| self.add_client(key.client));
        if let Some(client) = self.clients.get_mut(client) {
            client.pending += 1;
        }
        self.pending += 1;
        let number = self.next_number;
        self.next_number += 1;
        let state = State::Begun(None);
        let (older, newer) = (None, None);
        let entry = Entry { state, connection, key, number, client, older, newer };
        let slot = self.entries.insert(entry);
        let (hasher, entries) = (&self.hasher, &self.entries);
        let hash = |slot: &usize| entries.get(*slot).map_or(0, |it| hasher.hash_one(it.key));
        self.index.insert_unique(hasher.hash_one(key), slot, hash);
        Some(Begun { is_write: key.is_write, slot, number })
    }

    fn add_client(&mut self, address: IpAddr) -> usize {
        let (oldest, newest, connections) = (None, None, None);
        let client = Client { address, pending: 0, answers: 0, oldest, newest, connections };
        let place = self.clients.insert(client);
        self.by_address.insert(address, place);
        place
    }

    /// A call that is being done has its answer. Gives the newest copy of it, if that is not the
    /// first, and the answer that went for it: the oldest of its client's, or of the client that
    /// has most.
    pub(super) fn answer(
        &mut self,
        begun: &Begun,
        (answer, answered_nanoseconds): (&[u8], u64),
        limits: &ReplyLimits,
        connections: &Connections,
    ) -> (Option<R>, Option<Evicted>) {
        let Some(slot) = self.slot(begun) else { return (None, None) };
        let place = self.entries.get(slot).map_or(0, |entry| entry.client);
        let answers = self.clients.get(place).map_or(0, |client| client.answers);
        // A client at its limit loses one answer and gains one: its count stays.
        let is_full = answers >= limits.client_answers_max.max(1);
        let evicted = if is_full {
            self.take_oldest(place, connections)
        } else if self.answers >= limits.answers_max {
            self.evict(connections)
        } else {
            None
        };
        let (buffer, evicted) = evicted.unzip();
        let buffer = buffer.filter(|buffer: &Vec<u8>| buffer.capacity() <= REUSED_BYTES_MAX);
        let mut kept = buffer.unwrap_or_default();
        kept.clear();
        kept.reserve_exact(answer.len());
        kept.extend_from_slice(answer);
        self.end_pending(place);
        self.append(place, slot);
        if !is_full {
            self.count_answers(place, |answers| answers + 1);
        }
        let done = State::Done { answer: kept, answered_nanoseconds };
        let newest = self.at(slot).and_then(|entry| entry.end(done));
        (newest, evicted)
    }

    /// Takes out the oldest answer of the client that has most.
    fn evict(&mut self, connections: &Connections) -> Option<(Vec<u8>, Evicted)> {
        let loser = *self.by_address.get(&self.by_answers.last()?.1)?;
        let evicted = self.take_oldest(loser, connections);
        self.count_answers(loser, |answers| answers - 1);
        self.forget_idle(loser);
        evicted
    }

    /// Takes out a client's oldest answer. The caller adjusts the counts.
    fn take_oldest(
        &mut self,
        place: usize,
        connections: &Connections,
    ) -> Option<(Vec<u8>, Evicted)> {
        let client = self.clients.get_mut(place)?;
        let slot = client.oldest?;
        let connection = self.entries.get(slot)?.connection;
        let may_come = client.may_bring(connection, connections);
        let Entry { key, state, .. } = self.take(slot)?;
        let State::Done { answer, .. } = state else { return None };
        Some((answer, Evicted { key, connection, may_come }))
    }

    /// Whether a copy of a call may still come late, if it is forgotten.
    pub(super) fn may_come(&mut self, slot: usize, connections: &Connections) -> bool {
        let Some(entry) = self.entries.get(slot) else { return false };
        let client = self.clients.get_mut(entry.client);
        client.is_some_and(|client| client.may_bring(entry.connection, connections))
    }

    /// Takes out a call.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Entry<R>> {
        let entry = self.take(slot)?;
        match &entry.state {
            State::Begun(_) => self.end_pending(entry.client),
            State::Done { .. } => self.count_answers(entry.client, |answers| answers - 1),
        }
        self.forget_idle(entry.client);
        Some(entry)
    }

    /// Takes a call out of its slot, the index and its client's order; nothing is counted.
    fn take(&mut self, slot: usize) -> Option<Entry<R>> {
        let entry = self.entries.try_remove(slot)?;
        let found = self.index.find_entry(self.hasher.hash_one(entry.key), |it| *it == slot);
        if let Ok(found) = found {
            found.remove();
        }
        if matches!(entry.state, State::Done { .. }) {
            let Entry { older, newer, .. } = entry;
            self.link(entry.client, older, newer);
        }
        Some(entry)
    }

    /// Appends an answer to its client's order.
    fn append(&mut self, place: usize, slot: usize) {
        let newest = self.clients.get(place).and_then(|client| client.newest);
        self.link(place, newest, Some(slot));
        self.link(place, Some(slot), None);
    }

    /// Makes two answers neighbours in their client's order; `None` is its end.
    fn link(&mut self, place: usize, older: Option<usize>, newer: Option<usize>) {
        let client = self.clients.get_mut(place);
        match older.and_then(|older| self.entries.get_mut(older)) {
            Some(entry) => entry.newer = newer,
            None => client.into_iter().for_each(|client| client.oldest = newer),
        }
        let client = self.clients.get_mut(place);
        match newer.and_then(|newer| self.entries.get_mut(newer)) {
            Some(entry) => entry.older = older,
            None => client.into_iter().for_each(|client| client.newest = older),
        }
    }

    fn end_pending(&mut self, place: usize) {
        self.pending -= 1;
        if let Some(client) = self.clients.get_mut(place) {
            client.pending -= 1;
        }
    }

    fn count_answers(&mut self, place: usize, change: impl FnOnce(usize) -> usize) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let answers = change(client.answers);
        self.answers = self.answers - client.answers + answers;
        self.by_answers.remove(&(client.answers, client.address));
        if answers > 0 {
            self.by_answers.insert((answers, client.address));
        }
        client.answers = answers;
    }

    fn forget_idle(&mut self, place: usize) {
        if let Some(client) = self.clients.get(place)
            && client.answers == 0
            && client.pending == 0
        {
            self.by_address.remove(&client.address);
            self.clients.remove(place);
        }
    }
}

impl Client {
    /// Whether a copy of a call whose newest copy came over this connection may still be read.
    fn may_bring(&mut self, connection: u64, connections: &Connections) -> bool {
        let known = self.connections.as_ref().and_then(|known| known.may_bring(connection));
        known.unwrap_or_else(|| {
            // It has none open, or opened one since it had none.
            self.connections = connections.of(self.address);
            let known = self.connections.as_ref().and_then(|known| known.may_bring(connection));
            known.unwrap_or(false)
        })
    }
}
