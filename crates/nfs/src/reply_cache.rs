//! Answers to changes, kept for clients that ask again: the duplicate request cache.
//!
//! A client whose connection is lost sends its unanswered calls again, with the same numbers. If
//! such a call was a REMOVE that had been done, doing it again would answer "no such file". So the
//! answers to procedures that cannot be repeated are kept for a while (RFC 1813 section 4.7), by
//! the client's address, the call's number, and a hash of the whole call: program, procedure,
//! credential and arguments. The client's port is no part of it, because the new connection need
//! not come from the old one's. What tells a repeated call from a new one with the same number is
//! the hash, and where the connection is another one also the time: a client that starts its
//! numbers anew may well make the same call later, and means it ([`AGE_MAX_NANOSECONDS`]).
//!
//! Invariants: at most [`ENTRIES_MAX`] answers, and at most [`CLIENT_ENTRIES_MAX`] of one client,
//! so that a busy client does not push out the answers that another is in doubt about; a call that
//! is being done is not begun a second time, its last asker gets the answer too.
//!
//! Fails: never. What was evicted is done again, as on every NFSv3 server. A restart forgets all.

use onc_rpc::Replier;
use platform::sync::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

/// Answers kept: at 500 bytes each, with what finds them, about 8 MB.
pub(crate) const ENTRIES_MAX: usize = 16 << 10;
/// Answers kept of one client: two connections full of calls in flight
/// (`onc_rpc::server::CALLS_IN_FLIGHT_MAX`), which is what it can be in doubt about.
const CLIENT_ENTRIES_MAX: usize = 2048;
/// How long an answer is good for another connection: as long as a Linux server keeps any. Clients
/// come back within a minute, or when the server does.
const AGE_MAX_NANOSECONDS: u64 = 120_000_000_000;

/// Names a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    client: IpAddr,
    xid: u32,
    content: u64,
}

impl Key {
    /// The key of a call of `client` whose record, from the number on, is `record`.
    pub(crate) fn new(client: IpAddr, xid: u32, record: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        record.hash(&mut hasher);
        Self { client, xid, content: hasher.finish() }
    }
}

enum State<R> {
    /// Being done; whoever asked again meanwhile waits.
    Begun(Option<R>),
    /// Done: the answer behind the RPC header.
    Done(Box<[u8]>),
}

struct Entry<R> {
    state: State<R>,
    peer: SocketAddr,
    begun_nanoseconds: u64,
    /// Its place in the order of beginning.
    turn: u64,
}

/// What to do with a call.
pub(crate) enum Begin<R> {
    /// It is new: do it.
    Fresh(R),
    /// It was done: answer this.
    Replay(R, Box<[u8]>),
    /// It is being done: the answer will be sent when it is.
    Joined,
}

struct Entries<R> {
    entries: HashMap<Key, Entry<R>>,
    /// All keys by turn.
    order: BTreeMap<u64, Key>,
    /// The turns of each client's entries, the oldest first.
    clients: HashMap<IpAddr, VecDeque<u64>>,
    next_turn: u64,
}

/// The cache. `R` is what an answer is sent with.
pub(crate) struct ReplyCache<R = Replier> {
    entries: Mutex<Entries<R>>,
    entries_max: usize,
    client_entries_max: usize,
}

impl<R> ReplyCache<R> {
    pub(crate) fn new() -> Self {
        Self::with_limits(ENTRIES_MAX, CLIENT_ENTRIES_MAX)
    }

    fn with_limits(entries_max: usize, client_entries_max: usize) -> Self {
        let entries = Entries {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            clients: HashMap::new(),
            next_turn: 0,
        };
        Self { entries: Mutex::new(entries), entries_max, client_entries_max }
    }

    /// A call that cannot be repeated came in over `peer`'s connection.
    pub(crate) fn begin(
        &self,
        key: Key,
        peer: SocketAddr,
        now_nanoseconds: u64,
        replier: R,
    ) -> Begin<R> {
        let mut entries = self.entries.lock();
        let mut dropped = Vec::new();
        if let Some(entry) = entries.entries.get_mut(&key) {
            let age = now_nanoseconds.saturating_sub(entry.begun_nanoseconds);
            match &mut entry.state {
                State::Begun(waiting) => {
                    let before = waiting.replace(replier);
                    drop(entries);
                    drop(before); // answers an error, into a connection that is lost most likely
                    return Begin::Joined;
                }
                State::Done(answer) if entry.peer == peer || age < AGE_MAX_NANOSECONDS => {
                    return Begin::Replay(replier, answer.clone());
                }
                State::Done(_) => dropped.extend(entries.remove(&key)),
            }
        }
        let own = entries.clients.get(&key.client).map_or(0, VecDeque::len);
        if own >= self.client_entries_max {
            let turn = entries.clients.get(&key.client).and_then(|turns| turns.front().copied());
            dropped.extend(turn.and_then(|turn| entries.evict(turn)));
        } else if entries.order.len() >= self.entries_max {
            let turn = entries.order.first_key_value().map(|(turn, _)| *turn);
            dropped.extend(turn.and_then(|turn| entries.evict(turn)));
        }
        entries.insert(key, peer, now_nanoseconds);
        drop(entries);
        drop(dropped);
        Begin::Fresh(replier)
    }

    /// The call was done. Gives who asked again meanwhile.
    pub(crate) fn finish(&self, key: &Key, answer: &[u8]) -> Option<R> {
        let mut entries = self.entries.lock();
        let entry = entries.entries.get_mut(key)?;
        match std::mem::replace(&mut entry.state, State::Done(answer.into())) {
            State::Begun(waiting) => waiting,
            State::Done(_) => None,
        }
    }

    /// The call was not done: arguments that are garbage, an answer that was lost.
    pub(crate) fn forget(&self, key: &Key) {
        let removed = self.entries.lock().remove(key);
        drop(removed);
    }
}

impl<R> Entries<R> {
    fn insert(&mut self, key: Key, peer: SocketAddr, begun_nanoseconds: u64) {
        let turn = self.next_turn;
        self.next_turn += 1;
        let entry = Entry { state: State::Begun(None), peer, begun_nanoseconds, turn };
        self.entries.insert(key, entry);
        self.order.insert(turn, key);
        self.clients.entry(key.client).or_default().push_back(turn);
    }

    fn evict(&mut self, turn: u64) -> Option<Entry<R>> {
        let key = self.order.get(&turn).copied()?;
        self.remove(&key)
    }

    fn remove(&mut self, key: &Key) -> Option<Entry<R>> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.turn);
        if let Some(turns) = self.clients.get_mut(&key.client) {
            // Turns are in order, and most of what goes is the oldest.
            if let Ok(place) = turns.binary_search(&entry.turn) {
                turns.remove(place);
            }
            if turns.is_empty() {
                self.clients.remove(&key.client);
            }
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 700);
    const OTHER_PORT: SocketAddr = SocketAddr::new(PEER.ip(), 701);

    fn key(xid: u32) -> Key {
        Key::new(PEER.ip(), xid, b"arguments")
    }

    fn is_fresh(cache: &ReplyCache<u32>, key: Key) -> bool {
        matches!(cache.begin(key, PEER, 0, 0), Begin::Fresh(0))
    }

    #[test]
    fn a_repeated_call_gets_the_first_answer() {
        let cache = ReplyCache::with_limits(8, 8);
        assert!(is_fresh(&cache, key(1)));
        assert_eq!(cache.finish(&key(1), b"answer"), None);
        for peer in [PEER, OTHER_PORT] {
            let Begin::Replay(5, answer) = cache.begin(key(1), peer, 9, 5) else { panic!("done") };
            assert_eq!(&*answer, b"answer");
        }
        let other = Key::new(PEER.ip(), 1, b"others");
        assert!(is_fresh(&cache, other), "the same number, another call");
        let other = Key::new(IpAddr::from([127, 0, 0, 2]), 1, b"arguments");
        assert!(is_fresh(&cache, other), "another client");
    }

    #[test]
    fn an_old_answer_is_for_its_own_connection_only() {
        let cache = ReplyCache::with_limits(8, 8);
        assert!(is_fresh(&cache, key(1)));
        cache.finish(&key(1), b"answer");
        let late = AGE_MAX_NANOSECONDS;
        assert!(matches!(cache.begin(key(1), PEER, late, 5), Begin::Replay(5, _)));
        assert!(matches!(cache.begin(key(1), OTHER_PORT, late, 5), Begin::Fresh(5)));
        assert!(matches!(cache.begin(key(1), OTHER_PORT, late, 6), Begin::Joined));
        assert_eq!(cache.entries.lock().order.len(), 1);
    }

    #[test]
    fn a_call_that_is_being_done_is_joined() {
        let cache = ReplyCache::with_limits(8, 8);
        assert!(is_fresh(&cache, key(1)));
        assert!(matches!(cache.begin(key(1), PEER, 0, 5), Begin::Joined));
        assert!(matches!(cache.begin(key(1), OTHER_PORT, 0, 6), Begin::Joined));
        assert_eq!(cache.finish(&key(1), b""), Some(6));
    }

    #[test]
    fn the_oldest_go_first_and_the_forgotten_are_fresh() {
        let cache = ReplyCache::with_limits(2, 8);
        for xid in 1..=3 {
            assert!(is_fresh(&cache, key(xid)));
            cache.finish(&key(xid), b"");
        }
        assert!(!is_fresh(&cache, key(3)));
        assert!(!is_fresh(&cache, key(2)));
        cache.forget(&key(2));
        assert!(is_fresh(&cache, key(2)));
        assert!(is_fresh(&cache, key(1)), "evicted");
        assert_eq!(cache.finish(&key(3), b""), None, "evicted, no one waits");
        assert_eq!(cache.entries.lock().order.len(), 2);
    }

    #[test]
    fn a_busy_client_pushes_out_its_own() {
        let cache = ReplyCache::with_limits(8, 4);
        let quiet = Key::new(IpAddr::from([10, 0, 0, 1]), 1, b"");
        assert!(is_fresh(&cache, quiet));
        for xid in 0..100 {
            assert!(is_fresh(&cache, key(xid)));
            cache.finish(&key(xid), b"");
        }
        assert!(!is_fresh(&cache, quiet) && !is_fresh(&cache, key(96)));
        assert!(is_fresh(&cache, key(95)));
        let entries = cache.entries.lock();
        assert_eq!((entries.order.len(), entries.entries.len(), entries.clients.len()), (5, 5, 2));
    }
}
