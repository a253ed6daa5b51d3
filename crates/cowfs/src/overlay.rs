//! Overlays: what was written since the last freeze, on top of the trees of the last commit.
//!
//! The blocks of a volume's files are dealt out to stripes, runs of [`STRIPE_BLOCKS`] file blocks
//! (Waffinity section 4.2). Each stripe keeps the dirty blocks that fall to it twice over: the
//! *active* ones, which operations change, and the *frozen* ones, which a running consistency point
//! is writing and nobody changes (decision D4). A read looks at the active blocks, then the active
//! holes, the frozen blocks, the frozen holes, and last at the tree.
//!
//! Invariants: frozen maps are never changed; they go when the consistency point commits. An active
//! block shares its memory with a frozen one until it is changed.

use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{BlockRef, Fbn, InodeNumber};

/// File blocks in a row that one stripe holds: 2 MiB.
pub const STRIPE_BLOCKS: u64 = 512;
/// Stripes of a volume: enough to occupy more cores than a node has disks for.
pub const STRIPES: usize = 8;

/// Dirty blocks of one file in one stripe.
#[derive(Clone, Default, Debug)]
pub struct DirtyFile {
    /// By file block number.
    pub blocks: BTreeMap<u64, BlockRef>,
    /// Those whose content is not in the log: they may be lost until COMMIT.
    pub unlogged: BTreeSet<u64>,
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
        self.active.get(&inode)?.blocks.get(&fbn.get())
    }

    /// The frozen content of a file block.
    #[must_use]
    pub fn frozen(&self, inode: InodeNumber, fbn: Fbn) -> Option<&BlockRef> {
        self.frozen.get(&inode)?.blocks.get(&fbn.get())
    }

    /// Puts a block in; whether it was not dirty before.
    pub fn put(&mut self, inode: InodeNumber, fbn: Fbn, block: BlockRef, logged: bool) -> bool {
        let file = self.active.entry(inode).or_default();
        if !logged {
            // And it stays unlogged, whatever is logged on top, until COMMIT logs it whole.
            file.unlogged.insert(fbn.get());
        }
        file.blocks.insert(fbn.get(), block).is_none()
    }

    /// Drops the active blocks of `start..end`; how many there were.
    pub fn drop_range(&mut self, inode: InodeNumber, start: u64, end: u64) -> u64 {
        let Some(file) = self.active.get_mut(&inode) else { return 0 };
        let dropped: Vec<u64> = file.blocks.range(start..end).map(|(fbn, _)| *fbn).collect();
        for fbn in &dropped {
            file.blocks.remove(fbn);
            file.unlogged.remove(fbn);
        }
        if file.blocks.is_empty() {
            self.active.remove(&inode);
        }
        dropped.len() as u64
    }

    /// Whether any block in `start..end` is dirty.
    #[must_use]
    pub fn is_any_active(&self, inode: InodeNumber, start: u64, end: u64) -> bool {
        self.active.get(&inode).is_some_and(|file| file.blocks.range(start..end).next().is_some())
    }
}
