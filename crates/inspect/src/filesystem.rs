//! A file system and where its blocks lie: in the aggregate's own space, or by a container map.
//!
//! Invariants: the container map is the truth about places (decision D8); a dual pointer that says
//! otherwise is told.

use crate::finding::{Finding, ImageName, Place};
use crate::format::{Content, Format, Link};
use crate::medium::Want;
use ondisk::identity::BlockOwner;
use ondisk::inode::{InodeRecord, PAYLOAD_SIZE};
use ondisk::pointer::PVBN_UNKNOWN;
use ondisk::root::FileSystemRoot;
use units::{CpNumber, Fbn, InodeNumber, Pvbn, SnapshotId, VolumeId, Vvbn};

/// Inode number under which blocks of the inode file are identified.
pub(crate) const INODE_FILE: u64 = 0;
/// Inode number under which blocks of the snapshot table are identified.
pub(crate) const SNAPSHOT_TABLE: u64 = 63;
/// Inode number under which vol_info blocks are identified.
pub(crate) const VOL_INFO_INODE: u64 = u32::MAX as u64;

/// Places of a volume's blocks: PVBN and check by VVBN, in order.
#[derive(Clone, Default, Debug)]
pub(crate) struct ContainerMap {
    entries: Vec<(u64, Pvbn, u16)>,
}

impl ContainerMap {
    /// Adds an entry beyond all others.
    pub fn push(&mut self, vvbn: u64, pvbn: Pvbn, check: u16) {
        debug_assert!(self.entries.last().is_none_or(|last| last.0 < vvbn));
        self.entries.push((vvbn, pvbn, check));
    }

    pub fn get(&self, vvbn: u64) -> Option<(Pvbn, u16)> {
        let at = self.entries.binary_search_by_key(&vvbn, |entry| entry.0).ok()?;
        self.entries.get(at).map(|entry| (entry.1, entry.2))
    }

    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| entry.0)
    }
}

/// See the module.
pub(crate) struct FileSystem {
    /// Zero in the aggregate's own.
    pub volume: VolumeId,
    /// What directory entries call the volume.
    pub member: VolumeId,
    pub format: Format,
    /// Of a flexible volume.
    pub container: Option<ContainerMap>,
    /// Blocks of its files were moved, ever: pointers to them may be wrong about their places.
    pub has_moved: bool,
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
        let owner = Some(self.owner(&at, content, link.vbn));
        let Some(container) = &self.container else {
            let check = link.check as u16;
            return Ok((Want { at, pvbn: link.pvbn, check, tree: None, owner, keep }, None));
        };
        let Some((pvbn, check)) = container.get(link.vbn) else {
            return Err(Finding::NotInContainer { at, vbn: link.vbn });
        };
        // A hint that is wrong once the block was moved (D8).
        let differs = link.pvbn != pvbn && link.pvbn != PVBN_UNKNOWN && !self.has_moved;
        let finding =
            differs.then_some(Finding::PvbnDiffers { at, pointer: link.pvbn, container: pvbn });
        let tree = Some((link.check, content));
        Ok((Want { at, pvbn, check, tree, owner, keep }, finding))
    }
}
