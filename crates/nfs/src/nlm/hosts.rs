//! Which machines lock, and the ledger of those that hold locks.
//!
//! A machine is an address and the name that it gives itself: two that share an address (behind a
//! router, or guests of one machine) are two. The ledger is a text:
//!
//! ```text
//! stroop locks 1
//! state 5
//! host 10.0.0.7 client7
//! ```
//!
//! `state` is NSM's number of this node: odd, and larger at each start, so that a client can tell a
//! notice that it knows from a new one. A `host` has locks, or had them when the server ended and
//! was not told of the restart yet.
//!
//! Invariants: what [`Hosts::monitor`] has answered is in the ledger durably; a machine leaves it
//! when it has had no lock for [`IDLE_SWEEPS`] sweeps, was started anew, gave back all, or was told
//! of a restart.
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
use std::sync::Arc;
use units::VolumeUuid;

/// Machines that are known at the same time: each has a line of the ledger, which is written whole.
const HOSTS_MAX: usize = 4096;
/// Longest name that is taken.
const NAME_BYTES_MAX: usize = 255;
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
}

#[derive(Default)]
struct Table {
    hosts: BTreeMap<Host, Known>,
    /// Had locks when the server was started, and were not told of that yet.
    to_tell: Vec<Host>,
    sweeps: u64,
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
        let table = Table { to_tell: to_tell.clone(), ..Table::default() };
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
        let hosts = monitored.map(|(host, _)| host).chain(&table.to_tell);
        for host in hosts {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "host {} {}", host.address, host.name);
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
            if table.hosts.len() >= HOSTS_MAX {
                tracing::warn!(limit = HOSTS_MAX, %host.address, "too many machines with locks");
                return Err(Unmonitored);
            }
            let id = self.locks.register_client();
            let known = Known { id, monitored: false, seen, any_port: BTreeSet::new() };
            table.hosts.insert(host.clone(), known);
        }
        let Some(known) = table.hosts.get_mut(host) else { unreachable!("it was put there") };
        known.seen = seen;
        if !is_privileged {
            known.any_port.insert(volume);
        }
        Ok(known.id)
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

    /// A machine says that it was started anew: frees its locks. Its name may be given in full or
    /// not; where no machine of its address has it, it means the only one that there is.
    pub(crate) fn started_anew(&self, address: IpAddr, name: &[u8]) -> usize {
        self.forget(|table| {
            let of_address: Vec<Host> =
                table.hosts.keys().filter(|host| host.address == address).cloned().collect();
            let named = of_address.iter().filter(|host| same_name(host.name.as_bytes(), name));
            let gone: Vec<Host> = named.cloned().collect();
            if gone.is_empty() && of_address.len() == 1 { of_address } else { gone }
        })
    }

    /// A machine gives back all that it has, under the name under which it has it.
    pub(crate) fn frees_all(&self, host: &Host) -> usize {
        self.forget(|_| vec![host.clone()])
    }

    /// Frees the locks of some machines; how many of them were known.
    fn forget(&self, which: impl FnOnce(&Table) -> Vec<Host>) -> usize {
        let clients = {
            let mut table = self.table.lock();
            let gone = which(&table);
            let clients = gone.iter().filter_map(|host| table.hosts.remove(host));
            let clients: Vec<Known> = clients.collect();
            if clients.iter().any(|known| known.monitored) {
                let _ = self.try_write(&table);
            }
            clients
        };
        clients.iter().for_each(|known| self.locks.forget_client(known.id));
        clients.len()
    }

    /// Forgets machines that have had no locks for a while.
    pub(crate) fn sweep(&self) {
        let holders = self.locks.holders();
        let mut table = self.table.lock();
        table.sweeps += 1;
        let sweeps = table.sweeps;
        let mut written = false;
        table.hosts.retain(|_, known| {
            if holders.contains(&known.id) {
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

    #[test]
    fn ledgers_are_read_as_far_as_they_make_sense() {
        let host = |address: &str, name: &str| {
            Host::new(address.parse().unwrap(), name.as_bytes()).unwrap()
        };
        let contents = parse("stroop locks 1\nstate 7\nhost 10.0.0.7 a\nhost fd00::1 b.example\n");
        let hosts = vec![host("10.0.0.7", "a"), host("fd00::1", "b.example")];
        assert_eq!(contents, Contents { state: Some(7), hosts, nonsense: 0 });
        let contents = parse("stroop locks 1\nstate x\nhost 10.0.0.7\nhost 10.0.0.8 c\n\0\0");
        let hosts = vec![host("10.0.0.8", "c")];
        assert_eq!(contents, Contents { state: None, hosts, nonsense: 3 });
        assert_eq!(parse(""), Contents::default());
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
