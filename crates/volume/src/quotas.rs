//! Quotas of a volume: what administrators change at a freeze, and the room for counting.
//!
//! Invariants: the volume's record says that it counts in the commit that begins to. What a
//! consistency point writes for changed limits and for counting was promised at its freeze.
//!
//! Fails: [`AggregateError`], with nothing changed.

use crate::flexible::{FlexibleVolume, VbnSide};
use crate::front::Front;
use affinity::Access;
use aggregate::{AggregateError, BlockSide};
use cowfs::budget::Spender;
use cowfs::logical::Shared;
use cowfs::pointer::Pointer;
use cowfs::quotas::QuotaChange;
use cowfs::quotas::table::{COUNTING_COST_BLOCKS, QUOTA_BLOCK_COST};
use ondisk::features::QUOTAS;
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
    let Some(slot) = side.slot_of(volume) else { return };
    let features = &mut side.table[slot].record.features;
    if !features.has(&QUOTAS) {
        features.set(&QUOTAS);
        side.dirty_slots.insert(slot);
    }
}

/// At a freeze, before the volume's: whether there is work on counting, and room for it.
pub(crate) fn may_count(shared: &Shared, has_work: bool) -> bool {
    has_work && shared.accounts().promise(COUNTING_COST_BLOCKS, Spender::Common).is_some()
}

/// Whether a flexible volume has inodes to count in the image to come.
pub(crate) fn has_work(volume: &FlexibleVolume, access: &mut Access<'_>) -> bool {
    let begins = !volume.front.logical.read(access).quota_changes.is_empty();
    let file = &volume.vbn.read(access).space.quotas;
    file.has_work() || begins && !file.is_counting()
}

/// After a commit: whether the next consistency point is to count more.
pub(crate) fn goes_on(side: &VbnSide) -> bool {
    side.counts_quotas && side.space.quotas.has_work()
}
