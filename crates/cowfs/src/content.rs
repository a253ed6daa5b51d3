//! What a block holds, and its checksum in the tree.
//!
//! The checksum of a block that holds pointers is taken with their PVBNs as zero (decision 11): it
//! stays true when a mirror or the cleaner changes PVBNs. A hole has no PVBN that could change: its
//! bytes count as they are, so that rot in them is seen.
//!
//! Invariants: for data the checksum is the CRC32C of the bytes.

use ondisk::identity::crc32c;
use ondisk::inode::{INODE_SIZE, INODES_PER_BLOCK, PAYLOAD_SIZE};
use ondisk::pointer::DualPointer;
use ondisk::records::{SNAPSHOTS_PER_BLOCK, SnapshotRecord};
use units::{BLOCK_SIZE, Block};

/// What a block of a volume holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Bytes without pointers.
    Data,
    /// An indirect block: pointers from end to end.
    Pointers,
    /// Inodes.
    Inodes,
    /// Snapshot records, each with an inode in it.
    Snapshots,
}

/// CRC32C of `block` with the PVBNs of the dual pointers in it as zero.
#[must_use]
pub fn content_checksum(block: &Block, content: Content) -> u32 {
    match content {
        Content::Data => crc32c(block),
        Content::Pointers => {
            let mut masked = block.clone();
            mask(masked.bytes_mut());
            crc32c(&masked)
        }
        Content::Inodes => {
            let mut masked = block.clone();
            for index in 0..INODES_PER_BLOCK {
                mask_inode(&mut masked.bytes_mut()[index * INODE_SIZE..(index + 1) * INODE_SIZE]);
            }
            crc32c(&masked)
        }
        Content::Snapshots => {
            let mut masked = block.clone();
            let size = size_of::<SnapshotRecord>();
            let inodes = [
                std::mem::offset_of!(SnapshotRecord, inode_file),
                std::mem::offset_of!(SnapshotRecord, snapshot_table),
            ];
            for index in 0..SNAPSHOTS_PER_BLOCK {
                for inode in inodes {
                    let start = index * size + inode;
                    mask_inode(&mut masked.bytes_mut()[start..start + INODE_SIZE]);
                }
            }
            crc32c(&masked)
        }
    }
}

/// Zeroes the PVBNs of an inode's pointers; inline content (depth 0) has none.
fn mask_inode(inode: &mut [u8]) {
    let depth = inode[std::mem::offset_of!(ondisk::inode::InodeRecord, depth)];
    if depth > 0 {
        mask(&mut inode[INODE_SIZE - PAYLOAD_SIZE..]);
    }
}

fn mask(pointers: &mut [u8]) {
    debug_assert!(pointers.len() <= BLOCK_SIZE);
    let (pointers, _) = pointers.as_chunks_mut::<{ DualPointer::SIZE }>();
    for pointer in pointers {
        *pointer = DualPointer::without_pvbn(*pointer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Pvbn, Vvbn};

    #[test]
    fn moving_a_child_keeps_the_checksum() {
        let pointer =
            |pvbn, vvbn| DualPointer { vvbn: Vvbn(vvbn), pvbn: Pvbn(pvbn), flags: 0, checksum: 5 };
        let block = |pvbn, vvbn| {
            let mut block = Block::zeroed();
            block[160..176].copy_from_slice(&pointer(pvbn, vvbn).encode());
            block
        };
        let sum = |block: &Block| content_checksum(block, Content::Pointers);
        assert_eq!(sum(&block(7, 9)), sum(&block(8, 9)));
        assert_ne!(sum(&block(7, 9)), sum(&block(7, 10)));
        assert_ne!(
            content_checksum(&block(7, 9), Content::Data),
            content_checksum(&block(8, 9), Content::Data)
        );
    }

    /// A bit of a hole's PVBN that rot on a disk passed for a sound block, which was never empty:
    /// freeing the file ended the aggregate's service.
    #[test]
    fn regression_rot_in_a_hole_changes_the_checksum() {
        let sound = Block::zeroed();
        let sum = |block: &Block| content_checksum(block, Content::Pointers);
        for bit in 0..DualPointer::SIZE * 8 {
            let mut rotten = sound.clone();
            rotten[160 + bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum(&sound), sum(&rotten), "bit {bit}");
        }
    }
}
