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

use super::content::{Content, RANGES, bytes_of};
use crate::choices::Choices;
use nfs_client::results::{self, take_header};
use nfs_client::{Answer, Creation, EXISTS, Handle, NOT_FOUND, NfsFailure, Request, Setting};
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
/// `NFS3ERR_IO`, `NFS3ERR_JUKEBOX` and `MNT3ERR_SERVERFAULT`: what a server without its disks
/// answers.
const IO: u32 = 5;
const JUKEBOX: u32 = 10_008;
const SERVER_FAULT: u32 = 10_006;

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

/// What an answer was worth.
pub(super) enum Judged {
    /// The call is answered.
    Answered,
    /// It was answered before.
    Again,
    /// The server has asked to come later, or lost its disks.
    Refused,
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

    fn choose(&mut self) -> Option<Deed> {
        let oldest = self.pending.first_key_value().map_or(self.next_xid, |(xid, _)| *xid);
        if self.pending.len() >= PENDING_MAX || self.next_xid - oldest >= SPAN_MAX {
            return None;
        }
        if self.home.is_none() || self.is_starting {
            return match (self.is_starting, &self.root) {
                (true, _) => None,
                (false, None) => Some(Deed::Mount),
                (false, Some(_)) => Some(Deed::MakeHome),
            };
        }
        if self.choices.chance(60) { self.choose_data() } else { self.choose_name() }
    }

    fn choose_data(&mut self) -> Option<Deed> {
        let file = self.choices.index(FILES);
        let range = self.choices.index(RANGES.len());
        let File { handle, content, busy, is_committing } = &self.files[file];
        if handle.is_none() {
            return (!busy[0]).then_some(Deed::CreateFile(file));
        }
        let is_unstable = content.is_unstable(range);
        match self.choices.below(20) {
            0..3 if !is_committing => Some(Deed::Commit { file, sent: self.moment }),
            3 if !busy.contains(&true) => Some(Deed::Truncate(file)),
            _ if busy[range] => None,
            4..8 => Some(Deed::Read { file, range }),
            _ => {
                let is_stable = self.choices.chance(if is_unstable { 20 } else { 50 });
                self.next_value += 1;
                let value = self.next_value << 8 | self.number as u64;
                Some(Deed::Write { file, range, value, is_stable })
            }
        }
    }

    fn choose_name(&mut self) -> Option<Deed> {
        let at = self.choices.index(NAMES);
        let to = self.choices.index(NAMES);
        let is_to_free = at != to && !self.names[to].is_busy;
        if self.names[at].is_busy {
            return None;
        }
        let verifier = self.choices.next();
        let way = self.choices.below(12);
        let is_nothing = self.names[to].what == Named::Nothing;
        let is_file = matches!(self.names[to].what, Named::File(_));
        Some(match (&self.names[at].what, way) {
            (_, 0..2) => Deed::Lookup(at),
            (Named::Nothing, 2..7) => Deed::Create(at, Some(verifier)),
            (Named::Nothing, 7..9) => Deed::Create(at, None),
            (Named::Nothing, 9) => Deed::MakeDirectory(at),
            (Named::Nothing, 10) => Deed::Symlink(at),
            (Named::File(_), 2) => Deed::Create(at, None),
            (Named::File(_), 3..6) if is_to_free && (is_nothing || is_file) => Deed::Rename(at, to),
            (Named::File(Some(_)), 6..8) if is_to_free && is_nothing => Deed::Link(at, to),
            (Named::Directory(_), 2..4) => Deed::MakeDirectory(at),
            (Named::Directory(_), _) => Deed::RemoveDirectory(at),
            _ => Deed::Remove(at),
        })
    }

    fn request(&self, deed: &Deed) -> Option<Request> {
        let name = |at: usize| format!("n{at}");
        let home_name = format!("home{}", self.number);
        if matches!(deed, Deed::Mount) {
            return Some(Request::mount(super::VOLUME));
        }
        let root = self.root.as_ref()?;
        match deed {
            Deed::MakeHome => return Some(Request::make_directory(root, &home_name)),
            Deed::FindHome => return Some(Request::lookup(root, &home_name)),
            _ => {}
        }
        let home = self.home.as_ref()?;
        let data = |file: usize| self.files[file].handle.as_ref();
        Some(match deed {
            Deed::Mount | Deed::MakeHome | Deed::FindHome => return None,
            Deed::CreateFile(file) => {
                Request::create(home, &format!("d{file}"), Creation::Unchecked)
            }
            Deed::Create(at, Some(verifier)) => {
                Request::create(home, &name(*at), Creation::Exclusive(*verifier))
            }
            Deed::Create(at, None) => Request::create(home, &name(*at), Creation::Guarded),
            Deed::MakeDirectory(at) => Request::make_directory(home, &name(*at)),
            Deed::Symlink(at) => Request::symlink(home, &name(*at), "text"),
            Deed::Remove(at) => Request::remove(home, &name(*at)),
            Deed::RemoveDirectory(at) => Request::remove_directory(home, &name(*at)),
            Deed::Rename(at, to) => Request::rename((home, &name(*at)), (home, &name(*to))),
            Deed::Link(at, to) => Request::link(self.names[*at].what.handle()?, home, &name(*to)),
            Deed::Lookup(at) => Request::lookup(home, &name(*at)),
            Deed::Write { file, range, value, is_stable } => {
                let (start, end) = RANGES[*range];
                Request::write(data(*file)?, start, &bytes_of(*value, start, end), *is_stable)
            }
            Deed::Read { file, range } => {
                let (start, end) = RANGES[*range];
                Request::read(data(*file)?, start, (end - start) as u32)
            }
            Deed::Commit { file, .. } => Request::commit(data(*file)?),
            Deed::Truncate(file) => Request::set(data(*file)?, Setting::Size(0)),
        })
    }

    fn set_busy(&mut self, deed: &Deed, is_busy: bool) {
        match deed {
            Deed::Mount | Deed::MakeHome | Deed::FindHome => self.is_starting = is_busy,
            Deed::CreateFile(file) | Deed::Truncate(file) => {
                self.files[*file].busy = [is_busy; RANGES.len()];
            }
            Deed::Create(at, _)
            | Deed::MakeDirectory(at)
            | Deed::Symlink(at)
            | Deed::Remove(at)
            | Deed::RemoveDirectory(at)
            | Deed::Lookup(at) => self.names[*at].is_busy = is_busy,
            Deed::Rename(at, to) | Deed::Link(at, to) => {
                self.names[*at].is_busy = is_busy;
                self.names[*to].is_busy = is_busy;
            }
            Deed::Write { file, range, .. } | Deed::Read { file, range } => {
                self.files[*file].busy[*range] = is_busy;
            }
            Deed::Commit { file, .. } => self.files[*file].is_committing = is_busy,
        }
    }

    /// A reply came; `may_refuse` says whether the server may be without its disks.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn take_reply(&mut self, reply: &[u8], may_refuse: bool) -> Result<Judged, String> {
        let (xid, results) = take_header(reply)
            .map_err(|error| format!("client {}: {error} in {reply:02x?}", self.number))?;
        let Some(call) = self.pending.remove(&xid) else {
            return match self.answered.get(&xid) {
                Some(first) if first.is_empty() || first == results => Ok(Judged::Again),
                Some(_) => Err(format!("client {}: {xid} has two answers", self.number)),
                None => Err(format!("client {}: an answer to {xid}, no call", self.number)),
            };
        };
        // In an outage so much time may pass that the server forgets an answer.
        let is_kept = call.deed.is_kept() && !call.may_be_lost;
        let kept = if is_kept { results.to_vec() } else { Vec::new() };
        self.answered.insert(xid, kept);
        self.set_busy(&call.deed, false);
        self.moment += 1;
        let status = results::done(results).err().and_then(|failure| failure.status());
        if may_refuse && matches!(status, Some(IO | JUKEBOX | SERVER_FAULT)) {
            // As another call: this one has its answer.
            self.begin(call.deed, true);
            return Ok(Judged::Refused);
        }
        let text = format!("client {}: call {xid} {:?}", self.number, call.deed);
        self.settle(call, results).map_err(|wrong| format!("{text}: {wrong}"))?;
        Ok(Judged::Answered)
    }

    fn settle(&mut self, call: Call, results: &[u8]) -> Result<(), String> {
        let Call { deed, may_be_done, may_be_lost, .. } = call;
        let malformed = |error: NfsFailure| error.to_string();
        match deed {
            Deed::Mount => self.root = Some(results::handle(results).map_err(malformed)?),
            Deed::FindHome => self.home = Some(results::handle(results).map_err(malformed)?),
            Deed::MakeHome => match self.made(results, None, may_be_done)? {
                Some(handle) => self.home = Some(handle),
                None => self.planned.push(Deed::FindHome),
            },
            Deed::CreateFile(file) => {
                self.files[file].handle = Some(results::made(results).map_err(malformed)?);
            }
            Deed::Create(at, verifier) => {
                let may_be_done = may_be_done && verifier.is_none();
                self.make(at, results, may_be_done, Named::File)?;
            }
            Deed::MakeDirectory(at) => self.make(at, results, may_be_done, Named::Directory)?,
            Deed::Symlink(at) => self.make(at, results, may_be_done, Named::Symlink)?,
            Deed::Remove(at) | Deed::RemoveDirectory(at) => {
                let is_there = self.names[at].what != Named::Nothing;
                expect(results::done(results), is_there, NOT_FOUND, may_be_done)?;
                self.names[at].what = Named::Nothing;
            }
            Deed::Rename(at, to) => {
                expect(results::done(results), true, NOT_FOUND, may_be_done)?;
                let (from, onto) = (self.names[at].what.clone(), self.names[to].what.clone());
                // Of two names of one file neither goes.
                if from.handle().is_none() || from.handle() != onto.handle() {
                    self.names[to].what = from;
                    self.names[at].what = Named::Nothing;
                }
            }
            Deed::Link(at, to) => {
                expect(results::done(results), true, EXISTS, may_be_done)?;
                self.names[to].what = self.names[at].what.clone();
            }
            Deed::Lookup(at) => self.looked_up(at, results::handle(results))?,
            Deed::Write { file, range, value, .. } => {
                let written = results::written(results).map_err(malformed)?;
                let (start, end) = RANGES[range];
                if u64::from(written.count) != end - start {
                    return Err(format!("{} bytes were written", written.count));
                }
                let verifier = Some(written.verifier).filter(|_| !written.is_stable);
                self.files[file].content.written(range, value, verifier, self.moment);
                if may_be_lost {
                    self.files[file].content.lose();
                }
            }
            Deed::Read { file, range } => {
                let (data, _) = results::data(results).map_err(malformed)?;
                self.files[file].content.read(range, data, may_be_lost)?;
            }
            Deed::Commit { file, sent } => {
                let verifier = results::committed(results).map_err(malformed)?;
                self.files[file].content.committed(verifier, sent);
            }
            Deed::Truncate(file) => {
                results::done(results).map_err(malformed)?;
                self.files[file].content.truncated(self.moment);
            }
        }
        Ok(())
    }

    /// The answer to a call that makes something where nothing is, or `there`.
    fn made(
        &self,
        results: &[u8],
        there: Option<&Named>,
        may_be_done: bool,
    ) -> Result<Option<Handle>, String> {
        let is_new = there.is_none_or(|there| *there == Named::Nothing);
        match results::made(results) {
            Ok(handle) if is_new => Ok(Some(handle)),
            Err(NfsFailure::Status(EXISTS)) if !is_new || may_be_done => Ok(None),
            answer => Err(format!("{answer:?}, and there was {there:?}")),
        }
    }

    fn make(
        &mut self,
        at: usize,
        results: &[u8],
        may_be_done: bool,
        made: impl FnOnce(Option<Handle>) -> Named,
    ) -> Result<(), String> {
        let handle = self.made(results, Some(&self.names[at].what), may_be_done)?;
        if self.names[at].what == Named::Nothing {
            let others = self.names.iter().filter_map(|name| name.what.handle());
            if let Some(handle) = &handle
                && others.into_iter().any(|other| other == handle)
            {
                return Err("a handle that another name has".to_owned());
            }
            self.names[at].what = made(handle);
        }
        Ok(())
    }

    fn looked_up(&mut self, at: usize, answer: Answer<Handle>) -> Result<(), String> {
        let there = &mut self.names[at].what;
        match (answer, &mut *there) {
            (Err(NfsFailure::Status(NOT_FOUND)), Named::Nothing) => Ok(()),
            (Ok(handle), Named::File(known) | Named::Directory(known) | Named::Symlink(known))
                if known.as_ref().is_none_or(|known| *known == handle) =>
            {
                *known = Some(handle);
                Ok(())
            }
            (answer, _) => Err(format!("{answer:?}, and there is {there:?}")),
        }
    }
}

/// An answer is what it must be: done, if it can be done, or else `refusal`; or `refusal` because
/// it was done before.
fn expect(
    answer: Answer<()>,
    can_be_done: bool,
    refusal: u32,
    may_be_done: bool,
) -> Result<(), String> {
    match answer {
        Ok(()) if can_be_done => Ok(()),
        Err(NfsFailure::Status(status)) if status == refusal && (!can_be_done || may_be_done) => {
            Ok(())
        }
        answer => Err(format!("{answer:?}, and it can be done: {can_be_done}")),
    }
}
