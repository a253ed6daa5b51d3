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
//! Invariants:
//! - A call that is being done is not begun a second time, however long it takes.
//! - At most [`Limits::answers_max`] answers, and at most [`Limits::client_answers_max`] of one
//!   client, so that a busy client does not push out the answers that another is in doubt about.
//!   WRITEs have limits of their own ([`ReplyCache`]): they are many, and must not push out the
//!   answers of the other procedures.
//! - At most [`Limits::pending_max`] calls that are being done, and at most
//!   [`Limits::client_pending_max`] of one client.
//!
//! Fails: a call beyond the limits of calls that are being done is refused ([`Begin::Refused`]).
//! An evicted call is done again, as on every NFSv3 server. A restart forgets all.

use onc_rpc::Replier;
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

/// How long an answer is good for a later connection: as long as a Linux server keeps any. Clients
/// come back within a minute, or when the server does. It counts from the answer, not from the
/// call: calls that wait for a log that stalls may take longer than this.
const AGE_MAX_NANOSECONDS: u64 = 120_000_000_000;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Answers of all clients.
    pub(crate) answers_max: usize,
    /// Answers of one client.
    pub(crate) client_answers_max: usize,
    /// Calls of all clients that are being done.
    pub(crate) pending_max: usize,
    /// Calls of one client that are being done.
    pub(crate) client_pending_max: usize,
}

/// Two connections full of calls in flight (`onc_rpc::connection::CALLS_IN_FLIGHT_MAX`) for a
/// client's answers, which is what it can be in doubt about; 16 for the calls that are being done,
/// as many connections as a Linux client makes (`nconnect`). At 500 bytes for an answer and 250 for
/// a call, with what finds them, both rooms together take 32 MB at most. More for each client does
/// not fit into the smallest memory that a node may have.
pub(crate) const LIMITS: Limits = Limits {
    answers_max: 16 << 10,
    client_answers_max: 2048,
    pending_max: 32 << 10,
    client_pending_max: 16 << 10,
};

/// Names a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    client: IpAddr,
    xid: u32,
    length: usize,
    content: u64,
    is_write: bool,
}

impl Key {
    /// The key of a call of `client` whose record, from the number on, is `record`.
    ///
    /// The checksum is a CRC because it is taken of the data of every WRITE. Two calls of one
    /// length that differ in 64 bits in a row never have the same one. A client that looks for two
    /// calls of the same checksum harms itself only.
    pub(crate) fn new(client: IpAddr, xid: u32, record: &[u8], is_write: bool) -> Self {
        if mutation::broken(Rule::XidAnswersAnother) {
            return Self { client, xid, length: 0, content: 0, is_write };
        }
        let content = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, record);
        Self { client, xid, length: record.len(), content, is_write }
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
}

/// What is known of a client.
#[derive(Default)]
struct Client {
    /// The turns of its answers, the oldest first.
    answers: VecDeque<u64>,
    /// Its calls that are being done.
    pending: usize,
}

struct Entries<R> {
    entries: HashMap<Key, Entry<R>>,
    /// The keys of all answers by turn.
    order: BTreeMap<u64, Key>,
    clients: HashMap<IpAddr, Client>,
    pending: usize,
    next_turn: u64,
}

/// One of the two rooms.
struct Room<R> {
    entries: Mutex<Entries<R>>,
    limits: Limits,
}

/// The cache. `R` is what an answer is sent with.
pub(crate) struct ReplyCache<R = Replier> {
    writes: Room<R>,
    others: Room<R>,
}

impl<R> ReplyCache<R> {
    pub(crate) fn new() -> Self {
        Self::with_limits(LIMITS)
    }

    fn with_limits(limits: Limits) -> Self {
        let room = || {
            let entries = Entries {
                entries: HashMap::new(),
                order: BTreeMap::new(),
                clients: HashMap::new(),
                pending: 0,
                next_turn: 0,
            };
            Room { entries: Mutex::new(entries), limits }
        };
        Self { writes: room(), others: room() }
    }

    const fn room(&self, key: &Key) -> &Room<R> {
        if key.is_write { &self.writes } else { &self.others }
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
        self.room(key).finish(key, now_nanoseconds, answer)
    }

    /// The call was not done: arguments that are garbage, an answer that was lost. Gives the newest
    /// copy, if that is not the first.
    pub(crate) fn forget(&self, key: &Key) -> Option<R> {
        match self.room(key).entries.lock().remove(key)?.state {
            State::Begun(newest) => newest,
            State::Done { .. } => None,
        }
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
        let of_client = entries.clients.get(&key.client).map_or(0, |client| client.pending);
        if of_client >= self.limits.client_pending_max || entries.pending >= self.limits.pending_max
        {
            return Begin::Refused(replier);
        }
        entries.pending += 1;
        entries.clients.entry(key.client).or_default().pending += 1;
        entries.entries.insert(key, Entry { state: State::Begun(None), connection });
        Begin::Fresh(replier)
    }

    fn finish(&self, key: &Key, answered_nanoseconds: u64, answer: &[u8]) -> Option<R> {
        let answer: Box<[u8]> = answer.into();
        let mut entries = self.entries.lock();
        let evicted = entries.make_room(key.client, &self.limits);
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
        entries.order.insert(turn, *key);
        entries.end_pending(key.client);
        entries.clients.entry(key.client).or_default().answers.push_back(turn);
        drop(entries);
        drop(evicted);
        newest
    }
}

impl<R> Entries<R> {
    /// Takes an answer out if one more would be too many: the client's oldest, or the oldest.
    fn make_room(&mut self, client: IpAddr, limits: &Limits) -> Option<Entry<R>> {
        let own = self.clients.get(&client).map(|client| &client.answers);
        let turn = if own.is_some_and(|own| own.len() >= limits.client_answers_max) {
            own.and_then(|own| own.front().copied())
        } else if self.order.len() >= limits.answers_max {
            self.order.first_key_value().map(|(turn, _)| *turn)
        } else {
            None
        };
        let key = self.order.get(&turn?).copied()?;
        self.remove(&key)
    }

    fn end_pending(&mut self, client: IpAddr) {
        self.pending -= 1;
        if let Some(client) = self.clients.get_mut(&client) {
            client.pending -= 1;
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Entry<R>> {
        let entry = self.entries.remove(key)?;
        match &entry.state {
            State::Begun(_) => self.end_pending(key.client),
            State::Done { turn, .. } => {
                self.order.remove(turn);
                let answers = self.clients.get_mut(&key.client).map(|client| &mut client.answers);
                // Turns are in order, and most of what goes is the oldest.
                if let Some(answers) = answers
                    && let Ok(place) = answers.binary_search(turn)
                {
                    answers.remove(place);
                }
            }
        }
        let client = self.clients.get(&key.client);
        if client.is_some_and(|client| client.answers.is_empty() && client.pending == 0) {
            self.clients.remove(&key.client);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
