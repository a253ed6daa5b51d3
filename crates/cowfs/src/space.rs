//! The block side of a file system: free maps, allocation and snapshots (Waffinity section 4.2:
//! what the Volume VBN and Aggregate VBN affinities own). Only consistency points work here.
//!
//! Numbers that a consistency point takes or frees are queued and *settled* into the active map,
//! one map block after another, since each may have to be loaded.
//!
//! Invariants (TigerBeetle's reserve, acquire, forfeit in our words):
//! - A number is *given* when it was found free and handed to a pool, *taken* when a block was
//!   placed at it, *settled* when its bit is set. A given number is not given again.
//! - A number freed by a consistency point is not given before that one has committed (`freed`),
//!   and not while a reader of an older image may read it ([`Space::pin`]).
//! - Setting a set bit or clearing a clear one is a bug that would lose data: it stops the node.

mod areas;
mod base;
mod counted;
mod delayed;
mod number_set;
mod pinned;

use crate::buftree::Root;
use crate::free_map::{
    MapFile, VBNS_PER_BLOCK, first_of, is_set, map_block_of, position, set_bits,
};
use crate::image::{read_snapshots, root_of};
use crate::logical::read_record;
use crate::pointer::Pointer;
use crate::quotas::{Passed, QuotaFile};
use crate::reader::{Progress, Reader, Stop};
use crate::snapshot::Snapshot;
use allocator::{AreaChoice, Chance, Picks};
use areas::Areas;
use delayed::Delayed;
use number_set::NumberSet;
use ondisk::records::SNAPSHOTS_PER_BLOCK;
use ondisk::root::{FileSystemRoot, metafile};
use pinned::Pinned;
use platform::mutation::{self, Rule};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use units::{Block, BlockNumber, BlockRef, Fbn, InodeNumber, Pvbn, VolumeId};

/// Map blocks that the background work on snapshots handles in one consistency point, at most.
pub const SCAN_BLOCKS_PER_CP: u64 = 256;
/// Map blocks that one look for inherited numbers goes through: numbers of 8 GiB.
const INHERITED_BLOCKS_PER_CALL: usize = 64;

/// Numbers, and where to go on if not all of a map was looked at.
type Found<N> = (Vec<N>, Option<N>);
/// Blocks that deleted snapshots let go of in one consistency point before the work is broken off,
/// at the end of a map block: 256 MiB. Each costs changes of two maps and of the container.
const SCAN_RELEASED_PER_CP: u64 = 64 << 10;

/// Of so many blocks one is freed wrongly when a rule is broken on purpose.
const MUTATED_BLOCKS: u64 = 16;

pub use areas::{read_top_areas, top_areas_key};
pub use base::{Base, DiscardPlace};
pub use delayed::{DelayLimits, FreeCounts};

/// See the module.
pub struct Space<P: Pointer> {
    /// The volume; zero in the aggregate's own file system.
    pub volume: VolumeId,
    /// Numbers there are: 0 to this, exclusive.
    pub size_blocks: u64,
    /// Numbers in use by the active image or a snapshot.
    pub used_blocks: u64,
    /// Numbers in use by the active image.
    pub active_blocks: u64,
    /// Numbers that no image uses, and that the space below still has blocks for.
    pub delayed_blocks: u64,
    /// The root of the inode file as of the last commit, and its blocks.
    pub inode_file: (Root<P>, u64),
    /// The root of the snapshot table as of the last commit, and its blocks.
    pub snapshot_table: (Root<P>, u64),
    /// Blocks of the active image.
    pub active_map: MapFile<P>,
    /// Blocks of snapshots.
    pub summary_map: MapFile<P>,
    /// Delayed frees.
    pub delayed_map: MapFile<P>,
    /// The best allocation areas as of the last commit.
    pub top_areas: TopAreasFile<P>,
    /// What users, groups and trees use, as of the last commit.
    pub quotas: QuotaFile<P>,
    /// Owners that came to use more than a soft limit in the image that is being cleaned.
    pub quotas_passed: Vec<Passed>,
    /// How areas are chosen.
    pub choice: AreaChoice,
    /// The areas that were chosen.
    pub picks: Picks,
    /// What became of released numbers.
    pub free_counts: FreeCounts,
    /// Snapshots, oldest first.
    pub snapshots: Vec<Snapshot<P>>,
    /// The snapshots' records changed since the last commit.
    pub snapshots_changed: bool,
    /// Blocks of the snapshot table whose records are not as they are here. Only they are written:
    /// each snapshot keeps the table of its time, and shares with others what did not change.
    stale_table_blocks: BTreeSet<Fbn>,
    /// The number of the next snapshot.
    pub next_snapshot: u32,
    /// What a clone began with.
    pub base: Option<Base<P>>,
    /// Found free and handed out, not yet settled.
    given: NumberSet<P::Number>,
    /// Freed by the running consistency point.
    freed: NumberSet<P::Number>,
    /// An image that is read beside consistency points.
    pinned: Option<Pinned<P::Number>>,
    /// Queued to be settled.
    taken: VecDeque<P::Number>,
    /// Queued to be freed.
    freeing: VecDeque<P::Number>,
    /// Released to the space below: no image holds them.
    released: Vec<P::Number>,
    /// See [`Self::take_kept`].
    kept: Vec<(Pvbn, u64)>,
    /// What areas are to be told: numbers taken, and released.
    changes: (Vec<P::Number>, Vec<P::Number>),
    /// Free numbers of the areas being filled.
    pool: VecDeque<P::Number>,
    areas: Areas,
    delayed: Delayed<P::Number>,
    chance: Chance,
}

/// The TopAA metafile.
#[derive(Clone, Copy, Debug)]
pub struct TopAreasFile<P> {
    /// Its tree.
    pub root: Root<P>,
    /// Blocks of that tree.
    pub blocks: u64,
    /// Its size in blocks.
    pub size_blocks: u64,
}

impl<P: Pointer> Space<P> {
    /// A space in which nothing is in use.
    #[must_use]
    pub fn new(volume: VolumeId, size_blocks: u64) -> Self {
        Self {
            volume,
            size_blocks,
            used_blocks: 0,
            active_blocks: 0,
            delayed_blocks: 0,
            inode_file: (Root::default(), 0),
            snapshot_table: (Root::default(), 0),
            active_map: MapFile::new(volume, metafile::ACTIVE_MAP),
            summary_map: MapFile::new(volume, metafile::SUMMARY_MAP),
            delayed_map: MapFile::new(volume, metafile::DELAYED_MAP),
            top_areas: TopAreasFile::none(),
            quotas: QuotaFile::none(),
            quotas_passed: Vec::new(),
            choice: AreaChoice::default(),
            picks: Picks::default(),
            free_counts: FreeCounts::default(),
            snapshots: Vec::new(),
            snapshots_changed: false,
            stale_table_blocks: BTreeSet::new(),
            next_snapshot: 1,
            base: None,
            given: NumberSet::default(),
            freed: NumberSet::default(),
            pinned: None,
            taken: VecDeque::new(),
            freeing: VecDeque::new(),
            released: Vec::new(),
            kept: Vec::new(),
            changes: (Vec::new(), Vec::new()),
            pool: VecDeque::new(),
            areas: Self::empty_areas(size_blocks),
            delayed: Delayed::new(),
            chance: Chance::default(),
        }
    }

    /// The space of the file system that `root` describes.
    ///
    /// # Errors
    /// What to wait for.
    pub fn load(volume: VolumeId, root: &FileSystemRoot, reader: &Reader<'_>) -> Progress<Self> {
        let inode_file = root_of(&root.inode_file);
        let snapshot_table = root_of(&root.snapshot_table);
        let map = |inode: u64| -> Progress<MapFile<P>> {
            let record = read_record(&inode_file.0, volume, InodeNumber(inode), reader)?;
            Ok(record.map_or_else(
                || MapFile::new(volume, inode),
                |record| MapFile::of(volume, inode, &record),
            ))
        };
        let mut snapshots =
            read_snapshots(volume, &snapshot_table.0, root.snapshot_count.get(), reader)?;
        let mut stale_table_blocks = BTreeSet::new();
        for (at, snapshot) in snapshots.iter_mut().enumerate() {
            // A record that does not name its table is in that very table: a later one would name
            // it.
            if snapshot.snapshot_table.is_none() {
                snapshot.snapshot_table = Some(snapshot_table);
                stale_table_blocks.insert(table_block(at));
            }
        }
        Ok(Self {
            used_blocks: root.used_blocks.get(),
            active_blocks: root.active_blocks.get(),
            delayed_blocks: root.delayed_blocks.get(),
            inode_file,
            snapshot_table,
            active_map: map(metafile::ACTIVE_MAP)?,
            summary_map: map(metafile::SUMMARY_MAP)?,
            delayed_map: map(metafile::DELAYED_MAP)?,
            top_areas: TopAreasFile::load(&inode_file.0, volume, reader)?,
            quotas: QuotaFile::load(&inode_file.0, volume, reader)?,
            areas: Areas::Unread,
            snapshots,
            stale_table_blocks,
            next_snapshot: root.next_snapshot.get(),
            ..Self::new(volume, root.size_blocks.get())
        })
    }

    /// There are more numbers. All of the new ones are free: maps are files, and end in a hole.
    pub fn grow(&mut self, size_blocks: u64) {
        self.size_blocks = size_blocks;
        self.forget_areas();
        self.delayed = Delayed::new();
    }

    /// The consistency point has committed: what it freed may be used. The numbers are returned
    /// for those who keep scores of their own.
    ///
    /// # Panics
    /// If it left work behind.
    pub fn commit(&mut self) -> Vec<P::Number> {
        assert!(self.taken.is_empty() && self.freeing.is_empty(), "everything was settled");
        let maps = [&self.active_map, &self.summary_map, &self.delayed_map];
        assert!(maps.iter().all(|map| map.dirty.is_empty()), "the maps were written");
        self.delayed.commit(self.delayed_blocks);
        self.search_again();
        let freed = self.freed.drain();
        let freed: Vec<P::Number> = match &mut self.pinned {
            Some(pinned) => pinned.sift(freed),
            None => freed.collect(),
        };
        self.shrink();
        freed
    }

    /// Keeps the image that was committed just now from being overwritten: what consistency points
    /// free of it is not given again. `memory_bytes` is what remembering that may take.
    pub fn pin(&mut self, memory_bytes: u64) {
        self.pinned = Some(Pinned::new(memory_bytes));
    }

    /// Ends that; the numbers that may be given from now on, in order.
    pub fn unpin(&mut self) -> Vec<P::Number> {
        self.pinned.take().map(Pinned::end).unwrap_or_default()
    }

    /// Free numbers that nobody is given because of a pin.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.pinned.as_ref().map_or(0, Pinned::held_count)
    }

    /// Whether a pin takes more memory than it may.
    #[must_use]
    pub fn is_pin_overfull(&self) -> bool {
        self.pinned.as_ref().is_some_and(Pinned::is_overfull)
    }

    /// Queues a number that a block was placed at.
    pub fn take(&mut self, vbn: P::Number) {
        self.taken.push_back(vbn);
    }

    /// Takes a number of a new space for good, before any is given.
    pub fn claim(&mut self, vbn: P::Number) {
        self.give(vbn);
        self.take(vbn);
    }

    /// Queues a number that the active image uses no more.
    pub fn free(&mut self, vbn: P::Number) {
        let is_chosen = vbn.get().is_multiple_of(MUTATED_BLOCKS);
        if is_chosen && mutation::broken(Rule::FreeForgotten) {
            return;
        }
        if is_chosen && mutation::broken(Rule::FreeTwice) {
            self.freeing.push_back(vbn);
        }
        self.freeing.push_back(vbn);
    }

    /// How many numbers are queued to be taken, and to be freed.
    #[must_use]
    pub fn queued(&self) -> (usize, usize) {
        (self.taken.len(), self.freeing.len())
    }

    /// Queues those of `vbns` to be freed that are queued to be taken: blocks that were placed and
    /// that nothing has now.
    pub fn free_taken(&mut self, vbns: impl Iterator<Item = P::Number>) {
        let taken: FxHashSet<P::Number> = self.taken.iter().copied().collect();
        self.freeing.extend(vbns.filter(|vbn| taken.contains(vbn)));
    }

    /// Takes numbers off the queues that came after the first so many: they are not freed, and
    /// those that were to be taken are returned. Nothing was settled in between.
    #[must_use]
    pub fn unqueue(&mut self, (taken, freeing): (usize, usize)) -> Vec<P::Number> {
        self.freeing.truncate(freeing);
        self.taken.split_off(taken.min(self.taken.len())).into()
    }

    /// The numbers that were taken and released since the last call, for whoever keeps scores.
    pub fn drain_changes(&mut self) -> (Vec<P::Number>, Vec<P::Number>) {
        std::mem::take(&mut self.changes)
    }

    /// The numbers released since the last call.
    pub fn drain_released(&mut self) -> Vec<P::Number> {
        std::mem::take(&mut self.released)
    }

    /// Map block `index` with a bit for every number in use, held by a snapshot, or delayed.
    ///
    /// # Errors
    /// What to wait for.
    pub fn in_use(&mut self, index: Fbn, reader: &Reader<'_>) -> Progress<BlockRef> {
        let mut block = self.active_map.read(index, reader)?;
        let held = self.held(index, reader)?;
        if !held.is_zero() {
            or_into(Arc::make_mut(&mut block), &held);
        }
        if self.heeds_delayed() {
            let delayed = self.delayed_map.read(index, reader)?;
            or_into(Arc::make_mut(&mut block), &delayed);
        }
        Ok(block)
    }

    /// The next numbers from `from` on, `max` of them at most, that the volume uses or has delayed
    /// and that the base of the clone has; and where to go on, if not all of its map was looked at.
    ///
    /// # Errors
    /// What to wait for.
    pub fn inherited_from(
        &mut self,
        from: P::Number,
        max: usize,
        reader: &Reader<'_>,
    ) -> Progress<Found<P::Number>> {
        let (mut numbers, mut next) = (Vec::new(), from);
        for _ in 0..INHERITED_BLOCKS_PER_CALL {
            let Some((index, of_base)) = self.next_of_base(map_block_of(next), reader)? else {
                return Ok((numbers, None));
            };
            let used = self.in_use(index, reader)?;
            let is_of_base = |one: &P::Number| of_base.as_ref().is_none_or(|map| is_set(map, *one));
            let found = set_bits::<P::Number>(&used, index);
            // Number 0 is no block.
            let found = found.filter(|one| *one >= next && one.get() != 0 && is_of_base(one));
            let room = max - numbers.len();
            let some: Vec<P::Number> = found.take(room + 1).collect();
            if let Some(more) = some.get(room) {
                numbers.extend(&some[..room]);
                return Ok((numbers, Some(*more)));
            }
            numbers.extend(some);
            next = first_of(index.offset(1));
        }
        Ok((numbers, Some(next)))
    }

    /// The first map block at or after `from` in which the base has numbers; without a content if
    /// it cannot be read: then any number may be inherited.
    fn next_of_base(
        &self,
        from: Fbn,
        reader: &Reader<'_>,
    ) -> Progress<Option<(Fbn, Option<BlockRef>)>> {
        let Some(base) = &self.base else { return Ok(None) };
        let index = match base.map().next_present(from, reader) {
            Ok(Some(index)) => index,
            Ok(None) => return Ok(None),
            Err(Stop::Damaged(_)) if from.get() < self.map_blocks() => {
                return Ok(Some((from, None)));
            }
            Err(Stop::Damaged(_)) => return Ok(None),
            Err(stop) => return Err(stop),
        };
        match base.map().read(index, reader) {
            Ok(block) => Ok(Some((index, Some(block)))),
            Err(Stop::Damaged(_)) => Ok(Some((index, None))),
            Err(stop) => Err(stop),
        }
    }

    /// Map block `index` with a bit for every number held by a snapshot.
    fn held(&mut self, index: Fbn, reader: &Reader<'_>) -> Progress<BlockRef> {
        let mut block = self.summary_map.read(index, reader)?;
        for snapshot in &mut self.snapshots {
            if snapshot.merged_blocks <= index.get() {
                let own = snapshot.map(self.volume, reader)?.read(index, reader)?;
                if !own.is_zero() {
                    or_into(Arc::make_mut(&mut block), &own);
                }
            }
        }
        Ok(block)
    }

    /// Numbers that are neither in use nor delayed, by the counts: those of an image that
    /// contradicts itself may be any.
    #[must_use]
    pub const fn unused_blocks(&self) -> u64 {
        self.size_blocks.saturating_sub(self.used_blocks).saturating_sub(self.delayed_blocks)
    }

    /// Whether a number may be given: not in the running consistency point's hands, nor kept for a
    /// reader of a pinned image.
    #[must_use]
    pub fn is_givable(&self, vbn: P::Number) -> bool {
        // Number 0 is that of a hole: no map should say that it is free.
        (1..self.size_blocks).contains(&vbn.get())
            && !self.given.contains(vbn)
            && !self.freed.contains(vbn)
            && !self.pinned.as_ref().is_some_and(|pinned| pinned.holds(vbn))
    }

    /// Whether a number is free by the maps and an image has it still: the committed one, whose
    /// number the running consistency point frees, or a pinned one.
    #[must_use]
    pub fn is_being_freed(&self, vbn: P::Number) -> bool {
        self.freed.contains(vbn) || self.pinned.as_ref().is_some_and(|pinned| pinned.holds(vbn))
    }

    /// Notes that a number was found free and handed to a pool.
    ///
    /// # Panics
    /// If it was given before.
    pub fn give(&mut self, vbn: P::Number) {
        assert!(self.given.insert(vbn), "block number {vbn} would be given twice");
    }

    /// A number that was given is not used.
    pub fn take_back(&mut self, vbn: P::Number) {
        self.given.remove(vbn);
    }

    /// Works the queues into the active map.
    ///
    /// # Errors
    /// What to wait for; then call again. [`Stop::Contradiction`] on a number that is taken twice
    /// or freed twice.
    pub fn settle(&mut self, reader: &Reader<'_>) -> Progress<()> {
        // In order, so that each map block is looked up once. They come in runs that are in order:
        // a sort that merges runs has little to do.
        self.taken.make_contiguous().sort();
        self.freeing.make_contiguous().sort();
        while let Some((index, run)) = first_run(&self.taken, VBNS_PER_BLOCK) {
            let block = self.active_map.modify(Fbn(index), reader)?;
            for vbn in self.taken.drain(..run) {
                let (_, byte, mask) = position(vbn);
                if block[byte] & mask != 0 {
                    return Err(Stop::Contradiction("a block number was in use and is taken"));
                }
                block[byte] |= mask;
                self.given.remove(vbn);
                if let Some(pinned) = &mut self.pinned {
                    pinned.note_taken(vbn);
                }
                self.changes.0.push(vbn);
            }
            self.used_blocks += run as u64;
            self.active_blocks += run as u64;
        }
        while let Some((index, run)) = first_run(&self.freeing, VBNS_PER_BLOCK) {
            let held = self.held(Fbn(index), reader)?;
            let ignored = mutation::broken(Rule::SnapshotHoldIgnored);
            let block = self.active_map.modify(Fbn(index), reader)?;
            let mut alone = Vec::new();
            for vbn in self.freeing.drain(..run) {
                let (_, byte, mask) = position(vbn);
                if block[byte] & mask == 0 {
                    return Err(Stop::Contradiction("a block number was free and is freed"));
                }
                block[byte] &= !mask;
                if held[byte] & mask == 0 || ignored {
                    alone.push(vbn);
                }
            }
            let few = Stop::Contradiction("more blocks are freed than are in use");
            self.active_blocks = self.active_blocks.checked_sub(run as u64).ok_or(few)?;
            alone.into_iter().try_for_each(|vbn| self.release(vbn))?;
        }
        Ok(())
    }

    fn release(&mut self, vbn: P::Number) -> Progress<()> {
        let few = Stop::Contradiction("more blocks are freed than are in use");
        self.used_blocks = self.used_blocks.checked_sub(1).ok_or(few)?;
        self.freed.insert(vbn);
        self.released.push(vbn);
        if !(vbn.get().is_multiple_of(MUTATED_BLOCKS) && mutation::broken(Rule::ScoreForgotten)) {
            self.changes.1.push(vbn);
        }
        if mutation::broken(Rule::ReuseBeforeCommit) {
            self.freed.remove(vbn);
        }
        Ok(())
    }

    /// Whether a clone has trees of its base to let go of: work that makes no room.
    #[must_use]
    pub fn has_trees_to_discard(&self) -> bool {
        self.base.as_ref().is_some_and(Base::has_work)
    }

    /// Whether background work on snapshots is left.
    #[must_use]
    pub fn has_snapshot_work(&self) -> bool {
        let end = self.map_blocks();
        self.snapshots.iter().any(|snapshot| snapshot.deleting || snapshot.merged_blocks < end)
    }

    /// The snapshot at `at` changed: the table is written.
    pub fn note_snapshot(&mut self, at: usize) {
        self.snapshots_changed = true;
        self.stale_table_blocks.insert(table_block(at));
    }

    /// Those from `at` on changed, or changed their places.
    pub fn note_snapshots_from(&mut self, at: usize) {
        self.snapshots_changed = true;
        self.stale_table_blocks.extend(table_block(at).until(Fbn(self.table_blocks())));
    }

    /// Blocks of the table that do not say what is true, if it is to be written.
    #[must_use]
    pub fn changed_table_blocks(&self) -> Vec<Fbn> {
        let stale = self.stale_table_blocks.range(..Fbn(self.table_blocks()));
        if self.snapshots_changed { stale.copied().collect() } else { Vec::new() }
    }

    /// The table was written. The records of snapshots from `at` on are new, and cannot say where
    /// the table is that they are in: the next table says it.
    pub fn note_table_written(&mut self, at: usize) {
        self.snapshots_changed = false;
        self.stale_table_blocks = (at..self.snapshots.len()).map(table_block).collect();
    }

    /// Blocks of the snapshot table.
    #[must_use]
    pub fn table_blocks(&self) -> u64 {
        self.snapshots.len().div_ceil(SNAPSHOTS_PER_BLOCK) as u64
    }

    fn map_blocks(&self) -> u64 {
        self.size_blocks.div_ceil(VBNS_PER_BLOCK)
    }

    /// Lets go of trees of a clone's base: `done` counts blocks over calls of one consistency
    /// point, up to `done_max`.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub fn discard_trees(
        &mut self,
        done: &mut u64,
        done_max: u64,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        let Some(mut base) = self.base.take() else { return Ok(()) };
        let outcome = loop {
            let counts = (&mut *done, done_max);
            match base.discard(counts, |number| self.free(number), reader) {
                Ok(None) => break Ok(()),
                Ok(Some((pvbn, blocks))) => self.kept.push((pvbn, blocks.min(self.size_blocks))),
                Err(stop) => break Err(stop),
            }
        };
        self.base = Some(base);
        outcome
    }

    /// Does some of the background work on snapshots: merging new ones into the summary map, then
    /// releasing what deleted ones held. `done` counts map blocks over calls of one consistency
    /// point, and what they released as map blocks more.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub fn work_on_snapshots(&mut self, done: &mut u64, reader: &Reader<'_>) -> Progress<()> {
        let end = self.map_blocks();
        while *done < SCAN_BLOCKS_PER_CP {
            let released = self.released.len();
            let merging = self.snapshots.iter().position(|snapshot| snapshot.merged_blocks < end);
            match (merging, self.releasing()) {
                (Some(at), _) => {
                    self.merge_block(at, reader)?;
                    self.note_snapshot(at);
                }
                (None, Some(at)) if self.snapshots[at].released_blocks < end => {
                    self.release_block(at, reader)?;
                    self.note_snapshot(at);
                }
                (None, Some(at)) => {
                    self.release_own(at, reader)?;
                    self.note_snapshots_from(at);
                }
                (None, None) => return Ok(()),
            }
            let released = (self.released.len() - released) as u64;
            *done += 1 + released * SCAN_BLOCKS_PER_CP / SCAN_RELEASED_PER_CP;
        }
        Ok(())
    }

    /// The snapshot whose deletion is to go on: the one that was begun, so that never two have let
    /// go of only a part, else the oldest.
    fn releasing(&self) -> Option<usize> {
        let begun = |snapshot: &Snapshot<P>| snapshot.deleting && snapshot.released_blocks > 0;
        let all = &self.snapshots;
        all.iter().position(begun).or_else(|| all.iter().position(|snapshot| snapshot.deleting))
    }

    fn merge_block(&mut self, at: usize, reader: &Reader<'_>) -> Progress<()> {
        let from = Fbn(self.snapshots[at].merged_blocks);
        let own = self.snapshots[at].map(self.volume, reader)?;
        // Where the map is a hole nothing was ever in use: a thin volume costs what is in it.
        let Some(index) = own.next_present(from, reader)? else {
            self.snapshots[at].merged_blocks = self.map_blocks();
            return Ok(());
        };
        let own = own.read(index, reader)?;
        let summary = self.summary_map.modify(index, reader)?;
        if !mutation::broken(Rule::SummaryMapNotMerged) {
            or_into(summary, &own);
        }
        self.snapshots[at].merged_blocks = index.get() + 1;
        Ok(())
    }

    fn release_block(&mut self, at: usize, reader: &Reader<'_>) -> Progress<()> {
        let from = Fbn(self.snapshots[at].released_blocks);
        let own = self.snapshots[at].map(self.volume, reader);
        let index = match own.and_then(|own| own.next_present(from, reader)) {
            Ok(index) => index,
            Err(stop) => {
                self.keep(stop, self.map_blocks() - from.get())?;
                None
            }
        };
        let Some(index) = index else {
            self.snapshots[at].released_blocks = self.map_blocks();
            return Ok(());
        };
        if let Err(stop) = self.release_numbers(at, index, reader) {
            self.keep(stop, 1)?;
        }
        self.snapshots[at].released_blocks = index.get() + 1;
        Ok(())
    }

    /// A map cannot be read: what so many blocks of a deleted snapshot's map say is in use stays in
    /// use.
    fn keep(&mut self, stop: Stop, map_blocks: u64) -> Progress<()> {
        match stop {
            Stop::Damaged(pvbn) if !mutation::broken(Rule::DamageNotQuarantined) => {
                self.kept.push((pvbn, map_blocks * VBNS_PER_BLOCK));
                Ok(())
            }
            stop => Err(stop),
        }
    }

    /// Maps that could not be read when a snapshot was deleted since the last call, each with how
    /// many numbers stay in use at most.
    pub fn take_kept(&mut self) -> Vec<(Pvbn, u64)> {
        std::mem::take(&mut self.kept)
    }

    fn release_numbers(&mut self, at: usize, index: Fbn, reader: &Reader<'_>) -> Progress<()> {
        let mut alone = self.snapshots[at].map(self.volume, reader)?.read(index, reader)?;
        // The blocks that this work reads stay to its end: their numbers may be used again at once.
        let tree = self.snapshots[at].map_tree(self.volume, reader)?;
        for vbn in tree.iter().filter(|vbn| map_block_of(**vbn) == index) {
            let (_, byte, mask) = position(*vbn);
            Arc::make_mut(&mut alone)[byte] &= !mask;
        }
        self.without_neighbours(at, index, &mut alone, reader)?;
        self.let_go(index, alone, reader)
    }

    /// The end of a deletion: the blocks of the snapshot's own map, and the record.
    fn release_own(&mut self, at: usize, reader: &Reader<'_>) -> Progress<()> {
        if let Err(stop) = self.release_map(at, reader) {
            self.keep(stop, 1)?;
        }
        self.snapshots.remove(at);
        Ok(())
    }

    fn release_map(&mut self, at: usize, reader: &Reader<'_>) -> Progress<()> {
        let mut own: BTreeMap<Fbn, BlockRef> = BTreeMap::new();
        for vbn in self.snapshots[at].map_tree(self.volume, reader)?.iter() {
            let (index, byte, mask) = position(*vbn);
            let block = own.entry(index).or_insert_with(|| Block::shared(&[]));
            Arc::make_mut(block)[byte] |= mask;
        }
        // All that can wait comes first: letting go of some and not of others is not told apart.
        for (index, alone) in &mut own {
            self.without_neighbours(at, *index, alone, reader)?;
            self.active_map.read(*index, reader)?;
            self.summary_map.modify(*index, reader)?;
        }
        for (index, alone) in own {
            self.let_go(index, alone, reader)?;
        }
        Ok(())
    }

    /// Clears the bits that a neighbour of the snapshot has too.
    fn without_neighbours(
        &mut self,
        at: usize,
        index: Fbn,
        alone: &mut BlockRef,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        if mutation::broken(Rule::SnapshotFreesShared) {
            return Ok(());
        }
        for neighbour in self.neighbours(at) {
            let other = self.snapshots[neighbour].map(self.volume, reader)?;
            let other = other.read(index, reader)?;
            and_not_into(Arc::make_mut(alone), &other);
        }
        Ok(())
    }

    /// No snapshot holds the numbers in `alone` any more: those that the active image does not use
    /// either are free.
    fn let_go(&mut self, index: Fbn, mut alone: BlockRef, reader: &Reader<'_>) -> Progress<()> {
        let active = self.active_map.read(index, reader)?;
        let summary = self.summary_map.modify(index, reader)?;
        and_not_into(summary, &alone);
        and_not_into(Arc::make_mut(&mut alone), &active);
        for vbn in set_bits(&alone, index) {
            self.release(vbn)?;
        }
        Ok(())
    }

    /// The snapshots that can hold a block together with the one at `at`; see `crate::snapshot`.
    fn neighbours(&self, at: usize) -> Vec<usize> {
        let live = |index: &usize| !self.snapshots[*index].deleting;
        let mut found = Vec::with_capacity(4);
        found.extend(at.checked_sub(1));
        found.extend((at + 1 < self.snapshots.len()).then_some(at + 1));
        found.extend((0..at).rev().find(live));
        found.extend((at + 1..self.snapshots.len()).find(live));
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The block of the snapshot table that has record `at`.
const fn table_block(at: usize) -> Fbn {
    Fbn((at / SNAPSHOTS_PER_BLOCK) as u64)
}

/// In which run of so many numbers the first of a sorted queue lies, and how many of it do.
fn first_run<N: BlockNumber>(queue: &VecDeque<N>, numbers: u64) -> Option<(u64, usize)> {
    let index = queue.front()?.get() / numbers;
    // Whoever asks goes through the run, so to count it costs no more.
    Some((index, queue.iter().take_while(|vbn| vbn.get() / numbers == index).count()))
}

fn or_into(block: &mut Block, other: &Block) {
    block.bytes_mut().iter_mut().zip(other.bytes()).for_each(|(byte, other)| *byte |= other);
}

fn and_not_into(block: &mut Block, other: &Block) {
    block.bytes_mut().iter_mut().zip(other.bytes()).for_each(|(byte, other)| *byte &= !other);
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests;
