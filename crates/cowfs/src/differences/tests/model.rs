//! A small volume in memory: files that are changed one at a time, images of it in the format, and
//! a naive comparison of what two images should hold.
//!
//! Invariants: an image that was made stays as it is. Of files that did not change since the last
//! image the new one has the same blocks.

use super::super::{Change, Difference, Differences};
use crate::buftree::{FileKey, Root};
use crate::cleaner::{FileCleaner, Leaf};
use crate::content::Content;
use crate::directory::{self, DirectoryBlocks, DirectoryError, Entry, Member};
use crate::inode::{InodeAttributes, position};
use crate::logical::inode_file_key;
use crate::ranges::RangeSet;
use crate::test_media::Media;
use ondisk::inode::{INODE_SIZE, INODES_PER_BLOCK, InodeRecord, KIND_DIRECTORY, KIND_REGULAR};
use ondisk::pointer::DualPointer;
use ondisk::root::metafile;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Block, BlockRef, Fbn, Generation, InodeNumber, Timestamp, VolumeId};
use zerocopy::IntoBytes;

pub const VOLUME: VolumeId = VolumeId(1);
pub const ROOT: u64 = metafile::ROOT_DIRECTORY;

/// A directory's blocks in memory.
#[derive(Default)]
struct Blocks {
    blocks: Vec<BlockRef>,
    changed: BTreeSet<u64>,
}

impl DirectoryBlocks for Blocks {
    type Wait = ();

    fn size_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn read(&mut self, fbn: Fbn) -> Result<BlockRef, DirectoryError<()>> {
        Ok(Arc::clone(&self.blocks[fbn.get() as usize]))
    }

    fn write(&mut self, fbn: Fbn) -> Result<&mut Block, DirectoryError<()>> {
        if fbn.get() == self.size_blocks() {
            self.blocks.push(Arc::new(Block::zeroed()));
        }
        self.changed.insert(fbn.get());
        Ok(Arc::make_mut(&mut self.blocks[fbn.get() as usize]))
    }

    fn truncate(&mut self, size_blocks: u64) {
        self.blocks.truncate(size_blocks as usize);
        self.changed.retain(|fbn| *fbn < size_blocks);
    }
}

struct File {
    attributes: InodeAttributes,
    root: Root<DualPointer>,
    /// Of a directory.
    blocks: Blocks,
    entries: BTreeMap<String, u64>,
    is_spoiled: bool,
}

/// See the module.
pub struct Volume {
    pub media: Media,
    inode_file: Root<DualPointer>,
    files: BTreeMap<u64, File>,
    dirty: BTreeSet<u64>,
    now: i64,
    generation: u32,
}

/// What an image should tell of a file.
#[derive(Clone, PartialEq)]
pub struct Told {
    attributes: InodeAttributes,
    /// Each name's path, directory and last part.
    names: BTreeSet<(String, (u64, u32, String))>,
}

/// A change of the volume. What numbers do not fit is left out.
#[derive(Clone, Debug)]
pub enum Step {
    Create(usize, u8, bool),
    Remove(usize),
    Rename(usize, usize, u8),
    Link(usize, usize, u8),
    Modify(usize),
    SetMode(usize, u16),
    Read(usize),
}

pub fn step() -> impl Strategy<Value = Step> {
    let pick = || 0..100_usize;
    let name = || 0..6_u8;
    prop_oneof![
        6 => (pick(), name(), any::<bool>()).prop_map(|(to, name, is)| Step::Create(to, name, is)),
        2 => pick().prop_map(Step::Remove),
        3 => (pick(), pick(), name()).prop_map(|(from, to, name)| Step::Rename(from, to, name)),
        1 => (pick(), pick(), name()).prop_map(|(from, to, name)| Step::Link(from, to, name)),
        2 => pick().prop_map(Step::Modify),
        1 => (pick(), 0..3_u16).prop_map(|(file, mode)| Step::SetMode(file, mode)),
        1 => pick().prop_map(Step::Read),
    ]
}

impl Volume {
    pub fn new() -> Self {
        let mut volume = Self {
            media: Media::default(),
            inode_file: Root::default(),
            files: BTreeMap::new(),
            dirty: BTreeSet::new(),
            now: 0,
            generation: 0,
        };
        volume.add(ROOT, KIND_DIRECTORY);
        volume.make_directory(ROOT, ROOT);
        volume
    }

    fn add(&mut self, inode: u64, kind: u8) {
        self.generation += 1;
        let now = self.tick();
        let mut attributes = InodeAttributes::new(kind, 0o644, Generation(self.generation), now);
        attributes.links = if kind == KIND_DIRECTORY { 2 } else { 1 };
        let (root, blocks, entries) = (Root::default(), Blocks::default(), BTreeMap::new());
        self.files.insert(inode, File { attributes, root, blocks, entries, is_spoiled: false });
        self.dirty.insert(inode);
    }

    fn make_directory(&mut self, inode: u64, parent: u64) {
        let (this, parent) = (self.member(inode), self.member(parent));
        directory::create(&mut self.edit(inode).blocks, this, parent, [1, 2]).unwrap();
    }

    fn tick(&mut self) -> Timestamp {
        self.now += 1;
        Timestamp(self.now)
    }

    fn member(&self, inode: u64) -> Member {
        Member::of_this_volume(InodeNumber(inode), self.files[&inode].attributes.generation)
    }

    fn entry(&self, inode: u64) -> Entry {
        Entry { member: self.member(inode), kind: self.files[&inode].attributes.kind }
    }

    fn edit(&mut self, inode: u64) -> &mut File {
        self.dirty.insert(inode);
        self.files.get_mut(&inode).unwrap()
    }

    fn is_directory(&self, inode: u64) -> bool {
        self.files[&inode].attributes.kind == KIND_DIRECTORY
    }

    fn touch(&mut self, inode: u64) {
        let now = self.tick();
        self.edit(inode).attributes.touch(now);
    }

    fn touch_content(&mut self, inode: u64) {
        let now = self.tick();
        self.edit(inode).attributes.touch_content(now);
    }

    pub fn create(&mut self, parent: u64, name: &str, kind: u8) -> u64 {
        let inode = (ROOT..).find(|inode| !self.files.contains_key(inode)).unwrap();
        self.add(inode, kind);
        if kind == KIND_DIRECTORY {
            self.make_directory(inode, parent);
        }
        self.enter(parent, name, inode);
        inode
    }

    /// Gives a file a name more.
    fn enter(&mut self, parent: u64, name: &str, inode: u64) {
        self.insert_entry(parent, name, inode);
        self.edit(parent).entries.insert(name.to_owned(), inode);
        let is_directory = self.is_directory(inode);
        self.edit(parent).attributes.links += u32::from(is_directory);
        self.touch_content(parent);
    }

    /// Takes a name away; the file that had it.
    fn leave(&mut self, parent: u64, name: &str) -> u64 {
        let removed = directory::remove(&mut self.edit(parent).blocks, name.as_bytes());
        assert!(removed.unwrap().is_some());
        let inode = self.edit(parent).entries.remove(name).unwrap();
        let is_directory = self.is_directory(inode);
        self.edit(parent).attributes.links -= u32::from(is_directory);
        self.touch_content(parent);
        inode
    }

    /// An entry that nothing else knows of.
    pub fn insert_entry(&mut self, parent: u64, name: &str, inode: u64) {
        let entry = self.entry(inode);
        directory::insert(&mut self.edit(parent).blocks, name.as_bytes(), entry).unwrap();
    }

    /// A link without a name.
    pub fn add_link(&mut self, inode: u64) {
        self.edit(inode).attributes.links += 1;
    }

    /// Takes a name away from a file that stays as an orphan if it has no other.
    pub fn orphan(&mut self, (parent, name): (u64, &str)) {
        let inode = self.leave(parent, name);
        let links = if self.is_directory(inode) { 2 } else { 1 };
        self.edit(inode).attributes.links -= links;
        self.touch(inode);
    }

    pub fn remove(&mut self, place: (u64, &str)) {
        let inode = self.files[&place.0].entries[place.1];
        self.orphan(place);
        if self.files[&inode].attributes.links == 0 {
            self.files.remove(&inode);
        }
    }

    pub fn rename(&mut self, from: (u64, &str), to: (u64, &str)) {
        let inode = self.leave(from.0, from.1);
        self.enter(to.0, to.1, inode);
        if self.is_directory(inode) {
            let parent = self.member(to.0);
            directory::set_parent(&mut self.edit(inode).blocks, parent).unwrap();
        }
        self.touch(inode);
    }

    pub fn link(&mut self, inode: u64, to: (u64, &str)) {
        self.enter(to.0, to.1, inode);
        self.add_link(inode);
        self.touch(inode);
    }

    pub fn modify(&mut self, inode: u64) {
        self.touch_content(inode);
        if !self.is_directory(inode) {
            self.edit(inode).attributes.size += 1;
        }
    }

    pub fn read(&mut self, inode: u64) {
        let now = self.tick();
        self.edit(inode).attributes.atime = now;
    }

    /// The inode is none that can be, from the next image on.
    pub fn spoil_inode(&mut self, inode: u64) {
        self.edit(inode).is_spoiled = true;
    }

    /// The first block of a directory is damaged, in all images that have it.
    pub fn lose_directory(&mut self, inode: u64) {
        let pointer = self.files[&inode].root.pointer(0);
        self.media.blocks.remove(&pointer.pvbn.0).unwrap();
    }

    /// All names but the root's, as directory and name.
    fn names(&self) -> Vec<(u64, String)> {
        let files = self.files.iter();
        let names = files
            .flat_map(|(inode, file)| file.entries.keys().map(move |name| (*inode, name.clone())));
        names.collect()
    }

    fn is_within(&self, inode: u64, above: u64) -> bool {
        let below = self.files[&above].entries.values();
        inode == above || below.into_iter().any(|child| self.is_within(inode, *child))
    }

    /// The place that numbers pick, if it is free.
    fn free_place(&self, directory: usize, name: u8) -> Option<(u64, String)> {
        let all: Vec<u64> =
            self.files.keys().copied().filter(|inode| self.is_directory(*inode)).collect();
        let directory = all[directory % all.len()];
        let name = char::from(b'a' + name).to_string();
        let is_taken = self.files[&directory].entries.contains_key(&name);
        (!is_taken).then_some((directory, name))
    }

    pub fn apply(&mut self, step: &Step) {
        let names = self.names();
        let named = |pick: usize| {
            let (parent, name) = names.get(pick % names.len().max(1))?;
            Some((*parent, name.as_str(), self.files[parent].entries[name]))
        };
        let everyone: Vec<u64> = self.files.keys().copied().collect();
        let any = |pick: usize| everyone[pick % everyone.len()];
        match *step {
            Step::Create(to, name, is_directory) => {
                let Some((parent, name)) = self.free_place(to, name) else { return };
                let kind = if is_directory { KIND_DIRECTORY } else { KIND_REGULAR };
                self.create(parent, &name, kind);
            }
            Step::Remove(pick) => {
                let Some((parent, name, inode)) = named(pick) else { return };
                if self.files[&inode].entries.is_empty() {
                    self.remove((parent, name));
                }
            }
            Step::Rename(pick, to, name) => {
                let Some((parent, old, inode)) = named(pick) else { return };
                let Some((to, name)) = self.free_place(to, name) else { return };
                if !self.is_within(to, inode) {
                    self.rename((parent, old), (to, &name));
                }
            }
            Step::Link(pick, to, name) => {
                let Some((_, _, inode)) = named(pick) else { return };
                let Some((to, name)) = self.free_place(to, name) else { return };
                if !self.is_directory(inode) {
                    self.link(inode, (to, &name));
                }
            }
            Step::Modify(pick) => self.modify(any(pick)),
            Step::SetMode(pick, mode) => {
                let inode = any(pick);
                self.edit(inode).attributes.mode = 0o600 + mode;
                self.touch(inode);
            }
            Step::Read(pick) => self.read(any(pick)),
        }
    }

    /// Writes what changed since the last image, and makes an image.
    pub fn image(&mut self) -> Root<DualPointer> {
        let dirty = std::mem::take(&mut self.dirty);
        for inode in &dirty {
            self.clean_directory(*inode);
        }
        let blocks: BTreeSet<Fbn> =
            dirty.iter().map(|inode| position(InodeNumber(*inode)).0).collect();
        let leaves: Vec<_> =
            blocks.iter().map(|fbn| (*fbn, Leaf::Block(self.inode_block(*fbn)))).collect();
        let key = inode_file_key(VOLUME);
        let cleaner = FileCleaner::new(key, self.inode_file, leaves, RangeSet::default(), None);
        self.inode_file = self.media.clean(cleaner);
        self.inode_file
    }

    fn clean_directory(&mut self, inode: u64) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        if file.attributes.kind != KIND_DIRECTORY {
            return;
        }
        let changed = std::mem::take(&mut file.blocks.changed);
        let blocks = &file.blocks.blocks;
        let leaf = |fbn: u64| (Fbn(fbn), Leaf::Block(Arc::clone(&blocks[fbn as usize])));
        let leaves = changed.into_iter().map(leaf).collect();
        let mut holes = RangeSet::default();
        holes.add(Fbn(blocks.len() as u64), Fbn::END);
        file.attributes.size = blocks.len() as u64 * BLOCK_SIZE_U64;
        let key = FileKey { volume: VOLUME, inode: InodeNumber(inode), content: Content::Data };
        let cleaner = FileCleaner::new(key, file.root, leaves, holes, None);
        file.root = self.media.clean(cleaner);
    }

    fn inode_block(&self, fbn: Fbn) -> BlockRef {
        let mut block = Block::zeroed();
        for slot in 0..INODES_PER_BLOCK {
            let inode = fbn.get() * INODES_PER_BLOCK as u64 + slot as u64;
            let record = match self.files.get(&inode) {
                Some(file) => {
                    let mut record = file.attributes.record(&file.root, 0);
                    if file.is_spoiled {
                        record.kind = u8::MAX;
                    }
                    record
                }
                None => InodeRecord::free(0),
            };
            block[slot * INODE_SIZE..(slot + 1) * INODE_SIZE].copy_from_slice(record.as_bytes());
        }
        Arc::new(block)
    }

    /// What an image made now should tell, by inode.
    pub fn files(&self) -> BTreeMap<u64, Told> {
        let mut told = BTreeMap::new();
        let place = (ROOT, self.files[&ROOT].attributes.generation.get(), String::new());
        self.tell(ROOT, (String::new(), place), &mut told);
        told
    }

    fn tell(&self, inode: u64, name: (String, (u64, u32, String)), told: &mut BTreeMap<u64, Told>) {
        let file = &self.files[&inode];
        let prefix = if name.0.is_empty() { String::new() } else { format!("{}/", name.0) };
        let attributes = file.attributes.clone();
        let new = || Told { attributes, names: BTreeSet::new() };
        told.entry(inode).or_insert_with(new).names.insert(name);
        for (name, child) in &file.entries {
            let place = (inode, file.attributes.generation.get(), name.clone());
            self.tell(*child, (format!("{prefix}{name}"), place), told);
        }
    }
}

/// The differences of two images by what they should hold.
pub fn naive(old: &BTreeMap<u64, Told>, new: &BTreeMap<u64, Told>) -> Differences {
    let mut files = Vec::new();
    let inodes: BTreeSet<u64> = old.keys().chain(new.keys()).copied().collect();
    for inode in inodes {
        let (old, new) = (old.get(&inode), new.get(&inode));
        match (old, new) {
            (Some(old), Some(new)) if old.attributes.generation == new.attributes.generation => {
                if old.attributes.change != new.attributes.change {
                    files.push(difference(inode, Some(old), Some(new)));
                }
            }
            _ => {
                files.extend(old.map(|old| difference(inode, Some(old), None)));
                files.extend(new.map(|new| difference(inode, None, Some(new))));
            }
        }
    }
    let path = |file: &Difference| {
        file.new_paths.first().or(file.old_paths.first()).cloned().unwrap_or_default()
    };
    files.sort_by_key(|file| (path(file), file.change, file.inode));
    Differences { files, ..Differences::default() }
}

fn difference(inode: u64, old: Option<&Told>, new: Option<&Told>) -> Difference {
    let is_other = |old: &InodeAttributes, new: &InodeAttributes| {
        (old.size, old.mtime, old.mode) != (new.size, new.mtime, new.mode)
    };
    let places = |told: &Told| -> BTreeSet<_> {
        told.names.iter().map(|(_, place)| place.clone()).collect()
    };
    let paths = |told: Option<&Told>| -> Vec<Vec<u8>> {
        let names = told.iter().flat_map(|told| &told.names);
        names.map(|(path, _)| path.clone().into_bytes()).collect()
    };
    let (old_paths, new_paths) = (paths(old), paths(new));
    let (change, is_modified) = match (old, new) {
        (None, _) => (Change::Created, false),
        (_, None) => (Change::Removed, false),
        (Some(old), Some(new)) if places(old) != places(new) && old_paths != new_paths => {
            (Change::Renamed, is_other(&old.attributes, &new.attributes))
        }
        _ => (Change::Modified, true),
    };
    let size = |told: Option<&Told>| told.map_or(0, |told| told.attributes.size);
    let any = old.or(new).map(|told| &told.attributes).unwrap();
    Difference {
        inode: InodeNumber(inode),
        generation: any.generation,
        kind: any.kind,
        change,
        is_modified,
        old_paths,
        new_paths,
        old_size: size(old),
        new_size: size(new),
    }
}
