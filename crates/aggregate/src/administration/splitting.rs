//! Clones that are split from their parents ([`crate::relocating`]).
//!
//! The volume's record says that a split is under way, so that the next start goes on. Copies that
//! were made are in the container map. The blocks that are still inherited are found by looking
//! through the clone's block numbers anew.
//!
//! Invariants: a clone is whole when it has inherited nothing any more; only then its record names
//! no parent.
//!
//! Fails: [`AggregateError::Refused`] says why a split cannot begin or end.

use crate::block_side::side::BlockSide;
use crate::error::AggregateError;
use crate::relocating::splitting;
use crate::relocation::splits::{SplitState, cost_blocks};
use crate::service::action::{Acted, CpDone, FreezeScope};
use crate::service::aggregate::Aggregate;
use ondisk::records::CloneBase;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, ByteSize, VolumeId};
use zerocopy::FromZeros;

/// Blocks that a split of a clone takes which has inherited so many: each is copied, and the
/// container map gets their entries.
#[must_use]
pub const fn cost_of(inherited_blocks: u64) -> u64 {
    cost_blocks(inherited_blocks, splitting::nodes_of(inherited_blocks))
}

/// Has a clone split from its parent, which has inherited so many blocks. `done` is called when
/// that is durable; copying goes on in the background, also after a start. Until the next start
/// no more bytes are copied a second than `rate` says.
pub fn begin(
    aggregate: &Arc<Aggregate>,
    clone: VolumeId,
    (inherited_blocks, rate): (u64, Option<u64>),
    done: CpDone,
) {
    let begin = move |scope: &mut FreezeScope<'_, '_>| {
        let free = scope.aggregate.split_room_blocks();
        let side = scope.block_side();
        let slot = side.changeable_slot_of(clone)?;
        let record = &side.table[slot].record;
        if !record.clone_base.is_some() {
            return Err(AggregateError::Refused("the volume is no clone".to_owned()));
        }
        if record.split_blocks.get() != 0 {
            return Err(AggregateError::Refused("it is being split already".to_owned()));
        }
        let needed = cost_of(inherited_blocks);
        if free < needed {
            let size = |blocks: u64| ByteSize(blocks * BLOCK_SIZE_U64);
            return Err(AggregateError::Refused(format!(
                "the aggregate has {} free, and {} are needed",
                size(free),
                size(needed)
            )));
        }
        let blocks = inherited_blocks.max(1);
        side.set_split(slot, blocks);
        let mut state = SplitState { blocks, ..SplitState::default() };
        state.limit.set_rate(rate);
        let mut shared = scope.aggregate.splits.lock();
        shared.failed.remove(&clone);
        shared.states.insert(clone, state);
        Ok(Acted::Done)
    };
    aggregate.request_action(Box::new(begin), done);
}

/// Has the split of a clone end where it is. The blocks that were copied are the clone's own.
pub fn stop(aggregate: &Arc<Aggregate>, clone: VolumeId, done: CpDone) {
    let stop = move |scope: &mut FreezeScope<'_, '_>| {
        scope.block_side().changeable_slot_of(clone)?;
        scope
            .end_split(clone)
            .then_some(Acted::Done)
            .ok_or_else(|| AggregateError::Refused("the volume is not being split".to_owned()))
    };
    aggregate.request_action(Box::new(stop), done);
}

/// The blocks that the clone still inherits cannot be read: its split ends.
pub(crate) fn give_up(aggregate: &Arc<Aggregate>, clone: VolumeId) {
    let name = &aggregate.parts.identity.name;
    tracing::warn!(aggregate = %name, %clone, "a split gives up: the blocks that are still shared cannot be read");
    let stop = move |scope: &mut FreezeScope<'_, '_>| {
        // Before the end: whoever looks in between finds neither, or both.
        scope.aggregate.splits.lock().failed.insert(clone);
        if !scope.end_split(clone) {
            scope.aggregate.splits.lock().failed.remove(&clone);
        }
        Ok(Acted::Done)
    };
    aggregate.request_action(Box::new(stop), Box::new(|_| ()));
}

impl FreezeScope<'_, '_> {
    /// A clone's split ends, if it has one; whether it had.
    pub fn end_split(&mut self, clone: VolumeId) -> bool {
        let side = self.block_side();
        let slot = side.slot_of(clone);
        let slot = slot.filter(|slot| side.table[*slot].record.split_blocks.get() != 0);
        if let Some(slot) = slot {
            side.set_split(slot, 0);
            self.aggregate.splits.lock().states.remove(&clone);
        }
        slot.is_some()
    }

    /// A clone has inherited nothing any more: it is a volume like others.
    pub fn make_whole(&mut self, clone: VolumeId) {
        // The parent first: whoever looks in between finds a split.
        self.aggregate.parents.write().remove(&clone);
        self.end_split(clone);
        let side = self.block_side();
        let is_forgotten = mutation::broken(Rule::SplitForgotten);
        if let Some(slot) = side.slot_of(clone).filter(|_| !is_forgotten) {
            side.table[slot].record.clone_base = CloneBase::new_zeroed();
            side.dirty_slots.insert(slot);
        }
        if let Some(container) = side.containers.get_mut(&clone) {
            container.parent = None;
        }
    }
}

impl BlockSide {
    fn set_split(&mut self, slot: usize, blocks: u64) {
        let record = &mut self.table[slot].record;
        record.set_split_blocks(blocks);
        let volume = VolumeId(record.volume.get());
        let record = *record;
        self.relocation.splits.set(volume, &record);
        self.dirty_slots.insert(slot);
    }
}
