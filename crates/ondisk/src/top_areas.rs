//! TopAA: the best allocation areas of a block number space, so that writing can begin at a start
//! without a look at its free map (FreeSpace section 3.4).
//!
//! A file system image has one metafile of them ([`crate::root::metafile::TOP_AREAS`]). In a
//! volume its two blocks are a [`HistogramPage`] and a [`ListPage`], which are the cache itself. In
//! an aggregate each RAID group has one block, a [`TopAreasBlock`], and each group in an object
//! store the two pages; the groups' blocks follow one another in two ranges
//! ([`top_areas_block`]).
//!
//! Invariants: what is here is a hint. What contradicts itself is not used, and made anew from the
//! free map.
//!
//! Fails: `from_block` tells [`Damage`]; no bytes whatever panic.

use crate::damage::Damage;
use units::{BLOCK_SIZE, Block, Fbn};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// First bytes of a [`TopAreasBlock`].
pub const TOP_AREAS_MAGIC: u32 = u32::from_le_bytes(*b"topA");
/// First bytes of a [`HistogramPage`].
pub const HISTOGRAM_MAGIC: u32 = u32::from_le_bytes(*b"hist");
/// Areas in a [`TopAreasBlock`].
pub const TOP_AREAS_MAX: usize = 510;
/// Ranges of scores that a [`HistogramPage`] counts.
pub const HISTOGRAM_BINS: usize = 32;
/// Items in a [`ListPage`].
pub const LISTED_MAX: usize = 1000;

/// Where the blocks of a group begin in the metafile of an aggregate: two for each group.
#[must_use]
pub const fn top_areas_block(group: u32) -> Fbn {
    Fbn(group as u64 * 2)
}

/// An area and its score.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TopArea {
    /// The area's number in its group.
    pub area: U32,
    /// Its free blocks; 0 in an entry that is not used.
    pub score: U32,
}

/// The best areas of a RAID group, best first.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TopAreasBlock {
    /// [`TOP_AREAS_MAGIC`].
    pub magic: U32,
    /// Stripes of an area when this was written: with another size the numbers mean nothing.
    pub area_stripes: U32,
    /// Stripes of the first area, which may be smaller.
    pub first_stripes: U32,
    /// Reserved; zero.
    pub reserved: U32,
    /// The areas; entries that are not used follow those that are.
    pub areas: [TopArea; TOP_AREAS_MAX],
}

const _: () = assert!(size_of::<TopAreasBlock>() == BLOCK_SIZE);

impl TopAreasBlock {
    /// One without areas.
    #[must_use]
    pub fn new(area_stripes: u32, first_stripes: u32) -> Self {
        let mut block = Self::new_zeroed();
        block.magic = U32::new(TOP_AREAS_MAGIC);
        block.area_stripes = U32::new(area_stripes);
        block.first_stripes = U32::new(first_stripes);
        block
    }

    /// The entries that are used.
    pub fn used(&self) -> impl Iterator<Item = (u32, u32)> {
        let used = self.areas.iter().take_while(|entry| entry.score.get() > 0);
        used.map(|entry| (entry.area.get(), entry.score.get()))
    }

    /// # Errors
    /// If the bytes are none.
    pub fn from_block(block: &Block) -> Result<Self, Damage> {
        let wrong = |field| Damage::Field { structure: "top areas", field };
        let found = Self::read_from_bytes(block.bytes()).map_err(|_| wrong("size"))?;
        if found.magic.get() != TOP_AREAS_MAGIC {
            return Err(wrong("magic"));
        }
        if found.area_stripes.get() == 0 {
            return Err(wrong("area_stripes"));
        }
        if !(1..=found.area_stripes.get()).contains(&found.first_stripes.get()) {
            return Err(wrong("first_stripes"));
        }
        Damage::unless_zero("top areas", &[found.reserved.as_bytes()])?;
        let used = found.used().count();
        if found.areas[used..].iter().any(|entry| entry.area.get() > 0 || entry.score.get() > 0) {
            return Err(wrong("areas"));
        }
        Ok(found)
    }
}

/// Items whose scores lie in one range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct HistogramBin {
    /// Items.
    pub count: U32,
    /// The place in the list of the first of them that is listed.
    pub first: U16,
    /// Of them, those that are listed.
    pub listed: U16,
}

/// How many items have which score, in ranges: the first page of a histogram-based partial sort
/// (FreeSpace section 3.3.2).
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct HistogramPage {
    /// [`HISTOGRAM_MAGIC`].
    pub magic: U32,
    /// The best score there is; each bin is a thirty-second of it.
    pub score_max: U32,
    /// Items whose score was looked at: those from 0 to this, exclusive.
    pub counted: U32,
    /// Of them, items with the score 0, which are in no bin.
    pub empty: U32,
    /// The bins, from the best scores to the worst.
    pub bins: [HistogramBin; HISTOGRAM_BINS],
    /// Reserved; zero.
    pub reserved: [u8; BLOCK_SIZE - 16 - HISTOGRAM_BINS * size_of::<HistogramBin>()],
}

const _: () = assert!(size_of::<HistogramPage>() == BLOCK_SIZE);

/// The items with the best scores, bin after bin: the second page.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ListPage {
    /// The items; those that are not used are zero.
    pub items: [U32; LISTED_MAX],
    /// Reserved; zero.
    pub reserved: [u8; BLOCK_SIZE - LISTED_MAX * 4],
}

const _: () = assert!(size_of::<ListPage>() == BLOCK_SIZE);

/// Reads the two pages, which prove each other.
///
/// # Errors
/// What contradicts itself.
pub fn read_pages(
    histogram: &Block,
    list: &Block,
) -> Result<(Box<HistogramPage>, Box<ListPage>), Damage> {
    let wrong = |field| Damage::Field { structure: "histogram", field };
    let page = HistogramPage::read_from_bytes(histogram.bytes()).map_err(|_| wrong("size"))?;
    let list = ListPage::read_from_bytes(list.bytes()).map_err(|_| wrong("size"))?;
    if page.magic.get() != HISTOGRAM_MAGIC {
        return Err(wrong("magic"));
    }
    Damage::unless_zero("histogram", &[&page.reserved, &list.reserved])?;
    let score_max = page.score_max.get();
    if score_max == 0 || !score_max.is_multiple_of(HISTOGRAM_BINS as u32) {
        return Err(wrong("score_max"));
    }
    let (mut items, mut listed) = (u64::from(page.empty.get()), 0);
    for bin in &page.bins {
        items += u64::from(bin.count.get());
        if usize::from(bin.first.get()) != listed || u32::from(bin.listed.get()) > bin.count.get() {
            return Err(wrong("bins"));
        }
        listed += usize::from(bin.listed.get());
    }
    if items != u64::from(page.counted.get()) {
        return Err(wrong("counted"));
    }
    let Some(used) = list.items.get(..listed) else { return Err(wrong("bins")) };
    if used.iter().any(|item| item.get() >= page.counted.get()) {
        return Err(wrong("items"));
    }
    Ok((Box::new(page), Box::new(list)))
}
