//! A file of the memory backend and what it holds.
//!
//! Invariants: a directory's `entries` and `names` are inverse to each other; cookies grow and are
//! never given twice in one directory.

use super::data::FileData;
use crate::acl::Acl;
use crate::rules::acls::AclKind;
use crate::{AccessList, Attributes, FileKind, FsError};
use std::collections::BTreeMap;
use units::InodeNumber;

/// Cookie of `.`.
pub(super) const COOKIE_SELF: u64 = 1;
/// Cookie of `..`.
pub(super) const COOKIE_PARENT: u64 = 2;
const COOKIE_FIRST: u64 = 3;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub attributes: Attributes,
    pub content: Content,
    /// But for the access control lists.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The list that new files inherit, of a directory.
    pub default_acl: Option<Acl>,
    /// Open files (`FileService::hold`).
    pub holds: u64,
    /// Made without a name, and has had none since.
    pub is_unnamed: bool,
    /// Of the exclusive create that made the file.
    pub verifier: Option<u64>,
    /// The quota tree that it counts to, by the inode of the tree's directory; 0: none.
    pub tree: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Regular(FileData),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub inode: InodeNumber,
    pub cookie: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub parent: InodeNumber,
    entries: BTreeMap<Vec<u8>, Slot>,
    names: BTreeMap<u64, Vec<u8>>,
    cookie_next: u64,
}

impl Directory {
    pub(super) fn new(parent: InodeNumber) -> Self {
        Self { parent, entries: BTreeMap::new(), names: BTreeMap::new(), cookie_next: COOKIE_FIRST }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<InodeNumber> {
        self.entries.get(name).map(|slot| slot.inode)
    }

    pub(super) fn insert(&mut self, name: &[u8], inode: InodeNumber) {
        let slot = Slot { inode, cookie: self.cookie_next };
        self.cookie_next += 1;
        self.names.insert(slot.cookie, name.to_vec());
        let old = self.entries.insert(name.to_vec(), slot);
        assert!(old.is_none(), "the name was free");
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        let slot = self.entries.remove(name);
        let name = slot.and_then(|slot| self.names.remove(&slot.cookie));
        assert!(name.is_some(), "the name was there");
    }

    /// Points an existing name at another file; its cookie stays.
    pub(super) fn replace(&mut self, name: &[u8], inode: InodeNumber) {
        let Some(slot) = self.entries.get_mut(name) else { unreachable!("the name is there") };
        slot.inode = inode;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], InodeNumber)> {
        let later = (std::ops::Bound::Excluded(cookie), std::ops::Bound::Unbounded);
        self.names.range::<u64, _>(later).filter_map(|(cookie, name)| {
            self.get(name).map(|inode| (*cookie, name.as_slice(), inode))
        })
    }
}

impl Node {
    pub(super) fn new(attributes: Attributes, content: Content) -> Self {
        Self {
            attributes,
            content,
            xattrs: BTreeMap::new(),
            default_acl: None,
            holds: 0,
            is_unnamed: false,
            verifier: None,
            tree: 0,
        }
    }

    pub(super) fn directory(&self) -> Result<&Directory, FsError> {
        match &self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotDirectory),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory, FsError> {
        match &mut self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotDirectory),
        }
    }

    pub(super) fn data(&self) -> Result<&FileData, FsError> {
        match &self.content {
            Content::Regular(data) => Ok(data),
            Content::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid),
        }
    }

    pub(super) fn data_mut(&mut self) -> Result<&mut FileData, FsError> {
        match &mut self.content {
            Content::Regular(data) => Ok(data),
            Content::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid),
        }
    }

    /// An access control list as clients see it.
    pub(super) fn acl(&self, kind: AclKind) -> Option<Vec<u8>> {
        match (kind, &self.attributes.acl) {
            (AclKind::Access, AccessList::Read(class)) => {
                Some(Acl::of_access(self.attributes.mode, class).value())
            }
            (AclKind::Access, _) => None,
            (AclKind::Default, _) => self.default_acl.as_ref().map(Acl::value),
        }
    }

    /// The names of all extended attributes, in order.
    pub(super) fn xattr_names(&self) -> Vec<Vec<u8>> {
        let kinds = [AclKind::Access, AclKind::Default].into_iter();
        let lists = kinds.filter(|kind| self.acl(*kind).is_some()).map(|kind| kind.name().to_vec());
        let mut names: Vec<Vec<u8>> = self.xattrs.keys().cloned().chain(lists).collect();
        names.sort_unstable();
        names
    }

    /// The quota tree around the file: a tree's own directory lies in none.
    pub(super) fn tree_around(&self) -> u64 {
        if self.tree == self.attributes.inode.get() { 0 } else { self.tree }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }
}
