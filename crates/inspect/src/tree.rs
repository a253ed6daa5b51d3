//! The files of an image by path, for comparison with a model; and the hash of a whole image.
//!
//! Invariants: entries are in the order of their paths; holes and written zeros are the same.
//!
//! Fails: with [`InspectError::Damaged`] if anything that was asked for cannot be read.

use crate::directory;
use crate::error::InspectError;
use crate::families::Families;
use crate::fault::{DirectoryFault, EntryFault};
use crate::filesystem::{FileSystem, INODE_FILE, Tree};
use crate::finding::{Finding, ImageName};
use crate::format::{Content, mask_inode};
use crate::hash::ContentHasher;
use crate::image::{self, Layout};
use crate::medium::Medium;
use crate::namespace::{content_of, read_blocks, xattrs};
use crate::space;
use crate::walker::{Inodes, Leaves, Walker};
use crate::{ImageFile, open};
use ondisk::acl::{ACL_ACCESS, value_shown};
use ondisk::inode::{InodeRecord, KIND_DIRECTORY, KIND_REGULAR, KIND_SYMLINK};
use ondisk::records::{STATE_ONLINE, SnapshotRecord, VolumeRecord};
use ondisk::root::{Superblock, metafile};
use ondisk::xattr::Xattrs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Block, BlockRef, Timestamp};
use zerocopy::IntoBytes;

/// Longest symbolic link that is read.
const SYMLINK_SIZE_MAX: u64 = 64 << 10;

/// A volume's file system by its name.
pub(crate) fn find_volume(
    medium: &mut Medium<'_>,
    superblock: &Superblock,
    name: &str,
) -> Result<FileSystem, InspectError> {
    medium.begin();
    let fs = open::aggregate(superblock);
    let is_traditional = superblock.traditional.get() == 1;
    let (records, mut containers) = {
        let mut walker = Walker::new(medium, &fs);
        let layout = image::layout_of(&fs, is_traditional);
        let active = fs.active();
        if layout == Layout::Containers {
            let found = image::walk(&mut walker, active, &fs.root.inode_file, layout)?;
            (open::volume_table(&found.table, superblock.next_volume.get()).0, found.containers)
        } else {
            let (inodes, _) = walker.inodes(active, &fs.root.inode_file)?;
            let table = match inodes.get(&metafile::VOLUME_TABLE) {
                Some(record) => read_blocks(&mut walker, active, metafile::VOLUME_TABLE, record)?,
                None => BTreeMap::new(),
            };
            (open::volume_table(&table, superblock.next_volume.get()).0, BTreeMap::new())
        }
    };
    let online = |record: &&ondisk::records::VolumeRecord| record.state == STATE_ONLINE;
    let record = records.iter().filter(online).find(|record| record.title() == name);
    let missing = || InspectError::NoVolume { name: name.to_owned() };
    let record = record.ok_or_else(missing)?;
    if !open::is_flexible(record) {
        return Ok(fs);
    }
    let mut families = Families::new(&records);
    let mut line: Vec<&VolumeRecord> =
        records.iter().filter(|one| open::is_flexible(one)).collect();
    line.sort_by_key(|one| one.volume.get());
    for one in line.into_iter().filter(|one| one.volume < record.volume) {
        if let Some(container) = containers.remove(&one.container_inode.get()) {
            let (ancestors, _) = families.ancestors_of(one);
            families.add(one, &Arc::new(container), &ancestors);
        }
    }
    let (ancestors, _) = families.ancestors_of(record);
    let container = containers.remove(&record.container_inode.get()).ok_or_else(missing)?;
    let found = open::volume(medium, record, Arc::new(container), ancestors)?;
    whole(medium)?;
    found.ok_or_else(missing)
}

/// The inode file of a snapshot by its name.
pub(crate) fn find_snapshot(
    walker: &mut Walker<'_, '_, '_>,
    volume: &str,
    name: &str,
) -> Result<SnapshotRecord, InspectError> {
    let table = walker.fs.root.snapshot_table;
    let mut blocks = BTreeMap::new();
    let mut take = |fbn: u64, block: &BlockRef| {
        blocks.insert(fbn, BlockRef::clone(block));
    };
    let tree = Tree::of(crate::filesystem::SNAPSHOT_TABLE, Content::Snapshots, &table);
    walker.begin();
    let active = walker.fs.active();
    walker.walk(active, &tree, Leaves::Read(&mut take))?;
    whole(walker.medium)?;
    let count = walker.fs.root.snapshot_count.get() as usize;
    let mut records = (0..count).filter_map(|index| space::record_at(&blocks, index));
    let found = records.find(|record| {
        record.validate().is_ok() && record.state == STATE_ONLINE && record.name() == name
    });
    found.ok_or_else(|| InspectError::NoSnapshot {
        volume: volume.to_owned(),
        name: name.to_owned(),
    })
}

/// An error if anything was found wrong.
fn whole(medium: &Medium<'_>) -> Result<(), InspectError> {
    let is_loss =
        |finding: &&Finding| !matches!(finding, Finding::Damaged { repairable: true, .. });
    match medium.report.findings.iter().find(is_loss) {
        Some(finding) => Err(InspectError::Damaged(Box::new(finding.clone()))),
        None => Ok(()),
    }
}

/// All files below the root directory of an image.
pub(crate) fn files(
    walker: &mut Walker<'_, '_, '_>,
    image: ImageName,
    inode_file: &InodeRecord,
) -> Result<Vec<ImageFile>, InspectError> {
    walker.begin();
    let (inodes, _) = walker.inodes(image, inode_file)?;
    whole(walker.medium)?;
    let mut hashes = BTreeMap::new();
    let mut files = Vec::new();
    let mut entered = BTreeSet::new();
    let mut waiting = vec![(Vec::new(), metafile::ROOT_DIRECTORY)];
    while let Some((path, inode)) = waiting.pop() {
        let Some(record) = inodes.get(&inode) else {
            let fault = EntryFault::Free(inode);
            let finding = Finding::Entry { image, inode, name: path, fault };
            return Err(InspectError::Damaged(Box::new(finding)));
        };
        files.push(file(walker, image, (path.clone(), inode, record), &inodes, &mut hashes)?);
        if record.kind != KIND_DIRECTORY {
            continue;
        }
        let blocks = read_blocks(walker, image, inode, record)?;
        let found = directory::read(&blocks, record.size.get());
        let is_second = !entered.insert(inode);
        if let Some(fault) = found.fault.or(is_second.then_some(DirectoryFault::This(inode))) {
            let finding = Finding::Directory { image, inode, fault };
            return Err(InspectError::Damaged(Box::new(finding)));
        }
        for entry in found.entries {
            let mut below = path.clone();
            below.push(b'/');
            below.extend_from_slice(&entry.name);
            waiting.push((below, entry.inode));
        }
    }
    whole(walker.medium)?;
    files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn file(
    walker: &mut Walker<'_, '_, '_>,
    image: ImageName,
    (path, inode, record): (Vec<u8>, u64, &InodeRecord),
    inodes: &Inodes,
    hashes: &mut BTreeMap<u64, u64>,
) -> Result<ImageFile, InspectError> {
    let content = match hashes.get(&inode) {
        Some(hash) => *hash,
        None if matches!(record.kind, KIND_REGULAR | KIND_SYMLINK) => {
            let hash = content_hash(walker, image, inode, record)?;
            hashes.insert(inode, hash);
            hash
        }
        None => 0,
    };
    let mut target = Vec::new();
    if record.kind == KIND_SYMLINK && record.size.get() <= SYMLINK_SIZE_MAX {
        let blocks = read_blocks(walker, image, inode, record)?;
        target = content_of(&blocks, record.size.get());
    }
    let attributes = u64::from(record.attributes_inode.get());
    let xattrs = match inodes.get(&attributes).filter(|_| attributes != 0) {
        Some(found) => xattrs(walker, image, attributes, found)?,
        None => (attributes == 0).then(Default::default),
    };
    let Some(xattrs) = xattrs else {
        let finding = Finding::Attributes { image, inode, attributes };
        return Err(InspectError::Damaged(Box::new(finding)));
    };
    Ok(ImageFile {
        path,
        inode,
        generation: record.generation.get(),
        kind: record.kind,
        mode: record.mode.get(),
        uid: record.uid.get(),
        gid: record.gid.get(),
        links: record.links.get(),
        size: record.size.get(),
        device: (record.device_major.get(), record.device_minor.get()),
        atime: Timestamp(record.atime.get()),
        mtime: Timestamp(record.mtime.get()),
        ctime: Timestamp(record.ctime.get()),
        birth: Timestamp(record.birth.get()),
        content,
        target,
        xattrs: shown(record, xattrs),
    })
}

/// Extended attributes as clients see them: the access list with what the mode says of it.
fn shown(record: &InodeRecord, mut xattrs: Xattrs) -> Xattrs {
    if let Some(list) = xattrs.get_mut(ACL_ACCESS)
        && let Ok(value) = value_shown(record.mode.get(), list)
    {
        *list = value;
    }
    xattrs
}

/// The hash of a file's content; what lies in its last block beyond its end does not count.
fn content_hash(
    walker: &mut Walker<'_, '_, '_>,
    image: ImageName,
    inode: u64,
    record: &InodeRecord,
) -> Result<u64, InspectError> {
    let size_bytes = record.size.get();
    let mut hasher = ContentHasher::new();
    let mut take = |fbn: u64, block: &BlockRef| {
        let left = size_bytes.saturating_sub(fbn * BLOCK_SIZE_U64);
        match block.get(..usize::try_from(left).unwrap_or(usize::MAX)) {
            Some(within) => hasher.block(fbn, &Block::from_prefix(within)),
            None => hasher.block(fbn, block),
        }
    };
    walker.begin();
    walker.walk(image, &Tree::of(inode, Content::Data, record), Leaves::Read(&mut take))?;
    Ok(hasher.finish(size_bytes))
}

/// A hash of all that an image holds: inodes, files and metafiles, without places.
pub(crate) fn digest(
    walker: &mut Walker<'_, '_, '_>,
    image: ImageName,
    inode_file: &InodeRecord,
) -> Result<u64, InspectError> {
    walker.begin();
    let (inodes, _) = walker.inodes(image, inode_file)?;
    let mut hasher = ContentHasher::new();
    for (inode, record) in [(INODE_FILE, inode_file)]
        .into_iter()
        .chain(inodes.iter().map(|(inode, record)| (*inode, record)))
    {
        let mut bytes = *record;
        mask_inode(bytes.as_mut_bytes());
        hasher.number(inode);
        hasher.bytes(bytes.as_bytes());
        if inode == INODE_FILE {
            continue;
        }
        let mut take = |fbn: u64, block: &BlockRef| hasher.block(fbn, block);
        walker.begin();
        walker.walk(image, &Tree::of(inode, Content::Data, record), Leaves::Read(&mut take))?;
    }
    whole(walker.medium)?;
    Ok(hasher.finish(inodes.len() as u64))
}
