//! Places and their limits, without sockets; the time is the test's.

use super::*;
use crate::connection::Outlet;
use platform::sync::Mutex;
use std::net::Ipv4Addr;

/// Memory for 64 connections.
const BYTES: usize = 64 * CONNECTION_BYTES * MEMORY_SHARE;

/// A newcomer, and who is to go for him.
struct Opened {
    id: u64,
    connection: Arc<Connection>,
    goes: Option<Arc<Connection>>,
}

struct Table {
    connections: Connections,
    next: u64,
}

impl Table {
    fn new() -> Self {
        let (places, limits) = Places::within(BYTES, 1 << 20);
        Self { connections: Connections::new(places, limits), next: 0 }
    }

    fn open(&mut self, standing: Standing, address: [u8; 4], now: u64) -> Result<Opened, Refused> {
        self.next += 1;
        let (id, peer) = (self.next, Ipv4Addr::from(address).into());
        let connect = |account| Connection::new(id, Outlet::Memory(Mutex::default()), account);
        let (connection, goes) = self.connections.open(id, (standing, peer), now, connect)?;
        Ok(Opened { id, connection, goes })
    }

    fn known(&mut self, last: u8, now: u64) -> Result<(u64, Arc<Connection>), Refused> {
        let opened = self.open(Standing::Known, [10, 0, 0, last], now)?;
        assert!(opened.goes.is_none(), "there are places");
        Ok((opened.id, opened.connection))
    }
}

/// An odd position: a record is in the making.
const IN_A_RECORD: u64 = 7;

#[test]
fn strangers_push_out_each_other_and_nobody_else() {
    let mut table = Table::new();
    let first = table.known(1, 0).unwrap();
    let mut goes = 0;
    for number in 0..200 {
        let given_up = table.open(Standing::Stranger, [11, 0, 0, number], 1).unwrap().goes;
        goes += usize::from(given_up.is_some());
        if given_up.is_some() {
            // As its reader ends.
            let id = u64::from(number) + 2 - 8;
            table.connections.remove(id);
        }
    }
    assert_eq!((table.connections.strangers_count, goes), (64 / STRANGERS_SHARE, 200 - 8));
    assert!(!table.connections.seats[&first.0].is_ending);
    for last in 2..=57 {
        let goes = table.open(Standing::Known, [10, 0, 0, last], 2).unwrap().goes;
        assert_eq!(goes.is_some(), last == 57, "{last}");
    }
    assert_eq!(table.connections.strangers_count, 7, "a stranger made room");
}

#[test]
fn a_client_has_half_of_the_places_and_gives_up_its_own_idle_ones_first() {
    let mut table = Table::new();
    let connections: Vec<_> = (0..32).map(|_| table.known(1, 0).unwrap()).collect();
    assert!(matches!(table.known(1, 1), Err(Refused::OfClient(32))));
    table.known(2, 1).unwrap();
    table.connections.look(1);
    // All but one were idle for a while; those that others have are not touched.
    connections[0].1.note_position(2);
    table.connections.look(GIVEN_UP_NANOSECONDS);
    let now = GIVEN_UP_NANOSECONDS + 1;
    let goes = table.open(Standing::Known, [10, 0, 0, 1], now).unwrap().goes;
    assert!(Arc::ptr_eq(&goes.unwrap(), &connections[1].1));
}

#[test]
fn a_client_with_few_connections_gets_the_place_of_one_with_many() {
    let mut table = Table::new();
    let many: Vec<_> = (0..32).map(|_| table.known(1, 0).unwrap()).collect();
    let _others: Vec<_> = (0..32).map(|_| table.known(2, 1).unwrap()).collect();
    // All of them are busy.
    for (_, connection) in &many {
        connection.note_position(IN_A_RECORD);
    }
    table.connections.look(2);
    let mut is_of_many =
        |last| table.open(Standing::Known, [10, 0, 0, last], 3).unwrap().goes.is_some();
    assert!((3..40).all(&mut is_of_many));
    let counts = table.connections.clients.values().map(|client| client.connections);
    assert_eq!(counts.sum::<usize>(), 64);
    let refused = table.open(Standing::Known, [10, 0, 0, 3], 3).err();
    assert!(matches!(refused, None | Some(Refused::InAll(64))));
}

#[test]
fn a_network_of_ipv6_is_one_client() {
    let one: IpAddr = "fd00::1:2:3:4:5".parse().unwrap();
    assert_eq!(client_of(one), client_of("fd00::1:9:9:9:9".parse().unwrap()));
    assert_ne!(client_of(one), client_of("fd00:0:0:2::5".parse().unwrap()));
    let mapped = "::ffff:10.0.0.1".parse().unwrap();
    assert_eq!(client_of(mapped), IpAddr::from([10, 0, 0, 1]));
}

#[test]
fn connections_that_are_idle_are_closed_later_if_they_are_known() {
    let mut table = Table::new();
    let known = table.known(1, 0).unwrap();
    let stranger = table.open(Standing::Stranger, [11, 0, 0, 1], 0).unwrap().connection;
    assert!(table.connections.look(STRANGER_IDLE_NANOSECONDS_MAX - 1).is_empty());
    let closing = table.connections.look(STRANGER_IDLE_NANOSECONDS_MAX);
    assert!(closing.len() == 1 && Arc::ptr_eq(&closing[0], &stranger));
    table.connections.remove(known.0 + 1);
    let used = STRANGER_IDLE_NANOSECONDS_MAX + SECOND;
    known.1.note_position(8);
    assert!(table.connections.look(used).is_empty());
    assert!(table.connections.look(used + IDLE_NANOSECONDS_MAX - 1).is_empty());
    // A call that takes long is no idleness.
    assert!(matches!(known.1.admit(false, 1, true), crate::connection::Admission::Dispatch));
    assert!(table.connections.look(used + IDLE_NANOSECONDS_MAX).is_empty());
    known.1.withdraw(1);
    assert!(table.connections.look(used + 2 * IDLE_NANOSECONDS_MAX - 1).is_empty());
    assert_eq!(table.connections.look(used + 2 * IDLE_NANOSECONDS_MAX).len(), 1);
}

#[test]
fn each_record_has_its_time() {
    let mut table = Table::new();
    let (_, connection) = table.known(1, 0).unwrap();
    // Each record is whole in time, though their times add up.
    for number in 0..5 {
        connection.note_position(IN_A_RECORD + 2 * number);
        assert!(table.connections.look(number * RECORD_NANOSECONDS_MAX * 2 / 3).is_empty());
    }
    // The last is not: neither bytes of it nor calls under way give it more time.
    let since = 4 * RECORD_NANOSECONDS_MAX * 2 / 3;
    assert!(matches!(connection.admit(false, 1, true), crate::connection::Admission::Dispatch));
    assert!(table.connections.look(since + RECORD_NANOSECONDS_MAX - 1).is_empty());
    assert_eq!(table.connections.look(since + RECORD_NANOSECONDS_MAX).len(), 1);
}

#[test]
fn the_log_is_told_at_a_limited_rate() {
    let mut said = BTreeMap::new();
    let mut tell = |now| is_told(&mut said, Ended::Record, now);
    assert_eq!((tell(0), tell(1), tell(SAY_NANOSECONDS - 1)), (Some(0), None, None));
    assert_eq!((tell(SAY_NANOSECONDS), tell(SAY_NANOSECONDS * 3)), (Some(2), Some(0)));
    assert_eq!(is_told(&mut said, Ended::Unread, 1), Some(0), "of another thing");
}

#[test]
fn a_server_with_little_memory_has_places_for_all() {
    for bytes in [0, 1 << 20, 6 << 20, 128 << 20, usize::MAX] {
        let (places, limits) = Places::within(bytes, 1 << 20);
        assert!(places.of_stranger >= 1 && places.of_strangers >= places.of_stranger);
        assert!(places.of_client > places.of_strangers && places.all <= CONNECTIONS_MAX);
        assert!(places.all == STRANGERS_SHARE || places.all * CONNECTION_BYTES <= bytes / 4);
        assert_eq!(limits.bytes_max, bytes - bytes / 4);
    }
}
