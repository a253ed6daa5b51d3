//! Cleaning: writing a file's changes into its buftree, copy on write, at a consistency point
//! (FlexVol section 2, decision 8).
//!
//! The cleaner takes a file's root, its dirty blocks and its new holes, visits in order every
//! lowest-level node that they touch, gives each dirty block a new address, frees the old one, and
//! then the nodes above, each once, bottom up. The old tree stays whole until the consistency point
//! commits.
//!
//! Where blocks go is the [`Sink`]'s business: the real one allocates and writes; a [`Plan`] only
//! counts, for files whose blocks must have addresses before their content is known (the free map
//! itself).
//!
//! A file that goes away is *salvaged*: a node that cannot be read counts as one with nothing in
//! it, so that all else of the file is freed. What is below such a node stays in use without an
//! owner.
//!
//! Invariants: work moves only forward; [`Stop::Wait`] leaves the cleaner in a state from which
//! [`FileCleaner::run`] goes on. Each block of the new tree is placed exactly once.

use crate::buftree::{FileKey, Root, span};
use crate::pointer::{BlockPlace, Pointer};
use crate::ranges::RangeSet;
use crate::reader::{Progress, Reader, Stop, Wait};
use ondisk::inode::{DEPTH_MAX, PAYLOAD_SIZE};
use std::sync::Arc;
use units::{Block, BlockRef, Fbn, Pvbn};

/// Nodes that are loaded together at most when one is missing.
const NODES_AHEAD_MAX: usize = 64;

/// Takes the blocks of new trees.
pub trait Sink<P: Pointer> {
    /// Makes sure that `count` blocks can be placed without waiting.
    ///
    /// # Errors
    /// What to wait for.
    fn prepare(&mut self, count: usize) -> Progress<()>;

    /// Gives a block its address and queues its write.
    fn place(&mut self, block: BlockRef, place: BlockPlace) -> P;

    /// Gives a block another place, whose content is that of `old`, and queues its write. Where
    /// numbers are mapped to places it keeps its number.
    fn place_again(&mut self, old: P, block: BlockRef, place: BlockPlace) -> P {
        self.free(old);
        self.place(block, place)
    }

    /// Gives back what an older tree used.
    fn free(&mut self, pointer: P);

    /// How far the work has come, for [`Self::revert`].
    fn mark(&self) -> SinkMark;

    /// Undoes all that was placed and freed since the mark: what was placed is nobody's, and what
    /// was freed stays in use.
    fn revert(&mut self, mark: &SinkMark);

    /// Gives back blocks that were placed before they came here ([`Leaf::Placed`]), and that no
    /// tree has now: those of them that this consistency point has taken.
    fn unplace(&mut self, placed: Vec<P>);

    /// Whether a block that cannot be read is lost, and not only away for a while: what is given up
    /// for it is given up for good.
    fn is_lost(&self, pvbn: Pvbn) -> bool;
}

/// How many blocks a sink has placed, freed and told the space below of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SinkMark {
    /// Placed.
    pub placed: usize,
    /// Freed.
    pub freed: usize,
    /// Told to the space below.
    pub below: usize,
}

/// Counts what cleaning would place and collects what it would free.
#[derive(Debug)]
pub struct Plan<P> {
    /// Blocks that would be placed.
    pub placed: usize,
    /// What would be freed.
    pub freed: Vec<P>,
}

impl<P> Default for Plan<P> {
    fn default() -> Self {
        Self { placed: 0, freed: Vec::new() }
    }
}

impl<P: Pointer> Sink<P> for Plan<P> {
    fn prepare(&mut self, _: usize) -> Progress<()> {
        Ok(())
    }

    fn place(&mut self, _: BlockRef, _: BlockPlace) -> P {
        self.placed += 1;
        // Any pointer that is not a hole: a plan's tree is thrown away.
        let mut bytes = [0; 16];
        bytes[0] = 1;
        P::decode_at(&bytes, 0)
    }

    fn free(&mut self, pointer: P) {
        self.freed.push(pointer);
    }

    fn mark(&self) -> SinkMark {
        SinkMark { placed: self.placed, freed: self.freed.len(), below: 0 }
    }

    fn revert(&mut self, mark: &SinkMark) {
        self.placed = mark.placed;
        self.freed.truncate(mark.freed);
    }

    fn unplace(&mut self, _: Vec<P>) {}

    fn is_lost(&self, _: Pvbn) -> bool {
        true // a plan is thrown away
    }
}

/// Numbers that a cleaner asks for ahead of what it places, at most: for a path of nodes.
pub const AHEAD_MAX: usize = DEPTH_MAX as usize + 1;

/// Blocks that cleaning a file places, at most: what is dirty, and the way to each node that has
/// some of it, or in which one of so many holes begins or ends.
#[must_use]
pub fn numbers_max<P: Pointer>(root: &Root<P>, leaves: &[(Fbn, Leaf<P>)], holes: usize) -> usize {
    let last = leaves.last().map_or(0, |leaf| leaf.0.get());
    let mut depth = root.depth.max(1);
    while depth < DEPTH_MAX && last >= Root::<P>::capacity(depth) {
        depth += 1;
    }
    let node = |leaf: &(Fbn, Leaf<P>)| leaf.0.get() / P::FANOUT;
    let is_same = |one: &_, next: &_| node(one) == node(next);
    // Where the work on holes is broken off another ends; a tree that grows keeps its first block.
    let nodes = leaves.chunk_by(is_same).count() + 2 * holes + 2;
    leaves.len() + nodes * usize::from(depth - 1) + 1
}

/// A file block's new state.
#[derive(Clone, Debug)]
pub enum Leaf<P> {
    /// New content, to be placed.
    Block(BlockRef),
    /// The content that is there, to be placed elsewhere: read reallocation.
    Reallocated(BlockRef),
    /// Placed already: a block of a volume, in its container file.
    Placed(P),
}

struct Node<P> {
    index: u64,
    block: BlockRef,
    old: P,
    modified: bool,
}

/// See the module.
pub struct FileCleaner<P> {
    key: FileKey,
    root: Root<P>,
    leaves: Vec<(Fbn, Leaf<P>)>,
    next_leaf: usize,
    holes: RangeSet,
    /// Holes below this file block are done.
    holes_done: Fbn,
    /// The ranges of `holes` before this one are done: there may be as many as blocks.
    next_range: usize,
    /// How much may still be freed, of blocks and of the nodes that they are taken from; the rest
    /// is left for later.
    hole_cost_left: u64,
    /// The open node of each level, from 1; lower levels lie within higher ones.
    path: Vec<Option<Node<P>>>,
    blocks_change: i64,
    is_salvaged: bool,
    /// The first node that could not be read and was left out.
    left_out: Option<Pvbn>,
    inline: Option<[u8; PAYLOAD_SIZE]>,
}

impl<P: Pointer> FileCleaner<P> {
    /// A cleaner for one file. `leaves` are in order of file block number. If `inline_size` is
    /// given, the file is of that size and a kind that may lie in its inode.
    #[must_use]
    pub fn new(
        key: FileKey,
        root: Root<P>,
        mut leaves: Vec<(Fbn, Leaf<P>)>,
        mut holes: RangeSet,
        inline_size: Option<u64>,
    ) -> Self {
        debug_assert!(leaves.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let mut root = root;
        let mut inline = None;
        if inline_size.is_some_and(|size| size <= PAYLOAD_SIZE as u64) {
            inline = inline_content(&root, &leaves, &holes);
        }
        if inline.is_some() {
            leaves.clear();
            holes = RangeSet::all();
        }
        if root.depth == 0 {
            // The tiny content becomes block 0 of a tree, unless it is replaced or gone.
            let replaced =
                leaves.first().is_some_and(|leaf| leaf.0 == Fbn(0)) || holes.contains(Fbn(0));
            if let (false, Some(block)) = (replaced || root.is_empty(), root.inline_block()) {
                leaves.insert(0, (Fbn(0), Leaf::Block(block)));
            }
            root = Root::default();
        }
        Self {
            key,
            root,
            leaves,
            next_leaf: 0,
            holes,
            holes_done: Fbn(0),
            next_range: 0,
            hole_cost_left: u64::MAX,
            path: (0..=DEPTH_MAX).map(|_| None).collect(),
            blocks_change: 0,
            is_salvaged: false,
            left_out: None,
            inline,
        }
    }

    /// Frees no more than `cost` in this run, counted in blocks and the lowest-level nodes they are
    /// taken from, but for the rest of the node that exceeds it: for files too large to be freed in
    /// one consistency point.
    #[must_use]
    pub const fn with_hole_limit(mut self, cost: u64) -> Self {
        self.hole_cost_left = cost;
        self
    }

    /// Leaves nodes out that cannot be read, with all that is below them: the file goes away.
    #[must_use]
    pub const fn with_salvage(mut self) -> Self {
        self.is_salvaged = true;
        self
    }

    /// The first node that was left out.
    #[must_use]
    pub const fn left_out(&self) -> Option<Pvbn> {
        self.left_out
    }

    /// The file's new blocks that were placed before they came here.
    #[must_use]
    pub fn into_placed(self) -> Vec<P> {
        let placed = |(_, leaf)| match leaf {
            Leaf::Placed(pointer) => Some(pointer),
            Leaf::Block(_) | Leaf::Reallocated(_) => None,
        };
        self.leaves.into_iter().filter_map(placed).collect()
    }

    /// What is left of [`Self::with_hole_limit`].
    #[must_use]
    pub const fn hole_limit_left(&self) -> u64 {
        self.hole_cost_left
    }

    /// Does the work; the new root, and by how much the count of data blocks changed.
    ///
    /// # Errors
    /// What to wait for; then run again.
    pub fn run(&mut self, reader: &Reader<'_>, sink: &mut dyn Sink<P>) -> Progress<(Root<P>, i64)> {
        self.grow();
        while let Some(first) = self.next_group(reader)? {
            self.open(first, reader, sink)?;
            self.apply(first, sink);
        }
        sink.prepare(self.path.len())?;
        for level in 1..self.path.len() as u8 {
            self.close(level, sink);
        }
        if let Some(content) = self.inline {
            assert!(self.root.is_empty(), "a tiny file keeps no blocks");
            self.root = Root::inline(&content);
        } else if self.root.is_empty() {
            self.root = Root::default();
        }
        Ok((self.root, self.blocks_change))
    }

    /// Deepens the root until it reaches the last leaf.
    fn grow(&mut self) {
        let last = self.leaves.last().map_or(0, |leaf| leaf.0.get());
        while last >= Root::<P>::capacity(self.root.depth) {
            let level = self.root.depth;
            assert!(level < DEPTH_MAX, "file block {last} is beyond the format's reach");
            if !self.root.is_empty() || self.path[usize::from(level) - 1].is_some() {
                let block = Block::shared(&self.root.payload);
                let node = Node { index: 0, block, old: P::default(), modified: true };
                self.path[usize::from(level)] = Some(node);
            }
            self.root = Root::default();
            self.root.depth = level + 1;
        }
    }

    /// The first file block of the next lowest-level node with work to do.
    fn next_group(&mut self, reader: &Reader<'_>) -> Progress<Option<Fbn>> {
        let leaf = self.leaves.get(self.next_leaf).map(|leaf| leaf.0);
        let hole = self.next_hole(reader)?;
        let first = match (leaf, hole) {
            (None, None) => return Ok(None),
            (Some(at), None) | (None, Some(at)) => at,
            (Some(leaf), Some(hole)) => leaf.min(hole),
        };
        Ok(Some(Fbn(first.get() / self.group() * self.group())))
    }

    /// File blocks in a group: what a lowest-level node covers, or the whole root at depth 1.
    fn group(&self) -> u64 {
        if self.root.depth == 1 { P::ROOT_POINTERS } else { P::FANOUT }
    }

    /// The next block of the tree that lies in a new hole.
    fn next_hole(&mut self, reader: &Reader<'_>) -> Progress<Option<Fbn>> {
        if self.hole_cost_left == 0 {
            return Ok(None);
        }
        while let Some(&(start, end)) = self.holes.ranges().get(self.next_range) {
            let start = start.max(self.holes_done);
            if start < end
                && let Some(at) = self.present(start, end, reader)?
            {
                return Ok(Some(at));
            }
            self.holes_done = self.holes_done.max(end);
            self.next_range += 1;
        }
        Ok(None)
    }

    /// [`crate::buftree::next_present`] in the tree as it is now: nodes that are open count as they
    /// stand. Work goes from left to right, so at and beyond `start` only whole old subtrees, and
    /// the open nodes on the path to them, can lie.
    fn present(&self, start: Fbn, end: Fbn, reader: &Reader<'_>) -> Progress<Option<Fbn>> {
        let (mut at, end) = (start.get(), end.get());
        for level in 1..self.root.depth {
            let Some(node) = &self.path[usize::from(level)] else { continue };
            let (first, last) =
                (node.index * span::<P>(level), (node.index + 1) * span::<P>(level));
            if at < first || at >= last {
                continue;
            }
            let below = span::<P>(level - 1);
            for entry in at / below % P::FANOUT..P::FANOUT {
                let pointer = P::decode_at(node.block.bytes(), entry as usize);
                let found =
                    self.present_below(&pointer, level - 1, first / below + entry, at, reader)?;
                if let Some(found) = found {
                    return Ok((found < end).then_some(Fbn(found)));
                }
                if first + (entry + 1) * below >= end {
                    return Ok(None);
                }
            }
            at = last;
        }
        let below = span::<P>(self.root.depth - 1);
        for entry in at / below..P::ROOT_POINTERS {
            if entry * below >= end {
                break;
            }
            let pointer = self.root.pointer(entry);
            if let Some(found) =
                self.present_below(&pointer, self.root.depth - 1, entry, at, reader)?
            {
                return Ok((found < end).then_some(Fbn(found)));
            }
        }
        Ok(None)
    }

    /// The first file block at or after `at` below a node of the old tree.
    fn present_below(
        &self,
        pointer: &P,
        level: u8,
        index: u64,
        at: u64,
        reader: &Reader<'_>,
    ) -> Progress<Option<u64>> {
        let first = index * span::<P>(level);
        if pointer.is_hole() || first + span::<P>(level) <= at {
            return Ok(None);
        }
        if level == 0 {
            return Ok(Some(first));
        }
        let node = match reader.block(pointer, self.key.place(level, index)) {
            // It is to be opened, and left out then.
            Err(Stop::Damaged(_)) if self.is_salvaged => return Ok(Some(first.max(at))),
            node => node?,
        };
        let below = span::<P>(level - 1);
        let skip = at.saturating_sub(first) / below;
        for entry in skip..P::FANOUT {
            let child = P::decode_at(node.bytes(), entry as usize);
            let found =
                self.present_below(&child, level - 1, index * P::FANOUT + entry, at, reader)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Opens the nodes that lead to `first`, closing those that do not. Nothing is changed before
    /// all that it needs is there.
    fn open(&mut self, first: Fbn, reader: &Reader<'_>, sink: &mut dyn Sink<P>) -> Progress<()> {
        let end = first.offset(self.group());
        let leaves = self.leaves[self.next_leaf..].partition_point(|leaf| leaf.0 < end);
        sink.prepare(leaves + self.path.len())?;
        for level in 1..self.root.depth {
            let index = first.get() / span::<P>(level);
            if self.path[usize::from(level)].as_ref().is_some_and(|node| node.index != index) {
                self.close(level, sink);
            }
        }
        for level in (1..self.root.depth).rev() {
            if self.path[usize::from(level)].is_some() {
                continue;
            }
            let index = first.get() / span::<P>(level);
            let old = self.entry(level + 1, index);
            let read = match old.is_hole() {
                true => Ok(Block::shared(&[])),
                false => reader.block(&old, self.key.place(level, index)),
            };
            let (block, modified) = match read {
                Err(Stop::Damaged(pvbn)) if self.is_salvaged && sink.is_lost(pvbn) => {
                    self.left_out.get_or_insert(pvbn);
                    (Block::shared(&[]), true)
                }
                Err(stop) => return Err(self.with_nodes_ahead(stop, level, index, reader)),
                Ok(block) => (block, false),
            };
            self.path[usize::from(level)] = Some(Node { index, block, old, modified });
        }
        Ok(())
    }

    /// Has the nodes of `level` that the work comes to after node `index`, beneath the same parent,
    /// loaded together with it: with cold caches a wait for each would be most of the time.
    fn with_nodes_ahead(&self, stop: Stop, level: u8, index: u64, reader: &Reader<'_>) -> Stop {
        let Stop::Wait(Wait::Load(mut requests)) = stop else { return stop };
        let span = span::<P>(level);
        let parent_end = if level + 1 == self.root.depth {
            P::ROOT_POINTERS
        } else {
            (index / P::FANOUT + 1) * P::FANOUT
        };
        let mut at = index + 1;
        while at < parent_end && requests.len() < NODES_AHEAD_MAX {
            let leaves = &self.leaves[self.next_leaf..];
            let from = Fbn(at * span);
            let leaf = leaves.get(leaves.partition_point(|leaf| leaf.0 < from));
            let ranges = &self.holes.ranges()[self.next_range..];
            let hole = ranges.get(ranges.partition_point(|range| range.1 <= from));
            let hole = hole.filter(|_| self.hole_cost_left > 0).map(|range| range.0.max(from));
            let Some(next) = leaf.map(|leaf| leaf.0).into_iter().chain(hole).min() else { break };
            at = next.get() / span;
            if at >= parent_end {
                break;
            }
            let pointer = self.entry(level + 1, at);
            if !pointer.is_hole() {
                let request = pointer.request(self.key.place(level, at));
                if matches!(reader.find(&request), Ok(None)) {
                    requests.push(request);
                }
            }
            at += 1;
        }
        Stop::Wait(Wait::Load(requests))
    }

    /// The pointer to the child `index` (at `level - 1`) in the open node at `level`, or the root.
    fn entry(&self, level: u8, index: u64) -> P {
        if level == self.root.depth {
            return self.root.pointer(index);
        }
        let Some(node) = &self.path[usize::from(level)] else {
            unreachable!("nodes are opened from the top")
        };
        P::decode_at(node.block.bytes(), (index % P::FANOUT) as usize)
    }

    fn set_entry(&mut self, level: u8, index: u64, pointer: &P) {
        if level == self.root.depth {
            return self.root.set_pointer(index, pointer);
        }
        let Some(node) = &mut self.path[usize::from(level)] else {
            unreachable!("a child is closed before its parent")
        };
        let bytes = Arc::make_mut(&mut node.block).bytes_mut();
        pointer.encode_at(bytes, (index % P::FANOUT) as usize);
        node.modified = true;
    }

    /// Applies holes and leaves to the group that begins at `first`.
    fn apply(&mut self, first: Fbn, sink: &mut dyn Sink<P>) {
        let end = first.offset(self.group());
        if self.hole_cost_left > 0 {
            let freed = self.apply_holes(first, end, sink);
            let cost = if freed == 0 { 0 } else { freed + 1 };
            self.hole_cost_left = self.hole_cost_left.saturating_sub(cost);
        }
        while let Some((fbn, leaf)) = self.leaves.get(self.next_leaf) {
            if *fbn >= end {
                break;
            }
            let (fbn, leaf) = (fbn.get(), leaf.clone());
            self.next_leaf += 1;
            let old = self.entry(1, fbn);
            let place = self.key.place(0, fbn);
            let pointer = match leaf {
                Leaf::Reallocated(block) if !old.is_hole() => sink.place_again(old, block, place),
                Leaf::Reallocated(block) | Leaf::Block(block) => {
                    self.replace(old, sink);
                    sink.place(block, place)
                }
                // A pointer that says something else of the block it had keeps the block.
                Leaf::Placed(pointer) if pointer.vbn() == old.vbn() => pointer,
                Leaf::Placed(pointer) => {
                    self.replace(old, sink);
                    pointer
                }
            };
            self.set_entry(1, fbn, &pointer);
        }
        self.holes_done = self.holes_done.max(end);
    }

    /// Another block takes the place of `old`, or fills a hole.
    fn replace(&mut self, old: P, sink: &mut dyn Sink<P>) {
        if old.is_hole() {
            self.blocks_change += 1;
        } else {
            sink.free(old);
        }
    }

    /// Frees what lies in holes between `first` and `end`; how many blocks those were.
    fn apply_holes(&mut self, first: Fbn, end: Fbn, sink: &mut dyn Sink<P>) -> u64 {
        let mut freed = 0;
        let mut index = self.next_range;
        while let Some(&(start, stop)) = self.holes.ranges().get(index) {
            if start >= end {
                break;
            }
            for fbn in start.max(first).get()..stop.min(end).get() {
                let old = self.entry(1, fbn);
                if !old.is_hole() {
                    sink.free(old);
                    freed += 1;
                    self.set_entry(1, fbn, &P::default());
                }
            }
            index += 1;
        }
        self.blocks_change -= freed as i64;
        freed
    }

    /// Places the open node of `level` and stores its pointer in its parent.
    fn close(&mut self, level: u8, sink: &mut dyn Sink<P>) {
        let Some(node) = self.path[usize::from(level)].take() else { return };
        if !node.modified {
            return;
        }
        if !node.old.is_hole() {
            sink.free(node.old);
        }
        let pointer = if node.block.is_zero() {
            P::default()
        } else {
            sink.place(node.block, self.key.place(level, node.index))
        };
        if !(pointer.is_hole() && node.old.is_hole()) {
            self.set_entry(level + 1, node.index, &pointer);
        }
    }
}

/// The content of a file that lies in its inode after this consistency point, if its first block
/// changes or lies there already.
fn inline_content<P: Pointer>(
    root: &Root<P>,
    leaves: &[(Fbn, Leaf<P>)],
    holes: &RangeSet,
) -> Option<[u8; PAYLOAD_SIZE]> {
    let mut content = [0; PAYLOAD_SIZE];
    match leaves.first() {
        Some((Fbn(0), Leaf::Block(block) | Leaf::Reallocated(block))) => {
            content.copy_from_slice(&block.bytes()[..PAYLOAD_SIZE]);
            Some(content)
        }
        _ if holes.contains(Fbn(0)) => Some(content),
        _ if root.depth == 0 => Some(root.payload),
        _ if root.is_empty() => Some(content),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
