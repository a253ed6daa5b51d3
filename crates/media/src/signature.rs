//! Recognises what is on a disk before anything is written to it.
//!
//! Not a complete list of formats, and it need not be: what is not zero is refused as well. Names
//! are for the operator, who must decide.

use ondisk::damage::Damage;
use ondisk::label::DiskLabel;
use std::fmt;
use units::{AggregateUuid, BLOCK_SIZE, BlockRef};

/// Blocks that are looked at, at each end of the disk: 256 KiB, the largest structure that a
/// format keeps there (ZFS labels).
pub const PROBED_BLOCKS: usize = 64;

/// What is on a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// A label of ours.
    Stroop {
        /// The aggregate's name.
        aggregate_name: String,
        /// The aggregate's identity.
        aggregate: AggregateUuid,
    },
    /// A label of ours that this build does not read.
    Unread {
        /// What is wrong with it, or that another build wrote it.
        damage: Damage,
    },
    /// A format that we know by name.
    Foreign(&'static str),
    /// Something.
    Data {
        /// The first block that is not zero.
        block: u64,
    },
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stroop { aggregate_name, aggregate } => {
                write!(formatter, "a part of the Stroop aggregate '{aggregate_name}' ({aggregate})")
            }
            Self::Unread { damage } if damage.is_of_another_build() => {
                write!(formatter, "a disk of another build of Stroop ({damage})")
            }
            Self::Unread { damage } => {
                write!(formatter, "a disk of Stroop whose label is damaged ({damage})")
            }
            Self::Foreign(name) => formatter.write_str(name),
            Self::Data { block } => write!(formatter, "unknown data (block {block} is not zero)"),
        }
    }
}

/// A format: name, offset from the start of the disk, bytes there. The most telling first: a
/// partition table says less than a file system, and many of those carry an MBR's mark too.
const AT_START: [(&str, usize, &[u8]); 19] = [
    ("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    ("a LUKS encrypted volume", 0x4000, b"SKUL\xba\xbe"),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an LVM physical volume", 512 + 24, b"LVM2 001"),
    ("an LVM physical volume", 24, b"LVM2 001"),
    ("an ext2, ext3 or ext4 file system", 1024 + 56, b"\x53\xef"),
    ("swap space", BLOCK_SIZE - 10, b"SWAPSPACE2"),
    ("swap space", BLOCK_SIZE - 10, b"SWAP-SPACE"),
    ("a member of a Linux md RAID", 0, b"\xfc\x4e\x2b\xa9"),
    ("a member of a Linux md RAID", BLOCK_SIZE, b"\xfc\x4e\x2b\xa9"),
    ("a bcachefs or bcache device", BLOCK_SIZE + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    ("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a CD or DVD image", 0x8001, b"CD001"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", BLOCK_SIZE, b"EFI PART"),
    ("an MBR partition table or boot sector", 510, b"\x55\xaa"),
];

/// ZFS keeps its uberblocks from 128 KiB on, one to each KiB.
const ZFS_NAME: &str = "a member of a ZFS pool";
const ZFS_RING: std::ops::Range<usize> = 128 << 10..256 << 10;
const ZFS_MAGICS: [&[u8]; 2] =
    [b"\x0c\xb1\xba\x00\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\xba\xb1\x0c"];

/// A format that has its mark at the end: name, offset from there, bytes.
const AT_END: [(&str, usize, &[u8]); 2] = [
    ("a GPT partition table", 512, b"EFI PART"),
    ("a member of a Linux md RAID", 8192, b"\xfc\x4e\x2b\xa9"),
];

/// What the two copies of a label say, if one of them is a label. A newer build's may be the one
/// that counts.
fn identify_label<'a>(copies: impl Iterator<Item = &'a BlockRef>) -> Option<Found> {
    let (mut whole, mut unread) = (None, None);
    for block in copies.filter(|block| DiskLabel::is_claimed_by(block)) {
        match DiskLabel::from_block(block) {
            Ok(label) => whole = whole.or(Some(label)),
            Err(damage) if damage.is_of_newer_build() => return Some(Found::Unread { damage }),
            Err(damage) => unread = unread.or(Some(damage)),
        }
    }
    let stroop = |label: DiskLabel| Found::Stroop {
        aggregate_name: label.name().unwrap_or_default().to_owned(),
        aggregate: label.aggregate,
    };
    whole.map(stroop).or_else(|| unread.map(|damage| Found::Unread { damage }))
}

/// What the first and the last blocks of a disk are; `None` if they are all zero.
///
/// `last_start` is the number of the first of `last`.
#[must_use]
pub fn identify(first: &[BlockRef], last: &[BlockRef], last_start: u64) -> Option<Found> {
    if let Some(found) = identify_label(first.iter().take(1).chain(last.last())) {
        return Some(found);
    }
    let head: Vec<u8> = first.iter().flat_map(|block| block.bytes()).copied().collect();
    let tail: Vec<u8> = last.iter().flat_map(|block| block.bytes()).copied().collect();
    let holds = |offset: usize, magic: &[u8]| {
        head.get(offset..).is_some_and(|bytes| bytes.starts_with(magic))
    };
    let ends = |offset: usize, magic: &[u8]| {
        let at = tail.len().checked_sub(offset);
        at.and_then(|at| tail.get(at..)).is_some_and(|bytes| bytes.starts_with(magic))
    };
    let zfs = || {
        let mut places = ZFS_RING.step_by(1024);
        places.any(|offset| ZFS_MAGICS.iter().any(|magic| holds(offset, magic)))
    };
    let at_start = AT_START.iter().find(|(_, offset, magic)| holds(*offset, magic));
    let at_end = || AT_END.iter().find(|(_, offset, magic)| ends(*offset, magic));
    let name =
        if zfs() { Some(ZFS_NAME) } else { at_start.or_else(at_end).map(|(name, _, _)| *name) };
    if let Some(name) = name {
        return Some(Found::Foreign(name));
    }
    let numbered = (0..).zip(first).chain((last_start..).zip(last));
    numbered.filter(|(_, block)| !block.is_zero()).map(|(block, _)| Found::Data { block }).next()
}
