//! Promises of space (decision 9): what an operation may come to need is set aside when it is
//! accepted, in the volume and in the aggregate. So no consistency point fails for want of space.
//!
//! A budget counts in blocks. Free is what the last commit left free; what operations free counts
//! only after the next commit. From it come the promises of the active image, and those of the
//! image that a consistency point is writing. Each [`Spender`] may spend down to a floor of its
//! own, which is some quarters of a reserve.
//!
//! Writing a volume's image also writes blocks that no single operation causes: its root, its free
//! maps, and the nodes of its container map for the new and the freed block numbers. The first
//! change of a volume after a freeze is charged for the root and the free maps. Every change is
//! charged for nodes of the container map, until the whole map is paid for ([`Overhead`]). The
//! aggregate's own maps come out of its reserve.
//!
//! Invariants: a promise leaves `free - active - frozen` at the floor of its spender at least.
//! Floors are parts of the whole reserve, however little of it is left. So operations that free
//! little by little cannot use up the lowest quarter, which is for what a consistency point writes
//! unasked.

use crate::free_map::VBNS_PER_BLOCK;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Who spends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spender {
    /// An operation that stores more.
    Common,
    /// A restore of a snapshot: it stores first, and its volume frees later.
    Restore,
    /// An operation that frees: it may spend of the reserve, so that deleting always works.
    Free,
    /// What makes room where frees find none: the deletion of a snapshot, and of one volume at a
    /// time ([`ReclaimTurn`]) a restore and the work on deleted snapshots. Where less is left than
    /// the floor, half of it.
    Reclaim,
    /// Work that was promised before (replay): always granted.
    Owed,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Budget {
    free: AtomicU64,
    reserve: AtomicU64,
    /// Of an aggregate: guaranteed to volumes, and nobody else's.
    guaranteed: AtomicU64,
    active: AtomicU64,
    frozen: AtomicU64,
    frees: AtomicBool,
    frozen_frees: AtomicBool,
    /// Whether somebody found no room, since the last time that it was asked.
    refused: AtomicBool,
    /// Whether replay was granted what nobody counted, since the last commit.
    owes: AtomicBool,
    /// The last freeze found nothing to do, and nothing was promised since.
    is_idle: AtomicBool,
}

impl Budget {
    /// What is free after a commit, and how much of it is reserved.
    pub fn settle(&self, free_blocks: u64, reserve_blocks: u64) {
        self.free.store(free_blocks, Ordering::Relaxed);
        self.reserve.store(reserve_blocks, Ordering::Relaxed);
        self.frozen.store(0, Ordering::Relaxed);
        self.frozen_frees.store(false, Ordering::Relaxed);
        self.owes.store(false, Ordering::Relaxed);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// There is another size at a freeze: so much of the last commit's is free, and reserved. What
    /// was promised stays so.
    pub fn resize(&self, free_blocks: u64, reserve_blocks: u64) {
        self.free.store(free_blocks, Ordering::Relaxed);
        self.reserve.store(reserve_blocks, Ordering::Relaxed);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// So much of what is free only those volumes spend to which it is guaranteed.
    pub fn set_guaranteed(&self, blocks: u64) {
        self.guaranteed.store(blocks, Ordering::Relaxed);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Blocks that are guaranteed to volumes, what is promised out of these included.
    #[must_use]
    pub fn guaranteed_blocks(&self) -> u64 {
        self.guaranteed.load(Ordering::Relaxed)
    }

    /// Blocks that could be guaranteed to volumes, all of them together.
    #[must_use]
    pub fn guarantee_blocks_max(&self) -> u64 {
        let spoken_for = self.reserve.load(Ordering::Relaxed) + self.promised_blocks();
        self.free.load(Ordering::Relaxed).saturating_sub(spoken_for)
    }

    /// Whether no commit is on its way that could make room.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    fn limit(&self, spender: Spender) -> u64 {
        let quarters = match spender {
            Spender::Common => 4,
            Spender::Restore => 3,
            Spender::Free => 2,
            Spender::Reclaim => 1,
            Spender::Owed => return u64::MAX,
        };
        let reserve = self.reserve.load(Ordering::Relaxed);
        let floor = reserve / 4 * quarters + reserve % 4 * quarters / 4;
        let mut free = self.free.load(Ordering::Relaxed);
        if !mutation::broken(Rule::GuaranteeNotKept) {
            free = free.saturating_sub(self.guaranteed_blocks());
        }
        // Less may be left than any floor: before 2026-11-24 there were none.
        let least = if spender == Spender::Reclaim { free / 2 } else { 0 };
        free.saturating_sub(floor).max(least)
    }

    /// Sets `blocks` aside; whether there was room.
    #[must_use]
    pub fn promise(&self, blocks: u64, spender: Spender) -> bool {
        let mut limit = self.limit(spender).saturating_sub(self.frozen.load(Ordering::Relaxed));
        if mutation::broken(Rule::PromiseNotTaken) {
            limit = u64::MAX;
        }
        if spender == Spender::Owed {
            self.owes.store(true, Ordering::Relaxed);
        }
        let add = |active: u64| active.checked_add(blocks).filter(|sum| *sum <= limit);
        let is_granted =
            self.active.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        if is_granted {
            self.is_idle.store(false, Ordering::Relaxed);
        } else {
            self.refused.store(true, Ordering::Relaxed);
        }
        is_granted
    }

    /// Somebody found no room: what a pin keeps is to come back.
    pub fn note_refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// A promise was made out of guaranteed room: a commit comes.
    pub fn note_promise(&self) {
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Whether somebody found no room since the last call.
    #[must_use]
    pub fn take_refused(&self) -> bool {
        self.refused.swap(false, Ordering::Relaxed)
    }

    /// Whether there would be room if nothing else were promised: a commit makes promises into
    /// blocks in use, and those are mostly fewer.
    #[must_use]
    pub fn could_promise(&self, blocks: u64, spender: Spender) -> bool {
        blocks <= self.limit(spender)
    }

    /// The blocks that a common operation could be promised if nothing else were.
    #[must_use]
    pub fn unpromised_blocks(&self) -> u64 {
        self.limit(Spender::Common)
    }

    /// Takes a promise back.
    pub fn forgo(&self, blocks: u64) {
        self.active.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// A freeze: what was promised is now the consistency point's to spend.
    pub fn freeze(&self) {
        let active = self.active.swap(0, Ordering::Relaxed);
        self.frozen.fetch_add(active, Ordering::Relaxed);
        let frees = self.frees.swap(false, Ordering::Relaxed);
        self.frozen_frees.fetch_or(frees, Ordering::Relaxed);
    }

    /// A freeze that found nothing changed: nothing that was promised is needed.
    pub fn clear(&self) {
        self.active.store(0, Ordering::Relaxed);
        self.frees.store(false, Ordering::Relaxed);
        self.is_idle.store(true, Ordering::Relaxed);
    }

    /// Blocks that are promised and not in use yet.
    #[must_use]
    pub fn promised_blocks(&self) -> u64 {
        self.active.load(Ordering::Relaxed) + self.frozen.load(Ordering::Relaxed)
    }

    /// Blocks that a common operation could still be promised.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.limit(Spender::Common).saturating_sub(self.promised_blocks())
    }

    /// Whether more is promised than there is, reserve included: the consistency point could fail.
    /// Only replay may do that, whose space was found before the crash.
    #[must_use]
    pub fn is_overdrawn(&self) -> bool {
        let free = self.free.load(Ordering::Relaxed);
        self.promised_blocks() + self.guaranteed_blocks() > free
            && !self.owes.load(Ordering::Relaxed)
    }

    /// Whether anything is promised that is not in use yet.
    #[must_use]
    pub fn has_promises(&self) -> bool {
        self.promised_blocks() > 0
    }

    /// Notes that a commit to come makes room.
    pub fn note_frees(&self) {
        self.frees.store(true, Ordering::Relaxed);
    }

    /// Whether a commit to come makes room.
    #[must_use]
    pub fn has_frees(&self) -> bool {
        self.frees.load(Ordering::Relaxed) || self.frozen_frees.load(Ordering::Relaxed)
    }
}

/// Blocks that any change of a volume costs its aggregate: the root, a block and the path to it of
/// each free map, of the inode file, of the snapshot table and of the container map, both blocks of
/// TopAA, and the container's inode, and the volume's record with the node above it.
pub const VOLUME_OVERHEAD_BLOCKS: u64 = 32;
/// Blocks that a volume's image may come to write because the volume has grown.
pub const GROWTH_COST_BLOCKS: u64 = 2 * VOLUME_OVERHEAD_BLOCKS;
/// Block numbers that a snapshot may come to keep of those that no operation was charged for: the
/// next image writes all free maps and the way to them anew, and the snapshot keeps the old ones.
/// Without it they would be free again at once.
#[must_use]
pub const fn snapshot_blocks(numbers: u64) -> u64 {
    3 * numbers.div_ceil(VBNS_PER_BLOCK) + VOLUME_OVERHEAD_BLOCKS
}

/// Block numbers of a volume whose map entries, of the container and of free maps, fill a block at
/// least: 510 in a node of the container map, less the share of nodes above and of free maps.
const NUMBERS_PER_BLOCK: u64 = 400;
/// Blocks that letting go of all 32,768 numbers of a free map's block writes, by the same measure.
const NODES_PER_MAP_BLOCK: u64 = 32_768 / NUMBERS_PER_BLOCK + 1;
/// Levels above, which are hardly begun.
const LEVELS_BLOCKS: u64 = 16;
/// Blocks that clearing a page of the container map of delayed frees writes: the page, that of the
/// delayed map and the node above it; for the number that this has left another page and a block of
/// a free map; and a node above all that.
const BLOCKS_PER_CLEARED_PAGE: u64 = 6;

/// What a volume's image costs its aggregate beyond what the volume's operations were promised.
/// A traditional volume costs nothing: its numbers are the aggregate's.
#[derive(Debug, Default)]
pub struct Overhead {
    /// Block numbers that changes since the last freeze may come to take or free.
    touched: AtomicU64,
    /// Blocks of the container map and the free maps, if all are written; zero without a container.
    maps_blocks: AtomicU64,
}

impl Overhead {
    /// The volume has a container with this many block numbers.
    pub fn set_numbers(&self, numbers: u64) {
        self.maps_blocks.store(numbers / NUMBERS_PER_BLOCK + LEVELS_BLOCKS, Ordering::Relaxed);
    }

    /// What changes between two freezes cost that touch so many numbers together.
    #[must_use]
    pub fn of_touched(&self, touched: u64) -> u64 {
        let maps_blocks = self.maps_blocks.load(Ordering::Relaxed);
        if maps_blocks == 0 || touched == 0 {
            return 0;
        }
        // Each number lies in a node of the container map and in a block of a free map of its own.
        VOLUME_OVERHEAD_BLOCKS + touched.saturating_mul(2).min(maps_blocks)
    }

    /// What `touches` more cost. Growth slows with what was touched, so that messages which ask at
    /// the same time are charged too much and never too little.
    pub(crate) fn growth(&self, touches: u64) -> u64 {
        let touched = self.touched.load(Ordering::Relaxed);
        self.of_touched(touched + touches) - self.of_touched(touched)
    }

    pub(crate) fn touch(&self, touches: u64) {
        self.touched.fetch_add(touches, Ordering::Relaxed);
    }

    /// What an image costs at most, whatever has changed.
    #[must_use]
    pub fn whole(&self) -> u64 {
        VOLUME_OVERHEAD_BLOCKS + self.maps_blocks.load(Ordering::Relaxed)
    }

    /// What background work on snapshots may come to write for `map_blocks` blocks of a free map:
    /// the nodes of the container map that their numbers fall to.
    #[must_use]
    pub fn of_scan(&self, map_blocks: u64) -> u64 {
        let nodes = map_blocks.saturating_mul(NODES_PER_MAP_BLOCK);
        VOLUME_OVERHEAD_BLOCKS + nodes.min(self.maps_blocks.load(Ordering::Relaxed))
    }

    /// What writing so many blocks of metafiles anew may come to write, if no operation was charged
    /// for them: what a restore makes of the maps.
    #[must_use]
    pub fn of_rewritten(&self, blocks: u64) -> u64 {
        VOLUME_OVERHEAD_BLOCKS
            + blocks
            + blocks.saturating_mul(2).min(self.maps_blocks.load(Ordering::Relaxed))
    }

    /// What clearing so many pages of the container map of delayed frees may come to write.
    #[must_use]
    pub fn of_cleared(&self, pages: u64) -> u64 {
        let blocks = pages.saturating_mul(BLOCKS_PER_CLEARED_PAGE);
        VOLUME_OVERHEAD_BLOCKS + blocks.min(self.maps_blocks.load(Ordering::Relaxed))
    }

    /// A freeze: the next change is the first again.
    pub fn reset(&self) {
        self.touched.store(0, Ordering::Relaxed);
    }
}

/// Whose turn it is to spend as [`Spender::Reclaim`], of the volumes of an aggregate: one at a
/// time, to the end of its deleted snapshots. What the work of a volume takes before it gives back
/// is bounded, that of all of them together is not.
#[derive(Default, Debug)]
pub struct ReclaimTurns(AtomicBool);

/// The turn of a volume, until it is dropped.
#[derive(Debug)]
pub struct ReclaimTurn(Arc<ReclaimTurns>);

impl ReclaimTurns {
    /// The turn, if nobody has it.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<ReclaimTurn> {
        (!self.0.swap(true, Ordering::Relaxed)).then(|| ReclaimTurn(Arc::clone(self)))
    }
}

impl Drop for ReclaimTurn {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each free might take half of the blocks that were left, and frees went on so until a
    /// consistency point found no block for the maps that it writes unasked.
    #[test]
    fn regression_no_spender_goes_below_its_floor_however_little_is_left() {
        let budget = Budget::default();
        budget.settle(100, 40);
        let spenders = [Spender::Common, Spender::Restore, Spender::Free, Spender::Reclaim];
        for (spender, floor) in spenders.into_iter().zip([40, 30, 20, 10]) {
            assert!(budget.could_promise(100 - floor, spender));
            assert!(!budget.could_promise(101 - floor, spender));
        }
        budget.settle(12, 40);
        assert!(!budget.promise(1, Spender::Free), "a little is left, and it is not a free's");
        assert!(budget.promise(6, Spender::Reclaim) && !budget.promise(1, Spender::Reclaim));
    }

    #[test]
    fn one_at_a_time_has_the_turn() {
        let turns: Arc<ReclaimTurns> = Arc::default();
        let turn = turns.take();
        assert!(turn.is_some() && turns.take().is_none());
        drop(turn);
        assert!(turns.take().is_some());
    }

    #[test]
    fn frees_may_spend_half_of_the_reserve() {
        let budget = Budget::default();
        budget.settle(100, 40);
        assert!(budget.promise(60, Spender::Common) && !budget.promise(1, Spender::Common));
        assert!(budget.promise(20, Spender::Free) && !budget.promise(1, Spender::Free));
        assert!(budget.could_promise(60, Spender::Common));
        assert!(!budget.could_promise(61, Spender::Common));
        assert!(!budget.is_overdrawn());
        assert!(budget.promise(1000, Spender::Owed));
        assert!(!budget.is_overdrawn(), "replay's space was found before the crash");
        budget.settle(100, 40);
        assert!(budget.is_overdrawn(), "what is promised now is more than there is");
    }
}
