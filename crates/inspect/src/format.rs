//! The formats of pointers and of checksums in the tree, read anew: nothing here is shared with the
//! code that writes them.
//!
//! Invariants: a pointer whose block number is zero is a hole, and all its bytes are zero.

use ondisk::identity::crc32c;
use ondisk::inode::{INODE_SIZE, InodeRecord, PAYLOAD_SIZE};
use ondisk::pointer::{AGE_COLD, AGE_STAYS, DualPointer, PhysicalPointer};
use ondisk::records::SnapshotRecord;
use units::{BLOCK_SIZE, Block, Pvbn};

/// What a block holds, as far as its checksum and its identity depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Data,
    Pointers,
    Inodes,
    Snapshots,
}

impl Content {
    /// Its number in a block's identity.
    pub const fn kind(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Pointers => 2,
            Self::Inodes => 3,
            Self::Snapshots => 4,
        }
    }
}

/// Which pointers a file system uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Eight bytes, within an aggregate.
    Physical,
    /// Sixteen bytes, within a volume.
    Dual,
}

/// A pointer of either format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// The block's number in the file system's own space.
    pub vbn: u64,
    /// Where the pointer says that it lies.
    pub pvbn: Pvbn,
    /// 16 or 32 bits of the block's checksum.
    pub check: u32,
    /// Bits that must be zero are.
    pub is_sound: bool,
}

impl Format {
    pub const fn size(self) -> usize {
        match self {
            Self::Physical => PhysicalPointer::SIZE,
            Self::Dual => DualPointer::SIZE,
        }
    }

    /// File blocks that a node at `level` covers.
    pub fn span(self, level: u8) -> u64 {
        let fanout = (BLOCK_SIZE / self.size()) as u64;
        (0..level).fold(1_u64, |span, _| span.saturating_mul(fanout))
    }

    /// Pointers in `bytes` that are no holes or not sound, with their indexes.
    pub fn links(self, bytes: &[u8]) -> Vec<(u64, Link)> {
        let pointers = (0..).zip(bytes.chunks_exact(self.size()));
        pointers
            .filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0))
            .map(|(index, bytes)| (index, self.link(bytes)))
            .collect()
    }

    fn link(self, bytes: &[u8]) -> Link {
        let number =
            bytes.iter().rev().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
        let low = (number & ((1 << 44) - 1)) as u64;
        match self {
            Self::Physical => {
                let age = (number >> 44) as u8 & AGE_STAYS;
                let is_sound = low != 0 && (age <= AGE_COLD || age == AGE_STAYS);
                let check = (number >> 48) as u32 & 0xffff;
                Link { vbn: low, pvbn: Pvbn(low), check, is_sound }
            }
            Self::Dual => {
                let pvbn = Pvbn((number >> 44 & ((1 << 44) - 1)) as u64);
                let is_sound = low != 0 && number >> 88 & 0xff == 0;
                Link { vbn: low, pvbn, check: (number >> 96) as u32, is_sound }
            }
        }
    }
}

/// The CRC32C that a dual pointer to `block` carries: with the PVBNs in the block as zero.
pub(crate) fn tree_checksum(block: &Block, content: Content) -> u32 {
    if content == Content::Data {
        return crc32c(block);
    }
    let mut masked = block.clone();
    match content {
        Content::Data => {}
        Content::Pointers => mask_pointers(masked.bytes_mut()),
        Content::Inodes => masked.chunks_exact_mut(INODE_SIZE).for_each(mask_inode),
        Content::Snapshots => {
            let inodes = [
                std::mem::offset_of!(SnapshotRecord, inode_file),
                std::mem::offset_of!(SnapshotRecord, snapshot_table),
            ];
            for record in masked.chunks_exact_mut(size_of::<SnapshotRecord>()) {
                for at in inodes {
                    record.get_mut(at..at + INODE_SIZE).into_iter().for_each(mask_inode);
                }
            }
        }
    }
    crc32c(&masked)
}

/// Zeroes the PVBNs of an inode that has pointers.
pub(crate) fn mask_inode(inode: &mut [u8]) {
    let depth = inode.get(std::mem::offset_of!(InodeRecord, depth)).copied();
    if depth.is_some_and(|depth| depth > 0) {
        inode.get_mut(INODE_SIZE - PAYLOAD_SIZE..).into_iter().for_each(mask_pointers);
    }
}

/// Zeroes bits 44 to 87 of each 128-bit pointer.
fn mask_pointers(bytes: &mut [u8]) {
    for pointer in bytes.as_chunks_mut::<{ DualPointer::SIZE }>().0 {
        pointer[5] &= 0x0f;
        pointer[6..11].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Vvbn;

    #[test]
    fn pointers_decode_as_they_were_encoded() {
        let dual = DualPointer {
            vvbn: Vvbn((1 << 44) - 2),
            pvbn: Pvbn((1 << 44) - 5),
            flags: 0,
            checksum: 0xdead_beef,
        };
        let mut bytes = [0; 64];
        bytes[32..48].copy_from_slice(&dual.encode());
        let links = Format::Dual.links(&bytes);
        let link =
            Link { vbn: dual.vvbn.get(), pvbn: dual.pvbn, check: 0xdead_beef, is_sound: true };
        assert_eq!(links, [(2, link)]);
        bytes[32 + 11] = 1;
        assert!(!Format::Dual.links(&bytes)[0].1.is_sound, "flags are reserved");
        let physical = PhysicalPointer::new(Pvbn(77), 0xabcd);
        let mut bytes = physical.encode();
        let link = Link { vbn: 77, pvbn: Pvbn(77), check: 0xabcd, is_sound: true };
        assert_eq!(Format::Physical.links(&bytes), [(0, link)]);
        bytes[5] |= 0x90;
        assert_eq!(Format::Physical.links(&bytes), [(0, link)], "an age is no part of it");
        bytes[5] |= 0x20;
        assert!(!Format::Physical.links(&bytes)[0].1.is_sound, "there is no such age");
        assert!(
            !Format::Physical.links(&[0, 0, 0, 0, 0, 0, 9, 0])[0].1.is_sound,
            "a hole with a check"
        );
    }

    #[test]
    fn checksums_do_not_see_places() {
        let pointer = |pvbn| DualPointer { vvbn: Vvbn(3), pvbn: Pvbn(pvbn), flags: 0, checksum: 1 };
        let with = |at: usize, depth_at: Option<usize>, pvbn| {
            let mut block = Block::zeroed();
            block[at..at + 16].copy_from_slice(&pointer(pvbn).encode());
            depth_at.into_iter().for_each(|at| block[at] = 1);
            block
        };
        for (content, at, depth_at) in [
            (Content::Pointers, 4080, None),
            (Content::Inodes, 256 + 144, Some(257)),
            (Content::Snapshots, 1024 + 256 + 144, Some(1024 + 257)),
        ] {
            let sum = |pvbn| tree_checksum(&with(at, depth_at, pvbn), content);
            assert_eq!(sum(7), sum((1 << 44) - 1), "{content:?}");
            assert_ne!(crc32c(&with(at, depth_at, 7)), crc32c(&with(at, depth_at, 8)));
        }
        let inline = |pvbn| tree_checksum(&with(256 + 144, None, pvbn), Content::Inodes);
        assert_ne!(inline(7), inline(8), "inline content has no pointers");
    }
}
