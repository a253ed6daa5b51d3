//! What is to be made of an answer.
//!
//! A call that was sent again may find that the server did it before it was killed: then a name
//! exists that is to be made, or is gone that is to go. That counts as done; whether it was done
//! right the comparison after the kill shows. An exclusive CREATE that is repeated must succeed
//! (RFC 1813 section 3.3.8).

use super::{DEAD_HANDLES_MAX, DIRECTORIES, Mirror, REWRITE_BYTES, Unstable};
use crate::Failure;
use crate::measure::Class;
use crate::tree::{FileNumber, Node, Operation, parent};
use nfs_client::{
    Answer, Attributes, Creation, EXISTS, FileKind, NOT_FOUND, NfsFailure, Request, STALE, results,
};
use std::collections::BTreeMap;

/// A call under way.
pub(super) struct Task {
    pub what: What,
    /// Names that it touches; `directory/` for all in it.
    pub names: Vec<String>,
    /// Files that it touches.
    pub files: Vec<FileNumber>,
}

pub(super) enum What {
    Change(Operation),
    Create {
        operation: Operation,
        is_exclusive: bool,
    },
    /// LOOKUP of a file that was made by a call whose answer got lost.
    FindMade {
        operation: Operation,
    },
    /// The rest of an exclusive CREATE, which sets no mode: not a change of the model.
    SetFirstMode {
        path: String,
    },
    Commit {
        file: FileNumber,
        is_settling: bool,
    },
    Rewrite {
        file: FileNumber,
        start: usize,
        end: usize,
    },
    Read {
        file: FileNumber,
        offset: usize,
        count: usize,
    },
    Attributes {
        file: FileNumber,
    },
    Lookup {
        path: String,
        file: FileNumber,
    },
    List {
        directory: String,
        found: BTreeMap<String, Option<Attributes>>,
    },
    /// GETATTR of a file that was removed.
    Dead,
}

impl What {
    pub(super) const fn class(&self) -> Class {
        match self {
            Self::Change(operation) => Class::of_nfs_change(operation),
            Self::Create { .. } | Self::SetFirstMode { .. } => Class::NfsNames,
            Self::Commit { .. } => Class::NfsCommit,
            Self::Rewrite { .. } => Class::NfsWriteUnstable,
            Self::Read { .. } => Class::NfsRead,
            Self::FindMade { .. } | Self::Attributes { .. } | Self::Lookup { .. } | Self::Dead => {
                Class::NfsAttributes
            }
            Self::List { .. } => Class::NfsList,
        }
    }
}

impl Task {
    pub(super) fn commit(file: FileNumber, is_settling: bool) -> Self {
        Self { what: What::Commit { file, is_settling }, names: Vec::new(), files: vec![file] }
    }

    /// A read; when all is compared, files are not marked, because nothing changes them.
    pub(super) fn read(file: FileNumber, offset: usize, count: usize, is_marked: bool) -> Self {
        let files = if is_marked { vec![file] } else { Vec::new() };
        Self { what: What::Read { file, offset, count }, names: Vec::new(), files }
    }

    pub(super) fn attributes(file: FileNumber, is_marked: bool) -> Self {
        let files = if is_marked { vec![file] } else { Vec::new() };
        Self { what: What::Attributes { file }, names: Vec::new(), files }
    }

    pub(super) fn lookup(path: String, file: FileNumber) -> Self {
        let names = vec![path.clone()];
        Self { what: What::Lookup { path, file }, names, files: vec![file] }
    }

    pub(super) fn list(directory: &str) -> Self {
        let what = What::List { directory: directory.to_owned(), found: BTreeMap::new() };
        Self { what, names: vec![format!("{directory}/")], files: Vec::new() }
    }

    pub(super) fn dead() -> Self {
        Self { what: What::Dead, names: Vec::new(), files: Vec::new() }
    }
}

type FollowUp = Option<(Task, Request)>;

impl Mirror {
    /// Takes in what was answered; the call that goes on with the task, if there is one.
    pub(super) fn finish(
        &mut self,
        task: Task,
        results: &[u8],
        is_repeated: bool,
    ) -> Result<FollowUp, Failure> {
        let Task { what, names, files } = task;
        let mut next = None;
        match what {
            What::Change(operation) => self.finish_change(&operation, results, is_repeated)?,
            What::Create { operation, is_exclusive } => match results::made(results) {
                Ok(handle) => {
                    self.take_made(&operation, handle);
                    next = is_exclusive.then(|| self.first_mode(&operation)).flatten();
                }
                Err(NfsFailure::Status(EXISTS)) if is_repeated && !is_exclusive => {
                    self.counts.done_before += 1;
                    let Operation::Create(path) = &operation else { unreachable!("a CREATE") };
                    let (directory, name) = self.place(path);
                    let request = Request::lookup(directory, name);
                    next = Some((What::FindMade { operation }, request));
                }
                Err(failure) => return Err(self.refused(&format!("{operation:?}"), &failure)),
            },
            What::FindMade { operation } => {
                let handle = self.accept(|| format!("{operation:?}"), results::handle(results))?;
                self.take_made(&operation, handle);
            }
            What::SetFirstMode { path } => {
                self.accept(|| format!("chmod {path}"), results::done(results))?;
            }
            What::Commit { file, is_settling } => {
                next = self.finish_commit(file, is_settling, results)?;
            }
            What::Rewrite { file, start, end } => {
                let what = || format!("write {} again", self.path_of(file));
                let written = self.accept(what, results::written(results))?;
                let verifier = written.verifier;
                self.counts.rewritten += 1;
                self.unstable.entry(file).or_default().push(Unstable { start, end, verifier });
                // The next COMMIT goes on with what else there is.
                next = Some((
                    What::Commit { file, is_settling: true },
                    Request::commit(&self.handles[&file]),
                ));
            }
            What::Read { file, offset, count } => {
                self.check_data(file, offset, count, results, is_repeated)?;
            }
            What::Attributes { file } => self.check_attributes(file, results, is_repeated)?,
            What::Lookup { path, file } => {
                let handle = self.accept(|| format!("lookup {path}"), results::handle(results))?;
                if handle != self.handles[&file] {
                    return Err(self.lost(format!("{path} has another handle than before")));
                }
            }
            What::List { directory, mut found } => {
                let what = || format!("list {directory}");
                let listed = self.accept(what, results::listed_plus(results))?;
                for (name, _, attributes) in listed.entries {
                    if found.insert(name.clone(), attributes).is_some() {
                        return Err(self.lost(format!("{directory}/{name} is listed twice")));
                    }
                }
                if listed.is_end {
                    self.check_list(&directory, &found)?;
                } else {
                    let handle = &self.directories[&directory];
                    let request = Request::list_plus(handle, listed.cookie, listed.verifier);
                    next = Some((What::List { directory, found }, request));
                }
            }
            What::Dead => match results::attributes(results) {
                Err(NfsFailure::Status(STALE)) => {}
                Err(failure) => return Err(self.refused("a removed file's handle", &failure)),
                Ok(found) => return Err(self.lost(format!("a removed file is there: {found:?}"))),
            },
        }
        Ok(next.map(|(what, request)| (Task { what, names, files }, request)))
    }

    fn refused(&self, operation: &str, failure: &NfsFailure) -> Failure {
        Failure::Refused {
            worker: self.name.clone(),
            operation: operation.to_owned(),
            reason: failure.to_string(),
        }
    }

    /// The operation's name is made only when it is needed.
    fn accept<T>(
        &self,
        operation: impl FnOnce() -> String,
        answer: Answer<T>,
    ) -> Result<T, Failure> {
        answer.map_err(|failure| self.refused(&operation(), &failure))
    }

    fn take_made(&mut self, operation: &Operation, handle: Vec<u8>) {
        self.tree.apply(operation);
        let Operation::Create(path) = operation else { unreachable!("only files have handles") };
        self.handles.extend(self.tree.file_number(path).map(|number| (number, handle)));
    }

    fn first_mode(&self, operation: &Operation) -> Option<(What, Request)> {
        let Operation::Create(path) = operation else { return None };
        let mode = Operation::SetMode(path.clone(), 0o644);
        let request = self.request(&mode, Creation::Guarded);
        Some((What::SetFirstMode { path: path.clone() }, request))
    }

    fn finish_change(
        &mut self,
        operation: &Operation,
        results: &[u8],
        is_repeated: bool,
    ) -> Result<(), Failure> {
        let done_before = match operation {
            Operation::MakeDirectory(_) | Operation::Symlink(..) | Operation::Link(..) => EXISTS,
            Operation::Remove(_) | Operation::RemoveDirectory(_) | Operation::Rename(..) => {
                NOT_FOUND
            }
            _ => 0,
        };
        if let Operation::Write { path, offset, data, stable } = operation {
            let written = self.accept(|| format!("{operation:?}"), results::written(results))?;
            if written.count as usize != data.len() || (*stable && !written.is_stable) {
                return Err(self.lost(format!("{operation:?} was answered with {written:?}")));
            }
            if !written.is_stable
                && let Some(file) = self.tree.file_number(path)
            {
                let (start, end) = (*offset, offset + data.len());
                let verifier = written.verifier;
                self.unstable.entry(file).or_default().push(Unstable { start, end, verifier });
            }
            let (path, data) = (path.clone(), data.clone());
            // The model has what a reader sees; what may be lost is noted above.
            self.tree.apply(&Operation::Write { path, offset: *offset, data, stable: true });
            return Ok(());
        }
        match results::done(results) {
            Ok(()) => {}
            Err(NfsFailure::Status(status)) if is_repeated && status == done_before => {
                self.counts.done_before += 1;
            }
            Err(failure) => return Err(self.refused(&format!("{operation:?}"), &failure)),
        }
        self.tree.apply(operation);
        self.forget_removed();
        Ok(())
    }

    fn forget_removed(&mut self) {
        let files = &self.tree.files;
        let gone = self.handles.extract_if(.., |number, _| !files.contains_key(number));
        self.dead.extend(gone.map(|(_, handle)| handle));
        self.unstable.retain(|number, _| files.contains_key(number));
        let excess = self.dead.len().saturating_sub(DEAD_HANDLES_MAX);
        self.dead.drain(..excess);
    }

    /// What has this verifier lasts; of what has another one the first range is written again.
    fn finish_commit(
        &mut self,
        file: FileNumber,
        is_settling: bool,
        results: &[u8],
    ) -> Result<Option<(What, Request)>, Failure> {
        let what = || format!("fsync {}", self.path_of(file));
        let verifier = self.accept(what, results::committed(results))?;
        let Some(ranges) = self.unstable.get_mut(&file) else { return Ok(None) };
        ranges.retain(|range| range.verifier != verifier);
        let content = self.tree.files.get(&file).and_then(|file| file.versions.last());
        let Some(content) = content else { unreachable!("unstable files exist") };
        let size = content.len();
        ranges.retain(|range| range.start < size);
        let Some(range) = ranges.first_mut() else {
            self.unstable.remove(&file);
            return Ok(None);
        };
        if !is_settling {
            return Ok(None); // after the answers to what is under way
        }
        let start = range.start;
        let end = range.end.min(size).min(start + REWRITE_BYTES);
        if end == range.end.min(size) {
            ranges.remove(0);
        } else {
            range.start = end;
        }
        let data = &content[start..end];
        let request = Request::write(&self.handles[&file], start as u64, data, false);
        Ok(Some((What::Rewrite { file, start, end }, request)))
    }

    fn check_data(
        &self,
        file: FileNumber,
        offset: usize,
        count: usize,
        results: &[u8],
        is_repeated: bool,
    ) -> Result<(), Failure> {
        let what = || format!("read {}", self.path_of(file));
        let (found, is_end) = self.accept(what, results::data(results))?;
        if is_repeated && self.unstable.contains_key(&file) {
            return Ok(()); // not yet written again
        }
        let content = self.tree.files.get(&file).and_then(|file| file.versions.last());
        let Some(content) = content else { unreachable!("nobody removes a file that is read") };
        let end = content.len().min(offset + count);
        let expected = &content[offset..end];
        if found == expected && is_end == (end == content.len()) {
            return Ok(());
        }
        let first = found.iter().zip(expected).position(|(one, other)| one != other);
        Err(self.lost(format!(
            "{} of {} bytes: {count} bytes at {offset} came as {} bytes (end: {is_end}), \
             different from byte {first:?} on",
            self.path_of(file),
            content.len(),
            found.len()
        )))
    }

    fn check_attributes(
        &self,
        file: FileNumber,
        results: &[u8],
        is_repeated: bool,
    ) -> Result<(), Failure> {
        let what = || format!("stat {}", self.path_of(file));
        let found = self.accept(what, results::attributes(results))?;
        if is_repeated && self.unstable.contains_key(&file) {
            return Ok(());
        }
        let Some(expected) = self.tree.files.get(&file) else { unreachable!("as in check_data") };
        let size = expected.versions.last().map_or(0, |content| content.len()) as u64;
        let links =
            self.tree.names.values().filter(|node| **node == Node::File(file)).count() as u32;
        if (found.size, found.mode, found.links) == (size, expected.mode, links) {
            return Ok(());
        }
        let (path, mode) = (self.path_of(file), expected.mode);
        Err(self.lost(format!("{path}: {size} bytes, mode {mode:o}, {links} links; {found:?}")))
    }

    fn check_list(
        &self,
        directory: &str,
        found: &BTreeMap<String, Option<Attributes>>,
    ) -> Result<(), Failure> {
        assert!(DIRECTORIES.contains(&directory), "a directory of the client");
        let expected: BTreeMap<&str, &Node> = self
            .tree
            .names
            .iter()
            .filter(|(path, _)| parent(path) == directory)
            .map(|(path, node)| (&path[directory.len() + 1..], node))
            .collect();
        for (name, node) in &expected {
            let Some(attributes) = found.get(*name) else {
                return Err(self.lost(format!("{directory}/{name} is missing in the listing")));
            };
            let kind = match node {
                Node::Directory => FileKind::Directory,
                Node::Symlink(_) => FileKind::Symlink,
                Node::File(_) => FileKind::File,
            };
            if attributes.is_some_and(|attributes| attributes.kind != kind) {
                return Err(self.lost(format!("{directory}/{name} is {attributes:?}")));
            }
        }
        match found.keys().find(|name| !expected.contains_key(name.as_str())) {
            Some(name) => Err(self.lost(format!("{directory}/{name} should not be there"))),
            None => Ok(()),
        }
    }
}
