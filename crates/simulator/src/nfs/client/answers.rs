//! Answers to a client, and what each must be.
//!
//! Fails: with what is wrong with an answer, in words.

use super::content::RANGES;
use super::{Call, Client, Deed, Named};
use nfs_client::results::{self, take_header};
use nfs_client::{Answer, EXISTS, Handle, NOT_FOUND, NfsFailure};

/// `NFS3ERR_IO`, `NFS3ERR_JUKEBOX` and `MNT3ERR_SERVERFAULT`: what a server without its disks
/// answers.
const IO: u32 = 5;
const JUKEBOX: u32 = 10_008;
const SERVER_FAULT: u32 = 10_006;

/// What an answer was worth.
pub(in crate::nfs) enum Judged {
    /// The call is answered.
    Answered,
    /// It was answered before.
    Again,
    /// The server has asked to come later, or lost its disks.
    Refused,
}

impl Client {
    /// A reply came; `may_refuse` says whether the server may be without its disks.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(in crate::nfs) fn take_reply(
        &mut self,
        reply: &[u8],
        may_refuse: bool,
    ) -> Result<Judged, String> {
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
