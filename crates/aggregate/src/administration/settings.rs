//! Settings of an aggregate and of its volumes, and disks that join.
//!
//! Invariants: what was chosen is durable when it is answered.

use crate::relocation::tiering::Tiering;
use crate::service::action::{Acted, CpDone, FreezeScope};
use crate::service::aggregate::Aggregate;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::VolumeId;

impl Aggregate {
    /// Has everyone know of disks that have joined the store. `done` is called when the larger size
    /// has committed.
    pub fn grow(self: &Arc<Self>, done: CpDone) {
        let grown = |scope: &mut FreezeScope<'_, '_>| {
            let this = scope.aggregate;
            let side = this.block_side.write(scope.access);
            let geometry = this.parts.store.geometry();
            side.space.grow(geometry.end().get());
            side.refill.grow(&geometry);
            side.relocation.grow();
            this.statistics.size_blocks.store(geometry.blocks(), Ordering::Relaxed);
            // The commit settles what may be promised.
            Ok(Acted::Done)
        };
        self.request_action(Box::new(grown), done);
    }

    /// From now on the blocks of a volume's files move as `tiering` says. `done` is called when
    /// that is durable.
    pub fn set_tiering(self: &Arc<Self>, volume: VolumeId, tiering: Tiering, done: CpDone) {
        let set = move |scope: &mut FreezeScope<'_, '_>| {
            let now = scope.aggregate.parts.clock.wall();
            scope.block_side().set_tiering(volume, tiering, now)?;
            Ok(Acted::Done)
        };
        self.request_action(Box::new(set), done);
    }

    /// From now on areas are emptied ahead of being filled, or not. `done` is called when that is
    /// durable.
    pub fn set_area_cleaning(self: &Arc<Self>, is_on: bool, done: CpDone) {
        let set = move |scope: &mut FreezeScope<'_, '_>| {
            let side = scope.block_side();
            side.settings.leaves_areas = !is_on;
            if !is_on {
                side.refill.leave_areas();
            }
            scope.aggregate.leaves_areas.store(!is_on, Ordering::Relaxed);
            Ok(Acted::Done)
        };
        self.request_action(Box::new(set), done);
    }

    /// Whether areas are emptied ahead of being filled.
    #[must_use]
    pub fn cleans_areas(&self) -> bool {
        !self.leaves_areas.load(Ordering::Relaxed)
    }
}
