//! Snapshots: old images that are kept (FlexVol section 2), and the background work that they
//! cause.
//!
//! A snapshot is the root of an image's inode file; making one writes a record. The snapshot's own
//! free map says which blocks it keeps. They count as held through the *summary map*, the OR of all
//! snapshots' maps. Each snapshot is merged into it in the background; until then its own map is
//! asked too.
//!
//! Snapshots of a volume form a line in time. A block lives in consecutive images of the line,
//! because a number that any of them uses is not given again. So a deleted snapshot alone held
//! exactly the blocks that neither its neighbours nor the active image hold. A restore makes the
//! line fork: the images that were left, all of which are being deleted, lie between the restored
//! snapshot and those that are made later. So two neighbours are asked on each side: the nearest of
//! all, and the nearest that is not being deleted.
//!
//! Invariants: map blocks below `merged_blocks` are in the summary map. Of a snapshot that is being
//! deleted, map blocks below `released_blocks` hold only what the deletion itself still reads: the
//! map and the way to it, which go last.

use crate::buftree::{self, Root};
use crate::free_map::MapFile;
use crate::logical::{inode_file_key, read_record};
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop};
use ondisk::damage::Damage;
use ondisk::inode::{INODES_PER_BLOCK, InodeRecord};
use ondisk::records::{
    SNAPSHOT_HELD, STATE_DELETING, STATE_EMPTY, STATE_ONLINE, SnapshotRecord, name_field,
};
use ondisk::root::metafile;
use platform::mutation::{self, Rule};
use std::collections::BTreeSet;
use std::sync::Arc;
use units::{CpNumber, Fbn, InodeNumber, Pvbn, SnapshotId, SnapshotUuid, Timestamp, VolumeId};
use zerocopy::little_endian::{I64, U32, U64};

/// Snapshots of a volume at most.
pub const SNAPSHOTS_MAX: usize = 1023;

/// A snapshot as the consistency point sees it.
#[derive(Debug)]
pub struct Snapshot<P: Pointer> {
    /// Its number.
    pub id: SnapshotId,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: SnapshotUuid,
    /// Its consistency point.
    pub cp: CpNumber,
    /// When it was made.
    pub created: Timestamp,
    /// Being deleted.
    pub deleting: bool,
    /// Not to be deleted: an administrator holds it.
    pub held: bool,
    /// See the module.
    pub merged_blocks: u64,
    /// See the module.
    pub released_blocks: u64,
    /// Blocks in use by its image.
    pub used_blocks: u64,
    /// Inodes in use in its image.
    pub used_inodes: u64,
    /// The inode of its inode file.
    pub inode_file: InodeRecord,
    /// The snapshot table of its consistency point, with its blocks: they are in its free map.
    /// `None` until that table is written.
    pub snapshot_table: Option<(Root<P>, u64)>,
    /// Its free map, once it was looked up.
    pub map: Option<MapFile<P>>,
    /// The blocks on the way to its free map and of it, once they were looked up.
    pub map_tree: Option<Arc<BTreeSet<P::Number>>>,
}

impl<P: Pointer> Snapshot<P> {
    /// The snapshot in `record`; `None` if it is empty.
    ///
    /// # Errors
    /// What is wrong with the record.
    pub fn of(record: &SnapshotRecord) -> Result<Option<Self>, Damage> {
        record.validate()?;
        if record.state == STATE_EMPTY {
            return Ok(None);
        }
        Ok(Some(Self {
            id: SnapshotId(record.snapshot.get()),
            name: record.name().to_owned(),
            identity: record.identity,
            cp: CpNumber(record.cp.get()),
            created: Timestamp(record.created.get()),
            deleting: record.state == STATE_DELETING,
            held: record.flags & SNAPSHOT_HELD != 0,
            merged_blocks: record.merged_blocks.get(),
            released_blocks: record.released_blocks.get(),
            used_blocks: record.used_blocks.get(),
            used_inodes: record.used_inodes.get(),
            inode_file: record.inode_file,
            snapshot_table: (!record.snapshot_table.is_free())
                .then(|| crate::image::root_of(&record.snapshot_table)),
            map: None,
            map_tree: None,
        }))
    }

    /// The record for media.
    ///
    /// # Panics
    /// If the name is too long: it was checked when the snapshot was asked for.
    #[must_use]
    pub fn record(&self) -> SnapshotRecord {
        let Ok((name, name_size)) = name_field(&self.name) else {
            panic!("snapshot name '{}' was accepted and does not fit", self.name)
        };
        let mut record = SnapshotRecord::empty();
        record.state = if self.deleting { STATE_DELETING } else { STATE_ONLINE };
        if self.held && !mutation::broken(Rule::HoldUnrecorded) {
            record.flags = SNAPSHOT_HELD;
        }
        record.name = name;
        record.name_size = name_size;
        record.identity = self.identity;
        record.snapshot = U32::new(self.id.get());
        record.cp = U64::new(self.cp.get());
        record.created = I64::new(self.created.get());
        record.merged_blocks = U64::new(self.merged_blocks);
        record.released_blocks = U64::new(self.released_blocks);
        record.used_blocks = U64::new(self.used_blocks);
        record.used_inodes = U64::new(self.used_inodes);
        record.inode_file = self.inode_file;
        if let Some((root, blocks)) = &self.snapshot_table {
            record.snapshot_table = crate::image::metafile_record(root, *blocks);
        }
        record
    }

    /// The root of its inode file.
    #[must_use]
    pub fn root(&self) -> Root<P> {
        Root::of(&self.inode_file)
    }

    /// Its free map.
    ///
    /// # Errors
    /// What to wait for.
    pub fn map(&mut self, volume: VolumeId, reader: &Reader<'_>) -> Progress<&MapFile<P>> {
        if self.map.is_none() {
            let inode = InodeNumber(metafile::ACTIVE_MAP);
            let record = read_record(&self.root(), volume, inode, reader)?;
            let record = record.ok_or(Stop::Damaged(Pvbn(0)))?;
            self.map = Some(MapFile::of(volume, metafile::ACTIVE_MAP, &record));
        }
        match &self.map {
            Some(map) => Ok(map),
            None => unreachable!("looked up above"),
        }
    }

    /// The numbers of the blocks that a deletion reads: those on the way from the root of the inode
    /// file to the map's inode, and those of the map.
    ///
    /// # Errors
    /// What to wait for.
    pub fn map_tree(
        &mut self,
        volume: VolumeId,
        reader: &Reader<'_>,
    ) -> Progress<Arc<BTreeSet<P::Number>>> {
        if let Some(tree) = &self.map_tree {
            return Ok(Arc::clone(tree));
        }
        let mut tree = BTreeSet::new();
        let first = Fbn(metafile::ACTIVE_MAP / INODES_PER_BLOCK as u64);
        buftree::numbers(&self.root(), &inode_file_key(volume), first, reader, &mut tree)?;
        let map = self.map(volume, reader)?;
        let mut from = Fbn(0);
        while let Some(index) = map.next_present(from, reader)? {
            buftree::numbers(&map.root, &map.key, index, reader, &mut tree)?;
            from = index.offset(1);
        }
        let tree = Arc::new(tree);
        self.map_tree = Some(Arc::clone(&tree));
        Ok(tree)
    }
}
