//! Who pays for a promise of space (decision 76): the volume always, with block numbers of its own;
//! its aggregate out of the room that is guaranteed to the volume, or out of the room that all
//! share.
//!
//! The aggregate's budget leaves guaranteed room out of what it promises. So a promise out of it
//! asks nobody else, and no other volume can take it.
//!
//! Invariants: a promise comes out of one of the two as a whole, and goes back to where it came
//! from. What is promised out of guaranteed room is never more than is guaranteed.
//!
//! Source: FlexVol section 4.3.

use crate::budget::{Budget, Overhead, Spender};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Room of an aggregate that only one of its volumes may spend, in blocks. None is, until somebody
/// guarantees it.
#[derive(Debug, Default)]
pub struct GuaranteedRoom {
    /// As of the last commit, with what is promised out of it.
    blocks: AtomicU64,
    active: AtomicU64,
    frozen: AtomicU64,
    /// An administrator has chosen it, however much there is.
    is_chosen: AtomicBool,
    /// As of the last commit: so much more could be guaranteed.
    growth: AtomicU64,
}

impl GuaranteedRoom {
    /// So much is guaranteed from now on, and never less than is promised out of it.
    pub fn guarantee(&self, blocks: u64, is_chosen: bool) {
        self.is_chosen.store(is_chosen, Ordering::Relaxed);
        self.blocks.store(blocks.max(self.promised_blocks()), Ordering::Relaxed);
    }

    /// So much more could be guaranteed to a volume that grows.
    pub fn set_growth(&self, blocks: u64) {
        self.growth.store(blocks, Ordering::Relaxed);
    }

    /// Blocks that could be guaranteed more to a volume that grows, as of the last commit.
    #[must_use]
    pub fn growth_blocks(&self) -> u64 {
        self.growth.load(Ordering::Relaxed)
    }

    /// Whether the volume has a guarantee.
    #[must_use]
    pub fn is_chosen(&self) -> bool {
        self.is_chosen.load(Ordering::Relaxed)
    }

    /// A consistency point has committed: its promises are blocks in use, or nothing.
    pub fn commit(&self) {
        self.frozen.store(0, Ordering::Relaxed);
    }

    /// A freeze: what was promised is now the consistency point's to spend.
    pub fn freeze(&self) {
        let active = self.active.swap(0, Ordering::Relaxed);
        self.frozen.fetch_add(active, Ordering::Relaxed);
    }

    /// A freeze that found nothing changed: nothing that was promised is needed.
    pub fn clear(&self) {
        self.active.store(0, Ordering::Relaxed);
    }

    /// Sets `blocks` aside; whether so many are guaranteed and not promised.
    #[must_use]
    pub fn promise(&self, blocks: u64) -> bool {
        let limit = self.blocks.load(Ordering::Relaxed);
        let limit = limit.saturating_sub(self.frozen.load(Ordering::Relaxed));
        let add = |active: u64| active.checked_add(blocks).filter(|sum| *sum <= limit);
        self.active.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Takes a promise back.
    pub fn forgo(&self, blocks: u64) {
        self.active.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Blocks that are guaranteed, promised ones included.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Blocks that are promised and not in use yet.
    #[must_use]
    pub fn promised_blocks(&self) -> u64 {
        self.active.load(Ordering::Relaxed) + self.frozen.load(Ordering::Relaxed)
    }

    /// Blocks that could still be promised.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.blocks().saturating_sub(self.promised_blocks())
    }
}

/// What a volume's operations spend of.
#[derive(Clone, Copy, Debug)]
pub struct Accounts<'a> {
    /// The volume's block numbers.
    pub volume: &'a Budget,
    /// What its images cost the aggregate beside.
    pub overhead: &'a Overhead,
    /// What the aggregate guarantees to it.
    pub guaranteed: &'a GuaranteedRoom,
    /// The room that all volumes of the aggregate share.
    pub aggregate: &'a Budget,
}

/// Blocks that are set aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a promise is kept or taken back"]
pub struct Promise {
    blocks: u64,
    is_guaranteed: bool,
}

impl Accounts<'_> {
    /// Promises `blocks` in the volume, and in its aggregate with the overhead. `None` changes
    /// nothing.
    pub fn promise(&self, blocks: u64, spender: Spender) -> Option<Promise> {
        if !self.volume.promise(blocks, spender) {
            return None;
        }
        let cost = blocks + self.overhead.growth(blocks);
        let is_guaranteed = self.take_guaranteed(cost);
        if !is_guaranteed && !self.aggregate.promise(cost, spender) {
            self.volume.forgo(blocks);
            return None;
        }
        // Kept when the promise is taken back: the freeze to come lets go of it.
        self.overhead.touch(blocks);
        Some(Promise { blocks, is_guaranteed })
    }

    /// Whether it would be promised if nothing else were.
    #[must_use]
    pub fn could_promise(&self, blocks: u64, spender: Spender) -> bool {
        self.volume.could_promise(blocks, spender)
            && self.could_take(blocks + self.overhead.of_touched(blocks), spender)
    }

    /// Whether the aggregate would give so many blocks if nothing else were promised.
    #[must_use]
    pub fn could_take(&self, blocks: u64, spender: Spender) -> bool {
        blocks <= self.guaranteed.blocks() || self.aggregate.could_promise(blocks, spender)
    }

    /// Promises blocks of the aggregate that are none of the volume's numbers.
    #[must_use]
    pub fn take(&self, blocks: u64, spender: Spender) -> bool {
        self.take_guaranteed(blocks) || self.aggregate.promise(blocks, spender)
    }

    fn take_guaranteed(&self, blocks: u64) -> bool {
        let is_granted = self.guaranteed.promise(blocks);
        if is_granted {
            self.aggregate.note_promise();
        }
        is_granted
    }

    /// Takes a promise back.
    pub fn forgo(&self, promise: Promise) {
        let Promise { blocks, is_guaranteed } = promise;
        self.volume.forgo(blocks);
        match is_guaranteed {
            true => self.guaranteed.forgo(blocks),
            false => self.aggregate.forgo(blocks),
        }
    }

    /// Blocks of the aggregate that common operations of the volume could still be promised.
    #[must_use]
    pub fn free_blocks_of_aggregate(&self) -> u64 {
        self.guaranteed.free_blocks() + self.aggregate.free_blocks()
    }
}

/// How so many blocks of room are divided among volumes that should have more: each has what is
/// promised out of its own already, and an equal part of what it lacks beyond. Shares are given as
/// `(wanted, promised)`.
#[must_use]
pub fn divide(room_blocks: u64, shares: &[(u64, u64)]) -> Vec<u64> {
    let lacking = |(wanted, promised): &(u64, u64)| wanted.saturating_sub(*promised);
    let promised: u64 = shares.iter().map(|(_, promised)| promised).sum();
    let wanted: u128 = shares.iter().map(|share| u128::from(lacking(share))).sum();
    let left = u128::from(room_blocks.saturating_sub(promised)).min(wanted);
    let part = |share: &(u64, u64)| match u128::from(lacking(share)) * left {
        0 => share.1,
        // At most what is lacking.
        product => share.1 + (product / wanted) as u64,
    };
    shares.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::VOLUME_OVERHEAD_BLOCKS;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Owned {
        volume: Budget,
        overhead: Overhead,
        guaranteed: GuaranteedRoom,
        aggregate: Budget,
    }

    impl Owned {
        fn accounts(&self) -> Accounts<'_> {
            let Self { volume, overhead, guaranteed, aggregate } = self;
            Accounts { volume, overhead, guaranteed, aggregate }
        }
    }

    #[test]
    fn a_volume_is_charged_once_for_its_root_and_for_its_maps_at_most() {
        let of = Owned::default();
        of.overhead.set_numbers(40_000);
        of.volume.settle(100_000, 0);
        of.aggregate.settle(100_000, 0);
        let promise = |blocks: u64| of.accounts().promise(blocks, Spender::Common).is_some();
        let taken = || 100_000 - of.aggregate.free_blocks();
        assert!(promise(10));
        assert_eq!(taken(), 10 + VOLUME_OVERHEAD_BLOCKS + 20);
        assert!(promise(1000));
        let maps = of.overhead.of_touched(40_000) - VOLUME_OVERHEAD_BLOCKS;
        assert_eq!(taken(), 1010 + VOLUME_OVERHEAD_BLOCKS + maps);
        of.volume.freeze();
        of.overhead.reset();
        assert!(promise(1));
        assert_eq!(taken(), 1011 + 2 * VOLUME_OVERHEAD_BLOCKS + maps + 2);
    }

    #[test]
    fn guaranteed_room_is_spent_by_its_volume_alone_and_first() {
        let of = Owned::default();
        of.volume.settle(1000, 0);
        of.aggregate.settle(100, 0);
        of.guaranteed.guarantee(60, true);
        of.aggregate.set_guaranteed(60);
        assert_eq!(of.aggregate.free_blocks(), 40);
        assert_eq!(of.accounts().free_blocks_of_aggregate(), 100);
        let other = GuaranteedRoom::default();
        let others = Accounts { guaranteed: &other, ..of.accounts() };
        assert!(others.promise(41, Spender::Common).is_none());
        let first = of.accounts().promise(50, Spender::Common).expect("it is guaranteed");
        let second = of.accounts().promise(40, Spender::Common).expect("there is room for all");
        assert!(of.accounts().promise(11, Spender::Common).is_none());
        of.accounts().forgo(second);
        assert!(others.promise(40, Spender::Common).is_some(), "it went back to all");
        of.accounts().forgo(first);
        assert_eq!(of.guaranteed.promised_blocks(), 0);
        assert!(of.accounts().could_promise(60, Spender::Common));
        assert!(others.promise(1, Spender::Common).is_none());
    }

    #[test]
    fn what_is_promised_stays_guaranteed_until_it_has_committed() {
        let room = GuaranteedRoom::default();
        room.guarantee(10, true);
        assert!(room.promise(6));
        room.freeze();
        assert!(room.promise(3) && !room.promise(2));
        room.guarantee(0, false);
        assert_eq!((room.blocks(), room.free_blocks()), (9, 0));
        room.commit();
        room.guarantee(1, true);
        assert_eq!(room.blocks(), 3);
        room.clear();
        room.guarantee(1, true);
        assert!(room.promise(1));
    }

    proptest! {
        /// Beside the rules: all get what they want if there is room; else all of the room is
        /// divided but for less than a block each, and no volume that wants more has less.
        #[test]
        fn room_is_divided_by_what_is_lacking(
            room in 0..10_000_u64,
            shares in proptest::collection::vec((0..2000_u64, 0..300_u64), 0..20),
        ) {
            let given = divide(room, &shares);
            let promised: u64 = shares.iter().map(|(_, promised)| promised).sum();
            let wanted: u64 = shares.iter().map(|(wanted, promised)| wanted.max(promised)).sum();
            let sum: u64 = given.iter().sum();
            prop_assert!(sum <= room.max(promised));
            prop_assert!(sum + shares.len() as u64 >= room.clamp(promised, wanted));
            for (share, given) in shares.iter().zip(&given) {
                prop_assert!((share.1..=share.0.max(share.1)).contains(given));
            }
            if room >= wanted {
                let all: Vec<u64> = shares.iter().map(|share| share.0.max(share.1)).collect();
                prop_assert_eq!(given, all);
            }
        }
    }
}
