//! How many frees of a flexible volume are delayed (FlexVol section 3.4, `cowfs::space`), and when
//! they are cleared without anything else to do.
//!
//! Invariants: nobody is refused room for delayed frees: the less there is, the fewer they are.
//! What clearing them writes was promised at the freeze.

use crate::delayed::DelayedBefore;
use crate::flexible::{FlexibleVolume, VbnSide};
use cowfs::budget::Spender;
use cowfs::space::{DelayLimits, Space};
use ondisk::pointer::DualPointer;

/// Pages of the container map that a consistency point clears of delayed frees at most: what is
/// tried first, and where the aggregate is nearly full.
const CLEARED_PAGES: [u64; 4] = [1024, 128, 16, 1];
/// Of the numbers that are free in a volume, or in its aggregate, one of so many may be delayed:
/// the fuller an aggregate is, the more its areas need what is free.
const FREE_SHARE: u64 = 16;
/// Numbers of a thin volume that count for delayed frees, for each in use: what is in use lies in
/// pages of the container map that are nowhere near full.
const NUMBERS_OF_USED: u64 = 6;
/// And at least, if it has so many: what a consistency point frees of the metafiles of a thin
/// volume is not worth a change of the container map, however little the volume holds.
const NUMBERS_MIN: u64 = 4096;

impl FlexibleVolume {
    /// What a consistency point may do with delayed frees; `None` if it has nothing to do for the
    /// volume, which is not dirty, or there is no room to do it.
    pub(crate) fn begin_delaying(&self, side: &mut VbnSide, is_dirty: bool) -> Option<DelayLimits> {
        let (blocks, blocks_max) = (side.space.delayed_blocks, self.delayed_max(&side.space));
        if !is_dirty && blocks <= blocks_max {
            return None;
        }
        side.delayed_before = DelayedBefore { blocks, blocks_max };
        let limits = DelayLimits { delayed_max: blocks_max, pages_max: self.pages_max(blocks) };
        (is_dirty || limits.pages_max > 0).then_some(limits)
    }

    /// After a commit: whether the next consistency point is to clear more. Where this one could
    /// clear none another would not get on either.
    pub(crate) fn goes_on_clearing(&self, side: &VbnSide) -> bool {
        let (before, blocks) = (side.delayed_before, side.space.delayed_blocks);
        let is_stuck = before.blocks > before.blocks_max && blocks >= before.blocks;
        !is_stuck && blocks > self.delayed_max(&side.space)
    }

    /// How many frees may be delayed: a share of the block numbers, and nothing that anybody who is
    /// refused room would miss.
    fn delayed_max(&self, space: &Space<DualPointer>) -> u64 {
        let Some(aggregate) = self.aggregate.upgrade() else { return 0 };
        let permille = u64::from(aggregate.parts.tuning.delayed_permille);
        let of_used = space.used_blocks.saturating_mul(NUMBERS_OF_USED);
        let numbers = space.size_blocks.min(of_used.max(NUMBERS_MIN));
        let share = numbers.saturating_mul(permille) / 1000;
        let shared = &self.front.shared;
        let of_volume = shared.budget.free_blocks() / FREE_SHARE;
        let of_aggregate = shared.accounts().free_blocks_of_aggregate() / FREE_SHARE;
        share.min(of_volume).min(of_aggregate.saturating_sub(self.delayed_share.of_others()))
    }

    /// Pages that may be cleared of so many delayed frees: as many as the aggregate has room for.
    fn pages_max(&self, delayed_blocks: u64) -> u64 {
        if delayed_blocks == 0 {
            return 0;
        }
        let shared = &self.front.shared;
        let accounts = shared.accounts();
        let fits = |pages: &u64| accounts.take(shared.overhead.of_cleared(*pages), Spender::Free);
        let pages = CLEARED_PAGES.map(|pages| pages.min(delayed_blocks));
        pages.into_iter().find(fits).unwrap_or(0)
    }
}
