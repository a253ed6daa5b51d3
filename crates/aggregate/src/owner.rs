//! What the identifier beside a block says of its owner (decision 11).

use cowfs::content::Content;
use cowfs::logical::INODE_FILE;
use cowfs::pointer::BlockPlace;
use ondisk::identity::BlockOwner;
use ondisk::root::VOL_INFO_VVBN;
use units::{CpNumber, Fbn, InodeNumber, VolumeId, Vvbn};

/// Inode number under which vol_info blocks are identified on media: no file has it.
pub const VOL_INFO_INODE: InodeNumber = InodeNumber(u32::MAX as u64);

/// The place of a volume's vol_info block.
#[must_use]
pub const fn vol_info_place(volume: VolumeId) -> BlockPlace {
    BlockPlace { volume, inode: VOL_INFO_INODE, level: 0, index: 0, content: Content::Data }
}

/// What a volume's block holds.
pub(crate) const fn content_of(owner: &BlockOwner) -> Content {
    match owner.kind {
        2 => Content::Pointers,
        3 => Content::Inodes,
        4 => Content::Snapshots,
        _ => Content::Data,
    }
}

/// The owner of the block at `place`.
#[must_use]
pub fn block_owner(place: &BlockPlace, vvbn: Vvbn, cp: CpNumber) -> BlockOwner {
    let kind = match place.content {
        _ if place.inode == INODE_FILE && place.level == 0 => 3,
        Content::Data => 1,
        Content::Pointers => 2,
        Content::Inodes => 3,
        Content::Snapshots => 4,
    };
    // A reader that comes through the container map knows no VVBN but that of vol_info.
    let vvbn = if place.inode == VOL_INFO_INODE { VOL_INFO_VVBN } else { vvbn };
    BlockOwner {
        kind,
        level: place.level,
        volume: place.volume,
        vvbn,
        inode: place.inode,
        fbn: Fbn(place.index),
        cp,
    }
}
