//! Who is connected: how many connections there may be, whose place a newcomer gets, and which
//! connections are ended because nothing comes of them.
//!
//! A client is an address, or for IPv6 a network of 64 bits, which is what one machine can have. A
//! *stranger* is a client that the service does not know ([`Standing`]): no export rule is for it.
//!
//! Places: so many as their memory was set aside for ([`Places::within`]). A client may have half
//! of them, all strangers together an eighth. Where there is none left:
//! - a client that has all it may have gives up its own longest idle connection;
//! - a stranger gets the place of the stranger that has been silent for longest;
//! - any other client gets that of a stranger, or that of the client that has most connections, if
//!   that has more than twice as many as the newcomer then has.
//!
//! Ended are ([`Connections::look`]): connections that are idle, those on which a record is not
//! whole in time, and those that take none of the replies that wait for them.
//!
//! Invariants: the counts are those of the connections in the table that are not ending. Time is
//! told, never asked for. Nobody is ended while his reader waits for memory or his calls are being
//! done.
//!
//! Fails: [`Refused`], which is logged at a limited rate.

use crate::account::{Account, Limits};
use crate::connection::{Connection, Progress};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use thiserror::Error;

/// Connections at the same time. Each has a thread; 64 clients with 16 connections each fit.
pub const CONNECTIONS_MAX: usize = 1024;
/// The part of a server's memory that is set aside for connections.
const MEMORY_SHARE: usize = 4;
/// What a connection takes, in bytes: what its thread touches of its stack, the small read buffer,
/// tables. Measured over 400 connections of a debug build: 13 KiB of one that has said nothing, 35
/// KiB after a READDIR; operations that go deeper have room.
pub(crate) const CONNECTION_BYTES: usize = 64 << 10;
/// The part of the places that one client may have.
const CLIENT_SHARE: usize = 2;
/// The part of the places that all strangers may have.
const STRANGERS_SHARE: usize = 8;
/// The part of the strangers' places that one of them may have.
const STRANGER_SHARE: usize = 4;
/// Threads that are ending while newcomers have their connections' places already.
const ENDING_MAX: usize = 64;

/// How long a client's connection may be idle: as long as Linux's server lets it, and a minute
/// longer than Linux's client does, which then closes it itself.
const IDLE_NANOSECONDS_MAX: u64 = 360 * SECOND;
/// How long a stranger's may be. Asking for the list of exports takes less than a second.
const STRANGER_IDLE_NANOSECONDS_MAX: u64 = 30 * SECOND;
/// How long a client's connection is idle before a newcomer of the same client may have its place.
const GIVEN_UP_NANOSECONDS: u64 = 10 * SECOND;
/// How long a record may take from its first byte to its last: a megabyte at 35 KB/s.
const RECORD_NANOSECONDS_MAX: u64 = 30 * SECOND;
/// How long replies may wait without any of them being read. A client that was suspended for
/// longer connects again and asks again.
const UNREAD_NANOSECONDS_MAX: u64 = 60 * SECOND;
/// How often the log is told of the same thing.
const SAY_NANOSECONDS: u64 = 10 * SECOND;
const SECOND: u64 = 1_000_000_000;

/// Whether the service has anything to do with a client, before it has said anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Standing {
    /// The service has something for it.
    Known,
    /// It may ask, and will most likely be refused.
    Stranger,
}

/// Why a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Error, Debug)]
pub(crate) enum Refused {
    /// The client has too many.
    #[error("the client has {0} connections, which is the limit; none of them is idle")]
    OfClient(usize),
    /// There are too many strangers.
    #[error("{0} connections of clients without an export rule, which is the limit")]
    OfStrangers(usize),
    /// There are too many.
    #[error("{0} connections, which is the limit; set a larger [node] memory for more")]
    InAll(usize),
}

/// Why a connection is ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Error, Debug)]
pub(crate) enum Ended {
    #[error("it was idle")]
    Idle,
    #[error("a call was not whole after {} s", RECORD_NANOSECONDS_MAX / SECOND)]
    Record,
    #[error("no reply was read for {} s", UNREAD_NANOSECONDS_MAX / SECOND)]
    Unread,
}

/// How many connections there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    all: usize,
    of_client: usize,
    of_strangers: usize,
    of_stranger: usize,
}

impl Places {
    /// As many as fit into the part of `bytes` that is for connections; and what is left for calls
    /// of at most `call_bytes_max` each.
    pub(crate) fn within(bytes: usize, call_bytes_max: usize) -> (Self, Limits) {
        let part = bytes / MEMORY_SHARE;
        // At least a connection for each kind of client, however little memory there is.
        let all = (part / CONNECTION_BYTES).clamp(STRANGERS_SHARE, CONNECTIONS_MAX);
        let of_strangers = all / STRANGERS_SHARE;
        let places = Self {
            all,
            of_client: all / CLIENT_SHARE,
            of_strangers,
            of_stranger: of_strangers.div_ceil(STRANGER_SHARE),
        };
        (places, Limits::new(bytes - part, call_bytes_max))
    }
}

/// What counts as one client: an IPv4 address, or the network of 64 bits that an IPv6 machine has.
#[must_use]
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [first, second, third, fourth, ..] = address.segments();
            Ipv6Addr::new(first, second, third, fourth, 0, 0, 0, 0).into()
        }
    }
}

struct Client {
    account: Arc<Account>,
    connections: usize,
}

type ClientKey = (Standing, IpAddr);

struct Seat {
    connection: Arc<Connection>,
    client: ClientKey,
    peer: IpAddr,
    /// Its place is given up, or somebody else's.
    is_ending: bool,
    seen: Progress,
    /// Since when it has been in this place of its stream, and with no call under way.
    silent_since: u64,
    /// Since when its socket has taken nothing that waits.
    full_since: u64,
}

/// Which connections there are.
pub(crate) struct Connections {
    places: Places,
    node: Arc<Account>,
    strangers: Arc<Account>,
    clients: HashMap<ClientKey, Client>,
    seats: BTreeMap<u64, Seat>,
    /// Seats that are not ending, by standing.
    known_count: usize,
    strangers_count: usize,
    /// Reader threads that have not ended.
    pub(crate) readers: usize,
    said: Said,
}

/// When the log was told of what, and how often it was not.
#[derive(Default)]
struct Said {
    refused: BTreeMap<Refused, (u64, u64)>,
    ended: BTreeMap<Ended, (u64, u64)>,
}

/// How often something was not told since it was told last, if it is to be told now.
fn is_told<K: Ord>(said: &mut BTreeMap<K, (u64, u64)>, what: K, now: u64) -> Option<u64> {
    let (next, untold) = said.entry(what).or_default();
    if now < *next {
        *untold += 1;
        return None;
    }
    *next = now + SAY_NANOSECONDS;
    Some(std::mem::take(untold))
}

impl Connections {
    pub(crate) fn new(places: Places, limits: Limits) -> Self {
        let node = Account::of_node(limits);
        Self {
            places,
            strangers: Account::of_strangers(&node),
            node,
            clients: HashMap::new(),
            seats: BTreeMap::new(),
            known_count: 0,
            strangers_count: 0,
            readers: 0,
            said: Said::default(),
        }
    }

    /// What is taken of the memory for calls and replies.
    pub(crate) fn bytes(&self) -> usize {
        self.node.bytes()
    }

    /// Readers that wait for room.
    #[cfg(test)]
    pub(crate) fn waiting_count(&self) -> usize {
        let waits = |seat: &&Seat| seat.connection.progress().position.is_none();
        self.seats.values().filter(waits).count()
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Connection>> {
        self.seats.get(&id).map(|seat| Arc::clone(&seat.connection))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.seats.values().map(|seat| &seat.connection)
    }

    /// Takes a place for a newcomer. Whose it was is given, too, and to be closed by the caller.
    pub(crate) fn open(
        &mut self,
        id: u64,
        (standing, peer): (Standing, IpAddr),
        now: u64,
        connect: impl FnOnce(Arc<Account>) -> Connection,
    ) -> Result<(Arc<Connection>, Option<Arc<Connection>>), Refused> {
        let client = (standing, client_of(peer));
        let given_up = match self.place_for(client, now) {
            Ok(given_up) => given_up.and_then(|id| self.give_up(id)),
            Err(refused) => {
                if let Some(untold) = is_told(&mut self.said.refused, refused, now) {
                    tracing::warn!(%peer, untold, "a connection is refused: {refused}");
                }
                return Err(refused);
            }
        };
        let above = match standing {
            Standing::Known => &self.node,
            Standing::Stranger => &self.strangers,
        };
        let make = || Client { account: Account::of_client(above), connections: 0 };
        let account = {
            let entry = self.clients.entry(client).or_insert_with(make);
            entry.connections += 1;
            Arc::clone(&entry.account)
        };
        *self.count(standing) += 1;
        self.readers += 1;
        let connection = Arc::new(connect(account));
        let seat = Seat {
            connection: Arc::clone(&connection),
            client,
            peer,
            is_ending: false,
            seen: connection.progress(),
            silent_since: now,
            full_since: now,
        };
        self.seats.insert(id, seat);
        Ok((connection, given_up))
    }

    /// The reader of a connection has ended.
    pub(crate) fn remove(&mut self, id: u64) {
        self.give_up(id);
        self.seats.remove(&id);
        self.readers -= 1;
    }

    /// Takes a connection's place from it.
    fn give_up(&mut self, id: u64) -> Option<Arc<Connection>> {
        let seat = self.seats.get_mut(&id)?;
        if std::mem::replace(&mut seat.is_ending, true) {
            return None;
        }
        let (client, connection) = (seat.client, Arc::clone(&seat.connection));
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.connections -= 1;
        }
        *self.count(client.0) -= 1;
        Some(connection)
    }

    fn count(&mut self, standing: Standing) -> &mut usize {
        match standing {
            Standing::Known => &mut self.known_count,
            Standing::Stranger => &mut self.strangers_count,
        }
    }

    /// Whose place a newcomer gets; `None` if there is one that is free.
    fn place_for(&self, client: ClientKey, now: u64) -> Result<Option<u64>, Refused> {
        let Places { all, of_client, of_strangers, of_stranger } = self.places;
        let of_this = |seat: &Seat| seat.client == client;
        let is_stranger = |seat: &Seat| seat.client.0 == Standing::Stranger;
        let has = self.clients.get(&client).map_or(0, |client| client.connections);
        let limit = match client.0 {
            Standing::Known => of_client,
            Standing::Stranger => of_stranger,
        };
        if self.readers >= all + ENDING_MAX {
            return Err(Refused::InAll(all));
        }
        if has >= limit {
            return match self.most_silent(of_this, now) {
                Some(id) => Ok(Some(id)),
                None => Err(Refused::OfClient(limit)),
            };
        }
        if client.0 == Standing::Stranger && self.strangers_count >= of_strangers {
            let place = self.most_silent(is_stranger, now);
            return place.map(Some).ok_or(Refused::OfStrangers(of_strangers));
        }
        if self.known_count + self.strangers_count < all {
            return Ok(None);
        }
        if let Some(id) = self.most_silent(is_stranger, now) {
            return Ok(Some(id));
        }
        let most = self.clients.iter().max_by_key(|(_, client)| client.connections);
        let place = most.filter(|(_, client)| client.connections > 2 * (has + 1));
        let longest = place.and_then(|(most, _)| self.longest_silent(|seat| seat.client == *most));
        longest.map(Some).ok_or(Refused::InAll(all))
    }

    /// Of these the one that has been silent for longest, if its place may be taken from it.
    fn most_silent(&self, of: impl Fn(&Seat) -> bool, now: u64) -> Option<u64> {
        self.longest_silent(|seat| {
            let progress = seat.connection.progress();
            let is_given_up = match seat.client.0 {
                Standing::Stranger => true,
                Standing::Known => {
                    let is_between = progress.position.is_some_and(|at| at.is_multiple_of(2));
                    is_between
                        && progress == seat.seen
                        && now.saturating_sub(seat.silent_since) >= GIVEN_UP_NANOSECONDS
                }
            };
            of(seat) && progress.calls_in_flight == 0 && is_given_up
        })
    }

    fn longest_silent(&self, of: impl Fn(&Seat) -> bool) -> Option<u64> {
        let seats = self.seats.iter().filter(|(_, seat)| !seat.is_ending && of(seat));
        seats.min_by_key(|(id, seat)| (seat.silent_since, **id)).map(|(id, _)| *id)
    }

    /// Looks how all connections are getting on; those that are to be closed.
    pub(crate) fn look(&mut self, now: u64) -> Vec<Arc<Connection>> {
        // What a client has outlives its connections: calls of theirs may still be under way.
        self.clients.retain(|_, client| client.connections > 0 || client.account.bytes() > 0);
        let mut closing = Vec::new();
        for seat in self.seats.values_mut().filter(|seat| !seat.is_ending) {
            if let Some(why) = seat.look(now) {
                closing.push(Arc::clone(&seat.connection));
                if why == Ended::Idle {
                    tracing::debug!(peer = %seat.peer, "a connection is closed: {why}");
                } else if let Some(untold) = is_told(&mut self.said.ended, why, now) {
                    tracing::warn!(peer = %seat.peer, untold, "a connection is closed: {why}");
                }
            }
        }
        closing
    }
}

impl Seat {
    fn look(&mut self, now: u64) -> Option<Ended> {
        let progress = self.connection.progress();
        if progress.is_full_for.is_none() || progress.is_full_for != self.seen.is_full_for {
            self.full_since = now;
        }
        let is_same = progress.position == self.seen.position && progress.position.is_some();
        // A record that is not whole is late whatever else its connection has under way.
        let is_in_a_record = progress.position.is_some_and(|at| !at.is_multiple_of(2));
        let is_busy = progress.calls_in_flight > 0 || progress.is_full_for.is_some();
        if !is_same || (is_busy && !is_in_a_record) {
            self.silent_since = now;
        }
        self.seen = progress;
        // A connection may be newer than the time that the look was told.
        let silent = now.saturating_sub(self.silent_since);
        let full = now.saturating_sub(self.full_since);
        let idle_max = match self.client.0 {
            Standing::Known => IDLE_NANOSECONDS_MAX,
            Standing::Stranger => STRANGER_IDLE_NANOSECONDS_MAX,
        };
        if full >= UNREAD_NANOSECONDS_MAX {
            Some(Ended::Unread)
        } else if is_in_a_record {
            (silent >= RECORD_NANOSECONDS_MAX).then_some(Ended::Record)
        } else {
            (silent >= idle_max).then_some(Ended::Idle)
        }
    }
}

#[cfg(test)]
mod tests;
