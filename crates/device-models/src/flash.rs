//! A page-mapped flash translation layer with greedy garbage collection (FreeSpace section 3.2.2).
//!
//! Flash is programmed page by page and erased by the block, so a page that is written again goes
//! elsewhere, and the old one is waste until its erase block is emptied: what is still valid in it
//! is relocated, then it is erased. The victim is the full block with the fewest valid pages. Host
//! writes and relocated pages go to the same open block, one behind the other.
//!
//! Only the map is here. What happens to the flash is told step by step ([`FlashStep`]), so that
//! time can be charged for it, and a test can do it.
//!
//! Invariants:
//! - Each logical page lies in one physical page or nowhere, and no two in the same.
//! - A page is programmed once between two erasures of its block, in ascending order.
//! - An erase block is free whenever no write is under way: there are two more blocks than the
//!   logical pages fill, so when the last free one is opened some full block has a page of waste,
//!   and what is valid of it leaves room in the block that was opened.
//!
//! Fails: sizes that do not fit the map panic when it is made.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Blocks beyond those that the logical pages fill, at the least: one open, one free.
const SPARE_BLOCKS_MIN: u64 = 2;

/// What happens to the flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlashStep {
    /// A physical page is programmed with what the host writes.
    Program {
        /// The physical page.
        page: u64,
    },
    /// A valid page is read and programmed elsewhere.
    Relocate {
        /// Where it was.
        from: u64,
        /// Where it goes.
        to: u64,
    },
    /// A block is erased; nothing valid is in it.
    Erase {
        /// The erase block.
        block: u64,
    },
}

/// What there is of flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashSizes {
    /// Pages that the host sees.
    pub logical_pages: u64,
    /// Pages that are erased at a time.
    pub pages_per_block: u32,
    /// Erase blocks.
    pub blocks: u32,
}

impl FlashSizes {
    /// `logical_pages` for the host, and that and `over_provisioning_percent` of it in flash, in
    /// whole blocks, two to spare at the least.
    ///
    /// # Panics
    /// Without logical pages or pages in a block, and beyond 2^32 - 2 pages.
    #[must_use]
    pub fn new(logical_pages: u64, pages_per_block: u32, over_provisioning_percent: u32) -> Self {
        assert!(logical_pages > 0 && pages_per_block > 0, "a device has pages");
        let per_block = u64::from(pages_per_block);
        let wanted = u128::from(logical_pages) * u128::from(100 + over_provisioning_percent);
        let blocks = wanted.div_ceil(100 * u128::from(pages_per_block));
        let blocks = blocks.max(u128::from(logical_pages.div_ceil(per_block) + SPARE_BLOCKS_MIN));
        let pages = blocks * u128::from(pages_per_block);
        assert!(pages < u128::from(u32::MAX), "{pages} pages are too many for the map");
        Self { logical_pages, pages_per_block, blocks: blocks as u32 }
    }

    /// Erase blocks that the logical pages fill.
    #[must_use]
    pub const fn logical_blocks(&self) -> u32 {
        self.logical_pages.div_ceil(self.pages_per_block as u64) as u32
    }

    /// Pages that there are.
    #[must_use]
    pub const fn physical_pages(&self) -> u64 {
        self.blocks as u64 * self.pages_per_block as u64
    }
}

/// The map. Page numbers are stored plus one: zero is nowhere, and tables of zeros take no memory
/// until they are used.
pub struct FlashTranslation {
    sizes: FlashSizes,
    physical_of: Vec<u32>,
    logical_of: Vec<u32>,
    valid_pages: Vec<u32>,
    /// Blocks without a page left to program, by their valid pages.
    full: BTreeSet<(u32, u32)>,
    free: VecDeque<u32>,
    open: u32,
    open_pages: u32,
}

impl FlashTranslation {
    /// A device that was never written.
    ///
    /// # Panics
    /// As [`FlashSizes::new`].
    #[must_use]
    pub fn new(sizes: FlashSizes) -> Self {
        Self {
            sizes,
            physical_of: vec![0; sizes.logical_pages as usize],
            logical_of: vec![0; sizes.physical_pages() as usize],
            valid_pages: vec![0; sizes.blocks as usize],
            full: BTreeSet::new(),
            free: (1..sizes.blocks).collect(),
            open: 0,
            open_pages: 0,
        }
    }

    /// Blocks that are erased and not open.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.free.len() as u64
    }

    /// Where a logical page lies; `None` if it was never written, or invalidated since.
    ///
    /// # Panics
    /// If there is no such page.
    #[must_use]
    pub fn locate(&self, page: u64) -> Option<u64> {
        self.physical_of[page as usize].checked_sub(1).map(u64::from)
    }

    /// The host writes a page.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn write(&mut self, page: u64, mut step: impl FnMut(FlashStep)) {
        assert!(page < self.sizes.logical_pages, "page {page} of {}", self.sizes.logical_pages);
        self.make_room(&mut step);
        // Looked up after room was made: that may have moved it.
        self.forget(page);
        let to = self.place(page as u32);
        step(FlashStep::Program { page: u64::from(to) });
    }

    /// The host needs these pages no more.
    ///
    /// # Panics
    /// If one of them does not exist.
    pub fn invalidate(&mut self, pages: Range<u64>) {
        pages.for_each(|page| self.forget(page));
    }

    /// Sees to it that the open block has a page left.
    fn make_room(&mut self, step: &mut impl FnMut(FlashStep)) {
        if self.open_pages < self.sizes.pages_per_block {
            return;
        }
        self.full.insert((self.valid_pages[self.open as usize], self.open));
        let Some(next) = self.free.pop_front() else { unreachable!("a block is always free") };
        (self.open, self.open_pages) = (next, 0);
        if self.free.is_empty() {
            self.collect(step);
        }
    }

    /// Moves what is valid of the emptiest full block to the open one and erases it.
    fn collect(&mut self, step: &mut impl FnMut(FlashStep)) {
        let Some((valid, victim)) = self.full.pop_first() else {
            unreachable!("all blocks but one are full")
        };
        assert!(valid < self.sizes.pages_per_block, "some page of all full blocks is waste");
        let first = victim * self.sizes.pages_per_block;
        for from in first..first + self.sizes.pages_per_block {
            let Some(page) = self.logical_of[from as usize].checked_sub(1) else { continue };
            self.logical_of[from as usize] = 0;
            let to = self.place(page);
            step(FlashStep::Relocate { from: u64::from(from), to: u64::from(to) });
        }
        self.valid_pages[victim as usize] = 0;
        self.free.push_back(victim);
        step(FlashStep::Erase { block: u64::from(victim) });
    }

    /// Maps a logical page to the next page of the open block.
    fn place(&mut self, page: u32) -> u32 {
        assert!(self.open_pages < self.sizes.pages_per_block, "the open block has a page left");
        let to = self.open * self.sizes.pages_per_block + self.open_pages;
        self.open_pages += 1;
        self.valid_pages[self.open as usize] += 1;
        self.physical_of[page as usize] = to + 1;
        self.logical_of[to as usize] = page + 1;
        to
    }

    /// Unmaps a logical page; where it lay is waste from now on.
    fn forget(&mut self, page: u64) {
        let Some(from) = self.physical_of[page as usize].checked_sub(1) else { return };
        self.physical_of[page as usize] = 0;
        self.logical_of[from as usize] = 0;
        let block = from / self.sizes.pages_per_block;
        let valid = self.valid_pages[block as usize];
        self.valid_pages[block as usize] = valid - 1;
        if self.full.remove(&(valid, block)) {
            self.full.insert((valid - 1, block));
        }
    }

    /// Looks at everything.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let blocks = self.valid_pages.len();
        let mut valid = vec![0; blocks];
        for (page, physical) in self.physical_of.iter().enumerate() {
            if let Some(physical) = physical.checked_sub(1) {
                assert_eq!(self.logical_of[physical as usize] as usize, page + 1, "two ways agree");
                valid[(physical / self.sizes.pages_per_block) as usize] += 1;
            }
        }
        let mapped = self.logical_of.iter().filter(|page| **page != 0).count() as u32;
        assert_eq!(mapped, valid.iter().sum::<u32>(), "no physical page is mapped from nowhere");
        assert_eq!(valid, self.valid_pages);
        assert!(!self.free.is_empty(), "a block is free");
        assert_eq!(self.full.len() + self.free.len() + 1, blocks);
        for (count, block) in &self.full {
            assert_eq!(*count, valid[*block as usize]);
        }
        assert!(self.free.iter().all(|block| valid[*block as usize] == 0));
    }
}
