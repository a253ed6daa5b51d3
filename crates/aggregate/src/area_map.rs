//! How much of which area is free, for people to look at.
//!
//! Invariants: nothing is read: areas whose free blocks were not counted yet are told as such.

use crate::aggregate::Aggregate;
use affinity::{Access, Outcome};
use std::sync::Arc;

/// The areas of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupMap {
    /// How many there are.
    pub areas: u64,
    /// Blocks of an area, but for the first and the last, which may have fewer.
    pub area_blocks: u64,
    /// The area that is being filled.
    pub filling: Option<u64>,
    /// It gets no blocks: other groups have much emptier areas.
    pub is_left_out: bool,
    /// The areas in order, some together where there are many; none for a group in an object
    /// store, of which only the best are known.
    pub cells: Vec<AreaCell>,
    /// Areas by the range of their free share, in 32 equal parts, from the emptiest: those that
    /// were counted and have free blocks.
    pub by_free_share: [u64; 32],
    /// Areas that were counted and have none.
    pub full: u64,
}

/// Some areas that follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AreaCell {
    /// How many.
    pub areas: u64,
    /// Blocks of those that were counted.
    pub counted_blocks: u64,
    /// Of these, free ones.
    pub free_blocks: u64,
}

/// Called with the groups in order.
pub type MapDone = Box<dyn FnOnce(Vec<GroupMap>) + Send>;

impl Aggregate {
    /// Looks at the areas of all groups; each is told in `cells_max` parts at most.
    pub fn area_map(self: &Arc<Self>, cells_max: u64, done: MapDone) {
        let (this, mut done) = (Arc::clone(self), Some(done));
        let message = move |access: &mut Access<'_>| {
            let map = this.block_side.read(access).refill.map(cells_max.max(1));
            if let Some(done) = done.take() {
                done(map);
            }
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }
}
