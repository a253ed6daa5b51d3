//! The allocation areas of one group: which one is being filled, how far that is, and which is the
//! best next one (FreeSpace sections 3.1 to 3.3).
//!
//! A group of disks keeps all its areas in a heap. A group in an object store keeps the best of
//! them in an HBPS of two pages: there it does not matter where an area lies.
//!
//! Invariants: the area that is being filled is not chosen again. Once it is filled, it may be
//! chosen again after the end of the consistency point, when the heap has its new score.

use allocator::{AreaChoice, AreaHeap, Chance, Hbps, Picks, StripeAreas};
use cowfs::free_map::{runs_of, used_in};
use cowfs::reader::{Progress, Reader, Stop, all};
use cowfs::space::Space;
use ondisk::pointer::PhysicalPointer;
use raid::{GroupGeometry, Location};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use units::{BlockNumber, Dbn, Pvbn};

/// Map blocks that are loaded at a time, or those of one area.
const BLOCKS_AHEAD: usize = 64;

/// See the module.
pub(super) struct GroupAreas {
    pub areas: StripeAreas,
    /// The first PVBN of each data disk.
    pub(super) bases: Vec<Pvbn>,
    pub(super) cache: Cache,
    /// The area being filled.
    pub filling: Option<Filling>,
    /// Areas that were filled since scores were told last.
    filled: Vec<u32>,
    /// The area that is being emptied.
    pub(super) emptying: Option<u32>,
    /// Areas that were, and not filled since.
    pub(super) emptied: BTreeSet<u32>,
    /// All areas before this one were gone through, of a group that is to leave.
    pub(super) next_leaving: u32,
    /// Areas whose free blocks were counted since the start.
    pub(super) counted: u32,
    /// All areas were counted since the start: scores are what the maps say.
    pub(super) is_exact: bool,
    /// The area that is tried next, if every one is.
    each: Option<u32>,
    /// What was not told yet: blocks taken from areas, and freed in them.
    changes: BTreeMap<u32, (u64, u64)>,
    /// Its best area is much worse than those of other groups.
    pub is_left_out: bool,
    /// It is to leave: nothing is placed in it.
    pub(super) is_leaving: bool,
    pub(super) is_changed: bool,
    /// The areas that were chosen.
    pub picks: Picks,
}

/// An area that is being filled.
pub(super) struct Filling {
    pub area: u32,
    /// What is left of it.
    pub stripes: Range<Dbn>,
    /// The share that was free when it was chosen, in thousandths: that of what is left, too.
    permille: u64,
}

pub(super) enum Cache {
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
        let first_pvbn = group.bases.first().copied().unwrap_or_default();
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
            bases: group.bases.clone(),
            cache,
            filling: None,
            filled: Vec::new(),
            emptying: None,
            emptied: BTreeSet::new(),
            next_leaving: 0,
            counted: 0,
            is_exact: false,
            each: None,
            changes: BTreeMap::new(),
            is_left_out: false,
            is_leaving: false,
            is_changed: false,
            picks: Picks::default(),
        }
    }

    pub(super) const fn data_disks(&self) -> u64 {
        self.bases.len() as u64
    }

    /// Nothing of the group is in use.
    pub fn count_empty(&mut self) {
        let count = self.areas.areas();
        match &mut self.cache {
            Cache::All(heap) => {
                let (areas, disks) = (self.areas, self.bases.len() as u64);
                *heap = AreaHeap::of(count, |area| (areas.len_of(area) * disks) as u32);
            }
            Cache::Best(sorted) => {
                for area in 0..count {
                    sorted.count(1, (self.areas.len_of(area) * self.bases.len() as u64) as u32);
                }
            }
        }
        (self.counted, self.is_exact, self.is_changed) = (count, true, true);
    }

    /// Disks have joined: all their blocks are free.
    pub fn grow(&mut self, group: &GroupGeometry) {
        let joined = group.data_disks() as u64 - self.data_disks();
        if joined == 0 {
            return;
        }
        self.bases.clone_from(&group.bases);
        self.is_changed = true;
        let areas = self.areas;
        match &mut self.cache {
            Cache::All(heap) => heap.change_all(|area| (areas.len_of(area) * joined) as u32),
            Cache::Best(sorted) => {
                **sorted = Hbps::new(score_max(&areas, self.bases.len() as u64));
                self.counted = 0;
            }
        }
    }

    /// Blocks of an area.
    pub(super) fn capacity(&self, area: u32) -> u64 {
        self.areas.len_of(area) * self.data_disks()
    }

    /// The share that is free of the best area, be it the one being filled, in thousandths; `None`
    /// if none is known that has free blocks.
    pub fn best_permille(&self) -> Option<u64> {
        let Cache::All(heap) = &self.cache else { return None };
        let best = heap.best().filter(|(_, score)| *score > 0);
        let best = best.map(|(area, score)| self.permille(area, score));
        best.max(self.filling.as_ref().map(|filling| filling.permille))
    }

    /// The share of an area that so many blocks are, in thousandths.
    fn permille(&self, area: u32, blocks: u32) -> u64 {
        u64::from(blocks) * 1000 / self.capacity(area).max(1)
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
            self.emptied.remove(&area);
            let score = match &self.cache {
                Cache::All(heap) => heap.score(area),
                Cache::Best(_) => None,
            };
            if let Some(score) = score {
                self.picks.note(u64::from(score), self.capacity(area));
            }
            let permille = self.permille(area, score.unwrap_or(0));
            self.filling = Some(Filling { area, stripes: self.areas.stripes_of(area), permille });
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
        let current = self.filling.as_ref().map(|filling| filling.area);
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
        let score = self
            .count_area(area, space, reader)
            .map_err(|stop| self.wait_ahead(area, stop, space, reader))?;
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
            let numbers = base.offset(stripes.start.get())..base.offset(stripes.end.get());
            for (index, part) in runs_of(numbers) {
                let map = space.in_use(index, reader)?;
                free += part.end.since(part.start) - used_in(&map, part);
            }
        }
        Ok(free as u32)
    }

    /// What to wait for with that: the map blocks of the areas that are counted next, too.
    fn wait_ahead(
        &self,
        area: u32,
        stop: Stop,
        space: &mut Space<PhysicalPointer>,
        reader: &Reader<'_>,
    ) -> Stop {
        let mut indices = BTreeSet::new();
        for stripes in (area..self.areas.areas()).map(|area| self.areas.stripes_of(area)) {
            for base in &self.bases {
                let numbers = base.offset(stripes.start.get())..base.offset(stripes.end.get());
                indices.extend(runs_of(numbers).map(|(index, _)| index));
            }
            if indices.len() >= BLOCKS_AHEAD {
                break;
            }
        }
        let ahead = indices.into_iter().map(|index| space.in_use(index, reader));
        all(ahead).err().unwrap_or(stop)
    }

    /// The area of a stripe.
    pub const fn area_of(&self, location: &Location) -> u32 {
        self.areas.area_of(location.stripe)
    }
}
