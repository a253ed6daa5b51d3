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
mod known;

use crate::connections::Connections;
use forgotten::Forgotten;
pub(crate) use key::Key;
pub(crate) use known::Begun;
use known::{Evicted, Known, State};
use onc_rpc::Replier;
use platform::Clock;
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
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
    /// Answers of one client; at least one is kept.
    pub client_answers_max: usize,
    /// Calls of all clients that are being done.
    pub pending_max: usize,
    /// Calls that are remembered without their answers, of clients with several connections.
    pub forgotten_max: usize,
}

impl Default for ReplyLimits {
    /// Two connections full of calls in flight (`onc_rpc::connection::CALLS_IN_FLIGHT_MAX`) for a
    /// client's answers, which is what it can be in doubt about; for the calls that are being done,
    /// twice as many as 16 connections have, which a Linux client makes (`nconnect`). A call takes
    /// 185 bytes with what finds it, in tables that grow to a power of two, and its answer up to
    /// 320 more: both rooms together take 34 MB at most. More for each client does not fit into the
    /// smallest memory that a node may have. A call remembered without its answer takes 40 bytes,
    /// 5 MB in both rooms.
    fn default() -> Self {
        Self {
            answers_max: 16 << 10,
            client_answers_max: 2048,
            pending_max: 32 << 10,
            forgotten_max: 64 << 10,
        }
    }
}

/// What to do with a call.
pub(crate) enum Begin<R> {
    /// It is new: do it.
    Fresh(R, Begun),
    /// It was done: answer this.
    Replay(R, Box<[u8]>),
    /// It is being done: the newest copy will be answered when it is. Another copy gets no reply.
    Joined(Option<R>),
    /// Too many calls are being done.
    Refused(R),
    /// It may be a copy of a call whose answer was forgotten: its connection has to end.
    Late(R),
}

/// What a room has under its lock.
struct Contents<R> {
    known: Known<R>,
    forgotten: Forgotten,
}

/// One of the two rooms.
struct Room<R> {
    contents: Mutex<Contents<R>>,
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
            let forgotten = Forgotten::new(limits.forgotten_max);
            Room { contents: Mutex::new(Contents { known: Known::new(), forgotten }), limits }
        };
        Self { writes: room(), others: room(), connections }
    }

    /// Calls that are known, for tests.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        [&self.writes, &self.others].map(|room| room.contents.lock().known.len()).iter().sum()
    }

    const fn room(&self, is_write: bool) -> &Room<R> {
        if is_write { &self.writes } else { &self.others }
    }

    /// Whether anything is known of a call that came in over a connection: it is being done, was
    /// answered, or is late.
    pub(crate) fn knows(&self, key: &Key, connection: u64) -> bool {
        let contents = self.room(key.is_write).contents.lock();
        contents.known.find(key).is_some() || contents.forgotten.was_answered(key, connection)
    }

    /// A call that changes something came in over a connection.
    pub(crate) fn begin(
        &self,
        key: Key,
        connection: u64,
        clock: &dyn Clock,
        replier: R,
    ) -> Begin<R> {
        self.room(key.is_write).begin(key, connection, clock, replier)
    }

    /// The call was done. Gives the newest copy, if that is not the first.
    pub(crate) fn finish(&self, begun: Begun, now_nanoseconds: u64, answer: &[u8]) -> Option<R> {
        self.room(begun.is_write).finish(begun, now_nanoseconds, answer, &self.connections)
    }

    /// The call was not done: arguments that are garbage, an answer that was lost. Gives the newest
    /// copy, if that is not the first.
    pub(crate) fn forget(&self, begun: Begun) -> Option<R> {
        let mut contents = self.room(begun.is_write).contents.lock();
        let slot = contents.known.slot(&begun)?;
        contents.known.remove(slot)?.newest()
    }

    /// The call was not done, and its client is told to come later, which it does with another
    /// call: a copy of this one that is read late is not done either. Gives the newest copy, if
    /// that is not the first.
    pub(crate) fn put_off(&self, begun: Begun) -> Option<R> {
        let mut contents = self.room(begun.is_write).contents.lock();
        let Contents { known, forgotten } = &mut *contents;
        let slot = known.slot(&begun)?;
        let may_come = known.may_come(slot, &self.connections);
        let entry = known.remove(slot)?;
        if may_come {
            forgotten.add(&entry.key, entry.connection);
        }
        entry.newest()
    }

    /// The same of a call that was refused when it came ([`Begin::Refused`]).
    pub(crate) fn put_off_refused(&self, key: &Key, connection: u64) {
        if self.connections.may_bring(key.client, connection) {
            self.room(key.is_write).contents.lock().forgotten.add(key, connection);
        }
    }
}

impl<R> Room<R> {
    fn begin(&self, key: Key, connection: u64, clock: &dyn Clock, replier: R) -> Begin<R> {
        let mut contents = self.contents.lock();
        let Contents { known, forgotten } = &mut *contents;
        let slot = known.find(&key);
        if mutation::broken(Rule::RepeatedCallRunsBeside)
            && let Some(beside) = slot.and_then(|slot| known.beside(slot))
        {
            return Begin::Fresh(replier, beside);
        }
        if let Some(slot) = slot
            && let Some(entry) = known.at(slot)
        {
            let is_older = connection < entry.connection;
            let is_known = connection <= entry.connection;
            match &mut entry.state {
                State::Begun(_) if is_older => return Begin::Joined(Some(replier)),
                State::Begun(newest) => {
                    entry.connection = connection;
                    return Begin::Joined(newest.replace(replier));
                }
                State::Done { answer, answered_nanoseconds } => {
                    let now_nanoseconds = clock.monotonic_nanoseconds();
                    let age = now_nanoseconds.saturating_sub(*answered_nanoseconds);
                    if is_known || age < AGE_MAX_NANOSECONDS {
                        // Further copies over the same connection get it whenever they come.
                        entry.connection = entry.connection.max(connection);
                        return Begin::Replay(replier, answer.as_slice().into());
                    }
                }
            }
            drop(known.remove(slot));
        }
        let is_late = forgotten.was_answered(&key, connection);
        if is_late && !mutation::broken(Rule::LateCopyDone) {
            return Begin::Late(replier);
        }
        match known.begin(key, connection, self.limits.pending_max) {
            Some(begun) => Begin::Fresh(replier, begun),
            None => Begin::Refused(replier),
        }
    }

    fn finish(
        &self,
        begun: Begun,
        answered_nanoseconds: u64,
        answer: &[u8],
        connections: &Connections,
    ) -> Option<R> {
        let mut contents = self.contents.lock();
        let Contents { known, forgotten } = &mut *contents;
        if mutation::broken(Rule::RepliesNotKept) {
            let slot = known.slot(&begun)?;
            return known.remove(slot)?.newest();
        }
        let answer = (answer, answered_nanoseconds);
        let (newest, evicted) = known.answer(&begun, answer, &self.limits, connections);
        if let Some(Evicted { key, connection, may_come: true }) = evicted {
            forgotten.add(&key, connection);
        }
        newest
    }
}

#[cfg(test)]
mod tests;
