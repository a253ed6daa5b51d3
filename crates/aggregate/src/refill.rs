//! Choosing where the next blocks go (FreeSpace sections 2.3, 3.1): the emptiest allocation area,
//! tetris by tetris.
//!
//! An allocation area of a RAID group is a set of consecutive tetrises. Within a tetris the free
//! blocks are handed out disk by disk, so that blocks placed one after another lie one after
//! another on one disk, and a tetris that is all free becomes full stripes.
//!
//! Invariants: a number is handed out once ([`Space::give`]); the free map decides, scores only
//! guide.

use crate::pool::BlockPool;
use allocator::{AreaCache, AreaNumber, ScoreTable};
use cowfs::free_map::{VBNS_PER_BLOCK, is_set};
use cowfs::reader::{Progress, Reader, Stop};
use cowfs::space::Space;
use ondisk::identity::REGION_DATA_BLOCKS;
use ondisk::pointer::PhysicalPointer;
use raid::{BlockStore, Geometry, GroupGeometry, Location, TetrisId};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use units::{BlockRef, Pvbn};

/// Tetrises in an area at most: 64 of 63 stripes are the paper's 4 Ki stripes, cut to whole AZCS
/// regions (FreeSpace sections 3.2.1 and 3.2.4).
const AREA_REGIONS_MAX: u64 = 64;
/// Areas that a small group is divided into at least, if it has as many tetrises.
const AREAS_MIN: u64 = 16;

/// Where the write allocator stands.
pub struct Refill {
    groups: Vec<GroupAreas>,
    scores: Box<dyn AreaCache>,
    /// The area being filled: its group, the next region and the end.
    current: Option<(u32, u64, u64)>,
}

struct GroupAreas {
    first_area: u64,
    regions: u64,
    area_regions: u64,
    data_disks: u64,
}

impl GroupAreas {
    fn new(group: &GroupGeometry, first_area: u64) -> Self {
        let area_regions = (group.regions / AREAS_MIN).clamp(1, AREA_REGIONS_MAX);
        let (regions, data_disks) = (group.regions, group.data_disks() as u64);
        Self { first_area, regions, area_regions, data_disks }
    }

    /// Blocks of one disk in an area.
    const fn blocks_per_disk(&self) -> u64 {
        self.area_regions * REGION_DATA_BLOCKS as u64
    }

    const fn end_area(&self) -> u64 {
        self.first_area + self.regions.div_ceil(self.area_regions)
    }
}

impl Refill {
    /// A start without knowledge of scores.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let scores = Box::new(ScoreTable::new(0, 1));
        let mut refill = Self { groups: Vec::new(), scores, current: None };
        refill.grow(geometry);
        refill
    }

    /// Disks or groups have joined: new areas, and known ones with more free blocks.
    pub fn grow(&mut self, geometry: &Geometry) {
        let known = self.groups.len();
        for group in &geometry.groups()[known..] {
            let first_area = self.groups.last().map_or(0, GroupAreas::end_area);
            self.groups.push(GroupAreas::new(group, first_area));
        }
        let mut more = Vec::new();
        for (areas, group) in self.groups.iter_mut().zip(geometry.groups()) {
            let joined = group.data_disks() as u64 - areas.data_disks;
            areas.data_disks += joined;
            // None of a start: a large aggregate has many areas.
            if joined > 0 {
                let free = joined * areas.blocks_per_disk();
                more.extend((areas.first_area..areas.end_area()).map(|area| (area, free)));
            }
        }
        let blocks = self.groups.iter().map(|areas| areas.blocks_per_disk() * areas.data_disks);
        let areas = self.groups.last().map_or(0, GroupAreas::end_area);
        self.scores.grow(areas, blocks.max().unwrap_or(1));
        for (area, free) in more {
            self.scores.add_free(AreaNumber(area), free);
        }
    }

    fn area_of(&self, tetris: TetrisId) -> AreaNumber {
        let group = &self.groups[tetris.group as usize];
        AreaNumber(group.first_area + tetris.region / group.area_regions)
    }

    /// Blocks became free; in order.
    pub fn add_free(&mut self, geometry: &Geometry, freed: &[u64]) {
        // In order of their numbers, so those of one area come in runs.
        let (mut run, mut count) = (None, 0);
        for &pvbn in freed {
            let area = geometry.tetris_of(Pvbn(pvbn)).map(|tetris| self.area_of(tetris));
            if area != run {
                self.add_run(run, count);
                (run, count) = (area, 0);
            }
            count += 1;
        }
        self.add_run(run, count);
    }

    fn add_run(&mut self, area: Option<AreaNumber>, free_blocks: u64) {
        if let Some(area) = area {
            self.scores.add_free(area, free_blocks);
        }
    }

    /// Stocks the pool with the free blocks of the next tetris that has any.
    ///
    /// # Errors
    /// What to wait for.
    ///
    /// # Panics
    /// When no block is free: promises (decision D6) make that impossible.
    pub fn stock_tetris(
        &mut self,
        space: &mut Space<PhysicalPointer>,
        store: &dyn BlockStore,
        pool: &BlockPool,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        loop {
            let Some((group, region, end)) = self.current.or_else(|| self.next_area()) else {
                // The counts said that there are some when the operations were accepted.
                return Err(Stop::Contradiction("a free map holds less than the counts say"));
            };
            self.current = Some((group, region, end));
            let tetris = TetrisId { group, region };
            let free = free_blocks(tetris, space, &store.geometry(), reader)?;
            self.current = (region + 1 < end).then_some((group, region + 1, end));
            if !free.is_empty() {
                store.open_tetris(tetris, free.len() as u32);
                free.iter().for_each(|pvbn| space.give(pvbn.get()));
                pool.stock(free.into_iter());
                return Ok(());
            }
        }
    }

    fn next_area(&mut self) -> Option<(u32, u64, u64)> {
        let area = self.scores.pick()?;
        let at = self.groups.partition_point(|group| group.first_area <= area.0) - 1;
        let group = &self.groups[at];
        let first = (area.0 - group.first_area) * group.area_regions;
        Some((at as u32, first, (first + group.area_regions).min(group.regions)))
    }
}

/// The free blocks of a tetris, disk by disk.
fn free_blocks(
    tetris: TetrisId,
    space: &mut Space<PhysicalPointer>,
    geometry: &Geometry,
    reader: &Reader<'_>,
) -> Progress<Vec<Pvbn>> {
    let mut maps: FxHashMap<u64, BlockRef> = FxHashMap::default();
    let mut free = Vec::new();
    let stripes = REGION_DATA_BLOCKS as u64;
    for disk in 0..geometry.group(tetris.group).data_disks() {
        for row in 0..stripes {
            let stripe = tetris.region * stripes + row;
            let location = Location { group: tetris.group, disk, stripe };
            let Some(pvbn) = geometry.pvbn(location) else { continue };
            let index = pvbn.get() / VBNS_PER_BLOCK;
            let map = match maps.entry(index) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(slot) => slot.insert(space.in_use(index, reader)?),
            };
            if !is_set(map, pvbn.get()) && space.is_givable(pvbn.get()) {
                free.push(pvbn);
            }
        }
    }
    Ok(free)
}

/// Announces to the store, tetris by tetris, the numbers in stock: after a `sync` it has forgotten
/// them.
pub fn reopen_stock(store: &dyn BlockStore, pool: &BlockPool) {
    let geometry = store.geometry();
    let mut counts: Vec<(TetrisId, u32)> = Vec::new();
    for pvbn in pool.in_stock() {
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
