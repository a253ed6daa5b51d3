//! One volume in memory: its files, and what all operations need of them.
//!
//! Invariants (checked by [`Volume::verify`]): a file is in `nodes` while it has links or is held;
//! link counts are what the directories say; `used_blocks` is the sum of the files' blocks. An
//! inode number that became free is given again, lowest first, with the next generation.

use super::node::{Content, Directory, Node};
use crate::rules::attributes::{self, NewIdentity};
use crate::{
    AccessList, Attributes, Caller, Entry, FileHandle, FileKind, FsError, Limits, NodeChange,
    SetAttributes,
};
use std::collections::{BTreeMap, BTreeSet};
use units::{BLOCK_SIZE_U64, Generation, InodeNumber, SnapshotId, Timestamp, VolumeUuid};

/// The root directory's inode number. Numbers below are kept free, as other file systems do.
const ROOT: InodeNumber = InodeNumber(2);
const GENERATION_FIRST: u32 = 1;

/// Sizes of a volume in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeOptions {
    /// Room for data, in 4 KiB blocks.
    pub blocks_max: u64,
    /// Most files.
    pub files_max: u64,
    /// Permission bits of the root directory, which belongs to root.
    pub root_mode: u32,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        // 64 GiB and a million files: more than tests fill by accident, less than they overflow.
        Self { blocks_max: 16 << 20, files_max: 1 << 20, root_mode: 0o755 }
    }
}

/// What every operation knows beside its arguments.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub caller: &'a Caller,
    pub now: Timestamp,
    pub limits: Limits,
}

pub(super) struct Volume {
    pub name: String,
    pub identity: VolumeUuid,
    pub options: VolumeOptions,
    pub nodes: BTreeMap<InodeNumber, Node>,
    pub used_blocks: u64,
    /// The generation that each inode number had last.
    generations: BTreeMap<InodeNumber, u32>,
    free_inodes: BTreeSet<InodeNumber>,
    inode_next: InodeNumber,
}

impl Volume {
    pub(super) fn new(
        name: &str,
        volume: VolumeUuid,
        options: VolumeOptions,
        now: Timestamp,
    ) -> Self {
        let identity = NewIdentity {
            inode: ROOT,
            generation: Generation(GENERATION_FIRST),
            kind: FileKind::Directory,
        };
        let root = Attributes {
            inode: ROOT,
            generation: identity.generation,
            kind: FileKind::Directory,
            mode: options.root_mode & attributes::MODE_MASK,
            acl: AccessList::None,
            links: 2,
            uid: 0,
            gid: 0,
            size: BLOCK_SIZE_U64,
            used: BLOCK_SIZE_U64,
            device: (0, 0),
            file_system: volume.half(),
            atime: now,
            mtime: now,
            ctime: now,
            birth: now,
            change: 1,
        };
        let node = Node::new(root, Content::Directory(Directory::new(ROOT)));
        Self {
            name: name.to_owned(),
            identity: volume,
            options,
            nodes: BTreeMap::from([(ROOT, node)]),
            used_blocks: 0,
            generations: BTreeMap::from([(ROOT, GENERATION_FIRST)]),
            free_inodes: BTreeSet::new(),
            inode_next: ROOT.offset(1),
        }
    }

    pub(super) fn root(&self) -> Entry {
        self.entry(ROOT)
    }

    pub(super) fn node(&self, handle: FileHandle) -> Result<&Node, FsError> {
        if handle.snapshot != SnapshotId::ACTIVE {
            return Err(FsError::Stale);
        }
        let node = self.nodes.get(&handle.inode).ok_or(FsError::Stale)?;
        if node.attributes.generation == handle.generation { Ok(node) } else { Err(FsError::Stale) }
    }

    pub(super) fn node_mut(&mut self, handle: FileHandle) -> Result<&mut Node, FsError> {
        self.node(handle)?;
        Ok(self.known_mut(handle.inode))
    }

    /// A file that a directory entry or an earlier step has named.
    pub(super) fn known(&self, inode: InodeNumber) -> &Node {
        let Some(node) = self.nodes.get(&inode) else { unreachable!("{inode} has a name") };
        node
    }

    pub(super) fn known_mut(&mut self, inode: InodeNumber) -> &mut Node {
        let Some(node) = self.nodes.get_mut(&inode) else { unreachable!("{inode} has a name") };
        node
    }

    /// As [`Self::known_mut`], of a directory.
    pub(super) fn known_directory(&mut self, inode: InodeNumber) -> &mut Directory {
        let Ok(directory) = self.known_mut(inode).directory_mut() else {
            unreachable!("{inode} is a directory")
        };
        directory
    }

    pub(super) fn entry(&self, inode: InodeNumber) -> Entry {
        let mut attributes = self.known(inode).attributes.clone();
        attributes.acl = attributes.acl.unread();
        let handle = FileHandle {
            volume: self.identity,
            inode,
            generation: attributes.generation,
            snapshot: SnapshotId::ACTIVE,
        };
        Entry { handle, attributes }
    }

    /// The identity that the next file will have.
    pub(super) fn next_identity(&self, kind: FileKind) -> Result<NewIdentity, FsError> {
        if self.nodes.len() as u64 >= self.options.files_max {
            return Err(FsError::NoSpace);
        }
        let inode = self.free_inodes.first().copied().unwrap_or(self.inode_next);
        let last = self.generations.get(&inode).copied();
        let generation = last.map_or(GENERATION_FIRST, |last| last.wrapping_add(1));
        Ok(NewIdentity { inode, generation: Generation(generation), kind })
    }

    /// Puts a file under the identity that [`Self::next_identity`] gave.
    pub(super) fn insert(&mut self, node: Node) -> InodeNumber {
        let inode = node.attributes.inode;
        if !self.free_inodes.remove(&inode) {
            assert_eq!(inode, self.inode_next, "identities are taken in order");
            self.inode_next = inode.offset(1);
        }
        self.generations.insert(inode, node.attributes.generation.get());
        let old = self.nodes.insert(inode, node);
        assert!(old.is_none(), "{inode} was free");
        inode
    }

    /// Frees the file if nothing needs it any more.
    pub(super) fn reap(&mut self, inode: InodeNumber) {
        let Some(node) = self.nodes.get(&inode) else { return };
        if node.attributes.links == 0 && node.holds == 0 {
            self.used_blocks -= node.data().map_or(0, |data| data.used_blocks());
            self.nodes.remove(&inode);
            self.free_inodes.insert(inode);
        }
    }

    /// # Errors
    /// `NoSpace` unless `blocks` more fit.
    pub(super) fn check_room(&self, blocks: u64) -> Result<(), FsError> {
        let room = self.options.blocks_max.saturating_sub(self.used_blocks);
        if blocks <= room { Ok(()) } else { Err(FsError::NoSpace) }
    }

    /// Recounts what a file uses, after its data changed.
    pub(super) fn recount(&mut self, inode: InodeNumber) {
        let node = self.known_mut(inode);
        let Ok(data) = node.data() else { unreachable!("only regular files are recounted") };
        let (before, after) = (node.attributes.used / BLOCK_SIZE_U64, data.used_blocks());
        node.attributes.used = after * BLOCK_SIZE_U64;
        self.used_blocks = self.used_blocks - before + after;
    }

    /// Cuts or extends a file to the size that its attributes have now.
    pub(super) fn resize(&mut self, inode: InodeNumber) {
        let node = self.known_mut(inode);
        let size = node.attributes.size;
        let Ok(data) = node.data_mut() else { unreachable!("only regular files have a size") };
        data.truncate(size);
        self.recount(inode);
    }

    pub(super) fn set_attributes(
        &mut self,
        context: Context<'_>,
        file: FileHandle,
        set: &SetAttributes,
    ) -> Result<NodeChange, FsError> {
        let Context { caller, now, limits } = context;
        let node = self.node_mut(file)?;
        let before = node.attributes.clone();
        node.attributes = attributes::changed(caller, &before, set, limits.file_bytes_max, now)?;
        if set.size.is_some() {
            node.xattrs.remove(crate::rules::xattrs::CAPABILITY);
            self.resize(file.inode);
        } else if set.uid.is_some() || set.gid.is_some() {
            node.xattrs.remove(crate::rules::xattrs::CAPABILITY);
        }
        Ok(change(&before, &self.known(file.inode).attributes))
    }

    /// Checks the volume's invariants.
    pub(super) fn verify(&self) {
        let mut links: BTreeMap<InodeNumber, u32> = BTreeMap::from([(ROOT, 2)]);
        let mut used = 0;
        for (inode, node) in &self.nodes {
            assert_eq!(*inode, node.attributes.inode);
            assert!(node.attributes.links > 0 || node.holds > 0, "{inode} is needed by nothing");
            match &node.content {
                Content::Regular(data) => {
                    data.verify(node.attributes.size);
                    used += data.used_blocks();
                    assert_eq!(node.attributes.used, data.used_blocks() * BLOCK_SIZE_U64);
                }
                Content::Directory(directory) => {
                    assert_eq!(directory.after(0).count(), directory.len());
                    for (_, _, child) in directory.after(0) {
                        let is_directory = self.known(child).is_directory();
                        *links.entry(child).or_default() += if is_directory { 2 } else { 1 };
                        *links.entry(*inode).or_default() += u32::from(is_directory);
                        if let Ok(below) = self.known(child).directory() {
                            assert_eq!(below.parent, *inode, "'..' leads up");
                        }
                    }
                }
                Content::Symlink(text) => assert_eq!(text.len() as u64, node.attributes.size),
                Content::Special => assert_eq!(node.attributes.size, 0),
            }
        }
        assert_eq!(used, self.used_blocks);
        for (inode, node) in &self.nodes {
            let counted = links.get(inode).copied().unwrap_or(0);
            assert_eq!(node.attributes.links, counted, "links of {inode}");
        }
    }
}

/// The change that took a file from `before` to `after`.
pub(super) fn change(before: &Attributes, after: &Attributes) -> NodeChange {
    NodeChange { before: (before.size, before.mtime, before.ctime), after: after.clone() }
}
