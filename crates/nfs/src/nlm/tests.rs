//! Who may take, give back and free locks: calls from ports of both kinds, which no test may open.

use super::{Ledger, Locking};
use crate::export::{Export, ExportAccess, ExportPolicy};
use crate::reply_cache::ReplyLimits;
use crate::server::Programs;
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use file_service::{Call, Caller, CreateMode, FileHandle, HandleKey, SetAttributes, calls};
use locks::{Limits, LockManager};
use onc_rpc::{AuthSys, CallHeader, Credential, Dialogue, Reader, Writer, record};
use platform::linux::SystemClock;
use platform::sync::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use units::VolumeUuid;

const GRANTED: u32 = 0;
const READ_ONLY: u32 = 6;
const STALE: u32 = 7;
const FAILED: u32 = 9;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const FREE_ALL: u32 = 23;
/// Ports that take root, and that do not.
const ROOT: u16 = 700;
const USER: u16 = 40_000;

const KEY: HandleKey = HandleKey([9; 16]);
const OPEN: ExportAccess = ExportAccess::ROOT_IS_ROOT;
const SECURE: ExportAccess = ExportAccess { secure_ports: true, ..OPEN };

/// One rule for everyone, which a test changes.
struct Policy(Mutex<Option<ExportAccess>>);

impl ExportPolicy for Policy {
    fn handle_key(&self, _: VolumeUuid) -> Option<HandleKey> {
        Some(KEY)
    }

    fn rule(&self, _: VolumeUuid, _: IpAddr) -> Option<ExportAccess> {
        *self.0.lock()
    }

    fn rule_for_export(&self, _: &str, _: IpAddr) -> Option<ExportAccess> {
        *self.0.lock()
    }

    fn exports(&self) -> Vec<Export> {
        Vec::new()
    }
}

struct Setup {
    programs: Arc<Programs>,
    policy: Arc<Policy>,
    locks: Arc<LockManager>,
    ledger: Arc<Mutex<String>>,
    service: Arc<MemoryFileSystem>,
    directory: FileHandle,
    file: FileHandle,
    xid: AtomicU32,
}

fn ask<C: Call>(service: &MemoryFileSystem, call: C) -> C::Reply {
    let slot = Arc::new(Mutex::new(None));
    let inner = Arc::clone(&slot);
    call.send(service, &Caller::root(), Box::new(move |answer| *inner.lock() = Some(answer)));
    let answer = slot.lock().take();
    answer.expect("answered").unwrap()
}

impl Setup {
    fn new() -> Self {
        let service = MemoryFileSystem::new(Arc::new(SystemClock));
        service.add_volume("vol", VolumeOptions::default()).unwrap();
        let directory = ask(&service, calls::Root { name: "vol".to_owned() }).handle;
        let (name, mode, set) = (b"f".to_vec(), CreateMode::Guarded, SetAttributes::default());
        let file = ask(&service, calls::Create { directory, name, mode, set }).0.handle;
        let service = Arc::new(service);
        let policy = Arc::new(Policy(Mutex::new(Some(OPEN))));
        let locks = Arc::new(LockManager::new(Arc::new(SystemClock), Limits::default()));
        let ledger = Arc::<Mutex<String>>::default();
        let locking = Locking {
            locks: Arc::clone(&locks),
            ledger: Arc::clone(&ledger) as Arc<dyn Ledger>,
            node: "node".to_owned(),
            grace_nanoseconds: 0,
            rpcbind: false,
            client_rpcbind_port: 1,
        };
        let (files, rules) = (Arc::clone(&service), Arc::clone(&policy));
        let limits = ReplyLimits::default();
        let programs = Programs::new(files, rules, Arc::new(SystemClock), limits);
        let programs = Arc::new(programs.with_silent_locks(&locking).unwrap());
        let xid = AtomicU32::new(1);
        Self { programs, policy, locks, ledger, service, directory, file, xid }
    }

    fn rule(&self, access: Option<ExportAccess>) {
        *self.policy.0.lock() = access;
    }

    /// A call of NLM from this port: its results.
    fn call(&self, port: u16, procedure: u32, arguments: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let peer = SocketAddr::from(([10, 0, 0, 7], port));
        let bytes_max = self.programs.record_bytes_max();
        let mut dialogue = Dialogue::new(Arc::clone(&self.programs), peer, bytes_max);
        let mut writer = Writer::default();
        writer.u32(0);
        let credential = Credential::Sys(AuthSys::new(0, 0, &[]));
        let (xid, program) = (self.xid.fetch_add(1, Ordering::Relaxed), 100_021);
        CallHeader { xid, program, version: 4, procedure, credential }.write(&mut writer);
        arguments(&mut writer);
        writer.overwrite_u32(0, record::mark(writer.len() - 4));
        let _end_of_what_is_there = dialogue.hear(writer.bytes());
        let replies = dialogue.take_replies();
        let mut reader = Reader::new(&replies);
        for _mark_to_verifier in 0..6 {
            reader.u32().unwrap();
        }
        assert_eq!(reader.u32(), Ok(0), "it was carried out");
        reader.rest().to_vec()
    }

    /// The status of a call about the whole file.
    fn ask(&self, port: u16, procedure: u32) -> u32 {
        self.ask_as(port, procedure, "host", 3)
    }

    fn ask_as(&self, port: u16, procedure: u32, host: &str, access: u32) -> u32 {
        let results = self.call(port, procedure, |writer| {
            writer.opaque(b"cookie");
            let is_share = matches!(procedure, SHARE | UNSHARE);
            if !is_share && procedure != UNLOCK {
                writer.bool(procedure == CANCEL);
                writer.bool(true);
            }
            writer.opaque(host.as_bytes());
            writer.opaque(&self.file.seal(&KEY));
            writer.opaque(b"owner");
            if is_share {
                writer.u32(0);
                writer.u32(access);
                return writer.bool(false);
            }
            writer.u32(1);
            writer.u64(0);
            writer.u64(0);
            if procedure == LOCK {
                writer.bool(false);
                writer.u32(3);
            }
        });
        let mut reader = Reader::new(&results);
        reader.opaque(64).unwrap();
        let status = reader.u32().unwrap();
        let is_share = matches!(procedure, SHARE | UNSHARE);
        assert_eq!(reader.rest().len(), if is_share { 4 } else { 0 }, "the sequence");
        status
    }

    fn free_all(&self, port: u16, host: &str) {
        let results = self.call(port, FREE_ALL, |writer| {
            writer.opaque(host.as_bytes());
            writer.u32(3);
        });
        assert!(results.is_empty());
    }

    /// How many ranges and machines with anything there are.
    fn counts(&self) -> (usize, usize) {
        (self.locks.counts().0, self.locks.holders().len())
    }
}

#[test]
fn what_was_let_in_is_given_back_whatever_the_rule_says_by_now() {
    let setup = Setup::new();
    let hidden = ExportAccess { hide_snapshots: true, read_only: true, ..OPEN };
    for (port, later) in [(ROOT, None), (USER, None), (USER, Some(SECURE)), (ROOT, Some(hidden))] {
        setup.rule(Some(OPEN));
        assert_eq!((setup.ask(port, LOCK), setup.ask(port, SHARE)), (GRANTED, GRANTED));
        setup.rule(later);
        assert_eq!(setup.ask(port, CANCEL), GRANTED, "{port} {later:?}");
        assert_eq!(setup.ask(port, UNLOCK), GRANTED, "{port} {later:?}");
        assert_eq!(setup.counts(), (0, 1), "{port} {later:?}");
        assert_eq!(setup.ask(port, UNSHARE), GRANTED, "{port} {later:?}");
        assert_eq!(setup.counts(), (0, 0), "{port} {later:?}");
        setup.free_all(ROOT, "host");
    }
    // Taking is asked about each time.
    setup.rule(None);
    assert_eq!(setup.ask(ROOT, LOCK), FAILED);
}

#[test]
fn of_what_took_root_other_users_give_nothing_back() {
    let setup = Setup::new();
    setup.rule(Some(SECURE));
    assert_eq!((setup.ask(ROOT, LOCK), setup.ask(ROOT, SHARE)), (GRANTED, GRANTED));
    for later in [Some(SECURE), None] {
        setup.rule(later);
        assert_eq!((setup.ask(USER, UNLOCK), setup.ask(USER, UNSHARE)), (FAILED, FAILED));
    }
    assert_eq!(setup.counts(), (1, 1));
    assert_eq!((setup.ask(ROOT, UNLOCK), setup.ask(ROOT, UNSHARE)), (GRANTED, GRANTED));
    assert_eq!(setup.counts(), (0, 0));
}

#[test]
fn nothing_is_remembered_of_who_was_never_let_in() {
    let setup = Setup::new();
    setup.rule(None);
    for procedure in [CANCEL, UNLOCK, UNSHARE] {
        assert_eq!(setup.ask(ROOT, procedure), FAILED);
    }
    setup.rule(Some(OPEN));
    assert_eq!(setup.ask_as(ROOT, LOCK, "other", 3), GRANTED);
    setup.rule(None);
    assert_eq!(setup.ask(ROOT, UNLOCK), FAILED, "of another name");
    assert_eq!(setup.counts(), (1, 1));
}

#[test]
fn a_reservation_is_of_a_file_that_is_there_and_may_be_used_so() {
    let setup = Setup::new();
    setup.rule(Some(ExportAccess { read_only: true, ..OPEN }));
    assert_eq!(setup.ask_as(ROOT, SHARE, "host", 3), READ_ONLY);
    assert_eq!(setup.ask_as(ROOT, SHARE, "host", 2), READ_ONLY);
    assert_eq!(setup.counts(), (0, 0));
    assert_eq!(setup.ask_as(ROOT, SHARE, "host", 1), GRANTED);
    assert_eq!(setup.ask(ROOT, UNSHARE), GRANTED);
    setup.rule(Some(OPEN));
    ask(&setup.service, calls::Remove { directory: setup.directory, name: b"f".to_vec() });
    assert_eq!(setup.ask(ROOT, SHARE), STALE);
    assert_eq!(setup.counts(), (0, 0));
    assert_eq!(setup.ask(ROOT, UNSHARE), GRANTED, "gone or not");
}

#[test]
fn all_is_freed_only_for_who_speaks_for_the_machine_and_by_its_name() {
    let setup = Setup::new();
    assert_eq!((setup.ask(ROOT, LOCK), setup.ask(ROOT, SHARE)), (GRANTED, GRANTED));
    setup.free_all(USER, "host");
    for name in ["other", "host.example.org", "HOST", ""] {
        setup.free_all(ROOT, name);
    }
    assert_eq!(setup.counts(), (1, 1));
    assert!(setup.ledger.lock().contains("host 10.0.0.7 host\n"));
    setup.free_all(ROOT, "host");
    assert_eq!(setup.counts(), (0, 0));
    assert!(!setup.ledger.lock().contains("host 10.0.0.7"));
}
