//! Promises of space (decision D6): what an operation may come to need is set aside when it is
//! accepted, in the volume and in the aggregate, so that no consistency point fails for space.
//!
//! A budget counts in blocks. `available` is what the last commit left free, less a reserve that
//! only frees may spend; against it stand the promises of the active image and those of the image
//! that a consistency point is writing. What operations free counts only after the commit.
//!
//! Invariants: `active + frozen <= available` for promises out of the common part, and
//! `<= available + reserve` for those of frees.

use platform::mutation::{self, Rule};
use std::sync::atomic::{AtomicU64, Ordering};

/// Who spends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spender {
    /// An operation that stores more.
    Common,
    /// An operation that frees: it may spend the reserve, so that deleting always works.
    Free,
    /// Work that was promised before (replay): always granted.
    Owed,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Budget {
    available: AtomicU64,
    reserve: AtomicU64,
    active: AtomicU64,
    frozen: AtomicU64,
}

impl Budget {
    /// What is free after a commit, and how much of it is reserved.
    pub fn settle(&self, free_blocks: u64, reserve_blocks: u64) {
        let reserve = reserve_blocks.min(free_blocks);
        self.available.store(free_blocks - reserve, Ordering::Relaxed);
        self.reserve.store(reserve, Ordering::Relaxed);
        self.frozen.store(0, Ordering::Relaxed);
    }

    /// Sets `blocks` aside; whether there was room.
    #[must_use]
    pub fn promise(&self, blocks: u64, spender: Spender) -> bool {
        let limit = match spender {
            Spender::Common => self.available.load(Ordering::Relaxed),
            Spender::Free => {
                self.available.load(Ordering::Relaxed) + self.reserve.load(Ordering::Relaxed)
            }
            Spender::Owed => u64::MAX,
        };
        let before = self.active.fetch_add(blocks, Ordering::Relaxed);
        let fits = before + blocks + self.frozen.load(Ordering::Relaxed) <= limit;
        if mutation::broken(Rule::PromiseNotTaken) {
            return true;
        }
        if !fits {
            self.active.fetch_sub(blocks, Ordering::Relaxed);
        }
        fits
    }

    /// Takes a promise back.
    pub fn forgo(&self, blocks: u64) {
        self.active.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// A freeze: what was promised is now the consistency point's to spend.
    pub fn freeze(&self) {
        let active = self.active.swap(0, Ordering::Relaxed);
        self.frozen.fetch_add(active, Ordering::Relaxed);
    }

    /// Blocks that a common operation could still be promised.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        let promised = self.active.load(Ordering::Relaxed) + self.frozen.load(Ordering::Relaxed);
        self.available.load(Ordering::Relaxed).saturating_sub(promised)
    }

    /// Whether a commit could make room: something is promised or being written.
    #[must_use]
    pub fn has_promises(&self) -> bool {
        self.active.load(Ordering::Relaxed) + self.frozen.load(Ordering::Relaxed) > 0
    }
}

/// Changed inodes that take as much memory as a dirty block, with what a consistency point keeps
/// of them beside it.
const INODES_PER_BLOCK: u64 = 4;
/// Clean inodes that each volume keeps in memory unless the node has less room.
const INODES_PER_VOLUME_MAX: u64 = 100_000;
/// Inodes that each volume may keep however many volumes there are: a path and what hangs on it.
const INODES_PER_VOLUME_MIN: u64 = 64;

/// What is dirty in memory, over all volumes of a node, under a cap; and how many clean inodes a
/// volume may keep.
///
/// Changed inodes count, too: a million files made between two consistency points are a few blocks
/// of directories and half a gigabyte of inodes.
#[derive(Debug)]
pub struct DirtyMemory {
    blocks: AtomicU64,
    inodes: AtomicU64,
    blocks_max: u64,
    inodes_per_volume: AtomicU64,
}

impl DirtyMemory {
    /// None yet, at most `blocks_max`.
    #[must_use]
    pub const fn new(blocks_max: u64) -> Self {
        Self {
            blocks: AtomicU64::new(0),
            inodes: AtomicU64::new(0),
            blocks_max,
            inodes_per_volume: AtomicU64::new(INODES_PER_VOLUME_MAX),
        }
    }

    /// Adds; operations call it after [`Self::is_full`] said no.
    pub fn add(&self, blocks: u64) {
        self.blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Takes off.
    pub fn remove(&self, blocks: u64) {
        self.blocks.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Counts an inode that became dirty.
    pub fn add_inode(&self) {
        self.inodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes inodes off that are clean again, or gone.
    ///
    /// # Panics
    /// If they were not counted.
    pub fn remove_inodes(&self, inodes: u64) {
        let before = self.inodes.fetch_sub(inodes, Ordering::Relaxed);
        assert!(before >= inodes, "{inodes} inodes are clean again of {before} dirty ones");
    }

    /// Whether operations must wait for a commit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.weight() >= self.blocks_max
    }

    /// Whether a consistency point should begin: half of the cap is dirty, so that the other half
    /// is there for operations while it runs.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        self.weight() >= self.blocks_max / 2
    }

    /// In blocks: all that counts against the cap.
    fn weight(&self) -> u64 {
        self.blocks() + self.inodes() / INODES_PER_BLOCK
    }

    /// Dirty blocks now.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Dirty inodes now.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        self.inodes.load(Ordering::Relaxed)
    }

    /// Shares room for `inodes` clean inodes out among `volumes` volumes.
    pub fn share_inodes(&self, inodes: u64, volumes: usize) {
        let share = inodes / volumes.max(1) as u64;
        let share = share.clamp(INODES_PER_VOLUME_MIN, INODES_PER_VOLUME_MAX);
        self.inodes_per_volume.store(share, Ordering::Relaxed);
    }

    /// Clean inodes that a volume may keep.
    #[must_use]
    pub fn inodes_per_volume(&self) -> usize {
        self.inodes_per_volume.load(Ordering::Relaxed) as usize
    }
}
