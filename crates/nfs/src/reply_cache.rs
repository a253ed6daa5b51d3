//! Answers to changes, kept for clients that ask again after their connection broke.
//!
//! A client whose connection is lost sends its unanswered calls again, with the same numbers. If
//! such a call was a REMOVE that had been done, doing it again would answer "no such file". So the
//! answers to procedures that cannot be repeated are kept for a while (RFC 1813 section 4.7), by
//! the client's address and port (Linux binds the same port again), the call's number, and a hash
//! of procedure and arguments, which tells a repeated call from a new one with the same number.
//!
//! Invariants: at most [`ENTRIES_MAX`] answers; a call that is being done is not begun a second
//! time, its last asker gets the answer too.
//!
//! Fails: never. What was evicted is done again, as on every NFSv3 server. A restart forgets all.

use onc_rpc::Replier;
use platform::sync::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

/// Answers kept: at 300 bytes each about 1 MB. Covers what a thousand clients can have in doubt.
pub(crate) const ENTRIES_MAX: usize = 4096;

/// Names a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    peer: SocketAddr,
    xid: u32,
    content: u64,
}

impl Key {
    pub(crate) fn new(peer: SocketAddr, xid: u32, procedure: u32, arguments: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        procedure.hash(&mut hasher);
        arguments.hash(&mut hasher);
        Self { peer, xid, content: hasher.finish() }
    }
}

enum State<R> {
    /// Being done; whoever asked again meanwhile waits.
    Begun(Option<R>),
    /// Done: the answer behind the RPC header.
    Done(Box<[u8]>),
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
    states: HashMap<Key, State<R>>,
    /// Keys, the oldest first; each in `states` unless it was forgotten.
    order: VecDeque<Key>,
}

/// The cache. `R` is what an answer is sent with.
pub(crate) struct ReplyCache<R = Replier> {
    entries: Mutex<Entries<R>>,
    entries_max: usize,
}

impl<R> ReplyCache<R> {
    pub(crate) fn new(entries_max: usize) -> Self {
        let entries = Entries { states: HashMap::new(), order: VecDeque::new() };
        Self { entries: Mutex::new(entries), entries_max }
    }

    /// A call that cannot be repeated came in.
    pub(crate) fn begin(&self, key: Key, replier: R) -> Begin<R> {
        let mut entries = self.entries.lock();
        match entries.states.get_mut(&key) {
            Some(State::Done(answer)) => return Begin::Replay(replier, answer.clone()),
            Some(State::Begun(waiting)) => {
                let before = waiting.replace(replier);
                drop(entries);
                drop(before); // answers an error, into a connection that is lost most likely
                return Begin::Joined;
            }
            None => {}
        }
        let oldest = if entries.order.len() < self.entries_max {
            None
        } else {
            entries.order.pop_front().and_then(|oldest| entries.states.remove(&oldest))
        };
        entries.states.insert(key, State::Begun(None));
        entries.order.push_back(key);
        drop(entries);
        drop(oldest);
        Begin::Fresh(replier)
    }

    /// The call was done. Gives who asked again meanwhile.
    pub(crate) fn finish(&self, key: &Key, answer: &[u8]) -> Option<R> {
        let mut entries = self.entries.lock();
        let state = entries.states.get_mut(key)?;
        match std::mem::replace(state, State::Done(answer.into())) {
            State::Begun(waiting) => waiting,
            State::Done(_) => None,
        }
    }

    /// The call was not done: arguments that are garbage, an answer that was lost.
    pub(crate) fn forget(&self, key: &Key) {
        let mut entries = self.entries.lock();
        let removed = entries.states.remove(key);
        if removed.is_some() {
            entries.order.retain(|other| other != key);
        }
        drop(entries);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(xid: u32) -> Key {
        Key::new(SocketAddr::from(([127, 0, 0, 1], 700)), xid, 12, b"arguments")
    }

    fn is_fresh(cache: &ReplyCache<u32>, key: Key) -> bool {
        matches!(cache.begin(key, 0), Begin::Fresh(0))
    }

    #[test]
    fn a_repeated_call_gets_the_first_answer() {
        let cache = ReplyCache::new(8);
        assert!(is_fresh(&cache, key(1)));
        assert_eq!(cache.finish(&key(1), b"answer"), None);
        let Begin::Replay(5, answer) = cache.begin(key(1), 5) else { panic!("done before") };
        assert_eq!(&*answer, b"answer");
        let other = Key::new(SocketAddr::from(([127, 0, 0, 1], 700)), 1, 12, b"others");
        assert!(is_fresh(&cache, other), "the same number, another call");
        let other = Key::new(SocketAddr::from(([127, 0, 0, 1], 701)), 1, 12, b"arguments");
        assert!(is_fresh(&cache, other), "another client");
    }

    #[test]
    fn a_call_that_is_being_done_is_joined() {
        let cache = ReplyCache::new(8);
        assert!(is_fresh(&cache, key(1)));
        assert!(matches!(cache.begin(key(1), 5), Begin::Joined));
        assert!(matches!(cache.begin(key(1), 6), Begin::Joined));
        assert_eq!(cache.finish(&key(1), b""), Some(6));
    }

    #[test]
    fn the_oldest_go_first_and_the_forgotten_are_fresh() {
        let cache = ReplyCache::new(2);
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
}
