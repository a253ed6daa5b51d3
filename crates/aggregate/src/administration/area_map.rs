//! Looking at the allocation areas.
//!
//! Invariants: nothing is read: areas whose free blocks were not counted yet are told as such.

use crate::allocation::area_map::MapDone;
use crate::service::aggregate::Aggregate;
use affinity::{Access, Outcome};
use std::sync::Arc;

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
