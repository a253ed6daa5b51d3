//! Areas that are emptied, so that they can be filled as a whole (FreeSpace section 3.3.1): which
//! area is next, and which of its blocks are in use.
//!
//! Invariants: an area that is being emptied is not filled. An area whose blocks have all been
//! tried is not emptied again before it was filled. So a block that cannot be moved is tried once.

use super::group::{Cache, GroupAreas};
use super::{Refill, Tier};
use cowfs::free_map::{is_set, runs_of};
use cowfs::reader::{Progress, Reader};
use cowfs::space::Space;
use ondisk::pointer::PhysicalPointer;
use platform::mutation::{self, Rule};
use std::cmp::Reverse;
use units::{BlockNumber, Dbn, Pvbn};

/// The share of an area that must be free for it to be emptied, in thousandths: below, more than a
/// block would be moved for each that is won.
const FREE_PERMILLE_MIN: u64 = 500;

/// How far an area was gone through: disk by disk, stripe by stripe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cursor {
    disk: usize,
    stripe: Dbn,
}

impl Refill {
    /// Begins to empty the next area of a group that is to leave.
    pub(crate) fn begin_leaving(&mut self) -> Option<(u32, u32, Cursor)> {
        let mut leaving = (0..).zip(&mut self.groups).filter(|(_, group)| group.is_leaving);
        let next = leaving.find_map(|(number, group)| Some((number, group.next_to_leave()?)));
        next.map(|next| self.begin_area(next))
    }

    /// Begins to empty the best area of a group that has fewer than `wanted` empty ones.
    pub(crate) fn begin_emptying(&mut self, wanted: u32) -> Option<(u32, u32, Cursor)> {
        self.best_to_empty(wanted).map(|best| self.begin_area(best))
    }

    fn begin_area(&mut self, (number, area): (u32, u32)) -> (u32, u32, Cursor) {
        let stripe = self.groups[number as usize].begin_emptying(area);
        (number, area, Cursor { disk: 0, stripe })
    }

    fn best_to_empty(&self, wanted: u32) -> Option<(u32, u32)> {
        let groups = (0..).zip(&self.groups).zip(&self.tiers);
        let near = groups.filter(|((_, group), tier)| **tier == Tier::Near && !group.is_leaving);
        let found = near.filter_map(|((number, group), _)| {
            let (permille, area) = group.next_to_empty(wanted)?;
            Some(((permille, Reverse(number)), (number, area)))
        });
        // Of groups with areas as good the first.
        found.max_by_key(|(rank, _)| *rank).map(|(_, found)| found)
    }

    /// A group is to leave, or none any more.
    pub(crate) fn set_leaving(&mut self, leaving: Option<u32>) {
        for (number, group) in (0..).zip(&mut self.groups) {
            let was_leaving = std::mem::replace(&mut group.is_leaving, leaving == Some(number));
            if group.is_leaving {
                group.filling = None;
                group.put_back();
                group.emptied.clear();
                group.next_leaving = 0;
            }
            if group.is_leaving || was_leaving {
                group.stop_emptying();
            }
        }
    }

    /// Areas are not emptied any more, but those of a group that is to leave.
    pub(crate) fn leave_areas(&mut self) {
        let staying = self.groups.iter_mut().filter(|group| !group.is_leaving);
        staying.for_each(GroupAreas::stop_emptying);
    }

    /// Blocks of a group of disks that are in use; `None` while its areas are counted, or it has
    /// just joined.
    pub(crate) fn used_in(&self, group: u32) -> Option<u64> {
        self.groups.get(group as usize)?.used_blocks()
    }

    /// Free blocks of the groups of disks that are there to stay; `None` while areas are counted.
    pub(crate) fn near_free_blocks(&self) -> Option<u64> {
        let groups = self.groups.iter().zip(&self.tiers);
        let near = groups.filter(|(group, tier)| **tier == Tier::Near && !group.is_leaving);
        near.map(|(group, _)| group.free_blocks()).sum()
    }

    /// Whether nothing of a group is in use that could move.
    pub(crate) fn is_vacated(&self, group: u32) -> bool {
        let group = &self.groups[group as usize];
        let is_left = group.used_blocks().is_some() && mutation::broken(Rule::GroupLeavesInUse);
        group.emptying.is_none() && (is_left || group.used_blocks() == Some(0))
    }

    /// Whether an area is being emptied still: it may have been wanted.
    pub(crate) fn is_emptying(&self, group: u32, area: u32) -> bool {
        self.groups[group as usize].emptying == Some(area)
    }

    /// An area was gone through.
    pub(crate) fn end_emptying(&mut self, group: u32, area: u32) {
        let group = &mut self.groups[group as usize];
        group.stop_emptying();
        group.emptied.insert(area);
    }

    /// The next blocks of an area that are in use, at most `blocks_max`, and what comes after them.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub(crate) fn used_blocks(
        &self,
        group: u32,
        area: u32,
        from: Cursor,
        blocks_max: usize,
        space: &mut Space<PhysicalPointer>,
        reader: &Reader<'_>,
    ) -> Progress<(Vec<Pvbn>, Cursor)> {
        let group = &self.groups[group as usize];
        let stripes = group.areas.stripes_of(area);
        let mut used = Vec::new();
        let mut at = from;
        while let Some(base) = group.bases.get(at.disk) {
            let left = base.offset(at.stripe.get())..base.offset(stripes.end.get());
            for (index, part) in runs_of(left) {
                let map = space.in_use(index, reader)?;
                for pvbn in part.start.until(part.end) {
                    // Number 0 is never a block.
                    if is_set(&map, pvbn) && pvbn != Pvbn(0) {
                        if used.len() == blocks_max {
                            let stripe = Dbn(pvbn.since(*base));
                            return Ok((used, Cursor { stripe, ..at }));
                        }
                        used.push(pvbn);
                    }
                }
            }
            at = Cursor { disk: at.disk + 1, stripe: stripes.start };
        }
        Ok((used, at))
    }
}

impl GroupAreas {
    /// The best area that is not empty and is worth it, with its free share, while there are fewer
    /// than `wanted` empty ones.
    fn next_to_empty(&self, wanted: u32) -> Option<(u64, u32)> {
        let Cache::All(heap) = &self.cache else { return None };
        let mut empty = 0;
        for (area, score) in heap.ranked() {
            let (score, capacity) = (u64::from(score), self.capacity(area));
            let permille = score * 1000 / capacity.max(1);
            if empty >= wanted || permille < FREE_PERMILLE_MIN {
                return None;
            }
            if score >= capacity {
                empty += 1;
            } else if !self.emptied.contains(&area) {
                return Some((permille, area));
            }
        }
        None
    }

    /// The next area of a group that is to leave. When all were gone through what stayed is tried
    /// again, after the next commit.
    fn next_to_leave(&mut self) -> Option<u32> {
        let is_left = |area: &u32| !self.emptied.contains(area) && self.used_of(*area) != Some(0);
        let found = (self.next_leaving..self.areas.areas()).find(is_left);
        if found.is_none() {
            self.emptied.clear();
        }
        self.next_leaving = found.unwrap_or(0);
        found
    }

    /// Blocks of an area that are in use; `None` if it was not counted.
    fn used_of(&self, area: u32) -> Option<u64> {
        let taken = self.taken_of(area)?;
        Some(if area == 0 { taken - self.hole_blocks() } else { taken })
    }

    /// Numbers of an area that are not free.
    fn taken_of(&self, area: u32) -> Option<u64> {
        let Cache::All(heap) = &self.cache else { return None };
        Some(self.capacity(area).saturating_sub(u64::from(heap.score(area)?)))
    }

    /// Number 0 is taken, and no block.
    fn hole_blocks(&self) -> u64 {
        let has_hole = self.bases.first() == Some(&Pvbn(0));
        self.taken_of(0).map_or(0, |taken| taken.min(u64::from(has_hole)))
    }

    fn free_blocks(&self) -> Option<u64> {
        let Cache::All(heap) = &self.cache else { return None };
        if self.bases.is_empty() { Some(0) } else { heap.total() }
    }

    fn used_blocks(&self) -> Option<u64> {
        let free = self.free_blocks().filter(|_| self.is_exact)?;
        let blocks = self.areas.stripes() * self.data_disks();
        Some(blocks.saturating_sub(free + self.hole_blocks()))
    }

    /// Nothing is placed in the area from now on; its first stripe.
    fn begin_emptying(&mut self, area: u32) -> Dbn {
        if let Cache::All(heap) = &mut self.cache {
            heap.take_out(area);
        }
        self.emptying = Some(area);
        self.areas.stripes_of(area).start
    }

    /// An area that is being emptied may be chosen.
    pub(super) fn stop_emptying(&mut self) {
        if let (Some(area), Cache::All(heap)) = (self.emptying.take(), &mut self.cache) {
            heap.put_back(area);
        }
    }
}
