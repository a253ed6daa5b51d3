//! The attacks. Each begins, and lasts until what it holds is dropped.
//!
//! Fails: only if the machine cannot make it; that the server refuses is what it should.

use super::target::{HONEST, KNOWN, STRANGER, Target};
use super::wire::{self, Lock};
use crate::Failure;
use nfs_client::{NfsClient, NfsFailure};
use onc_rpc::record;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};

/// Names in the directory that is listed, of [`NAME_BYTES`] each.
const NAMES: usize = 3000;
const NAME_BYTES: usize = 200;
/// More than any server transfers at once.
const MUCH: u32 = 1 << 20;
const GRANTED: u32 = 0;
/// Status of a call about a file that is not there (`NLM4_STALE_FH`).
const STALE: u32 = 7;

/// An attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// 12 connections, each with 200 READDIRs whose answers it does not read.
    UnreadLists,
    /// 8 connections, each with 400 READs whose answers it does not read.
    UnreadReads,
    /// 900 connections with nearly all of a record of a megabyte.
    HalfRecords,
    /// 20 connections with records of a megabyte in fragments of one byte.
    OneByteFragments,
    /// 1,024 connections that say nothing, from an address without a rule.
    IdleStrangers,
    /// 20,000 SHAREs of owners with long names, and some of files that are not there.
    Shares,
    /// 4,096 TESTs and LOCKs of machines that nobody has heard of.
    NewNames,
}

/// What an attack holds.
pub(crate) struct Held {
    said: String,
    _sockets: Vec<TcpStream>,
}

impl Held {
    pub(crate) fn say(&self) -> String {
        self.said.clone()
    }
}

fn refused(operation: &str) -> impl FnOnce(NfsFailure) -> Failure {
    let (worker, operation) = ("preparation".to_owned(), operation.to_owned());
    move |failure| Failure::Refused { worker, operation, reason: failure.to_string() }
}

/// Makes what is attacked.
pub(crate) fn prepare(address: SocketAddr) -> Result<Target, Failure> {
    let mut client = NfsClient::connect(address).map_err(refused("connect"))?;
    let root = client.mount("/home").map_err(refused("mount"))?;
    let directory = client.make_directory(&root, "many").map_err(refused("mkdir"))?;
    for number in 0..NAMES {
        let name = format!("{number:0>width$}", width = NAME_BYTES);
        client.create(&directory, &name).map_err(refused("create"))?;
    }
    let file = client.create(&root, "file").map_err(refused("create"))?;
    client.write(&file, 0, &vec![7; MUCH as usize], true).map_err(refused("write"))?;
    Ok(Target { address, root, directory, file })
}

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::UnreadLists,
        Self::UnreadReads,
        Self::HalfRecords,
        Self::OneByteFragments,
        Self::IdleStrangers,
        Self::Shares,
        Self::NewNames,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::UnreadLists => "unread lists",
            Self::UnreadReads => "unread reads",
            Self::HalfRecords => "half records",
            Self::OneByteFragments => "fragments of one byte",
            Self::IdleStrangers => "idle strangers",
            Self::Shares => "reservations",
            Self::NewNames => "new names of machines",
        }
    }

    pub(crate) const fn is_about_locks(self) -> bool {
        matches!(self, Self::Shares | Self::NewNames)
    }

    /// Begins it, and returns when the server takes no more of it.
    pub(crate) fn begin(self, target: &Target, round: u64) -> Result<Held, Failure> {
        match self {
            Self::UnreadLists => {
                let list = |_| {
                    wire::call(wire::NFS, 16, |writer| {
                        writer.opaque(&target.directory);
                        writer.u64(0);
                        writer.u64(0);
                        writer.u32(MUCH);
                    })
                };
                push(target, (KNOWN, 12), &(0..200).flat_map(list).collect::<Vec<u8>>())
            }
            Self::UnreadReads => {
                let read = |_| {
                    wire::call(wire::NFS, 6, |writer| {
                        writer.opaque(&target.file);
                        writer.u64(0);
                        writer.u32(MUCH);
                    })
                };
                push(target, (KNOWN, 8), &(0..400).flat_map(read).collect::<Vec<u8>>())
            }
            Self::HalfRecords => {
                let mut bytes = record::mark(MUCH as usize).to_be_bytes().to_vec();
                bytes.resize(900 << 10, 1);
                push(target, (KNOWN, 900), &bytes)
            }
            Self::OneByteFragments => {
                let fragment = [0, 0, 0, 1, 7];
                push(target, (KNOWN, 20), &fragment.repeat(MUCH as usize - 1))
            }
            Self::IdleStrangers => push(target, (STRANGER, 1024), &[]),
            Self::Shares => shares(target, round),
            Self::NewNames => new_names(target, round),
        }
    }
}

/// So many connections, each with these bytes and without reading.
fn push(target: &Target, (from, count): (IpAddr, usize), bytes: &[u8]) -> Result<Held, Failure> {
    let mut streams = Vec::new();
    for _ in 0..count {
        // One that is not let in is as good as one that is closed.
        if let Ok(socket) = wire::connect(from, target.address) {
            streams.push((socket, bytes.to_vec()));
        }
    }
    let sent = wire::push_all(&mut streams)?;
    let said = format!("{} connections, {} KiB taken", streams.len(), sent >> 10);
    Ok(Held { said, _sockets: streams.into_iter().map(|(socket, _)| socket).collect() })
}

fn lock_calls(
    target: &Target,
    calls: &[Vec<u8>],
) -> Result<(TcpStream, Vec<Option<u32>>), Failure> {
    let mut socket = wire::connect(KNOWN, target.address).map_err(Failure::machine("connect"))?;
    let statuses = wire::ask_all(&mut socket, calls);
    Ok((socket, statuses))
}

/// How often each status was answered.
fn counts(statuses: &[Option<u32>]) -> String {
    let mut said = String::new();
    for status in 0..10 {
        let count = statuses.iter().filter(|found| **found == Some(status)).count();
        if count > 0 {
            // Writing to a text cannot fail.
            let _ = write!(said, " status {status}: {count}");
        }
    }
    said
}

fn shares(target: &Target, round: u64) -> Result<Held, Failure> {
    let mut client = wire::connect(HONEST, target.address)
        .map_err(NfsFailure::from)
        .and_then(|socket| NfsClient::over(socket, wire::next_xid(1 << 10)))
        .map_err(refused("connect"))?;
    let mut calls = Vec::new();
    // No file takes more than some thousands.
    for number in 0..10 {
        let name = format!("reserved{round}-{number}");
        let file = client.create(&target.root, &name).map_err(refused("create"))?;
        for owner in 0..2000_u32 {
            let mut name = vec![1; 1000];
            name.extend((number * 2000 + owner).to_be_bytes());
            calls.push(Lock { name: b"many", file: &file, owner: &name }.share());
        }
    }
    let (socket, statuses) = lock_calls(target, &calls)?;
    let lost = |what: String| Failure::Lost { who: "the attacked server".to_owned(), what };
    let mut said = format!("{} calls,{}", calls.len(), counts(&statuses));
    if statuses.iter().filter(|status| **status == Some(GRANTED)).count() == calls.len() {
        return Err(lost(format!("one client has all reservations that it wants: {said}")));
    }
    // Files that are not there: one that was, and numbers that are made up.
    let gone = client.create(&target.root, "gone").map_err(refused("create"))?;
    client.remove(&target.root, "gone").map_err(refused("remove"))?;
    let mut invented = vec![gone];
    invented.extend((0..target.file.len()).map(|at| {
        let mut file = target.file.clone();
        file[at] ^= 1;
        file
    }));
    let invent = |file: &Vec<u8>| Lock { name: b"many", file, owner: b"o" }.share();
    let calls: Vec<Vec<u8>> = invented.iter().map(invent).collect();
    let (other, statuses) = lock_calls(target, &calls)?;
    if statuses.iter().any(|status| *status != Some(STALE)) {
        return Err(lost(format!("files that are not there were reserved:{}", counts(&statuses))));
    }
    said.push_str("; of files that are not there none");
    Ok(Held { said, _sockets: vec![socket, other] })
}

fn new_names(target: &Target, round: u64) -> Result<Held, Failure> {
    let calls = |ask: fn(&Lock<'_>) -> Vec<u8>| -> Vec<Vec<u8>> {
        let one = |number: u32| {
            let name = format!("{round}-{number:0>240}");
            let (name, owner) = (name.as_bytes(), &number.to_be_bytes()[..]);
            ask(&Lock { name, file: &target.file, owner })
        };
        (0..4096).map(one).collect()
    };
    let (first, looks) = lock_calls(target, &calls(|lock| lock.test()))?;
    let (second, takes) = lock_calls(target, &calls(|lock| lock.lock()))?;
    let said = format!("TEST{}; LOCK{}", counts(&looks), counts(&takes));
    Ok(Held { said, _sockets: vec![first, second] })
}
