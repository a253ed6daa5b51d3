//! What operations ask of a file's content beyond single blocks: ranges, data and holes, what the
//! log does not have yet, and whether an orphan is empty.
//!
//! Invariants: nothing here changes anything before the transaction is applied. Searches look at
//! the file as it is below the transaction; they are for operations that have not changed it.

use super::{Transaction, map_position};
use crate::buftree::{self, Walk};
use crate::inode::Inode;
use crate::logical::{Overlaid, overlaid};
use crate::overlay::{DirtyFiles, Stripe, stripe_of};
use crate::pointer::Pointer;
use crate::ranges::RangeSet;
use crate::reader::{Progress, Stop, Wait};
use affinity::Partition;
use ondisk::root::metafile;
use platform::mutation::{self, Rule};
use units::{BlockNumber, BlockRef, Fbn, InodeNumber};

impl<P: Pointer> Transaction<'_, P> {
    /// The content of `count` file blocks; `None` for holes. All loads that are missing are asked
    /// for at once.
    ///
    /// # Errors
    /// What to wait for.
    pub fn read_range(
        &mut self,
        inode: InodeNumber,
        first: Fbn,
        count: u64,
    ) -> Progress<Vec<Option<BlockRef>>> {
        let mut blocks = Vec::with_capacity(count as usize);
        let mut missing = Vec::new();
        let in_use = self.logical.load(inode, &self.reader)?;
        self.check_content(inode)?;
        let key = self.logical.key(inode);
        let Some(found) = self.logical.inodes.get(&inode).filter(|_| in_use) else {
            let blocks = first.until(first.offset(count));
            return blocks.map(|fbn| Ok(self.own(inode, fbn).flatten())).collect();
        };
        let mut walk = Walk::new(&found.root, &key, self.reader);
        for fbn in first.until(first.offset(count)) {
            let block = match self.own(inode, fbn) {
                Some(own) => Ok(own),
                None => {
                    let stripe = self.logical.stripes[stripe_of(inode, fbn)].get_mut();
                    match overlaid(found, inode, fbn, stripe) {
                        Overlaid::Block(block) => Ok(Some(block)),
                        Overlaid::Hole => Ok(None),
                        Overlaid::Below => walk.read(fbn),
                    }
                }
            };
            match block {
                Ok(block) => blocks.push(block),
                Err(Stop::Wait(Wait::Load(requests))) => {
                    for request in requests {
                        // Neighbours wait for one indirect block.
                        if missing.last() != Some(&request) {
                            missing.push(request);
                        }
                    }
                }
                Err(stop) => return Err(stop),
            }
        }
        if missing.is_empty() { Ok(blocks) } else { Err(Stop::Wait(Wait::Load(missing))) }
    }

    /// Blocks of the file that this transaction makes dirty.
    pub(super) fn added_blocks(&mut self, inode: InodeNumber) -> u64 {
        if self.blocks.is_empty() {
            return 0;
        }
        let stripes = &mut self.logical.stripes;
        let own = self.blocks.range((inode, Fbn(0))..=(inode, Fbn::END)).filter(|((_, fbn), _)| {
            stripes[stripe_of(inode, *fbn)].get_mut().active(inode, *fbn).is_none()
        });
        own.count() as u64
    }

    /// Whether an inode number is in use.
    ///
    /// # Errors
    /// What to wait for.
    pub fn is_in_use(&mut self, inode: InodeNumber) -> Progress<bool> {
        let (fbn, byte, bit) = map_position(inode);
        let block = self.read(InodeNumber(metafile::INODE_MAP), fbn)?;
        Ok(block.is_some_and(|block| block[byte] & bit != 0))
    }

    /// The file's blocks whose content is not in the log: it may be lost. Those that a running
    /// consistency point is writing count until it has committed.
    #[must_use]
    pub fn unlogged(&mut self, inode: InodeNumber) -> Vec<Fbn> {
        let Some(found) = self.logical.inodes.get(&inode) else { return Vec::new() };
        let mut blocks = Vec::new();
        for stripe in &mut self.logical.stripes {
            let stripe = stripe.get_mut();
            if let Some(file) = stripe.active.get(&inode) {
                blocks.extend(file.unlogged());
            }
            let is_frozen = found.frozen && !mutation::broken(Rule::CommitForgetsFrozen);
            if let (true, Some(file)) = (is_frozen, stripe.frozen.get(&inode)) {
                let live =
                    |fbn: &Fbn| !found.holes.contains(*fbn) || stripe.active(inode, *fbn).is_some();
                blocks.extend(file.unlogged().filter(live));
            }
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// All of the file's active blocks are in the log when this is applied.
    pub const fn set_logged(&mut self, inode: InodeNumber) {
        self.logged = Some(inode);
    }

    /// Whether nothing is left of a file's content, neither in its tree nor on the way there. A
    /// consistency point that has the file frozen without blocks brings none.
    #[must_use]
    pub fn is_emptied(&mut self, inode: InodeNumber) -> bool {
        let Some(found) = self.logical.inodes.get(&inode) else { return false };
        found.root.is_empty()
            && self.logical.stripes.iter_mut().all(|stripe| {
                let stripe = stripe.get_mut();
                !stripe.active.contains_key(&inode) && !stripe.frozen.contains_key(&inode)
            })
    }

    /// Has consistency points free the file's blocks, some in each, and punches it.
    ///
    /// # Errors
    /// What to wait for.
    pub fn reap(&mut self, inode: InodeNumber) -> Progress<()> {
        // A quarantined file is reaped, too: what can be read of it is freed.
        self.punch_any(inode, Fbn(0), Fbn::END)?;
        if let Some(edit) = self.inodes.get_mut(&inode) {
            edit.reaping = true;
        }
        Ok(())
    }

    /// The first file block in `from..end` that is no hole.
    ///
    /// # Errors
    /// What to wait for.
    pub fn next_present(
        &mut self,
        inode: InodeNumber,
        from: Fbn,
        end: Fbn,
    ) -> Progress<Option<Fbn>> {
        if !self.logical.load(inode, &self.reader)? {
            return Ok(None);
        }
        self.check_content(inode)?;
        let key = self.logical.key(inode);
        let Some(found) = self.logical.inodes.get(&inode) else { return Ok(None) };
        let stripes = &mut self.logical.stripes;
        let mut at = from;
        while at < end {
            let active = next_dirty(stripes, |stripe| &stripe.active, inode, at, end);
            let frozen = next_frozen(stripes, found, inode, at, end);
            let below = buftree::next_present(&found.root, &key, at, end, &self.reader)?;
            let candidate = [active, frozen, below].into_iter().flatten().min();
            let Some(candidate) = candidate else { return Ok(None) };
            let stripe = stripes[stripe_of(inode, candidate)].get_mut();
            match overlaid(found, inode, candidate, stripe) {
                Overlaid::Block(_) | Overlaid::Below => return Ok(Some(candidate)),
                Overlaid::Hole => {}
            }
            // On to the end of the hole, or to what was written on top of it.
            let next = candidate.offset(1);
            let active = next_dirty(stripes, |stripe| &stripe.active, inode, next, end);
            at = match (range_end(&found.holes, candidate), active) {
                (Some(hole_end), active) => hole_end.min(active.unwrap_or(Fbn::END)),
                (None, active) => {
                    let hole_end = range_end(&found.frozen_holes, candidate).unwrap_or(next);
                    let frozen = next_frozen(stripes, found, inode, next, end);
                    hole_end.min(active.unwrap_or(Fbn::END)).min(frozen.unwrap_or(Fbn::END))
                }
            };
        }
        Ok(None)
    }

    /// The first file block in `from..end` that is a hole; `end` if there is none.
    ///
    /// # Errors
    /// What to wait for.
    pub fn next_absent(&mut self, inode: InodeNumber, from: Fbn, end: Fbn) -> Progress<Fbn> {
        if !self.logical.load(inode, &self.reader)? {
            return Ok(from);
        }
        self.check_content(inode)?;
        let key = self.logical.key(inode);
        let Some(found) = self.logical.inodes.get(&inode) else { return Ok(from) };
        let mut at = from;
        while at < end {
            let stripe = self.logical.stripes[stripe_of(inode, at)].get_mut();
            match overlaid(found, inode, at, stripe) {
                Overlaid::Block(_) => at = at.offset(1),
                Overlaid::Hole => return Ok(at),
                Overlaid::Below => {
                    // As far as the tree alone says, unless a hole was made before that.
                    let holes =
                        [range_start(&found.holes, at), range_start(&found.frozen_holes, at)];
                    let limit = holes.into_iter().flatten().fold(end, Fbn::min);
                    let below = buftree::next_absent(&found.root, &key, at, limit, &self.reader)?;
                    if below == at {
                        return Ok(at);
                    }
                    at = below;
                }
            }
        }
        Ok(end)
    }
}

/// The start of the first range after `fbn`.
fn range_start(ranges: &RangeSet, fbn: Fbn) -> Option<Fbn> {
    let ranges = ranges.ranges();
    ranges.get(ranges.partition_point(|range| range.0 <= fbn)).map(|range| range.0)
}

fn next_dirty(
    stripes: &mut [Partition<Stripe>],
    files: impl Fn(&Stripe) -> &DirtyFiles,
    inode: InodeNumber,
    from: Fbn,
    end: Fbn,
) -> Option<Fbn> {
    if from >= end {
        return None;
    }
    let next = |stripe: &mut Partition<Stripe>| {
        let file = files(stripe.get_mut()).get(&inode)?;
        file.range(from, end).next().map(|(fbn, _)| fbn)
    };
    stripes.iter_mut().filter_map(next).min()
}

fn next_frozen<P: Pointer>(
    stripes: &mut [Partition<Stripe>],
    found: &Inode<P>,
    inode: InodeNumber,
    from: Fbn,
    end: Fbn,
) -> Option<Fbn> {
    if !found.frozen {
        return None;
    }
    next_dirty(stripes, |stripe| &stripe.frozen, inode, from, end)
}

/// The end of the range that `fbn` lies in.
fn range_end(ranges: &RangeSet, fbn: Fbn) -> Option<Fbn> {
    let ranges = ranges.ranges();
    let at = ranges.partition_point(|range| range.1 <= fbn);
    ranges.get(at).filter(|range| range.0 <= fbn).map(|range| range.1)
}
