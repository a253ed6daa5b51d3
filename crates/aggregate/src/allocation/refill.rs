//! Choosing the PVBNs of the next blocks: the emptiest allocation area of each group, tetris by
//! tetris (FreeSpace sections 2.3, 3.1, 3.3.1, 4.2).
//!
//! The groups take turns, a tetris each, so all of them are written at once. Groups whose best
//! areas have as much free space get as many blocks per disk. A fragmented group has fewer free
//! blocks in each tetris, so each of its turns gives it fewer. A group whose best area is much
//! fuller than those of the other groups is left out until that changes: its partial stripes would
//! cost more than its disks would help.
//!
//! Within a tetris the free blocks are handed out disk by disk. So blocks that are placed one after
//! another lie one after another on one disk, and a tetris that is all free becomes full stripes.
//!
//! Groups in an object store are a tier of their own for blocks that are moved there
//! ([`crate::relocating`]). Other blocks go there only when no other group has a free block.
//!
//! Invariants: a number is handed out once ([`Space::give`]). The free map decides whether a block
//! is free; scores only say where to look. A tier counts as full only after each of its areas was
//! tried.

mod emptying;
mod group;
mod top_areas;

use super::area_map::GroupMap;
use super::pool::BlockPool;
use super::tuning::Tuning;
use allocator::{AreaChoice, Chance, Picks};
use cowfs::free_map::{is_set, map_block_of};
use cowfs::reader::{Progress, Reader, Stop};
use cowfs::space::{Space, read_top_areas};
pub(crate) use emptying::Cursor;
use group::{Filling, GroupAreas};
use ondisk::identity::REGION_DATA_BLOCKS;
use ondisk::pointer::PhysicalPointer;
use ondisk::top_areas::top_areas_block;
use platform::stage::{self, Stage};
use raid::{BlockStore, Geometry, GroupGeometry, Location, TetrisId};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use units::{BlockNumber, BlockRef, Dbn, Fbn, Pvbn, VolumeId};

/// Areas that are counted at a time when none is known that has free blocks.
const AREAS_PER_COUNT: usize = 16;
/// A group is left out when its best area has less than this share of what the best of all has.
const LEAVE_OUT_DIVISOR: u64 = 4;
/// It is taken back with this share: more, so that it is not left out and taken back in turns.
const TAKE_BACK_DIVISOR: u64 = 3;

const REGION_STRIPES: u64 = REGION_DATA_BLOCKS as u64;

/// Groups of one sort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tier {
    /// Disks.
    Near = 0,
    /// Object stores.
    Object = 1,
}

/// How far looking for free blocks of a tier has come in a consistency point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Search {
    /// Areas that were not filled lately.
    #[default]
    Listed,
    /// Those too that were: more of their blocks may have become free.
    All,
    /// Every one, whatever is known of it.
    Each,
}

/// Where the write allocator stands.
#[derive(Default)]
pub struct Refill {
    groups: Vec<GroupAreas>,
    tiers: Vec<Tier>,
    /// The group whose turn it is.
    turn: usize,
    searches: [Search; 2],
    /// Nothing is free in a tier, by its maps, until a commit has freed something.
    is_full: [bool; 2],
    choice: AreaChoice,
    chance: Chance,
    /// Stripes of an area, if it is not to follow from the medium.
    area_stripes: Option<u64>,
}

/// The tier that a group belongs to.
pub(crate) fn tier_of(group: &GroupGeometry) -> Tier {
    if group.is_object() { Tier::Object } else { Tier::Near }
}

/// Whether a block lies on disks while it could lie in an object store.
pub(crate) fn is_near(geometry: &Geometry, pvbn: Pvbn) -> bool {
    geometry.locate(pvbn).is_some_and(|at| tier_of(geometry.group(at.group)) == Tier::Near)
}

impl Refill {
    /// A start without knowledge of scores.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let mut refill = Self::default();
        refill.add_groups(geometry);
        refill
    }

    /// A start of an aggregate in which nothing is in use.
    #[must_use]
    pub fn of_empty(geometry: &Geometry) -> Self {
        let mut refill = Self::new(geometry);
        refill.groups.iter_mut().for_each(GroupAreas::count_empty);
        refill
    }

    /// Takes over what TopAA says.
    ///
    /// # Errors
    /// What to wait for.
    pub fn seed(&mut self, space: &Space<PhysicalPointer>, reader: &Reader<'_>) -> Progress<()> {
        let groups = 0..self.groups.len() as u32;
        let numbers = groups.flat_map(|group| {
            let first = top_areas_block(group);
            let pages = if self.tiers[group as usize] == Tier::Object { 2 } else { 1 };
            first.until(first.offset(pages))
        });
        let numbers: Vec<Fbn> = numbers.collect();
        let root = &space.top_areas.root;
        let found = read_top_areas(root, VolumeId(0), numbers.iter().copied(), reader)?;
        let blocks: FxHashMap<Fbn, BlockRef> = numbers
            .into_iter()
            .zip(found)
            .filter_map(|(number, block)| Some((number, block?)))
            .collect();
        for (group, areas) in (0..).zip(&mut self.groups) {
            let first = top_areas_block(group);
            areas.seed(blocks.get(&first), blocks.get(&first.offset(1)));
        }
        Ok(())
    }

    fn add_groups(&mut self, geometry: &Geometry) {
        let known = self.groups.len();
        for group in &geometry.groups()[known..] {
            self.groups.push(GroupAreas::new(group, self.area_stripes));
            self.tiers.push(tier_of(group));
        }
    }

    /// Disks or groups have joined: new areas, and known ones with more free blocks. Groups that
    /// were removed have none any more.
    pub fn grow(&mut self, geometry: &Geometry) {
        let known = self.groups.iter_mut().zip(&mut self.tiers);
        for ((areas, tier), group) in known.zip(geometry.groups()) {
            if group.is_removed() {
                (*areas, *tier) = (GroupAreas::new(group, self.area_stripes), tier_of(group));
            }
            areas.grow(group);
        }
        let known = self.groups.len();
        self.add_groups(geometry);
        self.groups[known..].iter_mut().for_each(GroupAreas::count_empty);
        self.is_full = [false; 2];
    }

    /// A consistency point has committed: what it freed may be given.
    pub(crate) fn note_commit(&mut self) {
        (self.is_full, self.searches) = ([false; 2], [Search::Listed; 2]);
        self.groups.iter_mut().for_each(GroupAreas::search_again);
    }

    /// The end of a consistency point: areas that were filled may be chosen again.
    pub(crate) fn put_back_areas(&mut self) {
        self.groups.iter_mut().for_each(GroupAreas::put_back);
    }

    /// TopAA is to be written, whatever has changed.
    pub fn touch(&mut self) {
        self.groups.iter_mut().for_each(GroupAreas::touch);
    }

    /// Has the scores follow what was taken and freed since the last call.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub(crate) fn settle_scores(
        &mut self,
        space: &mut Space<PhysicalPointer>,
        geometry: &Geometry,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        let (taken, freed) = space.drain_changes();
        self.note(geometry, &taken, |areas, area, count| areas.note(area, count, 0));
        self.note(geometry, &freed, |areas, area, count| areas.note(area, 0, count));
        self.groups.iter_mut().try_for_each(|areas| areas.settle(space, reader))
    }

    /// Tells how many of some numbers lie in which area.
    fn note(
        &mut self,
        geometry: &Geometry,
        numbers: &[Pvbn],
        mut note: impl FnMut(&mut GroupAreas, u32, u64),
    ) {
        // They come in runs of ascending numbers: one look for each run and area.
        let mut rest = numbers;
        while let Some(first) = rest.first().copied() {
            let Some(location) = geometry.locate(first) else {
                // Its group was removed.
                rest = &rest[1..];
                continue;
            };
            let areas = &mut self.groups[location.group as usize];
            let area = areas.area_of(&location);
            // Those that follow on the same disk, up to the area's end.
            let end = first.offset(areas.areas.stripes_of(area).end.since(location.stripe));
            let is_in = |number: &&Pvbn| (first..end).contains(*number);
            let count = rest.iter().take_while(is_in).count();
            note(areas, area, count as u64);
            rest = &rest[count..];
        }
    }

    /// The blocks of TopAA that differ from those on media.
    pub(crate) fn changed_top_areas(&self) -> Vec<(Fbn, BlockRef)> {
        let groups = (0..).zip(&self.groups);
        groups.flat_map(|(group, areas)| areas.changed_top_areas(group)).collect()
    }

    /// What has changed is written.
    pub(crate) fn note_top_areas_written(&mut self) {
        self.groups.iter_mut().for_each(GroupAreas::note_top_areas_written);
    }

    /// Whether areas are to be counted.
    pub(crate) fn wants_count(&self) -> bool {
        self.groups.iter().any(GroupAreas::wants_count)
    }

    /// Counts the free blocks of some areas that are to be counted, of all groups or of a tier's.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub(crate) fn count_areas(
        &mut self,
        areas_max: usize,
        tier: Option<Tier>,
        space: &mut Space<PhysicalPointer>,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        for _ in 0..areas_max {
            let mut groups = self.groups.iter_mut().zip(&self.tiers);
            let is_wanted = |(group, of): &(&mut GroupAreas, &Tier)| {
                tier.is_none_or(|tier| tier == **of) && group.wants_count()
            };
            let Some((group, _)) = groups.find(is_wanted) else { break };
            group.count_next(space, reader)?;
        }
        Ok(())
    }

    /// The areas that were chosen since the last call.
    pub(crate) fn take_picks(&mut self) -> Picks {
        let of = |group: &mut GroupAreas| std::mem::take(&mut group.picks);
        self.groups.iter_mut().map(of).fold(Picks::default(), Picks::with)
    }

    /// How much of which area is free, of each group.
    pub(crate) fn map(&self, cells_max: u64) -> Vec<GroupMap> {
        self.groups.iter().map(|group| group.map(cells_max)).collect()
    }

    /// Chooses as `tuning` says; areas of another size are counted anew.
    pub(crate) fn tune(&mut self, tuning: &Tuning, geometry: &Geometry) {
        self.choice = tuning.group_choice;
        if self.area_stripes != tuning.area_stripes || !tuning.reads_top_areas {
            self.area_stripes = tuning.area_stripes;
            (self.groups, self.tiers) = (Vec::new(), Vec::new());
            self.add_groups(geometry);
        }
    }

    /// Stocks the pool with the free blocks of the next tetris that has any.
    ///
    /// # Errors
    /// What to wait for.
    ///
    /// [`Stop::Contradiction`] when no block is free: promises (decision 9) make that impossible.
    pub fn stock_tetris(
        &mut self,
        space: &mut Space<PhysicalPointer>,
        store: &dyn BlockStore,
        pool: &BlockPool,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        for tier in [Tier::Near, Tier::Object] {
            let found = self.next_tetris(tier, space, store, reader)?;
            if !found.is_empty() {
                pool.stock(found.into_iter());
                return Ok(());
            }
        }
        // The counts said that there are some when the operations were accepted.
        Err(Stop::Contradiction("a free map holds less than the counts say"))
    }

    /// The free blocks of the next tetris of a tier that has any; none if none has. They are given
    /// to the caller, and announced to the store.
    ///
    /// # Errors
    /// What to wait for.
    pub(crate) fn next_tetris(
        &mut self,
        tier: Tier,
        space: &mut Space<PhysicalPointer>,
        store: &dyn BlockStore,
        reader: &Reader<'_>,
    ) -> Progress<Vec<Pvbn>> {
        let _stage = stage::enter(Stage::Allocate);
        let geometry = store.geometry();
        loop {
            if self.is_full[tier as usize] {
                return Ok(Vec::new());
            }
            let Some(group) = self.next_group(tier) else {
                self.search_on(tier, &geometry, space, reader)?;
                continue;
            };
            let Some(Filling { stripes, .. }) = &mut self.groups[group].filling else {
                unreachable!("the group's turn is to fill an area")
            };
            let region = stripes.start.get() / REGION_STRIPES;
            let tetris = TetrisId { group: group as u32, region };
            let end = stripes.end.min(tetris.stripe(REGION_DATA_BLOCKS));
            let free = free_blocks(tetris, stripes.start..end, space, &geometry, reader)?;
            stripes.start = end;
            if stripes.is_empty() {
                self.groups[group].filling = None;
            }
            if !free.is_empty() {
                store.open_tetris(tetris, free.len() as u32);
                free.iter().for_each(|pvbn| space.give(*pvbn));
                self.turn = group + 1;
                return Ok(free);
            }
        }
    }

    /// The group whose turn it is to be written, with an area that is being filled; `None` if none
    /// has an area with free blocks.
    fn next_group(&mut self, tier: Tier) -> Option<usize> {
        self.leave_out(tier);
        let count = self.groups.len();
        let turns = (0..count).map(|after| (self.turn + after) % count);
        let in_tier: Vec<usize> = turns.filter(|group| self.tiers[*group] == tier).collect();
        for takes_left_out in [false, true] {
            for &group in &in_tier {
                let areas = &mut self.groups[group];
                if areas.is_leaving || areas.is_left_out != takes_left_out {
                    continue;
                }
                if areas.filling.is_some() || areas.pick(self.choice, &mut self.chance) {
                    return Some(group);
                }
            }
        }
        None
    }

    /// Leaves those groups out that are too fragmented beside the others.
    fn leave_out(&mut self, tier: Tier) {
        let groups = self.groups.iter().zip(&self.tiers);
        let of_tier = groups.filter(|(group, of)| **of == tier && !group.is_leaving);
        let best = of_tier.filter_map(|(group, _)| group.best_permille()).max().unwrap_or(0);
        for (group, of) in self.groups.iter_mut().zip(&self.tiers) {
            if *of == tier {
                let divisor = if group.is_left_out { TAKE_BACK_DIVISOR } else { LEAVE_OUT_DIVISOR };
                let own = group.best_permille().unwrap_or(best);
                group.is_left_out = own < best / divisor;
            }
        }
    }

    /// No group of a tier has an area to fill: tries what there is to try.
    fn search_on(
        &mut self,
        tier: Tier,
        geometry: &Geometry,
        space: &mut Space<PhysicalPointer>,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        let of_tier = |of: &Tier| *of == tier;
        let mut groups = self.groups.iter().zip(&self.tiers);
        let wants_count = groups.any(|(group, of)| of_tier(of) && group.wants_count());
        if wants_count {
            // Else what was settled would be told twice.
            self.settle_scores(space, geometry, reader)?;
            return self.count_areas(AREAS_PER_COUNT, Some(tier), space, reader);
        }
        let search = &mut self.searches[tier as usize];
        let groups = self.groups.iter_mut().zip(&self.tiers).filter(|(_, of)| of_tier(of));
        match search {
            Search::Listed => {
                groups.for_each(|(group, _)| {
                    group.put_back();
                    group.stop_emptying();
                });
                *search = Search::All;
            }
            Search::All => {
                groups.for_each(|(group, _)| group.try_each());
                *search = Search::Each;
            }
            Search::Each => self.is_full[tier as usize] = true,
        }
        Ok(())
    }
}

/// The free blocks of some stripes of a tetris, disk by disk.
fn free_blocks(
    tetris: TetrisId,
    stripes: Range<Dbn>,
    space: &mut Space<PhysicalPointer>,
    geometry: &Geometry,
    reader: &Reader<'_>,
) -> Progress<Vec<Pvbn>> {
    let mut maps: FxHashMap<Fbn, BlockRef> = FxHashMap::default();
    let mut free = Vec::new();
    for disk in 0..geometry.group(tetris.group).data_disks() {
        for stripe in stripes.start.until(stripes.end) {
            let location = Location { group: tetris.group, disk, stripe };
            let Some(pvbn) = geometry.pvbn(location) else { continue };
            let index = map_block_of(pvbn);
            let map = match maps.entry(index) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(slot) => slot.insert(space.in_use(index, reader)?),
            };
            if !is_set(map, pvbn) && space.is_givable(pvbn) {
                free.push(pvbn);
            }
        }
    }
    Ok(free)
}

/// Announces to the store, tetris by tetris, the numbers in stock: after a `sync` it has forgotten
/// them.
pub fn reopen_stock(store: &dyn BlockStore, stock: impl IntoIterator<Item = Pvbn>) {
    let geometry = store.geometry();
    let mut counts: Vec<(TetrisId, u32)> = Vec::new();
    for pvbn in stock {
        let Some(tetris) = geometry.tetris_of(pvbn) else { continue };
        match counts.last_mut() {
            Some((last, count)) if *last == tetris => *count += 1,
            _ => counts.push((tetris, 1)),
        }
    }
    for (tetris, count) in counts {
        store.open_tetris(tetris, count);
    }
}

#[cfg(test)]
mod tests;
