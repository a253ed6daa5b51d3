//! A flash translation layer that maps whole erase blocks, with log blocks for what is written
//! again (FreeSpace section 3.2.2): the block-associative translation layer of the BAST paper.
//!
//! A drive that maps by the erase block needs a small map, and has to keep each page of a logical
//! block at its own place in the block's *data block*. Flash is programmed once between erasures,
//! so what is written again goes to a *log block*, which belongs to one logical block and takes its
//! pages in the order in which they come. All flash that is spare makes log blocks, but for a block
//! to merge into. A log block is merged with its data block when it is full and more is written,
//! and, if it is the one that was written longest ago, when another is needed and all are given:
//!
//! | merge | when | costs |
//! | --- | --- | --- |
//! | switch | all pages were written, in order | nothing: the log block is the data block |
//! | partial | the first pages were, in order | the pages behind them are relocated |
//! | full | all else | all valid pages are relocated to a third block |
//!
//! So what is in use of an erase block is relocated for what is written to it, however little that
//! is, and a host does well to write much of one in a short time.
//!
//! Invariants:
//! - A logical page lies at its own place in the data block of its logical block, or in the log
//!   block of that, or nowhere.
//! - The pages of a block are programmed in ascending order, each once between two erasures.
//! - There are as many log blocks at the most as flash has spare, less one, and whenever no write
//!   is under way a block is free to merge into.
//!
//! Fails: a page that does not exist panics.

use crate::flash::{FlashSizes, FlashStep};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// A log block.
struct Log {
    block: u32,
    /// Pages that are programmed: the first ones.
    pages: u32,
    /// Each of them holds the page of the logical block that has its place.
    is_in_order: bool,
}

/// The map. Page and block numbers are stored plus one: zero is nowhere.
pub struct LogBlockTranslation {
    sizes: FlashSizes,
    physical_of: Vec<u32>,
    /// Of each logical block.
    data_block_of: Vec<u32>,
    logs: BTreeMap<u32, Log>,
    /// The logical blocks that have one; what was written longest ago comes first.
    logged: VecDeque<u32>,
    free: VecDeque<u32>,
}

impl LogBlockTranslation {
    /// A device that was never written.
    #[must_use]
    pub fn new(sizes: FlashSizes) -> Self {
        Self {
            sizes,
            physical_of: vec![0; sizes.logical_pages as usize],
            data_block_of: vec![0; sizes.logical_blocks() as usize],
            logs: BTreeMap::new(),
            logged: VecDeque::new(),
            free: (0..sizes.blocks).collect(),
        }
    }

    /// Log blocks at the most.
    #[must_use]
    pub const fn log_blocks_max(&self) -> usize {
        (self.sizes.blocks - self.sizes.logical_blocks() - 1) as usize
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
        let per_block = self.sizes.pages_per_block;
        let (logical, offset) = (page as u32 / per_block, page as u32 % per_block);
        let log = self.log_with_room(logical, &mut step);
        let to = log.block * per_block + log.pages;
        log.is_in_order &= offset == log.pages;
        log.pages += 1;
        let is_switched = log.is_in_order && log.pages == per_block;
        self.physical_of[page as usize] = to + 1;
        step(FlashStep::Program { page: u64::from(to) });
        if is_switched {
            self.merge(logical, &mut step);
        }
    }

    /// The host needs these pages no more.
    ///
    /// # Panics
    /// If one of them does not exist.
    pub fn invalidate(&mut self, pages: Range<u64>) {
        pages.for_each(|page| self.physical_of[page as usize] = 0);
    }

    /// The log block of a logical block, the last one to be merged from now on.
    fn log_with_room(&mut self, logical: u32, step: &mut impl FnMut(FlashStep)) -> &mut Log {
        let per_block = self.sizes.pages_per_block;
        if self.logs.get(&logical).is_some_and(|log| log.pages == per_block) {
            self.merge(logical, step);
        }
        if !self.logs.contains_key(&logical)
            && self.logs.len() == self.log_blocks_max()
            && let Some(oldest) = self.logged.front().copied()
        {
            self.merge(oldest, step);
        }
        if self.logged.back() != Some(&logical) {
            self.logged.retain(|other| *other != logical);
            self.logged.push_back(logical);
        }
        let free = &mut self.free;
        self.logs.entry(logical).or_insert_with(|| {
            let Some(block) = free.pop_front() else { unreachable!("a block is always free") };
            Log { block, pages: 0, is_in_order: true }
        })
    }

    /// Makes one data block of a logical block's log block and its data block.
    fn merge(&mut self, logical: u32, step: &mut impl FnMut(FlashStep)) {
        let Some(log) = self.logs.remove(&logical) else { unreachable!("it has a log block") };
        self.logged.retain(|other| *other != logical);
        let (into, first_offset) = if log.is_in_order {
            (log.block, log.pages)
        } else {
            let Some(block) = self.free.pop_front() else { unreachable!("a block is always free") };
            (block, 0)
        };
        let (per_block, first) = (self.sizes.pages_per_block, logical * self.sizes.pages_per_block);
        let end_offset = per_block.min(self.physical_of.len() as u32 - first);
        for offset in first_offset..end_offset {
            let at = &mut self.physical_of[(first + offset) as usize];
            let Some(from) = at.checked_sub(1).map(u64::from) else { continue };
            let to = into * per_block + offset;
            *at = to + 1;
            step(FlashStep::Relocate { from, to: u64::from(to) });
        }
        let old = std::mem::replace(&mut self.data_block_of[logical as usize], into + 1);
        let waste = old.checked_sub(1).into_iter().chain((into != log.block).then_some(log.block));
        for block in waste {
            self.free.push_back(block);
            step(FlashStep::Erase { block: u64::from(block) });
        }
    }
    /// Looks at everything.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let per_block = self.sizes.pages_per_block;
        assert_eq!(self.logs.len(), self.logged.len(), "each log block has a place in the order");
        assert!(self.logs.len() <= self.log_blocks_max() && !self.free.is_empty());
        let data_blocks = self.data_block_of.iter().filter_map(|block| block.checked_sub(1));
        let logs = self.logged.iter().map(|logical| self.logs[logical].block);
        let mut blocks: Vec<u32> =
            data_blocks.chain(logs).chain(self.free.iter().copied()).collect();
        blocks.sort_unstable();
        let all: Vec<u32> = (0..self.sizes.blocks).collect();
        assert_eq!(blocks, all, "each block is a logical block's, a log block, or free");
        for (page, physical) in (0..).zip(&self.physical_of) {
            let Some(physical) = physical.checked_sub(1) else { continue };
            let (logical, offset) = (page / per_block, page % per_block);
            let is_in_place = self.data_block_of[logical as usize] == physical / per_block + 1
                && physical % per_block == offset;
            let is_logged = self.logs.get(&logical).is_some_and(|log| {
                log.block == physical / per_block && physical % per_block < log.pages
            });
            assert!(is_in_place || is_logged, "page {page} lies in {physical}");
        }
    }
}
