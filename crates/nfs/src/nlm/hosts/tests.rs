//! The table of machines: its limits, and what becomes of a ledger with a fault.

use super::*;
use locks::Limits;
use platform::linux::SystemClock;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};

#[test]
fn one_address_does_not_take_the_places_of_all() {
    let locks = Arc::new(LockManager::new(Arc::new(SystemClock), Limits::default()));
    let ledger = Arc::new(Mutex::new(String::new()));
    let (hosts, _) = Hosts::start(ledger, locks, Timestamp(0));
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
fn one_network_does_not_take_the_places_of_all() {
    let locks = Arc::new(LockManager::new(Arc::new(SystemClock), Limits::default()));
    let ledger = Arc::new(Mutex::new(String::new()));
    let (hosts, _) = Hosts::start(ledger, locks, Timestamp(0));
    let ask = |network: u16, number: u16| {
        let address = [0xFD00, 0, 0, network, 0, 0, 0, number];
        let host = Host::new(IpAddr::from(address), b"client").unwrap();
        hosts.client(&host, VolumeUuid([1; 16]), true)
    };
    let asks = 0..2 * HOSTS_OF_NETWORK_MAX as u16;
    let count = asks.filter(|number| ask(1, *number).is_ok()).count();
    assert_eq!(count, HOSTS_OF_NETWORK_MAX);
    assert!(ask(0, 7).is_ok() && ask(2, 7).is_ok());
    let host = Host::new(IpAddr::from([10, 0, 0, 1]), b"client").unwrap();
    assert!(hosts.client(&host, VolumeUuid([1; 16]), true).is_ok());
}

/// A ledger with a fault.
struct Faulty {
    text: Option<&'static str>,
    stored: Mutex<Vec<String>>,
    is_full: AtomicBool,
}

impl Ledger for Faulty {
    fn load(&self) -> io::Result<Option<String>> {
        let text = self.text.ok_or(io::ErrorKind::PermissionDenied)?;
        Ok(Some(text.to_owned()))
    }

    fn store(&self, text: &str) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.stored.lock().push(text.to_owned());
        Ok(())
    }

    fn keep_damaged(&self) -> io::Result<String> {
        assert!(self.stored.lock().is_empty(), "it was written over before");
        Ok("ledger.damaged".to_owned())
    }
}

fn start(text: Option<&'static str>, is_full: bool) -> (Hosts, Arc<Faulty>, Vec<Host>) {
    let locks = Arc::new(LockManager::new(Arc::new(SystemClock), Limits::default()));
    let faulty = Faulty { text, stored: Mutex::default(), is_full: is_full.into() };
    let ledger = Arc::new(faulty);
    let port = Arc::clone(&ledger) as Arc<dyn Ledger>;
    let (hosts, to_tell) = Hosts::start(port, locks, Timestamp(1_000_000_000 * 1_000));
    (hosts, ledger, to_tell)
}

fn take(hosts: &Hosts) -> Result<(), Unmonitored> {
    let host = Host::new(IpAddr::from([10, 0, 0, 9]), b"nine").unwrap();
    hosts.client(&host, VolumeUuid([1; 16]), true).unwrap();
    hosts.monitor(&host)
}

#[test]
fn a_ledger_that_cannot_be_read_is_left_alone_and_no_lock_is_given() {
    let (hosts, ledger, to_tell) = start(None, false);
    assert!(to_tell.is_empty());
    assert_eq!(take(&hosts), Err(Unmonitored));
    hosts.end_of_grace();
    (0..=IDLE_SWEEPS).for_each(|_| hosts.sweep());
    assert!(ledger.stored.lock().is_empty());
    let trouble = hosts.trouble();
    assert!(matches!(trouble, Some(LedgerTrouble::Unreadable(_))), "{trouble:?}");
}

#[test]
fn a_ledger_that_cannot_be_written_is_tried_again_with_the_next_lock() {
    let (hosts, ledger, _) = start(Some("stroop locks 1\nstate 5\nhost 10.0.0.7 a\n"), true);
    assert!(matches!(hosts.trouble(), Some(LedgerTrouble::Unwritten(_))));
    assert_eq!(take(&hosts), Err(Unmonitored));
    // Nor does one of before that takes back what it had: it would not be told the next state.
    let host = Host::new(IpAddr::from([10, 0, 0, 7]), b"a").unwrap();
    hosts.client(&host, VolumeUuid([1; 16]), true).unwrap();
    assert_eq!(hosts.monitor(&host), Err(Unmonitored));
    ledger.is_full.store(false, Ordering::Relaxed);
    hosts.sweep();
    assert_eq!(hosts.trouble(), None);
    assert_eq!(take(&hosts), Ok(()));
    assert_eq!(hosts.trouble(), None);
    let text = ledger.stored.lock().last().unwrap().clone();
    assert_eq!(text, "stroop locks 1\nstate 7\nhost 10.0.0.7 a\nhost 10.0.0.9 nine\n");
}

#[test]
fn a_damaged_ledger_is_kept_aside_and_its_good_lines_hold() {
    for (text, count, state) in [
        ("", 0, 1001),
        ("stroop locks 2\nstate 5\nhost 10.0.0.7 a\n", 1, 1001),
        ("stroop locks 1\nstate 2005\nhost 10.0.0.7 a\nh", 1, 2007),
        ("stroop locks 1\nhost 10.0.0.7 a\n", 1, 1001),
    ] {
        let (hosts, ledger, to_tell) = start(Some(text), false);
        assert_eq!((to_tell.len(), hosts.state()), (count, state), "{text}");
        assert_eq!(ledger.stored.lock().len(), 1);
        assert_eq!(take(&hosts), Ok(()));
        let trouble = hosts.trouble();
        assert!(matches!(trouble, Some(LedgerTrouble::Damaged(_))), "{trouble:?}");
    }
}

/// A ledger that looks, while it is written, whether the table is free.
#[derive(Default)]
struct Looking {
    hosts: OnceLock<Weak<Hosts>>,
    writes: Mutex<Vec<String>>,
}

impl Ledger for Looking {
    fn load(&self) -> io::Result<Option<String>> {
        Ok(None)
    }

    fn store(&self, text: &str) -> io::Result<()> {
        if let Some(hosts) = self.hosts.get().and_then(Weak::upgrade) {
            let free = hosts.table.try_lock().map(|mut table| table.changes += 1);
            free.expect("whoever locks would wait for the ledger");
        }
        self.writes.lock().push(text.to_owned());
        Ok(())
    }

    fn keep_damaged(&self) -> io::Result<String> {
        unreachable!("nothing is damaged")
    }
}

#[test]
fn regression_nobody_waits_for_the_table_while_the_ledger_is_written() {
    let locks = Arc::new(LockManager::new(Arc::new(SystemClock), Limits::default()));
    let ledger = Arc::new(Looking::default());
    let port = Arc::clone(&ledger) as Arc<dyn Ledger>;
    let hosts = Arc::new(Hosts::start(port, locks, Timestamp(0)).0);
    ledger.hosts.set(Arc::downgrade(&hosts)).unwrap();
    let host = Host::new(IpAddr::from([10, 0, 0, 9]), b"nine").unwrap();
    take(&hosts).unwrap();
    let number = |number| NonZeroU32::new(number).unwrap();
    hosts.locks_in(&host, number(3)).unwrap();
    hosts.locks_in(&host, number(5)).unwrap();
    hosts.told(&host);
    hosts.forgets(&host);
    take(&hosts).unwrap();
    (0..=IDLE_SWEEPS).for_each(|_| hosts.sweep());
    let writes = ledger.writes.lock();
    let with_host = |text: &&String| text.contains("host 10.0.0.9 nine\n");
    let with_host: Vec<bool> = writes.iter().map(|text| with_host(&text)).collect();
    let begin = [false, true, true, true, false, true];
    assert!(with_host.starts_with(&begin) && with_host.ends_with(&[false]), "{writes:?}");
}

/// One of before may have been moved away, because it could not be read.
#[test]
fn a_ledger_that_is_not_there_gets_its_state_from_the_clock() {
    let locks = Arc::new(LockManager::new(Arc::new(SystemClock), Limits::default()));
    let ledger = Arc::new(Mutex::new(String::new()));
    let (hosts, _) = Hosts::start(ledger, locks, Timestamp(1_000_000_000 * 1_000));
    assert_eq!((hosts.state(), hosts.trouble()), (1001, None));
}
