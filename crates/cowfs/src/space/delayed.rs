//! Delayed frees (FlexVol section 3.4): numbers that no image uses any more, and that the container
//! map still has until many of one of its pages can be cleared together.
//!
//! Random overwrites free random numbers. If each were cleared at once, each would change another
//! page of the container map. So a number that is released is set in the *delayed map*, and its
//! block stays in use in the aggregate. One block of the delayed map stands for 64 pages.
//!
//! A page with [`PAGE_FREES`] delayed numbers is *cleared*: its numbers are released to the space
//! below. While more numbers are delayed than may be, the pages with the most of them are cleared
//! too. Nothing is delayed any more at twice that many, nor by a consistency point that frees many
//! numbers of each page anyway. A page that the consistency point changes for another reason is
//! cleared with that change.
//!
//! The delayed map says what a page has. An [`Hbps`] says which pages have the most; after a start,
//! and after no number was delayed, it is counted from the map, some blocks with each consistency
//! point.
//!
//! Invariants: a delayed number is in use by no image, and is not given. `delayed_blocks` is the
//! number of bits that are set. A number that is cleared may be given after the commit, like every
//! number that is freed.

use super::counted::Counted;
use super::{Space, first_run};
use crate::free_map::{VBNS_PER_BLOCK, map_block_of, position, used_in};
use crate::pointer::Pointer;
use crate::reader::{self, Progress, Reader, Stop};
use allocator::Hbps;
use ondisk::pointer::PhysicalPointer;
use platform::mutation::{self, Rule};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::ops::Range;
use units::{BlockNumber, Fbn};

/// Numbers that a page of a container map stands for.
const PAGE_NUMBERS: u64 = PhysicalPointer::FANOUT;
/// Frees of a page that are worth a change of it: somewhat more than the ten of FlexVol section
/// 3.4. To wait for more would save little, and what is delayed is not free.
const PAGE_FREES: u64 = 16;
/// Frees for each page, on average over a consistency point, from which on none is delayed: to have
/// fewer pages changed would save little, and what is delayed is missing where areas are chosen.
const MEAN_FREES: usize = 4;
/// Above this pages are told apart no more: a bin of the histogram for each score below. Pages that
/// have more are few, as they are cleared at once but for want of room.
const SCORE_MAX: u32 = 2 * PAGE_FREES as u32;
/// Blocks of the map that are counted with a consistency point, unless no page is known that could
/// be cleared and one has to be.
const COUNTED_BLOCKS_PER_CP: u64 = 16;
/// Numbers that queues keep memory for while nothing is queued.
const QUEUED_KEPT: usize = 64;
/// Blocks of a map that are loaded at a time.
pub(super) const BLOCKS_AHEAD: usize = 64;
const PAGES_PER_BLOCK: u64 = VBNS_PER_BLOCK / PAGE_NUMBERS;
/// Pages whose frees are delayed: what numbers of 32 bits can count.
const PAGES_MAX: u64 = u32::MAX as u64;

/// What a consistency point may delay, and clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayLimits {
    /// Numbers that may be delayed before pages are cleared for being the fullest there are.
    pub delayed_max: u64,
    /// Pages that may be cleared of numbers delayed before: what was promised for.
    pub pages_max: u64,
}

/// What became of released numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeCounts {
    /// Numbers that were delayed.
    pub delayed: u64,
    /// Numbers that pages of the container map were cleared of, delayed before or not.
    pub cleared: u64,
    /// These pages, each as often as a consistency point cleared it.
    pub pages: u64,
}

impl FreeCounts {
    /// Since there were these.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            delayed: self.delayed - before.delayed,
            cleared: self.cleared - before.cleared,
            pages: self.pages - before.pages,
        }
    }
}

/// The delayed frees of a space, beside their map.
pub(super) struct Delayed<N> {
    /// Pages by how many they have; none while no number is delayed.
    pages: Option<Counted>,
    /// Released by the running consistency point, and not decided on.
    undecided: VecDeque<N>,
    /// What it decided to release. Apart until all is decided: who is run again after a wait must
    /// not decide on it once more.
    decided: Vec<N>,
    /// Whether it delays any, once that is known.
    delays: Option<bool>,
    /// Blocks of the map that it counted.
    counted_blocks: u64,
}

impl<N: BlockNumber> Delayed<N> {
    pub fn new() -> Self {
        let (undecided, decided) = (VecDeque::new(), Vec::new());
        Self { pages: None, undecided, decided, delays: None, counted_blocks: 0 }
    }

    /// A consistency point has committed, and so many numbers are delayed.
    ///
    /// # Panics
    /// If it left work behind.
    pub fn commit(&mut self, delayed_blocks: u64) {
        assert!(self.undecided.is_empty() && self.decided.is_empty(), "all frees were decided on");
        (self.delays, self.counted_blocks) = (None, 0);
        if delayed_blocks == 0 {
            self.pages = None;
        }
        self.undecided.shrink_to(QUEUED_KEPT);
        self.decided.shrink_to(QUEUED_KEPT);
    }

    fn pages(&mut self) -> &mut Counted {
        self.pages.get_or_insert_with(|| Counted::new(Hbps::new(SCORE_MAX)))
    }

    /// Whether the running consistency point delays frees: they are few for the pages they are of.
    fn delays(&mut self) -> bool {
        *self.delays.get_or_insert_with(|| {
            let (numbers, _) = self.undecided.as_slices();
            let pages = numbers.chunk_by(|one, next| page_of(*one) == page_of(*next));
            numbers.len() < MEAN_FREES * pages.count()
        })
    }
}

impl<P: Pointer> Space<P> {
    /// Decides which of the released numbers are delayed, and clears pages. `limits` counts down
    /// over calls of one consistency point.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub fn delay_frees(&mut self, limits: &mut DelayLimits, reader: &Reader<'_>) -> Progress<()> {
        self.delayed.undecided.extend(self.released.drain(..));
        self.delayed.undecided.make_contiguous().sort_unstable();
        if let Some(base) = &self.base {
            let inherited = base.take_inherited(&mut self.delayed.undecided, reader)?;
            self.delayed.decided.extend(inherited);
        }
        let mut delayed = FxHashSet::default();
        let decided = self.decide(limits, &mut delayed, reader);
        if !delayed.is_empty() {
            // Areas are not told of them: they are as little free as before.
            self.changes.1.retain(|vbn| !delayed.contains(vbn));
        }
        decided?;
        self.clear_fullest(limits, reader)?;
        self.released.append(&mut self.delayed.decided);
        Ok(())
    }

    fn decide(
        &mut self,
        limits: &mut DelayLimits,
        delayed: &mut FxHashSet<P::Number>,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        let delays = self.delayed.delays();
        while let Some((page, run)) = first_run(&self.delayed.undecided, PAGE_NUMBERS) {
            let before =
                self.delayed_in(page, reader).map_err(|stop| self.wait_ahead(stop, reader))?;
            let after = before + run as u64;
            let delayed_most = limits.delayed_max.saturating_mul(2);
            let is_room =
                delays && page < PAGES_MAX && self.delayed_blocks + run as u64 <= delayed_most;
            let is_changed = after >= PAGE_FREES || !is_room;
            let is_cleared = is_changed && before > 0 && limits.pages_max > 0;
            if is_cleared {
                self.clear(page, reader)?;
                limits.pages_max -= 1;
            }
            if is_cleared || is_changed && (before == 0 || !is_room) {
                self.free_counts.cleared += run as u64;
                self.free_counts.pages += u64::from(!is_cleared);
                self.delayed.decided.extend(self.delayed.undecided.drain(..run));
                continue;
            }
            let block = self.delayed_map.modify(map_block(page), reader)?;
            for vbn in self.delayed.undecided.drain(..run) {
                let (_, byte, mask) = position(vbn);
                if block[byte] & mask != 0 {
                    return Err(Stop::Contradiction("a block number was delayed and is freed"));
                }
                block[byte] |= mask;
                self.freed.remove(vbn);
                delayed.insert(vbn);
            }
            self.free_counts.delayed += run as u64;
            self.delayed_blocks += run as u64;
            self.delayed.pages().change(page as u32, before as u32, after as u32);
        }
        Ok(())
    }

    /// What to wait for with that: the next blocks of the map that will be asked for, too.
    fn wait_ahead(&self, stop: Stop, reader: &Reader<'_>) -> Stop {
        let mut indices: Vec<Fbn> =
            self.delayed.undecided.iter().map(|vbn| map_block_of(*vbn)).collect();
        indices.dedup();
        let ahead = indices.into_iter().take(BLOCKS_AHEAD);
        reader::all(ahead.map(|index| self.delayed_map.read(index, reader))).err().unwrap_or(stop)
    }

    fn clear_fullest(&mut self, limits: &mut DelayLimits, reader: &Reader<'_>) -> Progress<()> {
        while limits.pages_max > 0 && self.delayed_blocks > 0 {
            let is_too_much = self.delayed_blocks > limits.delayed_max;
            let Some(page) = self.delayed.pages().best(|_| true) else {
                let may_count = self.delayed.counted_blocks < COUNTED_BLOCKS_PER_CP;
                if (may_count || is_too_much) && self.count_pages(reader)? {
                    continue;
                }
                break;
            };
            let page = u64::from(page);
            let delayed = self.delayed_in(page, reader)?;
            if !is_too_much && delayed < PAGE_FREES {
                break;
            }
            limits.pages_max -= 1;
            if delayed == 0 {
                // The map is right and the counts are not.
                self.delayed.pages = None;
                continue;
            }
            self.clear(page, reader)?;
        }
        // What is known to be much will soon be cleared.
        let is_worth_it = self.delayed_blocks > limits.delayed_max / 2;
        while is_worth_it
            && self.delayed.counted_blocks < COUNTED_BLOCKS_PER_CP
            && self.count_pages(reader)?
        {}
        Ok(())
    }

    /// Delayed frees of a page.
    fn delayed_in(&self, page: u64, reader: &Reader<'_>) -> Progress<u64> {
        let map = self.delayed_map.read(map_block(page), reader)?;
        Ok(used_in(&map, numbers_of::<P::Number>(page)))
    }

    /// Releases the delayed numbers of a page.
    fn clear(&mut self, page: u64, reader: &Reader<'_>) -> Progress<()> {
        let numbers = numbers_of::<P::Number>(page);
        let block = self.delayed_map.modify(map_block(page), reader)?;
        let before = used_in(block, numbers.clone());
        for vbn in numbers.start.until(numbers.end) {
            let (_, byte, mask) = position(vbn);
            if block[byte] & mask != 0 {
                block[byte] &= !mask;
                self.freed.insert(vbn);
                self.delayed.decided.push(vbn);
                self.changes.1.push(vbn);
            }
        }
        let few = Stop::Contradiction("more frees are delayed than are counted");
        self.delayed_blocks = self.delayed_blocks.checked_sub(before).ok_or(few)?;
        self.delayed.pages().change(page as u32, before as u32, 0);
        self.free_counts.cleared += before;
        self.free_counts.pages += 1;
        Ok(())
    }

    /// Counts the pages of the next block of the map that has any; whether there was one.
    fn count_pages(&mut self, reader: &Reader<'_>) -> Progress<bool> {
        let pages = self.size_blocks.div_ceil(PAGE_NUMBERS).min(PAGES_MAX) as u32;
        let Some(next) = self.delayed.pages().next_count(pages) else { return Ok(false) };
        let index = map_block(next.into());
        let found = self.delayed_map.next_known(index, reader)?;
        let first = found.map_or(u64::MAX, |index| index.get() * PAGES_PER_BLOCK);
        let first = first.min(u64::from(pages)) as u32;
        let map = found.map(|index| self.delayed_map.read(index, reader)).transpose()?;
        if first > next {
            self.delayed.pages().count(pages, first - next, 0);
        }
        let end = first.saturating_add(PAGES_PER_BLOCK as u32).min(pages);
        for page in first..end {
            let score =
                map.as_ref().map_or(0, |map| used_in(map, numbers_of::<P::Number>(page.into())));
            self.delayed.pages().count(pages, 1, score as u32);
        }
        self.delayed.counted_blocks += 1;
        Ok(true)
    }

    /// Whether there are delayed numbers, which are to be left out when numbers are given.
    pub(super) fn heeds_delayed(&self) -> bool {
        self.delayed_blocks > 0 && !mutation::broken(Rule::DelayedFreeGiven)
    }
}

/// The block of the delayed map that has a page's numbers.
const fn map_block(page: u64) -> Fbn {
    Fbn(page / PAGES_PER_BLOCK)
}

/// The page of a number.
fn page_of<N: BlockNumber>(vbn: N) -> u64 {
    vbn.get() / PAGE_NUMBERS
}

/// The numbers of a page.
fn numbers_of<N: BlockNumber>(page: u64) -> Range<N> {
    N::new(page * PAGE_NUMBERS)..N::new((page + 1) * PAGE_NUMBERS)
}

#[cfg(test)]
mod tests;
