//! The cleaner against a map from file block number to content, over many consistency points, with
//! every load forced to wait once.

use super::*;
use crate::buftree;
use crate::cache::BufferCache;
use crate::content::Content;
use crate::reader::{HeldBlocks, Stop, Wait};
use crate::test_media::Addressed;
use ondisk::pointer::{DualPointer, PhysicalPointer};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use units::{BlockNumber, Fbn, InodeNumber, Pvbn, VolumeId};

#[derive(Default)]
struct Media {
    next: u64,
    blocks: BTreeMap<u64, BlockRef>,
    /// What the consistency point being cleaned freed.
    freed: BTreeSet<u64>,
    /// The last number that may be asked for, if there is one.
    limit: Option<u64>,
}

impl<P: Addressed> Sink<P> for Media {
    fn prepare(&mut self, count: usize) -> Progress<()> {
        let asked = self.next + count as u64;
        assert!(self.limit.is_none_or(|limit| asked <= limit), "more is asked for than was said");
        Ok(())
    }

    fn place(&mut self, block: BlockRef, place: BlockPlace) -> P {
        self.next += 1;
        assert!(self.limit.is_none_or(|limit| self.next <= limit), "more is placed than was said");
        let check = P::check_of(&block, place.content);
        self.blocks.insert(self.next, block);
        P::at(self.next, check)
    }

    fn free(&mut self, pointer: P) {
        assert!(self.blocks.contains_key(&pointer.vbn().get()), "freed what was not in use");
        assert!(self.freed.insert(pointer.vbn().get()), "freed twice");
    }

    fn mark(&self) -> SinkMark {
        SinkMark::default()
    }

    fn revert(&mut self, _: &SinkMark) {
        unreachable!("nothing is damaged here")
    }

    fn unplace(&mut self, _: Vec<P>) {
        unreachable!("nothing is damaged here")
    }

    fn is_lost(&self, _: units::Pvbn) -> bool {
        true
    }
}

fn run<P: Addressed>(cleaner: &mut FileCleaner<P>, media: &mut Media) -> (Root<P>, i64) {
    let cache = BufferCache::new(0);
    let held = HeldBlocks::default();
    loop {
        let reader = Reader { cache: &cache, held: &held };
        match cleaner.run(&reader, media) {
            Ok(done) => return done,
            Err(Stop::Wait(Wait::Load(requests))) => serve(&requests, media, &held),
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

fn serve(requests: &[crate::reader::LoadRequest], media: &Media, held: &HeldBlocks) {
    for request in requests {
        held.put(request, media.blocks.get(&request.pvbn.get()).cloned());
    }
}

fn key() -> FileKey {
    FileKey { volume: VolumeId(1), inode: InodeNumber(70), content: Content::Data }
}

fn content<P: Addressed>(root: &Root<P>, fbn: u64, media: &Media) -> Option<u64> {
    let cache = BufferCache::new(0);
    let held = HeldBlocks::default();
    loop {
        let reader = Reader { cache: &cache, held: &held };
        match buftree::read(root, &key(), Fbn(fbn), &reader) {
            Ok(block) => {
                return block.map(|block| {
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(&block[..8]);
                    u64::from_le_bytes(bytes)
                });
            }
            Err(Stop::Wait(Wait::Load(requests))) => serve(&requests, media, &held),
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

/// One consistency point's worth of changes: blocks written, ranges punched before that.
type Round = (Vec<u64>, Vec<(u64, u64)>);

fn check<P: Addressed>(rounds: Vec<Round>) {
    let mut media = Media::default();
    let mut root = Root::<P>::default();
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let mut stamp = 1;
    let mut blocks = 0_i64;
    for (writes, punches) in rounds {
        let mut holes = RangeSet::default();
        for (start, length) in punches {
            holes.add(Fbn(start), Fbn(start + length));
            model.retain(|fbn, _| *fbn < start || *fbn >= start + length);
        }
        let mut leaves = BTreeMap::new();
        for fbn in writes {
            stamp += 1;
            model.insert(fbn, stamp);
            leaves
                .insert(Fbn(fbn), Leaf::Block(Arc::new(Block::from_prefix(&stamp.to_le_bytes()))));
        }
        let before = media.next;
        let leaves: Vec<_> = leaves.into_iter().collect();
        let numbers = numbers_max(&root, &leaves, holes.ranges().len()) + AHEAD_MAX;
        media.limit = Some(before + numbers as u64);
        let mut cleaner = FileCleaner::new(key(), root, leaves, holes, None);
        let (new, change) = run(&mut cleaner, &mut media);
        assert!(media.freed.iter().all(|number| *number <= before), "freed what it just placed");
        for number in std::mem::take(&mut media.freed) {
            media.blocks.remove(&number);
        }
        root = new;
        blocks += change;
        assert_eq!(blocks, model.len() as i64);
        verify(&root, &model, &media);
    }
    media.limit = None;
    let mut cleaner = FileCleaner::new(key(), root, Vec::new(), RangeSet::all(), None);
    let (empty, _) = run(&mut cleaner, &mut media);
    assert!(empty.is_empty());
    assert_eq!(media.freed.len(), media.blocks.len(), "an emptied file keeps nothing");
}

fn verify<P: Addressed>(root: &Root<P>, model: &BTreeMap<u64, u64>, media: &Media) {
    for (fbn, stamp) in model {
        assert_eq!(content(root, *fbn, media), Some(*stamp), "block {fbn}");
        for near in [fbn.saturating_sub(1), fbn + 1] {
            assert_eq!(content(root, near, media), model.get(&near).copied());
        }
    }
    // Everything on media is reachable: blocks of the model and the nodes above them.
    let cache = BufferCache::new(0);
    let held = HeldBlocks::default();
    let mut found = BTreeSet::new();
    let mut at = 0;
    loop {
        let reader = Reader { cache: &cache, held: &held };
        match buftree::next_present(root, &key(), Fbn(at), Fbn::END, &reader) {
            Ok(Some(fbn)) => {
                found.insert(fbn.get());
                at = fbn.get() + 1;
            }
            Ok(None) => break,
            Err(Stop::Wait(Wait::Load(requests))) => serve(&requests, media, &held),
            Err(stop) => panic!("{stop:?}"),
        }
    }
    assert!(found.iter().eq(model.keys()), "{found:?} is not {model:?}");
    for fbn in model.keys() {
        let end = fbn + 700;
        let naive = (*fbn..end).find(|at| !model.contains_key(at)).unwrap_or(end);
        assert_eq!(absent(root, *fbn, end, media), naive, "the first hole from {fbn}");
    }
}

fn absent<P: Addressed>(root: &Root<P>, from: u64, end: u64, media: &Media) -> u64 {
    let cache = BufferCache::new(0);
    let held = HeldBlocks::default();
    loop {
        let reader = Reader { cache: &cache, held: &held };
        match buftree::next_absent(root, &key(), Fbn(from), Fbn(end), &reader) {
            Ok(found) => return found.get(),
            Err(Stop::Wait(Wait::Load(requests))) => serve(&requests, media, &held),
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

/// A file whose blocks `numbers` are there, and what holds it.
fn filled(numbers: impl Iterator<Item = u64>) -> (Root<DualPointer>, Media) {
    let mut media = Media::default();
    let leaf =
        |fbn: u64| (Fbn(fbn), Leaf::Block(Arc::new(Block::from_prefix(&(fbn + 1).to_le_bytes()))));
    let leaves = numbers.map(leaf).collect();
    let mut cleaner = FileCleaner::new(key(), Root::default(), leaves, RangeSet::default(), None);
    let (root, _) = run(&mut cleaner, &mut media);
    (root, media)
}

#[test]
fn a_hole_is_found_behind_whole_nodes() {
    let (root, media) = filled((0..20_000).filter(|fbn| *fbn != 19_000));
    assert_eq!(absent(&root, 0, u64::MAX, &media), 19_000);
    assert_eq!(absent(&root, 300, 18_000, &media), 18_000, "none before the end of the search");
    assert_eq!(absent(&root, 19_001, u64::MAX, &media), 20_000);
    assert_eq!(absent(&root, 1 << 30, u64::MAX, &media), 1 << 30);
}

#[test]
fn a_limit_frees_a_file_step_by_step() {
    const LIMIT: u64 = 1_000;
    let (mut root, mut media) = filled((0..10_000).chain((20_000..900_000).step_by(10_000)));
    let mut steps = 0;
    while !root.is_empty() {
        let cleaner = FileCleaner::new(key(), root, Vec::new(), RangeSet::all(), None);
        let mut cleaner = cleaner.with_hole_limit(LIMIT);
        let (new, change) = run(&mut cleaner, &mut media);
        let freed = change.unsigned_abs();
        assert!(freed > 0 && freed < LIMIT + DualPointer::FANOUT, "{freed} blocks in one step");
        for number in std::mem::take(&mut media.freed) {
            media.blocks.remove(&number);
        }
        (root, steps) = (new, steps + 1);
    }
    assert_eq!(steps, 10);
    assert!(media.blocks.is_empty(), "an emptied file keeps nothing");
}

#[test]
fn many_small_holes_are_gone_through_once() {
    // As random overwrites leave them in a container: every other block of many nodes.
    let (root, mut media) = filled(0..400_000);
    let mut holes = RangeSet::default();
    (0..400_000).step_by(2).for_each(|fbn| holes.add(Fbn(fbn), Fbn(fbn + 1)));
    let mut cleaner = FileCleaner::new(key(), root, Vec::new(), holes, None);
    let (root, change) = run(&mut cleaner, &mut media);
    assert_eq!(change, -200_000);
    assert_eq!(absent(&root, 1, u64::MAX, &media), 2);
}

#[test]
fn missing_nodes_are_asked_for_together() {
    let (root, mut media) = filled(0..30_000);
    let leaf = |fbn: u64| (Fbn(fbn), Leaf::Block(Arc::new(Block::from_prefix(&[9; 8]))));
    let leaves = (0..30_000).step_by(1_000).map(leaf).collect();
    let mut cleaner = FileCleaner::new(key(), root, leaves, RangeSet::default(), None);
    let (cache, held) = (BufferCache::new(0), HeldBlocks::default());
    let mut waits = 0;
    loop {
        let reader = Reader { cache: &cache, held: &held };
        match cleaner.run(&reader, &mut media) {
            Ok(_) => break,
            Err(Stop::Wait(Wait::Load(requests))) => serve(&requests, &media, &held),
            Err(stop) => panic!("{stop:?}"),
        }
        waits += 1;
    }
    assert!(waits <= 2, "{waits} waits for 30 nodes beneath one");
}

fn block_number() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..10, 0_u64..600, 1_700_u64..2_500, 400_000_u64..470_000, 0_u64..1 << 32]
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let writes = prop::collection::vec(block_number(), 0..12);
    let punch = (block_number(), prop_oneof![1_u64..5, 1_u64..1_000, 1_u64..1 << 33]);
    prop::collection::vec((writes, prop::collection::vec(punch, 0..3)), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn dual_trees_equal_the_model(rounds in rounds()) {
        check::<DualPointer>(rounds);
    }

    #[test]
    fn physical_trees_equal_the_model(rounds in rounds()) {
        check::<PhysicalPointer>(rounds);
    }
}

#[test]
fn tiny_files_lie_in_the_inode_and_leave_it() {
    let mut media = Media::default();
    let leaf = |text: &[u8]| vec![(Fbn(0), Leaf::Block(Arc::new(Block::from_prefix(text))))];
    let clean = |root, leaves, size, media: &mut Media| {
        let mut cleaner =
            FileCleaner::<DualPointer>::new(key(), root, leaves, RangeSet::default(), Some(size));
        run(&mut cleaner, media)
    };
    let (root, change) = clean(Root::default(), leaf(b"hello"), 5, &mut media);
    assert_eq!((root.depth, change, media.blocks.len()), (0, 0, 0));
    // It grows by a block far away: the content becomes block 0.
    let far = vec![(Fbn(900), Leaf::Block(Arc::new(Block::from_prefix(b"far"))))];
    let (root, change) = clean(root, far, 900 * 4096 + 3, &mut media);
    assert_eq!((root.depth, change), (2, 2));
    assert_eq!(content(&root, 0, &media).map(u64::to_le_bytes).unwrap()[..5], *b"hello");
    // It shrinks to tiny again.
    let (root, change) = clean(root, leaf(b"bye"), 3, &mut media);
    assert_eq!((root.depth, change), (0, -2));
    assert_eq!(media.freed.len(), media.blocks.len());
}

#[test]
fn a_pointer_that_says_more_of_the_block_it_had_keeps_the_block() {
    let mut media = Media::default();
    for number in [1_000, 2_000] {
        media.blocks.insert(number, Block::shared(&[1]));
    }
    let mut root = Root::<PhysicalPointer>::default();
    let young = PhysicalPointer::new(Pvbn(1_000), 7);
    let old = PhysicalPointer { age: 3, ..young };
    let moved = PhysicalPointer::new(Pvbn(2_000), 7);
    for (pointer, change, is_freed) in [(young, 1, false), (old, 0, false), (moved, 0, true)] {
        let leaves = vec![(Fbn(5), Leaf::Placed(pointer))];
        let mut cleaner = FileCleaner::new(key(), root, leaves, RangeSet::default(), None);
        let (next, blocks) = run(&mut cleaner, &mut media);
        assert_eq!((blocks, media.freed.contains(&1_000)), (change, is_freed), "{pointer:?}");
        assert_eq!(next.pointer(5), pointer);
        root = next;
    }
}
