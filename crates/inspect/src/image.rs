//! One image of a file system: its inodes and metafiles, every block of it proved and counted.
//!
//! Invariants: what an image says of itself (maps, orphan list) is kept apart from what was reached
//! in it; `space` and `namespace` compare them.

use crate::error::InspectError;
use crate::filesystem::{ContainerMap, FileSystem, INODE_FILE, Tree};
use crate::finding::{Finding, ImageName};
use crate::format::{Content, Link};
use crate::quotas;
use crate::vbn_set::VbnSet;
use crate::walker::{Extent, Inodes, Leaves, Walker};
use ondisk::damage::Damage;
use ondisk::inode::{
    INODE_QUARANTINED, InodeRecord, KIND_ATTRIBUTES, KIND_CONTAINER, KIND_METAFILE, PAYLOAD_SIZE,
};
use ondisk::root::metafile;
use std::collections::BTreeMap;
use units::{BLOCK_SIZE_U64, BlockRef, VolumeId};

/// What an image consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// Users' files.
    Files,
    /// Containers of flexible volumes.
    Containers,
}

impl Layout {
    /// Metafiles that must be there.
    const fn metafiles(self) -> &'static [u64] {
        match self {
            Self::Files => &[
                metafile::ACTIVE_MAP,
                metafile::SUMMARY_MAP,
                metafile::INODE_MAP,
                metafile::ORPHANS,
            ],
            Self::Containers => &[metafile::ACTIVE_MAP, metafile::SUMMARY_MAP],
        }
    }

    const fn may_be(self, inode: u64, kind: u8) -> bool {
        match (self, inode) {
            (_, metafile::ACTIVE_MAP..=metafile::DELAYED_MAP) => kind == KIND_METAFILE,
            (Self::Files, metafile::QUOTAS) => kind == KIND_METAFILE,
            (_, 0..metafile::ROOT_DIRECTORY) => false,
            (Self::Files, _) => kind <= KIND_ATTRIBUTES,
            (Self::Containers, _) => kind == KIND_CONTAINER,
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Image {
    /// Blocks that were reached.
    pub reached: VbnSet,
    /// Nothing that leads to other blocks is lost.
    pub is_whole: bool,
    pub inodes: Inodes,
    /// Bits of the image's own map.
    pub active_map: VbnSet,
    pub summary_map: VbnSet,
    pub delayed_map: VbnSet,
    /// Inodes in use by the inode map.
    pub inode_map: VbnSet,
    pub orphans: Vec<u64>,
    /// Blocks of the volume table.
    pub table: BTreeMap<u64, BlockRef>,
    /// Blocks of TopAA.
    pub top_areas: BTreeMap<u64, BlockRef>,
    /// Blocks of the quota file.
    pub quotas: BTreeMap<u64, BlockRef>,
    /// Container maps by inode.
    pub containers: BTreeMap<u64, ContainerMap>,
}

/// Walks an image from the inode of its inode file. `begin` of the walker is the caller's.
pub(crate) fn walk(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    inode_file: &InodeRecord,
    layout: Layout,
) -> Result<Image, InspectError> {
    let (inodes, extent) = walker.inodes(name, inode_file)?;
    check_count(walker, name, INODE_FILE, inode_file, extent);
    let mut image = Image::default();
    for (number, record) in &inodes {
        let extent = walk_file(walker, name, *number, record, &mut image)?;
        check_inode(walker, name, (*number, record), extent, layout);
    }
    for number in layout.metafiles() {
        if !inodes.contains_key(number) {
            walker.tell(Finding::MetafileMissing { image: name, inode: *number });
        }
    }
    image.inodes = inodes;
    quotas::check(walker, name, &image);
    Ok(image)
}

fn walk_file(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    number: u64,
    record: &InodeRecord,
    image: &mut Image,
) -> Result<Extent, InspectError> {
    let tree = Tree::of(number, Content::Data, record);
    if record.kind == KIND_CONTAINER && walker.fs.is_aggregate() {
        let mut map = ContainerMap::default();
        let mut note = |vvbn: u64, link: &Link| map.push(vvbn, link.pvbn, link.check as u16);
        let extent = walker.walk(name, &tree, Leaves::Note(&mut note))?;
        image.containers.insert(number, map);
        return Ok(extent);
    }
    let bits = match number {
        metafile::ACTIVE_MAP => &mut image.active_map,
        metafile::SUMMARY_MAP => &mut image.summary_map,
        metafile::DELAYED_MAP => &mut image.delayed_map,
        metafile::INODE_MAP => &mut image.inode_map,
        metafile::ORPHANS | metafile::VOLUME_TABLE | metafile::TOP_AREAS | metafile::QUOTAS => {
            let mut blocks = BTreeMap::new();
            let mut take = |fbn: u64, block: &BlockRef| {
                blocks.insert(fbn, BlockRef::clone(block));
            };
            let extent = walker.walk(name, &tree, Leaves::Read(&mut take))?;
            match number {
                metafile::ORPHANS => image.orphans = orphans(&blocks, record.size.get()),
                metafile::TOP_AREAS => image.top_areas = blocks,
                metafile::QUOTAS => image.quotas = blocks,
                _ => image.table = blocks,
            }
            return Ok(extent);
        }
        _ => return walker.walk(name, &tree, Leaves::Prove),
    };
    let mut take = |fbn: u64, block: &BlockRef| bits.add_map_block(fbn, block);
    walker.walk(name, &tree, Leaves::Read(&mut take))
}

/// Reads the part of a snapshot's own map that is still needed: map blocks from `from`.
pub(crate) fn read_map(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    inode_file: &InodeRecord,
    from: u64,
) -> Result<VbnSet, InspectError> {
    let mut map = VbnSet::default();
    // The maps' inodes lie in the first block.
    let first = Tree { range: (0, 1), ..Tree::of(INODE_FILE, Content::Inodes, inode_file) };
    let mut inode = None;
    let mut take = |_: u64, block: &BlockRef| inode = record_at(block, metafile::ACTIVE_MAP);
    walker.walk(name, &first, Leaves::Read(&mut take))?;
    let Some(record) = inode else {
        walker.is_whole = false;
        walker.tell(Finding::MetafileMissing { image: name, inode: metafile::ACTIVE_MAP });
        return Ok(map);
    };
    let tree = Tree::of(metafile::ACTIVE_MAP, Content::Data, &record);
    let tree = Tree { range: (from, u64::MAX), ..tree };
    let mut take = |fbn: u64, block: &BlockRef| map.add_map_block(fbn, block);
    walker.walk(name, &tree, Leaves::Read(&mut take))?;
    Ok(map)
}

/// The inode in use at `slot` of a block of the inode file.
fn record_at(block: &BlockRef, slot: u64) -> Option<InodeRecord> {
    use zerocopy::FromBytes;
    let start = slot as usize * ondisk::inode::INODE_SIZE;
    let bytes = block.get(start..start + ondisk::inode::INODE_SIZE)?;
    let record = InodeRecord::read_from_bytes(bytes).ok()?;
    (record.validate().is_ok() && !record.is_free()).then_some(record)
}

/// The numbers on an orphan list of so many bytes.
fn orphans(blocks: &BTreeMap<u64, BlockRef>, size_bytes: u64) -> Vec<u64> {
    let numbers = blocks.iter().flat_map(|(fbn, block)| {
        let at = (0..).map(move |slot| fbn * BLOCK_SIZE_U64 + slot * 4);
        at.zip(block.as_chunks::<4>().0)
    });
    numbers
        .filter(|(at, _)| at + 4 <= size_bytes)
        .map(|(_, bytes)| u64::from(u32::from_le_bytes(*bytes)))
        .collect()
}

/// Whether an inode counts its blocks right.
pub(crate) fn check_count(
    walker: &mut Walker<'_, '_, '_>,
    image: ImageName,
    inode: u64,
    record: &InodeRecord,
    extent: Extent,
) {
    let (recorded, counted) = (record.blocks.get(), extent.blocks);
    if recorded != counted && walker.is_whole {
        walker.tell(Finding::BlockCount { image, inode, recorded, counted });
    }
}

fn check_inode(
    walker: &mut Walker<'_, '_, '_>,
    image: ImageName,
    (inode, record): (u64, &InodeRecord),
    extent: Extent,
    layout: Layout,
) {
    if !layout.may_be(inode, record.kind) {
        walker.tell(Finding::InodeKind { image, inode, kind: record.kind });
        return;
    }
    if walker.medium.scope.has_marks && record.flags.get() & INODE_QUARANTINED != 0 {
        walker.tell(match u32::try_from(inode.saturating_sub(metafile::ROOT_DIRECTORY)) {
            // A container's mark is that of its volume.
            Ok(volume) if layout == Layout::Containers => {
                Finding::ReadOnly { volume: VolumeId(volume) }
            }
            _ => Finding::Quarantined { image, inode },
        });
    }
    check_count(walker, image, inode, record, extent);
    let size_bytes = record.size.get();
    // A container has no size of its own; the orphan list keeps blocks when it gets shorter.
    let has_size = record.kind != KIND_CONTAINER && inode != metafile::ORPHANS;
    if has_size && extent.end > size_bytes.div_ceil(BLOCK_SIZE_U64) {
        walker.tell(Finding::BeyondSize { image, inode, fbn: extent.end - 1, size_bytes });
    }
    if record.depth == 0 && size_bytes > PAYLOAD_SIZE as u64 {
        let damage = Damage::Field { structure: "inode", field: "size" };
        walker.tell(Finding::InodeDamaged { image, inode, damage });
    }
}

/// What images of a file system consist of.
pub(crate) fn layout_of(fs: &FileSystem, is_traditional: bool) -> Layout {
    if fs.is_aggregate() && !is_traditional { Layout::Containers } else { Layout::Files }
}
