//! The allocation areas of one group: which is filled, how far that is, and which is best next
//! (FreeSpace sections 3.1 to 3.3).
//!
//! Groups of disks keep all areas in a heap, groups in an object store the best of them in two
//! pages: their places are of no account.
//!
//! Invariants: the area being filled is not chosen again; one that is filled may be when the next
//! consistency point has told its score.

use crate::area_map::{AreaCell, GroupMap};
use allocator::{AreaChoice, AreaHeap, Chance, Hbps, Picks, StripeAreas};
use cowfs::free_map::{VBNS_PER_BLOCK, used_in};
use cowfs::reader::{Progress, Reader};
use cowfs::space::Space;
use ondisk::pointer::PhysicalPointer;
use ondisk::top_areas::{TOP_AREAS_MAX, TopArea, TopAreasBlock, top_areas_block};
use raid::{GroupGeometry, Location};
use std::collections::BTreeMap;
use std::ops::Range;
use units::{Block, BlockRef, Pvbn};
use zerocopy::IntoBytes;

/// See the module.
pub(super) struct GroupAreas {
    pub areas: StripeAreas,
    pub data_disks: u64,
    /// The first PVBN of each data disk.
    bases: Vec<Pvbn>,
    cache: Cache,
    /// The area being filled, and what is left of it.
    pub filling: Option<(u32, Range<u64>)>,
    /// Areas that were filled since scores were told last.
    filled: Vec<u32>,
    /// Areas whose free blocks were counted since the start.
    counted: u32,
    /// All areas were counted since the start: scores are what the maps say.
    is_exact: bool,
    /// The area that is tried next, if every one is.
    each: Option<u32>,
    /// What was not told yet: blocks taken from areas, and freed in them.
    changes: BTreeMap<u32, (u64, u64)>,
    /// Its best area is much worse than those of other groups.
    pub is_left_out: bool,
    is_changed: bool,
    /// The areas that were chosen.
    pub picks: Picks,
}

enum Cache {
    All(AreaHeap),
    Best(Box<Hbps>),
}

/// The best score that areas of a group in an object store may have.
fn score_max(areas: &StripeAreas, data_disks: u64) -> u32 {
    let bins = ondisk::top_areas::HISTOGRAM_BINS as u64;
    ((areas.area_stripes() * data_disks).next_multiple_of(bins)) as u32
}

impl GroupAreas {
    /// A group of which nothing is known.
    pub fn new(group: &GroupGeometry, area_stripes: Option<u64>) -> Self {
        // One that was removed has no regions, and no areas.
        let first_block = if group.is_removed() { 0 } else { group.layout().region_start(0) };
        let first_pvbn = group.bases.first().map_or(0, |base| base.get());
        let areas = StripeAreas::of_medium(group.medium, group.regions, first_block, first_pvbn);
        let given = area_stripes.filter(|_| !group.is_object());
        let areas =
            given.map_or(areas, |stripes| StripeAreas::new(group.blocks_per_disk(), stripes, 0));
        let data_disks = group.data_disks() as u64;
        let cache = match group.is_object() {
            true => Cache::Best(Box::new(Hbps::new(score_max(&areas, data_disks)))),
            false => Cache::All(AreaHeap::new(areas.areas())),
        };
        Self {
            areas,
            data_disks,
            bases: group.bases.clone(),
            cache,
            filling: None,
            filled: Vec::new(),
            counted: 0,
            is_exact: false,
            each: None,
            changes: BTreeMap::new(),
            is_left_out: false,
            is_changed: false,
            picks: Picks::default(),
        }
    }

    /// Nothing of the group is in use.
    pub fn count_empty(&mut self) {
        let count = self.areas.areas();
        match &mut self.cache {
            Cache::All(heap) => {
                let (areas, disks) = (self.areas, self.data_disks);
                *heap = AreaHeap::of(count, |area| (areas.len_of(area) * disks) as u32);
            }
            Cache::Best(sorted) => {
                for area in 0..count {
                    sorted.count(1, (self.areas.len_of(area) * self.data_disks) as u32);
                }
            }
        }
        (self.counted, self.is_exact, self.is_changed) = (count, true, true);
    }

    /// Disks have joined: all their blocks are free.
    pub fn grow(&mut self, group: &GroupGeometry) {
        let joined = group.data_disks() as u64 - self.data_disks;
        if joined == 0 {
            return;
        }
        (self.data_disks, self.bases) = (group.data_disks() as u64, group.bases.clone());
        self.is_changed = true;
        let areas = self.areas;
        match &mut self.cache {
            Cache::All(heap) => heap.change_all(|area| (areas.len_of(area) * joined) as u32),
            Cache::Best(sorted) => {
                **sorted = Hbps::new(score_max(&areas, self.data_disks));
                self.counted = 0;
            }
        }
    }

    /// Blocks of an area.
    fn capacity(&self, area: u32) -> u64 {
        self.areas.len_of(area) * self.data_disks
    }

    /// The share of the best area that is free, in thousandths; `None` if none is known that has
    /// free blocks.
    pub fn best_permille(&self) -> Option<u64> {
        let (area, score) = match &self.cache {
            Cache::All(heap) => heap.best()?,
            Cache::Best(_) => return None,
        };
        (score > 0).then(|| u64::from(score) * 1000 / self.capacity(area).max(1))
    }

    /// Begins to fill the best area; whether there is one.
    pub fn pick(&mut self, choice: AreaChoice, chance: &mut Chance) -> bool {
        let filled = &self.filled;
        let area = match &mut self.cache {
            Cache::All(heap) => {
                let best = heap.best().filter(|(_, score)| *score > 0).map(|(area, _)| area);
                let found = match choice {
                    AreaChoice::Best => best,
                    AreaChoice::Any => {
                        let any = heap.any(chance.next(u64::MAX));
                        any.filter(|area| heap.score(*area) > Some(0)).or(best)
                    }
                };
                found.inspect(|area| heap.take_out(*area))
            }
            Cache::Best(sorted) => match &mut self.each {
                Some(next) => {
                    let area = Some(*next).filter(|area| *area < self.areas.areas());
                    *next += u32::from(area.is_some());
                    area
                }
                None => sorted.best(|area| !filled.contains(&area)),
            },
        };
        if let Some(area) = area {
            self.filled.push(area);
            self.filling = Some((area, self.areas.stripes_of(area)));
            if let Cache::All(heap) = &self.cache {
                let score = heap.score(area).unwrap_or(0);
                self.picks.note(u64::from(score), self.capacity(area));
            }
        }
        area.is_some()
    }

    /// Blocks were taken from an area, or freed in it.
    pub fn note(&mut self, area: u32, taken: u64, freed: u64) {
        let change = self.changes.entry(area).or_default();
        *change = (change.0 + taken, change.1 + freed);
    }

    /// Has the scores follow what was noted, at the end of a consistency point.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub fn settle(
        &mut self,
        space: &mut Space<PhysicalPointer>,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        while let Some((&area, &(taken, freed))) = self.changes.first_key_value() {
            match &mut self.cache {
                Cache::All(heap) => heap.change(area, freed as i64 - taken as i64),
                Cache::Best(_) => {
                    let after = self.count_area(area, space, reader)?;
                    let before = (u64::from(after) + taken).saturating_sub(freed) as u32;
                    let Cache::Best(sorted) = &mut self.cache else { unreachable!("seen above") };
                    sorted.update(area, before, after);
                }
            }
            self.changes.remove(&area);
            self.is_changed = true;
        }
        Ok(())
    }

    /// Areas that were filled may be chosen again: what of them was freed since may be given.
    pub fn put_back(&mut self) {
        let current = self.filling.as_ref().map(|(area, _)| *area);
        for area in std::mem::take(&mut self.filled) {
            if Some(area) == current {
                self.filled.push(area);
            } else if let Cache::All(heap) = &mut self.cache {
                heap.put_back(area);
            }
        }
    }

    /// Every area is to be tried, whatever is known of it: those that a heap has not counted since
    /// the start are counted, those that pages do not list are taken in order of their numbers.
    pub const fn try_each(&mut self) {
        match &self.cache {
            Cache::All(_) if self.is_exact => {}
            Cache::All(_) => self.counted = 0,
            Cache::Best(_) => self.each = Some(0),
        }
    }

    /// A consistency point has committed: what it freed may be given.
    pub const fn search_again(&mut self) {
        self.each = None;
    }

    /// TopAA is to be written, whatever has changed.
    pub fn touch(&mut self) {
        self.is_changed = true;
        if let Cache::Best(sorted) = &mut self.cache {
            sorted.touch();
        }
    }

    /// Whether areas are to be counted.
    pub fn wants_count(&self) -> bool {
        self.counted < self.areas.areas() || self.runs_low()
    }

    fn runs_low(&self) -> bool {
        matches!(&self.cache, Cache::Best(sorted) if sorted.runs_low())
    }

    /// Counts the free blocks of the next area.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub fn count_next(
        &mut self,
        space: &mut Space<PhysicalPointer>,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        // What pages do not list is found when all is counted again.
        let area = if self.counted < self.areas.areas() { self.counted } else { 0 };
        let score = self.count_area(area, space, reader)?;
        self.counted = area;
        if area == 0
            && let Cache::Best(sorted) = &mut self.cache
        {
            **sorted = Hbps::new(sorted.score_max());
        }
        match &mut self.cache {
            Cache::All(heap) => heap.count(area, score),
            Cache::Best(sorted) => sorted.count(1, score),
        }
        self.counted += 1;
        self.is_exact |= self.counted == self.areas.areas();
        self.is_changed = true;
        Ok(())
    }

    /// Free blocks of an area, as the maps are now.
    fn count_area(
        &self,
        area: u32,
        space: &mut Space<PhysicalPointer>,
        reader: &Reader<'_>,
    ) -> Progress<u32> {
        let stripes = self.areas.stripes_of(area);
        let mut free = 0;
        for base in &self.bases {
            let mut next = base.get() + stripes.start;
            let end = base.get() + stripes.end;
            while next < end {
                let map = space.in_use(next / VBNS_PER_BLOCK, reader)?;
                let until = end.min((next / VBNS_PER_BLOCK + 1) * VBNS_PER_BLOCK);
                free += until - next - used_in(&map, next..until);
                next = until;
            }
        }
        Ok(free as u32)
    }

    /// The blocks of TopAA that differ from those on media, from the group's first on.
    pub fn changed_top_areas(&self, group: u32) -> Vec<(u64, BlockRef)> {
        if !self.is_changed {
            return Vec::new();
        }
        let first = top_areas_block(group);
        match &self.cache {
            Cache::All(heap) => {
                let (each, of_first) = (self.areas.area_stripes(), self.areas.len_of(0));
                let mut block = TopAreasBlock::new(each as u32, of_first as u32);
                let top = heap.top(TOP_AREAS_MAX).into_iter().filter(|(_, score)| *score > 0);
                for (entry, (area, score)) in block.areas.iter_mut().zip(top) {
                    *entry = TopArea { area: area.into(), score: score.into() };
                }
                vec![(first, Block::shared(block.as_bytes()))]
            }
            Cache::Best(sorted) if sorted.is_changed() => {
                let [histogram, list] = sorted.blocks();
                vec![(first, histogram), (first + 1, list)]
            }
            Cache::Best(_) => Vec::new(),
        }
    }

    /// What has changed is written.
    pub fn note_top_areas_written(&mut self) {
        self.is_changed = false;
        if let Cache::Best(sorted) = &mut self.cache {
            sorted.take_changed();
        }
    }

    /// Takes over what TopAA says of the group; without it, or where it is wrong, areas are
    /// counted.
    pub fn seed(&mut self, first: Option<&BlockRef>, second: Option<&BlockRef>) {
        let (Some(first), count) = (first, self.areas.areas()) else { return };
        match &mut self.cache {
            Cache::All(heap) => {
                let Ok(block) = TopAreasBlock::from_block(first) else { return };
                let sizes = (block.area_stripes.get().into(), block.first_stripes.get().into());
                let is_of_these = sizes == (self.areas.area_stripes(), self.areas.len_of(0));
                let most = self.areas.area_stripes() * self.data_disks;
                let is_right = |(area, score): (u32, u32)| area < count && u64::from(score) <= most;
                if is_of_these && block.used().all(is_right) {
                    block.used().for_each(|(area, score)| heap.count(area, score));
                }
            }
            Cache::Best(sorted) => {
                let found = second
                    .and_then(|second| Hbps::from_blocks(sorted.score_max(), first, second).ok());
                if let Some(found) = found.filter(|found| found.counted() <= count) {
                    self.counted = found.counted();
                    **sorted = found;
                }
            }
        }
    }

    /// How much of which area is free.
    pub fn map(&self, cells_max: u64) -> GroupMap {
        let count = u64::from(self.areas.areas());
        let mut map = GroupMap {
            areas: count,
            area_blocks: self.areas.area_stripes() * self.data_disks,
            filling: self.filling.as_ref().map(|(area, _)| u64::from(*area)),
            is_left_out: self.is_left_out,
            ..GroupMap::default()
        };
        match &self.cache {
            Cache::All(heap) => {
                let areas_per_cell = count.div_ceil(cells_max).max(1);
                map.cells = vec![AreaCell::default(); count.div_ceil(areas_per_cell) as usize];
                for area in 0..self.areas.areas() {
                    let cell = &mut map.cells[(u64::from(area) / areas_per_cell) as usize];
                    cell.areas += 1;
                    let Some(score) = heap.score(area) else { continue };
                    let (score, blocks) = (u64::from(score), self.capacity(area));
                    cell.free_blocks += score;
                    cell.counted_blocks += blocks;
                    match score.checked_sub(1) {
                        Some(above) => {
                            map.by_free_share[31 - (above * 32 / blocks).min(31) as usize] += 1;
                        }
                        None => map.full += 1,
                    }
                }
            }
            Cache::Best(sorted) => {
                map.by_free_share = sorted.bins().map(u64::from);
                map.full = u64::from(sorted.empty());
            }
        }
        map
    }

    /// The area of a stripe.
    pub const fn area_of(&self, location: &Location) -> u32 {
        self.areas.area_of(location.stripe)
    }
}
