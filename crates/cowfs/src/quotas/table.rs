//! The quota file in an image: reading it, and the work of a consistency point on it.
//!
//! A consistency point sees each changed inode as it was and as it is to be, and counts the
//! difference for its owners. Inodes that are not counted yet are counted some at a time, in the
//! order of their numbers, and the header says how far that has come.
//!
//! Invariants: what the file says is the sum over the inodes below `counted_inodes` of its image.
//!
//! Fails: [`Stop::MetafileDamaged`] where a block of the file cannot be read.

use crate::buftree::{self, FileKey, Root};
use crate::content::Content;
use crate::inode_file::read_record;
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop};
use ondisk::inode::{INODES_PER_BLOCK, InodeRecord};
use ondisk::quota::{
    ALL_INODES, QUOTA_KINDS, QUOTA_SET, QUOTAS_PER_BLOCK, QuotaHeader, QuotaKey, QuotaKind,
    QuotaRecord, counted, default_slot, key_at, place_of,
};
use ondisk::root::metafile;
use platform::mutation::{self, Rule};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Block, BlockRef, Fbn, InodeNumber, Pvbn, VolumeId};
use zerocopy::little_endian::{U32, U64};

/// Blocks of the inode file whose inodes one consistency point counts at most: 16 MiB.
const COUNTED_BLOCKS_PER_CP: u64 = 4096;
/// Blocks of the quota file that counting changes in one consistency point, but for the last inode
/// block's: what is tried first, and where there is little room.
pub const COUNTED_PORTIONS: [u64; 3] = [4096, 512, 32];
/// What a changed block of the quota file may come to cost: itself, four nodes above it, and three
/// above the blocks of smaller numbers where it makes the tree deeper.
pub const QUOTA_BLOCK_COST: u64 = 8;

/// What one consistency point may come to write for counting: the blocks that it changes, those of
/// the last block of inodes, and the header.
#[must_use]
pub const fn counting_cost_blocks(changed_blocks: u64) -> u64 {
    QUOTA_BLOCK_COST * (changed_blocks + (QUOTA_KINDS * INODES_PER_BLOCK) as u64 + 1)
}

/// The key of a volume's quota file.
#[must_use]
pub const fn quotas_key(volume: VolumeId) -> FileKey {
    FileKey { volume, inode: InodeNumber(metafile::QUOTAS), content: Content::Data }
}

/// The quota file as of the last commit. It has no block until a volume gets its first limit.
#[derive(Clone, Copy, Debug)]
pub struct QuotaFile<P> {
    /// Its tree.
    pub root: Root<P>,
    /// Blocks of that tree.
    pub blocks: u64,
    /// Its size in blocks, most of them holes.
    pub size_blocks: u64,
    /// The inodes below this number are counted.
    pub counted_inodes: u64,
}

impl<P: Pointer> QuotaFile<P> {
    /// That of a volume that counts nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { root: Root::default(), blocks: 0, size_blocks: 0, counted_inodes: 0 }
    }

    /// The quota file of the image that `inode_file` is the root of.
    ///
    /// # Errors
    /// What to wait for.
    pub fn load(inode_file: &Root<P>, volume: VolumeId, reader: &Reader<'_>) -> Progress<Self> {
        let inode = InodeNumber(metafile::QUOTAS);
        let record = read_record(inode_file, volume, inode, reader)?;
        let Some(record) = record.filter(|record| !record.is_free()) else {
            return Ok(Self::none());
        };
        let (root, blocks) = (Root::of(&record), record.blocks.get());
        let header = read_header(&root, volume, reader)?;
        let counted_inodes = header.map_or(0, |(header, _)| header.counted_inodes.get());
        let size_blocks = record.size.get().div_ceil(BLOCK_SIZE_U64);
        Ok(Self { root, blocks, size_blocks, counted_inodes })
    }

    /// Whether the volume counts what is used.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        !self.root.is_empty()
    }

    /// Whether there are inodes that are not counted yet.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.is_counting() && self.counted_inodes != ALL_INODES
    }
}

/// The header, and block 0 that has it; none where nothing is counted.
///
/// # Errors
/// What to wait for, or damage.
pub fn read_header<P: Pointer>(
    root: &Root<P>,
    volume: VolumeId,
    reader: &Reader<'_>,
) -> Progress<Option<(QuotaHeader, BlockRef)>> {
    let Some(block) = read_block(root, volume, Fbn(0), reader)? else { return Ok(None) };
    let header = QuotaHeader::from_block(&block);
    let header = header.map_err(|damage| Stop::of_damage(damage, Pvbn(0)))?;
    Ok(Some((header, block)))
}

/// The records of each user, each group and each tree that has no limits of its own; in the order
/// of [`QuotaKind::ALL`].
///
/// # Errors
/// What to wait for, or damage.
pub fn read_others<P: Pointer>(
    root: &Root<P>,
    volume: VolumeId,
    reader: &Reader<'_>,
) -> Progress<[QuotaRecord; QUOTA_KINDS]> {
    let mut others = [QuotaRecord::zeroed(); QUOTA_KINDS];
    if let Some((_, block)) = read_header(root, volume, reader)? {
        for (record, kind) in others.iter_mut().zip(QuotaKind::ALL) {
            *record = record_at(&block, default_slot(kind))?;
        }
    }
    Ok(others)
}

/// The record of a user, a group or a tree.
///
/// # Errors
/// What to wait for, or damage.
pub fn read_quota<P: Pointer>(
    root: &Root<P>,
    volume: VolumeId,
    key: QuotaKey,
    reader: &Reader<'_>,
) -> Progress<QuotaRecord> {
    let (fbn, slot) = place_of(key);
    match read_block(root, volume, fbn, reader)? {
        Some(block) => record_at(&block, slot),
        None => Ok(QuotaRecord::zeroed()),
    }
}

/// Records of the quota file, and the block and slot at which the next page begins.
pub type QuotaPage = (Vec<(QuotaKey, QuotaRecord)>, Option<(Fbn, usize)>);

/// The records that say something, in the order of the file, from a block and slot on: at most
/// `records_max` of them, and where to go on.
///
/// # Errors
/// What to wait for, or damage.
pub fn list_quotas<P: Pointer>(
    root: &Root<P>,
    volume: VolumeId,
    from: (Fbn, usize),
    records_max: usize,
    reader: &Reader<'_>,
) -> Progress<QuotaPage> {
    let mut records = Vec::new();
    let (mut at, mut first) = from;
    let key = quotas_key(volume);
    while let Some(fbn) = buftree::next_present(root, &key, at, Fbn::END, reader).map_err(whole)? {
        let block = read_block(root, volume, fbn, reader)?;
        for slot in if fbn == at { first } else { 0 }..QUOTAS_PER_BLOCK {
            let (Some(block), Some(key)) = (&block, key_at(fbn, slot)) else { break };
            let record = record_at(block, slot)?;
            if record.is_empty() {
                continue;
            }
            if records.len() == records_max {
                return Ok((records, Some((fbn, slot))));
            }
            records.push((key, record));
        }
        (at, first) = (fbn.offset(1), 0);
    }
    Ok((records, None))
}

fn read_block<P: Pointer>(
    root: &Root<P>,
    volume: VolumeId,
    fbn: Fbn,
    reader: &Reader<'_>,
) -> Progress<Option<BlockRef>> {
    buftree::read(root, &quotas_key(volume), fbn, reader).map_err(whole)
}

/// The quota file belongs to all files: no file is to blame for its damage.
fn whole(stop: Stop) -> Stop {
    match stop {
        Stop::Damaged(pvbn) => Stop::MetafileDamaged(pvbn),
        stop => stop,
    }
}

/// The record in a slot of a block.
///
/// # Errors
/// Damage.
pub(crate) fn record_at(block: &Block, slot: usize) -> Progress<QuotaRecord> {
    QuotaRecord::from_block(block, slot).map_err(|damage| Stop::of_damage(damage, Pvbn(0)))
}

/// What may be used. Zero stands for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Limits {
    /// Above so many blocks an event tells of the owner.
    pub soft_blocks: u64,
    /// Blocks that may be used.
    pub hard_blocks: u64,
    /// Above so many files an event tells of the owner.
    pub soft_files: u64,
    /// Files that there may be.
    pub hard_files: u64,
}

impl Limits {
    /// Those of a record.
    #[must_use]
    pub const fn of(record: &QuotaRecord) -> Self {
        Self {
            soft_blocks: record.soft_blocks.get(),
            hard_blocks: record.hard_blocks.get(),
            soft_files: record.soft_files.get(),
            hard_files: record.hard_files.get(),
        }
    }

    /// Whether more is used than a soft limit.
    const fn are_passed_softly(&self, record: &QuotaRecord) -> bool {
        self.soft_blocks != 0 && record.used_blocks.get() > self.soft_blocks
            || self.soft_files != 0 && record.used_files.get() > self.soft_files
    }

    const fn store(&self, record: &mut QuotaRecord) {
        record.soft_blocks = U64::new(self.soft_blocks);
        record.hard_blocks = U64::new(self.hard_blocks);
        record.soft_files = U64::new(self.soft_files);
        record.hard_files = U64::new(self.hard_files);
    }

    /// The limits of `key`, whose record this is, where `default` is the record of those that have
    /// none of their own. Those do not hold for user 0, group 0.
    #[must_use]
    pub const fn effective(key: QuotaKey, record: &QuotaRecord, default: &QuotaRecord) -> Self {
        match (record.is_set(), key.id) {
            (true, _) => Self::of(record),
            (false, 0) => Self { soft_blocks: 0, hard_blocks: 0, soft_files: 0, hard_files: 0 },
            (false, _) => Self::of(default),
        }
    }
}

/// An owner that came to use more than a soft limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Who.
    pub key: QuotaKey,
    /// Its limits.
    pub limits: Limits,
    /// Blocks and files that it uses.
    pub used: (u64, u64),
}

/// Whose limits an administrator changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaTarget {
    /// One user, group or tree.
    One(QuotaKey),
    /// All of a kind that have no limits of their own.
    Others(QuotaKind),
}

/// What an administrator changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaChange {
    /// Whose limits.
    pub target: QuotaTarget,
    /// The limits; none: those of the others of its kind are its limits again.
    pub limits: Option<Limits>,
}

impl QuotaChange {
    /// Whether it is about trees.
    #[must_use]
    pub const fn is_of_tree(&self) -> bool {
        let kind = match self.target {
            QuotaTarget::One(key) => key.kind,
            QuotaTarget::Others(kind) => kind,
        };
        matches!(kind, QuotaKind::Tree)
    }
}

/// The work of a consistency point on the quota file.
pub(crate) struct QuotaWork {
    changes: VecDeque<QuotaChange>,
    /// Inodes below this number are counted, with what this consistency point counts; none if the
    /// volume counts nothing.
    pub counted_inodes: Option<u64>,
    was_counted: u64,
    usage: BTreeMap<QuotaKey, (i64, i64)>,
    touched: FxHashSet<Fbn>,
    counted_blocks: u64,
    /// Blocks that counting may change.
    counted_portion: u64,
    leaves: BTreeMap<Fbn, BlockRef>,
    passed: Vec<Passed>,
}

impl QuotaWork {
    pub fn new(changes: Vec<QuotaChange>, counted_portion: u64) -> Self {
        Self {
            changes: changes.into(),
            counted_inodes: None,
            was_counted: 0,
            usage: BTreeMap::new(),
            touched: FxHashSet::default(),
            counted_blocks: 0,
            counted_portion,
            leaves: BTreeMap::new(),
            passed: Vec::new(),
        }
    }

    /// Whether there is anything to do for a volume with this quota file.
    pub fn is_wanted<P: Pointer>(&self, file: &QuotaFile<P>) -> bool {
        // What was begun is gone on with, though the changes are in blocks by now.
        file.is_counting() || !self.changes.is_empty() || self.counted_inodes.is_some()
    }

    /// Begins, once.
    pub fn begin<P: Pointer>(&mut self, file: &QuotaFile<P>) {
        if self.counted_inodes.is_none() {
            self.was_counted = file.counted_inodes;
            self.counted_inodes = Some(file.counted_inodes);
        }
    }

    /// An inode changes. With the directory of a tree its limits go: another directory may come to
    /// have its number.
    pub fn note(&mut self, number: InodeNumber, before: &InodeRecord, after: &InodeRecord) {
        let tree = before.tree.get();
        let is_gone = after.is_free() || after.generation != before.generation;
        if tree != 0 && u64::from(tree) == number.get() && is_gone {
            let key = QuotaKey { kind: QuotaKind::Tree, id: tree };
            self.drop_limits(key);
        }
        if self.counted_inodes.is_some() && number.get() < self.was_counted {
            self.count(before, -1);
            self.count(after, 1);
        }
    }

    /// Drops new limits of trees of which `is_gone` says so.
    pub fn drop_changes(&mut self, mut is_gone: impl FnMut(u32) -> Progress<bool>) -> Progress<()> {
        let mut kept = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            let tree = match (change.target, change.limits) {
                (QuotaTarget::One(QuotaKey { kind: QuotaKind::Tree, id }), Some(_)) => Some(id),
                _ => None,
            };
            kept.push(tree.map_or(Ok(false), &mut is_gone).map(|is_gone| !is_gone)?);
        }
        let mut kept = kept.into_iter();
        self.changes.retain(|_| kept.next().unwrap_or(true));
        Ok(())
    }

    fn drop_limits(&mut self, key: QuotaKey) {
        let is_kept = mutation::broken(Rule::TreeLimitsKept);
        if self.counted_inodes.is_some() && !is_kept {
            let target = QuotaTarget::One(key);
            self.changes.push_back(QuotaChange { target, limits: None });
        }
    }

    fn count(&mut self, record: &InodeRecord, sign: i64) {
        let Some((owner, blocks, files)) = counted(record) else { return };
        if sign < 0 && mutation::broken(Rule::QuotaNotGivenBack) {
            return;
        }
        for key in owner.keys() {
            let (of_blocks, of_files) = self.usage.entry(key).or_default();
            // What is damaged on media may count anything.
            let of = |count: u64| sign.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX));
            *of_blocks = of_blocks.saturating_add(of(blocks));
            *of_files = of_files.saturating_add(of(files));
        }
    }

    /// The first block of the inode file that is to be counted next; none if this consistency point
    /// counts no more.
    pub fn next_uncounted(&self) -> Option<Fbn> {
        let counted = self.counted_inodes.filter(|counted| *counted != ALL_INODES)?;
        let goes_on = self.counted_blocks < COUNTED_BLOCKS_PER_CP
            && (self.touched.len() as u64) < self.counted_portion;
        goes_on.then_some(Fbn(counted / INODES_PER_BLOCK as u64))
    }

    /// Counts the inodes of a block of the inode file. There is none between this and the one
    /// before.
    pub fn count_block(&mut self, fbn: Fbn, records: impl Iterator<Item = InodeRecord>) {
        for record in records {
            self.count(&record, 1);
            let keys = counted(&record).into_iter().flat_map(|(owner, ..)| owner.keys());
            self.touched.extend(keys.map(|key| place_of(key).0));
        }
        self.counted_blocks += 1;
        self.counted_inodes = Some((fbn.get() + 1) * INODES_PER_BLOCK as u64);
    }

    /// The next inodes cannot be read: they are tried again in another consistency point.
    pub const fn pause_counting(&mut self) {
        self.counted_portion = 0;
    }

    /// There are no more inodes.
    pub const fn end_counting(&mut self) {
        self.counted_inodes = Some(ALL_INODES);
    }

    /// Has a block of the file written again.
    pub fn rewrite<P: Pointer>(
        &mut self,
        file: &QuotaFile<P>,
        volume: VolumeId,
        fbn: Fbn,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        if read_block(&file.root, volume, fbn, reader)?.is_some() {
            self.leaf(file, volume, fbn, reader)?;
        }
        Ok(())
    }

    /// Puts limits, usage and the header into blocks of the file.
    pub fn put<P: Pointer>(
        &mut self,
        file: &QuotaFile<P>,
        volume: VolumeId,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        while let Some(change) = self.changes.front().copied() {
            let (fbn, slot) = match change.target {
                QuotaTarget::One(key) => place_of(key),
                QuotaTarget::Others(kind) => (Fbn(0), default_slot(kind)),
            };
            let others = match change.target {
                QuotaTarget::One(key) => Some((key, self.others(file, volume, key.kind, reader)?)),
                QuotaTarget::Others(_) => None,
            };
            let block = self.leaf(file, volume, fbn, reader)?;
            let mut record = record_at(block, slot)?;
            let before = record;
            record.flags = U32::new(if change.limits.is_some() { QUOTA_SET } else { 0 });
            change.limits.unwrap_or_default().store(&mut record);
            record.store(Arc::make_mut(block), slot);
            if let Some((key, others)) = others {
                self.note_passed(key, (&before, &record), &others);
            }
            self.changes.pop_front();
        }
        while let Some((&key, &(blocks, files))) = self.usage.first_key_value() {
            if (blocks, files) != (0, 0) {
                let (fbn, slot) = place_of(key);
                // Before anything is changed: after a wait all of it is done again.
                let others = self.others(file, volume, key.kind, reader)?;
                let block = self.leaf(file, volume, fbn, reader)?;
                let mut record = record_at(block, slot)?;
                let add = |used: U64, change: i64| used.get().checked_add_signed(change);
                let sums = (add(record.used_blocks, blocks), add(record.used_files, files));
                let (Some(blocks), Some(files)) = sums else {
                    return Err(Stop::Contradiction("less than nothing would be used"));
                };
                let before = record;
                (record.used_blocks, record.used_files) = (U64::new(blocks), U64::new(files));
                record.store(Arc::make_mut(block), slot);
                self.note_passed(key, (&before, &record), &others);
            }
            self.usage.pop_first();
        }
        let counted = self.counted_inodes.unwrap_or_default();
        if !file.is_counting() || counted != file.counted_inodes {
            let block = self.leaf(file, volume, Fbn(0), reader)?;
            QuotaHeader::new(counted).store(Arc::make_mut(block));
        }
        Ok(())
    }

    /// The record of those of a kind that have no limits of their own.
    fn others<P: Pointer>(
        &self,
        file: &QuotaFile<P>,
        volume: VolumeId,
        kind: QuotaKind,
        reader: &Reader<'_>,
    ) -> Progress<QuotaRecord> {
        let block = match self.leaves.get(&Fbn(0)) {
            Some(block) => Some(BlockRef::clone(block)),
            None => read_block(&file.root, volume, Fbn(0), reader)?,
        };
        let record = block.map(|block| record_at(&block, default_slot(kind))).transpose()?;
        Ok(record.unwrap_or_else(QuotaRecord::zeroed))
    }

    /// Notes an owner that came to use more than a soft limit, by what it uses or by a new limit.
    fn note_passed(
        &mut self,
        key: QuotaKey,
        (before, after): (&QuotaRecord, &QuotaRecord),
        others: &QuotaRecord,
    ) {
        let (was, limits) =
            (Limits::effective(key, before, others), Limits::effective(key, after, others));
        if limits.are_passed_softly(after) && !was.are_passed_softly(before) {
            let used = (after.used_blocks.get(), after.used_files.get());
            self.passed.push(Passed { key, limits, used });
        }
    }

    /// The owners that came to use more than a soft limit.
    pub fn take_passed(&mut self) -> Vec<Passed> {
        std::mem::take(&mut self.passed)
    }

    fn leaf<P: Pointer>(
        &mut self,
        file: &QuotaFile<P>,
        volume: VolumeId,
        fbn: Fbn,
        reader: &Reader<'_>,
    ) -> Progress<&mut BlockRef> {
        match self.leaves.entry(fbn) {
            Entry::Occupied(found) => Ok(found.into_mut()),
            Entry::Vacant(place) => {
                let block = read_block(&file.root, volume, fbn, reader)?;
                Ok(place.insert(block.unwrap_or_else(|| Block::shared(&[]))))
            }
        }
    }

    /// The blocks that changed.
    pub fn take_leaves(&mut self) -> BTreeMap<Fbn, BlockRef> {
        std::mem::take(&mut self.leaves)
    }
}
