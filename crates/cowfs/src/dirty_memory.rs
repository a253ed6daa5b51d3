//! Dirty memory of a node, shared out among its aggregates.
//!
//! What operations have changed stays in memory until a consistency point of their aggregate has
//! written it. All aggregates of a node live under one cap. If the cap were all there is, one
//! aggregate whose disks are slow or dead would fill it, and the operations of the others would
//! wait for memory that the others cannot give back.
//!
//! So half of the cap is dealt out: with `n` aggregates each is *guaranteed* `cap / 2n`. The other
//! half is *common*: an aggregate whose guaranteed part is used up borrows from it, whoever comes
//! first. An aggregate alone has all of the cap. The shares change when an aggregate comes or goes.
//!
//! An operation that finds no room waits for its own aggregate's consistency point, never for that
//! of another aggregate: an aggregate without dirty memory always has room, so whoever waits has
//! something to write, and room comes when it is written. When other aggregates have borrowed, they
//! are asked for a consistency point beside, and what they give back lets the operation go on
//! earlier.
//!
//! Blocks of the image that a consistency point writes stay in memory until its commit, but count
//! no more once disks have taken them. So what operations may change while it runs comes bit by
//! bit, as fast as the disks write, and not all at once at its end. There are at most half as many
//! of them as the cap on the whole node; those that are more count until the commit.
//!
//! A client that writes a stream fills whatever there is, and then waits for the consistency point
//! all the time. So that those beside it who change a little do not wait with it, operations that
//! change many blocks leave a part of the memory to them ([`DirtyMemory::is_full_for`]).
//!
//! Changed inodes count, too: a million files made between two consistency points are a few blocks
//! of directories and half a gigabyte of inodes.
//!
//! Invariants:
//! - What is counted for one aggregate is taken off by that aggregate, or goes with it.
//! - The sum is at most the cap, but for operations that were let in and have not counted what they
//!   change: one of each aggregate that had nothing dirty, one of each thread. While an aggregate
//!   holds more than the shares allow that came with a newcomer, the newcomer has what is left.
//! - What is written of an image is taken off once: when disks have it, or with the image.
//! - What is written and not committed is at most half as much as the cap.
//! - No lock is held while a [`Holder`] is called.

use platform::mutation::{self, Rule};
use platform::sync::{Mutex, RwLock};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Changed inodes that take as much memory as a dirty block, with what a consistency point keeps
/// of them beside it. Memory is counted in inodes.
const INODES_PER_BLOCK: u64 = 4;
/// The guaranteed parts together are the cap divided by this, and the common part is the rest:
/// half, so that one busy aggregate beside idle ones has more than half of the cap, and many busy
/// ones have consistency points of a size that is worth it.
const GUARANTEED_SHARE: u64 = 2;
/// A consistency point begins when an aggregate has used this share of what it may have: the other
/// half is for operations while it runs.
const BEGIN_SHARE: u64 = 2;
/// An operation that changes at most so many blocks may use what larger ones leave: fewer than the
/// smallest piece in which clients send a stream, 32 KiB.
const SMALL_BLOCKS_MAX: u64 = 7;
/// The share of the cap that larger operations leave of the common part: what others change while
/// a consistency point is written, some 2,600 blocks of a node with a gigabyte of memory.
const SMALL_SHARE: u64 = 16;
/// The share of the cap that has to be free, of what they may use, before operations that wait are
/// woken: not for each batch that disks have taken.
const WAKE_SHARE: u64 = 64;
/// The share of the cap that blocks may be which disks have and no commit yet: the image of an
/// aggregate alone that begins at half.
const WRITTEN_SHARE: u64 = 2;
/// No operation waits.
const NOBODY: u64 = u64::MAX;
/// Clean inodes that each volume keeps in memory unless the node has less room.
const INODES_PER_VOLUME_MAX: u64 = 100_000;
/// Inodes that each volume may keep however many volumes there are: a path and what hangs on it.
const INODES_PER_VOLUME_MIN: u64 = 64;

/// What is dirty.
#[derive(Default, Debug)]
struct Counts {
    blocks: AtomicU64,
    inodes: AtomicU64,
}

impl Counts {
    /// All that counts against the cap, in inodes.
    fn weight(&self) -> u64 {
        let blocks = self.blocks.load(Ordering::Relaxed);
        blocks * INODES_PER_BLOCK + self.inodes.load(Ordering::Relaxed)
    }
}

/// An aggregate, as its neighbours in memory see it.
pub trait Holder: Send + Sync {
    /// Others want what it has borrowed: a consistency point gives it back.
    fn asked_back(&self);

    /// Others gave memory back: operations that wait for room may find some.
    fn has_room(&self);
}

/// Blocks of the image that a consistency point writes.
#[derive(Default)]
struct ImageBlocks {
    /// Those that count.
    frozen: u64,
    /// Those that disks have taken: they count no more.
    written: u64,
}

/// One aggregate's part.
struct Share {
    counts: Counts,
    image: Mutex<ImageBlocks>,
    /// Operations wait that found no room: they are woken when so much of the common part is left.
    /// [`NOBODY`] if none does.
    woken_at: AtomicU64,
    holder: Mutex<Option<Arc<dyn Holder>>>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            image: Mutex::default(),
            woken_at: AtomicU64::new(NOBODY),
            holder: Mutex::default(),
        }
    }
}

impl Share {
    fn holder(&self) -> Option<Arc<dyn Holder>> {
        self.holder.lock().clone()
    }
}

/// The dirty memory of a node.
pub struct NodeMemory {
    counts: Counts,
    /// In inodes, as [`Counts::weight`].
    cap: u64,
    /// What each aggregate is guaranteed, in inodes.
    guaranteed: AtomicU64,
    shares: RwLock<Vec<Arc<Share>>>,
    /// Whether any share is waiting: nobody asks for a lock else.
    is_waiting: AtomicBool,
    /// Blocks that disks have, of images that have not been committed: they do not count.
    written: AtomicU64,
    inodes_per_volume: AtomicU64,
}

impl NodeMemory {
    /// None yet, at most `blocks_max` blocks.
    #[must_use]
    pub fn new(blocks_max: u64) -> Self {
        let cap = blocks_max * INODES_PER_BLOCK;
        Self {
            counts: Counts::default(),
            cap,
            guaranteed: AtomicU64::new(cap / GUARANTEED_SHARE),
            shares: RwLock::default(),
            is_waiting: AtomicBool::new(false),
            written: AtomicU64::new(0),
            inodes_per_volume: AtomicU64::new(INODES_PER_VOLUME_MAX),
        }
    }

    /// Dirty blocks now, those of all aggregates.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.counts.blocks.load(Ordering::Relaxed)
    }

    /// Dirty inodes now, those of all aggregates.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        self.counts.inodes.load(Ordering::Relaxed)
    }

    /// Shares room for `inodes` clean inodes out among `volumes` volumes, of whichever aggregate: a
    /// volume never has another one's, so none waits for any.
    pub fn share_inodes(&self, inodes: u64, volumes: usize) {
        let share = inodes / volumes.max(1) as u64;
        let share = share.clamp(INODES_PER_VOLUME_MIN, INODES_PER_VOLUME_MAX);
        self.inodes_per_volume.store(share, Ordering::Relaxed);
    }

    fn guaranteed(&self) -> u64 {
        self.guaranteed.load(Ordering::Relaxed)
    }

    /// The part that nobody is guaranteed.
    const fn common(&self) -> u64 {
        self.cap - self.cap / GUARANTEED_SHARE
    }

    /// What all aggregates but one have borrowed.
    fn borrowed_beside(&self, own: &Arc<Share>) -> u64 {
        let (shares, guaranteed) = (self.shares.read(), self.guaranteed());
        let others = shares.iter().filter(|share| !Arc::ptr_eq(share, own));
        others.map(|share| share.counts.weight().saturating_sub(guaranteed)).sum()
    }

    fn change_shares(&self, change: impl FnOnce(&mut Vec<Arc<Share>>)) {
        let mut shares = self.shares.write();
        change(&mut shares);
        let count = shares.len().max(1) as u64;
        self.guaranteed.store(self.cap / GUARANTEED_SHARE / count, Ordering::Relaxed);
    }

    /// Tells aggregates whose operations wait and may go on now, but for `own`: its operations are
    /// woken by its consistency points.
    fn tell_waiting(&self, own: &Arc<Share>) {
        if !self.is_waiting.swap(false, Ordering::Relaxed) {
            return;
        }
        let shares: Vec<_> = self.shares.read().iter().map(Arc::clone).collect();
        for share in shares.iter().filter(|share| share.woken_at.load(Ordering::Relaxed) != NOBODY)
        {
            if Arc::ptr_eq(share, own) || !self.wake(share) {
                self.is_waiting.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Wakes who waits in a share, if there is as much room as they wait for; whether nobody waits
    /// there any more.
    fn wake(&self, share: &Arc<Share>) -> bool {
        let woken_at = share.woken_at.load(Ordering::Relaxed);
        if woken_at == NOBODY {
            return true;
        }
        if self.is_full(share, woken_at) {
            return false;
        }
        if share.woken_at.swap(NOBODY, Ordering::Relaxed) != NOBODY
            && let Some(holder) = share.holder()
        {
            holder.has_room();
        }
        true
    }

    /// Has blocks that disks have count no more: as many of these as may. What it answers is given
    /// back with [`Self::forget_written`].
    fn note_written(&self, blocks: u64) -> u64 {
        let written_max = self.cap / INODES_PER_BLOCK / WRITTEN_SHARE;
        let mut taken = 0;
        let add = |written: u64| {
            taken = blocks.min(written_max.saturating_sub(written));
            Some(written + taken)
        };
        match self.written.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => taken,
            Err(_) => unreachable!("there is always a number"),
        }
    }

    fn forget_written(&self, blocks: u64) {
        self.written.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Whether no operation of an aggregate may change anything, or none that leaves `left` of the
    /// common part to others.
    fn is_full(&self, share: &Arc<Share>, left: u64) -> bool {
        let (own, all) = (share.counts.weight(), self.counts.weight());
        if mutation::broken(Rule::MemoryCountedTogether) {
            return all >= self.cap;
        }
        if own == 0 {
            return false;
        }
        if all >= self.cap {
            return true;
        }
        let guaranteed = self.guaranteed();
        let Some(borrowed) = own.checked_sub(guaranteed) else { return false };
        // All of the others' would be borrowed at most: mostly that tells, without a lock.
        let others = all.saturating_sub(own);
        borrowed + left + others >= self.common()
            && borrowed + left + self.borrowed_beside(share) >= self.common()
    }
}

impl fmt::Debug for NodeMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = formatter.debug_struct("NodeMemory");
        text.field("counts", &self.counts).field("cap", &self.cap).finish_non_exhaustive()
    }
}

/// One aggregate's part of a node's dirty memory. What is dirty when it is dropped is dirty no
/// more: an aggregate that was taken out of service.
pub struct DirtyMemory {
    node: Arc<NodeMemory>,
    share: Arc<Share>,
}

impl DirtyMemory {
    /// Of an aggregate alone on a node: none yet, at most `blocks_max` blocks.
    #[must_use]
    pub fn new(blocks_max: u64) -> Self {
        Self::part_of(&Arc::new(NodeMemory::new(blocks_max)))
    }

    /// The part of another aggregate: from now on the others are guaranteed less.
    #[must_use]
    pub fn part_of(node: &Arc<NodeMemory>) -> Self {
        let share = Arc::new(Share::default());
        node.change_shares(|shares| shares.push(Arc::clone(&share)));
        Self { node: Arc::clone(node), share }
    }

    /// The node's.
    #[must_use]
    pub fn node(&self) -> &NodeMemory {
        &self.node
    }

    /// Who is told when others want memory, or have given some back.
    pub fn set_holder(&self, holder: Arc<dyn Holder>) {
        *self.share.holder.lock() = Some(holder);
    }

    /// Adds; operations call it after [`Self::is_full_for`] said no.
    pub fn add(&self, blocks: u64) {
        self.share.counts.blocks.fetch_add(blocks, Ordering::Relaxed);
        self.node.counts.blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Takes off.
    ///
    /// # Panics
    /// If they were not counted for this aggregate.
    pub fn remove(&self, blocks: u64) {
        if blocks == 0 {
            return;
        }
        let before = self.share.counts.blocks.fetch_sub(blocks, Ordering::Relaxed);
        assert!(before >= blocks, "{blocks} blocks are clean again of {before} dirty ones");
        self.node.counts.blocks.fetch_sub(blocks, Ordering::Relaxed);
        self.node.tell_waiting(&self.share);
    }

    /// So many dirty blocks are an image now that a consistency point writes.
    pub fn note_frozen(&self, blocks: u64) {
        self.share.image.lock().frozen += blocks;
    }

    /// Disks have taken so many blocks, of an image or of what leads to it: as many count no more,
    /// as far as they may. Operations of this aggregate that wait for memory go on if there is
    /// enough.
    pub fn note_written(&self, blocks: u64) {
        let taken = {
            let mut image = self.share.image.lock();
            let taken = self.node.note_written(image.frozen.min(blocks));
            image.frozen -= taken;
            image.written += taken;
            taken
        };
        self.remove(taken);
        self.node.wake(&self.share);
    }

    /// Takes off what counts of so many blocks of an image: it has been committed, or is given up.
    ///
    /// # Panics
    /// If they were not part of one.
    pub fn remove_frozen(&self, blocks: u64) {
        let counted = {
            let mut image = self.share.image.lock();
            let written = image.written.min(blocks);
            let counted = blocks - written;
            assert!(
                counted <= image.frozen,
                "{counted} blocks are of an image of {}",
                image.frozen
            );
            image.written -= written;
            image.frozen -= counted;
            self.node.forget_written(written);
            counted
        };
        let is_broken = mutation::broken(Rule::WrittenTakenTwice);
        self.remove(if is_broken { blocks } else { counted });
    }

    /// Counts an inode that became dirty.
    pub fn add_inode(&self) {
        self.share.counts.inodes.fetch_add(1, Ordering::Relaxed);
        self.node.counts.inodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes inodes off that are clean again, or gone.
    ///
    /// # Panics
    /// If they were not counted for this aggregate.
    pub fn remove_inodes(&self, inodes: u64) {
        if inodes == 0 {
            return;
        }
        let before = self.share.counts.inodes.fetch_sub(inodes, Ordering::Relaxed);
        assert!(before >= inodes, "{inodes} inodes are clean again of {before} dirty ones");
        self.node.counts.inodes.fetch_sub(inodes, Ordering::Relaxed);
        self.node.tell_waiting(&self.share);
    }

    /// Whether an operation that changes so many blocks must wait: the aggregate has used what it
    /// is guaranteed, and the common part is taken, but for what large operations leave of it to
    /// small ones.
    /// Never while nothing of it is dirty: a consistency point would find nothing to write, and
    /// whoever waits for it would wait in vain.
    #[must_use]
    pub fn is_full_for(&self, blocks: u64) -> bool {
        let left = if blocks > SMALL_BLOCKS_MAX { self.node.cap / SMALL_SHARE } else { 0 };
        self.node.is_full(&self.share, left)
    }

    /// An operation waits for room. If memory is what it lacks, aggregates that have borrowed are
    /// asked for it, and the [`Holder`] is told when they, or this one's disks, have given some
    /// back.
    ///
    /// If there is little room it counts as lacking: a batch may have been written since the
    /// operation found none.
    pub fn note_waiting(&self) {
        let for_some = self.node.cap / WAKE_SHARE;
        let for_large = self.node.cap / SMALL_SHARE + for_some;
        if !self.node.is_full(&self.share, for_large) {
            return;
        }
        let woken_at = if self.is_full_for(1) { for_some } else { for_large };
        self.share.woken_at.fetch_min(woken_at, Ordering::Relaxed);
        self.node.is_waiting.store(true, Ordering::Relaxed);
        if self.is_full_for(u64::MAX) {
            self.ask_back();
        }
    }

    /// Has all others that have borrowed of the common part give it back.
    pub fn ask_back(&self) {
        let guaranteed = self.node.guaranteed();
        let borrows = |share: &&Arc<Share>| {
            share.counts.weight() > guaranteed && !Arc::ptr_eq(share, &self.share)
        };
        let borrowers: Vec<_> =
            self.node.shares.read().iter().filter(borrows).map(Arc::clone).collect();
        borrowers.iter().filter_map(|share| share.holder()).for_each(|holder| holder.asked_back());
    }

    /// Whether a consistency point should begin: half of what the aggregate may have is dirty, so
    /// that the other half is there for operations while it runs.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        let (own, all) = (self.share.counts.weight(), self.node.counts.weight());
        let guaranteed = self.node.guaranteed();
        let begin = |borrowed: u64| {
            let common = self.node.common().saturating_sub(borrowed);
            (guaranteed + common) / BEGIN_SHARE
        };
        if own >= begin(0) || own > 0 && all >= self.node.cap {
            return true;
        }
        // All of the others' would be borrowed at most.
        if own < begin(all.saturating_sub(own)) {
            return false;
        }
        own >= begin(self.node.borrowed_beside(&self.share))
    }

    /// Dirty blocks now.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.share.counts.blocks.load(Ordering::Relaxed)
    }

    /// Dirty inodes now.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        self.share.counts.inodes.load(Ordering::Relaxed)
    }

    /// Clean inodes that a volume may keep.
    #[must_use]
    pub fn inodes_per_volume(&self) -> usize {
        self.node.inodes_per_volume.load(Ordering::Relaxed) as usize
    }

    /// The aggregate has failed: the others are guaranteed what it was. What of it is dirty counts
    /// until it is taken off.
    pub fn give_up(&self) {
        self.node.change_shares(|shares| shares.retain(|share| !Arc::ptr_eq(share, &self.share)));
        let holder = self.share.holder.lock().take();
        drop(holder);
        self.node.tell_waiting(&self.share);
    }
}

impl Drop for DirtyMemory {
    fn drop(&mut self) {
        let (blocks, inodes) = (self.blocks(), self.inodes());
        self.node.counts.blocks.fetch_sub(blocks, Ordering::Relaxed);
        self.node.counts.inodes.fetch_sub(inodes, Ordering::Relaxed);
        self.node.forget_written(std::mem::take(&mut self.share.image.lock().written));
        self.give_up();
    }
}

impl fmt::Debug for DirtyMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DirtyMemory").field("counts", &self.share.counts).finish()
    }
}

#[cfg(test)]
mod tests;
