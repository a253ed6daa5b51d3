//! Volumes that grow by themselves.
//!
//! An administrator gives a volume a largest size. Where room in the volume is short, the next
//! freeze makes the volume larger, as a resize would. Whoever finds no room meanwhile waits for
//! that consistency point, so a client is refused only at the largest size, or where the aggregate
//! has no room.
//!
//! Invariants: the volume is never larger than its record says, in the superblock that has what was
//! written into the new room. It does not grow beyond its largest size, nor while nobody writes.
//!
//! Fails: an aggregate without room for the growth leaves the volume as it is; the next freeze
//! tries again.

use crate::flexible::FlexibleVolume;
use affinity::Access;
use platform::mutation::{self, Rule};
use zerocopy::little_endian::U64;

/// A volume grows when less than this part of it could still be promised.
const SHORT_SHARE: u64 = 10;
/// It grows by this part of its size.
const STEP_SHARE: u64 = 8;
/// And by at least so many blocks, 4 MiB: what one write asks for fits several times.
const STEP_BLOCKS_MIN: u64 = 1024;

/// Makes the volume larger if it may grow and its room is short; part of a freeze. `is_dirty`: it
/// has changes.
pub(crate) fn grow_if_short(volume: &FlexibleVolume, access: &mut Access<'_>, is_dirty: bool) {
    let (budget, size_blocks) = (&volume.front.shared.budget, volume.size_blocks());
    // Asked each time: what was refused before the last freeze does not count.
    let is_refused = budget.take_refused();
    let maximum = volume.autogrow_max().0;
    let is_short = is_refused || is_dirty && budget.free_blocks() < size_blocks / SHORT_SHARE;
    if maximum <= size_blocks || !is_short {
        return;
    }
    let step = (size_blocks / STEP_SHARE).max(STEP_BLOCKS_MIN);
    let larger = match mutation::broken(Rule::GrowthUnbounded) {
        true => size_blocks + step,
        false => maximum.min(size_blocks + step),
    };
    let Some(aggregate) = volume.aggregate.upgrade() else { return };
    let Ok(slot) = aggregate.block_side.read(access).changeable_slot_of(volume.front.id) else {
        return;
    };
    if volume.resize(access, larger).is_err() || mutation::broken(Rule::GrowthUnrecorded) {
        return;
    }
    let side = aggregate.block_side.write(access);
    side.table[slot].record.size_blocks = U64::new(larger);
    side.dirty_slots.insert(slot);
}
