//! What snapshots hold that the active image does not, and what would come back without them.
//!
//! Snapshots form a line in time, and a number lies in consecutive images of it
//! ([`crate::snapshot`]). So who holds a number is told by two of the snapshots that are not being
//! deleted: the oldest and the newest that have it, its *span*. It comes back when all of these are
//! deleted. How many numbers have which span answers for any choice of snapshots what deleting them
//! gives back.
//!
//! The count goes through the map blocks that the summary map has, and in each through the maps of
//! all snapshots, some at a time. Consistency points go on meanwhile.
//!
//! Invariants: a number counts once: in one span, as of deleted snapshots, or as inherited. The
//! count is exact while the volume does not change. Else each map block counts as it was when the
//! count came to it.
//!
//! Fails: where a map cannot be read nothing is known of the volume's snapshots.

use crate::free_map::{VBNS_PER_BLOCK, set_bits_of};
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop, all};
use crate::snapshot::Snapshot;
use crate::space::Space;
use platform::mutation::{self, Rule};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use units::{BLOCK_SIZE, Block, BlockRef, Fbn, SnapshotId};

/// Snapshots whose maps are read at once.
const MAPS_AT_ONCE: usize = 64;
const WORDS: usize = BLOCK_SIZE / 8;

/// A bit for each number of a map block.
pub type MapWords = [u64; WORDS];

/// See the module. Numbers are blocks of 4 KiB.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SnapshotSpans {
    /// The snapshots that are not being deleted, oldest first.
    snapshots: Vec<SnapshotId>,
    /// Numbers by the oldest and the newest snapshot that have them.
    spans: FxHashMap<(SnapshotId, SnapshotId), u64>,
    /// Numbers that only snapshots have which are being deleted: they are on their way back.
    pub deleted_blocks: u64,
    /// Numbers that a clone inherited: an ancestor has their blocks, and nothing comes back.
    pub inherited_blocks: u64,
}

impl SnapshotSpans {
    /// The snapshots that were counted, oldest first.
    #[must_use]
    pub fn snapshots(&self) -> &[SnapshotId] {
        &self.snapshots
    }

    /// Blocks that come back when these snapshots are deleted, all of them.
    #[must_use]
    pub fn freed_with(&self, chosen: &BTreeSet<SnapshotId>) -> u64 {
        let mut kept = Vec::with_capacity(self.snapshots.len() + 1);
        kept.push(0);
        for (at, id) in self.snapshots.iter().enumerate() {
            kept.push(kept[at] + u64::from(!chosen.contains(id)));
        }
        let goes = |(first, last): &(SnapshotId, SnapshotId)| {
            let (from, to) = (self.place(*first), self.place(*last));
            from.zip(to).is_some_and(|(from, to)| kept[to + 1] == kept[from])
        };
        self.spans.iter().filter(|(span, _)| goes(span)).map(|(_, blocks)| blocks).sum()
    }

    /// Blocks that each snapshot alone has, oldest first: what deleting it gives back.
    #[must_use]
    pub fn exclusive_blocks(&self) -> Vec<u64> {
        let own = |id: &SnapshotId| self.spans.get(&(*id, *id)).copied().unwrap_or_default();
        self.snapshots.iter().map(own).collect()
    }

    /// Blocks that come back when a snapshot is deleted together with all older ones, by snapshot,
    /// oldest first.
    #[must_use]
    pub fn cumulative_blocks(&self) -> Vec<u64> {
        let mut blocks = vec![0; self.snapshots.len()];
        for ((_, last), count) in &self.spans {
            if let Some(at) = self.place(*last) {
                blocks[at] += count;
            }
        }
        for at in 1..blocks.len() {
            blocks[at] += blocks[at - 1];
        }
        blocks
    }

    /// Blocks that snapshots have which are not being deleted.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.spans.values().sum()
    }

    fn place(&self, id: SnapshotId) -> Option<usize> {
        self.snapshots.binary_search(&id).ok()
    }

    fn add(&mut self, span: (SnapshotId, SnapshotId), blocks: u64) {
        if blocks > 0 {
            *self.spans.entry(span).or_default() += blocks;
        }
    }

    /// These are the snapshots now. What only others had is on its way back; a span that began or
    /// ended with another is shorter.
    fn settle(&mut self, snapshots: Vec<SnapshotId>) {
        self.snapshots = snapshots;
        for ((first, last), blocks) in std::mem::take(&mut self.spans) {
            let from = self.snapshots.partition_point(|id| *id < first);
            let to = self.snapshots.partition_point(|id| *id <= last);
            match self.snapshots.get(from..to) {
                Some([only]) => self.add((*only, *only), blocks),
                Some([oldest, .., newest]) => self.add((*oldest, *newest), blocks),
                Some([]) | None => self.deleted_blocks += blocks,
            }
        }
    }
}

/// A count under way.
#[derive(Default)]
pub struct SpanCount {
    found: SnapshotSpans,
    /// Map blocks before this one are counted.
    next: Fbn,
    /// The map block that is being counted.
    block: Option<Box<BlockCount>>,
    /// Blocks of maps that were read since the last pause, before waits as well. A step that waits
    /// adds its blocks when it is done: a pause in it would forget the blocks loaded for it.
    looked_at: usize,
}

/// A map block on its way through the snapshots' maps.
struct BlockCount {
    index: Fbn,
    snapshots: Vec<SnapshotId>,
    /// So many of them were asked.
    asked: usize,
    /// The map block of the snapshot that was asked last.
    last: Option<BlockRef>,
    /// Numbers to be counted.
    held: MapWords,
    /// Numbers beside them that were inherited.
    inherited: u64,
    /// Numbers that the snapshot asked last has.
    open: MapWords,
    /// Numbers that any snapshot has.
    seen: MapWords,
    /// The oldest snapshot that has each number, by its place in `snapshots`.
    first: Vec<u16>,
    /// Numbers by the places of the oldest and the newest snapshot that have them.
    spans: FxHashMap<(u16, u16), u64>,
}

impl BlockCount {
    fn new(
        index: Fbn,
        snapshots: Vec<SnapshotId>,
        (held, inherited): (MapWords, u64),
    ) -> Box<Self> {
        Box::new(Self {
            index,
            snapshots,
            asked: 0,
            last: None,
            held,
            inherited,
            open: [0; WORDS],
            seen: [0; WORDS],
            first: vec![0; VBNS_PER_BLOCK as usize],
            spans: FxHashMap::default(),
        })
    }

    /// The next snapshot has these numbers.
    fn ask(&mut self, map: &MapWords) {
        for (word, bits) in map.iter().enumerate() {
            let bits = bits & self.held[word];
            let (open, first) = (self.open[word], word * 64);
            self.close(word, open & !bits);
            for bit in set_bits_of(bits & !open) {
                self.first[first + bit as usize] = self.asked as u16;
            }
            self.open[word] = bits;
            self.seen[word] |= bits;
        }
        self.asked += 1;
        if mutation::broken(Rule::SpanCutShort) {
            for word in 0..WORDS {
                let bits = std::mem::take(&mut self.open[word]);
                self.close(word, bits);
            }
        }
    }

    /// The snapshot asked last is the newest that has these numbers.
    fn close(&mut self, word: usize, bits: u64) {
        for bit in set_bits_of(bits) {
            let oldest = self.first[word * 64 + bit as usize];
            let newest = self.asked.saturating_sub(1) as u16;
            *self.spans.entry((oldest, newest)).or_default() += 1;
        }
    }

    /// All snapshots were asked.
    fn end(mut self, found: &mut SnapshotSpans) {
        (0..WORDS).for_each(|word| self.close(word, self.open[word]));
        for ((oldest, newest), blocks) in self.spans {
            let of = |place: u16| self.snapshots[usize::from(place)];
            found.add((of(oldest), of(newest)), blocks);
        }
        let unseen = self.held.iter().zip(&self.seen).map(|(held, seen)| held & !seen);
        found.deleted_blocks += unseen.map(|bits| u64::from(bits.count_ones())).sum::<u64>();
        found.inherited_blocks += self.inherited;
    }
}

/// Tells of numbers that a clone may have inherited at which of them it has a block of its own, and
/// how many blocks were looked at for that.
pub type OwnNumbers<'a> = &'a dyn Fn(Fbn, &MapWords) -> Progress<(MapWords, usize)>;

impl SpanCount {
    /// Goes on, through so many blocks of snapshots' maps and few more. Returns the spans when all
    /// is counted.
    ///
    /// # Errors
    /// What to wait for; then call again. Or why a map cannot be read.
    pub fn go_on<P: Pointer>(
        &mut self,
        space: &mut Space<P>,
        blocks_max: usize,
        own_numbers: OwnNumbers<'_>,
        reader: &Reader<'_>,
    ) -> Progress<Option<SnapshotSpans>> {
        while self.looked_at < blocks_max {
            let whole = whole_snapshots(space);
            // A snapshot that came or went has others next to it: the map block is counted anew.
            self.block.take_if(|block| !block.snapshots.is_empty() && block.snapshots != whole);
            let Some(block) = &mut self.block else {
                let (index, read) = next_held(space, self.next, reader)?;
                let Some(index) = index else {
                    let mut found = std::mem::take(&mut self.found);
                    found.settle(whole);
                    return Ok(Some(found));
                };
                let (alone, more) = held_alone(space, index, own_numbers, reader)?;
                self.looked_at += 1 + read + more;
                // Where nothing is left to be counted no snapshot is asked.
                let is_empty = alone.0.iter().all(|word| *word == 0);
                let whole = if is_empty { Vec::new() } else { whole };
                self.block = Some(BlockCount::new(index, whole, alone));
                continue;
            };
            if block.asked < block.snapshots.len() {
                self.looked_at += ask_some(space, block, reader)?;
            } else if let Some(block) = self.block.take() {
                self.next = block.index.offset(1);
                block.end(&mut self.found);
            }
        }
        self.looked_at = 0;
        Ok(None)
    }
}

/// The snapshots that are not being deleted, without the snapshot that the consistency point under
/// way makes, which is not whole yet.
fn whole_snapshots<P: Pointer>(space: &Space<P>) -> Vec<SnapshotId> {
    let snapshots = space.snapshots.iter();
    let whole = snapshots.filter(|one| !one.deleting && one.snapshot_table.is_some());
    whole.map(|one| one.id).collect()
}

/// The first map block from `from` on in which a snapshot may have numbers, and how many maps were
/// looked at for it.
fn next_held<P: Pointer>(
    space: &mut Space<P>,
    from: Fbn,
    reader: &Reader<'_>,
) -> Progress<(Option<Fbn>, usize)> {
    let found = space.summary_map.next_known(from, reader)?;
    let (volume, end) = (space.volume, Fbn(space.size_blocks.div_ceil(VBNS_PER_BLOCK)));
    let next = unmerged(space, end).map(|snapshot| {
        let from = from.max(Fbn(snapshot.merged_blocks));
        snapshot.map(volume, reader)?.next_present(from, reader)
    });
    let next = all(next)?;
    let read = next.len();
    Ok((next.into_iter().flatten().chain(found).min(), read))
}

/// The snapshots of which not all map blocks before `end` are in the summary map.
fn unmerged<P: Pointer>(space: &mut Space<P>, end: Fbn) -> impl Iterator<Item = &mut Snapshot<P>> {
    let is_unmerged = move |snapshot: &&mut Snapshot<P>| {
        snapshot.merged_blocks < end.get() && snapshot.snapshot_table.is_some()
    };
    space.snapshots.iter_mut().filter(is_unmerged)
}

/// The numbers of a map block that snapshots have, and neither the active image nor, of a
/// clone, an ancestor; how many an ancestor has; and how many blocks were looked at.
fn held_alone<P: Pointer>(
    space: &mut Space<P>,
    index: Fbn,
    own_numbers: OwnNumbers<'_>,
    reader: &Reader<'_>,
) -> Progress<((MapWords, u64), usize)> {
    let held = space.summary_map.read(index, reader)?;
    let volume = space.volume;
    let unmerged = unmerged(space, index.offset(1));
    let maps = all(unmerged.map(|one| one.map(volume, reader)?.read(index, reader)))?;
    let mut held = words_of(&held);
    for map in &maps {
        held.iter_mut().zip(words_of(map)).for_each(|(held, word)| *held |= word);
    }
    let active = words_of(&*space.active_map.read(index, reader)?);
    let mut alone = held;
    alone.iter_mut().zip(&active).for_each(|(word, active)| *word &= !active);
    let Some(base) = space.base.as_ref().filter(|_| !mutation::broken(Rule::InheritedCounted))
    else {
        return Ok(((alone, 0), maps.len()));
    };
    let base = match base.map().read(index, reader) {
        Ok(block) => words_of(&block),
        // Any number may be inherited.
        Err(Stop::Damaged(_)) => [u64::MAX; WORDS],
        Err(stop) => return Err(stop),
    };
    let doubtful: MapWords = std::array::from_fn(|at| alone[at] & base[at]);
    let (own, read) = own_numbers(index, &doubtful)?;
    let mut inherited = 0;
    for (word, lacking) in alone.iter_mut().zip(doubtful.iter().zip(&own)) {
        let lacking = lacking.0 & !lacking.1;
        inherited += u64::from(lacking.count_ones());
        *word &= !lacking;
    }
    Ok(((alone, inherited), maps.len() + read))
}

/// Asks some more snapshots about a map block; how many.
fn ask_some<P: Pointer>(
    space: &mut Space<P>,
    block: &mut BlockCount,
    reader: &Reader<'_>,
) -> Progress<usize> {
    let (volume, index) = (space.volume, block.index);
    let some = block.snapshots[block.asked..].iter().take(MAPS_AT_ONCE);
    let some: BTreeSet<SnapshotId> = some.copied().collect();
    let chosen = space.snapshots.iter_mut().filter(|one| some.contains(&one.id));
    let maps = chosen.map(|one| one.map(volume, reader)?.read(index, reader));
    let maps: Vec<BlockRef> = all(maps)?;
    for map in &maps {
        match block.last.replace(BlockRef::clone(map)) {
            // Most have the very block of the one before: nothing begins or ends there.
            Some(last) if Arc::ptr_eq(&last, map) && !mutation::broken(Rule::SpanCutShort) => {
                block.asked += 1;
            }
            _ => block.ask(&words_of(map)),
        }
    }
    Ok(maps.len().max(1))
}

fn words_of(block: &Block) -> MapWords {
    let mut words = [0; WORDS];
    let (bytes, _) = block.bytes().as_chunks::<8>();
    words.iter_mut().zip(bytes).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NUMBERS: u64 = 100;
    const SNAPSHOTS: u32 = 7;

    /// Who has each number: the oldest and the newest snapshot, or nobody.
    type Holders = Vec<Option<(u32, u32)>>;

    fn count(holders: &Holders) -> SnapshotSpans {
        let ids: Vec<SnapshotId> = (0..SNAPSHOTS).map(SnapshotId).collect();
        let mut held = [0; WORDS];
        (0..NUMBERS).for_each(|number| held[(number / 64) as usize] |= 1 << (number % 64));
        let mut block = BlockCount::new(Fbn(0), ids.clone(), (held, 3));
        for id in 0..SNAPSHOTS {
            let mut map = [u64::MAX; WORDS];
            map[..(NUMBERS.div_ceil(64)) as usize].fill(0);
            for (number, _) in holders.iter().enumerate().filter(|(_, span)| has(span, id)) {
                map[number / 64] |= 1 << (number % 64);
            }
            block.ask(&map);
        }
        let mut found = SnapshotSpans::default();
        block.end(&mut found);
        found.settle(ids);
        found
    }

    fn has(span: &Option<(u32, u32)>, id: u32) -> bool {
        span.is_some_and(|(oldest, newest)| (oldest..=newest).contains(&id))
    }

    /// Blocks that nobody has when only these snapshots are left.
    fn freed(holders: &Holders, left: &BTreeSet<SnapshotId>) -> u64 {
        let is_freed = |span: &&Option<(u32, u32)>| !left.iter().any(|id| has(span, id.get()));
        holders.iter().filter(|span| span.is_some()).filter(is_freed).count() as u64
    }

    proptest! {
        /// What any choice of snapshots gives back is what one by one nobody has then, before and
        /// after some of them were deleted.
        #[test]
        fn spans_tell_what_comes_back(
            holders in proptest::collection::vec(
                proptest::option::of((0..SNAPSHOTS, 0..SNAPSHOTS)
                    .prop_map(|(one, other)| (one.min(other), one.max(other)))),
                NUMBERS as usize,
            ),
            (gone, chosen) in (0..1_u32 << SNAPSHOTS, 0..1_u32 << SNAPSHOTS),
        ) {
            let all: BTreeSet<SnapshotId> = (0..SNAPSHOTS).map(SnapshotId).collect();
            let of = |bits: u32| -> BTreeSet<SnapshotId> {
                all.iter().copied().filter(|id| bits >> id.get() & 1 == 1).collect()
            };
            let without = |left: &BTreeSet<SnapshotId>, gone: &BTreeSet<SnapshotId>| {
                left.difference(gone).copied().collect::<BTreeSet<_>>()
            };
            let mut found = count(&holders);
            prop_assert_eq!(found.inherited_blocks, 3);
            let nobody = holders.iter().filter(|span| span.is_none()).count() as u64;
            prop_assert_eq!(found.deleted_blocks, nobody);
            for gone in [BTreeSet::new(), of(gone)] {
                let left = without(&all, &gone);
                found.settle(left.iter().copied().collect());
                let back = freed(&holders, &left);
                prop_assert_eq!(found.deleted_blocks, nobody + back);
                prop_assert_eq!(found.held_blocks() + found.deleted_blocks, NUMBERS);
                let chosen: BTreeSet<_> = of(chosen).intersection(&left).copied().collect();
                let expected = freed(&holders, &without(&left, &chosen)) - back;
                prop_assert_eq!(found.freed_with(&chosen), expected);
                let alone = |id: &SnapshotId| found.freed_with(&BTreeSet::from([*id]));
                let alone: Vec<u64> = left.iter().map(alone).collect();
                prop_assert_eq!(found.exclusive_blocks(), alone);
                let until = |id: &SnapshotId| {
                    found.freed_with(&left.range(..=*id).copied().collect())
                };
                let until: Vec<u64> = left.iter().map(until).collect();
                prop_assert_eq!(found.cumulative_blocks(), until);
            }
        }
    }
}
