//! Choosing where the next blocks go (FreeSpace sections 2.3, 3.1): the emptiest allocation area,
//! tetris by tetris.
//!
//! An allocation area of a RAID group is a set of consecutive tetrises. Within a tetris the free
//! blocks are handed out disk by disk, so that blocks placed one after another lie one after
//! another on one disk, and a tetris that is all free becomes full stripes.
//!
//! Groups in an object store are a tier of their own, for what is moved there
//! ([`crate::relocate`]). Everything else goes there only when no other group has a free block.
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

/// Groups of one sort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tier {
    /// Disks.
    Near = 0,
    /// Object stores.
    Object = 1,
}

/// Where the write allocator stands.
pub struct Refill {
    groups: Vec<GroupAreas>,
    tiers: [TierAreas; 2],
}

struct TierAreas {
    scores: Box<dyn AreaCache>,
    areas: u64,
    /// The area being filled: its group, the next region and the end.
    current: Option<(u32, u64, u64)>,
}

impl TierAreas {
    fn new() -> Self {
        Self { scores: Box::new(ScoreTable::new(0, 1)), areas: 0, current: None }
    }
}

struct GroupAreas {
    tier: Tier,
    /// The number of its first area in its tier.
    first_area: u64,
    regions: u64,
    area_regions: u64,
    data_disks: u64,
}

impl GroupAreas {
    fn new(group: &GroupGeometry, first_area: u64) -> Self {
        let area_regions = (group.regions / AREAS_MIN).clamp(1, AREA_REGIONS_MAX);
        let (regions, data_disks) = (group.regions, group.data_disks() as u64);
        Self { tier: tier_of(group), first_area, regions, area_regions, data_disks }
    }

    /// Blocks of one disk in an area.
    const fn blocks_per_disk(&self) -> u64 {
        self.area_regions * REGION_DATA_BLOCKS as u64
    }

    const fn end_area(&self) -> u64 {
        self.first_area + self.regions.div_ceil(self.area_regions)
    }
}

/// The tier that a group belongs to.
pub(crate) const fn tier_of(group: &GroupGeometry) -> Tier {
    if group.is_object { Tier::Object } else { Tier::Near }
}

impl Refill {
    /// A start without knowledge of scores.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let tiers = [TierAreas::new(), TierAreas::new()];
        let mut refill = Self { groups: Vec::new(), tiers };
        refill.grow(geometry);
        refill
    }

    /// Disks or groups have joined: new areas, and known ones with more free blocks.
    pub fn grow(&mut self, geometry: &Geometry) {
        let known = self.groups.len();
        for group in &geometry.groups()[known..] {
            let tier = &mut self.tiers[tier_of(group) as usize];
            let areas = GroupAreas::new(group, tier.areas);
            tier.areas = areas.end_area();
            self.groups.push(areas);
        }
        let mut more = Vec::new();
        for (areas, group) in self.groups.iter_mut().zip(geometry.groups()) {
            let joined = group.data_disks() as u64 - areas.data_disks;
            areas.data_disks += joined;
            // None of a start: a large aggregate has many areas.
            if joined > 0 {
                let free = joined * areas.blocks_per_disk();
                let tier = areas.tier;
                more.extend((areas.first_area..areas.end_area()).map(|area| (tier, area, free)));
            }
        }
        for which in [Tier::Near, Tier::Object] {
            let groups = self.groups.iter().filter(|group| group.tier == which);
            let blocks = groups.map(|areas| areas.blocks_per_disk() * areas.data_disks);
            let tier = &mut self.tiers[which as usize];
            tier.scores.grow(tier.areas, blocks.max().unwrap_or(1));
        }
        for (tier, area, free) in more {
            self.tiers[tier as usize].scores.add_free(AreaNumber(area), free);
        }
    }

    fn area_of(&self, tetris: TetrisId) -> (Tier, AreaNumber) {
        let group = &self.groups[tetris.group as usize];
        (group.tier, AreaNumber(group.first_area + tetris.region / group.area_regions))
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

    fn add_run(&mut self, area: Option<(Tier, AreaNumber)>, free_blocks: u64) {
        if let Some((tier, area)) = area {
            self.tiers[tier as usize].scores.add_free(area, free_blocks);
        }
    }

    /// Stocks the pool with the free blocks of the next tetris that has any.
    ///
    /// # Errors
    /// What to wait for.
    ///
    /// [`Stop::Contradiction`] when no block is free: promises (decision D6) make that impossible.
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
        loop {
            let current = self.tiers[tier as usize].current;
            let Some((group, region, end)) = current.or_else(|| self.next_area(tier)) else {
                return Ok(Vec::new());
            };
            let current = &mut self.tiers[tier as usize].current;
            *current = Some((group, region, end));
            let tetris = TetrisId { group, region };
            let free = free_blocks(tetris, space, &store.geometry(), reader)?;
            *current = (region + 1 < end).then_some((group, region + 1, end));
            if !free.is_empty() {
                store.open_tetris(tetris, free.len() as u32);
                free.iter().for_each(|pvbn| space.give(pvbn.get()));
                return Ok(free);
            }
        }
    }

    fn next_area(&mut self, tier: Tier) -> Option<(u32, u64, u64)> {
        let area = self.tiers[tier as usize].scores.pick()?;
        let is_in = |group: &GroupAreas| {
            group.tier == tier && (group.first_area..group.end_area()).contains(&area.0)
        };
        let at = self.groups.iter().position(is_in)?;
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
