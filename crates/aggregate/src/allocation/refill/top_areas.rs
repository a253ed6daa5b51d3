//! What a group's areas say outside of the allocator: the blocks of TopAA (FreeSpace section 3.4),
//! and the map that administrators see.
//!
//! Invariants: what TopAA says is a hint; without it, or where it is wrong, areas are counted.

use super::group::{Cache, GroupAreas};
use crate::allocation::area_map::{AreaCell, GroupMap};
use allocator::Hbps;
use ondisk::top_areas::{TOP_AREAS_MAX, TopArea, TopAreasBlock, top_areas_block};
use units::{Block, BlockRef, Fbn};
use zerocopy::IntoBytes;

impl GroupAreas {
    /// TopAA is to be written, whatever has changed.
    pub fn touch(&mut self) {
        self.is_changed = true;
        if let Cache::Best(sorted) = &mut self.cache {
            sorted.touch();
        }
    }

    /// The blocks of TopAA that differ from those on media, from the group's first on.
    pub fn changed_top_areas(&self, group: u32) -> Vec<(Fbn, BlockRef)> {
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
                vec![(first, histogram), (first.offset(1), list)]
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
        let most = self.areas.area_stripes() * self.data_disks();
        match &mut self.cache {
            Cache::All(heap) => {
                let Ok(block) = TopAreasBlock::from_block(first) else { return };
                let sizes = (block.area_stripes.get().into(), block.first_stripes.get().into());
                let is_of_these = sizes == (self.areas.area_stripes(), self.areas.len_of(0));
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
            area_blocks: self.areas.area_stripes() * self.data_disks(),
            filling: self.filling.as_ref().map(|filling| u64::from(filling.area)),
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
}
