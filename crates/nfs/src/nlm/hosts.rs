//! Which machines lock, and the ledger of those that hold locks.
//!
//! The ledger is a text ([`super::ledger_text`]), which is written whole.
//!
//! Invariants: what [`Hosts::monitor`] has answered is in the ledger durably; a machine leaves it
//! when it has had no lock for [`IDLE_SWEEPS`] sweeps, was started anew, or gave back all. Machines
//! of an earlier start leave it when they were told of the restart and the grace period is over:
//! until then they may take back what they had, and nobody else may. The table is never locked
//! while the ledger is written: a machine that locks for the first time holds up no other.
//!
//! Fails: [`Unmonitored`]: no lock may be given. The start never fails:
//! - A ledger that cannot be read is left as it is, and no machine gets a lock.
//! - Of a ledger that makes no sense everywhere, the lines that do are used. If it can be, it is
//!   kept aside before it is written anew. The clock makes the state, which must not be an old one.
//! - A ledger that cannot be written is tried again with each sweep, and when a machine is to come
//!   in.
//!
//! [`Hosts::trouble`] tells all of that.

use super::host::{Host, same_name};
use super::ledger::{Ledger, LedgerTrouble};
use super::ledger_text;
use super::ledger_writer::{LedgerWriter, Unwritten};
use locks::{ClientId, LockManager};
use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use units::{Timestamp, VolumeUuid};

/// Machines that are known at the same time: each has a line of the ledger, which is written whole.
const HOSTS_MAX: usize = 4096;
/// Of them, at one address: guests of a machine, or a few behind a router. Nobody proves a name, so
/// one machine could have all the lines there are.
const HOSTS_OF_ADDRESS_MAX: usize = 32;
/// Of them, in an IPv6 network of 64 bits: an office, or one machine that takes any address of it.
const HOSTS_OF_NETWORK_MAX: usize = HOSTS_MAX / 4;
/// Numbers of a status monitor under which a machine may have locks at once: one, and those of
/// starts that it did not confirm.
const NUMBERS_MAX: usize = 4;
/// Sweeps that a machine without locks stays in the ledger: programs lock again and again.
const IDLE_SWEEPS: u64 = 3;

/// The machine cannot be watched, so it gets no lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unmonitored;

/// Whether a machine is in the ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Noted {
    No,
    /// The text that says this change has it.
    Soon(u64),
    Durably,
}

struct Known {
    id: ClientId,
    noted: Noted,
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
    /// Counts what was changed that the ledger is to say.
    changes: u64,
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
        self.hosts
            .range(Host::first_of(address)..)
            .take_while(move |(host, _)| host.address == address)
    }

    /// The machines of an address's network: an IPv4 address is one of its own.
    fn of_network(&self, address: IpAddr) -> impl Iterator<Item = &Host> {
        let network = onc_rpc::client_of(address);
        let known = self.hosts.range(Host::first_of(network)..);
        known
            .map(|(host, _)| host)
            .take_while(move |host| onc_rpc::client_of(host.address) == network)
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
            (
                self.of_network(address).count(),
                HOSTS_OF_NETWORK_MAX,
                "too many machines of one network with locks",
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
    ledger: LedgerWriter,
    locks: Arc<LockManager>,
    state: u32,
}

/// A state that no earlier start had, unless the clock was set back: odd, and a positive number to
/// clients that read it with a sign.
fn state_of(now: Timestamp) -> u32 {
    (now.seconds() as u32 & 0x7FFF_FFFF) | 1
}

impl Hosts {
    /// Reads the ledger and takes the next state. Gives the machines to be told of the restart.
    pub(crate) fn start(
        ledger: Arc<dyn Ledger>,
        locks: Arc<LockManager>,
        now: Timestamp,
    ) -> (Self, Vec<Host>) {
        let (ledger, mut contents) = LedgerWriter::start(ledger);
        // The next odd number.
        let next = |before: u32| before.wrapping_add(1) | 1;
        let state = match (contents.state, ledger.trouble()) {
            (Some(before), None) => next(before),
            // The ledger of before may have been moved away.
            (before, _) => state_of(now).max(before.map_or(0, next)),
        };
        contents.hosts.sort();
        contents.hosts.dedup();
        let to_tell = contents.hosts;
        let may_reclaim = to_tell.iter().cloned().collect();
        let numbers = contents.numbers;
        let table = Table {
            to_tell: to_tell.clone(),
            may_reclaim,
            numbers,
            changes: 1,
            ..Table::default()
        };
        let hosts = Self { table: Mutex::new(table), ledger, locks, state };
        // If it fails the first lock tries again.
        let _ = hosts.store();
        (hosts, to_tell)
    }

    /// What is wrong with the ledger, if something is.
    pub(crate) fn trouble(&self) -> Option<LedgerTrouble> {
        self.ledger.trouble()
    }

    /// NSM's number of this node.
    pub(crate) const fn state(&self) -> u32 {
        self.state
    }

    /// Has the ledger say what the table does; how many changes it says. The caller does not hold
    /// the table.
    fn store(&self) -> Result<u64, Unwritten> {
        self.ledger.store(|written| {
            let table = self.table.lock();
            if table.changes == written {
                return None;
            }
            let noted = table.hosts.iter().filter(|(_, known)| known.noted != Noted::No);
            let noted = noted.map(|(host, _)| host);
            let hosts: BTreeSet<&Host> =
                noted.chain(&table.to_tell).chain(&table.may_reclaim).collect();
            let hosts = hosts.into_iter().map(|host| (host, table.number_of(host)));
            Some((ledger_text::print(self.state, hosts), table.changes))
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
            let known = Known { id, noted: Noted::No, seen, any_port, number, before };
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
        let id = {
            let mut table = self.table.lock();
            let Table { hosts, sweeps, changes, .. } = &mut *table;
            let known = hosts.get_mut(host).ok_or(Unmonitored)?;
            known.seen = *sweeps;
            match known.noted {
                Noted::Durably => return Ok(()),
                // Another call of the machine writes it just now.
                Noted::Soon(_) => {}
                Noted::No => {
                    *changes += 1;
                    known.noted = Noted::Soon(*changes);
                }
            }
            known.id
        };
        let stored = self.store();
        let mut table = self.table.lock();
        let Table { hosts, changes, .. } = &mut *table;
        // Who gave back all meanwhile, and locks anew, is another one, unknown to this text.
        let known = hosts.get_mut(host).filter(|known| known.ids().any(|of| of == id));
        let known = known.ok_or(Unmonitored)?;
        match (known.noted, stored) {
            (Noted::Durably, _) => Ok(()),
            (Noted::Soon(change), Ok(written)) if written >= change => {
                known.noted = Noted::Durably;
                Ok(())
            }
            (Noted::Soon(_), Err(Unwritten)) => {
                known.noted = Noted::No;
                *changes += 1;
                Err(Unmonitored)
            }
            // A write of another call failed.
            (Noted::No | Noted::Soon(_), _) => Err(Unmonitored),
        }
    }

    /// A machine was told of the restart, or cannot be reached for so long that it is given up.
    pub(crate) fn told(&self, host: &Host) {
        {
            let mut table = self.table.lock();
            table.to_tell.retain(|other| other != host);
            table.changes += 1;
        }
        // If it fails the machine is told again after the next start, which does no harm.
        let _ = self.store();
    }

    /// Whether a machine may take back what it had before the server was started.
    pub(crate) fn may_reclaim(&self, host: &Host) -> bool {
        self.table.lock().may_reclaim.contains(host)
    }

    /// The grace period is over, or there is none.
    pub(crate) fn end_of_grace(&self) {
        {
            let mut table = self.table.lock();
            table.numbers.clear();
            if std::mem::take(&mut table.may_reclaim).is_empty() {
                return;
            }
            table.changes += 1;
        }
        // If it fails they are told again after the next start, which does no harm.
        let _ = self.store();
    }

    /// A machine that was let in asks for a lock, and says which number its status monitor has. If
    /// it is another than before, the machine locks as another client from now on: the locks of
    /// before may be those of programs that are no more. Gives who it is, and whether it is to be
    /// asked about that.
    pub(crate) fn locks_in(&self, host: &Host, number: NonZeroU32) -> Option<(ClientId, bool)> {
        let mut table = self.table.lock();
        let Table { hosts, changes: of_table, .. } = &mut *table;
        let known = hosts.get_mut(host)?;
        let changes = known.number.is_some_and(|before| before != number);
        if let Some(before) = known.number.filter(|_| changes) {
            if known.before.len() >= NUMBERS_MAX {
                return None;
            }
            known.before.push((before, known.id));
            known.id = self.locks.register_client_beside(known.id);
        }
        known.number = Some(number);
        let (id, is_stale) = (known.id, changes && known.noted != Noted::No);
        *of_table += u64::from(is_stale);
        drop(table);
        if is_stale {
            self.store().ok()?;
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
        let (known, is_noted) = {
            let mut table = self.table.lock();
            let known = table.hosts.remove(host);
            let may_reclaim = table.may_reclaim.remove(host);
            let is_noted =
                may_reclaim || known.as_ref().is_some_and(|known| known.noted != Noted::No);
            table.changes += u64::from(is_noted);
            (known, is_noted)
        };
        if is_noted {
            // If it fails the machine is told after the next start, which does no harm.
            let _ = self.store();
        }
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
        let mut is_noted = false;
        table.hosts.retain(|_, known| {
            if known.ids().any(|id| holders.contains(&id)) {
                known.seen = sweeps;
            }
            let stays = sweeps - known.seen <= IDLE_SWEEPS;
            is_noted |= known.noted != Noted::No && !stays;
            stays
        });
        table.changes += u64::from(is_noted);
        drop(table);
        // What could not be written before is tried again.
        let _ = self.store();
    }
}

#[cfg(test)]
mod tests;
