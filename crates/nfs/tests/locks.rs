//! NLM and NSM over real sockets: a server with the memory backend, and clients whose rpcbind and
//! lock managers are this test's.

#![allow(clippy::unwrap_used, reason = "a test; only #[test] functions are excepted by themselves")]

mod client;

use client::Client;
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use locks::{Attempt, Kind, Limits, LockManager, Mode, Owner, Range, Request};
use nfs::{Configuration, ExportAccess, Locking, Server};
use onc_rpc::client::{Procedure, call_datagram, call_stream};
use onc_rpc::{Call, DatagramServer, Reader, Replier, Service, Writer};
use platform::Clock;
use platform::linux::SystemClock;
use platform::sync::Mutex;
use proptest::prelude::*;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use units::Timestamp;

const NLM: u32 = 100_021;
const NSM: u32 = 100_024;
const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const BLOCKED: u32 = 3;
const GRACE: u32 = 4;
const READ_ONLY: u32 = 6;
const STALE: u32 = 7;
const TOO_FAR: u32 = 8;
const FAILED: u32 = 9;

/// The real clock, and what a test adds to it.
#[derive(Default)]
struct Shifted(AtomicU64);

impl Clock for Shifted {
    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        SystemClock.monotonic_nanoseconds() + self.0.load(Ordering::SeqCst)
    }
}

/// A call that the server made to its client: program, procedure, arguments.
type Called = (u32, u32, Vec<u8>);

/// The client's rpcbind, lock manager and status monitor, in one.
struct ClientPrograms {
    called: Mutex<Sender<Called>>,
    port: Mutex<u16>,
    /// What GRANTED is answered.
    answer: Mutex<u32>,
}

impl Service for ClientPrograms {
    type Session = ();

    fn open(&self, _: SocketAddr) {}

    fn dispatch(&self, (): &mut (), call: Call<'_>, replier: Replier) {
        let mut writer = replier.begin(32);
        if call.header.program == onc_rpc::rpcbind::PROGRAM {
            writer.u32(u32::from(*self.port.lock()));
            return replier.send(writer, None);
        }
        let mut arguments = call.arguments;
        let all = arguments.rest().to_vec();
        if (call.header.program, call.header.procedure) == (NLM, 5) {
            writer.opaque(arguments.opaque(1024).unwrap());
            writer.u32(*self.answer.lock());
        }
        self.called.lock().send((call.header.program, call.header.procedure, all)).unwrap();
        replier.send(writer, None);
    }
}

struct Setup {
    service: Arc<MemoryFileSystem>,
    policy: Arc<client::Policy>,
    ledger: Arc<Mutex<String>>,
    clock: Arc<Shifted>,
    locks: Arc<LockManager>,
    programs: Arc<ClientPrograms>,
    called: Receiver<Called>,
    _listening: DatagramServer,
    server: Server,
    file: Vec<u8>,
}

const GRACE_NANOSECONDS: u64 = 1_000_000_000_000;

fn serve(
    service: &Arc<MemoryFileSystem>,
    policy: &Arc<client::Policy>,
    ledger: &Arc<Mutex<String>>,
    clock: &Arc<Shifted>,
    client_rpcbind_port: u16,
) -> (Server, Arc<LockManager>) {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let locks = Arc::new(LockManager::new(Arc::clone(&clock), Limits::default()));
    let locking = Locking {
        locks: Arc::clone(&locks),
        ledger: Arc::clone(ledger) as _,
        node: "node".to_owned(),
        grace_nanoseconds: GRACE_NANOSECONDS,
        rpcbind: false,
        client_rpcbind_port,
    };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let configuration =
        Configuration { address, clock, locking: Some(locking), in_flight_bytes_max: 64 << 20 };
    let (service, policy) = (Arc::clone(service), Arc::clone(policy));
    (Server::start(&configuration, service, policy).unwrap(), locks)
}

impl Setup {
    fn new() -> Self {
        let service = MemoryFileSystem::new(Arc::new(SystemClock));
        service.add_volume("vol", VolumeOptions::default()).unwrap();
        let service = Arc::new(service);
        let policy = Arc::new(client::Policy(Mutex::new(Some(ExportAccess::ROOT_IS_ROOT))));
        let (sender, called) = channel();
        let programs = Arc::new(ClientPrograms {
            called: Mutex::new(sender),
            port: Mutex::new(0),
            answer: Mutex::new(GRANTED),
        });
        // A port that is free for datagrams now.
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listening = DatagramServer::start(free, Arc::clone(&programs)).unwrap();
        *programs.port.lock() = free.port();
        // A first start would take its state from the clock.
        let ledger = Arc::new(Mutex::new("stroop locks 1\nstate 0\n".to_owned()));
        let clock = Arc::<Shifted>::default();
        let (server, locks) = serve(&service, &policy, &ledger, &clock, free.port());
        let mut client = Client::connect(&server);
        let root = client.mount(b"/vol").unwrap();
        let file = client.create(&root, b"file").unwrap();
        Self {
            service,
            policy,
            ledger,
            clock,
            locks,
            programs,
            called,
            _listening: listening,
            server,
            file,
        }
    }

    /// The server ends, without a word, and starts again.
    fn restart(&mut self) {
        self.server.stop();
        let port = *self.programs.port.lock();
        let started = serve(&self.service, &self.policy, &self.ledger, &self.clock, port);
        (self.server, self.locks) = started;
    }

    fn call(&self, program: u32, procedure: u32, arguments: impl Fn(&mut Writer)) -> Vec<u8> {
        let version = if program == NLM { 4 } else { 1 };
        let procedure = Procedure { program, version, procedure };
        let mut writer = Writer::default();
        arguments(&mut writer);
        call_stream(self.server.local_address(), procedure, writer.bytes()).unwrap()
    }

    /// A call of NLM: its status, and what follows.
    fn nlm(&self, procedure: u32, arguments: impl Fn(&mut Writer)) -> (u32, Vec<u8>) {
        let results = self.call(NLM, procedure, |writer| {
            writer.opaque(b"cookie");
            arguments(writer);
        });
        let mut reader = Reader::new(&results);
        assert_eq!(reader.opaque(1024), Ok(&b"cookie"[..]));
        (reader.u32().unwrap(), reader.rest().to_vec())
    }

    fn range(&self, writer: &mut Writer, host: &str, process: u32, (start, length): (u64, u64)) {
        writer.opaque(host.as_bytes());
        writer.opaque(&self.file);
        writer.opaque(format!("{process}@{host}").as_bytes());
        writer.u32(process);
        writer.u64(start);
        writer.u64(length);
    }

    fn lock(&self, host: &str, process: u32, range: (u64, u64), how: How) -> u32 {
        let (status, rest) = self.nlm(2, |writer| {
            writer.bool(how.block);
            writer.bool(!how.shared);
            self.range(writer, host, process, range);
            writer.bool(how.reclaim);
            writer.u32(3);
        });
        assert!(rest.is_empty());
        status
    }

    fn unlock(&self, host: &str, process: u32, range: (u64, u64)) {
        assert_eq!(self.nlm(4, |writer| self.range(writer, host, process, range)).0, GRANTED);
    }

    /// Takes a lock as another front end.
    fn local(&self) -> Owner {
        let owner = Owner::new(self.locks.register_client(), b"local");
        let request = Request {
            file: client::opened(&self.file),
            owner: owner.clone(),
            process: 9,
            kind: Kind::Whole,
            mode: Mode::Exclusive,
            range: Range::WHOLE,
        };
        self.locks.lock(&request, Attempt::Now).unwrap();
        owner
    }

    fn local_unlock(&self, owner: &Owner) {
        let file = client::opened(&self.file);
        self.locks.unlock(file, owner, Kind::Whole, &Range::WHOLE);
    }

    fn notify(&self, name: &str) {
        self.call(NSM, 6, |writer| {
            writer.opaque(name.as_bytes());
            writer.u32(5);
        });
    }
}

#[derive(Clone, Copy, Default)]
struct How {
    block: bool,
    shared: bool,
    reclaim: bool,
}

const NOW: How = How { block: false, shared: false, reclaim: false };
const SHARED: How = How { shared: true, ..NOW };
const WAIT: How = How { block: true, ..NOW };
const RECLAIM: How = How { reclaim: true, ..NOW };
const ALL: (u64, u64) = (0, 0);

#[test]
fn locks_exclude_other_clients_and_programs() {
    let setup = Setup::new();
    assert_eq!(setup.lock("a", 1, (0, 10), NOW), GRANTED);
    assert_eq!(setup.lock("a", 1, (0, 10), NOW), GRANTED, "asked again");
    assert_eq!(setup.lock("a", 2, (9, 1), SHARED), DENIED);
    assert_eq!(setup.lock("b", 1, (9, 1), SHARED), DENIED);
    assert_eq!(setup.lock("b", 1, (10, 0), SHARED), GRANTED);
    let (status, rest) = setup.nlm(1, |writer| {
        writer.bool(true);
        setup.range(writer, "a", 2, (10, 5));
    });
    assert_eq!(status, DENIED);
    let mut reader = Reader::new(&rest);
    assert_eq!((reader.bool(), reader.u32()), (Ok(false), Ok(1)), "shared, of process 1");
    assert_eq!(reader.opaque(64), Ok(&b"1@b"[..]));
    assert_eq!((reader.u64(), reader.u64()), (Ok(10), Ok(0)));
    assert!(reader.rest().is_empty());
    setup.unlock("a", 1, ALL);
    setup.unlock("b", 1, ALL);
    // Other front ends, both ways.
    let local = setup.local();
    assert_eq!(setup.lock("b", 1, (5, 1), SHARED), DENIED);
    setup.local_unlock(&local);
    assert_eq!(setup.lock("b", 1, (5, 1), SHARED), GRANTED);
    assert_eq!(setup.locks.counts(), (1, 0));
}

#[test]
fn datagrams_are_answered_too_but_not_for_files_and_locks() {
    let setup = Setup::new();
    let address = setup.server.local_address();
    let null = |program, version| {
        call_datagram(address, Procedure { program, version, procedure: 0 }, &[])
    };
    assert!(null(client::MOUNT, 3).is_ok() && null(NSM, 1).is_ok());
    for (program, version) in [(client::NFS, 3), (NLM, 4), (NLM, 3), (NSM, 2), (100_227, 3)] {
        assert!(null(program, version).is_err(), "{program} {version}");
    }
}

#[test]
fn who_waits_is_called_when_the_lock_is_free() {
    let setup = Setup::new();
    let local = setup.local();
    assert_eq!(setup.lock("b", 7, (3, 4), WAIT), BLOCKED);
    assert_eq!(setup.lock("b", 7, (3, 4), WAIT), BLOCKED, "asked again");
    assert_eq!(setup.locks.counts(), (1, 1));
    setup.local_unlock(&local);
    let (program, procedure, arguments) = setup.called.recv().unwrap();
    assert_eq!((program, procedure), (NLM, 5));
    let mut reader = Reader::new(&arguments);
    reader.opaque(64).unwrap();
    assert_eq!(reader.bool(), Ok(true));
    assert_eq!(reader.opaque(64), Ok(&b"b"[..]));
    assert_eq!(reader.opaque(64), Ok(&setup.file[..]));
    assert_eq!(reader.opaque(64), Ok(&b"7@b"[..]));
    assert_eq!((reader.u32(), reader.u64(), reader.u64()), (Ok(7), Ok(3), Ok(4)));
    assert!(reader.rest().is_empty());
    assert_eq!(setup.lock("a", 1, (3, 1), NOW), DENIED);
    assert_eq!(setup.lock("b", 7, (3, 4), WAIT), GRANTED, "asked again");
}

#[test]
fn a_lock_that_its_client_does_not_want_any_more_goes_to_the_next() {
    let setup = Setup::new();
    *setup.programs.answer.lock() = DENIED;
    let local = setup.local();
    assert_eq!(setup.lock("b", 7, ALL, WAIT), BLOCKED);
    assert_eq!(setup.lock("c", 8, ALL, WAIT), BLOCKED);
    setup.local_unlock(&local);
    for host in [b"b", b"c"] {
        let (_, _, arguments) = setup.called.recv().unwrap();
        let mut reader = Reader::new(&arguments);
        reader.opaque(64).unwrap();
        reader.bool().unwrap();
        assert_eq!(reader.opaque(64), Ok(&host[..]));
    }
    while setup.locks.counts() != (0, 0) {
        std::thread::yield_now();
    }
}

#[test]
fn waits_are_given_up() {
    let setup = Setup::new();
    let local = setup.local();
    assert_eq!(setup.lock("b", 7, ALL, WAIT), BLOCKED);
    let cancel = |host: &str| {
        setup.nlm(3, |writer| {
            writer.bool(true);
            writer.bool(true);
            setup.range(writer, host, 7, ALL);
        })
    };
    assert_eq!(cancel("b").0, GRANTED);
    assert_eq!(cancel("b").0, GRANTED);
    assert_eq!(setup.locks.counts(), (1, 0));
    setup.local_unlock(&local);
    assert_eq!(setup.locks.counts(), (0, 0));
}

#[test]
fn messages_are_answered_by_calls() {
    let setup = Setup::new();
    let message = |procedure, how: &dyn Fn(&mut Writer)| {
        let results = setup.call(NLM, procedure, |writer| {
            writer.opaque(b"cookie");
            how(writer);
        });
        assert!(results.is_empty());
        let (program, called, arguments) = setup.called.recv().unwrap();
        assert_eq!((program, called), (NLM, procedure + 5));
        let mut reader = Reader::new(&arguments);
        assert_eq!(reader.opaque(64), Ok(&b"cookie"[..]));
        reader.u32().unwrap()
    };
    let status = message(7, &|writer| {
        writer.bool(false);
        writer.bool(true);
        setup.range(writer, "a", 1, ALL);
        writer.bool(false);
        writer.u32(3);
    });
    assert_eq!((status, setup.locks.counts()), (GRANTED, (1, 0)));
    let status = message(6, &|writer| {
        writer.bool(true);
        setup.range(writer, "b", 1, (5, 1));
    });
    assert_eq!(status, DENIED);
    assert_eq!(message(9, &|writer| setup.range(writer, "a", 1, ALL)), GRANTED);
    assert_eq!(setup.locks.counts(), (0, 0));
}

#[test]
fn what_may_not_be_locked_is_refused() {
    let mut setup = Setup::new();
    let rule = |access: Option<ExportAccess>| *setup.policy.0.lock() = access;
    rule(None);
    assert_eq!(setup.lock("a", 1, ALL, NOW), FAILED);
    rule(Some(ExportAccess { secure_ports: true, ..ExportAccess::ROOT_IS_ROOT }));
    assert_eq!(setup.lock("a", 1, ALL, NOW), FAILED);
    rule(Some(ExportAccess { read_only: true, ..ExportAccess::ROOT_IS_ROOT }));
    assert_eq!(setup.lock("a", 1, ALL, NOW), READ_ONLY);
    assert_eq!(setup.lock("a", 1, ALL, SHARED), GRANTED);
    rule(Some(ExportAccess::ROOT_IS_ROOT));
    assert_eq!(setup.lock("a", 1, (u64::MAX, 2), NOW), TOO_FAR);
    assert_eq!(setup.lock("two words", 1, ALL, NOW), FAILED);
    let mut handle = client::opened(&setup.file);
    handle.generation = units::Generation(99);
    setup.file = client::sealed(&handle);
    assert_eq!(setup.lock("a", 1, ALL, NOW), STALE);
    setup.file = b"short".to_vec();
    assert_eq!(setup.lock("a", 1, ALL, NOW), STALE);
}

#[test]
fn reservations() {
    let setup = Setup::new();
    let share = |procedure, host: &str, deny, access| {
        let (status, rest) = setup.nlm(procedure, |writer| {
            writer.opaque(host.as_bytes());
            writer.opaque(&setup.file);
            writer.opaque(b"owner");
            writer.u32(deny);
            writer.u32(access);
            writer.bool(false);
        });
        assert_eq!(rest, [0; 4], "the sequence");
        status
    };
    assert_eq!(share(20, "a", 2, 1), GRANTED);
    assert_eq!(share(20, "b", 0, 3), DENIED);
    assert_eq!(share(20, "b", 0, 4), FAILED);
    assert_eq!(share(21, "a", 2, 1), GRANTED);
    assert_eq!(share(20, "b", 3, 3), GRANTED);
    assert_eq!(setup.lock("b", 1, ALL, NOW), GRANTED, "locks are another matter");
    // FREE_ALL: from a port that any user may have, which is not believed.
    setup.call(NLM, 23, |writer| {
        writer.opaque(b"b");
        writer.u32(3);
    });
    assert_eq!(share(20, "a", 3, 3), DENIED);
    assert_eq!(share(21, "b", 3, 3), GRANTED);
    assert_eq!(share(20, "a", 3, 3), GRANTED);
    assert_eq!(setup.locks.counts(), (1, 0));
}

#[test]
fn a_notice_of_who_may_be_anybody_frees_nothing() {
    let setup = Setup::new();
    assert_eq!(setup.lock("a.example.org", 1, (0, 5), NOW), GRANTED);
    setup.notify("a");
    setup.notify("a.example.org");
    assert_eq!(setup.call(NSM, 1, |w| w.opaque(b"a")), [0, 0, 0, 1, 0, 0, 0, 1], "no monitoring");
    assert_eq!(setup.locks.counts(), (1, 0));
    assert!(setup.called.try_recv().is_err(), "nobody was called");
}

#[test]
fn after_a_restart_locks_are_taken_back_before_others_are_given() {
    let mut setup = Setup::new();
    assert_eq!(setup.lock("a", 1, (0, 10), NOW), GRANTED);
    assert_eq!(setup.ledger.lock().as_str(), "stroop locks 1\nstate 1\nhost 127.0.0.1 a\n");
    setup.restart();
    let (program, procedure, arguments) = setup.called.recv().unwrap();
    assert_eq!((program, procedure), (NSM, 6));
    let mut reader = Reader::new(&arguments);
    assert_eq!((reader.opaque(64), reader.u32()), (Ok(&b"node"[..]), Ok(3)));
    assert_eq!(setup.lock("b", 1, (20, 1), NOW), GRACE);
    assert_eq!(setup.lock("b", 1, (20, 1), WAIT), GRACE);
    assert_eq!(setup.lock("a", 1, (0, 10), RECLAIM), GRANTED);
    assert_eq!(setup.lock("b", 1, (20, 1), RECLAIM), DENIED, "it had none");
    setup.unlock("a", 1, (0, 5));
    setup.clock.0.store(GRACE_NANOSECONDS, Ordering::SeqCst);
    assert_eq!(setup.lock("b", 1, (4, 1), RECLAIM), GRACE, "too late");
    assert_eq!(setup.lock("b", 1, (4, 1), NOW), GRANTED);
    assert_eq!(setup.lock("b", 1, (5, 1), NOW), DENIED);
    // Without clients there is nothing to wait for.
    setup.server.stop();
    *setup.ledger.lock() = "stroop locks 1\nstate 3\n".to_owned();
    setup.restart();
    assert_eq!(setup.ledger.lock().as_str(), "stroop locks 1\nstate 5\n");
    assert_eq!(setup.lock("b", 1, (4, 1), NOW), GRANTED);
}

#[test]
fn garbage_is_refused() {
    let setup = Setup::new();
    for procedure in [1, 2, 3, 4, 20, 21, 22] {
        let procedure = Procedure { program: NLM, version: 4, procedure };
        let result = call_stream(setup.server.local_address(), procedure, &[0, 0, 0, 9]);
        assert!(matches!(result, Err(onc_rpc::CallError::Refused(4))), "{procedure:?}");
    }
    let procedure = Procedure { program: NLM, version: 4, procedure: 24 };
    let result = call_stream(setup.server.local_address(), procedure, &[]);
    assert!(matches!(result, Err(onc_rpc::CallError::Refused(3))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Arbitrary arguments get one legal answer, and what they lock goes with their client.
    #[test]
    fn every_call_is_answered(
        calls in prop::collection::vec(
            (0..26_u32, prop::collection::vec((0..8_u8, 0..12_u32), 0..12)), 1..30),
    ) {
        let setup = Setup::new();
        for (number, items) in &calls {
            // One in a few goes to the status monitor.
            let (program, version) = if number % 5 == 4 { (NSM, 1) } else { (NLM, 4) };
            let mut writer = Writer::default();
            for (kind, value) in items {
                match kind {
                    0 => writer.opaque(&setup.file),
                    1 => writer.opaque(b"guest"),
                    2 => writer.opaque(&vec![b'x'; *value as usize]),
                    3 => writer.u64(u64::from(*value)),
                    4 => writer.u32(value << 28),
                    _ => writer.u32(value % 2),
                }
            }
            let procedure = Procedure { program, version, procedure: *number };
            let answer = call_stream(setup.server.local_address(), procedure, writer.bytes());
            let legal = matches!(answer, Ok(_) | Err(onc_rpc::CallError::Refused(3 | 4)));
            prop_assert!(legal, "{procedure:?}: {answer:?}");
        }
        setup.notify("guest");
        setup.notify("");
        setup.service.verify();
    }
}
