//! Operations on directories: look up, make, link, remove, rename, list.
//!
//! Invariants: an operation checks everything and then changes; it never fails half done.

use super::data::FileData;
use super::node::{COOKIE_PARENT, COOKIE_SELF, Content, Directory, Node};
use super::volume::{Context, Volume, change};
use crate::permission::{self, MODE_READ};
use crate::rules::attributes::{self as attribute_rules, touch, touch_content};
use crate::rules::entries::{self, RenameAction, RenameParties};
use crate::rules::names;
use crate::{
    Attributes, CreateMode, DirectoryEntry, DirectoryPage, Entry, FileHandle, FileKind, FsError,
    NewNode, NodeChange, RenameFlags, SetAttributes,
};
use units::{InodeNumber, Timestamp};

type Place<'a> = (FileHandle, &'a [u8]);
type Removed = Result<NodeChange, FsError>;

impl Volume {
    /// The file that an ordinary name leads to, after the check for search permission.
    fn find(
        &self,
        context: Context<'_>,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Option<InodeNumber>, FsError> {
        let node = self.node(directory)?;
        entries::check_search(context.caller, &node.attributes)?;
        Ok(node.directory()?.get(name))
    }

    pub(super) fn lookup(
        &self,
        context: Context<'_>,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Entry, FsError> {
        let found = self.find(context, directory, name)?;
        names::check_name(name)?;
        let inode = match name {
            b"." => Some(directory.inode),
            // The parent of a removed directory may be gone.
            b".." if self.node(directory)?.attributes.links == 0 => None,
            b".." => Some(self.node(directory)?.directory()?.parent),
            _ => found,
        };
        inode.map(|inode| self.entry(inode)).ok_or(FsError::NotFound)
    }

    pub(super) fn create(
        &mut self,
        context: Context<'_>,
        directory: FileHandle,
        name: &[u8],
        mode: CreateMode,
        set: &SetAttributes,
    ) -> Result<(Entry, NodeChange), FsError> {
        if let Some(inode) = self.find(context, directory, name)? {
            return self.create_existing(context, directory, inode, mode, set);
        }
        names::check_new_name(name)?;
        if set.size.is_some_and(|size| size > context.limits.file_bytes_max) {
            return Err(FsError::FileTooLarge);
        }
        let content = Content::Regular(FileData::default());
        let made = self.add(context, directory, name, (FileKind::Regular, content), set)?;
        let node = self.known_mut(made.0.handle.inode);
        node.attributes.size = set.size.unwrap_or(0);
        node.verifier = match mode {
            CreateMode::Exclusive(verifier) => Some(verifier),
            CreateMode::Unchecked | CreateMode::Guarded => None,
        };
        Ok((self.entry(made.0.handle.inode), made.1))
    }

    fn create_existing(
        &mut self,
        context: Context<'_>,
        directory: FileHandle,
        inode: InodeNumber,
        mode: CreateMode,
        set: &SetAttributes,
    ) -> Result<(Entry, NodeChange), FsError> {
        let entry = self.entry(inode);
        let node = self.known(inode);
        match mode {
            CreateMode::Guarded => return Err(FsError::Exists),
            CreateMode::Exclusive(verifier) if node.verifier != Some(verifier) => {
                return Err(FsError::Exists);
            }
            CreateMode::Exclusive(_) => {}
            CreateMode::Unchecked if node.is_directory() => return Err(FsError::IsDirectory),
            CreateMode::Unchecked if node.attributes.kind != FileKind::Regular => {
                return Err(FsError::Exists);
            }
            CreateMode::Unchecked => {
                let size_only = SetAttributes { size: set.size, ..SetAttributes::default() };
                self.set_attributes(context, entry.handle, &size_only)?;
            }
        }
        let parent = &self.node(directory)?.attributes;
        Ok((self.entry(inode), change(parent, parent)))
    }

    pub(super) fn make_node(
        &mut self,
        context: Context<'_>,
        directory: FileHandle,
        name: &[u8],
        node: NewNode,
        set: &SetAttributes,
    ) -> Result<(Entry, NodeChange), FsError> {
        if self.find(context, directory, name)?.is_some() {
            return Err(FsError::Exists);
        }
        names::check_new_name(name)?;
        entries::check_device(context.caller, &node)?;
        let mut device = (0, 0);
        let (kind, content) = match node {
            NewNode::Directory => {
                (FileKind::Directory, Content::Directory(Directory::new(directory.inode)))
            }
            NewNode::Symlink(text) => {
                names::check_symlink(&text)?;
                (FileKind::Symlink, Content::Symlink(text))
            }
            NewNode::BlockDevice(major, minor) => {
                device = (major, minor);
                (FileKind::BlockDevice, Content::Special)
            }
            NewNode::CharacterDevice(major, minor) => {
                device = (major, minor);
                (FileKind::CharacterDevice, Content::Special)
            }
            NewNode::Fifo => (FileKind::Fifo, Content::Special),
            NewNode::Socket => (FileKind::Socket, Content::Special),
        };
        let made = self.add(context, directory, name, (kind, content), set)?;
        self.known_mut(made.0.handle.inode).attributes.device = device;
        Ok((self.entry(made.0.handle.inode), made.1))
    }

    fn add(
        &mut self,
        context: Context<'_>,
        directory: FileHandle,
        name: &[u8],
        (kind, content): (FileKind, Content),
        set: &SetAttributes,
    ) -> Result<(Entry, NodeChange), FsError> {
        let before = self.node(directory)?.attributes.clone();
        entries::check_add(context.caller, &before, kind)?;
        let identity = self.next_identity(kind)?;
        let default = self.node(directory)?.default_acl.clone();
        let parent = (&before, default.as_ref());
        let mut file =
            attribute_rules::created(context.caller, parent, identity, set, context.now)?;
        match &content {
            Content::Directory(_) => {
                file.size = units::BLOCK_SIZE_U64;
                file.used = units::BLOCK_SIZE_U64;
            }
            Content::Symlink(text) => file.size = text.len() as u64,
            Content::Regular(_) | Content::Special => {}
        }
        let mut node = Node::new(file, content);
        node.default_acl = default.filter(|_| kind == FileKind::Directory);
        node.tree = self.node(directory)?.tree;
        let inode = self.insert(node);
        self.known_directory(directory.inode).insert(name, inode);
        let parent = self.known_mut(directory.inode);
        parent.attributes.links += u32::from(kind == FileKind::Directory);
        touch_content(&mut parent.attributes, context.now);
        let after = change(&before, &parent.attributes);
        Ok((self.entry(inode), after))
    }

    pub(super) fn create_unnamed(
        &mut self,
        context: Context<'_>,
        directory: FileHandle,
        set: &SetAttributes,
    ) -> Result<Entry, FsError> {
        let parent = self.node(directory)?.attributes.clone();
        entries::check_search(context.caller, &parent)?;
        entries::check_add(context.caller, &parent, FileKind::Regular)?;
        let identity = self.next_identity(FileKind::Regular)?;
        let parent = (&parent, self.node(directory)?.default_acl.as_ref());
        let mut file =
            attribute_rules::created(context.caller, parent, identity, set, context.now)?;
        file.links = 0;
        let mut node = Node::new(file, Content::Regular(FileData::default()));
        (node.holds, node.is_unnamed) = (1, true);
        node.tree = self.node(directory)?.tree;
        let inode = self.insert(node);
        Ok(self.entry(inode))
    }

    pub(super) fn link(
        &mut self,
        context: Context<'_>,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(Attributes, NodeChange), FsError> {
        self.node(file)?;
        if self.find(context, directory, name)?.is_some() {
            return Err(FsError::Exists);
        }
        names::check_new_name(name)?;
        let before = self.node(directory)?.attributes.clone();
        let linked = self.node(file)?;
        entries::check_link(context.caller, &linked.attributes, &before, linked.is_unnamed)?;
        self.check_tree(file.inode, directory.inode)?;
        self.known_directory(directory.inode).insert(name, file.inode);
        self.touch_entries(directory.inode, context.now);
        let linked = self.known_mut(file.inode);
        linked.is_unnamed = false;
        let linked = &mut linked.attributes;
        linked.links += 1;
        touch(linked, context.now);
        let linked = linked.clone();
        Ok((linked, change(&before, &self.known(directory.inode).attributes)))
    }

    pub(super) fn remove(&mut self, context: Context<'_>, at: Place<'_>) -> Removed {
        let found = self.find(context, at.0, at.1)?;
        entries::check_removable_name(at.1)?;
        let (victim, before) = self.victim(found, at.0)?;
        entries::check_remove(context.caller, &before, &self.known(victim).attributes)?;
        Ok(self.take_away(victim, at, &before, context.now))
    }

    pub(super) fn remove_directory(&mut self, context: Context<'_>, at: Place<'_>) -> Removed {
        let found = self.find(context, at.0, at.1)?;
        entries::check_removable_directory_name(at.1)?;
        let (victim, before) = self.victim(found, at.0)?;
        entries::check_remove_directory(context.caller, &before, &self.known(victim).attributes)?;
        if !self.known(victim).directory()?.is_empty() {
            return Err(FsError::NotEmpty);
        }
        self.known_mut(at.0.inode).attributes.links -= 1;
        Ok(self.take_away(victim, at, &before, context.now))
    }

    /// The file that a name led to, and its directory's attributes.
    fn victim(
        &self,
        found: Option<InodeNumber>,
        directory: FileHandle,
    ) -> Result<(InodeNumber, Attributes), FsError> {
        let victim = found.ok_or(FsError::NotFound)?;
        Ok((victim, self.node(directory)?.attributes.clone()))
    }

    /// Removes a name that may be removed.
    fn take_away(
        &mut self,
        victim: InodeNumber,
        (directory, name): Place<'_>,
        before: &Attributes,
        now: Timestamp,
    ) -> NodeChange {
        self.known_directory(directory.inode).remove(name);
        self.touch_entries(directory.inode, now);
        self.unlink(victim, now);
        change(before, &self.known(directory.inode).attributes)
    }

    /// Takes one name from a file; an empty directory loses its own `.` with it.
    fn unlink(&mut self, inode: InodeNumber, now: Timestamp) {
        let node = self.known_mut(inode);
        let is_directory = node.is_directory();
        node.attributes.links -= if is_directory { 2 } else { 1 };
        assert!(!is_directory || node.attributes.links == 0, "a removed directory is empty");
        touch(&mut node.attributes, now);
        self.reap(inode);
    }

    fn touch_entries(&mut self, directory: InodeNumber, now: Timestamp) {
        touch_content(&mut self.known_mut(directory).attributes, now);
    }

    pub(super) fn rename(
        &mut self,
        context: Context<'_>,
        from: Place<'_>,
        to: Place<'_>,
        flags: RenameFlags,
    ) -> Result<(NodeChange, NodeChange), FsError> {
        self.node(to.0)?.directory()?;
        let source = self.find(context, from.0, from.1)?;
        let target = self.find(context, to.0, to.1)?;
        entries::check_rename_arguments(from.1, to.1, flags)?;
        let source = source.ok_or(FsError::NotFound)?;
        for (file, below) in [(Some(source), to.0.inode), (target, from.0.inode)] {
            if file.is_some_and(|file| self.is_ancestor(file, below)) {
                return Err(entries::ancestor_error(file == Some(source), flags));
            }
        }
        let parties = RenameParties {
            from_directory: &self.known(from.0.inode).attributes,
            from_file: &self.known(source).attributes,
            to_directory: &self.known(to.0.inode).attributes,
            to_file: target.map(|inode| &self.known(inode).attributes),
        };
        let before = (parties.from_directory.clone(), parties.to_directory.clone());
        let action = entries::check_rename(context.caller, parties, flags)?;
        if action != RenameAction::Nothing {
            self.check_tree(source, to.0.inode)?;
        }
        if let (RenameAction::Exchange, Some(target)) = (action, target) {
            self.check_tree(target, from.0.inode)?;
        }
        match (action, target) {
            (RenameAction::Replace, Some(target)) => self.replace(context, target, to)?,
            (RenameAction::Exchange, Some(target)) => self.exchange(from, to, source, target),
            (RenameAction::Nothing | RenameAction::Move, _) => {}
            (RenameAction::Replace | RenameAction::Exchange, None) => {
                unreachable!("there is a target to replace or swap")
            }
        }
        if matches!(action, RenameAction::Move | RenameAction::Replace) {
            self.known_directory(from.0.inode).remove(from.1);
            self.known_directory(to.0.inode).insert(to.1, source);
            self.adopt(source, from.0.inode, to.0.inode);
        }
        if action != RenameAction::Nothing {
            self.touch_rename(context.now, [from.0.inode, to.0.inode], source);
            if let (RenameAction::Exchange, Some(target)) = (action, target) {
                touch(&mut self.known_mut(target).attributes, context.now);
            }
        }
        Ok((
            change(&before.0, &self.known(from.0.inode).attributes),
            change(&before.1, &self.known(to.0.inode).attributes),
        ))
    }

    /// # Errors
    /// `CrossDevice` if a file may not get a name in a directory, as far as quota trees go.
    fn check_tree(&self, file: InodeNumber, directory: InodeNumber) -> Result<(), FsError> {
        entries::check_tree(self.known(file).tree_around(), self.known(directory).tree)
    }

    /// Makes an empty directory a quota tree.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`, `NotEmpty`; `Invalid` for the root directory, `CrossDevice` within
    /// a tree.
    pub(super) fn make_tree(&mut self, directory: FileHandle) -> Result<(), FsError> {
        let (is_root, node) = (directory.inode == self.root().handle.inode, self.node(directory)?);
        let is_empty = node.directory()?.is_empty();
        if is_root {
            return Err(FsError::Invalid);
        }
        entries::check_tree(node.tree_around(), 0)?;
        if node.tree == 0 && !is_empty {
            return Err(FsError::NotEmpty);
        }
        self.node_mut(directory)?.tree = directory.inode.get();
        Ok(())
    }

    fn touch_rename(&mut self, now: Timestamp, parents: [InodeNumber; 2], file: InodeNumber) {
        self.touch_entries(parents[0], now);
        if parents[1] != parents[0] {
            self.touch_entries(parents[1], now);
        }
        touch(&mut self.known_mut(file).attributes, now);
    }

    /// Removes what has the new name.
    fn replace(
        &mut self,
        context: Context<'_>,
        target: InodeNumber,
        to: Place<'_>,
    ) -> Result<(), FsError> {
        let node = self.known(target);
        let is_directory = node.is_directory();
        if is_directory && !node.directory()?.is_empty() {
            return Err(FsError::NotEmpty);
        }
        self.known_directory(to.0.inode).remove(to.1);
        self.known_mut(to.0.inode).attributes.links -= u32::from(is_directory);
        self.unlink(target, context.now);
        Ok(())
    }

    fn exchange(
        &mut self,
        from: Place<'_>,
        to: Place<'_>,
        source: InodeNumber,
        target: InodeNumber,
    ) {
        self.known_directory(from.0.inode).replace(from.1, target);
        self.known_directory(to.0.inode).replace(to.1, source);
        self.adopt(source, from.0.inode, to.0.inode);
        self.adopt(target, to.0.inode, from.0.inode);
    }

    /// Gives a directory another parent.
    fn adopt(&mut self, child: InodeNumber, from: InodeNumber, to: InodeNumber) {
        if from == to || !self.known(child).is_directory() {
            return;
        }
        self.known_directory(child).parent = to;
        self.known_mut(from).attributes.links -= 1;
        self.known_mut(to).attributes.links += 1;
    }

    /// Whether `file` is `below` or one of its ancestors.
    fn is_ancestor(&self, file: InodeNumber, below: InodeNumber) -> bool {
        let mut at = below;
        loop {
            if at == file {
                return true;
            }
            let Some(Ok(directory)) = self.nodes.get(&at).map(Node::directory) else {
                return false;
            };
            if directory.parent == at {
                return false;
            }
            at = directory.parent;
        }
    }

    pub(super) fn read_directory(
        &mut self,
        context: Context<'_>,
        handle: FileHandle,
        cookie: u64,
        entries_max: u32,
        with_attributes: bool,
    ) -> Result<DirectoryPage, FsError> {
        let node = self.node_mut(handle)?;
        node.directory()?;
        permission::check(context.caller, &node.attributes, MODE_READ)?;
        if attribute_rules::atime_is_due(&node.attributes, context.now) {
            node.attributes.atime = context.now;
        }
        let mut attributes = node.attributes.clone();
        attributes.acl = attributes.acl.unread();
        let directory = self.node(handle)?.directory()?;
        let removed = attributes.links == 0;
        let dots = [
            (COOKIE_SELF, b".".as_slice(), handle.inode),
            (COOKIE_PARENT, b"..".as_slice(), directory.parent),
        ];
        let dots = dots.into_iter().filter(|(at, _, _)| *at > cookie && !removed);
        let mut rest = dots.chain(directory.after(cookie.max(COOKIE_PARENT))).peekable();
        let mut entries = Vec::new();
        while entries.len() < entries_max as usize {
            let Some((cookie, name, inode)) = rest.next() else { break };
            entries.push(DirectoryEntry {
                name: name.to_vec(),
                cookie,
                inode,
                kind: self.known(inode).attributes.kind,
                entry: with_attributes.then(|| self.entry(inode)),
            });
        }
        let end = rest.peek().is_none();
        Ok(DirectoryPage { entries, end, attributes })
    }
}
