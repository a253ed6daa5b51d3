//! Items in nearly the order of their scores ([`Hbps`]). They are counted some at a time. When the
//! list has run down, they are counted anew in a second [`Hbps`], which then takes the place of the
//! first.
//!
//! Invariant: an item whose change is told was counted with its score before the change, in the
//! first or in the second; or it is not counted yet, and will be with its score after the change.

use allocator::Hbps;

/// See the module.
pub(super) struct Counted {
    /// The one in use.
    pub sorted: Hbps,
    /// The one that is to take its place, while items are counted for it.
    fresh: Option<Hbps>,
}

impl Counted {
    pub fn new(sorted: Hbps) -> Self {
        Self { sorted, fresh: None }
    }

    /// One of the best items for which `accepts` says so.
    pub fn best(&self, accepts: impl Fn(u32) -> bool + Copy) -> Option<u32> {
        let fresh = || self.fresh.as_ref().and_then(|fresh| fresh.best(accepts));
        self.sorted.best(accepts).or_else(fresh)
    }

    /// The next of so many items to be counted, if one is to be.
    pub fn next_count(&self, items: u32) -> Option<u32> {
        let counted = match &self.fresh {
            Some(fresh) => fresh.counted(),
            None if self.sorted.counted() < items => self.sorted.counted(),
            None => 0,
        };
        let is_wanted =
            self.fresh.is_some() || self.sorted.counted() < items || self.sorted.runs_low();
        (is_wanted && counted < items).then_some(counted)
    }

    /// The next `count` of so many items have this score.
    pub fn count(&mut self, items: u32, count: u32, score: u32) {
        if self.fresh.is_none() && self.sorted.counted() >= items {
            self.fresh = Some(Hbps::new(self.sorted.score_max()));
        }
        let sorted = self.fresh.as_mut().unwrap_or(&mut self.sorted);
        sorted.count(count, score);
        if let Some(fresh) = self.fresh.take_if(|fresh| fresh.counted() >= items) {
            self.sorted = fresh;
        }
    }

    /// The score of an item has changed.
    pub fn change(&mut self, item: u32, before: u32, after: u32) {
        self.sorted.update(item, before, after);
        if let Some(fresh) = &mut self.fresh {
            fresh.update(item, before, after);
        }
    }
}
