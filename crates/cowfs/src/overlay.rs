//! Overlays: what was written since the last freeze, on top of the trees of the last commit.
//!
//! The blocks of a volume's files are dealt out to stripes, runs of [`STRIPE_BLOCKS`] file blocks
//! (Waffinity section 4.2). Each stripe keeps the dirty blocks that fall to it twice over: the
//! *active* ones, which operations change, and the *frozen* ones, which a running consistency point
//! is writing and nobody changes (decision 7). A read looks at the active blocks, then the active
//! holes, the frozen blocks, the frozen holes, and last at the tree.
//!
//! Invariants: frozen maps are never changed; they go when the consistency point commits. An active
//! block shares its memory with a frozen one until it is changed. A block that is *reallocated* has
//! the content of the tree below, and counts as changed from its first change on.

use platform::mutation::{self, Rule};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use units::{BlockRef, Fbn, InodeNumber};

/// File blocks in a row that one stripe holds: 2 MiB.
pub const STRIPE_BLOCKS: u64 = 512;
/// Stripes of a volume: enough to occupy more cores than a node has disks for.
pub const STRIPES: usize = 8;
/// File blocks that lie in one node of a dirty file: few enough that blocks strewn over a sparse
/// file cost little more than themselves, many enough that blocks in a row share the search.
const RUN_BLOCKS: u64 = 32;

/// Dirty blocks of one file in one stripe, in order.
#[derive(Clone, Default, Debug)]
pub struct DirtyFile {
    runs: BTreeMap<u64, Box<Run>>,
    count: usize,
}

/// Dirty blocks in a row, with gaps.
#[derive(Clone, Default, Debug)]
struct Run {
    blocks: [Option<BlockRef>; RUN_BLOCKS as usize],
    /// A bit for each whose content is not in the log: it may be lost until COMMIT.
    unlogged: u32,
    /// A bit for each that has the content of the tree below: it is to lie elsewhere.
    reallocated: u32,
}

impl Run {
    /// A block changes, and the change is in the log or not.
    fn note_change(&mut self, slot: usize, logged: bool) {
        self.unlogged |= u32::from(!logged) << slot;
        if !mutation::broken(Rule::ChangedBlockReallocated) {
            self.reallocated &= !(1 << slot);
        }
        if logged && mutation::broken(Rule::StableWriteHidesUnlogged) {
            self.unlogged &= !(1 << slot);
        }
    }
}

/// Where a file block lies: its run, and the slot within.
const fn slot(fbn: Fbn) -> (u64, usize) {
    (fbn.get() / RUN_BLOCKS, (fbn.get() % RUN_BLOCKS) as usize)
}

impl DirtyFile {
    /// How many blocks are dirty.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether none is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The content of a file block, if it is dirty.
    #[must_use]
    pub fn get(&self, fbn: Fbn) -> Option<&BlockRef> {
        let (run, slot) = slot(fbn);
        self.runs.get(&run)?.blocks[slot].as_ref()
    }

    /// The content of a dirty block, to be changed; `logged` says whether the change is in the log.
    pub fn get_mut(&mut self, fbn: Fbn, logged: bool) -> Option<&mut BlockRef> {
        let (run, slot) = slot(fbn);
        let run = self.runs.get_mut(&run)?;
        run.blocks[slot].as_ref()?;
        run.note_change(slot, logged);
        run.blocks[slot].as_mut()
    }

    /// Puts a block in; whether it was not dirty before. What is not in the log stays so, whatever
    /// is logged on top, until COMMIT logs it whole.
    pub fn put(&mut self, fbn: Fbn, block: BlockRef, logged: bool) -> bool {
        let (run, slot) = slot(fbn);
        let run = self.runs.entry(run).or_default();
        run.note_change(slot, logged);
        let new = run.blocks[slot].replace(block).is_none();
        self.count += usize::from(new);
        new
    }

    /// Puts a block in that has the content of the tree below, so that it is written elsewhere;
    /// whether it was not dirty before. What is dirty stays as it is.
    pub fn put_reallocated(&mut self, fbn: Fbn, block: BlockRef) -> bool {
        let (run, slot) = slot(fbn);
        let run = self.runs.entry(run).or_default();
        if run.blocks[slot].is_some() {
            return false;
        }
        run.blocks[slot] = Some(block);
        run.reallocated |= 1 << slot;
        self.count += 1;
        true
    }

    /// Drops the blocks of `start..end`; how many there were.
    pub fn drop_range(&mut self, start: Fbn, end: Fbn) -> u64 {
        let mut dropped = 0;
        let mut emptied = Vec::new();
        for (number, run) in self.runs.range_mut(runs_of(start, end)) {
            let first = Fbn(number * RUN_BLOCKS);
            for slot in within(first, start, end) {
                dropped += u64::from(run.blocks[slot].take().is_some());
                run.unlogged &= !(1 << slot);
                run.reallocated &= !(1 << slot);
            }
            if run.blocks.iter().all(Option::is_none) {
                emptied.push(*number);
            }
        }
        for number in emptied {
            self.runs.remove(&number);
        }
        self.count -= dropped as usize;
        dropped
    }

    /// The dirty blocks of `start..end`, in order.
    pub fn range(&self, start: Fbn, end: Fbn) -> impl Iterator<Item = (Fbn, &BlockRef)> {
        self.runs.range(runs_of(start, end)).flat_map(move |(number, run)| {
            let first = Fbn(number * RUN_BLOCKS);
            within(first, start, end).filter_map(move |slot| {
                Some((first.offset(slot as u64), run.blocks[slot].as_ref()?))
            })
        })
    }

    /// Whether any of `start..end` is dirty.
    #[must_use]
    pub fn is_any(&self, start: Fbn, end: Fbn) -> bool {
        // Runs are sought from one end: the next one is mostly beyond the other.
        let (first, end_run) = (start.get() / RUN_BLOCKS, end.get().div_ceil(RUN_BLOCKS));
        let mut touched = self.runs.range(first..).take_while(|(number, _)| **number < end_run);
        touched.any(|(number, run)| {
            let first = Fbn(number * RUN_BLOCKS);
            run.blocks[within(first, start, end)].iter().any(Option::is_some)
        })
    }

    /// All dirty blocks, in order, and whether each has the content of the tree below.
    pub fn leaves(&self) -> impl Iterator<Item = (Fbn, &BlockRef, bool)> {
        self.runs.iter().flat_map(|(number, run)| {
            let first = Fbn(number * RUN_BLOCKS);
            (0..RUN_BLOCKS).filter_map(move |slot| {
                let block = run.blocks[slot as usize].as_ref()?;
                Some((first.offset(slot), block, run.reallocated >> slot & 1 == 1))
            })
        })
    }

    /// Those whose content is not in the log.
    pub fn unlogged(&self) -> impl Iterator<Item = Fbn> {
        self.runs.iter().flat_map(|(number, run)| {
            let first = Fbn(number * RUN_BLOCKS);
            (0..RUN_BLOCKS)
                .filter(|slot| run.unlogged >> slot & 1 == 1)
                .map(move |slot| first.offset(slot))
        })
    }

    /// The log holds all of them now.
    pub fn set_logged(&mut self) {
        self.runs.values_mut().for_each(|run| run.unlogged = 0);
    }
}

/// The runs that hold blocks of `start..end`.
fn runs_of(start: Fbn, end: Fbn) -> Range<u64> {
    let first = start.get() / RUN_BLOCKS;
    first..end.get().div_ceil(RUN_BLOCKS).max(first)
}

/// The slots of the run beginning at `first` that lie in `start..end`.
fn within(first: Fbn, start: Fbn, end: Fbn) -> Range<usize> {
    let slot = |fbn: Fbn| fbn.get().saturating_sub(first.get()).min(RUN_BLOCKS);
    let (low, high) = (slot(start), slot(end));
    low as usize..high.max(low) as usize
}

/// Dirty blocks by file.
pub type DirtyFiles = FxHashMap<InodeNumber, DirtyFile>;

/// One stripe of a volume.
#[derive(Default, Debug)]
pub struct Stripe {
    /// Written since the last freeze.
    pub active: DirtyFiles,
    /// Being written by the running consistency point.
    pub frozen: Arc<DirtyFiles>,
    /// Inodes that a message of this stripe made dirty.
    pub dirtied: Vec<InodeNumber>,
}

/// The stripe that a file block falls to.
#[must_use]
pub fn stripe_of(inode: InodeNumber, fbn: Fbn) -> usize {
    let run = fbn.get() / STRIPE_BLOCKS;
    (inode.get().wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7).wrapping_add(run)
        % STRIPES as u64) as usize
}

impl Stripe {
    /// The active content of a file block.
    #[must_use]
    pub fn active(&self, inode: InodeNumber, fbn: Fbn) -> Option<&BlockRef> {
        self.active.get(&inode)?.get(fbn)
    }

    /// The frozen content of a file block.
    #[must_use]
    pub fn frozen(&self, inode: InodeNumber, fbn: Fbn) -> Option<&BlockRef> {
        self.frozen.get(&inode)?.get(fbn)
    }

    /// Puts a block in; whether it was not dirty before.
    pub fn put(&mut self, inode: InodeNumber, fbn: Fbn, block: BlockRef, logged: bool) -> bool {
        self.active.entry(inode).or_default().put(fbn, block, logged)
    }

    /// Puts a block in that has the content of the tree below; see [`DirtyFile::put_reallocated`].
    pub fn put_reallocated(&mut self, inode: InodeNumber, fbn: Fbn, block: BlockRef) -> bool {
        self.active.entry(inode).or_default().put_reallocated(fbn, block)
    }

    /// Drops the active blocks of `start..end`; how many there were.
    pub fn drop_range(&mut self, inode: InodeNumber, start: Fbn, end: Fbn) -> u64 {
        let Some(file) = self.active.get_mut(&inode) else { return 0 };
        let dropped = file.drop_range(start, end);
        if file.is_empty() {
            self.active.remove(&inode);
        }
        dropped
    }
}

#[cfg(test)]
mod tests;
