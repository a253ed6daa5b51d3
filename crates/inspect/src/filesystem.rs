//! A file system and where its blocks lie: in the aggregate's own space, or by a container map.
//!
//! Invariants: the container map is the truth about places (decision 11); a dual pointer that says
//! otherwise is told.

use crate::finding::{Finding, ImageName, Place};
use crate::format::{Content, Format, Link};
use crate::medium::Want;
use crate::vbn_set::VbnSet;
use ondisk::identity::BlockOwner;
use ondisk::inode::{InodeRecord, PAYLOAD_SIZE};
use ondisk::pointer::PVBN_UNKNOWN;
use ondisk::root::FileSystemRoot;
use std::sync::Arc;
use units::{CpNumber, Fbn, InodeNumber, Pvbn, SnapshotId, VolumeId, Vvbn};

/// Inode number under which blocks of the inode file are identified.
pub(crate) const INODE_FILE: u64 = 0;
/// Inode number under which blocks of the snapshot table are identified.
pub(crate) const SNAPSHOT_TABLE: u64 = 63;
/// Inode number under which vol_info blocks are identified.
pub(crate) const VOL_INFO_INODE: u64 = u32::MAX as u64;

/// Entries of a piece of a container map: 1 MiB.
const PIECE_ENTRIES: usize = 1 << 16;

/// Places of a volume's blocks: PVBN and check by VVBN, in order. Each takes 16 bytes, in pieces
/// that are never copied.
#[derive(Clone, Default, Debug)]
pub(crate) struct ContainerMap {
    pieces: Vec<Vec<u128>>,
}

const NUMBER_BITS: u32 = 44;
const NUMBER_MASK: u128 = (1 << NUMBER_BITS) - 1;

const fn pack(vvbn: u64, pvbn: Pvbn, check: u16) -> u128 {
    (vvbn as u128 & NUMBER_MASK) << 64
        | (pvbn.get() as u128 & NUMBER_MASK) << u16::BITS
        | check as u128
}

const fn number(entry: u128) -> u64 {
    (entry >> 64) as u64
}

impl ContainerMap {
    /// Adds an entry beyond all others. Numbers are those of pointers: 44 bits.
    pub fn push(&mut self, vvbn: u64, pvbn: Pvbn, check: u16) {
        debug_assert!(self.numbers().next_back().is_none_or(|last| last < vvbn));
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE_ENTRIES => piece.push(pack(vvbn, pvbn, check)),
            _ => self.pieces.push(vec![pack(vvbn, pvbn, check)]),
        }
    }

    pub fn get(&self, vvbn: u64) -> Option<(Pvbn, u16)> {
        let begins = |piece: &Vec<u128>| piece.first().is_some_and(|first| number(*first) <= vvbn);
        let piece = self.pieces.get(self.pieces.partition_point(begins).checked_sub(1)?)?;
        let at = piece.binary_search_by_key(&vvbn, |entry| number(*entry)).ok()?;
        let entry = piece.get(at)?;
        let pvbn = Pvbn((entry >> u16::BITS & NUMBER_MASK) as u64);
        Some((pvbn, (entry & u128::from(u16::MAX)) as u16))
    }

    pub fn numbers(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.pieces.iter().flatten().map(|entry| number(*entry))
    }
}

/// A volume that a clone inherits blocks of.
#[derive(Clone)]
pub(crate) struct Ancestor {
    pub volume: VolumeId,
    pub container: Arc<ContainerMap>,
    pub has_moved: bool,
    /// The numbers that can be inherited: those of the snapshot that the clone of this volume began
    /// with. `None` if they cannot be read.
    pub base: Option<Arc<VbnSet>>,
}

/// See the module.
pub(crate) struct FileSystem {
    /// Zero in the aggregate's own.
    pub volume: VolumeId,
    pub format: Format,
    /// Of a flexible volume.
    pub container: Option<Arc<ContainerMap>>,
    /// Of a clone: its parent, the parent's parent, and so on.
    pub ancestors: Vec<Ancestor>,
    /// Of a clone: what is left of the trees that it lets go of.
    pub discarded: Vec<Tree>,
    /// Blocks of its files were moved, ever: pointers to them may be wrong about their places.
    pub has_moved: bool,
    /// Files may have access control lists: the volume's record says so. Of a traditional volume it
    /// is not looked at.
    pub has_acls: bool,
    /// The same of quota trees.
    pub has_trees: bool,
    pub root: FileSystemRoot,
}

/// A file's buftree: what of an inode a walk needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub inode: u64,
    pub content: Content,
    pub depth: u8,
    pub payload: [u8; PAYLOAD_SIZE],
    /// Which of its blocks are wanted: from, and to exclusive.
    pub range: (u64, u64),
}

impl Tree {
    pub const fn of(inode: u64, content: Content, record: &InodeRecord) -> Self {
        Self { inode, content, depth: record.depth, payload: record.payload, range: (0, u64::MAX) }
    }

    /// Whether a block at `level` covers anything that is wanted.
    pub const fn wants(&self, index: u64, span: u64) -> bool {
        let first = index.saturating_mul(span);
        first < self.range.1 && first.saturating_add(span) > self.range.0
    }

    pub const fn content_at(&self, level: u8) -> Content {
        if level == 0 { self.content } else { Content::Pointers }
    }
}

impl FileSystem {
    pub const fn active(&self) -> ImageName {
        ImageName { volume: self.volume, snapshot: SnapshotId::ACTIVE }
    }

    pub const fn snapshot(&self, id: u32) -> ImageName {
        ImageName { volume: self.volume, snapshot: SnapshotId(id) }
    }

    pub fn is_aggregate(&self) -> bool {
        self.format == Format::Physical
    }

    /// The owner that the identity of a block names.
    pub fn owner(&self, place: &Place, content: Content, vvbn: u64) -> BlockOwner {
        let vvbn = if self.is_aggregate() { Vvbn(0) } else { Vvbn(vvbn) };
        BlockOwner {
            kind: content.kind(),
            level: place.level,
            volume: self.volume,
            vvbn,
            inode: InodeNumber(place.inode),
            fbn: Fbn(place.index),
            cp: CpNumber(0),
        }
    }

    /// Where a volume's block lies, and its check, and in which volume it was born: this one, or an
    /// ancestor.
    pub fn place_of(&self, vbn: u64) -> Option<(VolumeId, (Pvbn, u16))> {
        if let Some(found) = self.container.as_ref()?.get(vbn) {
            return Some((self.volume, found));
        }
        for ancestor in &self.ancestors {
            if ancestor.base.as_ref().is_some_and(|base| !base.contains(vbn)) {
                return None;
            }
            if let Some(found) = ancestor.container.get(vbn) {
                return Some((ancestor.volume, found));
            }
        }
        None
    }

    /// How to read the block that a pointer leads to, and a finding about the pointer.
    ///
    /// # Errors
    /// The finding, if it leads nowhere.
    pub fn want(
        &self,
        link: &Link,
        at: Place,
        content: Content,
        keep: bool,
    ) -> Result<(Want, Option<Finding>), Finding> {
        let owner = self.owner(&at, content, link.vbn);
        if self.container.is_none() {
            let (check, owner) = (link.check as u16, Some(owner));
            return Ok((Want { at, pvbn: link.pvbn, check, tree: None, owner, keep }, None));
        }
        let Some((volume, (pvbn, check))) = self.place_of(link.vbn) else {
            return Err(Finding::NotInContainer { at, vbn: link.vbn });
        };
        let owner = Some(BlockOwner { volume, ..owner });
        // A hint that is wrong once the block was moved (decision 12).
        let has_moved = self.has_moved || self.ancestors.iter().any(|one| one.has_moved);
        let differs = link.pvbn != pvbn && link.pvbn != PVBN_UNKNOWN && !has_moved;
        let finding =
            differs.then_some(Finding::PvbnDiffers { at, pointer: link.pvbn, container: pvbn });
        let tree = Some((link.check, content));
        Ok((Want { at, pvbn, check, tree, owner, keep }, finding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_map_of_several_pieces_is_searched() {
        let mut map = ContainerMap::default();
        let count = PIECE_ENTRIES as u64 * 2 + 3;
        let last = (1 << NUMBER_BITS) - 1;
        for at in 0..count {
            map.push(at * 3, Pvbn(last - at), (at % 65_536) as u16);
        }
        map.push(last, Pvbn(last), u16::MAX);
        for at in [0, 1, PIECE_ENTRIES as u64 - 1, PIECE_ENTRIES as u64, count - 1] {
            assert_eq!(map.get(at * 3), Some((Pvbn(last - at), (at % 65_536) as u16)), "{at}");
            assert_eq!(map.get(at * 3 + 1), None, "{at}");
        }
        assert_eq!(map.get(last), Some((Pvbn(last), u16::MAX)));
        assert_eq!(map.numbers().count() as u64, count + 1);
        assert_eq!(ContainerMap::default().get(0), None);
    }
}
