//! What can be wrong with media.
//!
//! Invariants: one fault on media gives one finding, or those that follow from it by necessity. A
//! finding names the place by numbers; names come in only where they are the place.

use crate::fault::{
    DirectoryFault, EntryFault, IdentityFault, OrphanFault, SlotFault, SnapshotFault,
};
use ondisk::damage::Damage;
use ondisk::quota::QuotaKey;
use std::fmt;
use thiserror::Error;
use units::{Pvbn, SnapshotId, VolumeId};

/// A file system image: the active one or a snapshot's, of a volume or of the aggregate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageName {
    /// The volume; zero is the aggregate's own file system, a traditional volume included.
    pub volume: VolumeId,
    /// The snapshot.
    pub snapshot: SnapshotId,
}

impl fmt::Display for ImageName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.volume {
            VolumeId(0) => formatter.write_str("aggregate")?,
            volume => write!(formatter, "{volume}")?,
        }
        if self.snapshot != SnapshotId::ACTIVE {
            write!(formatter, " {}", self.snapshot)?;
        }
        Ok(())
    }
}

/// A block of a file of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The image.
    pub image: ImageName,
    /// The file; 0 is the inode file, 63 the snapshot table.
    pub inode: u64,
    /// 0 for data, else the level of the indirect block.
    pub level: u8,
    /// Its index among the file's blocks of that level.
    pub index: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { image, inode, level, index } = self;
        write!(formatter, "{image} inode {inode} level {level} block {index}")
    }
}

/// Consecutive block numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl fmt::Display for Blocks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(formatter, "block number {}", self.first),
            count => {
                write!(formatter, "block numbers {} to {}", self.first, self.first + count - 1)
            }
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Finding {
    /// A pointer leads beyond the end of its space.
    #[error("{at}: pointer to block number {vbn}, beyond the end")]
    BeyondEnd {
        /// The block pointed at.
        at: Place,
        /// Its number.
        vbn: u64,
    },
    /// A pointer has reserved bits set, or is a hole with a content.
    #[error("{at}: the pointer has bits that must be zero")]
    BadPointer {
        /// The block pointed at.
        at: Place,
    },
    /// An image reaches a block on two ways.
    #[error("{at}: block number {vbn} is reached twice")]
    ReachedTwice {
        /// The second way.
        at: Place,
        /// The number.
        vbn: u64,
    },
    /// A block of a volume has no place in the aggregate.
    #[error("{at}: block number {vbn} is a hole in the container map")]
    NotInContainer {
        /// The block.
        at: Place,
        /// Its number.
        vbn: u64,
    },
    /// A block of TopAA is none.
    #[error("{image}: block {block} of TopAA: {damage}")]
    TopAreasDamaged {
        /// The image.
        image: ImageName,
        /// The block.
        block: u64,
        /// What is wrong with it.
        damage: Damage,
    },
    /// TopAA says that an area has another number of free blocks than it has; of a list it is the
    /// most that its place in it means.
    #[error(
        "{image}: TopAA gives {recorded} free blocks to area {area}{}, it has {counted}",
        of_group(group)
    )]
    AreaScore {
        /// The image.
        image: ImageName,
        /// The group, in an aggregate.
        group: Option<u32>,
        /// The area.
        area: u32,
        /// By TopAA.
        recorded: u32,
        /// By the maps.
        counted: u64,
    },
    /// TopAA counts another number of areas with scores in a range than there are.
    #[error(
        "{image}: TopAA counts {recorded} areas in range {bin}{}, there are {counted}",
        of_group(group)
    )]
    AreaCount {
        /// The image.
        image: ImageName,
        /// The group, in an aggregate.
        group: Option<u32>,
        /// The range, from the best.
        bin: u32,
        /// By TopAA.
        recorded: u32,
        /// By the maps.
        counted: u64,
    },
    /// A dual pointer's PVBN is not that of the container map.
    #[error("{at}: the pointer says {pointer}, the container map {container}")]
    PvbnDiffers {
        /// The block.
        at: Place,
        /// By the pointer.
        pointer: Pvbn,
        /// By the container map.
        container: Pvbn,
    },
    /// Two images share a block and disagree on what it is.
    #[error("{at}: block number {vbn} is another block of another file in another image")]
    SharedDiffers {
        /// The later one.
        at: Place,
        /// The number.
        vbn: u64,
    },
    /// A block's content is not what its pointers say, or cannot be read.
    #[error("{at}: {pvbn} is damaged or unreadable{}", if *.repairable { ", parity makes it good" } else { "" })]
    Damaged {
        /// The block.
        at: Place,
        /// Where it lies.
        pvbn: Pvbn,
        /// Parity gives the right content.
        repairable: bool,
    },
    /// A block is right and its identity is not.
    #[error("the identity of {pvbn} {fault}")]
    Identity {
        /// The block.
        pvbn: Pvbn,
        /// What is wrong.
        fault: IdentityFault,
    },
    /// The parity of a stripe with blocks in use does not fit its data.
    #[error("parity of group {group} region {region} row {row} is wrong")]
    Parity {
        /// The group.
        group: u32,
        /// The tetris.
        region: u64,
        /// The row; 63 is that of checksum blocks.
        row: usize,
    },
    /// A block of a stripe with blocks in use cannot be read.
    #[error("disk {disk} of group {group} cannot read block {block}")]
    Unreadable {
        /// The group.
        group: u32,
        /// The disk's index.
        disk: usize,
        /// The block of the disk.
        block: u64,
    },
    /// An inode is none.
    #[error("{image} inode {inode}: {damage}")]
    InodeDamaged {
        /// The image.
        image: ImageName,
        /// The inode.
        inode: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// An inode is of a kind that its number cannot be.
    #[error("{image} inode {inode}: kind {kind} is not expected")]
    InodeKind {
        /// The image.
        image: ImageName,
        /// The inode.
        inode: u64,
        /// Its kind.
        kind: u8,
    },
    /// An inode counts other blocks than it has.
    #[error("{image} inode {inode}: counts {recorded} blocks, there are {counted}")]
    BlockCount {
        /// The image.
        image: ImageName,
        /// The inode.
        inode: u64,
        /// By the inode.
        recorded: u64,
        /// In its tree.
        counted: u64,
    },
    /// A file has a block beyond its end.
    #[error("{image} inode {inode}: block {fbn} lies beyond the size of {size_bytes} bytes")]
    BeyondSize {
        /// The image.
        image: ImageName,
        /// The inode.
        inode: u64,
        /// The block.
        fbn: u64,
        /// The file's size.
        size_bytes: u64,
    },
    /// A block in use is free by the map: it may be overwritten.
    #[error("{image}: {blocks}: in use, and free by the map")]
    MapMissing {
        /// The image.
        image: ImageName,
        /// The numbers.
        blocks: Blocks,
    },
    /// A block that nothing reaches is in use by the map: it is lost.
    #[error("{image}: {blocks}: in use by the map, and nothing reaches them")]
    MapExtra {
        /// The image.
        image: ImageName,
        /// The numbers.
        blocks: Blocks,
    },
    /// A block that a snapshot holds is not held by the summary map.
    #[error("{volume}: {blocks}: held by a snapshot and not in the summary map")]
    SummaryMissing {
        /// The volume.
        volume: VolumeId,
        /// The numbers.
        blocks: Blocks,
    },
    /// The summary map holds what no snapshot does.
    #[error("{volume}: {blocks}: in the summary map and held by no snapshot")]
    SummaryExtra {
        /// The volume.
        volume: VolumeId,
        /// The numbers.
        blocks: Blocks,
    },
    /// A block in use or held has no place in the aggregate.
    #[error("{volume}: {blocks}: in use, and a hole in the container map")]
    ContainerMissing {
        /// The volume.
        volume: VolumeId,
        /// The numbers.
        blocks: Blocks,
    },
    /// A free block of a volume still has a place in the aggregate.
    #[error("{volume}: {blocks}: free, and in the container map")]
    ContainerExtra {
        /// The volume.
        volume: VolumeId,
        /// The numbers.
        blocks: Blocks,
    },
    /// The count of blocks in use is wrong.
    #[error("{volume}: counts {recorded} blocks in use, there are {counted}")]
    UsedBlocks {
        /// The volume.
        volume: VolumeId,
        /// By its root.
        recorded: u64,
        /// By its maps.
        counted: u64,
    },
    /// The count of delayed frees is wrong.
    #[error("{volume}: counts {recorded} delayed frees, there are {counted}")]
    DelayedBlocks {
        /// The volume.
        volume: VolumeId,
        /// By its root.
        recorded: u64,
        /// By its map.
        counted: u64,
    },
    /// Delayed frees that an image uses.
    #[error("{volume}: {blocks} are delayed frees and in use")]
    DelayedInUse {
        /// The volume.
        volume: VolumeId,
        /// Which.
        blocks: Blocks,
    },
    /// The count of blocks in object stores is wrong.
    #[error("{volume}: counts {recorded} blocks in object stores, there are {counted}")]
    ObjectBlocks {
        /// The volume.
        volume: VolumeId,
        /// By its record.
        recorded: u64,
        /// By its container map.
        counted: u64,
    },
    /// The count of inodes in use is wrong.
    #[error("{image}: counts {recorded} inodes in use, there are {counted}")]
    UsedInodes {
        /// The image.
        image: ImageName,
        /// By its root.
        recorded: u64,
        /// By its inode file.
        counted: u64,
    },
    /// A metafile that must be there is not.
    #[error("{image}: metafile {inode} is not there")]
    MetafileMissing {
        /// The image.
        image: ImageName,
        /// The metafile.
        inode: u64,
    },
    /// A block of the quota file is none.
    #[error("{image} quota file block {block}: {damage}")]
    QuotaDamaged {
        /// The image.
        image: ImageName,
        /// The block.
        block: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// What a user, a group or a tree uses is counted wrongly.
    #[error(
        "{image} {key}: the quota file counts {} blocks and {} files, there are {} and {}",
        .recorded.0, .recorded.1, .counted.0, .counted.1
    )]
    QuotaUsage {
        /// The image.
        image: ImageName,
        /// Who.
        key: QuotaKey,
        /// Blocks and files by the quota file.
        recorded: (u64, u64),
        /// By the inodes.
        counted: (u64, u64),
    },
    /// Limits are set for a quota tree that there is not.
    #[error("{image} {key}: it has limits, and is not there")]
    QuotaLimits {
        /// The image.
        image: ImageName,
        /// The tree.
        key: QuotaKey,
    },
    /// A file counts to another quota tree than it should.
    #[error("{image} inode {inode} counts to quota tree {tree}, where it does not lie")]
    QuotaTree {
        /// The image.
        image: ImageName,
        /// The file.
        inode: u64,
        /// The tree; 0: none.
        tree: u32,
    },
    /// A slot of the volume table is none.
    #[error("volume table slot {slot}: {damage}")]
    VolumeRecord {
        /// The slot.
        slot: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// Two volumes have one number or name, or a number that is yet to be given.
    #[error("{volume} has the number or name of another")]
    VolumeDuplicate {
        /// The volume.
        volume: VolumeId,
    },
    /// The snapshot that a clone began with is not in the parent's snapshot table.
    #[error("{volume}: it is a clone of {parent} snapshot {snapshot}, which is not there")]
    CloneBase {
        /// The clone.
        volume: VolumeId,
        /// Its parent.
        parent: VolumeId,
        /// The number of the snapshot.
        snapshot: SnapshotId,
    },
    /// A volume has no container, or a container no volume.
    #[error("inode {inode} of the aggregate: a container and a volume do not match")]
    Container {
        /// The container's inode.
        inode: u64,
    },
    /// A volume's vol_info block is none, or another volume's.
    #[error("{volume}: {damage}")]
    VolInfo {
        /// The volume.
        volume: VolumeId,
        /// What is wrong.
        damage: Damage,
    },
    /// A snapshot's record is wrong.
    #[error("{image} {fault}")]
    Snapshot {
        /// The snapshot, or the number of its record where it is none.
        image: ImageName,
        /// What is wrong.
        fault: SnapshotFault,
    },
    /// A directory is wrong.
    #[error("{image} directory {inode}: {fault}")]
    Directory {
        /// The image.
        image: ImageName,
        /// The directory.
        inode: u64,
        /// What is wrong.
        fault: DirectoryFault,
    },
    /// An entry of a directory is wrong.
    #[error("{image} directory {inode}: '{}' {fault}", .name.escape_ascii())]
    Entry {
        /// The image.
        image: ImageName,
        /// The directory.
        inode: u64,
        /// The entry's name.
        name: Vec<u8>,
        /// What is wrong.
        fault: EntryFault,
    },
    /// A file has other links than names.
    #[error("{image} inode {inode}: {recorded} links, counted {counted}")]
    Links {
        /// The image.
        image: ImageName,
        /// The file.
        inode: u64,
        /// By the inode.
        recorded: u32,
        /// By names, and of directories by the directories in them.
        counted: u32,
    },
    /// A file has no name and is no orphan.
    #[error("{image} inode {inode}: no name leads to it and it is not an orphan")]
    Unreachable {
        /// The image.
        image: ImageName,
        /// The file.
        inode: u64,
    },
    /// The inode map and the inodes disagree.
    #[error("{image} inode {inode}: {}", if *.is_live { "in use, and free by the inode map" } else { "free, and in use by the inode map" })]
    InodeMap {
        /// The image.
        image: ImageName,
        /// The inode.
        inode: u64,
        /// There is a file.
        is_live: bool,
    },
    /// An entry of the orphan list is wrong.
    #[error("{image} orphan {inode} {fault}")]
    Orphan {
        /// The image.
        image: ImageName,
        /// The orphan.
        inode: u64,
        /// What is wrong.
        fault: OrphanFault,
    },
    /// The orphan list is shorter or longer than the root says.
    #[error("{image}: counts {recorded} orphans, there are {counted}")]
    OrphanCount {
        /// The image.
        image: ImageName,
        /// By the root.
        recorded: u64,
        /// By the list.
        counted: u64,
    },
    /// A file's extended attributes are not there, another file's too, or not readable; or its
    /// access control lists are not those that the inode speaks of, or of which the volume's record
    /// does not.
    #[error(
        "{image} inode {inode}: its attributes in inode {attributes} are missing, shared or damaged"
    )]
    Attributes {
        /// The image.
        image: ImageName,
        /// The file.
        inode: u64,
        /// The inode of its attributes.
        attributes: u64,
    },
    /// The server refuses the content of a file: damage made it drop changes of the file.
    #[error("{image} inode {inode}: quarantined")]
    Quarantined {
        /// The image.
        image: ImageName,
        /// The file.
        inode: u64,
    },
    /// The server keeps a volume read-only: a block that the volume cannot live without is lost.
    #[error("{volume}: read-only since damage was met")]
    ReadOnly {
        /// The volume.
        volume: VolumeId,
    },
    /// A superblock slot of a disk is not as it must be.
    #[error("disk {disk} {fault}")]
    Slot {
        /// The disk's name.
        disk: String,
        /// What is wrong.
        fault: SlotFault,
    },
}

impl Finding {
    /// The block of a file that it is about.
    #[must_use]
    pub const fn place(&self) -> Option<Place> {
        match self {
            Self::BeyondEnd { at, .. }
            | Self::BadPointer { at, .. }
            | Self::ReachedTwice { at, .. }
            | Self::NotInContainer { at, .. }
            | Self::PvbnDiffers { at, .. }
            | Self::SharedDiffers { at, .. }
            | Self::Damaged { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// The image that it is about, if it is about none of its files.
    #[must_use]
    pub const fn image(&self) -> Option<ImageName> {
        match self {
            Self::TopAreasDamaged { image, .. }
            | Self::AreaScore { image, .. }
            | Self::AreaCount { image, .. }
            | Self::MapMissing { image, .. }
            | Self::MapExtra { image, .. }
            | Self::UsedInodes { image, .. }
            | Self::MetafileMissing { image, .. }
            | Self::QuotaDamaged { image, .. }
            | Self::QuotaUsage { image, .. }
            | Self::QuotaLimits { image, .. }
            | Self::Snapshot { image, .. }
            | Self::OrphanCount { image, .. } => Some(*image),
            _ => None,
        }
    }

    /// The file that it is about.
    #[must_use]
    pub const fn file(&self) -> Option<(ImageName, u64)> {
        if let Some(at) = self.place() {
            return Some((at.image, at.inode));
        }
        match self {
            Self::InodeDamaged { image, inode, .. }
            | Self::InodeKind { image, inode, .. }
            | Self::BlockCount { image, inode, .. }
            | Self::BeyondSize { image, inode, .. }
            | Self::Directory { image, inode, .. }
            | Self::Entry { image, inode, .. }
            | Self::Links { image, inode, .. }
            | Self::Unreachable { image, inode, .. }
            | Self::InodeMap { image, inode, .. }
            | Self::Orphan { image, inode, .. }
            | Self::Attributes { image, inode, .. }
            | Self::QuotaTree { image, inode, .. }
            | Self::Quarantined { image, inode, .. } => Some((*image, *inode)),
            _ => None,
        }
    }

    /// The volume that it is about, zero for the aggregate itself; `None` if it is about a place on
    /// the disks.
    #[must_use]
    pub const fn volume(&self) -> Option<VolumeId> {
        if let Some((image, _)) = self.file() {
            return Some(image.volume);
        }
        if let Some(image) = self.image() {
            return Some(image.volume);
        }
        match self {
            Self::SummaryMissing { volume, .. }
            | Self::SummaryExtra { volume, .. }
            | Self::ContainerMissing { volume, .. }
            | Self::ContainerExtra { volume, .. }
            | Self::UsedBlocks { volume, .. }
            | Self::DelayedBlocks { volume, .. }
            | Self::DelayedInUse { volume, .. }
            | Self::ObjectBlocks { volume, .. }
            | Self::VolumeDuplicate { volume, .. }
            | Self::ReadOnly { volume }
            | Self::VolInfo { volume, .. } => Some(*volume),
            _ => None,
        }
    }
}

fn of_group(group: &Option<u32>) -> String {
    group.map_or_else(String::new, |group| format!(" of group {group}"))
}
