//! A shard of the buffer cache: an open-addressed table of groups.
//!
//! A group holds the blocks of [`RUN_BLOCKS`] neighbouring PVBNs: what a consistency point wrote in
//! one go lies together, and so is found together when it is read in one go. Everything that an
//! answer needs is in the group's two cache lines; a block that is asked for alone costs those, the
//! lock's, and the count of its owners.
//!
//! Metadata stays: as long as it is a part of the blocks ([`METADATA_SHARE`]) and no more, data
//! goes in its place. Each block of it leads to hundreds of blocks of data, and is needed again
//! long after a stream of data has gone by.
//!
//! Invariants: the bits of `present` are the blocks that are there; a group with blocks is reached
//! from its home without meeting an empty group; an empty group has no blocks and no marks; never
//! more than `blocks_max` blocks, never more than seven eighths of the groups in use.

use super::Class;
use platform::memory::prefer_huge_pages;
use platform::mutation::{self, Rule};
use smallvec::SmallVec;
use units::{BlockRef, Pvbn};

/// Blocks that leave the cache for one that comes, seldom more.
pub(super) type Gone = SmallVec<[BlockRef; 4]>;

/// Neighbours that share a group: their marks are the bits of a byte.
pub(super) const RUN_BLOCKS: u64 = 8;
/// A table has a group for this many blocks at least: runs that are here in part have room as long
/// as they are so filled on average.
const BLOCKS_PER_GROUP: usize = 2;

/// Metadata may be one block of so many before it goes like data: a file's tree is a 255th of it,
/// and an inode with a small file's block a ninth.
const METADATA_SHARE: usize = 4;

/// And a few at least, so that an eighth of them is one.
const GROUPS_MIN: usize = 8;

/// Blocks of a run; see the module.
#[derive(Default)]
#[repr(align(128))]
struct Group {
    run: u64,
    /// A bit for each block that is here.
    present: u8,
    /// A bit for each block that was used since the hand last passed.
    referenced: u8,
    /// A bit for each block that is here and metadata.
    metadata: u8,
    checks: [u32; RUN_BLOCKS as usize],
    blocks: [Option<BlockRef>; RUN_BLOCKS as usize],
}

const _: () = assert!(size_of::<Group>() == 128);

impl Group {
    const fn is_empty(&self) -> bool {
        self.present == 0
    }
}

pub(super) struct Shard {
    blocks_max: usize,
    len: usize,
    metadata_len: usize,
    groups_used: usize,
    /// A power of two of them.
    groups: Vec<Group>,
    /// Where CLOCK goes on: a place in a group.
    hand: usize,
}

/// The run of a PVBN, and its place in it.
const fn place(pvbn: Pvbn) -> (u64, usize) {
    (pvbn.get() / RUN_BLOCKS, (pvbn.get() % RUN_BLOCKS) as usize)
}

/// Spreads the numbers of runs. The cache takes the high bits to choose a shard.
pub(super) const fn hash(run: u64) -> u64 {
    // Fibonacci hashing.
    run.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Shard {
    pub(super) fn new(blocks_max: usize) -> Self {
        let count = (blocks_max / BLOCKS_PER_GROUP).max(GROUPS_MIN).next_power_of_two();
        let mut groups = Vec::with_capacity(count);
        prefer_huge_pages(groups.spare_capacity_mut());
        groups.resize_with(count, Group::default);
        Self { blocks_max, len: 0, metadata_len: 0, groups_used: 0, groups, hand: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    fn home(&self, run: u64) -> usize {
        (hash(run) >> 16) as usize & (self.groups.len() - 1)
    }

    const fn next(&self, at: usize) -> usize {
        (at + 1) & (self.groups.len() - 1)
    }

    /// The group of a run, or the empty one where it would be.
    fn find(&self, run: u64) -> Result<usize, usize> {
        let mut at = self.home(run);
        loop {
            let group = &self.groups[at];
            if group.run == run && !group.is_empty() {
                return Ok(at);
            }
            if group.is_empty() {
                return Err(at);
            }
            at = self.next(at);
        }
    }

    pub(super) fn get(&mut self, pvbn: Pvbn, check: u32) -> Option<BlockRef> {
        let (run, way) = place(pvbn);
        let at = self.find(run).ok()?;
        let group = &mut self.groups[at];
        let block = group.blocks[way].as_ref()?;
        if group.checks[way] != check && !mutation::broken(Rule::CacheEntryKept) {
            return None;
        }
        group.referenced |= 1 << way;
        Some(BlockRef::clone(block))
    }

    /// Puts a block in. What it replaces, at its PVBN or for want of room, goes to `gone`.
    pub(super) fn insert(
        &mut self,
        pvbn: Pvbn,
        (check, class): (u32, Class),
        block: BlockRef,
        gone: &mut Gone,
    ) {
        let (run, way) = place(pvbn);
        if let Ok(at) = self.find(run)
            && self.groups[at].blocks[way].is_some()
        {
            if mutation::broken(Rule::CacheEntryKept) {
                return gone.push(block);
            }
            let group = &mut self.groups[at];
            group.checks[way] = check;
            group.referenced &= !(1 << way);
            gone.extend(group.blocks[way].replace(block));
            return self.classify(at, way, class);
        }
        while self.len >= self.blocks_max || self.groups_used >= self.groups.len() / 8 * 7 {
            let Some(victim) = self.evict() else { break };
            gone.push(victim);
        }
        let at = match self.find(run) {
            Ok(at) => at,
            Err(at) => {
                self.groups_used += 1;
                self.groups[at].run = run;
                at
            }
        };
        let group = &mut self.groups[at];
        group.present |= 1 << way;
        group.checks[way] = check;
        group.blocks[way] = Some(block);
        self.len += 1;
        self.classify(at, way, class);
    }

    /// Notes what a block is.
    fn classify(&mut self, at: usize, way: usize, class: Class) {
        let mark = 1 << way;
        let marks = &mut self.groups[at].metadata;
        self.metadata_len -= usize::from(*marks & mark != 0);
        *marks &= !mark;
        if class == Class::Metadata {
            *marks |= mark;
            self.metadata_len += 1;
        }
    }

    /// Takes out the block whose turn it is.
    pub(super) fn evict(&mut self) -> Option<BlockRef> {
        if self.len == 0 {
            return None;
        }
        // A quarter at most is metadata then, so the hand comes by data, and finds some without a
        // mark in its second round at the latest.
        let keeps_metadata = self.metadata_len * METADATA_SHARE <= self.len;
        loop {
            let (at, way) = (self.hand / RUN_BLOCKS as usize, self.hand % RUN_BLOCKS as usize);
            self.hand = (self.hand + 1) % (self.groups.len() * RUN_BLOCKS as usize);
            let group = &mut self.groups[at];
            let mark = 1 << way;
            let stays = keeps_metadata && group.metadata & mark != 0;
            if group.blocks[way].is_some() && group.referenced & mark == 0 && !stays {
                return self.take(at, way);
            }
            group.referenced &= !mark;
        }
    }

    pub(super) fn remove(&mut self, pvbn: Pvbn) -> Option<BlockRef> {
        let (run, way) = place(pvbn);
        let at = self.find(run).ok()?;
        self.take(at, way)
    }

    /// Takes out all blocks with such numbers.
    pub(super) fn remove_all(&mut self, is_wanted: impl Fn(Pvbn) -> bool) -> Vec<BlockRef> {
        let found = self.groups.iter().flat_map(|group| {
            let ways = (0..RUN_BLOCKS).filter(|way| group.present & 1 << way != 0);
            ways.map(|way| Pvbn(group.run * RUN_BLOCKS + way))
        });
        let found: Vec<Pvbn> = found.filter(|number| is_wanted(*number)).collect();
        found.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    fn take(&mut self, at: usize, way: usize) -> Option<BlockRef> {
        let group = &mut self.groups[at];
        let block = group.blocks[way].take()?;
        group.present &= !(1 << way);
        group.referenced &= !(1 << way);
        self.len -= 1;
        self.classify(at, way, Class::Data);
        let group = &self.groups[at];
        if group.is_empty() {
            self.groups_used -= 1;
            self.close(at);
        }
        Some(block)
    }

    /// Moves what stands behind an emptied group nearer to its home, until nothing would be missed.
    fn close(&mut self, mut hole: usize) {
        let mask = self.groups.len() - 1;
        let mut at = self.next(hole);
        while !self.groups[at].is_empty() {
            let home = self.home(self.groups[at].run);
            // Whether the hole is on its way from its home to where it is.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.groups.swap(hole, at);
                hole = at;
            }
            at = self.next(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use units::Block;

    fn block(number: u64) -> BlockRef {
        Arc::new(Block::from_prefix(&number.to_le_bytes()))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u32, Class),
        Get(u64, u32),
        Remove(u64),
        RemoveOdd,
        Evict,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Few runs and many: neighbours, and runs that meet in the table.
        let pvbn = prop_oneof![0..40_u64, (0..60_u64).prop_map(|number| number * 1000)];
        let step = prop_oneof![
            4 => (pvbn.clone(), 0..3_u32, any::<bool>()).prop_map(|(pvbn, check, is_data)| {
                Step::Insert(pvbn, check, if is_data { Class::Data } else { Class::Metadata })
            }),
            3 => (pvbn.clone(), 0..3_u32).prop_map(|(pvbn, check)| Step::Get(pvbn, check)),
            2 => pvbn.prop_map(Step::Remove),
            1 => Just(Step::Evict),
            1 => Just(Step::RemoveOdd),
        ];
        proptest::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn it_is_a_map_that_forgets(steps in steps(), blocks_max in 1..50_usize) {
            let mut shard = Shard::new(blocks_max);
            // What was put in and neither taken out nor seen to be gone.
            let mut model: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                let number = number as u64;
                let mut gone = Gone::new();
                match step {
                    Step::Insert(pvbn, check, class) => {
                        model.remove(&pvbn);
                        shard.insert(Pvbn(pvbn), (check, class), block(number), &mut gone);
                        model.insert(pvbn, (check, number));
                    }
                    Step::Get(pvbn, check) => {
                        let found = shard.get(Pvbn(pvbn), check);
                        let known = model.get(&pvbn).filter(|(known, _)| *known == check);
                        let expected = known.map(|(_, number)| block(*number));
                        prop_assert_eq!(found.map(|found| found.bytes().to_vec()),
                            expected.map(|expected| expected.bytes().to_vec()));
                    }
                    Step::Remove(pvbn) => {
                        let was_there = model.remove(&pvbn).is_some();
                        prop_assert_eq!(shard.remove(Pvbn(pvbn)).is_some(), was_there);
                    }
                    Step::RemoveOdd => {
                        let found = shard.remove_all(|number| number.get() % 2 == 1);
                        let before = model.len();
                        model.retain(|pvbn, _| pvbn % 2 == 0);
                        prop_assert_eq!(found.len(), before - model.len());
                    }
                    Step::Evict => {
                        let victim = shard.evict();
                        prop_assert_eq!(victim.is_none(), model.is_empty());
                        gone.extend(victim);
                    }
                }
                for gone in gone {
                    model.retain(|_, (_, number)| gone.bytes() != block(*number).bytes());
                }
                prop_assert_eq!(shard.len(), model.len());
                prop_assert!(shard.len() <= blocks_max);
                let metadata = shard.groups.iter().map(|group| group.metadata.count_ones());
                prop_assert_eq!(metadata.sum::<u32>() as usize, shard.metadata_len);
                for group in &shard.groups {
                    prop_assert_eq!(group.metadata & !group.present, 0);
                    for (way, block) in group.blocks.iter().enumerate() {
                        prop_assert_eq!(block.is_some(), group.present >> way & 1 == 1);
                    }
                }
                let used = shard.groups.iter().filter(|group| !group.is_empty()).count();
                prop_assert_eq!(used, shard.groups_used);
            }
        }
    }

    #[test]
    fn what_is_used_stays() {
        let mut shard = Shard::new(16);
        for pvbn in 0..16 {
            shard.insert(Pvbn(pvbn), (1, Class::Data), block(pvbn), &mut Gone::new());
        }
        for round in 1..20 {
            assert!(shard.get(Pvbn(3), 1).is_some(), "round {round}");
            for new in 0..8 {
                let class = (1, Class::Data);
                shard.insert(Pvbn(round * 100 + new), class, block(new), &mut Gone::new());
            }
        }
    }

    #[test]
    fn metadata_stays_while_data_streams_by_and_goes_where_it_is_too_much() {
        const BLOCKS_MAX: u64 = 64;
        let mut shard = Shard::new(BLOCKS_MAX as usize);
        let mut next = 0;
        let mut insert = |shard: &mut Shard, class: Class, count: u64| {
            for _ in 0..count {
                shard.insert(Pvbn(next), (1, class), block(next), &mut Gone::new());
                next += 1;
            }
        };
        insert(&mut shard, Class::Metadata, BLOCKS_MAX / 4);
        insert(&mut shard, Class::Data, 10 * BLOCKS_MAX);
        assert_eq!(shard.metadata_len as u64, BLOCKS_MAX / 4);
        // More of it takes its turn with data, and all of it alone is a cache like any.
        insert(&mut shard, Class::Metadata, 10 * BLOCKS_MAX);
        assert_eq!((shard.len(), shard.metadata_len), (64, 64));
        insert(&mut shard, Class::Data, 10 * BLOCKS_MAX);
        assert_eq!((shard.len(), shard.metadata_len as u64), (64, BLOCKS_MAX / 4));
    }
}
