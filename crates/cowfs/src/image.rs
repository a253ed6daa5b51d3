//! Cleaning an image: from what a freeze set aside to a complete new tree on media (decisions 8
//! and 18).
//!
//! The steps, in order; each block of the image is placed exactly once:
//!
//! 1. *Files* ([`files`]): dirty blocks and holes go into the buftrees of user files, directories,
//!    container files.
//! 2. *Quotas* ([`crate::quotas`]): changed inodes go into blocks of the inode file, in memory;
//!    what that changes of usage goes into the quota file.
//! 3. *Snapshots*: background work on snapshots; a new snapshot gets its record.
//! 4. *Frees*: what was released until now may be delayed (`crate::space`); what metafiles free
//!    from here on is not.
//! 5. *Inodes*: changed inodes go into blocks of the inode file, if they do not lie there already.
//! 6. *Metafiles*: the free maps, TopAA and the inode file must have addresses before the free
//!    map's content is known, and taking addresses changes the free map. So the step only *plans*:
//!    it counts the blocks that the dirty metafiles will take and what they will free, takes and
//!    frees that, and counts again, until nothing changes. It ends because a map block that is
//!    dirty stays dirty.
//! 7. *Seal*: the metafiles are written with the addresses taken: the maps, TopAA, the inode file
//!    that names them, the snapshot table that names the inode file.
//!
//! The result is a [`FileSystemRoot`] for the vol_info block or superblock.
//!
//! Invariants: nothing that the last commit can reach is overwritten; [`Stop::Wait`] leaves a state
//! from which [`ImageCleaner::run`] goes on.
//!
//! [`Stop::Wait`]: crate::reader::Stop::Wait

mod files;

use crate::buftree::{self, FileKey, Root};
use crate::cleaner::{FileCleaner, Leaf, Plan, Sink, SinkMark};
use crate::content::Content;
use crate::inode::position;
use crate::logical::{CleanedInode, FrozenInode, INODE_FILE, inode_file_key, record_at};
use crate::pointer::{BlockPlace, Pointer};
use crate::quotas::table::QuotaWork;
use crate::quotas::{QuotaChange, counting};
use crate::ranges::RangeSet;
use crate::reader::{Progress, Reader, Stop};
use crate::snapshot::Snapshot;
use crate::space::{DelayLimits, SCAN_BLOCKS_PER_CP, Space, top_areas_key};
use ondisk::inode::{INODE_SIZE, InodeRecord, KIND_METAFILE};
use ondisk::records::{SNAPSHOTS_PER_BLOCK, SnapshotRecord};
use ondisk::root::{FileSystemRoot, metafile};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use units::{
    BLOCK_SIZE_U64, Block, BlockRef, CpNumber, Fbn, InodeNumber, Pvbn, SnapshotId, SnapshotUuid,
    Timestamp, VolumeId,
};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

pub use files::{GivenUp, ImageFiles};

/// What one consistency point frees of reaped files, all of them together, in blocks and the nodes
/// that they are taken from: about 256 MiB. The blocks of a file of 100 GiB come back in 400 steps,
/// and clients wait for none of them longer than they would for a consistency point of their own.
const REAP_COST_PER_CP: u64 = 64 << 10;

/// The space below an image: gives addresses and takes blocks.
pub trait Backend<P: Pointer> {
    /// Makes sure that `count` addresses can be taken.
    ///
    /// # Errors
    /// What to wait for.
    fn prepare(&mut self, space: &mut Space<P>, count: usize, reader: &Reader<'_>) -> Progress<()>;

    /// Takes an address.
    fn take(&mut self, space: &mut Space<P>) -> P;

    /// Completes a taken address for its block, and queues the write.
    fn write(&mut self, address: P, block: BlockRef, place: BlockPlace) -> P;

    /// See [`Sink::place_again`].
    fn write_again(
        &mut self,
        space: &mut Space<P>,
        old: P,
        block: BlockRef,
        place: BlockPlace,
    ) -> P {
        space.free(old.vbn());
        let address = self.take(space);
        self.write(address, block, place)
    }

    /// Has the scores of allocation areas follow what was settled: the blocks of TopAA that differ
    /// from those on media.
    ///
    /// # Errors
    /// What to wait for.
    fn score(
        &mut self,
        space: &mut Space<P>,
        reader: &Reader<'_>,
    ) -> Progress<Vec<(Fbn, BlockRef)>>;

    /// What the last call of [`Self::score`] has returned is written.
    fn scored(&mut self, space: &mut Space<P>);

    /// What it has told the space below, for [`Self::revert`].
    fn told(&self) -> usize;

    /// Undoes what it has told the space below beyond the first so many. The addresses were taken
    /// for blocks that are nobody's now, and are not queued any more.
    fn revert(&mut self, space: &mut Space<P>, addresses: Vec<P::Number>, told: usize);

    /// See [`Sink::is_lost`].
    fn is_lost(&self, pvbn: Pvbn) -> bool;
}

/// A file to clean.
#[derive(Debug)]
pub struct FileWork<P> {
    /// Its inode.
    pub inode: FrozenInode<P>,
    /// Its new blocks, in order.
    pub leaves: Vec<(Fbn, Leaf<P>)>,
}

/// A snapshot to be made of the image.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: SnapshotUuid,
    /// The time.
    pub created: Timestamp,
    /// It exists only to be deleted: what a restore leaves behind.
    pub deleting: bool,
}

/// What the image is, apart from its files.
#[derive(Clone, Debug)]
pub struct ImageFacts {
    /// The consistency point.
    pub cp: CpNumber,
    /// See [`crate::logical::Logical`].
    pub next_generation: u32,
    /// See [`crate::logical::Logical`].
    pub used_inodes: u64,
    /// See [`crate::logical::Logical`].
    pub orphan_count: u32,
    /// A snapshot to make.
    pub snapshots: Vec<NewSnapshot>,
    /// Limits that an administrator has changed.
    pub quota_changes: Vec<QuotaChange>,
    /// Blocks of the quota file that there is room to change for counting what files use.
    pub counted_portion: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Files,
    Quotas,
    Snapshots,
    Frees,
    Inodes,
    Metafiles,
    Seal,
    Done,
}

/// See the module.
pub struct ImageCleaner<P: Pointer> {
    facts: ImageFacts,
    step: Step,
    files: ImageFiles<P>,
    inode_leaves: BTreeMap<Fbn, BlockRef>,
    snapshot_leaves: Vec<Fbn>,
    /// Blocks of metafiles that are written again as they are.
    rewritten: Vec<(InodeNumber, Fbn)>,
    top_areas: BTreeMap<Fbn, BlockRef>,
    snapshot_blocks_done: u64,
    delay: Option<DelayLimits>,
    new_snapshots_from: Option<usize>,
    reserved: VecDeque<P>,
    reserved_total: usize,
    planned_frees: FxHashSet<P::Number>,
    inode_file: Root<P>,
    snapshot_table: Root<P>,
    /// Files of the seal that are done.
    sealed: usize,
    sealing: Option<FileCleaner<P>>,
    written: u64,
    quotas: QuotaWork,
    quota_cleaner: Option<FileCleaner<P>>,
}

/// Sends the blocks of a file to the backend as they come.
struct Direct<'a, P: Pointer> {
    space: &'a mut Space<P>,
    backend: &'a mut dyn Backend<P>,
    reader: &'a Reader<'a>,
    written: &'a mut u64,
}

impl<P: Pointer> Sink<P> for Direct<'_, P> {
    fn prepare(&mut self, count: usize) -> Progress<()> {
        self.backend.prepare(self.space, count, self.reader).map_err(|stop| match stop {
            // It is no block of the file that is being cleaned.
            Stop::Damaged(pvbn) => Stop::MetafileDamaged(pvbn),
            stop => stop,
        })
    }

    fn place(&mut self, block: BlockRef, place: BlockPlace) -> P {
        let address = self.backend.take(self.space);
        *self.written += 1;
        self.backend.write(address, block, place)
    }

    fn place_again(&mut self, old: P, block: BlockRef, place: BlockPlace) -> P {
        *self.written += 1;
        self.backend.write_again(self.space, old, block, place)
    }

    fn free(&mut self, pointer: P) {
        self.space.free(pointer.vbn());
    }

    fn mark(&self) -> SinkMark {
        let (placed, freed) = self.space.queued();
        SinkMark { placed, freed, below: self.backend.told() }
    }

    fn revert(&mut self, mark: &SinkMark) {
        let addresses = self.space.unqueue((mark.placed, mark.freed));
        *self.written -= addresses.len() as u64;
        self.backend.revert(self.space, addresses, mark.below);
    }

    fn unplace(&mut self, placed: Vec<P>) {
        self.space.free_taken(placed.iter().map(Pointer::vbn));
    }

    fn is_lost(&self, pvbn: Pvbn) -> bool {
        self.backend.is_lost(pvbn)
    }
}

/// Sends the blocks of a metafile to addresses taken before; what they free is freed already.
struct Reserved<'a, P: Pointer> {
    addresses: &'a mut VecDeque<P>,
    backend: &'a mut dyn Backend<P>,
    written: &'a mut u64,
}

impl<P: Pointer> Sink<P> for Reserved<'_, P> {
    fn prepare(&mut self, _: usize) -> Progress<()> {
        Ok(())
    }

    fn place(&mut self, block: BlockRef, place: BlockPlace) -> P {
        let Some(address) = self.addresses.pop_front() else {
            panic!("a metafile takes more blocks than were planned for it")
        };
        *self.written += 1;
        self.backend.write(address, block, place)
    }

    fn free(&mut self, _: P) {}

    fn mark(&self) -> SinkMark {
        SinkMark::default()
    }

    fn revert(&mut self, _: &SinkMark) {
        unreachable!("a metafile is never given up")
    }

    fn unplace(&mut self, _: Vec<P>) {
        unreachable!("a metafile is never given up")
    }

    fn is_lost(&self, _: Pvbn) -> bool {
        true // what is written here was read when it was planned
    }
}

impl<P: Pointer> ImageCleaner<P> {
    /// A cleaner for an image with these changed files.
    #[must_use]
    pub fn new(mut facts: ImageFacts, work: Vec<FileWork<P>>, space: &Space<P>) -> Self {
        let changes = std::mem::take(&mut facts.quota_changes);
        Self {
            quotas: QuotaWork::new(changes, facts.counted_portion),
            quota_cleaner: None,
            facts,
            step: Step::Files,
            files: ImageFiles::new(space.volume, space.inode_file.0, work),
            inode_leaves: BTreeMap::new(),
            snapshot_leaves: Vec::new(),
            rewritten: Vec::new(),
            top_areas: BTreeMap::new(),
            snapshot_blocks_done: 0,
            delay: None,
            new_snapshots_from: None,
            reserved: VecDeque::new(),
            reserved_total: 0,
            planned_frees: FxHashSet::default(),
            inode_file: space.inode_file.0,
            snapshot_table: space.snapshot_table.0,
            sealed: 0,
            sealing: None,
            written: 0,
        }
    }

    /// Background work on snapshots handles at most this many map blocks.
    #[must_use]
    pub fn with_scan(mut self, map_blocks_max: u64) -> Self {
        self.snapshot_blocks_done = SCAN_BLOCKS_PER_CP.saturating_sub(map_blocks_max);
        self
    }

    /// Frees may be delayed.
    #[must_use]
    pub const fn with_delay(mut self, limits: DelayLimits) -> Self {
        self.delay = Some(limits);
        self
    }

    /// These blocks of free maps, TopAA and the inode file are written again, elsewhere, though
    /// nothing changes in them; and the nodes above them.
    #[must_use]
    pub fn with_rewritten(mut self, blocks: Vec<(InodeNumber, Fbn)>) -> Self {
        self.rewritten = blocks;
        self
    }

    /// The files that are to be cleaned, for whoever does that elsewhere.
    #[must_use]
    pub fn take_files(&mut self) -> ImageFiles<P> {
        let none = self.files.none_of();
        std::mem::replace(&mut self.files, none)
    }

    /// Takes back a share of them, cleaned or not, with so many blocks written.
    pub fn put_files(&mut self, share: ImageFiles<P>, written: u64) {
        self.files.join(share);
        self.written += written;
    }

    /// Does the work.
    ///
    /// # Errors
    /// What to wait for; then run again.
    pub fn run(
        &mut self,
        space: &mut Space<P>,
        backend: &mut dyn Backend<P>,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        loop {
            self.step = match self.step {
                Step::Files => {
                    let written = &mut self.written;
                    let mut sink = Direct { space: &mut *space, backend, reader, written };
                    self.files.run(reader, &mut sink)?;
                    Step::Quotas
                }
                Step::Quotas => {
                    if self.quotas.is_wanted(&space.quotas) {
                        self.count_quotas(space, backend, reader)?;
                    }
                    Step::Snapshots
                }
                Step::Snapshots => {
                    space.settle(reader)?;
                    self.work_on_snapshots(space, reader)?;
                    Step::Frees
                }
                Step::Frees => {
                    if let Some(limits) = &mut self.delay {
                        space.delay_frees(limits, reader)?;
                    }
                    Step::Inodes
                }
                Step::Inodes => {
                    self.put_inodes(space, reader)?;
                    self.rewrite(space, reader)?;
                    Step::Metafiles
                }
                Step::Metafiles => {
                    self.reserve_metafiles(space, backend, reader)?;
                    Step::Seal
                }
                Step::Seal => {
                    self.seal(space, backend, reader)?;
                    Step::Done
                }
                Step::Done => return Ok(()),
            };
        }
    }

    /// Counts what the image changes of the usage of users, groups and trees into the quota file.
    fn count_quotas(
        &mut self,
        space: &mut Space<P>,
        backend: &mut dyn Backend<P>,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        if self.quota_cleaner.is_none() {
            self.quotas.begin(&space.quotas);
            self.put_inodes(space, reader)?;
            let inodes = (&self.inode_file, &self.inode_leaves);
            counting::count(&mut self.quotas, inodes, space.volume, reader)?;
            for (inode, fbn) in &self.rewritten {
                if inode.get() == metafile::QUOTAS {
                    self.quotas.rewrite(&space.quotas, space.volume, *fbn, reader)?;
                }
            }
            let (work, volume) = (&mut self.quotas, space.volume);
            let inodes = (&self.inode_file, &self.inode_leaves);
            let cleaner = counting::cleaner(work, &mut space.quotas, inodes, volume, reader)?;
            self.quota_cleaner = Some(cleaner);
        }
        let Some(cleaner) = &mut self.quota_cleaner else { unreachable!("set above") };
        let written = &mut self.written;
        let mut sink = Direct { space: &mut *space, backend, reader, written };
        let (root, change) = cleaner.run(reader, &mut sink).map_err(|stop| match stop {
            Stop::Damaged(pvbn) => Stop::MetafileDamaged(pvbn),
            stop => stop,
        })?;
        space.quotas_passed.extend(self.quotas.take_passed());
        let file = &mut space.quotas;
        file.root = root;
        file.blocks = file.blocks.saturating_add_signed(change);
        file.counted_inodes = self.quotas.counted_inodes.unwrap_or_default();
        let mut record = metafile_record(&file.root, file.blocks);
        record.size = U64::new(file.size_blocks * BLOCK_SIZE_U64);
        self.files.records.push_back((InodeNumber(metafile::QUOTAS), record));
        Ok(())
    }

    fn work_on_snapshots(&mut self, space: &mut Space<P>, reader: &Reader<'_>) -> Progress<()> {
        let done = &mut self.snapshot_blocks_done;
        let discarded = space.discard_trees(done, SCAN_BLOCKS_PER_CP, reader);
        let worked = discarded.and_then(|()| space.work_on_snapshots(done, reader));
        let inode = InodeNumber(metafile::ACTIVE_MAP);
        self.files.given_up.extend(space.take_kept().into_iter().map(|(pvbn, numbers)| GivenUp {
            inode,
            pvbn,
            leaked_blocks: Some(numbers),
        }));
        worked?;
        if self.new_snapshots_from.is_none() {
            self.new_snapshots_from = Some(space.snapshots.len());
            for new in std::mem::take(&mut self.facts.snapshots) {
                space.snapshots.push(Snapshot {
                    id: SnapshotId(space.next_snapshot),
                    name: new.name,
                    identity: new.identity,
                    cp: self.facts.cp,
                    created: new.created,
                    deleting: new.deleting,
                    held: false,
                    // Its own map is not there yet: until the commit the active map stands for it.
                    merged_blocks: u64::MAX,
                    released_blocks: 0,
                    used_blocks: 0,
                    used_inodes: self.facts.used_inodes,
                    inode_file: InodeRecord::zeroed(),
                    snapshot_table: None,
                    map: None,
                    map_tree: None,
                });
                space.next_snapshot += 1;
                space.note_snapshot(space.snapshots.len() - 1);
            }
        }
        self.snapshot_leaves = space.changed_table_blocks();
        Ok(())
    }

    /// Puts the changed inodes into blocks of the inode file.
    fn put_inodes(&mut self, space: &Space<P>, reader: &Reader<'_>) -> Progress<()> {
        while let Some(&(number, record)) = self.files.records.front() {
            let (fbn, slot) = position(number);
            let block = self.inode_leaf(space.volume, fbn, reader)?;
            let before = record_at(block, slot);
            put_record(Arc::make_mut(block), slot, &record);
            self.quotas.note(number, &before, &record);
            self.files.records.pop_front();
        }
        // The metafiles' inodes lie in the first block; they change in the steps to come.
        self.inode_leaf(space.volume, Fbn(0), reader).map(|_| ())
    }

    fn rewrite(&mut self, space: &mut Space<P>, reader: &Reader<'_>) -> Progress<()> {
        while let Some((inode, fbn)) = self.rewritten.last().copied() {
            match inode.get() {
                metafile::ACTIVE_MAP => drop(space.active_map.modify(fbn, reader)?),
                metafile::SUMMARY_MAP => drop(space.summary_map.modify(fbn, reader)?),
                metafile::DELAYED_MAP => drop(space.delayed_map.modify(fbn, reader)?),
                metafile::TOP_AREAS => {
                    let (root, key) = (space.top_areas.root, top_areas_key(space.volume));
                    if let Some(block) = buftree::read(&root, &key, fbn, reader)? {
                        self.top_areas.entry(fbn).or_insert(block);
                    }
                }
                // See [`Self::count_quotas`].
                metafile::QUOTAS => {}
                _ if inode == INODE_FILE => drop(self.inode_leaf(space.volume, fbn, reader)?),
                _ => {}
            }
            self.rewritten.pop();
        }
        Ok(())
    }

    fn inode_leaf(
        &mut self,
        volume: VolumeId,
        fbn: Fbn,
        reader: &Reader<'_>,
    ) -> Progress<&mut BlockRef> {
        if !self.inode_leaves.contains_key(&fbn) {
            let key = inode_file_key(volume);
            let block = buftree::read(&self.inode_file, &key, fbn, reader)?;
            let block = block.unwrap_or_else(|| Block::shared(&[]));
            self.inode_leaves.insert(fbn, block);
        }
        match self.inode_leaves.get_mut(&fbn) {
            Some(block) => Ok(block),
            None => unreachable!("inserted above"),
        }
    }

    /// Takes an address for every block that the metafiles will take.
    fn reserve_metafiles(
        &mut self,
        space: &mut Space<P>,
        backend: &mut dyn Backend<P>,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        loop {
            space.settle(reader)?;
            // Blocks of it that were to be written still are.
            self.top_areas.extend(backend.score(space, reader)?);
            let plan = self.plan(space, reader)?;
            let frees: Vec<P::Number> = plan
                .freed
                .iter()
                .map(Pointer::vbn)
                .filter(|vbn| !self.planned_frees.contains(vbn))
                .collect();
            assert!(plan.placed >= self.reserved_total, "plans only grow");
            let missing = plan.placed - self.reserved_total;
            if missing == 0 && frees.is_empty() {
                return Ok(());
            }
            backend.prepare(space, missing, reader)?;
            for _ in 0..missing {
                self.reserved.push_back(backend.take(space));
            }
            self.reserved_total += missing;
            for vbn in frees {
                self.planned_frees.insert(vbn);
                space.free(vbn);
            }
        }
    }

    fn plan(&self, space: &Space<P>, reader: &Reader<'_>) -> Progress<Plan<P>> {
        let mut plan = Plan::default();
        for file in 0..SEALED_FILES {
            self.metafile_cleaner(space, file).run(reader, &mut plan)?;
        }
        Ok(plan)
    }

    /// The cleaner of the metafile that is sealed as number `file`.
    fn metafile_cleaner(&self, space: &Space<P>, file: usize) -> FileCleaner<P> {
        let map_leaves = |dirty: &BTreeMap<Fbn, BlockRef>| {
            dirty.iter().map(|(fbn, block)| (*fbn, Leaf::Block(Arc::clone(block)))).collect()
        };
        let (key, root, leaves) = match file {
            0 => {
                let map = &space.summary_map;
                (map.key, map.root, map_leaves(&map.dirty))
            }
            1 => {
                let map = &space.active_map;
                (map.key, map.root, map_leaves(&map.dirty))
            }
            2 => {
                let map = &space.delayed_map;
                (map.key, map.root, map_leaves(&map.dirty))
            }
            3 => {
                let root = space.top_areas.root;
                (top_areas_key(space.volume), root, map_leaves(&self.top_areas))
            }
            4 => (inode_file_key(space.volume), self.inode_file, map_leaves(&self.inode_leaves)),
            _ => {
                let leaves = self.snapshot_leaves.iter().map(|fbn| {
                    (*fbn, Leaf::Block(Arc::new(snapshot_block(&space.snapshots, *fbn))))
                });
                (snapshot_table_key(space.volume), self.snapshot_table, leaves.collect())
            }
        };
        FileCleaner::new(key, root, leaves, RangeSet::default(), None)
    }

    /// Writes the metafiles to the addresses taken.
    fn seal(
        &mut self,
        space: &mut Space<P>,
        backend: &mut dyn Backend<P>,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        while self.sealed < SEALED_FILES {
            if self.sealing.is_none() {
                self.sealing = Some(self.metafile_cleaner(space, self.sealed));
            }
            let Some(cleaner) = &mut self.sealing else { unreachable!("set above") };
            let mut sink =
                Reserved { addresses: &mut self.reserved, backend, written: &mut self.written };
            let (root, change) = cleaner.run(reader, &mut sink)?;
            self.sealing = None;
            self.take_sealed(space, root, change);
            self.sealed += 1;
        }
        assert!(self.reserved.is_empty(), "every address taken has its block");
        backend.scored(space);
        Ok(())
    }

    fn take_sealed(&mut self, space: &mut Space<P>, root: Root<P>, change: i64) {
        let map = match self.sealed {
            0 => Some(&mut space.summary_map),
            1 => Some(&mut space.active_map),
            2 => Some(&mut space.delayed_map),
            _ => None,
        };
        if let Some(map) = map {
            map.root = root;
            map.blocks = map.blocks.saturating_add_signed(change);
            map.dirty.clear();
            let (number, record) = (map.key.inode, map.record(space.size_blocks));
            self.put_metafile(number, &record);
        } else if self.sealed == 3 {
            let file = &mut space.top_areas;
            file.root = root;
            file.blocks = file.blocks.saturating_add_signed(change);
            let end = self.top_areas.last_key_value().map_or(0, |(fbn, _)| fbn.get() + 1);
            file.size_blocks = file.size_blocks.max(end);
            self.put_metafile(InodeNumber(metafile::TOP_AREAS), &space.top_areas.record());
        } else if self.sealed == 4 {
            self.inode_file = root;
            space.inode_file = (root, space.inode_file.1.saturating_add_signed(change));
            let record = metafile_record(&root, space.inode_file.1);
            let from = self.new_snapshots_from.unwrap_or(space.snapshots.len());
            let used_blocks = space.active_blocks;
            for snapshot in &mut space.snapshots[from..] {
                snapshot.inode_file = record;
                snapshot.used_blocks = used_blocks;
                snapshot.merged_blocks = 0;
            }
        } else {
            self.snapshot_table = root;
            let blocks = space.snapshot_table.1.saturating_add_signed(change);
            space.snapshot_table = (root, blocks);
            let from = self.new_snapshots_from.unwrap_or(space.snapshots.len());
            for snapshot in &mut space.snapshots[from..] {
                snapshot.snapshot_table = Some((root, blocks));
            }
            space.note_table_written(from);
        }
    }

    fn put_metafile(&mut self, number: InodeNumber, record: &InodeRecord) {
        let (fbn, slot) = position(number);
        let Some(block) = self.inode_leaves.get_mut(&fbn) else {
            unreachable!("the metafiles' inodes were made dirty")
        };
        put_record(Arc::make_mut(block), slot, record);
    }

    /// The files that could not be cleaned.
    #[must_use]
    pub fn take_given_up(&mut self) -> Vec<GivenUp> {
        std::mem::take(&mut self.files.given_up)
    }

    /// The cleaned files, for publishing.
    #[must_use]
    pub fn take_cleaned(&mut self) -> Vec<CleanedInode<P>> {
        std::mem::take(&mut self.files.cleaned)
    }

    /// Blocks written.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// The root of the finished image.
    #[must_use]
    pub fn root(&self, space: &Space<P>) -> FileSystemRoot {
        assert!(self.step == Step::Done, "the image is finished");
        FileSystemRoot {
            size_blocks: U64::new(space.size_blocks),
            used_blocks: U64::new(space.used_blocks),
            used_inodes: U64::new(self.facts.used_inodes),
            next_generation: U32::new(self.facts.next_generation),
            next_snapshot: U32::new(space.next_snapshot),
            snapshot_count: U32::new(space.snapshots.len() as u32),
            orphan_count: U32::new(self.facts.orphan_count),
            active_blocks: U64::new(space.active_blocks),
            delayed_blocks: U64::new(space.delayed_blocks),
            reserved: [0; 8],
            inode_file: metafile_record(&space.inode_file.0, space.inode_file.1),
            snapshot_table: metafile_record(&space.snapshot_table.0, space.snapshot_table.1),
        }
    }
}

/// Metafiles that are sealed: summary map, active map, delayed map, TopAA, inode file, snapshot
/// table.
const SEALED_FILES: usize = 6;

fn put_record(block: &mut Block, slot: usize, record: &InodeRecord) {
    block.bytes_mut()[slot * INODE_SIZE..(slot + 1) * INODE_SIZE]
        .copy_from_slice(record.as_bytes());
}

/// The inode of a metafile with this tree, of so many blocks.
#[must_use]
pub fn metafile_record<P: Pointer>(root: &Root<P>, blocks: u64) -> InodeRecord {
    let mut record = InodeRecord::zeroed();
    record.kind = KIND_METAFILE;
    record.blocks = U64::new(blocks);
    root.store(&mut record);
    record
}

/// The key of a volume's snapshot table.
#[must_use]
pub const fn snapshot_table_key(volume: VolumeId) -> FileKey {
    FileKey { volume, inode: SNAPSHOT_TABLE, content: Content::Snapshots }
}

/// Inode number under which the blocks of the snapshot table are identified on media.
pub const SNAPSHOT_TABLE: InodeNumber = InodeNumber(metafile::SNAPSHOT_TABLE);

/// Block `fbn` of the snapshot table.
fn snapshot_block<P: Pointer>(snapshots: &[Snapshot<P>], fbn: Fbn) -> Block {
    let mut block = Block::zeroed();
    let first = fbn.get() as usize * SNAPSHOTS_PER_BLOCK;
    for (slot, snapshot) in snapshots.iter().skip(first).take(SNAPSHOTS_PER_BLOCK).enumerate() {
        let size = size_of::<SnapshotRecord>();
        block.bytes_mut()[slot * size..(slot + 1) * size]
            .copy_from_slice(snapshot.record().as_bytes());
    }
    block
}

/// Reads a snapshot table of `count` records.
///
/// # Errors
/// What to wait for, or damage.
pub fn read_snapshots<P: Pointer>(
    volume: VolumeId,
    root: &Root<P>,
    count: u32,
    reader: &Reader<'_>,
) -> Progress<Vec<Snapshot<P>>> {
    use zerocopy::FromBytes;
    let damaged = || Stop::Damaged(units::Pvbn(0));
    let mut snapshots = Vec::new();
    for index in 0..count as usize {
        let fbn = Fbn((index / SNAPSHOTS_PER_BLOCK) as u64);
        let block = buftree::read(root, &snapshot_table_key(volume), fbn, reader)?;
        let block = block.ok_or_else(damaged)?;
        let start = index % SNAPSHOTS_PER_BLOCK * size_of::<SnapshotRecord>();
        let bytes = &block.bytes()[start..start + size_of::<SnapshotRecord>()];
        let record = SnapshotRecord::read_from_bytes(bytes).map_err(|_| damaged())?;
        let snapshot = Snapshot::of(&record);
        snapshots.extend(snapshot.map_err(|damage| Stop::of_damage(damage, units::Pvbn(0)))?);
    }
    Ok(snapshots)
}

/// A metafile's root in a [`FileSystemRoot`], with its count of blocks.
#[must_use]
pub fn root_of<P: Pointer>(record: &InodeRecord) -> (Root<P>, u64) {
    (Root::of(record), record.blocks.get())
}
