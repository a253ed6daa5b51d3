//! Which stripes of a RAID group make up its allocation areas, and how many are right for which
//! medium (FreeSpace sections 3.1, 3.2).
//!
//! An area is a set of consecutive stripes. A checksum block is shared by the 63 data blocks before
//! it, so areas end where AZCS regions do, and each checksum block is written with its blocks
//! (FreeSpace section 3.2.4). Where a medium has a unit of its own, an erase block or a zone, an
//! area has several, and begins where one does on the disk, as far as regions let it.
//!
//! Invariants: the areas follow one another without a gap; all have the same number of stripes but
//! for the first, which may be smaller, and the last.

use ondisk::identity::{REGION_BLOCKS, REGION_DATA_BLOCKS};
use ondisk::medium::Medium;
use std::ops::Range;
use units::{BLOCK_SIZE_U64, BlockNumber, Dbn, Pvbn};

/// Regions of an area of hard disks: 64 of 63 stripes are the 4 Ki stripes of FreeSpace section
/// 3.2.1, cut to whole AZCS regions.
const HDD_AREA_REGIONS: u64 = 64;
/// Erase blocks in an area of SSDs: at each edge the drive has to move a part of one, so there are
/// several (FreeSpace section 3.2.2).
const SSD_AREA_ERASE_BLOCKS: u64 = 4;
/// Zones in an area of SMR drives: at each edge the drive has to intervene (FreeSpace section
/// 3.2.3).
const SMR_AREA_ZONES: u64 = 4;
/// Stripes of an area of object ranges: for each disk a block of the free map (FreeSpace section
/// 3.2.1).
const OBJECT_AREA_STRIPES: u64 = 32 << 10;
/// Areas that a small group is divided into at least, if it has as many regions.
const AREAS_MIN: u64 = 16;

const REGION_STRIPES: u64 = REGION_DATA_BLOCKS as u64;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeAreas {
    stripes: u64,
    /// The stripes of the first area.
    first_stripes: u64,
    area_stripes: u64,
}

impl StripeAreas {
    /// Areas of `area_stripes` of a group of `stripes`; the first one ends after `first_stripes`,
    /// or is like the others if that is 0.
    ///
    /// # Panics
    /// If areas have no stripes, or the first more than the others.
    #[must_use]
    pub fn new(stripes: u64, area_stripes: u64, first_stripes: u64) -> Self {
        assert!(area_stripes > 0 && first_stripes <= area_stripes, "areas have stripes");
        let first_stripes = if first_stripes == 0 { area_stripes } else { first_stripes };
        Self { stripes, first_stripes: first_stripes.min(stripes), area_stripes }
    }

    /// The areas that are right for a group of `regions` whose disks are `medium`; the data of each
    /// disk begins at `first_block`, and the PVBNs of its first data disk at `first_pvbn`.
    #[must_use]
    pub fn of_medium(medium: Medium, regions: u64, first_block: u64, first_pvbn: Pvbn) -> Self {
        let stripes = regions * REGION_STRIPES;
        if medium == Medium::Object {
            let before = first_pvbn.get() % OBJECT_AREA_STRIPES;
            let first = if before == 0 { 0 } else { OBJECT_AREA_STRIPES - before };
            return Self::new(stripes, OBJECT_AREA_STRIPES, first);
        }
        let (unit_bytes, units) = match medium {
            Medium::Unrecorded | Medium::Hdd | Medium::Object => (0, 0),
            Medium::Ssd(erase_block_bytes) => (erase_block_bytes, SSD_AREA_ERASE_BLOCKS),
            Medium::Smr(zone_bytes) => (zone_bytes, SMR_AREA_ZONES),
        };
        let unit_blocks = u64::from(unit_bytes) / BLOCK_SIZE_U64;
        let wanted = (unit_blocks * units).div_ceil(REGION_BLOCKS as u64).max(HDD_AREA_REGIONS);
        let area_regions = wanted.min((regions / AREAS_MIN).max(1));
        // What is before the first unit that begins in the data.
        let before = if unit_blocks == 0 { 0 } else { first_block % unit_blocks };
        let first_blocks = if before == 0 { 0 } else { unit_blocks - before };
        let first_regions = first_blocks / REGION_BLOCKS as u64 % area_regions;
        Self::new(stripes, area_regions * REGION_STRIPES, first_regions * REGION_STRIPES)
    }

    /// Stripes of all areas.
    #[must_use]
    pub const fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Stripes of an area.
    #[must_use]
    pub const fn area_stripes(&self) -> u64 {
        self.area_stripes
    }

    /// Areas.
    #[must_use]
    pub const fn areas(&self) -> u32 {
        let after = self.stripes - self.first_stripes;
        (self.first_stripes > 0) as u32 + after.div_ceil(self.area_stripes) as u32
    }

    /// The area that a stripe is in.
    #[must_use]
    pub const fn area_of(&self, stripe: Dbn) -> u32 {
        match stripe.get().checked_sub(self.first_stripes) {
            None => 0,
            Some(after) => 1 + (after / self.area_stripes) as u32,
        }
    }

    /// The stripes of an area.
    #[must_use]
    pub fn stripes_of(&self, area: u32) -> Range<Dbn> {
        let end = self.first_stripes + u64::from(area) * self.area_stripes;
        let start = if area == 0 { 0 } else { end - self.area_stripes };
        Dbn(start)..Dbn(end.min(self.stripes))
    }

    /// How many stripes an area has.
    #[must_use]
    pub fn len_of(&self, area: u32) -> u64 {
        let stripes = self.stripes_of(area);
        stripes.end.since(stripes.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first block of data on our disks.
    const FIRST_BLOCK: u64 = 16;
    const REGIONS: u64 = 1 << 20;

    fn of(medium: Medium, regions: u64) -> StripeAreas {
        StripeAreas::of_medium(medium, regions, FIRST_BLOCK, Pvbn(0))
    }

    #[test]
    fn areas_are_as_large_as_their_media_want() {
        let stripes = |medium| of(medium, REGIONS).area_stripes();
        assert_eq!(stripes(Medium::Hdd), 4032, "4 Ki, cut to regions of 63");
        assert_eq!(stripes(Medium::Ssd(4 << 20)), 4032, "four erase blocks of 4 MiB");
        assert_eq!(stripes(Medium::Ssd(64 << 20)), 4 * 256 * 63);
        assert_eq!(stripes(Medium::Smr(256 << 20)), 4 * 1024 * 63);
        assert_eq!(stripes(Medium::Object), 32 << 10);
        assert_eq!(of(Medium::Hdd, 160).area_stripes(), 10 * 63, "a small group has 16");
        assert_eq!(of(Medium::Hdd, 3).area_stripes(), 63);
    }

    #[test]
    fn areas_begin_where_units_of_the_medium_do_as_far_as_regions_let_them() {
        for unit_bytes in [4_u32 << 20, 64 << 20, 256 << 20] {
            let areas = of(Medium::Ssd(unit_bytes), REGIONS);
            let unit_blocks = u64::from(unit_bytes) / BLOCK_SIZE_U64;
            for area in 1..areas.areas() {
                let region = areas.stripes_of(area).start.get() / REGION_STRIPES;
                let block = FIRST_BLOCK + region * REGION_BLOCKS as u64;
                let off = block % unit_blocks;
                assert!(off.min(unit_blocks - off) < REGION_BLOCKS as u64, "block {block}");
            }
        }
    }

    #[test]
    fn areas_of_objects_are_blocks_of_the_free_map() {
        for first_pvbn in [0, 1, 63 * 999, 32 << 10] {
            let base = Pvbn(first_pvbn);
            let areas = StripeAreas::of_medium(Medium::Object, REGIONS, FIRST_BLOCK, base);
            for area in 1..areas.areas() {
                let pvbn = base.offset(areas.stripes_of(area).start.get()).get();
                assert!(pvbn.is_multiple_of(32 << 10), "PVBN {pvbn}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_stripe_is_in_one_area(
            stripes in 1..5000_u64, area_stripes in 1..700_u64, first in 0..700_u64,
        ) {
            let areas = StripeAreas::new(stripes, area_stripes, first.min(area_stripes));
            let mut next = 0;
            for area in 0..areas.areas() {
                let range = areas.stripes_of(area);
                prop_assert_eq!(range.start, Dbn(next));
                prop_assert!(!range.is_empty() && areas.len_of(area) <= area_stripes);
                let mut stripes = range.start.until(range.end);
                prop_assert!(stripes.all(|stripe| areas.area_of(stripe) == area));
                next = range.end.get();
            }
            prop_assert_eq!(next, stripes);
        }
    }
}
