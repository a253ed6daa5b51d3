//! Bringing a volume online from its vol_info block.
//!
//! Invariants: loading reads only, and is run from the top again after each wait. It reads a fixed
//! number of blocks, plus snapshot records and the orphan list.

use affinity::AffinityId;
use aggregate::{Container, container_lookup, vol_info_place};
use cowfs::buftree::{self, FileKey};
use cowfs::content::Content;
use cowfs::logical::{Logical, Shared, SnapshotView, read_record};
use cowfs::pointer::Pointer;
use cowfs::quotas::QuotaFile;
use cowfs::reader::{Progress, Reader, Stop};
use cowfs::snapshot::Snapshot;
use cowfs::space::{Base, DiscardPlace, Space};
use ondisk::pointer::DualPointer;
use ondisk::records::VolumeRecord;
use ondisk::root::{FileSystemRoot, VOL_INFO_VVBN, VolInfo, metafile};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{BLOCK_SIZE_U64, Fbn, InodeNumber, Pvbn, VolumeId};

/// Both sides of a flexible volume.
pub struct LoadedVolume {
    /// Free maps and snapshots.
    pub space: Space<DualPointer>,
    /// Its file system's root.
    pub root: FileSystemRoot,
}

/// Reads the block side of the flexible volume that `record` describes.
///
/// # Errors
/// What to wait for.
pub fn load_flexible(
    record: &VolumeRecord,
    container: &Container,
    reader: &Reader<'_>,
) -> Progress<LoadedVolume> {
    let volume = VolumeId(record.volume.get());
    let pointer = container_lookup(volume, container, VOL_INFO_VVBN, reader)?;
    if pointer.is_hole() {
        return Err(Stop::Damaged(Pvbn(0)));
    }
    let block = reader.block(&pointer, vol_info_place(volume))?;
    let vol_info = VolInfo::from_block(&block).map_err(|damage| {
        tracing::error!(%volume, %damage, "vol_info");
        Stop::of_damage(damage, pointer.pvbn)
    })?;
    if vol_info.volume.get() != volume.get() {
        return Err(Stop::Damaged(pointer.pvbn));
    }
    let mut space = Space::load(volume, &vol_info.root, reader)?;
    let place = DiscardPlace {
        tree: vol_info.discard_tree.get() as usize,
        next: Fbn(vol_info.discard_next.get()),
    };
    space.base = Base::of(&record.clone_base, place);
    Ok(LoadedVolume { space, root: vol_info.root })
}

/// Reads the logical side of the file system that `root` describes.
///
/// # Errors
/// What to wait for.
pub fn load_logical<P: Pointer>(
    volume: VolumeId,
    root: &FileSystemRoot,
    snapshots: &[Snapshot<P>],
    stripes: &[AffinityId],
    shared: Arc<Shared>,
    reader: &Reader<'_>,
) -> Progress<Logical<P>> {
    let mut logical = Logical::empty(volume, stripes, shared);
    logical.inode_file = buftree::Root::of(&root.inode_file);
    logical.next_generation = root.next_generation.get();
    logical.used_inodes = root.used_inodes.get();
    logical.shared.used_inodes.store(logical.used_inodes, Ordering::Relaxed);
    logical.snapshots = snapshot_views(snapshots);
    logical.orphans = read_orphans(volume, &logical.inode_file, reader)?.into();
    let quotas = QuotaFile::load(&logical.inode_file, volume, reader)?;
    logical.shared.quotas.set_counting(quotas.is_counting());
    Ok(logical)
}

/// The snapshots that readers see.
#[must_use]
pub(crate) fn snapshot_views<P: Pointer>(snapshots: &[Snapshot<P>]) -> Vec<SnapshotView<P>> {
    snapshots
        .iter()
        .filter(|snapshot| !snapshot.deleting)
        .map(|snapshot| SnapshotView {
            id: snapshot.id,
            name: snapshot.name.clone(),
            created: snapshot.created,
            inode_file: snapshot.root(),
        })
        .collect()
}

/// The orphan list of an image.
///
/// # Errors
/// What to wait for.
pub(crate) fn read_orphans<P: Pointer>(
    volume: VolumeId,
    inode_file: &buftree::Root<P>,
    reader: &Reader<'_>,
) -> Progress<Vec<InodeNumber>> {
    let inode = InodeNumber(metafile::ORPHANS);
    let record = read_record(inode_file, volume, inode, reader)?;
    let Some(record) = record.filter(|record| !record.is_free()) else { return Ok(Vec::new()) };
    let root = buftree::Root::<P>::of(&record);
    let key = FileKey { volume, inode, content: Content::Data };
    let mut orphans = Vec::new();
    for index in 0..record.size.get() / 4 {
        let (fbn, at) = (index * 4 / BLOCK_SIZE_U64, (index * 4 % BLOCK_SIZE_U64) as usize);
        let block = buftree::read(&root, &key, Fbn(fbn), reader)?;
        let block = block.ok_or(Stop::Damaged(Pvbn(0)))?;
        let mut number = [0; 4];
        number.copy_from_slice(&block.bytes()[at..at + 4]);
        orphans.push(InodeNumber(u64::from(u32::from_le_bytes(number))));
    }
    Ok(orphans)
}
