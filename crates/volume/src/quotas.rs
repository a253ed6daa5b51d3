//! Quotas of a volume: what administrators change at a freeze, and the room for counting.
//!
//! Invariants: the volume's record says that it counts in the commit that begins to. What a
//! consistency point writes for changed limits and for counting was promised at its freeze.
//!
//! Fails: [`AggregateError`], with nothing changed.

use crate::flexible::FlexibleVolume;
use crate::front::Front;
use affinity::{Access, AffinityId, Outcome};
use aggregate::{Aggregate, AggregateError, BlockSide};
use cowfs::budget::Spender;
use cowfs::logical::Shared;
use cowfs::pointer::Pointer;
use cowfs::quotas::QuotaChange;
use cowfs::quotas::table::{COUNTED_PORTIONS, QUOTA_BLOCK_COST, counting_cost_blocks};
use ondisk::features::{Feature, QUOTA_TREES, QUOTAS};
use ondisk::quota::ALL_INODES;
use std::sync::Arc;
use units::VolumeId;

/// Changes limits; part of a freeze's action.
///
/// # Errors
/// [`AggregateError::VolumeFull`] and [`AggregateError::Full`].
pub fn change<P: Pointer>(
    front: &Front<P>,
    access: &mut Access<'_>,
    changes: &[QuotaChange],
) -> Result<(), AggregateError> {
    if let Some(damage) = front.damage() {
        return Err(AggregateError::Refused(format!("the volume is read-only: {damage}")));
    }
    // Each may change a block of its own, and the first one writes the header.
    let blocks = QUOTA_BLOCK_COST * (1 + changes.len() as u64);
    if front.shared.accounts().promise(blocks, Spender::Free).is_none() {
        let is_own = !front.shared.budget.could_promise(blocks, Spender::Free);
        return Err(if is_own { AggregateError::VolumeFull } else { AggregateError::Full });
    }
    front.logical.write(access).quota_changes.extend_from_slice(changes);
    if !front.shared.quotas.is_counting() {
        front.shared.quotas.set_counting(true);
    }
    Ok(())
}

/// Notes in a volume's record that it counts what is used, at the freeze at which it begins to.
pub fn note_quotas(side: &mut BlockSide, volume: VolumeId) {
    note(side, volume, &QUOTAS);
}

/// Notes in a volume's record that there may be quota trees, at a freeze before the first one or
/// its limits.
pub fn note_trees(side: &mut BlockSide, volume: VolumeId) {
    note(side, volume, &QUOTA_TREES);
}

fn note(side: &mut BlockSide, volume: VolumeId, feature: &Feature) {
    let Some(slot) = side.slot_of(volume) else { return };
    let features = &mut side.table[slot].record.features;
    if !features.has(feature) {
        features.set(feature);
        side.dirty_slots.insert(slot);
    }
}

/// At a freeze, before the volume's: how many blocks of the quota file counting may change. The
/// fuller a volume is, the fewer; limits are wanted there most.
pub(crate) fn counted_portion(shared: &Shared, has_work: bool) -> u64 {
    if !has_work {
        return 0;
    }
    let accounts = shared.accounts();
    let fits = |portion: &u64| {
        let cost = counting_cost_blocks(*portion);
        accounts.could_promise(cost, Spender::Free)
            && accounts.promise(cost, Spender::Free).is_some()
    };
    COUNTED_PORTIONS.into_iter().find(fits).unwrap_or(0)
}

/// Whether a flexible volume has inodes to count in the image to come.
pub(crate) fn has_work(volume: &FlexibleVolume, access: &mut Access<'_>) -> bool {
    let begins = !volume.front.logical.read(access).quota_changes.is_empty();
    let file = &volume.vbn.read(access).space.quotas;
    file.has_work() || begins && !file.is_counting()
}

/// After a commit that had room to count: has the next consistency point count more. One that has
/// come no further meets inodes that cannot be read. Counting frees nothing, so that nobody who
/// waits for room is to wait for it: it asks for a consistency point like anybody else.
pub(crate) fn go_on(
    aggregate: &Arc<Aggregate>,
    affinity: AffinityId,
    counted_before: Option<u64>,
    counted_inodes: u64,
) {
    let has_more = counted_inodes != ALL_INODES;
    if counted_before.is_none_or(|before| counted_inodes <= before) || !has_more {
        return;
    }
    let of = Arc::clone(aggregate);
    let message = move |_: &mut Access<'_>| {
        of.request_consistency_point(None);
        Outcome::Done
    };
    aggregate.parts.scheduler.send(affinity, Box::new(message));
}
