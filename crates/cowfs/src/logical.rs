//! The client-facing side of a file system: inodes and dirty blocks in memory, on top of the image
//! of the last commit (Waffinity section 4.2: what the Volume Logical affinity owns).
//!
//! Operations change this side only. A consistency point *freezes* it, which sets all changes aside
//! as an [`Image`] in a short exclusive moment, cleans the image while operations go on, and then
//! *publishes* the new roots here (decisions 7, 8).
//!
//! Invariants:
//! - Between freeze and publish, an inode's `root`, the frozen overlay and `frozen_holes` together
//!   are the image; on top of them the active overlay is the current state.
//! - An inode number freed since a freeze is not used again before that freeze's image is committed
//!   (`quarantine`): replay then never meets it in use.

use crate::accounts::{Accounts, GuaranteedRoom};
use crate::budget::{
    Budget, GROWTH_COST_BLOCKS, Overhead, ReclaimTurns, Spender, VOLUME_OVERHEAD_BLOCKS,
};
use crate::buftree::{self, FileKey, Root};
use crate::cache::BufferCache;
use crate::content::Content;
use crate::dirty_memory::DirtyMemory;
use crate::holds::Holds;
use crate::inode::{Inode, InodeAttributes};
use crate::orphans::OrphanList;
use crate::overlay::{DirtyFiles, Stripe, stripe_of};
use crate::pointer::Pointer;
use crate::quotas::{QuotaChange, Quotas};
use crate::ranges::RangeSet;
use crate::reader::{Progress, Reader, Stop};
use affinity::{AffinityId, Partition};
use ondisk::root::metafile;
use platform::mutation::{self, Rule};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use units::{BlockRef, Fbn, Generation, InodeNumber, SnapshotId, Timestamp, VolumeId};

pub use crate::inode_file::{INODE_FILE, inode_file_key, read_record, record_at};

/// What the volumes of an aggregate share.
#[derive(Debug)]
pub struct AggregateShared {
    /// The aggregate's space.
    pub budget: Budget,
    /// Which volume may make room out of the last of it.
    pub reclaim_turns: Arc<ReclaimTurns>,
    /// Delayed frees of all its volumes: blocks in use that come back when they are cleared.
    pub delayed_blocks: AtomicU64,
    /// Its part of the node's dirty memory.
    pub dirty: Arc<DirtyMemory>,
    /// Its blocks in memory.
    pub cache: Arc<BufferCache>,
}

/// What both sides of a file system, and its statistics, share.
#[derive(Debug)]
pub struct Shared {
    /// The volume's space.
    pub budget: Budget,
    /// What its images cost the aggregate beside.
    pub overhead: Overhead,
    /// Room of the aggregate that only the volume spends.
    pub guaranteed: GuaranteedRoom,
    /// Its aggregate's.
    pub aggregate: Arc<AggregateShared>,
    /// Space is coming back in the background: a shortage is worth waiting for a commit.
    pub reclaiming: AtomicBool,
    /// Blocks that the volume may grow by itself, as of the last commit.
    pub growth_blocks: AtomicU64,
    /// Somebody waits for it to grow.
    pub wants_growth: AtomicBool,
    /// Where room is short it deletes snapshots by itself, and there may be one to delete.
    pub may_delete_snapshot: AtomicBool,
    /// Somebody waits for a snapshot to be deleted.
    pub wants_deletion: AtomicBool,
    /// Inodes in use, for statistics.
    pub used_inodes: AtomicU64,
    /// What users, groups and trees use, and may use.
    pub quotas: Arc<Quotas>,
}

impl Shared {
    /// Inodes in use.
    #[must_use]
    pub fn used_inodes(&self) -> u64 {
        self.used_inodes.load(Ordering::Relaxed)
    }

    /// What its operations spend of.
    #[must_use]
    pub fn accounts(&self) -> Accounts<'_> {
        Accounts {
            volume: &self.budget,
            overhead: &self.overhead,
            guaranteed: &self.guaranteed,
            aggregate: &self.aggregate.budget,
        }
    }

    /// Blocks that the volume may grow by itself and that there is room for.
    #[must_use]
    pub fn may_grow_blocks(&self) -> u64 {
        let growth = self.growth_blocks.load(Ordering::Relaxed);
        match self.guaranteed.is_chosen() {
            false => growth,
            true => growth.min(self.guaranteed.growth_blocks()),
        }
    }

    /// The volume has no room for `blocks`. Whether waiting for it to grow helps: it may grow, and
    /// the aggregate has room for the blocks and for the growth.
    #[must_use]
    pub fn ask_to_grow(&self, blocks: u64, spender: Spender) -> bool {
        let aggregate = &self.aggregate.budget;
        let all = blocks + self.overhead.of_touched(blocks) + GROWTH_COST_BLOCKS;
        // What the volume grows by is guaranteed as well, out of what all share.
        let has_room = match self.guaranteed.is_chosen() {
            false => aggregate.could_promise(all, spender),
            true => 2 * all <= self.guaranteed.growth_blocks(),
        };
        let grows = self.growth_blocks.load(Ordering::Relaxed) > 0
            && !mutation::broken(Rule::GrowthRefused)
            && has_room
            && aggregate.could_promise(GROWTH_COST_BLOCKS, Spender::Free);
        if grows {
            self.wants_growth.store(true, Ordering::Relaxed);
        }
        grows
    }

    /// The volume, or its aggregate, has no room. Whether waiting for a snapshot to be deleted
    /// helps: there may be one to delete, and the aggregate has room for its deletion.
    #[must_use]
    pub fn ask_for_deletion(&self) -> bool {
        let may_delete = self.may_delete_snapshot.load(Ordering::Relaxed)
            && !mutation::broken(Rule::AutodeleteRefused)
            && self.accounts().could_take(VOLUME_OVERHEAD_BLOCKS, Spender::Reclaim);
        if may_delete {
            self.wants_deletion.store(true, Ordering::Relaxed);
        }
        may_delete
    }

    /// Whether the next commits may make room.
    #[must_use]
    pub fn may_gain_room(&self) -> bool {
        self.may_gain_own_room() || self.aggregate.budget.has_frees()
    }

    /// Whether the next commits may make room in the volume.
    #[must_use]
    pub fn may_gain_own_room(&self) -> bool {
        // Background work that finds no room itself makes none: then no commit comes.
        let is_reclaiming =
            self.reclaiming.load(Ordering::Relaxed) && !self.aggregate.budget.is_idle();
        is_reclaiming || self.budget.has_frees()
    }
}

/// A snapshot as readers see it.
#[derive(Clone, Debug)]
pub struct SnapshotView<P> {
    /// Its number.
    pub id: SnapshotId,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// The root of its inode file.
    pub inode_file: Root<P>,
}

/// See the module.
pub struct Logical<P> {
    /// The volume's number; zero for a traditional volume, whose blocks are the aggregate's.
    pub volume: VolumeId,
    /// The root of the inode file as of the last commit.
    pub inode_file: Root<P>,
    /// Inodes in memory.
    pub inodes: FxHashMap<InodeNumber, Inode<P>>,
    /// Files that front ends have open.
    pub holds: Holds,
    /// How many inodes in memory have [`Inode::reaping`] set.
    pub reaping_inodes: u64,
    /// [`Logical::trim`] looks for clean inodes when there are more than this in memory.
    pub trim_above: usize,
    /// Dirty blocks.
    pub stripes: Vec<Partition<Stripe>>,
    /// Inodes made dirty by messages that own the whole of this.
    pub dirtied: Vec<InodeNumber>,
    /// Inodes that were on the lists of dirty ones at the last freeze.
    pub frozen_inodes: u64,
    /// The generation of the next file.
    pub next_generation: u32,
    /// Generations go on from elsewhere since the last freeze ([`Self::renumber`]).
    pub renumbered: bool,
    /// Inodes in use.
    pub used_inodes: u64,
    /// Files without a name, in the order of the orphan list.
    pub orphans: OrphanList,
    /// Freed since the last freeze.
    pub quarantine: FxHashSet<InodeNumber>,
    /// Freed in the image that is being cleaned.
    pub frozen_quarantine: FxHashSet<InodeNumber>,
    /// Where the search for a free inode begins: there is none below that could be used.
    pub inode_hint: u64,
    /// Blocks of the inode map that were found full: the search passes them by.
    pub full_map_blocks: FxHashSet<Fbn>,
    /// Snapshots, oldest first, without those being deleted.
    pub snapshots: Vec<SnapshotView<P>>,
    /// Set while the volume is being restored: every operation waits.
    pub suspended: bool,
    /// Replay keeps every unlinked file, as if it were held open; it is reaped afterwards.
    pub replaying: bool,
    /// Limits that an administrator has changed since the last freeze.
    pub quota_changes: Vec<QuotaChange>,
    /// Space and memory.
    pub shared: Arc<Shared>,
}

/// An inode of an image.
#[derive(Debug)]
pub struct FrozenInode<P> {
    /// Its number.
    pub number: InodeNumber,
    /// Its attributes at the freeze.
    pub attributes: InodeAttributes,
    /// Its tree as of the commit before.
    pub root: Root<P>,
    /// Data blocks of that tree.
    pub blocks: u64,
    /// Holes made since.
    pub holes: RangeSet,
    /// The inode is free now.
    pub freed: bool,
    /// Its blocks are freed bit by bit.
    pub reaping: bool,
}

/// What a freeze set aside.
#[derive(Debug)]
pub struct Image<P> {
    /// Changed inodes, by number.
    pub inodes: Vec<FrozenInode<P>>,
    /// Changed blocks, by stripe.
    pub stripes: Vec<Arc<DirtyFiles>>,
    /// See [`Logical`].
    pub next_generation: u32,
    /// See [`Logical`].
    pub used_inodes: u64,
    /// Entries of the orphan list.
    pub orphan_count: u32,
    /// Dirty blocks in it.
    pub dirty_blocks: u64,
    /// See [`Logical`].
    pub quota_changes: Vec<QuotaChange>,
}

/// An inode after cleaning.
#[derive(Clone, Debug)]
pub struct CleanedInode<P> {
    /// Its number.
    pub number: InodeNumber,
    /// Its new tree.
    pub root: Root<P>,
    /// Data blocks of it.
    pub blocks: u64,
    /// It is free now.
    pub freed: bool,
    /// Its tree could not be read, and its changes were dropped: its size on media.
    pub quarantined: Option<u64>,
}

impl<P: Pointer> Logical<P> {
    /// A logical side with nothing in it.
    pub fn empty(volume: VolumeId, stripes: &[AffinityId], shared: Arc<Shared>) -> Self {
        let stripe = |affinity: &AffinityId| Partition::new(*affinity, Stripe::default());
        Self {
            volume,
            inode_file: Root::default(),
            inodes: FxHashMap::default(),
            holds: Holds::default(),
            reaping_inodes: 0,
            trim_above: 0,
            stripes: stripes.iter().map(stripe).collect(),
            dirtied: Vec::new(),
            frozen_inodes: 0,
            next_generation: 1,
            used_inodes: 0,
            orphans: OrphanList::default(),
            full_map_blocks: FxHashSet::default(),
            quarantine: FxHashSet::default(),
            frozen_quarantine: FxHashSet::default(),
            inode_hint: metafile::FIRST_FILE,
            renumbered: false,
            snapshots: Vec::new(),
            suspended: false,
            replaying: false,
            quota_changes: Vec::new(),
            shared,
        }
    }

    /// The key of one of the volume's files.
    #[must_use]
    pub const fn key(&self, inode: InodeNumber) -> FileKey {
        FileKey { volume: self.volume, inode, content: Content::Data }
    }

    /// The key of the inode file.
    #[must_use]
    pub const fn inode_file_key(&self) -> FileKey {
        inode_file_key(self.volume)
    }

    /// Brings an inode into memory; whether there is a file.
    ///
    /// # Errors
    /// What to wait for.
    pub fn load(&mut self, inode: InodeNumber, reader: &Reader<'_>) -> Progress<bool> {
        if let Some(found) = self.inodes.get(&inode) {
            return Ok(!found.freed);
        }
        let record = read_record(&self.inode_file, self.volume, inode, reader);
        let record = record.map_err(|stop| match stop {
            // Without the inode nothing on media could say what is lost.
            Stop::Damaged(pvbn) if self.replaying => Stop::MetafileDamaged(pvbn),
            stop => stop,
        })?;
        match record {
            Some(record) if !record.is_free() => {
                self.inodes.insert(inode, Inode::of(&record));
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The file that `inode` holds if it is of `generation`.
    ///
    /// # Errors
    /// What to wait for.
    pub fn find(
        &mut self,
        inode: InodeNumber,
        generation: Generation,
        reader: &Reader<'_>,
    ) -> Progress<bool> {
        Ok(self.load(inode, reader)? && self.in_memory(inode, generation).is_some())
    }

    /// The inode if it is in memory, of that generation and in use.
    #[must_use]
    pub fn in_memory(&self, inode: InodeNumber, generation: Generation) -> Option<&Inode<P>> {
        let found = self.inodes.get(&inode)?;
        let live = !found.freed && found.shared.lock().attributes.generation == generation;
        live.then_some(found)
    }

    /// The content of a file block; `None` for a hole. The inode must be in memory.
    ///
    /// # Errors
    /// What to wait for.
    pub fn read_block(
        &mut self,
        inode: InodeNumber,
        fbn: Fbn,
        reader: &Reader<'_>,
    ) -> Progress<Option<BlockRef>> {
        let key = self.key(inode);
        let Some(found) = self.inodes.get(&inode) else { return Ok(None) };
        let stripe = self.stripes[stripe_of(inode, fbn)].get_mut();
        read_overlaid(found, &key, fbn, stripe, reader)
    }

    /// Notes that an inode is dirty.
    pub fn mark_dirty(&mut self, inode: InodeNumber) {
        if let Some(found) = self.inodes.get(&inode) {
            let first = !std::mem::replace(&mut found.shared.lock().dirty, true);
            if first {
                self.push_dirtied(inode);
            }
        }
    }

    /// Generations go on from `next`: after a crash, files that were made and lost have handles
    /// that someone may have seen. A change like any other, or the next restart, though it be a
    /// clean one, would find the count where it was and give those handles to other files.
    pub const fn renumber(&mut self, next: u32) {
        self.next_generation = next;
        self.renumbered = true;
    }

    /// Puts an inode that was clean, or is new, on the list of dirty ones.
    pub fn push_dirtied(&mut self, inode: InodeNumber) {
        self.shared.aggregate.dirty.add_inode();
        self.dirtied.push(inode);
    }

    /// Whether anything changed since the last freeze.
    #[must_use]
    pub fn is_dirty(&mut self) -> bool {
        self.renumbered
            || !self.quota_changes.is_empty()
            || !self.dirtied.is_empty()
            || self.stripes.iter_mut().any(|stripe| {
                let stripe = stripe.get_mut();
                !stripe.dirtied.is_empty() || !stripe.active.is_empty()
            })
    }

    /// Sets all changes aside for a consistency point.
    ///
    /// # Panics
    /// If the image before was not published.
    pub fn freeze(&mut self) -> Image<P> {
        self.renumbered = false;
        let mut numbers = std::mem::take(&mut self.dirtied);
        let mut stripes = Vec::with_capacity(self.stripes.len());
        let mut dirty_blocks = 0;
        for stripe in &mut self.stripes {
            let stripe = stripe.get_mut();
            assert!(stripe.frozen.is_empty(), "one image at a time");
            numbers.append(&mut stripe.dirtied);
            stripe.frozen = Arc::new(std::mem::take(&mut stripe.active));
            dirty_blocks += stripe.frozen.values().map(|file| file.len() as u64).sum::<u64>();
            stripes.push(Arc::clone(&stripe.frozen));
        }
        self.shared.aggregate.dirty.note_frozen(dirty_blocks);
        self.frozen_inodes = numbers.len() as u64;
        numbers.sort_unstable();
        numbers.dedup();
        let inodes = numbers.into_iter().filter_map(|number| self.freeze_inode(number)).collect();
        self.frozen_quarantine.extend(self.quarantine.drain());
        self.shared.budget.freeze();
        self.shared.guaranteed.freeze();
        self.shared.overhead.reset();
        self.shared.quotas.freeze();
        Image {
            inodes,
            stripes,
            next_generation: self.next_generation,
            used_inodes: self.used_inodes,
            orphan_count: self.orphans.len() as u32,
            dirty_blocks,
            quota_changes: std::mem::take(&mut self.quota_changes),
        }
    }

    fn freeze_inode(&mut self, number: InodeNumber) -> Option<FrozenInode<P>> {
        let inode = self.inodes.get_mut(&number)?;
        let shared = inode.shared.get_mut();
        shared.dirty = false;
        shared.new_blocks = (0, shared.new_blocks.0);
        inode.frozen = true;
        inode.frozen_holes = std::mem::take(&mut inode.holes);
        if mutation::broken(Rule::HolesAppliedAgain) {
            inode.holes = inode.frozen_holes.clone();
        }
        Some(FrozenInode {
            number,
            attributes: shared.attributes.clone(),
            root: inode.root,
            blocks: inode.blocks,
            holes: inode.frozen_holes.clone(),
            freed: inode.freed,
            reaping: inode.reaping,
        })
    }

    /// A freeze that found nothing changed.
    pub fn freeze_unchanged(&self) {
        self.shared.budget.clear();
        self.shared.guaranteed.clear();
        self.shared.overhead.reset();
        self.shared.quotas.commit(false);
    }

    /// Takes over the image's new trees, once the consistency point has committed. The overlays
    /// that were frozen are given back: to be dropped where that keeps nobody waiting.
    pub fn publish(
        &mut self,
        cleaned: &[CleanedInode<P>],
        inode_file: Root<P>,
        dirty_blocks: u64,
    ) -> Vec<Arc<DirtyFiles>> {
        self.inode_file = inode_file;
        self.shared.quotas.commit(true);
        let stripes = self.stripes.iter_mut();
        let frozen = stripes.map(|stripe| std::mem::take(&mut stripe.get_mut().frozen)).collect();
        for file in cleaned {
            if file.freed {
                let gone = self.inodes.remove(&file.number);
                self.reaping_inodes -= u64::from(gone.is_some_and(|inode| inode.reaping));
                continue;
            }
            let Some(inode) = self.inodes.get_mut(&file.number) else { continue };
            inode.root = file.root;
            inode.blocks = file.blocks;
            inode.frozen = false;
            inode.frozen_holes = RangeSet::default();
            inode.shared.get_mut().new_blocks.1 = 0;
            if let Some(size) = file.quarantined {
                self.drop_changes(file.number, size);
            }
        }
        // What was freed may be used again: from the lowest on, so that the inode file grows with
        // the files that there are and not with those that ever were.
        let lowest = self.frozen_quarantine.drain().map(InodeNumber::get).min();
        self.inode_hint = self.inode_hint.min(lowest.unwrap_or(u64::MAX));
        self.shared.aggregate.dirty.remove_frozen(dirty_blocks);
        let frozen_inodes = std::mem::take(&mut self.frozen_inodes);
        self.shared.aggregate.dirty.remove_inodes(frozen_inodes);
        frozen
    }

    /// Quarantines a file that is in memory: its content cannot be had, and what was written to it
    /// since the last freeze is dropped. `size` is the file's in the last commit.
    pub fn quarantine_file(&mut self, number: InodeNumber, size: u64) {
        self.drop_changes(number, size);
        self.mark_dirty(number);
    }

    /// A file is quarantined: what was written to it since the freeze is dropped, too, and nothing
    /// more comes.
    fn drop_changes(&mut self, number: InodeNumber, size_min: u64) {
        let Some(inode) = self.inodes.get_mut(&number) else { return };
        let shared = inode.shared.get_mut();
        shared.attributes.quarantined = true;
        shared.attributes.size = shared.attributes.size.max(size_min);
        shared.new_blocks = (0, 0);
        if inode.freed {
            // Removed since the freeze: the next consistency point frees what it can.
            return;
        }
        inode.holes = RangeSet::default();
        self.reaping_inodes -= u64::from(std::mem::take(&mut inode.reaping));
        let stripes = self.stripes.iter_mut();
        let dropped =
            stripes.map(|stripe| stripe.get_mut().drop_range(number, Fbn(0), Fbn::END)).sum();
        self.shared.aggregate.dirty.remove(dropped);
    }

    /// Drops all that changed since the last freeze.
    pub fn discard(&mut self) {
        let (mut blocks, mut inodes) = (0, std::mem::take(&mut self.dirtied).len());
        self.quota_changes.clear();
        self.shared.quotas.forget();
        for stripe in &mut self.stripes {
            let stripe = stripe.get_mut();
            blocks += stripe.active.values().map(|file| file.len() as u64).sum::<u64>();
            stripe.active.clear();
            inodes += std::mem::take(&mut stripe.dirtied).len();
        }
        self.shared.aggregate.dirty.remove(blocks);
        self.shared.aggregate.dirty.remove_inodes(inodes as u64);
    }

    /// Drops clean inodes if there are an eighth more than this volume may keep. Operations call it
    /// before they begin: within one an inode that was looked at stays.
    ///
    /// What cannot be dropped now is looked at again only when there is an eighth more: every inode
    /// in memory is looked at, and between two consistency points many times as many as may stay
    /// can be dirty.
    pub fn trim(&mut self) {
        let inodes_max = self.shared.aggregate.dirty.inodes_per_volume();
        if self.inodes.len() > self.trim_above.max(inodes_max + inodes_max / 8) {
            self.evict(inodes_max);
        }
    }

    /// Drops clean inodes from memory until at most `inodes_max` are left.
    pub fn evict(&mut self, inodes_max: usize) {
        if let Some(excess) = self.inodes.len().checked_sub(inodes_max).filter(|excess| *excess > 0)
        {
            let droppable = |(number, inode): &(&InodeNumber, &Inode<P>)| {
                number.get() > metafile::ROOT_DIRECTORY
                    && !inode.is_pinned()
                    && !self.holds.has_file_of(**number, inode)
            };
            let clean = self.inodes.iter().filter(droppable).map(|(number, _)| *number);
            let mut clean: Vec<InodeNumber> = clean.collect();
            // The lowest ones, so that a seed evicts the same inodes in every run.
            if excess < clean.len() {
                clean.select_nth_unstable(excess);
                clean.truncate(excess);
            }
            for number in clean {
                self.inodes.remove(&number);
            }
        }
        self.trim_above = self.inodes.len() + self.inodes.len() / 8;
    }

    /// Drops dirty blocks, those of the image being written included: the aggregate has failed, and
    /// no operation sees them any more. What was promised of them is in the log.
    pub fn let_go(&mut self) {
        let mut frozen_blocks = 0;
        for stripe in &mut self.stripes {
            let frozen = std::mem::take(&mut stripe.get_mut().frozen);
            frozen_blocks += frozen.values().map(|file| file.len() as u64).sum::<u64>();
        }
        let frozen_inodes = std::mem::take(&mut self.frozen_inodes);
        self.shared.aggregate.dirty.remove_frozen(frozen_blocks);
        self.shared.aggregate.dirty.remove_inodes(frozen_inodes);
        self.discard();
    }

    /// Forgets all inodes: what they say is not what media have.
    pub fn forget_files(&mut self) {
        self.inodes.clear();
        self.reaping_inodes = 0;
        self.orphans = OrphanList::default();
        self.inode_hint = 0;
        self.full_map_blocks.clear();
        self.quarantine.clear();
        self.frozen_quarantine.clear();
    }

    /// The snapshot with this number.
    #[must_use]
    pub fn snapshot(&self, id: SnapshotId) -> Option<&SnapshotView<P>> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }
}

/// A file block through the overlays; `None` for a hole.
///
/// # Errors
/// What to wait for.
pub fn read_overlaid<P: Pointer>(
    inode: &Inode<P>,
    key: &FileKey,
    fbn: Fbn,
    stripe: &Stripe,
    reader: &Reader<'_>,
) -> Progress<Option<BlockRef>> {
    match overlaid(inode, key.inode, fbn, stripe) {
        Overlaid::Block(block) => Ok(Some(block)),
        Overlaid::Hole => Ok(None),
        Overlaid::Below => buftree::read(&inode.root, key, fbn, reader),
    }
}

/// What the overlays say of a file block.
#[derive(Debug)]
pub enum Overlaid {
    /// Its content.
    Block(BlockRef),
    /// It is a hole.
    Hole,
    /// Nothing: look at the tree.
    Below,
}

/// Looks a file block up in the overlays.
#[must_use]
pub fn overlaid<P: Pointer>(
    inode: &Inode<P>,
    number: InodeNumber,
    fbn: Fbn,
    stripe: &Stripe,
) -> Overlaid {
    if let Some(block) = stripe.active(number, fbn) {
        return Overlaid::Block(BlockRef::clone(block));
    }
    if inode.holes.contains(fbn) {
        return Overlaid::Hole;
    }
    if inode.frozen {
        if let Some(block) = stripe.frozen(number, fbn) {
            return Overlaid::Block(BlockRef::clone(block));
        }
        if inode.frozen_holes.contains(fbn) {
            return Overlaid::Hole;
        }
    }
    Overlaid::Below
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Wait;
    use ondisk::pointer::PhysicalPointer;

    /// A volume in memory that may keep so many clean inodes.
    fn logical(inodes_max: u64) -> Logical<PhysicalPointer> {
        let dirty = Arc::new(DirtyMemory::new(1_000_000));
        dirty.node().share_inodes(inodes_max, 1);
        let cache = Arc::new(BufferCache::new(0));
        let (budget, delayed_blocks) = (Budget::default(), AtomicU64::default());
        let reclaim_turns = Arc::default();
        let aggregate =
            Arc::new(AggregateShared { budget, reclaim_turns, delayed_blocks, dirty, cache });
        let shared = Arc::new(Shared {
            budget: Budget::default(),
            overhead: Overhead::default(),
            guaranteed: GuaranteedRoom::default(),
            aggregate,
            reclaiming: AtomicBool::new(false),
            growth_blocks: AtomicU64::new(0),
            wants_growth: AtomicBool::new(false),
            may_delete_snapshot: AtomicBool::new(false),
            wants_deletion: AtomicBool::new(false),
            used_inodes: AtomicU64::new(0),
            quotas: Arc::default(),
        });
        Logical::empty(VolumeId(1), &[], shared)
    }

    fn add(logical: &mut Logical<PhysicalPointer>, numbers: std::ops::Range<u64>) {
        for number in numbers {
            // A new inode is dirty.
            let attributes = InodeAttributes::new(1, 0o644, Generation(1), Timestamp(0));
            logical.inodes.insert(InodeNumber(number), Inode::new(attributes));
        }
    }

    /// What another volume frees brings a full volume nothing: who waits for that alone waits for
    /// as long as the other frees.
    #[test]
    fn regression_a_full_volume_asks_to_grow_beside_one_that_frees() {
        let logical = logical(100);
        let shared = &logical.shared;
        shared.aggregate.budget.settle(10_000, 0);
        shared.aggregate.budget.note_frees();
        let promise = |blocks| crate::transaction::promise(shared, blocks, Spender::Common);
        let wants = || shared.wants_growth.swap(false, Ordering::Relaxed);
        assert!(promise(5).is_err() && !wants(), "it may not grow");
        shared.growth_blocks.store(100, Ordering::Relaxed);
        assert_eq!((promise(5).err(), wants()), (Some(Stop::Wait(Wait::Room)), true));
        assert!(promise(20_000).is_err() && !wants(), "the aggregate has not as much");
        shared.budget.settle(5, 0);
        assert!(promise(5).is_ok() && promise(5).is_err() && !wants(), "the next commit tells");
    }

    /// A million files made between two consistency points were looked at by every operation.
    #[test]
    fn regression_dirty_inodes_are_not_looked_at_again_and_again() {
        let mut logical = logical(800);
        add(&mut logical, 100..1700);
        logical.trim();
        assert_eq!(logical.inodes.len(), 1600, "all are dirty");
        for number in 100..1000 {
            logical.inodes[&InodeNumber(number)].shared.lock().dirty = false;
        }
        add(&mut logical, 1700..1900);
        logical.trim();
        assert_eq!(logical.inodes.len(), 1800, "an eighth more, and none was looked at");
        add(&mut logical, 1900..1901);
        logical.trim();
        assert_eq!(logical.inodes.len(), 901, "all that could go went");
        assert!(!logical.inodes.contains_key(&InodeNumber(999)));
    }

    #[test]
    fn the_lowest_clean_inodes_go_first() {
        let mut logical = logical(800);
        add(&mut logical, 100..1100);
        for inode in logical.inodes.values() {
            inode.shared.lock().dirty = false;
        }
        logical.evict(800);
        assert_eq!(logical.inodes.len(), 800);
        assert!((300..1100).all(|number| logical.inodes.contains_key(&InodeNumber(number))));
    }
}
