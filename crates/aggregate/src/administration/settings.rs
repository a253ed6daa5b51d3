//! Settings of an aggregate and of its volumes, and disks that join.
//!
//! Invariants: what was chosen is durable when it is answered.

use crate::block_side::policies::{Guarantee, VolumeChange};
use crate::service::action::{Acted, CpDone, FreezeScope};
use crate::service::aggregate::Aggregate;
use crate::service::guarantees::{self, Patience};
use platform::mutation::{self, Rule};
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

    /// Gives a volume the policies of `change`: all of them, or none if one is refused. `done` is
    /// called when they are durable.
    pub fn change_volume(self: &Arc<Self>, volume: VolumeId, change: VolumeChange, done: CpDone) {
        let mut patience = Patience::default();
        let set = move |scope: &mut FreezeScope<'_, '_>| {
            let aggregate = Arc::clone(scope.aggregate);
            let now = aggregate.parts.clock.wall();
            let side = scope.block_side();
            let slot = side.changeable_slot_of(volume)?;
            if let Some(autogrow_max) = change.autogrow_max {
                autogrow_max.check(side.table[slot].record.size_blocks.get())?;
            }
            if let Some(schedule) = change.schedule {
                schedule.check()?;
            }
            if change.guarantee == Some(Guarantee::Volume)
                && Guarantee::of(&side.table[slot].record) == Guarantee::None
            {
                let lacking = guarantees::lacking_blocks(&aggregate, side, volume)?;
                if let put_off @ Acted::PutOff(_) =
                    guarantees::check_room(&aggregate, lacking, &mut patience)?
                {
                    return Ok(put_off);
                }
            }
            if let Some(tiering) = change.tiering {
                side.set_tiering(volume, tiering, now)?;
            }
            // What follows is not refused, so nothing is done by halves.
            if let Some(reallocation) = change.reallocation {
                reallocation.store(&mut side.table[slot].record);
            }
            if let Some(autogrow_max) = change.autogrow_max {
                side.table[slot].record.set_autogrow_max_blocks(autogrow_max.0);
            }
            if let Some(schedule) = change.schedule {
                side.table[slot].record.set_snapshots_kept(schedule.0);
            }
            if let Some(autodelete) = change.autodelete {
                autodelete.store(&mut side.table[slot].record);
            }
            if let Some(guarantee) = change.guarantee {
                let before = Guarantee::of(&side.table[slot].record);
                guarantee.store(&mut side.table[slot].record);
                guarantees::settle_shares(&aggregate, side);
                if mutation::broken(Rule::GuaranteeForgotten) {
                    before.store(&mut side.table[slot].record);
                }
            }
            side.dirty_slots.insert(slot);
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
