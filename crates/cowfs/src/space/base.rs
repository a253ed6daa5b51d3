//! The snapshot that a clone began with, its *base* (FlexVol section 4.2, "Volume Clones"), as the
//! clone's block side knows it.
//!
//! A clone takes over the numbers that the base has in use. The space below has no blocks for them:
//! they are *inherited*, and the parent of the clone has them. So what the clone frees of them
//! frees nothing below, and is never a delayed free. A number that was freed and is taken anew has
//! a block of the clone's own, and so has one whose block was copied to split the clone from its
//! parent. Both count as if they might be inherited: they are not delayed.
//!
//! Four trees of the base are none of the clone's: it has no snapshots, no delayed frees, and other
//! scores of areas. The clone *discards* them in the background, some blocks with each consistency
//! point, so that making a clone takes the same time whatever its size (section 4.2).
//!
//! Invariants: the trees of the base are read as the parent's, which keeps their blocks. The free
//! map of the clone has those numbers of a discarded tree that are still to be freed: the leaves
//! from `next` on, and the nodes above them.
//!
//! Fails: where a block of a discarded tree cannot be read, the numbers of the rest of that tree
//! stay in use; they are told as those of a snapshot's map (`Space::take_kept`). Where a block of
//! the base's free map cannot be read, no free is delayed.

use crate::buftree::{self, FileKey, Root};
use crate::content::Content;
use crate::free_map::{MapFile, is_set, map_block_of};
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop};
use ondisk::pointer::BLOCK_NUMBER_MAX;
use ondisk::records::CloneBase;
use ondisk::root::{DISCARDED_TREES, metafile};
use platform::mutation::{self, Rule};
use std::collections::{BTreeSet, VecDeque};
use units::{Fbn, InodeNumber, Pvbn, VolumeId};

/// How far a clone has got with letting go of the trees of its base.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiscardPlace {
    /// Which of [`DISCARDED_TREES`]: those before it are gone. As many as there are: all are.
    pub tree: usize,
    /// Blocks of that tree before this one are gone.
    pub next: Fbn,
}

/// See the module.
#[derive(Debug)]
pub struct Base<P> {
    /// Numbers that the base has in use.
    map: MapFile<P>,
    /// The trees that the clone lets go of: each with its blocks.
    discarded: [(FileKey, Root<P>, u64); DISCARDED_TREES.len()],
    place: DiscardPlace,
}

impl<P: Pointer> Base<P> {
    /// The base that a volume's record names; `None` in a volume that is no clone.
    #[must_use]
    pub fn of(record: &CloneBase, place: DiscardPlace) -> Option<Self> {
        if !record.is_some() {
            return None;
        }
        let parent = VolumeId(record.parent.get());
        let key = |inode| {
            let is_table = inode == metafile::SNAPSHOT_TABLE;
            let content = if is_table { Content::Snapshots } else { Content::Data };
            FileKey { volume: parent, inode: InodeNumber(inode), content }
        };
        let discarded = std::array::from_fn(|at| {
            let record = &record.discarded[at];
            (key(DISCARDED_TREES[at]), Root::of(record), record.blocks.get())
        });
        let map = MapFile::of(parent, metafile::ACTIVE_MAP, &record.active_map);
        Some(Self { map, discarded, place })
    }

    /// The numbers that the clone took over.
    pub(crate) const fn map(&self) -> &MapFile<P> {
        &self.map
    }

    /// How far the clone has got with its trees.
    #[must_use]
    pub const fn place(&self) -> DiscardPlace {
        self.place
    }

    /// Whether trees are left.
    #[must_use]
    pub const fn has_work(&self) -> bool {
        self.place.tree < DISCARDED_TREES.len()
    }

    const fn next_tree(&mut self) {
        self.place = DiscardPlace { tree: self.place.tree + 1, next: Fbn(0) };
    }

    /// The numbers that go with the next block of the tree that is being let go of, and where the
    /// block behind it is; `None` if the tree has no block more.
    fn next_numbers(&self, reader: &Reader<'_>) -> Progress<Option<(BTreeSet<P::Number>, Fbn)>> {
        let DiscardPlace { tree, next } = self.place;
        let (key, root, _) = &self.discarded[tree];
        let present = |from| buftree::next_present(root, key, from, Fbn::END, reader);
        let Some(index) = present(next)? else { return Ok(None) };
        let (mut numbers, mut behind) = (BTreeSet::new(), BTreeSet::new());
        buftree::numbers(root, key, index, reader, &mut numbers)?;
        // No tree of a volume has a block beyond this number, unless its record is wrong.
        let following = present(index.offset(1))?.filter(|fbn| fbn.get() <= BLOCK_NUMBER_MAX);
        if let Some(following) = following {
            buftree::numbers(root, key, following, reader, &mut behind)?;
        }
        numbers.retain(|number| !behind.contains(number));
        Ok(Some((numbers, following.unwrap_or(Fbn::END))))
    }

    /// Lets go of blocks of its trees: their numbers go to `freed`. `done` counts blocks over calls
    /// of one consistency point, up to `done_max`. Returns, of a tree that cannot be read, the
    /// block and how many numbers of it stay in use at most.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub(super) fn discard(
        &mut self,
        (done, done_max): (&mut u64, u64),
        mut freed: impl FnMut(P::Number),
        reader: &Reader<'_>,
    ) -> Progress<Option<(Pvbn, u64)>> {
        while self.has_work() && *done < done_max {
            match self.next_numbers(reader) {
                Ok(Some((numbers, next))) => {
                    *done += 1;
                    self.place.next = next;
                    numbers.into_iter().for_each(&mut freed);
                    if next == Fbn::END {
                        self.next_tree();
                    }
                }
                Ok(None) => self.next_tree(),
                Err(Stop::Damaged(pvbn)) => {
                    let (.., blocks) = self.discarded[self.place.tree];
                    self.next_tree();
                    return Ok(Some((pvbn, blocks)));
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(None)
    }

    /// Takes those numbers out of `released`, which is in order, that the base has too: the space
    /// below is told of them at once.
    ///
    /// # Errors
    /// What to wait for; then call again.
    pub(super) fn take_inherited(
        &self,
        released: &mut VecDeque<P::Number>,
        reader: &Reader<'_>,
    ) -> Progress<Vec<P::Number>> {
        if mutation::broken(Rule::InheritedFreeDelayed) {
            return Ok(Vec::new());
        }
        let mut inherited = Vec::new();
        let numbers = released.make_contiguous();
        for run in numbers.chunk_by(|one, next| map_block_of(*one) == map_block_of(*next)) {
            match self.map.read(map_block_of(run[0]), reader) {
                Ok(block) => inherited.extend(run.iter().filter(|one| is_set(&block, **one))),
                // To free one of the clone's own at once is right, too.
                Err(Stop::Damaged(_)) => inherited.extend(run),
                Err(stop) => return Err(stop),
            }
        }
        released.retain(|number| inherited.binary_search(number).is_err());
        Ok(inherited)
    }
}
