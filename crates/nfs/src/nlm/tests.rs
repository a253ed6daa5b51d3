//! Who may take, give back and free locks: calls from ports of both kinds, which no test may open.

use super::hosts::Hosts;
use super::{Ledger, Locking};
use crate::export::{Export, ExportAccess, ExportPolicy};
use crate::reply_cache::ReplyLimits;
use crate::server::Programs;
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use file_service::{Call, Caller, CreateMode, FileHandle, HandleKey, SetAttributes, calls};
use locks::{Limits, LockManager};
use onc_rpc::{
    AuthSys, CallHeader, Credential, Dialogue, Reader, Replier, Service, Writer, record,
};
use platform::linux::SystemClock;
use platform::sync::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use units::{Timestamp, VolumeUuid};

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const BLOCKED: u32 = 3;
const READ_ONLY: u32 = 6;
const STALE: u32 = 7;
const FAILED: u32 = 9;
/// Of NFS.
const ACCESS: u32 = 13;
const TRY_LATER: u32 = 10008;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const FREE_ALL: u32 = 23;
/// The number of a client's status monitor.
const STATE: u32 = 3;
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

    fn exports(&self, _: IpAddr) -> Vec<Export> {
        Vec::new()
    }
}

struct Setup {
    /// Where calls come from.
    address: [u8; 4],
    programs: Arc<Programs>,
    policy: Arc<Policy>,
    locks: Arc<LockManager>,
    ledger: Arc<Mutex<String>>,
    service: Arc<MemoryFileSystem>,
    directory: FileHandle,
    file: FileHandle,
    xid: AtomicU32,
    /// The number of the client's status monitor.
    number: AtomicU32,
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
        Self::of_client([10, 0, 0, 7], 1, ReplyLimits::default())
    }

    /// With a client at this address, whose rpcbind has this port.
    fn of_client(address: [u8; 4], client_rpcbind_port: u16, limits: ReplyLimits) -> Self {
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
            client_rpcbind_port,
        };
        let (files, rules) = (Arc::clone(&service), Arc::clone(&policy));
        let programs = Programs::new(files, rules, Arc::new(SystemClock), limits);
        let programs = Arc::new(programs.with_silent_locks(&locking).unwrap());
        let xid = AtomicU32::new(1);
        let number = AtomicU32::new(STATE);
        Self { address, programs, policy, locks, ledger, service, directory, file, xid, number }
    }

    fn rule(&self, access: Option<ExportAccess>) {
        *self.policy.0.lock() = access;
    }

    /// A call of NLM from this port: its results.
    fn call(&self, port: u16, procedure: u32, arguments: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let root = AuthSys::new(0, 0, &[]);
        self.call_as(root, port, (100_021, 4, procedure), arguments)
    }

    fn call_as(
        &self,
        user: AuthSys,
        port: u16,
        (program, version, procedure): (u32, u32, u32),
        arguments: impl FnOnce(&mut Writer),
    ) -> Vec<u8> {
        let peer = SocketAddr::from((self.address, port));
        let bytes_max = self.programs.record_bytes_max();
        let mut dialogue = Dialogue::new(Arc::clone(&self.programs), peer, bytes_max);
        let mut writer = Writer::default();
        writer.u32(0);
        let credential = Credential::Sys(user);
        let xid = self.xid.fetch_add(1, Ordering::Relaxed);
        CallHeader { xid, program, version, procedure, credential }.write(&mut writer);
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
        let arguments = |writer: &mut Writer| self.arguments(writer, procedure, host, access);
        let results = self.call(port, procedure, arguments);
        let mut reader = Reader::new(&results);
        reader.opaque(64).unwrap();
        let status = reader.u32().unwrap();
        let is_share = matches!(procedure, SHARE | UNSHARE);
        assert_eq!(reader.rest().len(), if is_share { 4 } else { 0 }, "the sequence");
        status
    }

    /// The arguments of a call about the whole file; of LOCK, for writing unless `access` is 1.
    fn arguments(&self, writer: &mut Writer, procedure: u32, host: &str, access: u32) {
        writer.opaque(b"cookie");
        let is_share = matches!(procedure, SHARE | UNSHARE);
        if !is_share && procedure != UNLOCK {
            writer.bool(procedure == CANCEL);
            writer.bool(access != 1);
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
            writer.u32(self.number.load(Ordering::SeqCst));
        }
    }

    /// Whoever is at this port says that the machine was started anew.
    fn notify(&self, port: u16, name: &str) {
        let results = self.call_as(AuthSys::new(0, 0, &[]), port, (100_024, 1, 6), |writer| {
            writer.opaque(name.as_bytes());
            writer.u32(STATE + 2);
        });
        assert!(results.is_empty());
    }

    /// Makes the next call to a client: whether it is answered; `None` if there is none to make.
    fn call_client(&self) -> Option<bool> {
        self.programs.locks().callbacks.step()
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

#[test]
fn regression_late_grants_go_with_the_locks_of_their_machine() {
    let setup = Setup::new();
    for _ in 0..3 {
        assert_eq!(setup.ask_as(ROOT, LOCK, "other", 3), GRANTED);
        let results = setup.call(ROOT, LOCK, |writer| {
            let block = writer.len() + 12; // behind the cookie
            setup.arguments(writer, LOCK, "host", 3);
            writer.overwrite_u32(block, 1);
        });
        assert_eq!(Reader::new(&results[12..]).u32(), Ok(BLOCKED));
        setup.free_all(ROOT, "other");
        assert_eq!((setup.programs.locks().callbacks.grants(), setup.counts()), (1, (1, 1)));
        setup.free_all(ROOT, "host");
        assert_eq!((setup.programs.locks().callbacks.grants(), setup.counts()), (0, (0, 0)));
    }
    assert_eq!(setup.call_client(), None, "nobody is told");
}

/// The status of a CREATE.
fn create(setup: &Setup) -> u32 {
    let results = setup.call_as(AuthSys::new(0, 0, &[]), ROOT, (100_003, 3, 8), |writer| {
        writer.opaque(&setup.directory.seal(&KEY));
        writer.opaque(b"new");
        writer.u32(0);
        (0..6).for_each(|_unset| writer.u32(0));
    });
    Reader::new(&results).u32().unwrap()
}

#[test]
fn a_stranger_takes_no_place_among_the_calls_that_are_done_once() {
    let limits = ReplyLimits { pending_max: 0, ..ReplyLimits::default() };
    let setup = Setup::of_client([10, 0, 0, 7], 1, limits);
    assert_eq!(create(&setup), TRY_LATER, "there is no place");
    setup.rule(None);
    assert_eq!(create(&setup), ACCESS, "it needs none");
    setup.rule(Some(SECURE));
    assert_eq!(create(&setup), TRY_LATER);
}

#[test]
fn nothing_is_remembered_of_a_stranger_and_nobody_is_called() {
    let setup = Setup::new();
    setup.rule(None);
    assert_eq!(create(&setup), ACCESS);
    assert_eq!((setup.ask(ROOT, LOCK), setup.ask(ROOT, SHARE)), (FAILED, FAILED));
    assert_eq!(setup.programs.context().replies.len(), 0);
    let message = |setup: &Setup| {
        let arguments = |writer: &mut Writer| setup.arguments(writer, LOCK, "host", 3);
        assert!(setup.call(ROOT, LOCK + 5, arguments).is_empty());
    };
    message(&setup);
    assert_eq!((setup.call_client(), setup.counts()), (None, (0, 0)));
    // The same of who is let in.
    setup.rule(Some(OPEN));
    assert_eq!(create(&setup), GRANTED);
    assert_eq!(setup.programs.context().replies.len(), 1);
    message(&setup);
    assert_eq!((setup.call_client(), setup.counts().0), (Some(false), 1), "nobody is there");
}

#[test]
fn a_lock_takes_the_right_to_open_the_file_so() {
    let setup = Setup::new();
    let as_user = |uid, procedure, access| {
        let user = AuthSys::new(uid, 50, &[]);
        let results = setup.call_as(user, ROOT, (100_021, 4, procedure), |writer| {
            setup.arguments(writer, procedure, "host", access);
        });
        let mut reader = Reader::new(&results);
        reader.opaque(64).unwrap();
        reader.u32().unwrap()
    };
    let mode = |mode| {
        let set = SetAttributes { mode: Some(mode), uid: Some(7), ..SetAttributes::default() };
        ask(&setup.service, calls::SetFileAttributes { file: setup.file, set });
    };
    mode(0o600);
    assert_eq!((as_user(8, LOCK, 1), as_user(8, LOCK, 3)), (FAILED, FAILED));
    assert_eq!((as_user(8, SHARE, 1), as_user(8, SHARE, 0)), (FAILED, FAILED));
    assert_eq!(setup.counts().0, 0);
    mode(0o444);
    assert_eq!((as_user(8, LOCK, 3), as_user(8, LOCK, 1)), (FAILED, GRANTED));
    assert_eq!((as_user(8, SHARE, 3), as_user(8, SHARE, 2)), (FAILED, FAILED));
    assert_eq!((as_user(8, SHARE, 1), as_user(8, UNSHARE, 1)), (GRANTED, GRANTED));
    assert_eq!(as_user(8, UNLOCK, 1), GRANTED);
    assert_eq!(as_user(7, LOCK, 3), GRANTED, "the owner may have it open");
    mode(0o400);
    assert_eq!(as_user(8, UNLOCK, 3), GRANTED, "what it has can be given back by whoever");
    setup.rule(Some(ExportAccess::default()));
    assert_eq!(as_user(0, LOCK, 3), FAILED, "root is nobody");
}

/// A client's rpcbind and status monitor.
struct Monitor {
    port: AtomicU32,
    /// Its number now; zero if the machine has neither a monitor nor a lock manager.
    state: AtomicU32,
}

impl Service for Monitor {
    type Session = ();

    fn open(&self, _: SocketAddr) {}

    fn dispatch(&self, (): &mut (), call: onc_rpc::Call<'_>, replier: Replier) {
        let state = self.state.load(Ordering::SeqCst);
        let mut writer = replier.begin(8);
        if call.header.program == onc_rpc::rpcbind::PROGRAM {
            writer.u32(if state == 0 { 0 } else { self.port.load(Ordering::SeqCst) });
        } else {
            assert_eq!((call.header.program, call.header.procedure), (100_024, 1), "STAT");
            writer.u32(0);
            writer.u32(state);
        }
        replier.send(writer, None);
    }
}

#[test]
fn a_machine_that_says_that_it_was_started_anew_loses_its_locks() {
    let monitor = Arc::new(Monitor { port: AtomicU32::new(0), state: AtomicU32::new(STATE) });
    let (address, record_bytes_max) = (SocketAddr::from(([127, 0, 0, 1], 0)), 4096);
    let listening = onc_rpc::Configuration {
        address,
        record_bytes_max,
        in_flight_bytes_max: 1 << 20,
        clock: Arc::new(SystemClock),
    };
    let listening = onc_rpc::Server::start(&listening, Arc::clone(&monitor)).unwrap();
    let port = listening.local_address().port();
    monitor.port.store(u32::from(port), Ordering::SeqCst);
    let setup = Setup::of_client([127, 0, 0, 1], port, ReplyLimits::default());
    let take = || {
        assert_eq!(setup.ask_as(ROOT, LOCK, "host.example.org", 3), GRANTED);
        assert_eq!(setup.counts(), (1, 1));
    };
    take();
    assert!(setup.ledger.lock().contains("number 127.0.0.1 host.example.org 3\n"));
    setup.notify(USER, "host");
    setup.notify(ROOT, "other");
    setup.notify(ROOT, "127.0.0.1");
    assert_eq!(setup.call_client(), None, "no machine of that name, or not from its root");
    setup.notify(ROOT, "host");
    setup.notify(ROOT, "host");
    assert_eq!((setup.call_client(), setup.call_client()), (Some(true), None), "asked once");
    assert_eq!(setup.counts(), (1, 1), "it says that it was not");
    // Its own LOCK tells as much as a notice does, and frees as little.
    setup.number.store(STATE + 2, Ordering::SeqCst);
    assert_eq!(setup.ask_as(USER, LOCK, "host.example.org", 3), GRANTED, "anybody says so");
    assert_eq!(setup.call_client(), None);
    let conflicts = || assert_eq!(setup.ask_as(ROOT, LOCK, "host.example.org", 3), DENIED);
    conflicts();
    assert_eq!((setup.call_client(), setup.counts()), (Some(true), (1, 1)), "it says that not");
    conflicts();
    monitor.state.store(STATE + 2, Ordering::SeqCst);
    setup.notify(ROOT, "HOST");
    assert_eq!(setup.counts(), (1, 1), "the notice by itself frees nothing");
    assert_eq!((setup.call_client(), setup.counts()), (Some(true), (0, 0)));
    take();
    setup.notify(ROOT, "HOST");
    assert_eq!((setup.call_client(), setup.counts()), (Some(true), (1, 1)), "they are its own");
    // What means nothing frees nothing, and a machine without both programs has no locks.
    for (state, counts) in [(4, (1, 1)), (u32::MAX, (1, 1)), (0, (0, 0))] {
        monitor.state.store(state, Ordering::SeqCst);
        setup.notify(ROOT, "HOST");
        assert!(setup.call_client().is_some());
        assert_eq!(setup.counts(), counts, "{state}");
    }
    assert!(!setup.ledger.lock().contains("host "));
}

#[test]
fn a_machine_that_took_back_its_locks_is_known_by_the_number_of_before() {
    let setup = Setup::new();
    assert_eq!(setup.ask(ROOT, LOCK), GRANTED);
    let text = setup.ledger.lock().clone();
    assert!(text.ends_with("host 10.0.0.7 host\nnumber 10.0.0.7 host 3\n"), "{text}");
    let (ledger, locks) = (Arc::clone(&setup.ledger), Arc::clone(&setup.locks));
    let (hosts, to_tell) = Hosts::start(ledger as Arc<dyn Ledger>, locks, Timestamp(0));
    let host = to_tell.first().unwrap();
    assert!(hosts.may_reclaim(host));
    // Linux says no number when it takes back.
    let id = hosts.client(host, VolumeUuid([1; 16]), true).unwrap();
    hosts.monitor(host).unwrap();
    assert!(setup.ledger.lock().ends_with("number 10.0.0.7 host 3\n"));
    let number = |number| NonZeroU32::new(number).unwrap();
    assert!(!hosts.forgets_but(host, number(3)) && hosts.is_client(host, id));
    assert!(hosts.forgets_but(host, number(5)) && !hosts.is_client(host, id));
}
