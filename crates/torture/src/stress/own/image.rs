//! All files of a client as they are found: after a start, and in a snapshot.
//!
//! Invariants: a clean stop loses nothing; after a kill or a power cut each unit is one that a
//! crash may leave, and a change that was not answered was made or not.
//!
//! Fails: [`Failure::Lost`], with what is wrong.

use super::{File, Files, Own};
use crate::Failure;
use crate::stress::content::{Content, UNIT, words};
use crate::stress::node::{Node, OWN};
use file_service::{Caller, FileHandle, FileService, FsError, NewNode, SetAttributes, calls};
use volume::SnapshotRequest;

impl Own {
    /// All words of a file.
    pub(super) fn read_whole(
        node: &Node,
        handle: FileHandle,
    ) -> Result<Result<Vec<u64>, String>, Failure> {
        let (mut found, caller) = (Vec::new(), Caller::root());
        loop {
            let (offset, count) = ((found.len() * UNIT) as u64, 1 << 17);
            let read = node.ask(|service, done| {
                service.read(&caller, calls::Read { file: handle, offset, count }, done)
            })?;
            let read = match read {
                Ok(read) => read,
                Err(error) => return Ok(Err(format!("a read: {error}"))),
            };
            match words(&read.to_vec()) {
                Ok(words) => found.extend(words),
                Err(what) => return Ok(Err(what)),
            }
            if read.end_of_file {
                return Ok(Ok(found));
            }
        }
    }

    /// Reads everything after a start, and compares. What is found is what there is from now on.
    ///
    /// # Errors
    /// [`Failure::Lost`].
    pub fn arrive(&mut self, node: &Node, was_clean: bool) -> Result<(), Failure> {
        let root = node.root(OWN)?;
        let (caller, name) = (Caller::root(), self.name.clone().into_bytes());
        let found = node.ask(|service, done| {
            service.lookup(&caller, calls::Lookup { directory: root, name: name.to_vec() }, done)
        })?;
        match (found, self.directory) {
            (Ok(entry), None) => self.directory = Some(entry.handle),
            (Ok(entry), Some(handle)) if entry.handle == handle => {}
            (Err(FsError::NotFound), None) => return self.make_directory(node, root),
            (other, _) => return Err(self.lost(format!("its directory is {other:?}"))),
        }
        let found = self.find_all(node, self.place()?)?;
        let as_known = Self::compare(&self.files, &found, was_clean);
        let checked = match (&as_known, self.instead.take()) {
            (Err(first), Some(instead)) => Self::compare(&instead, &found, was_clean)
                .map_err(|second| format!("neither before ({first}) nor after ({second})")),
            _ => as_known,
        };
        checked.map_err(|what| self.lost(what))?;
        self.files = found;
        self.check_kept(node)
    }

    fn make_directory(&mut self, node: &Node, root: FileHandle) -> Result<(), Failure> {
        let (caller, name) = (Caller::root(), self.name.clone().into_bytes());
        let (kind, set) = (NewNode::Directory, SetAttributes::default());
        let made = node.ask(|service, done| {
            service.make_node(
                &caller,
                calls::MakeNode { directory: root, name: name.to_vec(), node: kind, set },
                done,
            )
        })?;
        self.directory = Some(self.must("make a directory", made)?.0.handle);
        Ok(())
    }

    /// All files of a directory of the client's.
    fn find_all(&mut self, node: &Node, directory: FileHandle) -> Result<Files, Failure> {
        let page = node.list(directory, 100)?;
        let page = self.must("read a directory", page)?;
        let mut files = Files::new();
        for entry in page.entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let number = name.strip_prefix('f').and_then(|number| number.parse().ok());
            let Some(number) = number else {
                if name == "." || name == ".." {
                    continue;
                }
                return Err(self.lost(format!("an entry {name}")));
            };
            let handle = entry.entry.map(|entry| entry.handle);
            let Some(handle) = handle else { return Err(self.lost("an entry without a handle")) };
            let words = Self::read_whole(node, handle)?;
            let words = words.map_err(|what| self.lost(format!("{name}: {what}")))?;
            let file = File { handle: Some(handle), content: Content::found(words) };
            files.insert(number, file);
        }
        Ok(files)
    }

    /// Whether `found` is what is known, or what a crash may have made of it.
    fn compare(known: &Files, found: &Files, is_exact: bool) -> Result<(), String> {
        let names = |files: &Files| files.keys().copied().collect::<Vec<u64>>();
        if names(known) != names(found) {
            return Err(format!("files {:?}, and not {:?}", names(found), names(known)));
        }
        for ((number, known), found) in known.iter().zip(found.values()) {
            if known.handle.is_some_and(|handle| Some(handle) != found.handle) {
                return Err(format!("f{number} is another file"));
            }
            Self::compare_content(&known.content, &found.content, is_exact)
                .map_err(|what| format!("f{number}: {what}"))?;
        }
        Ok(())
    }

    fn compare_content(known: &Content, found: &Content, is_exact: bool) -> Result<(), String> {
        let words = found.words();
        if !is_exact {
            return known.check_crash(&words);
        }
        if known.len() != words.len() {
            return Err(format!("{} units, and not {}", words.len(), known.len()));
        }
        known.check_now(0, &words)
    }

    /// What it knows of its files now, for a snapshot: handles are others there.
    fn image(&self) -> Files {
        let mut files = self.files.clone();
        files.values_mut().for_each(|file| file.handle = None);
        files
    }

    /// Makes a snapshot and compares it with the files, which nobody changes meanwhile; or deletes
    /// the one there is.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn snapshot(&mut self, node: &Node) -> Result<(), Failure> {
        if self.kept.is_some() {
            self.check_kept(node)?;
            // Not known any more: if the answer does not come, it is there or not.
            let Some((name, _)) = self.kept.take() else { return Ok(()) };
            return node.snapshot(OWN, SnapshotRequest::Delete(name));
        }
        self.writes += 1;
        let name = format!("{}-{}", self.name, self.writes);
        match node.snapshot(OWN, SnapshotRequest::Create(name.clone())) {
            Ok(()) => self.kept = Some((name, self.image())),
            // Too many blocks are in use to keep any of them.
            Err(Failure::Refused { reason, .. }) if reason.contains("space") => return Ok(()),
            Err(failure) => return Err(failure),
        }
        self.check_kept(node)
    }

    /// Whether the snapshot holds what the files held.
    fn check_kept(&mut self, node: &Node) -> Result<(), Failure> {
        let Some((name, files)) = self.kept.clone() else { return Ok(()) };
        let (mut directory, caller) = (self.place()?, Caller::root());
        for part in [".snapshot", &name] {
            let found = node.ask(|service, done| {
                service.lookup(
                    &caller,
                    calls::Lookup { directory, name: part.as_bytes().to_vec() },
                    done,
                );
            })?;
            directory = self.must(&format!("look {part} up"), found)?.handle;
        }
        let found = self.find_all(node, directory)?;
        let checked = Self::compare(&files, &found, true);
        checked.map_err(|what| self.lost(format!("snapshot {name}: {what}")))
    }
}
