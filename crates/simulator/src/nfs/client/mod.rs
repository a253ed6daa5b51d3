//! A client of the NFS front end: what it does, what it knows, and what the answers must be.
//!
//! A client has a directory of its own with names and two files, and never two calls under way that
//! touch the same name or the same range, as a kernel has not. So it knows what each answer must
//! be, however often the network repeats the call: as long as the server lives a repeated call gets
//! the first answer. A call that was under way when the server went may have been done or not, and
//! the server that comes back does not remember: then the answer may also be the one that a call
//! gets whose work is done already. An exclusive CREATE must find its file then.
//!
//! Invariants: the client's choices are its own stream of the seed.
//!
//! Fails: with what is wrong with an answer, in words.

mod answers;
mod choice;
mod content;

use crate::seed::choices::Choices;
pub(super) use answers::Judged;
use content::{Content, RANGES};
use nfs_client::{Handle, Request};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Names in the directory of a client, beside those of its files.
const NAMES: usize = 4;
/// Files of a client.
const FILES: usize = 2;
/// Calls that a client has under way at most.
pub(super) const PENDING_MAX: usize = 6;
/// From the oldest call under way to the next: what a server keeps must do for those.
pub(super) const SPAN_MAX: u32 = 8;
/// The number of the first call after each start of the client.
const XID_FIRST: u32 = 0x5000;
/// Where the stamp of the credential lies in a record: behind the mark, six words of the header and
/// two of the credential. A client that was started anew has another one.
const STAMP_AT: usize = 36;

/// What a name is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Named {
    Nothing,
    /// With its handle, if an answer has told it.
    File(Option<Handle>),
    Directory(Option<Handle>),
    Symlink(Option<Handle>),
}

impl Named {
    const fn handle(&self) -> Option<&Handle> {
        match self {
            Self::Nothing => None,
            Self::File(handle) | Self::Directory(handle) | Self::Symlink(handle) => handle.as_ref(),
        }
    }
}

struct Name {
    what: Named,
    is_busy: bool,
}

struct File {
    handle: Option<Handle>,
    content: Content,
    busy: [bool; RANGES.len()],
    is_committing: bool,
}

/// What a call is to do.
#[derive(Clone, Debug)]
enum Deed {
    Mount,
    MakeHome,
    FindHome,
    CreateFile(usize),
    Create(usize, Option<u64>),
    MakeDirectory(usize),
    Symlink(usize),
    Remove(usize),
    RemoveDirectory(usize),
    Rename(usize, usize),
    Link(usize, usize),
    Lookup(usize),
    Write { file: usize, range: usize, value: u64, is_stable: bool },
    Read { file: usize, range: usize },
    Commit { file: usize, sent: u64 },
    Truncate(usize),
}

impl Deed {
    /// Whether the server keeps its answer.
    const fn is_kept(&self) -> bool {
        !matches!(
            self,
            Self::Mount
                | Self::FindHome
                | Self::Lookup(_)
                | Self::Read { .. }
                | Self::Commit { .. }
        )
    }
}

/// A call that is not answered.
struct Call {
    deed: Deed,
    request: Request,
    /// It may have been done before, by a server that has forgotten it.
    may_be_done: bool,
    /// It may have been done before the disks went, and its answer be on its way since.
    may_be_lost: bool,
}

/// See the module.
pub(super) struct Client {
    /// Its number among the clients.
    number: usize,
    choices: Choices,
    /// Its connection, if it has one.
    pub(super) wire: Option<u64>,
    starts: u32,
    next_xid: u32,
    next_value: u64,
    moment: u64,
    root: Option<Handle>,
    home: Option<Handle>,
    names: Vec<Name>,
    files: Vec<File>,
    is_starting: bool,
    pending: BTreeMap<u32, Call>,
    /// The answers that the server must repeat, since the last start of either.
    answered: BTreeMap<u32, Vec<u8>>,
    /// Calls that were not sent yet.
    unsent: Vec<u32>,
    /// Calls that are made before the client chooses others.
    planned: Vec<Deed>,
}

impl Client {
    pub(super) fn new(number: usize, choices: Choices) -> Self {
        let name = |_| Name { what: Named::Nothing, is_busy: false };
        let file = |_| File {
            handle: None,
            content: Content::new(),
            busy: [false; RANGES.len()],
            is_committing: false,
        };
        Self {
            number,
            choices,
            wire: None,
            starts: 1,
            next_xid: XID_FIRST,
            next_value: 1,
            moment: 1,
            root: None,
            home: None,
            names: (0..NAMES).map(name).collect(),
            files: (0..FILES).map(file).collect(),
            is_starting: false,
            pending: BTreeMap::new(),
            answered: BTreeMap::new(),
            unsent: Vec::new(),
            planned: Vec::new(),
        }
    }

    /// Its address.
    pub(super) const fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + self.number as u8))
    }

    /// The handles that it has got.
    pub(super) fn handles(&self) -> Vec<Handle> {
        let of_files = self.files.iter().filter_map(|file| file.handle.as_ref());
        let of_names = self.names.iter().filter_map(|name| name.what.handle());
        let own = self.root.iter().chain(&self.home);
        own.chain(of_files).chain(of_names).cloned().collect()
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.planned.is_empty()
    }

    /// Whether it has calls to make that were chosen before.
    pub(super) fn is_planning(&self) -> bool {
        !self.planned.is_empty()
    }

    /// What is under way, in words.
    pub(super) fn waiting(&self) -> String {
        let deeds: Vec<String> =
            self.pending.iter().map(|(xid, call)| format!("{xid} {:?}", call.deed)).collect();
        format!("client {}: {}", self.number, deeds.join(", "))
    }

    /// The numbers of its calls.
    pub(super) fn pending(&self) -> Vec<u32> {
        self.pending.keys().copied().collect()
    }

    /// The numbers of calls that were not sent yet.
    pub(super) fn take_unsent(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unsent)
    }

    /// A copy of a call, as it goes over the wire.
    pub(super) fn record(&self, xid: u32) -> Option<Vec<u8>> {
        let mut record = self.pending.get(&xid)?.request.record(xid);
        let stamp = record.get_mut(STAMP_AT..STAMP_AT + 4)?;
        stamp.copy_from_slice(&self.starts.to_be_bytes());
        Some(record)
    }

    /// The client's machine is started anew: its numbers begin again.
    pub(super) fn restart(&mut self) {
        assert!(self.is_idle(), "a client that waits for nothing");
        self.starts += 1;
        self.next_xid = XID_FIRST;
        self.answered.clear();
        self.wire = None;
    }

    /// The server has gone and come back, or its disks have: what is under way may be done or not.
    pub(super) fn server_lost(&mut self, has_forgotten: bool) {
        for call in self.pending.values_mut() {
            call.may_be_done = true;
            call.may_be_lost = !has_forgotten;
        }
        self.files.iter_mut().for_each(|file| file.content.lose());
        if has_forgotten {
            self.answered.clear();
            self.wire = None;
        }
    }

    /// Everything is to be looked at.
    pub(super) fn look_at_all(&mut self) {
        if self.home.is_none() {
            return;
        }
        self.planned.extend((0..NAMES).map(Deed::Lookup));
        for file in 0..FILES {
            if self.files[file].handle.is_some() {
                self.planned.extend((0..RANGES.len()).map(|range| Deed::Read { file, range }));
            }
        }
    }

    /// Makes another call, if one can be made now; what it does.
    pub(super) fn next_call(&mut self) -> Option<String> {
        let deed = match self.planned.pop() {
            Some(deed) => deed,
            None => self.choose()?,
        };
        self.begin(deed, false)
    }

    fn begin(&mut self, deed: Deed, may_be_done: bool) -> Option<String> {
        let request = self.request(&deed)?;
        self.set_busy(&deed, true);
        let xid = self.next_xid;
        self.next_xid += 1;
        let text = format!("client {}: call {xid} {deed:?}", self.number);
        self.pending.insert(xid, Call { deed, request, may_be_done, may_be_lost: false });
        self.unsent.push(xid);
        Some(text)
    }
}
