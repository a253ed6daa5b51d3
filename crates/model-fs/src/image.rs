//! A whole tree as one value, to be compared with another.
//!
//! Invariants: holes and written zeros are the same to a comparison; files with
//! several names say which name is the first of them; nothing that services may choose is
//! compared (inode numbers, sizes of directories, times that nobody set). Data is shared with the
//! service where it hands out whole blocks, so an image of the memory backend costs little.
//!
//! Fails: [`ImageError`] when the service refuses what root may do, or contradicts itself.

use crate::answer::Answer;
use crate::observation::{Digest, SET_TIME_LIMIT};
use file_service::{
    Attributes, Caller, DirectoryEntry, FileHandle, FileKind, FileService, FsError, ReadData,
    SeekTarget, calls,
};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockRef, Timestamp, zero_block};

/// Entries that are read at once.
const PAGE_ENTRIES: u32 = 100;

/// Why a tree could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ImageError {
    /// A call was refused.
    #[error("{call} of '{}': {error}", path.escape_ascii())]
    Refused {
        /// The call.
        call: &'static str,
        /// The path.
        path: Vec<u8>,
        /// The refusal.
        error: FsError,
    },
    /// A call was never answered.
    #[error("{call} of '{}' has no answer", path.escape_ascii())]
    NoAnswer {
        /// The call.
        call: &'static str,
        /// The path.
        path: Vec<u8>,
    },
    /// Answers that cannot both be true.
    #[error("'{}': {what}", path.escape_ascii())]
    Contradiction {
        /// The path.
        path: Vec<u8>,
        /// What is wrong.
        what: &'static str,
    },
}

/// A file in an image.
#[derive(Clone, Debug)]
pub struct ImageNode {
    /// Its handle, which is not compared.
    pub handle: FileHandle,
    /// The kind.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length; 0 for directories.
    pub size: u64,
    /// Device number.
    pub device: (u32, u32),
    /// Time of last read, if an operation set it. The capture itself reads, so that only nodes
    /// that cannot be read keep one.
    pub atime: Option<Timestamp>,
    /// Time of last change, if an operation set it.
    pub mtime: Option<Timestamp>,
    /// A symbolic link's text.
    pub text: Vec<u8>,
    /// Blocks that are not holes; what lies beyond the size is zero.
    pub blocks: BTreeMap<u64, BlockRef>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// It is the directory of a quota tree; `None` if nobody has looked.
    pub is_tree: Option<bool>,
    /// The least of the file's paths.
    pub first_path: Vec<u8>,
}

/// A whole tree, by path; the root is the empty path.
#[derive(Clone, Default, Debug)]
pub struct Image {
    /// The files.
    pub nodes: BTreeMap<Vec<u8>, ImageNode>,
}

/// One way in which two images differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Where.
    pub path: Vec<u8>,
    /// What.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "'/{}': {}", self.path.escape_ascii(), self.what)
    }
}

impl Image {
    /// Reads the tree below `root`, as root.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn capture(
        service: &dyn FileService,
        root: FileHandle,
        drive: &mut dyn FnMut(),
    ) -> Result<Self, ImageError> {
        let mut capture = Capture { service, drive, caller: Caller::root(), first: HashMap::new() };
        let mut image = Self::default();
        let mut waiting = vec![(Vec::new(), root)];
        while let Some((path, handle)) = waiting.pop() {
            let node = match capture.first.get(&handle).and_then(|first| image.nodes.get(first)) {
                Some(node) if node.kind == FileKind::Directory => {
                    return Err(ImageError::Contradiction { path, what: "a second name" });
                }
                Some(node) => node.clone(), // another name for the same file
                None => capture.node(&path, handle)?,
            };
            if node.kind == FileKind::Directory {
                for entry in capture.entries(&path, handle)? {
                    let mut below = path.clone();
                    if !below.is_empty() {
                        below.push(b'/');
                    }
                    below.extend_from_slice(&entry.name);
                    let Some(found) = entry.entry else {
                        let what = "an entry without its handle";
                        return Err(ImageError::Contradiction { path: below, what });
                    };
                    waiting.push((below, found.handle));
                }
            }
            capture.first.entry(handle).or_insert_with(|| path.clone());
            image.nodes.insert(path, node);
        }
        image.find_first_paths();
        Ok(image)
    }

    /// Notes which directories are those of quota trees.
    pub fn find_trees(&mut self, mut is_tree: impl FnMut(&[u8], FileHandle) -> Option<bool>) {
        for (path, node) in &mut self.nodes {
            if node.kind == FileKind::Directory {
                node.is_tree = is_tree(path, node.handle);
            }
        }
    }

    fn find_first_paths(&mut self) {
        let mut first: HashMap<FileHandle, Vec<u8>> = HashMap::new();
        for (path, node) in &mut self.nodes {
            node.first_path = first.entry(node.handle).or_insert_with(|| path.clone()).clone();
        }
    }

    /// How `self`, which was expected, and `found` differ.
    #[must_use]
    pub fn difference(&self, found: &Self) -> Vec<Difference> {
        self.difference_with(found, |expected, found| expected.difference(found))
    }

    /// As [`Self::difference`], with a comparison of single files.
    pub fn difference_with(
        &self,
        found: &Self,
        compare: impl Fn(&ImageNode, &ImageNode) -> Vec<String>,
    ) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut add =
            |path: &Vec<u8>, what| differences.push(Difference { path: path.clone(), what });
        for (path, expected) in &self.nodes {
            match found.nodes.get(path) {
                None => add(path, format!("is missing ({})", expected.summary())),
                Some(node) => {
                    compare(expected, node).into_iter().for_each(|what| add(path, what));
                }
            }
        }
        for (path, node) in &found.nodes {
            if !self.nodes.contains_key(path) {
                add(path, format!("should not be there ({})", node.summary()));
            }
        }
        differences
    }
}

impl ImageNode {
    /// One line about the file.
    #[must_use]
    pub fn summary(&self) -> String {
        let (kind, size, blocks) = (self.kind, self.size, self.blocks.len());
        format!("{kind:?} of {size} bytes in {blocks} blocks, {} links", self.links)
    }

    /// How `self`, which was expected, and `found` differ.
    #[must_use]
    pub fn difference(&self, found: &Self) -> Vec<String> {
        let mut differences = self.metadata_difference(found);
        if (self.atime, self.mtime) != (found.atime, found.mtime) {
            let (own, other) = ((self.atime, self.mtime), (found.atime, found.mtime));
            differences.push(format!("set times are {other:?}, not {own:?}"));
        }
        if self.mode != found.mode {
            differences.push(format!("mode is {:o}, not {:o}", found.mode, self.mode));
        }
        if self.size != found.size {
            differences.push(format!("size is {}, not {}", found.size, self.size));
        }
        differences.extend(map_difference("xattr", &self.xattrs, &found.xattrs));
        for block in self.blocks.keys().chain(found.blocks.keys()) {
            let (own, other) = (self.block(*block), found.block(*block));
            if !Arc::ptr_eq(&own, &other) && own != other {
                differences.push(block_difference(*block, &own, &other));
            }
        }
        differences.dedup();
        differences
    }

    /// As [`Self::difference`], of all but size, data, mode, times and extended attributes.
    pub(crate) fn metadata_difference(&self, found: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut check = |what: &str, expected: &dyn fmt::Debug, found: &dyn fmt::Debug| {
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            if expected != found {
                differences.push(format!("{what} is {found}, not {expected}"));
            }
        };
        check("kind", &self.kind, &found.kind);
        check("links", &self.links, &found.links);
        check("owner", &(self.uid, self.gid), &(found.uid, found.gid));
        check("device", &self.device, &found.device);
        if let (Some(expected), Some(found)) = (self.is_tree, found.is_tree) {
            check("being a quota tree", &expected, &found);
        }
        let text = |node: &Self| node.text.escape_ascii().to_string();
        check("text", &text(self), &text(found));
        let first = |node: &Self| node.first_path.escape_ascii().to_string();
        check("first name", &first(self), &first(found));
        differences
    }

    /// A block, with holes as zeros.
    #[must_use]
    pub fn block(&self, block: u64) -> BlockRef {
        self.blocks.get(&block).map_or_else(zero_block, Arc::clone)
    }
}

pub(crate) fn block_difference(block: u64, expected: &Block, found: &Block) -> String {
    let pairs = expected.iter().zip(found.iter());
    let at = pairs.take_while(|(expected, found)| expected == found).count();
    let head = |block: &Block| Digest::of(block.bytes().get(at..).unwrap_or_default()).head;
    let (expected, found) = (head(expected), head(found));
    format!("block {block} from byte {at} is {found:02x?}, not {expected:02x?}")
}

pub(crate) fn map_difference(
    what: &str,
    expected: &BTreeMap<Vec<u8>, Vec<u8>>,
    found: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let differs = names.into_iter().filter(|name| expected.get(*name) != found.get(*name));
    let digest = |value: Option<&Vec<u8>>| value.map(|value| Digest::of(value));
    differs
        .map(|name| {
            let (expected, found) = (digest(expected.get(name)), digest(found.get(name)));
            format!("{what} {} is {found:?}, not {expected:?}", name.escape_ascii())
        })
        .collect()
}

struct Capture<'a> {
    service: &'a dyn FileService,
    drive: &'a mut dyn FnMut(),
    caller: Caller,
    first: HashMap<FileHandle, Vec<u8>>,
}

impl Capture<'_> {
    fn wait<T: Send + 'static>(
        &mut self,
        call: &'static str,
        path: &[u8],
        answer: Answer<T>,
    ) -> Result<T, ImageError> {
        let path = || path.to_vec();
        answer
            .wait(self.drive)
            .ok_or_else(|| ImageError::NoAnswer { call, path: path() })?
            .map_err(|error| ImageError::Refused { call, path: path(), error })
    }

    fn node(&mut self, path: &[u8], handle: FileHandle) -> Result<ImageNode, ImageError> {
        let answer = Answer::to(|done| {
            self.service.attributes(&Caller::root(), calls::GetAttributes { file: handle }, done)
        });
        let found: Attributes = self.wait("attributes", path, answer)?;
        let mut node = ImageNode {
            handle,
            kind: found.kind,
            mode: found.mode,
            links: found.links,
            uid: found.uid,
            gid: found.gid,
            size: if found.kind == FileKind::Directory { 0 } else { found.size },
            device: found.device,
            atime: None,
            mtime: (found.mtime < SET_TIME_LIMIT).then_some(found.mtime),
            text: Vec::new(),
            blocks: BTreeMap::new(),
            xattrs: self.xattrs(path, handle)?,
            is_tree: None,
            first_path: Vec::new(),
        };
        match found.kind {
            FileKind::Regular => {
                node.blocks = self.blocks(path, handle, found.size)?;
                // Moves atime even where there is nothing but holes, whatever SEEK said of them.
                let answer = Answer::to(|done| {
                    self.service.read(
                        &self.caller,
                        calls::Read { file: handle, offset: 0, count: 1 },
                        done,
                    )
                });
                self.wait("read", path, answer)?;
            }
            FileKind::Symlink => {
                let answer = Answer::to(|done| {
                    self.service.read_link(&self.caller, calls::ReadLink { file: handle }, done)
                });
                node.text = self.wait("read_link", path, answer)?.0;
            }
            FileKind::Directory => {}
            FileKind::BlockDevice
            | FileKind::CharacterDevice
            | FileKind::Fifo
            | FileKind::Socket => {
                node.atime = (found.atime < SET_TIME_LIMIT).then_some(found.atime);
            }
        }
        Ok(node)
    }

    fn xattrs(
        &mut self,
        path: &[u8],
        handle: FileHandle,
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ImageError> {
        let answer = Answer::to(|done| {
            self.service.list_xattrs(&self.caller, calls::ListXattrs { file: handle }, done)
        });
        let mut xattrs = BTreeMap::new();
        for name in self.wait("list_xattrs", path, answer)? {
            let answer = Answer::to(|done| {
                self.service.get_xattr(
                    &self.caller,
                    calls::GetXattr { file: handle, name: name.to_vec() },
                    done,
                )
            });
            xattrs.insert(name, self.wait("get_xattr", path, answer)?);
        }
        Ok(xattrs)
    }

    fn entries(
        &mut self,
        path: &[u8],
        directory: FileHandle,
    ) -> Result<Vec<DirectoryEntry>, ImageError> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let answer = Answer::to(|done| {
                let (caller, max) = (&self.caller, PAGE_ENTRIES);
                self.service.read_directory(
                    caller,
                    calls::ReadDirectory {
                        directory,
                        cookie,
                        entries_max: max,
                        with_attributes: true,
                    },
                    done,
                );
            });
            let page = self.wait("read_directory", path, answer)?;
            let last = page.entries.last().map(|entry| entry.cookie);
            if !page.end && last.is_none_or(|last| last <= cookie) {
                let what = "the listing does not go on";
                return Err(ImageError::Contradiction { path: path.to_vec(), what });
            }
            let named = |entry: &DirectoryEntry| entry.name != b"." && entry.name != b"..";
            entries.extend(page.entries.into_iter().filter(named));
            if page.end {
                return Ok(entries);
            }
            cookie = last.unwrap_or(cookie);
        }
    }

    fn seek(
        &mut self,
        path: &[u8],
        handle: FileHandle,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ImageError> {
        let answer = Answer::to(|done| {
            self.service.seek(&Caller::root(), calls::Seek { file: handle, offset, target }, done)
        });
        match self.wait("seek", path, answer) {
            Ok(found) => Ok(Some(found)),
            Err(ImageError::Refused { error: FsError::NoSuchOffset, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All blocks that are not zero, holes skipped by SEEK.
    fn blocks(
        &mut self,
        path: &[u8],
        handle: FileHandle,
        size: u64,
    ) -> Result<BTreeMap<u64, BlockRef>, ImageError> {
        let mut blocks = BTreeMap::new();
        let mut at = 0;
        while at < size {
            let Some(data) = self.seek(path, handle, at, SeekTarget::Data)? else { break };
            let hole = self.seek(path, handle, data, SeekTarget::Hole)?.unwrap_or(size);
            if data < at || hole <= data {
                let what = "SEEK does not go on";
                return Err(ImageError::Contradiction { path: path.to_vec(), what });
            }
            let end = hole.min(size).next_multiple_of(BLOCK_SIZE_U64);
            at = data / BLOCK_SIZE_U64 * BLOCK_SIZE_U64;
            while at < end {
                // Within what every service transfers at once, and a whole number of blocks.
                let count = (end - at).min(64 << 10) as u32;
                let answer = Answer::to(|done| {
                    self.service.read(
                        &self.caller,
                        calls::Read { file: handle, offset: at, count },
                        done,
                    )
                });
                let read = self.wait("read", path, answer)?;
                if read.len() as u64 != u64::from(count).min(size.saturating_sub(at)) {
                    let what = "a read fell short of the size";
                    return Err(ImageError::Contradiction { path: path.to_vec(), what });
                }
                put_blocks(&mut blocks, at / BLOCK_SIZE_U64, &read);
                at += u64::from(count);
            }
        }
        Ok(blocks)
    }
}

/// Takes the blocks of a read that began at block `first`, sharing those that are whole.
fn put_blocks(blocks: &mut BTreeMap<u64, BlockRef>, first: u64, read: &ReadData) {
    let whole = |segment: &file_service::requests::Segment| {
        segment.start == 0 && usize::from(segment.end) == BLOCK_SIZE
    };
    let last = read.segments.len().saturating_sub(1);
    let is_regular = read.segments.iter().take(last).all(whole);
    if is_regular && read.segments.last().is_some_and(whole) {
        for (number, segment) in (first..).zip(&read.segments) {
            blocks.insert(number, Arc::clone(&segment.block));
        }
        return;
    }
    for (number, chunk) in (first..).zip(read.to_vec().chunks(BLOCK_SIZE)) {
        blocks.insert(number, Arc::new(Block::from_prefix(chunk)));
    }
}
