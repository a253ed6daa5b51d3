//! Target `nlm_call`: a sequence of NLM version 4 and NSM calls by a few clients, each with
//! arguments of its procedure's shape, some of them spoilt.
//!
//! Rules: each call gets exactly one reply, of its procedure's shape; no two locks that exclude one
//! another are held at a time; who frees all that he has holds nothing.

use crate::input::Input;
use crate::nfs::{reply_to, spoilt};
use crate::{memory, results};
use file_service::FileHandle;
use locks::{Held, Limits, LockManager, Mode};
use nfs::{EveryClient, Ledger, Locking, Programs, ReplyLimits};
use onc_rpc::{AuthSys, CallHeader, Credential, Dialogue, Reader, Writer};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

const NLM: u32 = 100_021;
const NSM: u32 = 100_024;
/// Procedures of NLM, and one more that it does not have.
const NLM_PROCEDURES: u64 = 25;
/// Those of NSM, and one more.
const NSM_PROCEDURES: u64 = 8;
const FREE_ALL: u32 = 23;
/// Calls of one input.
const CALLS_MAX: usize = 200;
/// Who calls: names of machines, all at one address.
const NAMES: [&[u8]; 3] = [b"a", b"b", b"a.example.org"];
/// Few enough that an input reaches them.
const LIMITS: Limits = Limits {
    bytes: 64 << 10,
    party_part: 2,
    locks: 40,
    locks_of_file: 20,
    waits: 10,
    shares: 16,
    shares_of_file: 8,
};

/// Keeps nothing: no input outlives its ledger.
struct NoLedger;

impl Ledger for NoLedger {
    fn load(&self) -> io::Result<Option<String>> {
        Ok(None)
    }

    fn store(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn keep_damaged(&self) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

struct Client {
    dialogue: Dialogue<Programs>,
    locks: Arc<LockManager>,
    files: Vec<FileHandle>,
    /// Names under which somebody may have locks: calls that are spoilt make others.
    names: BTreeSet<Vec<u8>>,
    xid: u32,
}

/// See the module.
pub fn nlm_call(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut client = Client::new();
    for _ in 0..CALLS_MAX {
        if input.is_empty() {
            break;
        }
        client.one(&mut input);
        client.check();
    }
    client.free_all();
}

impl Client {
    fn new() -> Self {
        let service = memory::service();
        let locks = Arc::new(LockManager::new(memory::clock(), LIMITS));
        let policy = EveryClient {
            access: nfs::ExportAccess::ROOT_IS_ROOT,
            volumes: vec!["vol".to_owned()],
        };
        let programs = Programs::new(
            Arc::clone(&service) as _,
            Arc::new(policy),
            memory::clock(),
            ReplyLimits::default(),
        );
        let locking = Locking {
            locks: Arc::clone(&locks),
            ledger: Arc::new(NoLedger),
            node: "node".to_owned(),
            grace_nanoseconds: 0,
            rpcbind: false,
            client_rpcbind_port: nfs::CLIENT_RPCBIND_PORT,
        };
        let Ok(programs) = programs.with_silent_locks(&locking) else {
            unreachable!("the ledger takes everything and no thread is started")
        };
        let record_bytes_max = programs.record_bytes_max();
        let peer = SocketAddr::from(([10, 0, 0, 1], 700));
        let dialogue = Dialogue::new(programs, peer, record_bytes_max);
        let files = ["vol", "other"].map(|volume| memory::root(&service, volume).handle);
        let names = NAMES.map(<[u8]>::to_vec).into();
        Self { dialogue, locks, files: files.to_vec(), names, xid: 0 }
    }

    /// One call and its reply.
    fn one(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let is_nsm = choice.is_multiple_of(16);
        let (program, version, procedures) =
            if is_nsm { (NSM, 1, NSM_PROCEDURES) } else { (NLM, 4, NLM_PROCEDURES) };
        let procedure = input.below(procedures) as u32;
        let mut writer = self.call(program, version, procedure);
        let header_bytes = writer.len();
        match (program, procedure) {
            (NSM, 6) | (NLM, FREE_ALL) => {
                writer.opaque(input.pick(&NAMES));
                writer.u32(input.u32());
            }
            (NSM, _) => {}
            _ => self.arguments(procedure, &mut writer, input),
        }
        let call = spoilt(writer.into_bytes(), header_bytes, choice, input);
        if program == NLM {
            self.names.extend(name_in(procedure, call.get(header_bytes..).unwrap_or_default()));
        }
        let reply = reply_to(&mut self.dialogue, &call);
        let mut reader = Reader::new(&reply);
        let header = results::header(&mut reader);
        assert_eq!(header.xid, self.xid);
        let accepted = header.accepted;
        assert!(matches!(accepted, Some(0 | 3 | 4)), "accept status {accepted:?}");
        if accepted == Some(0) && program == NLM {
            results::nlm(procedure, &mut reader);
        }
    }

    fn call(&mut self, program: u32, version: u32, procedure: u32) -> Writer {
        self.xid += 1;
        let mut writer = Writer::default();
        writer.u32(0);
        let credential = Credential::Sys(AuthSys::new(0, 0, &[]));
        CallHeader { xid: self.xid, program, version, procedure, credential }.write(&mut writer);
        writer
    }

    fn arguments(&self, procedure: u32, writer: &mut Writer, input: &mut Input<'_>) {
        let procedure = if (6..=9).contains(&procedure) { procedure - 5 } else { procedure };
        let length = input.index(5);
        writer.opaque(input.bytes(length)); // the cookie
        if matches!(procedure, 20 | 21) {
            self.names(writer, input);
            writer.u32(input.below(5) as u32);
            writer.u32(input.below(5) as u32);
            writer.bool(input.rarely(16));
            return;
        }
        if matches!(procedure, 2 | 3 | 22) {
            writer.bool(input.byte() & 1 == 1); // whether to wait
        }
        if procedure != 4 {
            writer.bool(input.byte() & 1 == 1); // whether alone
        }
        self.names(writer, input);
        writer.u32(u32::from(input.byte() & 3)); // the process
        let far = input.rarely(16);
        let mut number = |end| if far { input.u64() } else { input.below(end) };
        writer.u64(number(20));
        writer.u64(number(10));
        if matches!(procedure, 2 | 22) {
            writer.bool(input.rarely(16)); // whether it is taken back
            writer.u32(1);
        }
    }

    /// The machine, the file and the owner.
    fn names(&self, writer: &mut Writer, input: &mut Input<'_>) {
        writer.opaque(input.pick(&NAMES));
        let choice = input.byte();
        match self.files.get(usize::from(choice % 8) % 3) {
            Some(file) => writer.opaque(&file.seal(&EveryClient::KEY)),
            None => writer.opaque(input.bytes(usize::from(choice))),
        }
        writer.opaque(&[b'o', input.byte() & 3]);
    }

    fn check(&self) {
        let (ranges, waits) = self.locks.counts();
        assert!(ranges <= LIMITS.locks && waits <= LIMITS.waits, "{ranges} and {waits}");
        for file in &self.files {
            let held = self.locks.held(*file);
            for (index, lock) in held.iter().enumerate() {
                let others = held.iter().skip(index + 1);
                let clash = others.into_iter().find(|other| clash(lock, other));
                assert!(clash.is_none(), "{lock:?} and {clash:?} exclude one another");
            }
        }
    }

    /// Each machine says that it has nothing any more.
    fn free_all(&mut self) {
        for name in std::mem::take(&mut self.names) {
            let mut writer = self.call(NLM, 4, FREE_ALL);
            let header_bytes = writer.len();
            writer.opaque(&name);
            writer.u32(1);
            let call = spoilt(writer.into_bytes(), header_bytes, 0, &mut Input::new(&[]));
            reply_to(&mut self.dialogue, &call);
        }
        assert_eq!(self.locks.counts(), (0, 0), "all was given back");
    }
}

/// The name of the machine in the arguments of a call that has one.
fn name_in(procedure: u32, arguments: &[u8]) -> Option<Vec<u8>> {
    let procedure = if (6..=9).contains(&procedure) { procedure - 5 } else { procedure };
    let flags = match procedure {
        1 => 1,
        2 | 3 | 22 => 2,
        4 | 20 | 21 => 0,
        _ => return None,
    };
    let mut reader = Reader::new(arguments);
    reader.opaque(1024).ok()?;
    for _flag in 0..flags {
        reader.bool().ok()?;
    }
    reader.opaque(1024).ok().map(<[u8]>::to_vec)
}

fn clash(one: &Held, other: &Held) -> bool {
    let alone = one.mode == Mode::Exclusive || other.mode == Mode::Exclusive;
    one.owner != other.owner && alone && one.range.overlaps(&other.range)
}
