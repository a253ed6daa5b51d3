//! A client's own files: a directory that nobody else changes, so that each answer is known.
//!
//! Operations change a copy of what is known; the copy becomes what is known when the answer has
//! come. If it never comes, because the node was killed, either may be found at the next start.
//!
//! Invariants: names, handles, lengths and every unit are compared: after each read, and all of
//! them after each start.
//!
//! Fails: [`Failure::Lost`], with what is wrong.

use crate::Failure;
use crate::random::Random;
use crate::stress::answer::Answer;
use crate::stress::content::{Content, UNIT, UNITS_MAX, bytes, words};
use crate::stress::node::Node;
use bytes::Bytes;
use file_service::{
    Caller, CreateMode, Done, FileHandle, FileService, FsError, RenameFlags, SetAttributes,
    Stability, calls,
};
use std::collections::BTreeMap;

mod image;

/// Names of the files of a client.
const NAMES: u64 = 10;
/// Writes that are under way at the same time.
const WRITES_MAX: u64 = 6;
/// Units of one write at most.
const WRITE_UNITS_MAX: u64 = 160;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    /// Not known of a file whose making was not answered.
    handle: Option<FileHandle>,
    content: Content,
}

type Files = BTreeMap<u64, File>;

/// See the module.
pub struct Own {
    /// Its name in messages.
    pub name: String,
    pub(super) random: Random,
    directory: Option<FileHandle>,
    files: Files,
    /// What may be there instead after a kill.
    instead: Option<Files>,
    writes: u64,
    /// Operations that were answered.
    pub operations: u64,
    /// A snapshot, and what the files held then.
    kept: Option<(String, Files)>,
}

fn file_name(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

impl Own {
    /// A client without files; no two have the same number.
    #[must_use]
    pub fn new(number: usize, seed: u64) -> Self {
        Self {
            name: format!("client{number}"),
            random: Random::new(seed ^ (number as u64) << 32),
            directory: None,
            files: Files::new(),
            instead: None,
            writes: (number as u64 + 1) << 40,
            operations: 0,
            kept: None,
        }
    }

    fn lost(&self, what: impl std::fmt::Display) -> Failure {
        Failure::Lost { who: self.name.clone(), what: what.to_string() }
    }

    /// An operation that must succeed.
    fn must<T>(&mut self, what: &str, outcome: Result<T, FsError>) -> Result<T, Failure> {
        self.operations += 1;
        outcome.map_err(|error| Failure::Refused {
            worker: self.name.clone(),
            operation: what.to_owned(),
            reason: error.to_string(),
        })
    }

    /// An operation that may be refused for want of room.
    fn room<T>(&mut self, what: &str, outcome: Result<T, FsError>) -> Result<Option<T>, Failure> {
        match outcome {
            Err(FsError::NoSpace) => Ok(None),
            outcome => self.must(what, outcome).map(Some),
        }
    }

    fn place(&self) -> Result<FileHandle, Failure> {
        self.directory.ok_or_else(|| self.lost("there is no directory"))
    }

    fn pick(&mut self) -> Option<(u64, FileHandle)> {
        let count = self.files.len() as u64;
        if count == 0 {
            return None;
        }
        let index = self.random.below(count) as usize;
        let (number, file) = self.files.iter().nth(index)?;
        file.handle.map(|handle| (*number, handle))
    }

    fn content(&mut self, number: u64) -> &mut Content {
        &mut self.files.entry(number).or_insert_with(empty).content
    }

    /// One operation, or a few at the same time.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn step(&mut self, node: &Node) -> Result<(), Failure> {
        match self.random.below(20) {
            0..6 => self.write_some(node),
            6..10 => self.read(node),
            10 | 11 => self.commit(node),
            12 | 13 => self.set_length(node),
            14..16 => self.create(node),
            16 => self.remove(node),
            17 => self.rename(node),
            18 => self.held(node),
            _ => self.attributes(node),
        }
    }

    fn write_some(&mut self, node: &Node) -> Result<(), Failure> {
        let Some((number, handle)) = self.pick() else { return self.create(node) };
        let caller = Caller::root();
        let mut under_way = Vec::new();
        let count = 1 + self.random.below(WRITES_MAX);
        let share = UNITS_MAX as u64 / count;
        // In parts of the file that have nothing in common: their order does not matter.
        for part in 0..count {
            let first = part * share + self.random.below(share);
            let units = 1 + self.random.below(WRITE_UNITS_MAX.min((part + 1) * share - first));
            let units = units.min(transfer_units_max(node));
            let is_stable = self.random.one_in(3);
            let stability = if is_stable { Stability::FileSync } else { Stability::Unstable };
            self.writes += 1;
            let (write, range) = (self.writes, (first as usize, units as usize));
            let data = Bytes::from(bytes(write, range.0, range.1));
            let offset = first * UNIT as u64;
            let answer = Answer::to(|done: Done<_>| {
                node.service.write(
                    &caller,
                    calls::Write { file: handle, offset, data, stability },
                    done,
                );
            });
            under_way.push((write, range, is_stable, answer));
        }
        let mut ended = Ok(());
        for (write, range, is_stable, answer) in under_way {
            let outcome = node.outcome(answer);
            match outcome {
                Ok(outcome) => match self.room("write", outcome) {
                    Ok(Some(_)) => self.content(number).write(write, range, is_stable),
                    Ok(None) => {}
                    Err(failure) => ended = Err(failure),
                },
                Err(failure) => {
                    // It may have been done.
                    self.content(number).write(write, range, false);
                    ended = ended.and(Err(failure));
                }
            }
        }
        ended
    }

    fn read(&mut self, node: &Node) -> Result<(), Failure> {
        let Some((number, handle)) = self.pick() else { return Ok(()) };
        let first = self.random.below(UNITS_MAX as u64);
        let units = (1 + self.random.below(UNITS_MAX as u64)).min(transfer_units_max(node));
        let (offset, count) = (first * UNIT as u64, units as u32 * UNIT as u32);
        let caller = Caller::root();
        let read = node.ask(|service, done| {
            service.read(&caller, calls::Read { file: handle, offset, count }, done)
        })?;
        let read = self.must("read", read)?;
        let found = words(&read.to_vec()).map_err(|what| self.lost(what))?;
        let content = self.content(number);
        let expected = content.len().saturating_sub(first as usize).min(units as usize);
        let ends = first as usize + expected >= content.len();
        let mut checked = content.check_now(first as usize, &found);
        if found.len() != expected || read.end_of_file != ends {
            let got = (found.len(), read.end_of_file);
            checked = Err(format!("{got:?} units of {expected}, {ends} from unit {first} on"));
        }
        checked.map_err(|what| self.lost(format!("f{number}: {what}")))
    }

    fn attributes(&mut self, node: &Node) -> Result<(), Failure> {
        let Some((number, handle)) = self.pick() else { return Ok(()) };
        let found = node.ask(|service, done| {
            service.attributes(&Caller::root(), calls::GetAttributes { file: handle }, done)
        })?;
        let found = self.must("attributes", found)?;
        let expected = (self.content(number).len() * UNIT) as u64;
        if (found.size, found.links) == (expected, 1) {
            return Ok(());
        }
        let got = (found.size, found.links);
        Err(self.lost(format!("f{number} has {got:?} bytes and links, and not {expected}, 1")))
    }

    fn commit(&mut self, node: &Node) -> Result<(), Failure> {
        let Some((number, handle)) = self.pick() else { return Ok(()) };
        let caller = Caller::root();
        let done =
            node.ask(|service, done| service.commit(&caller, calls::Commit::of(handle), done))?;
        self.must("commit", done)?;
        self.content(number).commit();
        Ok(())
    }

    fn set_length(&mut self, node: &Node) -> Result<(), Failure> {
        let Some((number, handle)) = self.pick() else { return Ok(()) };
        let length = self.random.below(UNITS_MAX as u64) as usize;
        let size = Some((length * UNIT) as u64);
        let set = SetAttributes { size, ..SetAttributes::default() };
        let mut after = self.files.clone();
        after.entry(number).or_insert_with(empty).content.set_length(length);
        let caller = Caller::root();
        self.change(node, "truncate", after, |service, done| {
            service.set_attributes(&caller, calls::SetFileAttributes { file: handle, set }, done);
        })
        .map(drop)
    }

    fn create(&mut self, node: &Node) -> Result<(), Failure> {
        let (number, directory) = (self.random.below(NAMES), self.place()?);
        if self.files.contains_key(&number) {
            return Ok(());
        }
        let mut after = self.files.clone();
        after.insert(number, empty());
        let caller = Caller::root();
        let made = self.change(node, "create", after, |service, done| {
            let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
            service.create(
                &caller,
                calls::Create { directory, name: file_name(number).to_vec(), mode, set },
                done,
            );
        })?;
        if let (Some((entry, _)), Some(file)) = (made, self.files.get_mut(&number)) {
            file.handle = Some(entry.handle);
        }
        Ok(())
    }

    fn remove(&mut self, node: &Node) -> Result<(), Failure> {
        let Some((number, handle)) = self.pick() else { return Ok(()) };
        let directory = self.place()?;
        let mut after = self.files.clone();
        after.remove(&number);
        let caller = Caller::root();
        let removed = self.change(node, "remove", after, |service, done| {
            service.remove(
                &caller,
                calls::Remove { directory, name: file_name(number).to_vec() },
                done,
            );
        })?;
        if removed.is_none() {
            return Ok(());
        }
        match node.ask(|service, done| {
            service.attributes(&Caller::root(), calls::GetAttributes { file: handle }, done)
        })? {
            Err(FsError::Stale) => Ok(()),
            other => Err(self.lost(format!("the handle of a removed file gives {other:?}"))),
        }
    }

    fn rename(&mut self, node: &Node) -> Result<(), Failure> {
        let Some((number, _)) = self.pick() else { return Ok(()) };
        let (to, directory) = (self.random.below(NAMES), self.place()?);
        let mut after = self.files.clone();
        if let Some(file) = after.remove(&number) {
            after.insert(to, file);
        }
        let (caller, flags) = (Caller::root(), RenameFlags::default());
        self.change(node, "rename", after, |service, done| {
            let (from, to) = (file_name(number), file_name(to));
            service.rename(
                &caller,
                calls::Rename::between((directory, &from), (directory, &to), flags),
                done,
            );
        })
        .map(drop)
    }

    /// A file that loses its name while it is held can be read until the hold ends.
    fn held(&mut self, node: &Node) -> Result<(), Failure> {
        let Some((number, handle)) = self.pick() else { return Ok(()) };
        let directory = self.place()?;
        let hold = node.ask(|service, done| {
            service.hold(&Caller::root(), calls::HoldFile { file: handle }, done)
        })?;
        let hold = self.must("hold", hold)?;
        let mut after = self.files.clone();
        let content = after.remove(&number).unwrap_or_else(empty).content;
        let caller = Caller::root();
        self.change(node, "remove", after, |service, done| {
            service.remove(
                &caller,
                calls::Remove { directory, name: file_name(number).to_vec() },
                done,
            );
        })?;
        let read = Self::read_whole(node, handle)?.map_err(|error| self.lost(error))?;
        self.operations += 1;
        node.service.release(&Caller::root(), calls::ReleaseHold { hold }, Box::new(drop));
        let is_whole = read.len() == content.len();
        let checked = content.check_now(0, &read);
        let checked = if is_whole { checked } else { Err("its length is wrong".to_owned()) };
        checked.map_err(|what| self.lost(format!("f{number}, held without a name: {what}")))
    }

    /// Makes a change of names or lengths; after a kill it has been made or not.
    fn change<T: Send + 'static>(
        &mut self,
        node: &Node,
        what: &str,
        after: Files,
        start: impl FnOnce(&dblade::Service, Done<T>),
    ) -> Result<Option<T>, Failure> {
        match node.ask(start) {
            Ok(outcome) => {
                let outcome = self.room(what, outcome)?;
                if outcome.is_some() {
                    self.files = after;
                }
                Ok(outcome)
            }
            Err(failure) => {
                self.instead = Some(after);
                Err(failure)
            }
        }
    }
}

/// How much one transfer takes: with little memory it is little.
fn transfer_units_max(node: &Node) -> u64 {
    u64::from(node.service.limits().transfer_bytes_max) / UNIT as u64
}

fn empty() -> File {
    File { handle: None, content: Content::default() }
}
