//! An empty volume.
//!
//! Invariants: everything is dirty, so that the next consistency point writes it. There is no root
//! directory yet; `operations` makes it.

use affinity::AffinityId;
use aggregate::guarantees;
use cowfs::budget::{GROWTH_COST_BLOCKS, Overhead, VOLUME_OVERHEAD_BLOCKS};
use cowfs::inode::{Inode, InodeAttributes};
use cowfs::logical::{Logical, Shared};
use cowfs::overlay::stripe_of;
use cowfs::pointer::Pointer;
use ondisk::inode::KIND_METAFILE;
use ondisk::root::metafile;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Block, Fbn, Generation, InodeNumber, Timestamp, VolumeId};

/// Block numbers of a volume beyond the size that its users see: what its metafiles may take while
/// users' data fills all the rest, and the reserve that only frees may spend.
#[must_use]
pub const fn slack_blocks(size_blocks: u64) -> u64 {
    size_blocks / 32 + 1024
}

/// Block numbers of a volume whose users see this size.
#[must_use]
pub const fn numbers_of(size_blocks: u64) -> u64 {
    size_blocks + slack_blocks(size_blocks)
}

/// Blocks that a volume of this size takes of its aggregate at most: its numbers, and what two
/// images cost beside, one that is being written and the next.
#[must_use]
pub fn room_blocks_max(size_blocks: u64) -> u64 {
    let (overhead, numbers) = (Overhead::default(), numbers_of(size_blocks));
    overhead.set_numbers(numbers);
    numbers + 2 * overhead.whole()
}

/// Blocks that are guaranteed to so many new volumes, and what making them takes.
#[must_use]
pub fn new_room_blocks(size_blocks: u64, count: usize) -> u64 {
    let each = room_blocks_max(size_blocks) + 2 * VOLUME_OVERHEAD_BLOCKS;
    each.saturating_mul(count as u64)
}

/// Blocks that are guaranteed beyond when a volume grows that has so many, and what that takes.
#[must_use]
pub fn growth_room_blocks((from, to): (u64, u64), owned_blocks: u64) -> u64 {
    let lacking = |size_blocks| guarantees::lacking(room_blocks_max(size_blocks), owned_blocks);
    lacking(to).saturating_sub(lacking(from)) + GROWTH_COST_BLOCKS
}

/// The logical side of an empty file system.
#[must_use]
pub fn format_logical<P: Pointer>(
    volume: VolumeId,
    stripes: &[AffinityId],
    shared: Arc<Shared>,
    now: Timestamp,
) -> Logical<P> {
    let mut logical = Logical::empty(volume, stripes, shared);
    let metafile = |size| {
        let mut attributes = InodeAttributes::new(KIND_METAFILE, 0, Generation(1), now);
        attributes.size = size;
        attributes
    };
    for (number, attributes) in
        [(metafile::INODE_MAP, metafile(BLOCK_SIZE_U64)), (metafile::ORPHANS, metafile(0))]
    {
        logical.inodes.insert(InodeNumber(number), Inode::new(attributes));
        logical.push_dirtied(InodeNumber(number));
    }
    let mut map = Block::zeroed();
    for number in 0..metafile::ROOT_DIRECTORY as usize {
        map.bytes_mut()[number / 8] |= 1 << (number % 8);
    }
    let inode_map = InodeNumber(metafile::INODE_MAP);
    let stripe = logical.stripes[stripe_of(inode_map, Fbn(0))].get_mut();
    stripe.put(inode_map, Fbn(0), Arc::new(map), true);
    logical.shared.aggregate.dirty.add(1);
    logical
}
