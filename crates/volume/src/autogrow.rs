//! Volumes that grow by themselves.
//!
//! An administrator gives a volume a largest size. Where room in the volume is short, the next
//! freeze makes the volume larger, as a resize would. Whoever finds no room meanwhile waits for
//! that consistency point ([`cowfs::logical::Shared::ask_to_grow`]). So a client is refused only at
//! the largest size, or where the aggregate has no room.
//!
//! Invariants: the superblock that has the blocks in the new room has the record with the new size.
//! The volume does not grow beyond its largest size, nor while nobody writes.
//!
//! Fails: an aggregate without room for the growth leaves the volume as it is; the next freeze
//! tries again. A volume whose record may not be changed, because it is deleted and kept, does not
//! grow.

use crate::flexible::FlexibleVolume;
use affinity::Access;
use aggregate::{Aggregate, AutogrowMax, Guarantee, VOLUME_BLOCKS_MAX, guarantees};
use cowfs::budget::GROWTH_COST_BLOCKS;
use platform::mutation::{self, Rule};
use std::sync::atomic::Ordering;
use zerocopy::little_endian::U64;

/// A volume grows when less than this part of it could still be promised.
const SHORT_SHARE: u64 = 10;
/// It grows by this part of its size.
const STEP_SHARE: u64 = 8;
/// A volume with a guarantee grows by this part at most of the room that can be guaranteed: beside
/// its size there are its metafiles, and the blocks of images.
const GUARANTEED_SHARE: (u64, u64) = (4, 5);
/// And by at least so many blocks, 4 MiB: what one write asks for fits several times.
const STEP_BLOCKS_MIN: u64 = 1024;

/// What a volume with a guarantee may grow by.
fn guaranteed_step(aggregate: &Aggregate) -> u64 {
    let (part, whole) = GUARANTEED_SHARE;
    let free = guarantees::free_blocks(aggregate);
    free.saturating_sub(GROWTH_COST_BLOCKS) / whole * part
}

/// Makes the volume larger if it may grow and its room is short; part of a freeze. `is_dirty`: it
/// has changes. Where the changes free something, whether the room is short is known later.
pub(crate) fn grow_if_short(volume: &FlexibleVolume, access: &mut Access<'_>, is_dirty: bool) {
    let (shared, size_blocks) = (&volume.front.shared, volume.size_blocks());
    let free_blocks = shared.budget.free_blocks();
    let is_wanted = shared.wants_growth.swap(false, Ordering::Relaxed);
    let is_low = is_dirty && !shared.budget.has_frees();
    let is_short = is_wanted || is_low && free_blocks < size_blocks / SHORT_SHARE;
    if shared.growth_blocks.load(Ordering::Relaxed) == 0 || !is_short {
        return;
    }
    let Some(aggregate) = volume.aggregate.upgrade() else { return };
    let side = aggregate.block_side.read(access);
    let Ok(slot) = side.changeable_slot_of(volume.front.id) else {
        return volume.forgo_growth();
    };
    // An action of this freeze may have lowered the largest size in the record.
    let maximum = AutogrowMax::of(&side.table[slot].record).0.min(VOLUME_BLOCKS_MAX);
    if maximum <= size_blocks {
        return volume.set_autogrow_max(AutogrowMax(maximum));
    }
    let step = (size_blocks / STEP_SHARE).max(STEP_BLOCKS_MIN);
    let is_guaranteed = Guarantee::of(&side.table[slot].record) == Guarantee::Volume;
    let step = if is_guaranteed { step.min(guaranteed_step(&aggregate)) } else { step };
    let larger = match mutation::broken(Rule::GrowthUnbounded) {
        true => size_blocks + step,
        false => maximum.min(size_blocks + step),
    };
    if larger == size_blocks {
        return;
    }
    if volume.resize(access, larger).is_err() || mutation::broken(Rule::GrowthUnrecorded) {
        return;
    }
    guarantees::settle(&aggregate, access);
    volume.vbn.write(access).grows_from = Some(size_blocks);
    let side = aggregate.block_side.write(access);
    side.table[slot].record.size_blocks = U64::new(larger);
    side.dirty_slots.insert(slot);
}
