//! What a transaction adds to the quotas of users, groups and trees ([`crate::quotas`]).
//!
//! Invariants: what is charged is never less than what the next image comes to count.
//!
//! Fails: as [`Quotas::admit`] does.
//!
//! [`Quotas::admit`]: crate::quotas::Quotas::admit

use super::{Edit, Transaction};
use crate::budget::Spender;
use crate::buftree::Walk;
use crate::inode::Inode;
use crate::logical::{Overlaid, overlaid};
use crate::overlay::stripe_of;
use crate::pointer::Pointer;
use crate::quotas::{Admission, Charge, QuotaRoom, Source, is_tiny};
use crate::reader::Progress;
use ondisk::inode::{KIND_ATTRIBUTES, KIND_METAFILE};
use ondisk::quota::QuotaKey;
use ondisk::root::metafile;
use std::sync::Arc;
use units::{Fbn, InodeNumber};

/// Admits what a transaction adds.
pub(super) fn admit<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    spender: Spender,
) -> Progress<Admission> {
    let shared = Arc::clone(&transaction.logical.shared);
    if !shared.quotas.is_counting() {
        return Ok(Admission::default());
    }
    let charges = charges(transaction);
    let (inode_file, volume) = (transaction.logical.inode_file, transaction.logical.volume);
    let reader = transaction.reader;
    let source = Source { inode_file: &inode_file, volume, reader: &reader };
    shared.quotas.admit(&source, spender, &charges, |inode| count_new(transaction, inode))
}

impl<P: Pointer> Transaction<'_, P> {
    /// What the hard limits of an owner leave it.
    ///
    /// # Errors
    /// What to wait for, or damage.
    pub fn quota_room(&self, key: QuotaKey) -> Progress<Option<QuotaRoom>> {
        self.logical.shared.quotas.room(&self.quota_source(), key)
    }

    /// Whether anything counts to an owner.
    ///
    /// # Errors
    /// What to wait for, or damage.
    pub fn is_quota_used(&self, key: QuotaKey) -> Progress<bool> {
        self.logical.shared.quotas.is_used(&self.quota_source(), key)
    }

    fn quota_source(&self) -> Source<'_, P> {
        let (inode_file, volume) = (&self.logical.inode_file, self.logical.volume);
        Source { inode_file, volume, reader: &self.reader }
    }
}

fn charges<P: Pointer>(transaction: &mut Transaction<'_, P>) -> Vec<Charge> {
    let numbers: Vec<InodeNumber> = transaction.inodes.keys().copied().collect();
    let charge = |number: InodeNumber| {
        let written_blocks = Growth::of(transaction, number).blocks_max();
        let edit = transaction.inodes.get(&number)?;
        let found = transaction.logical.inodes.get(&number).filter(|_| !edit.created);
        charge(edit, number, found, written_blocks, is_punched(transaction, number, None))
    };
    numbers.into_iter().filter_map(charge).collect()
}

fn charge<P: Pointer>(
    edit: &Edit,
    inode: InodeNumber,
    found: Option<&Inode<P>>,
    written_blocks: u64,
    is_punched: bool,
) -> Option<Charge> {
    let now = &edit.attributes;
    if inode.get() < metafile::ROOT_DIRECTORY || now.kind == KIND_METAFILE {
        return None;
    }
    let before = found.map(|found| {
        let shared = found.shared.lock();
        let state = &shared.attributes;
        // Its content lies in the inode, and the next image has it in a block.
        let leaves_inode =
            found.root.depth == 0 && !found.root.is_empty() && !is_tiny(state.kind, state.size);
        let uncounted = shared.new_blocks.0 + shared.new_blocks.1 + u64::from(leaves_inode);
        (state.owner(), found.blocks + uncounted, uncounted)
    });
    let (former, kept_blocks, uncounted_blocks) = before.unwrap_or((now.owner(), 0, 0));
    Some(Charge {
        inode,
        owner: if edit.freed { former } else { now.owner() },
        former,
        kept_blocks,
        uncounted_blocks,
        written_blocks,
        is_file: now.kind != KIND_ATTRIBUTES,
        is_new: edit.created,
        frees: edit.freed || edit.reaping || now.links == 0 || is_punched,
    })
}

/// The blocks that a transaction may add to a file.
struct Growth {
    /// Blocks that become dirty.
    written: Vec<Fbn>,
    /// The file lay in its inode, if it was there at all.
    was_tiny: bool,
    /// Its content leaves the inode and becomes block 0, which is not among those above.
    leaves_inode: bool,
}

impl Growth {
    fn of<P: Pointer>(transaction: &mut Transaction<'_, P>, inode: InodeNumber) -> Self {
        let none = Self { written: Vec::new(), was_tiny: false, leaves_inode: false };
        let Some(edit) = transaction.inodes.get(&inode) else { return none };
        let (kind, size) = (edit.attributes.kind, edit.attributes.size);
        if edit.freed || is_tiny(kind, size) {
            return none;
        }
        let found = transaction.logical.inodes.get(&inode).filter(|_| !edit.created);
        let size_before = found.map(|found| found.shared.lock().attributes.size);
        let was_tiny = is_tiny(kind, size_before.unwrap_or(0));
        let written = written(transaction, inode);
        // It may be dirty, and was not charged for while the file was tiny.
        let has_content = size_before.is_some_and(|size| size > 0);
        let leaves_inode = was_tiny && has_content && written.first() != Some(&Fbn(0));
        Self { written, was_tiny, leaves_inode }
    }

    fn blocks_max(&self) -> u64 {
        self.written.len() as u64 + u64::from(self.leaves_inode)
    }
}

/// Blocks of a file that become dirty, in order.
fn written<P: Pointer>(transaction: &mut Transaction<'_, P>, inode: InodeNumber) -> Vec<Fbn> {
    let mut written = Vec::new();
    for ((_, fbn), _) in transaction.blocks.range((inode, Fbn(0))..=(inode, Fbn::END)) {
        let stripe = transaction.logical.stripes[stripe_of(inode, *fbn)].get_mut();
        let is_dirty = stripe.active(inode, *fbn).is_some();
        if !is_dirty || is_punched(transaction, inode, Some(*fbn)) {
            written.push(*fbn);
        }
    }
    written
}

/// Whether a file block, or any, is punched before it is written.
fn is_punched<P: Pointer>(
    transaction: &Transaction<'_, P>,
    inode: InodeNumber,
    fbn: Option<Fbn>,
) -> bool {
    let mut holes = transaction.holes.iter().filter(|hole| hole.0 == inode);
    holes.any(|hole| fbn.is_none_or(|fbn| hole.1 <= fbn && fbn < hole.2))
}

/// Blocks that a file gets where it had a hole.
fn count_new<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
) -> Progress<u64> {
    let Growth { written, was_tiny, leaves_inode } = Growth::of(transaction, inode);
    let leaves_inode = u64::from(leaves_inode);
    let is_new = transaction.inodes.get(&inode).is_some_and(|edit| edit.created);
    let key = transaction.logical.key(inode);
    let reader = transaction.reader;
    let (mut count, mut stopped) = (0, Ok(()));
    let punched: Vec<bool> =
        written.iter().map(|fbn| is_punched(transaction, inode, Some(*fbn))).collect();
    let logical = &mut *transaction.logical;
    let Some(found) = logical.inodes.get(&inode).filter(|_| !is_new) else {
        return Ok(written.len() as u64 + leaves_inode);
    };
    let mut walk = Walk::new(&found.root, &key, reader);
    for (fbn, is_punched) in written.into_iter().zip(punched) {
        let stripe = logical.stripes[stripe_of(inode, fbn)].get_mut();
        let is_hole = is_punched
            || was_tiny && fbn == Fbn(0)
            || match overlaid(found, inode, fbn, stripe) {
                Overlaid::Block(_) => false,
                Overlaid::Hole => true,
                Overlaid::Below => match walk.find(fbn) {
                    Ok(pointer) => pointer.is_hole(),
                    Err(stop) => {
                        stopped = stopped.and(Err(stop));
                        false
                    }
                },
            };
        count += u64::from(is_hole);
    }
    stopped.map(|()| count + leaves_inode)
}
