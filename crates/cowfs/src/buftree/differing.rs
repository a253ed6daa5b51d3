//! Where two trees of one file differ, for instance the trees of its two snapshots.
//!
//! Both trees are walked together from their roots. A block number is not given again while an
//! image has it, so two pointers with one number lead to the same blocks: such a subtree is
//! skipped, and neither tree reads it. Only the nodes above blocks that differ are read.
//!
//! Invariants: both trees belong to one volume, and both are in an image that is kept. Only numbers
//! are compared: a block that was moved in the aggregate has its old number, and is the same.
//!
//! Fails: as [`Reader::block`] does.

use super::{FileKey, Root, next_present, span};
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, all};
use units::{BlockRef, Fbn};

/// The pointer of one tree on the way down to a file block.
#[derive(Clone, Copy)]
struct Branch<P> {
    pointer: P,
    /// The level of the node that the pointer leads to.
    level: u8,
    /// The first file block after those that the pointer covers.
    end: u64,
}

impl<P: Pointer> Branch<P> {
    /// The root's pointer on the way to file block `at`. Beyond its reach a tree is one hole.
    fn top(root: &Root<P>, at: u64) -> Self {
        if at >= Root::<P>::capacity(root.depth) {
            return Self { pointer: P::default(), level: u8::MAX, end: u64::MAX };
        }
        let level = root.depth - 1;
        Self { pointer: root.pointer(at / span::<P>(level)), level, end: end_of::<P>(at, level) }
    }

    fn is_hole(&self) -> bool {
        self.pointer.is_hole()
    }
}

/// The first file block after those of the node at `level` that covers file block `at`.
fn end_of<P: Pointer>(at: u64, level: u8) -> u64 {
    (at / span::<P>(level) + 1).saturating_mul(span::<P>(level))
}

/// What a way down both trees ended at.
enum Found {
    /// The trees differ at this file block.
    Different(u64),
    /// Before this file block they do not differ.
    Same(u64),
}

/// The first file block in `from..end` at which two trees of one file have other pointers, or only
/// one has any. The content of a tiny file is compared by its bytes.
///
/// # Errors
/// [`crate::reader::Stop::Wait`] when an indirect block must be loaded first.
pub fn next_different<P: Pointer>(
    a: &Root<P>,
    b: &Root<P>,
    key: &FileKey,
    from: Fbn,
    end: Fbn,
    reader: &Reader<'_>,
) -> Progress<Option<Fbn>> {
    match (a.depth, b.depth) {
        (0, 0) => {
            let is_seen = from.get() == 0 && end.get() > 0;
            return Ok((is_seen && a.payload != b.payload).then_some(Fbn(0)));
        }
        (0, _) => return next_beside_inline(a, b, key, from, end, reader),
        (_, 0) => return next_beside_inline(b, a, key, from, end, reader),
        _ => {}
    }
    let end = end.get().min(Root::<P>::capacity(a.depth.max(b.depth)));
    let mut at = from.get();
    while at < end {
        let pair = [Branch::top(a, at), Branch::top(b, at)];
        match descend(pair, key, at, reader)? {
            Found::Different(found) => return Ok((found < end).then_some(Fbn(found))),
            Found::Same(next) => at = next,
        }
    }
    Ok(None)
}

/// The same, of a tiny file and a tree. A tiny file of zeros has no block, as
/// [`super::next_present`] has it.
fn next_beside_inline<P: Pointer>(
    inline: &Root<P>,
    tree: &Root<P>,
    key: &FileKey,
    from: Fbn,
    end: Fbn,
    reader: &Reader<'_>,
) -> Progress<Option<Fbn>> {
    if from.get() == 0 && end.get() > 0 && !inline.is_empty() {
        return Ok(Some(Fbn(0)));
    }
    next_present(tree, key, from, end, reader)
}

/// Goes down both trees from file block `at` as long as they differ. In nodes it goes on to the
/// first entry that differs.
fn descend<P: Pointer>(
    mut pair: [Branch<P>; 2],
    key: &FileKey,
    mut at: u64,
    reader: &Reader<'_>,
) -> Progress<Found> {
    loop {
        let [a, b] = &pair;
        let are_holes = a.is_hole() && b.is_hole();
        if are_holes || a.level == b.level && a.pointer.vbn() == b.pointer.vbn() {
            return Ok(Found::Same(a.end.min(b.end)));
        }
        let present = pair.iter().filter(|branch| !branch.is_hole());
        let level = present.map(|branch| branch.level).max().unwrap_or(0);
        if level == 0 {
            return Ok(Found::Different(at));
        }
        let place = key.place(level, at / span::<P>(level));
        let nodes = all(pair.iter().map(|branch| {
            let is_next = !branch.is_hole() && branch.level == level;
            is_next.then(|| reader.block(&branch.pointer, place)).transpose()
        }))?;
        let first = at / span::<P>(level - 1) % P::FANOUT;
        // A pointer of a lower level says nothing of the node's other entries.
        let mut entry = first;
        if pair.iter().all(|branch| branch.level >= level) {
            let differs = |entry: &u64| {
                let number = |side: usize| entry_at::<P>(nodes[side].as_ref(), *entry).vbn();
                number(0) != number(1)
            };
            match (first..P::FANOUT).find(differs) {
                Some(found) => entry = found,
                None => return Ok(Found::Same(end_of::<P>(at, level))),
            }
        }
        if entry != first {
            at = (at / span::<P>(level - 1) - first + entry) * span::<P>(level - 1);
        }
        for (branch, node) in pair.iter_mut().zip(&nodes) {
            if node.is_some() {
                let pointer = entry_at(node.as_ref(), entry);
                *branch = Branch { pointer, level: level - 1, end: end_of::<P>(at, level - 1) };
            }
        }
    }
}

/// An entry of a node; a hole where there is no node.
fn entry_at<P: Pointer>(node: Option<&BlockRef>, entry: u64) -> P {
    node.map_or_else(P::default, |node| P::decode_at(node.bytes(), entry as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buftree::find;
    use crate::cleaner::{FileCleaner, Leaf};
    use crate::content::Content;
    use crate::ranges::RangeSet;
    use crate::test_media::{Addressed, Media};
    use ondisk::inode::PAYLOAD_SIZE;
    use ondisk::pointer::{DualPointer, PhysicalPointer};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use units::{Block, InodeNumber, VolumeId};

    fn key() -> FileKey {
        FileKey { volume: VolumeId(1), inode: InodeNumber(70), content: Content::Data }
    }

    /// Blocks to write, and ranges to punch before that.
    type Change = (Vec<u64>, Vec<(u64, u64)>);

    fn changed<P: Addressed>(root: &Root<P>, media: &mut Media, change: &Change) -> Root<P> {
        let mut holes = RangeSet::default();
        change.1.iter().for_each(|(start, size)| holes.add(Fbn(*start), Fbn(start + size)));
        let stamp = media.next;
        let leaf = |fbn: &u64| {
            let block = Block::shared(&(stamp + fbn).to_le_bytes());
            (Fbn(*fbn), Leaf::Block(block))
        };
        let leaves: BTreeSet<u64> = change.0.iter().copied().collect();
        let leaves = leaves.iter().map(leaf).collect();
        media.clean(FileCleaner::new(key(), *root, leaves, holes, None))
    }

    fn next<P: Addressed>(roots: (&Root<P>, &Root<P>), from: u64, media: &Media) -> Option<u64> {
        let (a, b) = roots;
        let next = |reader: &Reader<'_>| next_different(a, b, &key(), Fbn(from), Fbn::END, reader);
        media.run(next).map(Fbn::get)
    }

    fn check<P: Addressed>(first: &Change, second: &Change) {
        let mut media = Media::default();
        let a = changed(&Root::<P>::default(), &mut media, first);
        let b = changed(&a, &mut media, second);
        let number = |root: &Root<P>, fbn: u64| {
            media.run(|reader| find(root, &key(), Fbn(fbn), reader)).vbn()
        };
        // Where a block is in either tree, or was: nothing else can differ.
        let mut places: BTreeSet<u64> = first.0.iter().chain(&second.0).copied().collect();
        places.retain(|fbn| number(&a, *fbn) != number(&b, *fbn));
        let mut found = BTreeSet::new();
        let mut from = 0;
        while let Some(at) = next((&a, &b), from, &media) {
            assert_eq!(next((&b, &a), from, &media), Some(at), "either tree may be the first");
            found.insert(at);
            from = at + 1;
        }
        assert_eq!(found, places);
        for at in &places {
            let end = |end: u64, media: &Media| {
                media.run(|reader| next_different(&a, &b, &key(), Fbn(*at), Fbn(end), reader))
            };
            assert_eq!(end(*at, &media), None);
            assert_eq!(end(at + 1, &media), Some(Fbn(*at)));
        }
    }

    fn place() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..20_u64,
            250..270_u64,
            1_780..1_800_u64,
            130_000..131_100_u64,
            0..5_000_000_u64
        ]
    }

    fn change() -> impl Strategy<Value = Change> {
        let range = (place(), prop_oneof![1..20_u64, 1..200_000_u64]);
        (prop::collection::vec(place(), 0..12), prop::collection::vec(range, 0..3))
    }

    proptest! {
        #[test]
        fn trees_differ_where_their_pointers_do(first in change(), second in change()) {
            check::<DualPointer>(&first, &second);
            check::<PhysicalPointer>(&first, &second);
        }
    }

    #[test]
    fn equal_subtrees_are_not_read() {
        let mut media = Media::default();
        let all: Change = ((0..3_000).collect(), Vec::new());
        let a = changed(&Root::<DualPointer>::default(), &mut media, &all);
        let b = changed(&a, &mut media, &(vec![1_000], Vec::new()));
        media.loads.set(0);
        assert_eq!(next((&a, &b), 0, &media), Some(1_000));
        // The ways to the block: of each tree the nodes of two levels.
        assert_eq!(media.loads.replace(0), 4);
        assert_eq!(next((&a, &a), 0, &media), None);
        assert_eq!(media.loads.get(), 0);
    }

    #[test]
    fn a_tiny_file_differs_by_its_bytes() {
        let mut media = Media::default();
        let tiny = |byte| Root::<DualPointer>::inline(&[byte; PAYLOAD_SIZE]);
        let tree =
            |media: &mut Media, fbn| changed(&Root::default(), media, &(vec![fbn], Vec::new()));
        let (first, third) = (tree(&mut media, 0), tree(&mut media, 3));
        let empty = Root::default();
        let cases = BTreeMap::from([
            ("same bytes", (tiny(1), tiny(1), None)),
            ("other bytes", (tiny(1), tiny(2), Some(0))),
            ("bytes and a tree", (tiny(1), first, Some(0))),
            ("bytes and a later block", (tiny(1), third, Some(0))),
            ("bytes and nothing", (tiny(1), empty, Some(0))),
            ("zeros and nothing", (tiny(0), empty, None)),
            ("zeros and a later block", (tiny(0), third, Some(3))),
        ]);
        for (name, (a, b, at)) in cases {
            assert_eq!(next((&a, &b), 0, &media), at, "{name}");
            assert_eq!(next((&b, &a), 0, &media), at, "{name}, the other way");
        }
        assert_eq!(next((&tiny(1), &tiny(2)), 1, &media), None);
    }
}
