//! The histogram-based partial sort: items nearly in order of their scores, in two pages however
//! many there are (FreeSpace section 3.3.2).
//!
//! The first page counts the items of each of 32 ranges of scores, the second lists up to a
//! thousand of the best, range after range and in no order within one. So the first of the list is
//! at most a thirty-second of the best score worse than the best item. What an item's score is, and
//! was, its owner says: no memory is spent on items that are not listed.
//!
//! An item comes in when its score is *counted*, in order of the items' numbers; from then on
//! changes of its score are told. When the list has run down ([`Hbps::runs_low`]) another is
//! counted beside it and takes its place: that is also how one begins whose pages were lost.
//!
//! Invariants:
//! - Every counted item is in the bin of its score, or in `empty` with the score 0.
//! - The list has all items of the bins that are better than the worst listed one, and of that one
//!   as many as there was room for.
//! - An update costs the same however many items there are: it moves one item per bin at most, and
//!   looks among those listed in one bin.
//!
//! Fails: never. An update that contradicts the counts marks them damaged ([`Hbps::is_damaged`]):
//! they are hints, and are counted anew.

use ondisk::damage::Damage;
use ondisk::top_areas::{
    HISTOGRAM_BINS, HISTOGRAM_MAGIC, HistogramPage, LISTED_MAX, ListPage, read_pages,
};
use std::ops::Range;
use units::{Block, BlockRef};
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

/// Items in the list below which it is made anew, if there are others.
const LISTED_LOW: usize = LISTED_MAX / 8;

/// See the module.
#[derive(Clone)]
pub struct Hbps {
    histogram: Box<HistogramPage>,
    list: Box<ListPage>,
    listed: usize,
    is_changed: bool,
    is_damaged: bool,
}

impl Hbps {
    /// One without items, whose scores are `score_max` at most.
    ///
    /// # Panics
    /// If the bins are not equal parts of that.
    #[must_use]
    pub fn new(score_max: u32) -> Self {
        let is_whole = score_max > 0 && score_max.is_multiple_of(HISTOGRAM_BINS as u32);
        assert!(is_whole, "{HISTOGRAM_BINS} bins for scores up to {score_max}");
        let mut histogram = Box::new(HistogramPage::new_zeroed());
        histogram.magic = U32::new(HISTOGRAM_MAGIC);
        histogram.score_max = U32::new(score_max);
        let list = Box::new(ListPage::new_zeroed());
        Self { histogram, list, listed: 0, is_changed: true, is_damaged: false }
    }

    /// The one whose pages these are, of scores up to `score_max`.
    ///
    /// # Errors
    /// If they are none of such.
    pub fn from_blocks(score_max: u32, histogram: &Block, list: &Block) -> Result<Self, Damage> {
        let (histogram, list) = read_pages(histogram, list)?;
        if histogram.score_max.get() != score_max {
            return Err(Damage::Field { structure: "histogram", field: "score_max" });
        }
        let listed = histogram.bins.iter().map(|bin| usize::from(bin.listed.get())).sum();
        Ok(Self { histogram, list, listed, is_changed: false, is_damaged: false })
    }

    /// Its two pages.
    #[must_use]
    pub fn blocks(&self) -> [BlockRef; 2] {
        [Block::shared(self.histogram.as_bytes()), Block::shared(self.list.as_bytes())]
    }

    /// Whether its pages have changed since this was asked last.
    pub const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.is_changed, false)
    }

    /// Its pages are to be written, whatever has changed.
    pub const fn touch(&mut self) {
        self.is_changed = true;
    }

    /// Whether its pages have changed since [`Self::take_changed`].
    #[must_use]
    pub const fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Whether it was told what cannot be.
    #[must_use]
    pub const fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// The best score there is.
    #[must_use]
    pub fn score_max(&self) -> u32 {
        self.histogram.score_max.get()
    }

    /// Items that were counted: those from 0 to this, exclusive.
    #[must_use]
    pub fn counted(&self) -> u32 {
        self.histogram.counted.get()
    }

    /// Counted items with the score 0.
    #[must_use]
    pub fn empty(&self) -> u32 {
        self.histogram.empty.get()
    }

    /// Counted items by the range of their score, from the best.
    #[must_use]
    pub fn bins(&self) -> [u32; HISTOGRAM_BINS] {
        self.histogram.bins.map(|bin| bin.count.get())
    }

    /// Items in the list.
    #[must_use]
    pub const fn listed(&self) -> usize {
        self.listed
    }

    /// Whether few items are left in the list, and others have scores too.
    #[must_use]
    pub fn runs_low(&self) -> bool {
        let scored = self.counted() - self.histogram.empty.get();
        self.is_damaged || self.listed < LISTED_LOW && (self.listed as u64) < u64::from(scored)
    }

    /// An item with one of the best scores for which `accepts` says so; `None` if none listed is
    /// one.
    #[must_use]
    pub fn best(&self, accepts: impl Fn(u32) -> bool) -> Option<u32> {
        let listed = self.list.items[..self.listed].iter().map(|item| item.get());
        listed.into_iter().find(|item| accepts(*item))
    }

    /// The next `items` items have this score.
    pub fn count(&mut self, items: u32, score: u32) {
        let first = self.counted();
        self.is_changed |= items > 0;
        self.histogram.counted += items;
        let Some(bin) = self.bin_of(score) else {
            self.histogram.empty += items;
            return;
        };
        self.histogram.bins[bin].count += items;
        for item in first..first + items {
            if !self.list_item(bin, item) {
                break;
            }
        }
    }

    /// The score of a counted item has changed.
    pub fn update(&mut self, item: u32, old_score: u32, new_score: u32) {
        if item >= self.counted() {
            return;
        }
        let (from, to) = (self.bin_of(old_score), self.bin_of(new_score));
        if from == to {
            return;
        }
        self.is_changed = true;
        match from {
            Some(bin) => {
                if self.histogram.bins[bin].count.get() == 0 {
                    self.is_damaged = true;
                    return;
                }
                self.histogram.bins[bin].count -= 1;
                self.unlist_item(bin, item);
            }
            None if self.histogram.empty.get() == 0 => {
                self.is_damaged = true;
                return;
            }
            None => self.histogram.empty -= 1,
        }
        match to {
            Some(bin) => {
                self.histogram.bins[bin].count += 1;
                self.list_item(bin, item);
            }
            None => self.histogram.empty += 1,
        }
    }

    /// The bin of a score, from the best; `None` for 0.
    fn bin_of(&self, score: u32) -> Option<usize> {
        let width = self.score_max() / HISTOGRAM_BINS as u32;
        let from_worst = score.min(self.score_max()).checked_sub(1)? / width;
        Some(HISTOGRAM_BINS - 1 - from_worst as usize)
    }

    /// Where the items of a bin stand in the list.
    fn range(&self, bin: usize) -> Range<usize> {
        let first = usize::from(self.histogram.bins[bin].first.get());
        first..first + usize::from(self.histogram.bins[bin].listed.get())
    }

    fn is_listed_whole(&self, bin: usize) -> bool {
        let bin = &self.histogram.bins[bin];
        u32::from(bin.listed.get()) == bin.count.get()
    }

    /// Puts an item of a bin into the list if it belongs there; whether it did.
    fn list_item(&mut self, bin: usize, item: u32) -> bool {
        if self.listed == LISTED_MAX {
            let is_listed = |bin: &usize| !self.range(*bin).is_empty();
            let Some(worst) = (0..HISTOGRAM_BINS).rev().find(is_listed) else { return false };
            if worst <= bin {
                return false;
            }
            self.shrink(worst);
        } else if !(0..bin).all(|better| self.is_listed_whole(better)) {
            return false;
        }
        // Every worse bin gives its first place to the one before it, and takes one at its end.
        for worse in (bin + 1..HISTOGRAM_BINS).rev() {
            let range = self.range(worse);
            if !range.is_empty() {
                self.list.items[range.end] = self.list.items[range.start];
            }
            self.histogram.bins[worse].first += 1;
        }
        let end = self.range(bin).end;
        self.list.items[end] = U32::new(item);
        self.histogram.bins[bin].listed += 1;
        self.listed += 1;
        true
    }

    /// Takes an item of a bin out of the list, if it is there.
    fn unlist_item(&mut self, bin: usize, item: u32) {
        let range = self.range(bin);
        let items = &self.list.items[range.clone()];
        let Some(at) = items.iter().position(|listed| listed.get() == item) else { return };
        self.list.items[range.start + at] = self.list.items[range.end - 1];
        self.shrink(bin);
    }

    /// The last item of a bin leaves the list; each worse bin gives its last place to its front.
    fn shrink(&mut self, bin: usize) {
        let mut hole = self.range(bin).end - 1;
        self.histogram.bins[bin].listed -= 1;
        for worse in bin + 1..HISTOGRAM_BINS {
            let range = self.range(worse);
            self.histogram.bins[worse].first -= 1;
            if !range.is_empty() {
                self.list.items[hole] = self.list.items[range.end - 1];
                hole = range.end - 1;
            }
        }
        self.list.items[hole] = U32::ZERO;
        self.listed -= 1;
    }
}

#[cfg(test)]
mod tests;

/// For comparisons with a sort of everything.
#[cfg(test)]
impl Hbps {
    pub(crate) fn listed_in(&self, bin: usize) -> Vec<u32> {
        self.list.items[self.range(bin)].iter().map(|item| item.get()).collect()
    }

    pub(crate) fn bin(&self, score: u32) -> Option<usize> {
        self.bin_of(score)
    }
}

impl std::fmt::Debug for Hbps {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Hbps")
            .field("counted", &self.counted())
            .field("bins", &self.bins())
            .field("listed", &self.listed)
            .finish_non_exhaustive()
    }
}
