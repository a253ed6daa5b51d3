//! Is TopAA true? What the hints of a file system say of the free blocks of its areas is what its
//! maps say (FreeSpace section 3.4).
//!
//! Invariants: which stripes are in an area is taken from the block itself, and for object stores
//! from the format; hints that are not there are no finding.

use crate::finding::{Finding, ImageName};
use crate::space::Walked;
use crate::vbn_set::{VBNS_PER_BLOCK, VbnSet};
use crate::walker::Walker;
use ondisk::damage::Damage;
use ondisk::top_areas::{
    HISTOGRAM_BINS, HistogramPage, ListPage, TopAreasBlock, read_pages, top_areas_block,
};
use raid::GroupGeometry;
use std::ops::Range;
use units::Pvbn;

/// Compares what an image's TopAA says with what is in use.
pub(crate) fn check(walker: &mut Walker<'_, '_, '_>, walked: &Walked) {
    let image = walker.fs.active();
    let blocks = &walked.active.top_areas;
    let size_blocks = walker.fs.root.size_blocks.get();
    if walker.fs.container.is_some() {
        let numbers = |area: u32| {
            let from = u64::from(area) * VBNS_PER_BLOCK;
            let of_map_block = from..size_blocks.min(from + VBNS_PER_BLOCK);
            Vec::from([of_map_block])
        };
        let areas = size_blocks.div_ceil(VBNS_PER_BLOCK);
        let used = &walked.used;
        let pages = Pages { image, areas, numbers: &numbers, used, group: None };
        return pages.check(walker, blocks.get(&0), blocks.get(&1));
    }
    let geometry = walker.medium.array.geometry.clone();
    if geometry.end().get() != size_blocks {
        // Disks have joined since the image, and its areas had fewer.
        return;
    }
    // What is left of the pages of a removed group says nothing.
    for (group, place) in (0..).zip(geometry.groups()).filter(|(_, place)| !place.is_removed()) {
        let at = top_areas_block(group).get();
        let Some(first) = blocks.get(&at) else { continue };
        if place.is_object() {
            let (used, found) = (&walked.used, object_areas(place));
            let (areas, numbers) = (found.len() as u64, |area: u32| found[area as usize].clone());
            let group = Some(group);
            let pages = Pages { image, areas, numbers: &numbers, used, group };
            pages.check(walker, Some(first), blocks.get(&(at + 1)));
        } else {
            match TopAreasBlock::from_block(first) {
                Ok(block) => check_group(walker, &block, (group, place), &walked.used),
                Err(damage) => walker.tell(Finding::TopAreasDamaged { image, block: at, damage }),
            }
        }
    }
}

/// The numbers of the stripes of a group, disk by disk.
fn numbers(place: &GroupGeometry, stripes: &Range<u64>) -> Vec<Range<u64>> {
    let of_disk = |base: &Pvbn| base.get() + stripes.start..base.get() + stripes.end;
    place.bases.iter().map(of_disk).collect()
}

fn free_of(used: &VbnSet, numbers: &[Range<u64>]) -> u64 {
    let free = |range: &Range<u64>| range.end - range.start - used.count_in(range.clone());
    numbers.iter().map(free).sum()
}

fn check_group(
    walker: &mut Walker<'_, '_, '_>,
    block: &TopAreasBlock,
    (group, place): (u32, &GroupGeometry),
    used: &VbnSet,
) {
    let first = u64::from(block.first_stripes.get());
    let each = u64::from(block.area_stripes.get());
    let mut last = u32::MAX;
    for (area, recorded) in block.used() {
        let end = u64::from(area) * each + first;
        let start = if area == 0 { 0 } else { end - each };
        let stripes = start..end.min(place.blocks_per_disk());
        let counted = if stripes.is_empty() { 0 } else { free_of(used, &numbers(place, &stripes)) };
        if u64::from(recorded) != counted || recorded > last {
            let image = walker.fs.active();
            let group = Some(group);
            walker.tell(Finding::AreaScore { image, group, area, recorded, counted });
        }
        last = recorded;
    }
}

/// Areas of a group in an object store: blocks of the free map, counted from its first disk.
fn object_areas(place: &GroupGeometry) -> Vec<Vec<Range<u64>>> {
    let mut areas = Vec::new();
    let base = place.bases.first().map_or(0, |base| base.get());
    let mut from = 0;
    while from < place.blocks_per_disk() {
        let end = ((base + from) / VBNS_PER_BLOCK + 1) * VBNS_PER_BLOCK - base;
        let stripes = from..end.min(place.blocks_per_disk());
        from = stripes.end;
        areas.push(numbers(place, &stripes));
    }
    areas
}

/// A histogram and its list, and what they are about.
struct Pages<'a> {
    image: ImageName,
    areas: u64,
    /// Those of an area.
    numbers: &'a dyn Fn(u32) -> Vec<Range<u64>>,
    used: &'a VbnSet,
    group: Option<u32>,
}

impl Pages<'_> {
    fn check(
        &self,
        walker: &mut Walker<'_, '_, '_>,
        histogram: Option<&units::BlockRef>,
        list: Option<&units::BlockRef>,
    ) {
        let (Some(histogram), Some(list)) = (histogram, list) else { return };
        let (image, block) =
            (self.image, self.group.map_or(0, |group| top_areas_block(group).get()));
        let pages = read_pages(histogram, list).and_then(|pages| match pages.0.counted.get() {
            counted if u64::from(counted) <= self.areas => Ok(pages),
            _ => Err(Damage::Field { structure: "histogram", field: "counted" }),
        });
        match pages {
            Ok((histogram, list)) => self.compare(walker, &histogram, &list),
            Err(damage) => walker.tell(Finding::TopAreasDamaged { image, block, damage }),
        }
    }

    fn compare(&self, walker: &mut Walker<'_, '_, '_>, histogram: &HistogramPage, list: &ListPage) {
        let (image, group) = (self.image, self.group);
        let width = u64::from(histogram.score_max.get()) / HISTOGRAM_BINS as u64;
        let bin_of = |area: u32| match free_of(self.used, &(self.numbers)(area)) {
            0 => HISTOGRAM_BINS as u8,
            score => (HISTOGRAM_BINS - 1).saturating_sub(((score - 1) / width) as usize) as u8,
        };
        let bins: Vec<u8> = (0..histogram.counted.get()).map(bin_of).collect();
        for (at, bin) in histogram.bins.iter().enumerate() {
            let (recorded, counted) = (bin.count.get(), bins.iter().filter(|of| **of == at as u8));
            let counted = counted.count() as u64;
            if u64::from(recorded) != counted {
                let bin = at as u32;
                walker.tell(Finding::AreaCount { image, group, bin, recorded, counted });
            }
            let listed = usize::from(bin.first.get())..;
            let listed = list.items[listed].iter().take(usize::from(bin.listed.get()));
            for item in listed.filter(|item| bins[item.get() as usize] != at as u8) {
                let area = item.get();
                let counted = free_of(self.used, &(self.numbers)(area));
                let recorded = ((HISTOGRAM_BINS - at) as u64 * width) as u32;
                walker.tell(Finding::AreaScore { image, group, area, recorded, counted });
            }
        }
    }
}
