//! An empty volume.
//!
//! Invariants: everything is dirty, so that the next consistency point writes it. There is no root
//! directory yet; `operations` makes it.

use affinity::{AffinityId, Partition};
use cowfs::buftree::Root;
use cowfs::holds::Holds;
use cowfs::inode::{Inode, InodeAttributes};
use cowfs::logical::{Logical, Shared};
use cowfs::orphans::OrphanList;
use cowfs::overlay::{Stripe, stripe_of};
use cowfs::pointer::Pointer;
use ondisk::inode::KIND_METAFILE;
use ondisk::root::metafile;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Block, Fbn, Generation, InodeNumber, Timestamp, VolumeId};

/// Block numbers of a volume beyond the size that its users see: what its metafiles may take while
/// users' data fills all the rest, and the reserve that only frees may spend.
#[must_use]
pub const fn slack_blocks(size_blocks: u64) -> u64 {
    size_blocks / 32 + 1024
}

/// The logical side of an empty file system.
#[must_use]
pub fn format_logical<P: Pointer>(
    volume: VolumeId,
    stripes: &[AffinityId],
    shared: Arc<Shared>,
    now: Timestamp,
) -> Logical<P> {
    let mut logical = empty_logical(volume, stripes, shared);
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

/// A logical side with nothing in it.
pub(crate) fn empty_logical<P: Pointer>(
    volume: VolumeId,
    stripes: &[AffinityId],
    shared: Arc<Shared>,
) -> Logical<P> {
    let stripes = stripes.iter().map(|stripe| Partition::new(*stripe, Stripe::default())).collect();
    Logical {
        volume,
        inode_file: Root::default(),
        inodes: FxHashMap::default(),
        holds: Holds::default(),
        reaping_inodes: 0,
        trim_above: 0,
        stripes,
        dirtied: Vec::new(),
        frozen_inodes: 0,
        next_generation: 1,
        used_inodes: 0,
        orphans: OrphanList::default(),
        full_map_blocks: FxHashSet::default(),
        quarantine: FxHashSet::default(),
        frozen_quarantine: FxHashSet::default(),
        inode_hint: metafile::FIRST_FILE,
        renumbered: false,
        snapshots: Vec::new(),
        suspended: false,
        replaying: false,
        shared,
    }
}
