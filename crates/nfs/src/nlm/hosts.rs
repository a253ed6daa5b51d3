//! Which machines lock, and the ledger of those that hold locks.
//!
//! A machine is an address and the name that it gives itself: two that share an address (behind a
//! router, or guests of one machine) are two. The ledger is a text:
//!
//! ```text
//! stroop locks 1
//! state 5
//! host 10.0.0.7 client7
//! number 10.0.0.7 client7 3
//! ```
//!
//! `state` is NSM's number of this node: odd, and larger at each start, so that a client can tell a
//! notice that it knows from a new one. A `host` has locks, or had them when the server ended.
//! `number` is that of its status monitor, if it is known: a client that takes back its locks does
//! not say it again.
//!
//! Invariants: what [`Hosts::monitor`] has answered is in the ledger durably; a machine leaves it
//! when it has had no lock for [`IDLE_SWEEPS`] sweeps, was started anew, or gave back all. Machines
//! of an earlier start leave it when they were told of the restart and the grace period is over:
//! until then they may take back what they had, and nobody else may.
//!
//! Fails: [`Unmonitored`]: no lock may be given. A ledger that makes no sense is reported, and what
//! can be read of it is used; then the clock makes the state, which must not be an old one.

use super::ledger::Ledger;
use locks::{ClientId, LockManager};
use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use units::VolumeUuid;

/// Machines that are known at the same time: each has a line of the ledger, which is written whole.
const HOSTS_MAX: usize = 4096;
/// Of them, at one address: guests of a machine, or a few behind a router. Nobody proves a name, so
/// one machine could have all the lines there are.
const HOSTS_OF_ADDRESS_MAX: usize = 32;
/// Longest name that is taken.
const NAME_BYTES_MAX: usize = 255;
/// Numbers of a status monitor under which a machine may have locks at once: one, and those of
/// starts that it did not confirm.
const NUMBERS_MAX: usize = 4;
/// Sweeps that a machine without locks stays in the ledger: programs lock again and again.
const IDLE_SWEEPS: u64 = 3;
const HEADER: &str = "stroop locks 1";

/// A machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Host {
    pub(crate) address: IpAddr,
    pub(crate) name: Arc<str>,
}

impl Host {
    /// The machine at `address` that calls itself `name`, unless that is no name.
    pub(crate) fn new(address: IpAddr, name: &[u8]) -> Option<Self> {
        let plain = |byte: &u8| byte.is_ascii_graphic();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(plain) {
            return None;
        }
        Some(Self { address, name: std::str::from_utf8(name).ok()?.into() })
    }
}

/// The machine cannot be watched, so it gets no lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unmonitored;

struct Known {
    id: ClientId,
    monitored: bool,
    /// The sweep in which it was last seen.
    seen: u64,
    /// Volumes that it was let in to from a port that any user of it may use.
    any_port: BTreeSet<VolumeUuid>,
    /// The number of its status monitor when it began to lock as `id`, if it has one.
    number: Option<NonZeroU32>,
    /// Who it was under other numbers: it was started anew since, or somebody says so. Their locks
    /// go when the machine confirms it.
    before: Vec<(NonZeroU32, ClientId)>,
}

impl Known {
    fn ids(&self) -> impl Iterator<Item = ClientId> {
        std::iter::once(self.id).chain(self.before.iter().map(|(_, id)| *id))
    }
}

#[derive(Default)]
struct Table {
    hosts: BTreeMap<Host, Known>,
    /// Had locks when the server was started, and were not told of that yet.
    to_tell: Vec<Host>,
    /// Had locks when the server was started, and may take them back.
    may_reclaim: BTreeSet<Host>,
    /// The numbers of their status monitors then.
    numbers: BTreeMap<Host, NonZeroU32>,
    sweeps: u64,
    /// The sweep before which the log is told no more of machines that are refused.
    said_until: u64,
}

impl Table {
    /// The number of a machine's status monitor, if it is known.
    fn number_of(&self, host: &Host) -> Option<NonZeroU32> {
        match self.hosts.get(host) {
            Some(known) => known.number,
            None => self.numbers.get(host).copied(),
        }
    }

    /// The machines of an address.
    fn of_address(&self, address: IpAddr) -> impl Iterator<Item = (&Host, &Known)> {
        let first = Host { address, name: "".into() };
        self.hosts.range(first..).take_while(move |(host, _)| host.address == address)
    }

    /// Whether a machine may come in addition; if not, the log is told once between two sweeps.
    fn check_limits(&mut self, address: IpAddr) -> Result<(), Unmonitored> {
        let limits = [
            (self.hosts.len(), HOSTS_MAX, "too many machines with locks"),
            (
                self.of_address(address).count(),
                HOSTS_OF_ADDRESS_MAX,
                "too many names of one machine with locks",
            ),
        ];
        let Some((_, limit, what)) = limits.into_iter().find(|(count, limit, _)| count >= limit)
        else {
            return Ok(());
        };
        if self.said_until <= self.sweeps {
            self.said_until = self.sweeps + 1;
            tracing::warn!(limit, %address, "a lock is refused: {what}");
        }
        Err(Unmonitored)
    }
}

/// See the module.
pub(crate) struct Hosts {
    table: Mutex<Table>,
    ledger: Arc<dyn Ledger>,
    locks: Arc<LockManager>,
    state: u32,
}

/// What a ledger says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Contents {
    state: Option<u32>,
    hosts: Vec<Host>,
    numbers: BTreeMap<Host, NonZeroU32>,
    nonsense: usize,
}

fn parse(text: &str) -> Contents {
    let mut contents = Contents::default();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let known = match words.as_slice() {
            ["state", state] => state.parse().map(|state| contents.state = Some(state)).is_ok(),
            ["host", address, name] => {
                let address = address.parse().ok();
                let host = address.and_then(|address| Host::new(address, name.as_bytes()));
                contents.hosts.extend(host.clone());
                host.is_some()
            }
            ["number", address, name, of] => {
                let address = address.parse().ok();
                let host = address.and_then(|address| Host::new(address, name.as_bytes()));
                let found = host.zip(of.parse().ok());
                contents.numbers.extend(found.clone());
                found.is_some()
            }
            _ => number == 0 && line == HEADER,
        };
        contents.nonsense += usize::from(!known);
    }
    contents
}

impl Hosts {
    /// Reads the ledger and takes the next state. Gives the machines to be told of the restart.
    pub(crate) fn start(
        ledger: Arc<dyn Ledger>,
        locks: Arc<LockManager>,
    ) -> io::Result<(Self, Vec<Host>)> {
        let text = ledger.load()?;
        let mut contents = parse(&text);
        if contents.nonsense > 0 {
            tracing::error!(lines = contents.nonsense, "the list of clients with locks is damaged");
        }
        let before = contents.state.unwrap_or(0);
        // The next odd number.
        let state = before.wrapping_add(1) | 1;
        contents.hosts.sort();
        contents.hosts.dedup();
        let to_tell = contents.hosts;
        let may_reclaim = to_tell.iter().cloned().collect();
        let numbers = contents.numbers;
        let table = Table { to_tell: to_tell.clone(), may_reclaim, numbers, ..Table::default() };
        let hosts = Self { table: Mutex::new(table), ledger, locks, state };
        hosts.write(&hosts.table.lock())?;
        Ok((hosts, to_tell))
    }

    /// NSM's number of this node.
    pub(crate) const fn state(&self) -> u32 {
        self.state
    }

    fn write(&self, table: &Table) -> io::Result<()> {
        let mut text = format!("{HEADER}\nstate {}\n", self.state);
        let monitored = table.hosts.iter().filter(|(_, known)| known.monitored);
        let monitored = monitored.map(|(host, _)| host);
        let hosts: BTreeSet<&Host> =
            monitored.chain(&table.to_tell).chain(&table.may_reclaim).collect();
        for host in hosts {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "host {} {}", host.address, host.name);
            if let Some(number) = table.number_of(host) {
                let _ = writeln!(text, "number {} {} {number}", host.address, host.name);
            }
        }
        self.ledger.store(&text)
    }

    fn try_write(&self, table: &Table) -> Result<(), Unmonitored> {
        self.write(table).map_err(|error| {
            tracing::error!(%error, "the list of clients with locks cannot be written");
            Unmonitored
        })
    }

    /// The client that a machine is, which is let in to `volume` from a port of this kind.
    pub(crate) fn client(
        &self,
        host: &Host,
        volume: VolumeUuid,
        is_privileged: bool,
    ) -> Result<ClientId, Unmonitored> {
        let mut table = self.table.lock();
        let seen = table.sweeps;
        if !table.hosts.contains_key(host) {
            table.check_limits(host.address)?;
            // What an address may have does not grow with the names that it gives itself.
            let beside = table.of_address(host.address).next().map(|(_, known)| known.id);
            let id = match beside {
                Some(other) => self.locks.register_client_beside(other),
                None => self.locks.register_client(),
            };
            let any_port = BTreeSet::new();
            let (number, before) = (table.numbers.get(host).copied(), Vec::new());
            let known = Known { id, monitored: false, seen, any_port, number, before };
            table.hosts.insert(host.clone(), known);
        }
        let Some(known) = table.hosts.get_mut(host) else { unreachable!("it was put there") };
        known.seen = seen;
        if !is_privileged {
            known.any_port.insert(volume);
        }
        Ok(known.id)
    }

    /// The client that a machine is for a look at the locks of others: nothing is remembered.
    pub(crate) fn looks(&self, host: &Host) -> ClientId {
        self.table.lock().hosts.get(host).map_or(ClientId::NOBODY, |known| known.id)
    }

    /// The client that a machine is, if it was let in before and may give back what it has of
    /// `volume` from a port of this kind: from one of any user only if it had it from such.
    pub(crate) fn known(
        &self,
        host: &Host,
        volume: VolumeUuid,
        is_privileged: bool,
    ) -> Option<ClientId> {
        let table = self.table.lock();
        let known = table.hosts.get(host)?;
        (is_privileged || known.any_port.contains(&volume)).then_some(known.id)
    }

    /// Has a machine in the ledger from now on. Writes it the first time.
    pub(crate) fn monitor(&self, host: &Host) -> Result<(), Unmonitored> {
        let mut table = self.table.lock();
        let sweep = table.sweeps;
        let Some(known) = table.hosts.get_mut(host) else { return Err(Unmonitored) };
        known.seen = sweep;
        if known.monitored {
            return Ok(());
        }
        known.monitored = true;
        let result = self.try_write(&table);
        if result.is_err()
            && let Some(known) = table.hosts.get_mut(host)
        {
            known.monitored = false;
        }
        result
    }

    /// A machine was told of the restart, or cannot be reached for so long that it is given up.
    pub(crate) fn told(&self, host: &Host) {
        let mut table = self.table.lock();
        table.to_tell.retain(|other| other != host);
        // If it fails the machine is told again after the next start, which does no harm.
        let _ = self.try_write(&table);
    }

    /// Whether a machine may take back what it had before the server was started.
    pub(crate) fn may_reclaim(&self, host: &Host) -> bool {
        self.table.lock().may_reclaim.contains(host)
    }

    /// The grace period is over, or there is none.
    pub(crate) fn end_of_grace(&self) {
        let mut table = self.table.lock();
        table.numbers.clear();
        if !std::mem::take(&mut table.may_reclaim).is_empty() {
            // If it fails they are told again after the next start, which does no harm.
            let _ = self.try_write(&table);
        }
    }

    /// A machine that was let in asks for a lock, and says which number its status monitor has. If
    /// it is another than before, the machine locks as another client from now on: the locks of
    /// before may be those of programs that are no more. Gives who it is, and whether it is to be
    /// asked about that.
    pub(crate) fn locks_in(&self, host: &Host, number: NonZeroU32) -> Option<(ClientId, bool)> {
        let mut table = self.table.lock();
        let known = table.hosts.get_mut(host)?;
        let changes = known.number.is_some_and(|before| before != number);
        if let Some(before) = known.number.filter(|_| changes) {
            if known.before.len() >= NUMBERS_MAX {
                return None;
            }
            known.before.push((before, known.id));
            known.id = self.locks.register_client_beside(known.id);
        }
        known.number = Some(number);
        let (id, is_stale) = (known.id, changes && known.monitored);
        if is_stale {
            self.try_write(&table).ok()?;
        }
        Some((id, changes))
    }

    /// Whether a machine is still this client.
    pub(crate) fn is_client(&self, host: &Host, id: ClientId) -> bool {
        self.table.lock().hosts.get(host).is_some_and(|known| known.ids().any(|of| of == id))
    }

    /// A machine says that its status monitor has this number: frees what it locked under others;
    /// whether there was anything of the kind.
    pub(crate) fn forgets_but(&self, host: &Host, number: NonZeroU32) -> bool {
        let gone = {
            let mut table = self.table.lock();
            let Some(known) = table.hosts.get_mut(host) else { return false };
            let gone = known.before.extract_if(.., |(of, _)| *of != number);
            let mut gone: Vec<ClientId> = gone.map(|(_, id)| id).collect();
            if known.number.is_some_and(|of| of != number) {
                gone.push(known.id);
                known.id = self.locks.register_client_beside(known.id);
                known.number = Some(number);
            }
            gone
        };
        gone.iter().for_each(|id| self.locks.forget_client(*id));
        !gone.is_empty()
    }

    /// The machines of an address that have locks, or had, under this name, which may be given in
    /// full or not.
    pub(crate) fn named(&self, address: IpAddr, name: &[u8]) -> Vec<Host> {
        let table = self.table.lock();
        let known = table.hosts.keys().chain(&table.may_reclaim);
        let named =
            known.filter(|host| host.address == address && same_name(host.name.as_bytes(), name));
        let named: BTreeSet<&Host> = named.collect();
        named.into_iter().cloned().collect()
    }

    /// Frees the locks of a machine; how many machines that were is none or one.
    pub(crate) fn forgets(&self, host: &Host) -> usize {
        let known = {
            let mut table = self.table.lock();
            let known = table.hosts.remove(host);
            let may_reclaim = table.may_reclaim.remove(host);
            if may_reclaim || known.as_ref().is_some_and(|known| known.monitored) {
                let _ = self.try_write(&table);
            }
            known
        };
        let ids = known.iter().flat_map(Known::ids);
        ids.for_each(|id| self.locks.forget_client(id));
        usize::from(known.is_some())
    }

    /// Forgets machines that have had no locks for a while.
    pub(crate) fn sweep(&self) {
        let holders = self.locks.holders();
        let mut table = self.table.lock();
        table.sweeps += 1;
        let sweeps = table.sweeps;
        let mut written = false;
        table.hosts.retain(|_, known| {
            if known.ids().any(|id| holders.contains(&id)) {
                known.seen = sweeps;
            }
            let stays = sweeps - known.seen <= IDLE_SWEEPS;
            written |= known.monitored && !stays;
            stays
        });
        if written {
            let _ = self.try_write(&table);
        }
    }
}

/// Whether two names of a machine mean the same: without a difference of case, and one of them may
/// lack the domain.
fn same_name(one: &[u8], other: &[u8]) -> bool {
    let host = |name: &'_ [u8]| name.split(|byte| *byte == b'.').next().unwrap_or(name).to_vec();
    let short = !one.contains(&b'.') || !other.contains(&b'.');
    one.eq_ignore_ascii_case(other) || (short && host(one).eq_ignore_ascii_case(&host(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use locks::Limits;
    use platform::linux::SystemClock;

    #[test]
    fn ledgers_are_read_as_far_as_they_make_sense() {
        let host = |address: &str, name: &str| {
            Host::new(address.parse().unwrap(), name.as_bytes()).unwrap()
        };
        let contents = parse("stroop locks 1\nstate 7\nhost 10.0.0.7 a\nhost fd00::1 b.example\n");
        let hosts = vec![host("10.0.0.7", "a"), host("fd00::1", "b.example")];
        assert_eq!(contents, Contents { state: Some(7), hosts, ..Contents::default() });
        let contents = parse("stroop locks 1\nstate x\nhost 10.0.0.7\nhost 10.0.0.8 c\n\0\0");
        let hosts = vec![host("10.0.0.8", "c")];
        assert_eq!(contents, Contents { hosts, nonsense: 3, ..Contents::default() });
        let contents = parse("number 10.0.0.7 a 5\nnumber 10.0.0.7 a x\nnumber 10.0.0.7 5\n");
        let five = NonZeroU32::new(5).unwrap();
        assert_eq!((contents.numbers[&host("10.0.0.7", "a")], contents.nonsense), (five, 2));
        assert_eq!(parse(""), Contents::default());
    }

    #[test]
    fn one_address_does_not_take_the_places_of_all() {
        let locks = Arc::new(LockManager::new(Arc::new(SystemClock), Limits::default()));
        let ledger = Arc::new(Mutex::new(String::new()));
        let (hosts, _) = Hosts::start(ledger, locks).unwrap();
        let host = |last, number: usize| {
            let name = format!("client{number}");
            Host::new(IpAddr::from([10, 0, 0, last]), name.as_bytes()).unwrap()
        };
        let ask = |last, number| hosts.client(&host(last, number), VolumeUuid([1; 16]), true);
        // Who only looks is not remembered.
        for number in 0..HOSTS_MAX {
            assert_eq!(hosts.looks(&host(1, number)), ClientId::NOBODY);
        }
        let first = ask(1, 0).unwrap();
        assert_eq!(hosts.looks(&host(1, 0)), first);
        let count = (0..HOSTS_MAX).filter(|number| ask(1, *number).is_ok()).count();
        assert_eq!(count, HOSTS_OF_ADDRESS_MAX);
        assert!(ask(2, 0).is_ok());
        // Names that lock nothing are forgotten.
        (0..=IDLE_SWEEPS).for_each(|_| hosts.sweep());
        assert!(ask(1, HOSTS_MAX).is_ok());
    }

    #[test]
    fn names_may_lack_their_domain() {
        assert!(same_name(b"Client", b"client"));
        assert!(same_name(b"client", b"client.example.org"));
        assert!(!same_name(b"client.example.com", b"client.example.org"));
        assert!(!same_name(b"client", b"client2"));
        assert!(Host::new(IpAddr::from([10, 0, 0, 1]), b"two words").is_none());
        assert!(Host::new(IpAddr::from([10, 0, 0, 1]), b"").is_none());
    }
}
