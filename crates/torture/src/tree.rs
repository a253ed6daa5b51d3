//! What must be found after a crash: a tree of files with the freedom that docs/semantics.md gives.
//!
//! Operations survive as a prefix of their order, so the caller keeps the tree of what is durable
//! and the operations since, and tries each prefix. Within one tree only unstable data is free: a
//! file has the *versions* of its content since the last commit, and each block may be that of any
//! of them; the size may be that of any of them, or end with a block between.
//!
//! Invariants: `names` has the parents of all that it has, except the root, which is always there;
//! every file has at least one version and at least one name.
//!
//! Fails: [`Tree::difference`] says in words what is not allowed.

use crate::found::{Found, FoundKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Unit in which unstable data survives.
const BLOCK_BYTES: usize = 4096;

/// Which file: names come and go, files stay.
pub type FileNumber = u64;

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// A directory.
    Directory,
    /// A symbolic link and its text.
    Symlink(String),
    /// A regular file.
    File(FileNumber),
}

/// A regular file.
#[derive(Clone, Debug)]
pub struct File {
    /// Contents, each of which may be the durable one; the last is what readers see.
    pub versions: Vec<Arc<Vec<u8>>>,
    /// Permission bits.
    pub mode: u32,
}

/// One operation; paths are relative to the writer's directory.
#[derive(Clone, PartialEq, Eq)]
pub enum Operation {
    /// Makes an empty file.
    Create(String),
    /// Writes; stable if the answer is to mean that it lasts.
    Write {
        /// The file.
        path: String,
        /// Where.
        offset: usize,
        /// What.
        data: Arc<Vec<u8>>,
        /// `O_DSYNC`, `FILE_SYNC`.
        stable: bool,
    },
    /// Sets the size.
    Truncate(String, usize),
    /// Sets the permission bits.
    SetMode(String, u32),
    /// Gives the first name's file the second one.
    Link(String, String),
    /// Moves the first name to the second, in whose place it comes.
    Rename(String, String),
    /// Removes a name of a file or symbolic link.
    Remove(String),
    /// Makes a directory.
    MakeDirectory(String),
    /// Removes an empty directory.
    RemoveDirectory(String),
    /// Makes a symbolic link: name, text.
    Symlink(String, String),
    /// fsync or COMMIT of a file.
    Commit(String),
    /// fsync of the writer's directory.
    SyncDirectory,
}

impl fmt::Debug for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(path) => write!(formatter, "create {path}"),
            Self::Write { path, offset, data, stable } => {
                let how = if *stable { "stable" } else { "unstable" };
                write!(formatter, "write {path} {offset}+{} {how}", data.len())
            }
            Self::Truncate(path, size) => write!(formatter, "truncate {path} {size}"),
            Self::SetMode(path, mode) => write!(formatter, "chmod {path} {mode:o}"),
            Self::Link(from, to) => write!(formatter, "link {from} {to}"),
            Self::Rename(from, to) => write!(formatter, "rename {from} {to}"),
            Self::Remove(path) => write!(formatter, "remove {path}"),
            Self::MakeDirectory(path) => write!(formatter, "mkdir {path}"),
            Self::RemoveDirectory(path) => write!(formatter, "rmdir {path}"),
            Self::Symlink(path, text) => write!(formatter, "symlink {path} {text}"),
            Self::Commit(path) => write!(formatter, "fsync {path}"),
            Self::SyncDirectory => write!(formatter, "fsync ."),
        }
    }
}

/// The directory that holds `path`; empty for the writer's own.
#[must_use]
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// A tree, as it must be but for unstable data.
#[derive(Clone, Default, Debug)]
pub struct Tree {
    /// What the names lead to.
    pub names: BTreeMap<String, Node>,
    /// The files.
    pub files: BTreeMap<FileNumber, File>,
    next_file: FileNumber,
}

impl Tree {
    /// The file that a path leads to.
    #[must_use]
    pub fn file_number(&self, path: &str) -> Option<FileNumber> {
        match self.names.get(path) {
            Some(Node::File(number)) => Some(*number),
            _ => None,
        }
    }

    /// The size of the file at `path`, as readers see it.
    #[must_use]
    pub fn size(&self, path: &str) -> Option<usize> {
        let file = self.files.get(&self.file_number(path)?)?;
        file.versions.last().map(|content| content.len())
    }

    fn is_directory(&self, path: &str) -> bool {
        path.is_empty() || self.names.get(path) == Some(&Node::Directory)
    }

    fn is_empty_directory(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.is_directory(path) && !self.names.keys().any(|name| name.starts_with(&below))
    }

    /// Whether the operation must succeed.
    #[must_use]
    pub fn allows(&self, operation: &Operation) -> bool {
        let is_file = |path: &str| self.file_number(path).is_some();
        let is_free =
            |path: &str| self.is_directory(parent(path)) && !self.names.contains_key(path);
        match operation {
            Operation::Create(path)
            | Operation::MakeDirectory(path)
            | Operation::Symlink(path, _) => is_free(path),
            Operation::Write { path, .. }
            | Operation::Truncate(path, _)
            | Operation::SetMode(path, _)
            | Operation::Commit(path) => is_file(path),
            Operation::Link(from, to) => is_file(from) && is_free(to),
            Operation::Rename(from, to) => self.allows_rename(from, to),
            Operation::Remove(path) => {
                matches!(self.names.get(path), Some(Node::File(_) | Node::Symlink(_)))
            }
            Operation::RemoveDirectory(path) => {
                self.names.contains_key(path) && self.is_empty_directory(path)
            }
            Operation::SyncDirectory => true,
        }
    }

    fn allows_rename(&self, from: &str, to: &str) -> bool {
        if from == to || !self.is_directory(parent(to)) || to.starts_with(&format!("{from}/")) {
            return false;
        }
        match (self.names.get(from), self.names.get(to)) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(Node::Directory), Some(_)) => self.is_empty_directory(to),
            // Renaming one name of a file to another of the same file does nothing.
            (Some(Node::File(one)), Some(Node::File(other))) => one != other,
            (Some(_), Some(target)) => *target != Node::Directory,
        }
    }

    /// Does the operation, which must be allowed.
    pub fn apply(&mut self, operation: &Operation) {
        assert!(self.allows(operation), "{operation:?} is not allowed");
        match operation {
            Operation::Create(path) => {
                let number = self.next_file;
                self.next_file += 1;
                self.names.insert(path.clone(), Node::File(number));
                let versions = vec![Arc::default()];
                self.files.insert(number, File { versions, mode: 0o644 });
            }
            Operation::MakeDirectory(path) => {
                self.names.insert(path.clone(), Node::Directory);
            }
            Operation::Symlink(path, text) => {
                self.names.insert(path.clone(), Node::Symlink(text.clone()));
            }
            Operation::Link(from, to) => {
                let node = self.names.get(from).cloned();
                self.names.extend(node.map(|node| (to.clone(), node)));
            }
            Operation::Rename(from, to) => self.rename(from, to),
            Operation::Remove(path) | Operation::RemoveDirectory(path) => {
                self.names.remove(path);
                self.forget_files();
            }
            Operation::SyncDirectory => {}
            Operation::Write { path, .. }
            | Operation::Truncate(path, _)
            | Operation::SetMode(path, _)
            | Operation::Commit(path) => {
                let number = self.file_number(path);
                if let Some(file) = number.and_then(|number| self.files.get_mut(&number)) {
                    file.apply(operation);
                }
            }
        }
    }

    /// Does an operation over FUSE that was under way. The kernel makes several requests of a write
    /// whose first block it has not cached, so of a write any part may be there that begins and
    /// ends with a block.
    pub fn apply_in_part(&mut self, operation: &Operation) {
        let Operation::Write { path, offset, data, .. } = operation else {
            return self.apply(operation);
        };
        let number = self.file_number(path);
        let Some(file) = number.and_then(|number| self.files.get_mut(&number)) else {
            unreachable!("it is allowed")
        };
        let head = (offset.next_multiple_of(BLOCK_BYTES) - offset).min(data.len());
        let (first, rest) = data.split_at(head);
        let (middle, last) = rest.split_at(rest.len() / BLOCK_BYTES * BLOCK_BYTES);
        let mut at = *offset;
        for piece in [first, middle, last] {
            let with = |version: &Arc<Vec<u8>>| Arc::new(written(version, at, piece));
            let more: Vec<_> = file.versions.iter().map(with).collect();
            if !piece.is_empty() {
                file.versions.extend(more);
            }
            at += piece.len();
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moved: Vec<String> =
            self.names.keys().filter(|name| name.starts_with(&below)).cloned().collect();
        for name in moved {
            let node = self.names.remove(&name);
            let name = format!("{to}/{}", &name[below.len()..]);
            self.names.extend(node.map(|node| (name, node)));
        }
        let node = self.names.remove(from);
        self.names.extend(node.map(|node| (to.to_owned(), node)));
        self.forget_files();
    }

    fn forget_files(&mut self) {
        let named: BTreeSet<FileNumber> =
            self.names.keys().filter_map(|path| self.file_number(path)).collect();
        self.files.retain(|number, _| named.contains(number));
    }

    /// What in `found` is not allowed, in words; nothing if all is.
    #[must_use]
    pub fn difference(&self, found: &BTreeMap<String, Found>) -> Vec<String> {
        let mut differences = Vec::new();
        let mut inodes: BTreeMap<FileNumber, u64> = BTreeMap::new();
        for (path, node) in &self.names {
            let Some(there) = found.get(path) else {
                differences.push(format!("{path} is missing"));
                continue;
            };
            let what = match (node, &there.kind) {
                (Node::Directory, FoundKind::Directory) => None,
                (Node::Symlink(text), FoundKind::Symlink(other)) => {
                    (text != other).then(|| format!("leads to {other}, not {text}"))
                }
                (Node::File(number), FoundKind::File(content)) => {
                    let inode = *inodes.entry(*number).or_insert(there.inode);
                    let names = self.names.values().filter(|other| *other == node).count() as u64;
                    match self.files.get(number) {
                        _ if inode != there.inode => Some("is not the file that it was".to_owned()),
                        _ if names != there.links => {
                            Some(format!("has {} links, not {names}", there.links))
                        }
                        Some(file) => file.difference(content, there.mode),
                        None => unreachable!("every name has its file"),
                    }
                }
                _ => Some(format!("is a {:?}", there.kind)),
            };
            differences.extend(what.map(|what| format!("{path} {what}")));
        }
        let extra = found.keys().filter(|path| !self.names.contains_key(*path));
        differences.extend(extra.map(|path| format!("{path} should not be there")));
        differences
    }

    /// Takes what was found for what is: it has been read after a restart, so it lasts.
    pub fn settle(&mut self, found: &BTreeMap<String, Found>) {
        for (path, there) in found {
            let number = self.file_number(path);
            let file = number.and_then(|number| self.files.get_mut(&number));
            if let (Some(file), FoundKind::File(content)) = (file, &there.kind) {
                file.versions = vec![Arc::clone(content)];
            }
        }
    }
}

impl File {
    fn apply(&mut self, operation: &Operation) {
        let last = self.versions.last().cloned().unwrap_or_default();
        match operation {
            Operation::Write { offset, data, stable: false, .. } => {
                self.versions.push(Arc::new(written(&last, *offset, data)));
            }
            // Lasts itself, which says nothing of the unstable writes before.
            Operation::Write { offset, data, .. } => {
                for version in &mut self.versions {
                    write_to(Arc::make_mut(version), *offset, data);
                }
            }
            Operation::Truncate(_, size) => {
                for version in &mut self.versions {
                    Arc::make_mut(version).resize(*size, 0);
                }
            }
            Operation::SetMode(_, mode) => self.mode = *mode,
            Operation::Commit(_) => self.versions = vec![last],
            _ => unreachable!("not an operation on a file"),
        }
    }

    fn difference(&self, found: &[u8], mode: u32) -> Option<String> {
        if mode != self.mode {
            return Some(format!("has mode {mode:o}, not {:o}", self.mode));
        }
        let sizes: Vec<usize> = self.versions.iter().map(|version| version.len()).collect();
        // A block that is lost takes the growth by it along: a size may end with any block.
        let is_between = sizes.iter().any(|size| *size < found.len())
            && sizes.iter().any(|size| *size > found.len());
        let is_by_blocks = is_between && found.len().is_multiple_of(BLOCK_BYTES);
        if !sizes.contains(&found.len()) && !is_by_blocks {
            return Some(format!("has {} bytes, not one of {sizes:?}", found.len()));
        }
        let block_of = |content: &[u8], at: usize| {
            let end = found.len().min(at + BLOCK_BYTES);
            let part = content.get(at.min(content.len())..end.min(content.len()));
            let mut block = part.unwrap_or_default().to_vec();
            block.resize(end - at, 0);
            block
        };
        for at in (0..found.len()).step_by(BLOCK_BYTES) {
            let there = block_of(found, at);
            if !self.versions.iter().any(|version| block_of(version, at) == there) {
                let current = self.versions.last().map(|version| block_of(version, at));
                let current = current.unwrap_or_default();
                let first = current.iter().zip(&there).position(|(one, other)| one != other);
                let zeros = there.iter().filter(|byte| **byte == 0).count();
                let agreeing: Vec<usize> = self
                    .versions
                    .iter()
                    .map(|version| {
                        let block = block_of(version, at);
                        block.iter().zip(&there).take_while(|(one, other)| one == other).count()
                    })
                    .collect();
                return Some(format!(
                    "of {} bytes, versions of {sizes:?}: the block at {at} differs from byte \
                     {first:?} on, agrees with each version up to {agreeing:?}, {zeros} of its {} \
                     bytes are zero",
                    found.len(),
                    there.len()
                ));
            }
        }
        None
    }
}

fn written(content: &[u8], offset: usize, data: &[u8]) -> Vec<u8> {
    let mut content = content.to_vec();
    write_to(&mut content, offset, data);
    content
}

fn write_to(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(inode: u64, content: &[u8]) -> Found {
        let kind = FoundKind::File(Arc::new(content.to_vec()));
        Found { kind, inode, links: 1, mode: 0o644 }
    }

    fn write(offset: usize, byte: u8, length: usize, stable: bool) -> Operation {
        let data = Arc::new(vec![byte; length]);
        Operation::Write { path: "f".to_owned(), offset, data, stable }
    }

    fn tree(operations: &[Operation]) -> Tree {
        let mut tree = Tree::default();
        tree.apply(&Operation::Create("f".to_owned()));
        operations.iter().for_each(|operation| tree.apply(operation));
        tree
    }

    fn is_allowed(tree: &Tree, content: &[u8]) -> bool {
        tree.difference(&BTreeMap::from([("f".to_owned(), found(7, content))])).is_empty()
    }

    #[test]
    fn unstable_data_may_be_lost_by_blocks_until_it_is_committed() {
        let mut tree = tree(&[write(0, 1, 8192, true), write(0, 2, 8192, false)]);
        let mixed = [[1; 4096], [2; 4096]].concat();
        assert!(is_allowed(&tree, &[1; 8192]) && is_allowed(&tree, &[2; 8192]));
        assert!(is_allowed(&tree, &mixed));
        assert!(!is_allowed(&tree, &[3; 8192]) && !is_allowed(&tree, &[2; 8191]));
        tree.apply(&write(8192, 4, 9000, false));
        let grown = [[2; 4096], [1; 4096], [4; 4096]].concat();
        assert!(is_allowed(&tree, &grown) && !is_allowed(&tree, &grown[..12_000]));
        tree.apply(&Operation::Truncate("f".to_owned(), 8192));
        tree.apply(&Operation::Commit("f".to_owned()));
        assert!(is_allowed(&tree, &[2; 8192]) && !is_allowed(&tree, &mixed));
    }

    #[test]
    fn stable_data_lasts_whatever_becomes_of_the_unstable() {
        let tree = tree(&[write(0, 1, 10, false), write(5, 2, 2, true)]);
        assert!(is_allowed(&tree, &[1, 1, 1, 1, 1, 2, 2, 1, 1, 1]));
        assert!(is_allowed(&tree, &[0, 0, 0, 0, 0, 2, 2]));
        assert!(!is_allowed(&tree, &[1; 10]) && !is_allowed(&tree, b""));
    }

    #[test]
    fn a_write_under_way_may_be_there_in_part() {
        let mut tree = tree(&[write(0, 1, 4000, false)]);
        tree.apply_in_part(&write(4090, 2, 4200, true));
        let lost = [vec![0; 4090], vec![2; 6]].concat();
        assert!(is_allowed(&tree, &lost) && is_allowed(&tree, b""));
        let whole = [vec![1; 4000], vec![0; 90], vec![2; 4200]].concat();
        assert!(is_allowed(&tree, &whole) && is_allowed(&tree, &whole[..8192]));
        assert!(!is_allowed(&tree, &whole[..8000]));
    }

    #[test]
    fn names_links_and_kinds_are_compared() {
        let path = |name: &str| name.to_owned();
        let mut tree = tree(&[Operation::MakeDirectory(path("d"))]);
        tree.apply(&Operation::Link(path("f"), path("d/g")));
        tree.apply(&Operation::Rename(path("d"), path("e")));
        let directory = Found { kind: FoundKind::Directory, inode: 1, links: 2, mode: 0o755 };
        let linked = |inode| Found { links: 2, ..found(inode, b"") };
        let mut image = BTreeMap::from([
            (path("e"), directory),
            (path("e/g"), linked(7)),
            (path("f"), linked(7)),
        ]);
        assert_eq!(tree.difference(&image), [""; 0]);
        image.insert(path("f"), linked(8));
        assert_eq!(tree.difference(&image), ["f is not the file that it was"]);
        image.insert(path("f"), found(7, b""));
        assert_eq!(tree.difference(&image), ["f has 1 links, not 2"]);
        image.remove("f");
        image.insert(path("x"), linked(9));
        assert_eq!(tree.difference(&image), ["f is missing", "x should not be there"]);
    }

    #[test]
    fn what_cannot_succeed_is_not_allowed() {
        let path = |name: &str| name.to_owned();
        let tree = tree(&[Operation::MakeDirectory(path("d"))]);
        assert!(!tree.allows(&Operation::Create(path("f"))));
        assert!(!tree.allows(&Operation::Create(path("f/x"))));
        assert!(!tree.allows(&Operation::Rename(path("d"), path("d/x"))));
        assert!(!tree.allows(&Operation::Rename(path("d"), path("f"))));
        assert!(!tree.allows(&Operation::Rename(path("f"), path("d"))));
        assert!(!tree.allows(&Operation::Remove(path("d"))));
        assert!(tree.allows(&Operation::RemoveDirectory(path("d"))));
    }
}
