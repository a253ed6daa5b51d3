//! The buftree: from a file's block numbers to its blocks (FlexVol section 2, figure 2).
//!
//! The root lies in the inode: inline content at depth 0, else pointers that are all at one level.
//! A node at level L covers `FANOUT^L` file blocks; data is level 0.
//!
//! Invariants: a tree that this module reads never changes in memory; the consistency point builds
//! the next one beside it ([`crate::cleaner`]).
//!
//! Fails: as [`Reader::block`] does.

mod differing;

use crate::content::Content;
use crate::pointer::{BlockPlace, Pointer};
use crate::reader::{LoadRequest, Progress, Reader, Stop, Wait};
use ondisk::inode::{InodeRecord, PAYLOAD_SIZE};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use units::{Block, BlockNumber, BlockRef, Fbn, InodeNumber, VolumeId};

pub use differing::next_different;

/// Names a file for the identifiers of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileKey {
    /// The volume; zero in the aggregate's own file system.
    pub volume: VolumeId,
    /// The inode.
    pub inode: InodeNumber,
    /// What its data blocks hold.
    pub content: Content,
}

impl FileKey {
    /// The place of a block of this file.
    #[must_use]
    pub const fn place(&self, level: u8, index: u64) -> BlockPlace {
        let content = if level == 0 { self.content } else { Content::Pointers };
        BlockPlace { volume: self.volume, inode: self.inode, level, index, content }
    }
}

/// The root of a buftree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root<P> {
    /// 0: the payload is the content. Otherwise its pointers are to nodes at level `depth - 1`.
    pub depth: u8,
    /// Content or pointers.
    pub payload: [u8; PAYLOAD_SIZE],
    format: PhantomData<P>,
}

impl<P: Pointer> Default for Root<P> {
    fn default() -> Self {
        Self { depth: 1, payload: [0; PAYLOAD_SIZE], format: PhantomData }
    }
}

impl<P: Pointer> Root<P> {
    /// The root in an inode.
    #[must_use]
    pub fn of(record: &InodeRecord) -> Self {
        Self { depth: record.depth, payload: record.payload, format: PhantomData }
    }

    /// A root whose payload is the content of a tiny file.
    #[must_use]
    pub fn inline(content: &[u8; PAYLOAD_SIZE]) -> Self {
        Self { depth: 0, payload: *content, format: PhantomData }
    }

    /// Stores the root in an inode.
    pub fn store(&self, record: &mut InodeRecord) {
        record.depth = self.depth;
        record.payload = self.payload;
    }

    /// The root's pointer at `index`.
    #[must_use]
    pub fn pointer(&self, index: u64) -> P {
        P::decode_at(&self.payload, index as usize)
    }

    /// Replaces the root's pointer at `index`.
    pub fn set_pointer(&mut self, index: u64, pointer: &P) {
        pointer.encode_at(&mut self.payload, index as usize);
    }

    /// Whether the file has no block and no content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.payload.iter().all(|byte| *byte == 0)
    }

    /// File blocks that a tree of `depth` reaches.
    #[must_use]
    pub fn capacity(depth: u8) -> u64 {
        match depth {
            0 => 1,
            depth => P::ROOT_POINTERS.saturating_mul(span::<P>(depth - 1)),
        }
    }

    /// The inline content as a block, if the file is tiny.
    #[must_use]
    pub fn inline_block(&self) -> Option<BlockRef> {
        (self.depth == 0).then(|| Arc::new(Block::from_prefix(&self.payload)))
    }
}

/// Levels of nodes that cover less than all numbers: a node covers two children at least.
const LEVELS_MAX: usize = 64;

/// File blocks that a node covers, by its level.
struct Spans<P>(PhantomData<P>);

impl<P: Pointer> Spans<P> {
    const OF_LEVELS: [u64; LEVELS_MAX] = {
        let mut spans = [1; LEVELS_MAX];
        let mut level = 1;
        while level < LEVELS_MAX {
            spans[level] = P::FANOUT.saturating_mul(spans[level - 1]);
            level += 1;
        }
        spans
    };
}

/// File blocks that a node at `level` covers.
#[must_use]
pub fn span<P: Pointer>(level: u8) -> u64 {
    Spans::<P>::OF_LEVELS.get(usize::from(level)).copied().unwrap_or(u64::MAX)
}

/// The pointer to file block `fbn`; a hole where there is none.
///
/// # Errors
/// [`Stop::Wait`] when an indirect block must be loaded first.
pub fn find<P: Pointer>(
    root: &Root<P>,
    key: &FileKey,
    fbn: Fbn,
    reader: &Reader<'_>,
) -> Progress<P> {
    Walk::new(root, key, *reader).find(fbn)
}

/// Looks up blocks of a file that lie near each other: the tree is walked once for all that one
/// lowest-level node covers.
pub struct Walk<'r, P> {
    root: &'r Root<P>,
    key: &'r FileKey,
    reader: Reader<'r>,
    /// The lowest-level node found last, by its index.
    node: Option<(u64, BlockRef)>,
}

impl<'r, P: Pointer> Walk<'r, P> {
    /// Begins.
    #[must_use]
    pub const fn new(root: &'r Root<P>, key: &'r FileKey, reader: Reader<'r>) -> Self {
        Self { root, key, reader, node: None }
    }

    /// The pointer to file block `fbn`; a hole where there is none.
    ///
    /// # Errors
    /// [`Stop::Wait`] when an indirect block must be loaded first.
    pub fn find(&mut self, fbn: Fbn) -> Progress<P> {
        let index = fbn.get() / P::FANOUT;
        if let Some((found, node)) = &self.node
            && *found == index
        {
            return Ok(P::decode_at(node.bytes(), (fbn.get() % P::FANOUT) as usize));
        }
        let root = self.root;
        if root.depth == 0 || fbn.get() >= Root::<P>::capacity(root.depth) {
            return Ok(P::default());
        }
        let mut level = root.depth - 1;
        let mut pointer = root.pointer(fbn.get() / span::<P>(level));
        while level > 0 && !pointer.is_hole() {
            let place = self.key.place(level, fbn.get() / span::<P>(level));
            let node = self.reader.block(&pointer, place)?;
            level -= 1;
            let entry = fbn.get() / span::<P>(level) % P::FANOUT;
            pointer = P::decode_at(node.bytes(), entry as usize);
            if level == 0 {
                self.node = Some((index, node));
            }
        }
        Ok(pointer)
    }

    /// The content of file block `fbn`; `None` for a hole.
    ///
    /// # Errors
    /// [`Stop::Wait`] when a block must be loaded first.
    pub fn read(&mut self, fbn: Fbn) -> Progress<Option<BlockRef>> {
        if self.root.depth == 0 {
            // As `next_present` has it: a tiny file of zeros is all hole.
            let present = fbn.get() == 0 && !self.root.is_empty();
            return Ok(if present { self.root.inline_block() } else { None });
        }
        let pointer = self.find(fbn)?;
        if pointer.is_hole() {
            return Ok(None);
        }
        self.reader.block(&pointer, self.key.place(0, fbn.get())).map(Some)
    }
}

/// Adds the numbers of the blocks on the way from the root to file block `fbn`, that block
/// included.
///
/// # Errors
/// [`Stop::Wait`] when an indirect block must be loaded first.
pub fn numbers<P: Pointer>(
    root: &Root<P>,
    key: &FileKey,
    fbn: Fbn,
    reader: &Reader<'_>,
    found: &mut BTreeSet<P::Number>,
) -> Progress<()> {
    if root.depth == 0 || fbn.get() >= Root::<P>::capacity(root.depth) {
        return Ok(());
    }
    let mut level = root.depth - 1;
    let mut pointer = root.pointer(fbn.get() / span::<P>(level));
    while !pointer.is_hole() {
        found.insert(pointer.vbn());
        if level == 0 {
            break;
        }
        let node = reader.block(&pointer, key.place(level, fbn.get() / span::<P>(level)))?;
        level -= 1;
        let entry = fbn.get() / span::<P>(level) % P::FANOUT;
        pointer = P::decode_at(node.bytes(), entry as usize);
    }
    Ok(())
}

/// The content of file block `fbn`; `None` for a hole.
///
/// # Errors
/// [`Stop::Wait`] when a block must be loaded first.
pub fn read<P: Pointer>(
    root: &Root<P>,
    key: &FileKey,
    fbn: Fbn,
    reader: &Reader<'_>,
) -> Progress<Option<BlockRef>> {
    Walk::new(root, key, *reader).read(fbn)
}

/// Whether the tree has file block `fbn`.
///
/// # Errors
/// [`Stop::Wait`] when an indirect block must be loaded first.
fn is_present<P: Pointer>(
    root: &Root<P>,
    key: &FileKey,
    fbn: Fbn,
    reader: &Reader<'_>,
) -> Progress<bool> {
    if root.depth == 0 {
        return Ok(fbn.get() == 0 && !root.is_empty());
    }
    Ok(!find(root, key, fbn, reader)?.is_hole())
}

/// The first file block at or after `from` that the tree has, searching no further than `end`.
///
/// # Errors
/// [`Stop::Wait`] when an indirect block must be loaded first.
pub fn next_present<P: Pointer>(
    root: &Root<P>,
    key: &FileKey,
    from: Fbn,
    end: Fbn,
    reader: &Reader<'_>,
) -> Progress<Option<Fbn>> {
    if root.depth == 0 {
        return Ok((from.get() == 0 && end.get() > 0 && !root.is_empty()).then_some(Fbn(0)));
    }
    let end = end.get().min(Root::<P>::capacity(root.depth));
    let mut at = from.get();
    while at < end {
        // Walk down to `at`; where the walk meets a hole at some level, skip what that hole covers.
        let mut level = root.depth - 1;
        let mut pointer = root.pointer(at / span::<P>(level));
        while level > 0 && !pointer.is_hole() {
            let node = reader.block(&pointer, key.place(level, at / span::<P>(level)))?;
            level -= 1;
            let first = at / span::<P>(level) % P::FANOUT;
            let entry = (first..P::FANOUT)
                .find(|entry| !P::decode_at(node.bytes(), *entry as usize).is_hole());
            let Some(entry) = entry else {
                // Nothing more in this node.
                at = (at / span::<P>(level + 1) + 1).saturating_mul(span::<P>(level + 1));
                pointer = P::default();
                level = u8::MAX;
                break;
            };
            if entry != first {
                at = (at / span::<P>(level) - first + entry) * span::<P>(level);
            }
            pointer = P::decode_at(node.bytes(), entry as usize);
        }
        if !pointer.is_hole() {
            return Ok((at < end).then_some(Fbn(at)));
        }
        if level != u8::MAX {
            at = (at / span::<P>(level) + 1).saturating_mul(span::<P>(level));
        }
    }
    Ok(None)
}

/// Nodes that a search for a hole asks for at once.
const HOLE_NODES_AHEAD: u64 = 64;

/// The first file block at or after `from` that the tree does not have; `end` if that has none
/// before. A lowest-level node is looked at as a whole, and those after it are loaded with it.
///
/// # Errors
/// [`Stop::Wait`] when an indirect block must be loaded first.
pub fn next_absent<P: Pointer>(
    root: &Root<P>,
    key: &FileKey,
    from: Fbn,
    end: Fbn,
    reader: &Reader<'_>,
) -> Progress<Fbn> {
    let mut at = from.get();
    let reach = end.get().min(Root::<P>::capacity(root.depth));
    if root.depth <= 1 {
        while at < reach && is_present(root, key, Fbn(at), reader)? {
            at += 1;
        }
        return Ok(Fbn(at.min(end.get())));
    }
    while at < reach {
        let index = at / P::FANOUT;
        let Some(node) = lowest_node(root, key, index, reader)
            .map_err(|stop| with_nodes_ahead(stop, root, key, index, reach, reader))?
        else {
            break;
        };
        let first = at % P::FANOUT;
        let hole =
            (first..P::FANOUT).find(|entry| P::decode_at(node.bytes(), *entry as usize).is_hole());
        at = index * P::FANOUT + hole.unwrap_or(P::FANOUT);
        if hole.is_some() {
            break;
        }
    }
    Ok(Fbn(at.min(end.get())))
}

/// Lowest-level node `index` of a tree that has nodes; `None` for a hole.
fn lowest_node<P: Pointer>(
    root: &Root<P>,
    key: &FileKey,
    index: u64,
    reader: &Reader<'_>,
) -> Progress<Option<BlockRef>> {
    let fbn = index * P::FANOUT;
    let mut level = root.depth - 1;
    let mut pointer = root.pointer(fbn / span::<P>(level));
    while !pointer.is_hole() {
        let node = reader.block(&pointer, key.place(level, fbn / span::<P>(level)))?;
        if level == 1 {
            return Ok(Some(node));
        }
        level -= 1;
        let entry = fbn / span::<P>(level) % P::FANOUT;
        pointer = P::decode_at(node.bytes(), entry as usize);
    }
    Ok(None)
}

/// Adds to a wait for lowest-level node `index` the waits for those after it.
fn with_nodes_ahead<P: Pointer>(
    stop: Stop,
    root: &Root<P>,
    key: &FileKey,
    index: u64,
    reach: u64,
    reader: &Reader<'_>,
) -> Stop {
    let Stop::Wait(Wait::Load(mut requests)) = stop else { return stop };
    let last = reach.div_ceil(P::FANOUT).min(index + HOLE_NODES_AHEAD);
    for ahead in index + 1..last {
        if let Err(Stop::Wait(Wait::Load(more))) = lowest_node(root, key, ahead, reader) {
            // Until the node above is there, all wait for that one.
            for request in more {
                if !requests.contains(&request) {
                    requests.push(request);
                }
            }
        }
    }
    Stop::Wait(Wait::Load(requests))
}

/// The loads that reading `first..first + count` would need, all at once, so that one wait serves a
/// large read. Indirect blocks that are missing end the search: they are asked for first.
///
/// # Errors
/// [`Stop::Damaged`] if a block was found damaged before.
pub fn missing<P: Pointer>(
    root: &Root<P>,
    key: &FileKey,
    first: Fbn,
    count: u64,
    reader: &Reader<'_>,
    mut wanted: impl FnMut(Fbn) -> bool,
) -> Progress<Vec<LoadRequest>> {
    let mut requests = Vec::new();
    if root.depth == 0 {
        return Ok(requests);
    }
    let mut walk = Walk::new(root, key, *reader);
    for fbn in first.until(first.offset(count)) {
        if !wanted(fbn) {
            continue;
        }
        match walk.find(fbn) {
            Ok(pointer) if pointer.is_hole() => {}
            Ok(pointer) => {
                let request = pointer.request(key.place(0, fbn.get()));
                if reader.find(&request)?.is_none() {
                    requests.push(request);
                }
            }
            Err(Stop::Wait(Wait::Load(load))) => {
                requests.extend(load);
                break;
            }
            Err(stop) => return Err(stop),
        }
    }
    Ok(requests)
}
