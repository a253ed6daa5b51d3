//! From disks to file systems: the superblock, the aggregate's own file system, the volumes.

use crate::error::InspectError;
use crate::filesystem::{Ancestor, ContainerMap, FileSystem, SNAPSHOT_TABLE, Tree, VOL_INFO_INODE};
use crate::finding::{Finding, Place};
use crate::format::{Content, Format};
use crate::medium::{Medium, Want};
use crate::slots;
use ondisk::damage::Damage;
use ondisk::features::{ACLS, FeatureScope, MOVED_BLOCKS, QUOTA_TREES};
use ondisk::inode::InodeRecord;
use ondisk::records::{STATE_EMPTY, VOLUME_FLEXIBLE, VolumeRecord};
use ondisk::root::{DISCARDED_TREES, Superblock, VOL_INFO_VVBN, VolInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{BlockRef, CpNumber, VolumeId};

/// The newest valid superblock of any disk and slot that names this aggregate.
pub(crate) fn superblock(medium: &mut Medium<'_>) -> Result<Superblock, InspectError> {
    let disks = medium.array.disks();
    let answers = slots::read(medium, &disks)?;
    let (mut best, mut last): (Option<Superblock>, Option<Damage>) = (None, None);
    for block in answers.iter().flatten().flatten() {
        match slots::superblock_in(block) {
            Ok(found) if found.aggregate != medium.array.aggregate => {
                last = Some(Damage::Field { structure: "superblock", field: "aggregate" });
            }
            Ok(found) => {
                if best.as_ref().is_none_or(|best| best.cp() < found.cp()) {
                    best = Some(found);
                }
            }
            Err(damage) => last = Some(damage),
        }
    }
    let best = best.ok_or(InspectError::NoSuperblock { last })?;
    match slots::rotten(&answers, &best) {
        Some(slot) => Err(InspectError::SuperblockRotten { slot, found: best.cp() }),
        None => Ok(best),
    }
}

/// The aggregate's own file system.
pub(crate) fn aggregate(superblock: &Superblock) -> FileSystem {
    FileSystem {
        volume: VolumeId(0),
        format: Format::Physical,
        container: None,
        ancestors: Vec::new(),
        discarded: Vec::new(),
        has_moved: false,
        has_acls: true,
        has_trees: true,
        root: superblock.root,
    }
}

/// The volumes in the volume table, and what is wrong with it.
pub(crate) fn volume_table(
    blocks: &BTreeMap<u64, BlockRef>,
    next_volume: u32,
) -> (Vec<VolumeRecord>, Vec<Finding>) {
    let (mut records, mut findings) = (Vec::new(), Vec::new());
    let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (slot, block) in blocks {
        match VolumeRecord::from_block(block) {
            Ok(record) if record.state == STATE_EMPTY => {}
            Ok(record) => {
                let volume = record.volume.get();
                let is_new = numbers.insert(volume) && names.insert(record.title().into_owned());
                if !is_new || volume >= next_volume {
                    findings.push(Finding::VolumeDuplicate { volume: VolumeId(volume) });
                }
                records.push(record);
            }
            Err(damage) => findings.push(Finding::VolumeRecord { slot: *slot, damage }),
        }
    }
    (records, findings)
}

/// Whether a record is of a volume in a container.
pub(crate) fn is_flexible(record: &VolumeRecord) -> bool {
    record.kind == VOLUME_FLEXIBLE
}

/// A flexible volume's file system, from its vol_info block; `None` if that is damaged. The
/// ancestors of a clone come in order.
pub(crate) fn volume(
    medium: &mut Medium<'_>,
    record: &VolumeRecord,
    container: Arc<ContainerMap>,
    ancestors: Vec<Ancestor>,
) -> Result<Option<FileSystem>, InspectError> {
    let volume = VolumeId(record.volume.get());
    let mut fs = FileSystem {
        volume,
        format: Format::Dual,
        container: None,
        ancestors,
        discarded: Vec::new(),
        has_moved: record.features.has(&MOVED_BLOCKS),
        has_acls: record.features.has(&ACLS),
        has_trees: record.features.has(&QUOTA_TREES),
        root: <ondisk::root::FileSystemRoot as zerocopy::FromZeros>::new_zeroed(),
    };
    let wrong =
        |field| Finding::VolInfo { volume, damage: Damage::Field { structure: "vol_info", field } };
    if let Some(feature) = record.features.forbids_reading(FeatureScope::Volume) {
        let damage = Damage::Feature { structure: "volume record", feature };
        medium.report.add(Finding::VolInfo { volume, damage });
        return Ok(None);
    }
    let Some((pvbn, check)) = container.get(VOL_INFO_VVBN.get()) else {
        medium.report.add(wrong("container"));
        return Ok(None);
    };
    let at = Place { image: fs.active(), inode: VOL_INFO_INODE, level: 0, index: 0 };
    // The owner of a volume's block, though the container is not in place yet.
    let owner = Some(fs.owner(&at, Content::Data, VOL_INFO_VVBN.get()));
    let want = Want { at, pvbn, check, tree: None, owner, keep: false };
    let Some(block) = medium.fetch(&[want])?.into_iter().next().flatten() else { return Ok(None) };
    let found = match VolInfo::from_block(&block) {
        Ok(found) => found,
        Err(damage) => {
            medium.report.add(Finding::VolInfo { volume, damage });
            return Ok(None);
        }
    };
    if found.volume.get() != volume.get() {
        medium.report.add(wrong("volume"));
        return Ok(None);
    }
    if CpNumber(found.cp.get()) > medium.cp {
        medium.report.add(wrong("cp"));
    }
    if found.root.size_blocks.get() < record.size_blocks.get() {
        medium.report.add(wrong("size_blocks"));
    }
    fs.root = found.root;
    fs.discarded = discarded(record, &found);
    fs.container = Some(container);
    Ok(Some(fs))
}

/// What is left of the trees that a clone lets go of.
fn discarded(record: &VolumeRecord, vol_info: &VolInfo) -> Vec<Tree> {
    if !record.clone_base.is_some() {
        return Vec::new();
    }
    let at = vol_info.discard_tree.get() as usize;
    let trees = DISCARDED_TREES.iter().zip(&record.clone_base.discarded).enumerate().skip(at);
    let tree = |(index, (inode, record)): (usize, (&u64, &InodeRecord))| {
        let content = match *inode {
            SNAPSHOT_TABLE => Content::Snapshots,
            _ => Content::Data,
        };
        let from = if index == at { vol_info.discard_next.get() } else { 0 };
        Tree { range: (from, u64::MAX), ..Tree::of(*inode, content, record) }
    };
    trees.map(tree).collect()
}
