//! Counting the inodes of an image that are not counted yet, some in each consistency point; and
//! what else its inodes say of changes to the quota file.
//!
//! Invariants: what is counted is the image: changed blocks of the inode file before those of the
//! tree.
//!
//! Fails: with what to wait for. Inodes that cannot be read are not counted, and none after them.

use super::table::{QuotaFile, QuotaWork, quotas_key};
use crate::buftree::{self, Root};
use crate::cleaner::{FileCleaner, Leaf};
use crate::inode::position;
use crate::inode_file::{inode_file_key, record_at};
use crate::pointer::Pointer;
use crate::ranges::RangeSet;
use crate::reader::{Progress, Reader, Stop, Wait};
use ondisk::inode::INODES_PER_BLOCK;
use std::collections::BTreeMap;
use units::{BlockRef, Fbn, InodeNumber, VolumeId};

/// Blocks of the inode file that are loaded together.
const COUNTED_BLOCKS_AHEAD: u64 = 64;

/// Counts inodes of the image whose inode file has this tree, and these blocks above it.
pub(crate) fn count<P: Pointer>(
    work: &mut QuotaWork,
    (root, leaves): (&Root<P>, &BTreeMap<Fbn, BlockRef>),
    volume: VolumeId,
    reader: &Reader<'_>,
) -> Progress<()> {
    match count_readable(work, (root, leaves), volume, reader) {
        // It costs the files whose inodes they are, and the limits, which do not hold: no more.
        Err(Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn)) => {
            tracing::error!(%volume, %pvbn, "files are not counted: their inodes cannot be read");
            work.pause_counting();
            Ok(())
        }
        counted => counted,
    }
}

fn count_readable<P: Pointer>(
    work: &mut QuotaWork,
    (root, leaves): (&Root<P>, &BTreeMap<Fbn, BlockRef>),
    volume: VolumeId,
    reader: &Reader<'_>,
) -> Progress<()> {
    let key = inode_file_key(volume);
    while let Some(from) = work.next_uncounted() {
        let changed = leaves.range(from..).next().map(|(fbn, _)| *fbn);
        let below = buftree::next_present(root, &key, from, Fbn::END, reader)?;
        let Some(fbn) = [changed, below].into_iter().flatten().min() else {
            work.end_counting();
            return Ok(());
        };
        let block = match leaves.get(&fbn) {
            Some(block) => Some(BlockRef::clone(block)),
            None => match buftree::read(root, &key, fbn, reader) {
                Err(Stop::Wait(Wait::Load(_))) => {
                    let ahead = COUNTED_BLOCKS_AHEAD;
                    let missing = buftree::missing(root, &key, fbn, ahead, reader, |_| true)?;
                    return Err(Stop::Wait(Wait::Load(missing)));
                }
                block => block?,
            },
        };
        let records =
            (0..INODES_PER_BLOCK).filter_map(|slot| Some(record_at(block.as_ref()?, slot)));
        work.count_block(fbn, records);
    }
    Ok(())
}

/// Whether there is a tree of this number in the image.
fn is_tree<P: Pointer>(
    tree: u32,
    (root, leaves): (&Root<P>, &BTreeMap<Fbn, BlockRef>),
    volume: VolumeId,
    reader: &Reader<'_>,
) -> Progress<bool> {
    let (fbn, slot) = position(InodeNumber(u64::from(tree)));
    let read = || buftree::read(root, &inode_file_key(volume), fbn, reader);
    let block = match leaves.get(&fbn) {
        Some(block) => Some(BlockRef::clone(block)),
        None => match read() {
            // It may be one, and costs no more than what it is.
            Err(Stop::Damaged(_) | Stop::MetafileDamaged(_)) => return Ok(true),
            block => block?,
        },
    };
    Ok(block.is_some_and(|block| record_at(&block, slot).tree.get() == tree))
}

/// The cleaner of the quota file, with all that changes in it. Limits of a tree whose directory is
/// gone are not set.
pub(crate) fn cleaner<P: Pointer>(
    work: &mut QuotaWork,
    file: &mut QuotaFile<P>,
    (root, leaves): (&Root<P>, &BTreeMap<Fbn, BlockRef>),
    volume: VolumeId,
    reader: &Reader<'_>,
) -> Progress<FileCleaner<P>> {
    work.drop_changes(|tree| {
        is_tree(tree, (root, leaves), volume, reader).map(|is_there| !is_there)
    })?;
    work.put(file, volume, reader)?;
    let leaves = work.take_leaves();
    let end = leaves.last_key_value().map_or(0, |(fbn, _)| fbn.get() + 1);
    file.size_blocks = file.size_blocks.max(end);
    let leaves = leaves.into_iter().map(|(fbn, block)| (fbn, Leaf::Block(block))).collect();
    Ok(FileCleaner::new(quotas_key(volume), file.root, leaves, RangeSet::default(), None))
}
