//! Which numbers of a volume are given next: those of the emptiest areas, as far as two pages tell
//! (FreeSpace sections 3.3.2, 3.4). An area is what a block of the free map stands for, so that
//! numbers given one after another change few of its blocks (FreeSpace section 2.5).
//!
//! Numbers of an area go into the *pool* as they are asked for, in order, and not all at once: an
//! area has 32,768. A commit leaves few in the pool, so a volume that does nothing takes little
//! memory.
//!
//! The two pages are in memory what they are in the TopAA metafile. They are read when the first
//! consistency point after a start asks for them, follow each one, and are written by those in
//! which an area has changed its bin. When the list runs low, or was never complete, areas are
//! counted anew, a few with each call of [`Space::count_areas`], from the free map.
//!
//! Invariants:
//! - The histogram counts what the maps say, of all areas that were counted, once
//!   [`Space::settle_scores`] has run.
//! - A page that is lost or wrong costs a look at the maps, never a block: before a space is said
//!   to be full, every one of its areas was tried.

use super::counted::Counted;
use super::delayed::BLOCKS_AHEAD;
use super::{Space, TopAreasFile};
use crate::buftree::{self, FileKey, Root};
use crate::content::Content;
use crate::free_map::{VBNS_PER_BLOCK, clear_bits_from, first_of, map_block_of, used_in};
use crate::logical::read_record;
use crate::pointer::Pointer;
use crate::reader::{self, Progress, Reader, Stop, Wait};
use allocator::{AreaChoice, Hbps};
use ondisk::inode::{InodeRecord, KIND_METAFILE};
use ondisk::root::metafile;
use std::collections::{BTreeMap, VecDeque};
use units::{BLOCK_SIZE_U64, BlockNumber, BlockRef, Fbn, InodeNumber, VolumeId};
use zerocopy::little_endian::U64;

/// Areas that are counted at a time when there is none to give numbers of.
const AREAS_PER_COUNT: u64 = 64;
/// Areas that are tried by chance before one is looked for.
const ANY_TRIES: usize = 64;
/// Numbers that are put into the pool at a time, at least, and that a commit leaves in there.
const POOL_FILL_MIN: usize = 64;
/// Areas in hand that memory is kept for between consistency points.
const OUT_KEPT: usize = 16;
/// As many as were put there since the commit are put there at a time, up to this: a map block that
/// many snapshots have is looked through for many numbers.
const POOL_FILL_MAX: usize = 4096;

/// Numbers of an area that were taken, and that were released.
type Change = (u32, u32);

/// The areas of a space.
pub(super) enum Areas {
    /// Somebody else chooses its numbers: an aggregate's lie in RAID groups.
    Elsewhere,
    /// Not read yet.
    Unread,
    /// In memory.
    Known(Box<KnownAreas>),
}

/// See the module.
pub(super) struct KnownAreas {
    counted: Counted,
    /// Areas that the pool has numbers of, in the pool's order. The last is the area that the pool
    /// is filled from. An area may be missing: areas are forgotten when no other is left, and when
    /// the space grows.
    out: VecDeque<u32>,
    /// The first number that was not looked at of the area that the pool is filled from; none if
    /// all of them were.
    unseen: Option<u64>,
    /// Numbers that were put into the pool since the last commit.
    filled: usize,
    /// What was not told yet.
    changes: BTreeMap<Fbn, Change>,
    /// What is tried, until the next commit.
    search: Search,
}

/// How far looking for a free number has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Search {
    /// Areas that are not in the pool.
    Listed,
    /// Those too that are: more of their numbers may have become free.
    All,
    /// Every area in order of its number, whatever is known of it: this one is next. Maps say of
    /// numbers in the running consistency point's hands that they are free, so that a list made of
    /// them could be all such areas.
    Each(u32),
}

impl KnownAreas {
    fn new(sorted: Hbps) -> Self {
        Self {
            counted: Counted::new(sorted),
            out: VecDeque::new(),
            unseen: None,
            filled: 0,
            changes: BTreeMap::new(),
            search: Search::Listed,
        }
    }

    /// Of a space in which nothing is in use.
    fn of_empty(size_blocks: u64) -> Self {
        let mut sorted = empty_sort();
        let whole = size_blocks / VBNS_PER_BLOCK;
        sorted.count(whole as u32, VBNS_PER_BLOCK as u32);
        let rest = (size_blocks % VBNS_PER_BLOCK) as u32;
        sorted.count(u32::from(rest > 0), rest);
        Self::new(sorted)
    }

    fn best(&self) -> Option<u32> {
        self.counted.best(|area| !self.out.contains(&area))
    }

    /// No area is left: what is tried next.
    fn search_on(&mut self) {
        if self.search == Search::Listed {
            self.out.clear();
            self.search = Search::All;
        } else {
            // Those that were not listed may have been forgotten: they are counted anew later.
            self.counted = Counted::new(empty_sort());
            self.search = Search::Each(0);
        }
    }
}

/// The earlier of two places, as far as they are there.
fn earliest(one: Option<Fbn>, other: Option<Fbn>) -> Option<Fbn> {
    one.into_iter().chain(other).min()
}

/// The block of the free map that an area is.
fn map_block(area: u32) -> Fbn {
    Fbn(area.into())
}

fn empty_sort() -> Hbps {
    Hbps::new(VBNS_PER_BLOCK as u32)
}

/// The key of a TopAA metafile.
#[must_use]
pub const fn top_areas_key(volume: VolumeId) -> FileKey {
    let inode = InodeNumber(metafile::TOP_AREAS);
    FileKey { volume, inode, content: Content::Data }
}

/// The blocks of a TopAA metafile, as far as they can be read: they are hints.
///
/// # Errors
/// What to wait for.
pub fn read_top_areas<P: Pointer>(
    root: &Root<P>,
    volume: VolumeId,
    blocks: impl IntoIterator<Item = Fbn>,
    reader: &Reader<'_>,
) -> Progress<Vec<Option<BlockRef>>> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for fbn in blocks {
        match buftree::read(root, &top_areas_key(volume), fbn, reader) {
            Ok(block) => found.push(block),
            Err(Stop::Wait(Wait::Load(requests))) => missing.extend(requests),
            Err(stop @ Stop::Wait(_)) => return Err(stop),
            Err(stop) => {
                tracing::warn!(%volume, %stop, "TopAA is lost; the server counts free blocks again");
                found.push(None);
            }
        }
    }
    if missing.is_empty() { Ok(found) } else { Err(Stop::Wait(Wait::Load(missing))) }
}

impl<P: Pointer> TopAreasFile<P> {
    /// That of the image whose inode file this is.
    ///
    /// # Errors
    /// What to wait for.
    pub fn load(inode_file: &Root<P>, volume: VolumeId, reader: &Reader<'_>) -> Progress<Self> {
        let inode = InodeNumber(metafile::TOP_AREAS);
        let record = read_record(inode_file, volume, inode, reader)?;
        let record = record.filter(|record| !record.is_free());
        let record = record.unwrap_or_else(|| Self::none().record());
        let size_blocks = record.size.get() / BLOCK_SIZE_U64;
        Ok(Self { root: Root::of(&record), blocks: record.blocks.get(), size_blocks })
    }

    /// One without blocks.
    #[must_use]
    pub(super) fn none() -> Self {
        Self { root: Root::default(), blocks: 0, size_blocks: 0 }
    }

    /// Its inode.
    #[must_use]
    pub(crate) fn record(&self) -> InodeRecord {
        let mut record = InodeRecord::zeroed();
        record.kind = KIND_METAFILE;
        record.size = U64::new(self.size_blocks * BLOCK_SIZE_U64);
        record.blocks = U64::new(self.blocks);
        self.root.store(&mut record);
        record
    }
}

impl<P: Pointer> Space<P> {
    pub(super) fn empty_areas(size_blocks: u64) -> Areas {
        Areas::Known(Box::new(KnownAreas::of_empty(size_blocks)))
    }

    /// Somebody else chooses the numbers of this space, and keeps its scores.
    #[must_use]
    pub fn without_areas(mut self) -> Self {
        self.areas = Areas::Elsewhere;
        self
    }

    /// What is known of areas, on media too, is not to be used: they are counted anew.
    pub fn forget_areas(&mut self) {
        if !matches!(self.areas, Areas::Elsewhere) {
            self.areas = Areas::Known(Box::new(KnownAreas::new(empty_sort())));
        }
    }

    fn area_count(&self) -> u32 {
        self.size_blocks.div_ceil(VBNS_PER_BLOCK) as u32
    }

    fn known(&mut self) -> &mut KnownAreas {
        match &mut self.areas {
            Areas::Known(known) => known,
            _ => unreachable!("areas are read before they are asked for"),
        }
    }

    fn read_areas(&mut self, reader: &Reader<'_>) -> Progress<()> {
        if !matches!(self.areas, Areas::Unread) {
            return Ok(());
        }
        let pages = read_top_areas(&self.top_areas.root, self.volume, [Fbn(0), Fbn(1)], reader)?;
        let sorted = match &pages[..] {
            [Some(histogram), Some(list)] => {
                Hbps::from_blocks(VBNS_PER_BLOCK as u32, histogram, list)
            }
            _ => Ok(empty_sort()),
        };
        let sorted = sorted.ok().filter(|sorted| sorted.counted() <= self.area_count());
        let sorted = sorted.unwrap_or_else(|| {
            tracing::warn!(volume = %self.volume, "TopAA is wrong; the server counts the free blocks of its areas again");
            empty_sort()
        });
        self.areas = Areas::Known(Box::new(KnownAreas::new(sorted)));
        Ok(())
    }

    /// Free numbers of an area, as the maps are now.
    fn count_area(&mut self, area: Fbn, reader: &Reader<'_>) -> Progress<u32> {
        let in_use = self.in_use(area, reader)?;
        let (first, last) = (first_of::<P::Number>(area), P::Number::new(self.size_blocks));
        let end = last.min(first_of(area.offset(1)));
        Ok((end.since(first) - used_in(&in_use, first..end)) as u32)
    }

    /// The first map block at or after `from` that says of some number that it is in use, as far as
    /// is known without looking into the block.
    fn next_in_use(&mut self, from: Fbn, reader: &Reader<'_>) -> Progress<Option<Fbn>> {
        let volume = self.volume;
        let mut next = None;
        for map in [&self.active_map, &self.summary_map, &self.delayed_map] {
            next = earliest(next, map.next_known(from, reader)?);
        }
        for snapshot in &mut self.snapshots {
            if next.is_none_or(|next| snapshot.merged_blocks <= next.get()) {
                next = earliest(next, snapshot.map(volume, reader)?.next_known(from, reader)?);
            }
        }
        Ok(next)
    }

    /// Has the areas follow what was taken and released since the last call: a batch at the end of
    /// a consistency point.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub fn settle_scores(&mut self, reader: &Reader<'_>) -> Progress<()> {
        self.read_areas(reader)?;
        let (taken, released) = self.drain_changes();
        let changes = &mut self.known().changes;
        // They come in runs of one area.
        let is_same = |one: &P::Number, next: &P::Number| map_block_of(*one) == map_block_of(*next);
        for run in taken.chunk_by(is_same) {
            changes.entry(map_block_of(run[0])).or_default().0 += run.len() as u32;
        }
        for run in released.chunk_by(is_same) {
            changes.entry(map_block_of(run[0])).or_default().1 += run.len() as u32;
        }
        while let Some((area, (taken, released))) = self.known().changes.first_key_value() {
            let (area, taken, released) = (*area, *taken, *released);
            let after = self.count_area(area, reader)?;
            let before = (after + taken).saturating_sub(released);
            let known = self.known();
            known.changes.remove(&area);
            known.counted.change(area.get() as u32, before, after);
        }
        Ok(())
    }

    /// The end of a consistency point: areas whose numbers are used up may be chosen again.
    pub fn put_back_areas(&mut self) {
        let Areas::Known(known) = &mut self.areas else { return };
        let unseen = known.unseen.map(P::Number::new);
        let front = self.pool.front().copied().or(unseen);
        let front = front.map(|vbn| map_block_of(vbn).get() as u32);
        while known.out.front().is_some_and(|area| Some(*area) != front) {
            known.out.pop_front();
        }
    }

    /// A consistency point has committed: what it freed may be given.
    pub(super) fn search_again(&mut self) {
        if let Areas::Known(known) = &mut self.areas {
            known.search = Search::Listed;
        }
    }

    /// Whether areas are to be counted.
    #[must_use]
    pub fn wants_count(&self) -> bool {
        match &self.areas {
            Areas::Known(known) => known.counted.next_count(self.area_count()).is_some(),
            _ => false,
        }
    }

    /// Counts the free numbers of up to `areas_max` areas that are to be counted.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub fn count_areas(&mut self, areas_max: u64, reader: &Reader<'_>) -> Progress<()> {
        self.settle_scores(reader)?;
        let areas = self.area_count();
        for _ in 0..areas_max {
            let Some(area) = self.known().counted.next_count(areas) else { break };
            // Of a thin space most areas are holes of all maps, and the last may be shorter.
            let used = self.next_in_use(map_block(area), reader)?.unwrap_or(Fbn::END);
            let end = used.get().min(u64::from(areas.saturating_sub(1))) as u32;
            if end > area {
                self.known().counted.count(areas, end - area, VBNS_PER_BLOCK as u32);
                continue;
            }
            let score = match self.count_area(map_block(area), reader) {
                Err(stop @ Stop::Wait(_)) => {
                    // Those that are counted next are loaded with it.
                    let ahead = (u64::from(area)..u64::from(areas)).take(BLOCKS_AHEAD);
                    let counted = ahead.map(|area| self.count_area(Fbn(area), reader));
                    return Err(reader::all(counted).err().unwrap_or(stop));
                }
                counted => counted?,
            };
            self.known().counted.count(areas, 1, score);
        }
        Ok(())
    }

    /// The area whose numbers are given next.
    fn pick_area(&mut self, reader: &Reader<'_>) -> Progress<u32> {
        if self.choice == AreaChoice::Any
            && self.known().search == Search::Listed
            && let Some(area) = self.pick_any_area(reader)?
        {
            return Ok(area);
        }
        let areas = self.area_count();
        loop {
            match self.known().search {
                Search::Each(area) if area < areas => return Ok(area),
                // The counts said that there are some when the operations were accepted.
                Search::Each(_) => {
                    return Err(Stop::Contradiction("a free map holds less than the counts say"));
                }
                _ => {}
            }
            if let Some(area) = self.known().best() {
                return Ok(area);
            }
            if self.wants_count() {
                self.count_areas(AREAS_PER_COUNT, reader)?;
            } else {
                self.known().search_on();
            }
        }
    }

    /// An area with free numbers, whichever it is, if one is soon found.
    fn pick_any_area(&mut self, reader: &Reader<'_>) -> Progress<Option<u32>> {
        let areas = self.area_count();
        for _ in 0..ANY_TRIES {
            let mut chance = self.chance;
            let area = chance.next(u64::from(areas)) as u32;
            let is_out = self.known().out.contains(&area);
            let score = self.count_area(map_block(area), reader)?;
            self.chance = chance;
            if !is_out && score > 0 {
                return Ok(Some(area));
            }
        }
        Ok(None)
    }

    /// Makes sure that the pool has `count` free numbers.
    ///
    /// # Errors
    /// What to wait for. [`Stop::Contradiction`] when the space is full: promises (decision 9)
    /// make that impossible.
    pub fn fill_pool(&mut self, count: usize, reader: &Reader<'_>) -> Progress<()> {
        self.read_areas(reader)?;
        while self.pool.len() < count {
            let from = match self.known().unseen {
                Some(unseen) => P::Number::new(unseen),
                None => self.begin_area(reader)?,
            };
            let block = self.in_use(map_block_of(from), reader)?;
            let more = self.known().filled.clamp(POOL_FILL_MIN, POOL_FILL_MAX);
            let before = self.pool.len();
            let wanted = count.max(before + more);
            self.known().unseen = None;
            for vbn in clear_bits_from(&block, from) {
                if self.pool.len() >= wanted {
                    self.known().unseen = Some(vbn.get());
                    break;
                }
                if self.is_givable(vbn) {
                    self.give(vbn);
                    self.pool.push_back(vbn);
                }
            }
            self.known().filled += self.pool.len() - before;
        }
        Ok(())
    }

    /// Gives back the last numbers of the pool beyond [`POOL_FILL_MIN`]; it is filled with them
    /// next.
    fn trim_pool(&mut self) {
        let Areas::Known(known) = &mut self.areas else { return };
        known.filled = 0;
        while self.pool.len() > POOL_FILL_MIN
            && let Some(vbn) = self.pool.pop_back()
        {
            self.given.remove(vbn);
            let area = map_block_of(vbn).get() as u32;
            if known.out.back() != Some(&area) {
                match known.out.iter().rposition(|out| *out == area) {
                    Some(at) => known.out.truncate(at + 1),
                    None => known.out.push_back(area), // it was forgotten
                }
                known.unseen = None;
            }
            // The pool may have numbers of an area twice, of two looks at it.
            let unseen = known.unseen.map_or(vbn.get(), |unseen| unseen.min(vbn.get()));
            known.unseen = Some(unseen);
        }
        known.out.shrink_to(OUT_KEPT);
    }

    /// The first number of the area that the pool is filled from now.
    fn begin_area(&mut self, reader: &Reader<'_>) -> Progress<P::Number> {
        let area = self.pick_area(reader)?;
        let free = self.count_area(map_block(area), reader)?;
        let first = first_of::<P::Number>(map_block(area));
        let known = self.known();
        known.out.push_back(area);
        known.unseen = Some(first.get());
        if let Search::Each(next) = &mut known.search {
            *next += 1;
        }
        if free > 0 {
            self.picks.note(free.into(), VBNS_PER_BLOCK);
        }
        Ok(first)
    }

    /// A free number from the pool, taken.
    ///
    /// # Panics
    /// If [`Self::fill_pool`] was not called for it.
    pub fn take_from_pool(&mut self) -> P::Number {
        let Some(vbn) = self.pool.pop_front() else { panic!("the pool was not filled") };
        self.take(vbn);
        vbn
    }

    /// Numbers that could be given, or are in the pool.
    #[must_use]
    pub fn free_numbers(&self) -> u64 {
        let in_hand = self.given.len() + self.freed.len() - self.pool.len();
        self.unused_blocks().saturating_sub(in_hand as u64)
    }

    /// Free numbers from the pool, at most so many: given, for whoever takes them elsewhere.
    pub fn reserve(&mut self, count: usize) -> Vec<P::Number> {
        let count = count.min(self.pool.len());
        self.pool.drain(..count).collect()
    }

    /// Takes back numbers that were reserved and not taken: they come first again, in order.
    pub fn forfeit(&mut self, mut unused: Vec<P::Number>) {
        let Areas::Known(known) = &self.areas else { return };
        let area = |vbn: &P::Number| {
            let of = map_block_of(*vbn);
            known.out.iter().position(|area| map_block(*area) == of)
        };
        unused.sort_unstable_by_key(|vbn| (area(vbn), *vbn));
        unused.into_iter().rev().for_each(|vbn| self.pool.push_front(vbn));
    }

    /// Drops the pool: its numbers may be given again.
    pub fn drop_pool(&mut self) {
        for vbn in self.pool.drain(..) {
            self.given.remove(vbn);
        }
        if let Areas::Known(known) = &mut self.areas {
            known.out.clear();
            known.unseen = None;
        }
    }

    /// Gives back memory that the consistency point needed: many volumes are idle most of the time.
    pub(super) fn shrink(&mut self) {
        if matches!(self.areas, Areas::Elsewhere) {
            return; // those of an aggregate are in use all the time
        }
        self.trim_pool();
        self.given.shrink_to(POOL_FILL_MIN);
        self.freed.shrink_to(POOL_FILL_MIN);
        for queue in [&mut self.taken, &mut self.freeing, &mut self.pool] {
            queue.shrink_to(POOL_FILL_MIN);
        }
        for list in [&mut self.released, &mut self.changes.0, &mut self.changes.1] {
            list.shrink_to(POOL_FILL_MIN);
        }
    }

    /// The pages that differ from those on media.
    #[must_use]
    pub fn changed_top_areas(&self) -> Vec<(Fbn, BlockRef)> {
        match &self.areas {
            Areas::Known(known) if known.counted.sorted.is_changed() => {
                let [histogram, list] = known.counted.sorted.blocks();
                vec![(Fbn(0), histogram), (Fbn(1), list)]
            }
            _ => Vec::new(),
        }
    }

    /// The metafile has other blocks from now on, which hold something else.
    pub fn replace_top_areas(&mut self, file: TopAreasFile<P>) {
        self.top_areas = file;
        if let Areas::Known(known) = &mut self.areas {
            known.counted.sorted.touch();
        }
    }

    /// What was changed is written.
    pub fn note_top_areas_written(&mut self) {
        if let Areas::Known(known) = &mut self.areas {
            known.counted.sorted.take_changed();
        }
    }
}

const _: () = assert!(VBNS_PER_BLOCK.is_multiple_of(ondisk::top_areas::HISTOGRAM_BINS as u64));

#[cfg(test)]
mod tests;
