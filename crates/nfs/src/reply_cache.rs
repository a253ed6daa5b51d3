//! Answers to changes, kept for clients that ask again: the duplicate request cache.
//!
//! A client whose connection is lost sends its unanswered calls again, with the same numbers. If
//! such a call was a REMOVE that had been done, doing it again would answer "no such file"; if it
//! was a WRITE, doing it again may overwrite what the client wrote later. So calls that change
//! something are kept for a while (RFC 1813 section 4.7), by the client's address, the call's
//! number, its length, and a checksum of the whole call: program, procedure, credential and
//! arguments. The client's port is no part of it, because the new connection need not come from
//! the old one's. The checksum tells a repeated call from a new call with the same number. A client
//! that starts its numbers anew may well make the same call later, and means it: so an answer is
//! good for a later connection for [`AGE_MAX_NANOSECONDS`] only.
//!
//! Several copies of a call may be here at once, over one connection or several. The newest copy
//! gets the answer, because that is where the client listens: the copy that came last of the
//! connection that was opened last. The others get no reply at all. A copy of an older connection
//! that is read late (its client has given that connection up) does not take the answer away.
//!
//! Where an answer was forgotten, its call may still come: read late, over a connection that its
//! client gave up long ago, because the server had no room to read it, or from what the client's
//! kernel still had to send. To do it then would undo what the client did since. So while a client
//! has another connection, calls are remembered longer than their answers ([`forgotten`]), and if
//! a copy comes over the connection that had the answer, or an older one, that connection ends
//! ([`Begin::Late`]): a client that still listens there sends its calls again, over a new one. With
//! one connection alone copies come in the order in which they were sent. So it is with calls whose
//! client was told to come later ([`ReplyCache::put_off`]): it does, with another call.
//!
//! Invariants:
//! - A call that is being done is not begun a second time, however long it takes.
//! - At most [`ReplyLimits::answers_max`] answers, and at most [`ReplyLimits::client_answers_max`]
//!   of one client; if there are too many, one of the client that has most goes. So a busy client
//!   does not push out the answers that another is in doubt about. WRITEs have limits of their own
//!   ([`ReplyCache`]): they are many, and must not push out the answers of the other procedures.
//! - At most [`ReplyLimits::pending_max`] calls that are being done, of which a client has no more
//!   than are left for others: half if it is alone, a third if another has as many, and so on. So
//!   a few clients leave room for more.
//!
//! Fails: a call beyond the limits of calls that are being done is refused ([`Begin::Refused`]).
//! An evicted call is done again, as on every NFSv3 server, unless it is late. A restart forgets
//! all.

mod forgotten;
mod key;

use crate::connections::Connections;
use foldhash::fast::RandomState;
use forgotten::Forgotten;
pub(crate) use key::Key;
use onc_rpc::Replier;
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// How long an answer is good for a later connection: as long as a Linux server keeps any. Clients
/// come back within a minute, or when the server does. It counts from the answer, not from the
/// call: calls that wait for a log that stalls may take longer than this.
const AGE_MAX_NANOSECONDS: u64 = 120_000_000_000;

/// How much is kept of answers to changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyLimits {
    /// Answers of all clients.
    pub answers_max: usize,
    /// Answers of one client.
    pub client_answers_max: usize,
    /// Calls of all clients that are being done.
    pub pending_max: usize,
    /// Calls that are remembered without their answers, of clients with several connections.
    pub forgotten_max: usize,
}

impl Default for ReplyLimits {
    /// Two connections full of calls in flight (`onc_rpc::connection::CALLS_IN_FLIGHT_MAX`) for a
    /// client's answers, which is what it can be in doubt about; for the calls that are being done,
    /// twice as many as 16 connections have, which a Linux client makes (`nconnect`). At 500 bytes
    /// for an answer and 250 for a call, with what finds them, both rooms together take 32 MB at
    /// most. More for each client does not fit into the smallest memory that a node may have. What
    /// is remembered without an answer takes 40 bytes, 5 MB in both rooms.
    fn default() -> Self {
        Self {
            answers_max: 16 << 10,
            client_answers_max: 2048,
            pending_max: 32 << 10,
            forgotten_max: 64 << 10,
        }
    }
}

enum State<R> {
    /// Being done; the newest copy waits, if it is not the first.
    Begun(Option<R>),
    /// Done: the answer behind the RPC header.
    Done {
        answer: Box<[u8]>,
        answered_nanoseconds: u64,
        /// Its place in the order of answers.
        turn: u64,
    },
}

struct Entry<R> {
    state: State<R>,
    /// The newest connection that brought a copy: connections are numbered as they are opened.
    connection: u64,
}

impl<R> Entry<R> {
    /// The newest copy of a call that is being done, if it is not the first.
    fn newest(self) -> Option<R> {
        match self.state {
            State::Begun(newest) => newest,
            State::Done { .. } => None,
        }
    }
}

/// What to do with a call.
pub(crate) enum Begin<R> {
    /// It is new: do it.
    Fresh(R),
    /// It was done: answer this.
    Replay(R, Box<[u8]>),
    /// It is being done: the newest copy will be answered when it is. Another copy gets no reply.
    Joined(Option<R>),
    /// Too many calls are being done.
    Refused(R),
    /// It may be a copy of a call whose answer was forgotten: its connection has to end.
    Late(R),
}

/// What is known of a client.
#[derive(Default)]
struct Client {
    /// Its calls that have answers, each with its turn, the oldest first.
    answers: VecDeque<(u64, Key)>,
    /// Its calls that are being done.
    pending: usize,
}

/// Hashed with keys of this process that nobody outside knows. It is no cryptographic hash: whoever
/// finds out that its calls meet makes the server look through its own, which are limited.
struct Entries<R> {
    entries: HashMap<Key, Entry<R>, RandomState>,
    clients: HashMap<IpAddr, Client, RandomState>,
    /// The clients that have answers, by how many.
    by_answers: BTreeSet<(usize, IpAddr)>,
    answers: usize,
    pending: usize,
    next_turn: u64,
    forgotten: Forgotten,
}

/// One of the two rooms.
struct Room<R> {
    entries: Mutex<Entries<R>>,
    limits: ReplyLimits,
}

/// The cache. `R` is what an answer is sent with.
pub(crate) struct ReplyCache<R = Replier> {
    writes: Room<R>,
    others: Room<R>,
    connections: Arc<Connections>,
}

impl<R> ReplyCache<R> {
    pub(crate) fn new(limits: ReplyLimits, connections: Arc<Connections>) -> Self {
        let room = || {
            let entries = Entries {
                entries: HashMap::default(),
                clients: HashMap::default(),
                by_answers: BTreeSet::new(),
                answers: 0,
                pending: 0,
                next_turn: 0,
                forgotten: Forgotten::new(limits.forgotten_max),
            };
            Room { entries: Mutex::new(entries), limits }
        };
        Self { writes: room(), others: room(), connections }
    }

    /// Calls that are known, for tests.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        [&self.writes, &self.others].map(|room| room.entries.lock().entries.len()).iter().sum()
    }

    const fn room(&self, key: &Key) -> &Room<R> {
        if key.is_write { &self.writes } else { &self.others }
    }

    /// Whether anything is known of a call that came in over a connection: it is being done, was
    /// answered, or is late.
    pub(crate) fn knows(&self, key: &Key, connection: u64) -> bool {
        let entries = self.room(key).entries.lock();
        entries.entries.contains_key(key) || entries.forgotten.was_answered(key, connection)
    }

    /// A call that changes something came in over a connection.
    pub(crate) fn begin(
        &self,
        key: Key,
        connection: u64,
        now_nanoseconds: u64,
        replier: R,
    ) -> Begin<R> {
        self.room(&key).begin(key, connection, now_nanoseconds, replier)
    }

    /// The call was done. Gives the newest copy, if that is not the first.
    pub(crate) fn finish(&self, key: &Key, now_nanoseconds: u64, answer: &[u8]) -> Option<R> {
        self.room(key).finish(key, now_nanoseconds, answer, &self.connections)
    }

    /// The call was not done: arguments that are garbage, an answer that was lost. Gives the newest
    /// copy, if that is not the first.
    pub(crate) fn forget(&self, key: &Key) -> Option<R> {
        self.room(key).entries.lock().remove(key)?.newest()
    }

    /// The call was not done, and its client is told to come later, which it does with another
    /// call: a copy of this one that is read late is not done either. Gives the newest copy, if
    /// that is not the first.
    pub(crate) fn put_off(&self, key: &Key) -> Option<R> {
        let mut entries = self.room(key).entries.lock();
        let entry = entries.remove(key)?;
        entries.remember(key, entry.connection, &self.connections);
        entry.newest()
    }

    /// The same of a call that was refused when it came ([`Begin::Refused`]).
    pub(crate) fn put_off_refused(&self, key: &Key, connection: u64) {
        self.room(key).entries.lock().remember(key, connection, &self.connections);
    }
}

impl<R> Room<R> {
    fn begin(&self, key: Key, connection: u64, now_nanoseconds: u64, replier: R) -> Begin<R> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.entries.get_mut(&key) {
            let is_older = connection < entry.connection;
            let is_known = connection <= entry.connection;
            match &mut entry.state {
                State::Begun(_) if mutation::broken(Rule::RepeatedCallRunsBeside) => {
                    return Begin::Fresh(replier);
                }
                State::Begun(_) if is_older => return Begin::Joined(Some(replier)),
                State::Begun(newest) => {
                    entry.connection = connection;
                    return Begin::Joined(newest.replace(replier));
                }
                State::Done { answer, answered_nanoseconds, .. } => {
                    let age = now_nanoseconds.saturating_sub(*answered_nanoseconds);
                    if is_known || age < AGE_MAX_NANOSECONDS {
                        // Further copies over the same connection get it whenever they come.
                        entry.connection = entry.connection.max(connection);
                        return Begin::Replay(replier, answer.clone());
                    }
                }
            }
            drop(entries.remove(&key));
        }
        let is_late = entries.forgotten.was_answered(&key, connection);
        if is_late && !mutation::broken(Rule::LateCopyDone) {
            return Begin::Late(replier);
        }
        let left = self.limits.pending_max.saturating_sub(entries.pending);
        match entries.clients.entry(key.client) {
            Place::Occupied(mut client) if client.get().pending < left => {
                client.get_mut().pending += 1;
            }
            Place::Vacant(client) if left > 0 => client.insert(Client::default()).pending += 1,
            Place::Occupied(_) | Place::Vacant(_) => return Begin::Refused(replier),
        }
        entries.pending += 1;
        entries.entries.insert(key, Entry { state: State::Begun(None), connection });
        Begin::Fresh(replier)
    }

    fn finish(
        &self,
        key: &Key,
        answered_nanoseconds: u64,
        answer: &[u8],
        connections: &Connections,
    ) -> Option<R> {
        let answer: Box<[u8]> = answer.into();
        let mut entries = self.entries.lock();
        let turn = entries.next_turn;
        let entry = entries.entries.get_mut(key)?;
        let State::Begun(newest) = &mut entry.state else {
            assert!(mutation::broken(Rule::RepeatedCallRunsBeside), "a call is done once");
            return None;
        };
        let newest = newest.take();
        if mutation::broken(Rule::RepliesNotKept) {
            drop(entries.remove(key));
            return newest;
        }
        entry.state = State::Done { answer, answered_nanoseconds, turn };
        entries.next_turn += 1;
        let evicted = entries.keep(turn, key, &self.limits);
        if let Some((key, evicted)) = &evicted {
            entries.remember(key, evicted.connection, connections);
        }
        drop(entries);
        drop(evicted);
        newest
    }
}

impl<R> Entries<R> {
    /// Takes the answer of a call that was being done among the answers. Gives the one that has to
    /// go for it: the oldest of its client's, or of the client that has most.
    fn keep(&mut self, turn: u64, key: &Key, limits: &ReplyLimits) -> Option<(Key, Entry<R>)> {
        let client = self.clients.entry(key.client).or_default();
        self.pending -= 1;
        client.pending -= 1;
        if client.answers.len() >= limits.client_answers_max {
            // As many as before, so nothing else changes: a busy client mostly comes here.
            client.answers.push_back((turn, *key));
            let (_, oldest) = client.answers.pop_front()?;
            return self.entries.remove_entry(&oldest);
        }
        let evicted = if self.answers >= limits.answers_max { self.evict() } else { None };
        self.change_answers(key.client, |answers| answers.push_back((turn, *key)));
        evicted
    }

    /// Takes out the oldest answer of the client that has most.
    fn evict(&mut self) -> Option<(Key, Entry<R>)> {
        let loser = self.by_answers.last()?.1;
        let (_, key) = *self.clients.get(&loser)?.answers.front()?;
        self.remove(&key).map(|entry| (key, entry))
    }

    fn change_answers(&mut self, client: IpAddr, change: impl FnOnce(&mut VecDeque<(u64, Key)>)) {
        let answers = &mut self.clients.entry(client).or_default().answers;
        let before = answers.len();
        change(answers);
        let after = answers.len();
        self.answers = self.answers - before + after;
        self.by_answers.remove(&(before, client));
        if after > 0 {
            self.by_answers.insert((after, client));
        }
    }

    /// Remembers a call without an answer, if a copy of it may come late.
    fn remember(&mut self, key: &Key, connection: u64, connections: &Connections) {
        if connections.may_bring(key.client, connection) {
            self.forgotten.add(key, connection);
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Entry<R>> {
        let entry = self.entries.remove(key)?;
        match &entry.state {
            State::Begun(_) => {
                self.pending -= 1;
                if let Some(client) = self.clients.get_mut(&key.client) {
                    client.pending -= 1;
                }
            }
            State::Done { turn, .. } => self.change_answers(key.client, |answers| {
                // Turns are in order, and most of what goes is the oldest.
                if let Ok(place) = answers.binary_search_by_key(turn, |(turn, _)| *turn) {
                    answers.remove(place);
                }
            }),
        }
        if let Some(client) = self.clients.get(&key.client)
            && client.answers.is_empty()
            && client.pending == 0
        {
            self.clients.remove(&key.client);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
