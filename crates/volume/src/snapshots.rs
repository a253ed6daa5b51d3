//! What administrators ask of a volume's snapshots, carried out at a freeze.
//!
//! *Create* lets the consistency point keep its image. *Delete* marks the record; the space comes
//! back in the background. *Hold* and *release* say of a record whether it may be deleted.
//! *Restore* takes two consistency points: the first keeps the current image as a nameless snapshot
//! that is already being deleted, and reads what the restore needs; when it commits, the snapshot's
//! image becomes the active one; the second makes that durable. In between the volume is suspended,
//! so that the log holds nothing that does not fit the restored image.
//!
//! Requests come in any order, several at one freeze and beside a restore. Each is carried out as
//! if those before it were done, or refused with a sentence:
//!
//! | request | beside | what becomes of it |
//! | --- | --- | --- |
//! | delete, restore | a snapshot that this freeze creates or deletes | refused: there is none |
//! | restore | a restore under way | refused |
//! | create | a restore of the same freeze | refused: it would keep the image that is left |
//! | delete | a restore of that snapshot, of the same freeze | refused |
//! | delete | a restore of another snapshot, of the same freeze | carried out |
//! | create, delete | a restore of an earlier freeze | carried out: the image is switched by then |
//! | restore | a clone of a newer snapshot, before it or of the same freeze | refused: the clone needs it |
//! | clone, hold | a restore of an older snapshot, of the same freeze | refused: the snapshot goes |
//! | delete, restore | a hold of a snapshot that would go, before it or of the same freeze | refused |
//!
//! A volume that is deleted refuses all of them; a restore under way ends with its volume.
//!
//! Invariants: names are unique among the snapshots that are not being deleted. After a restore no
//! newer snapshot is left. The snapshot that is restored is there until its image is switched to.

use aggregate::{AggregateError, BlockSide};
use cowfs::buftree::Root;
use cowfs::free_map::MapFile;
use cowfs::image::NewSnapshot;
use cowfs::logical::read_record;
use cowfs::pointer::Pointer;
use cowfs::quotas::QuotaFile;
use cowfs::reader::{Progress, Reader, Stop};
use cowfs::snapshot::{SNAPSHOTS_MAX, Snapshot};
use cowfs::space::{Space, TopAreasFile};
use ondisk::features::SNAPSHOT_HOLDS;
use ondisk::root::metafile;
use platform::mutation::{self, Rule};
use std::collections::BTreeMap;
use units::{
    BlockRef, CpNumber, Fbn, InodeNumber, SnapshotId, SnapshotUuid, Timestamp, VolumeId, zero_block,
};

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotRequest {
    /// Keep the image of the next consistency point under this name.
    Create(String),
    /// Delete the snapshot of this name.
    Delete(String),
    /// Delete the snapshots of these two names, of which the first is the older, and all between
    /// them.
    DeleteThrough(String, String),
    /// Make the snapshot of this name the active image.
    Restore(String),
    /// Keep the snapshot of this name from being deleted, until it is released.
    Hold(String),
    /// Let the snapshot of this name be deleted again.
    Release(String),
}

/// What the snapshot has that a request makes, beside its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birth {
    /// Its identity.
    pub identity: SnapshotUuid,
    /// When it is made.
    pub time: Timestamp,
}

/// What is known of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotInfo {
    /// Its number.
    pub id: SnapshotId,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// Its consistency point.
    pub cp: CpNumber,
    /// Blocks in use by its image.
    pub used_blocks: u64,
    /// It is not deleted before it is released.
    pub held: bool,
}

impl SnapshotInfo {
    /// The snapshots that are not being deleted.
    pub(crate) fn of_kept<P: Pointer>(space: &Space<P>) -> Vec<Self> {
        let kept = space.snapshots.iter().filter(|snapshot| !snapshot.deleting);
        kept.map(|snapshot| Self {
            id: snapshot.id,
            name: snapshot.name.clone(),
            created: snapshot.created,
            cp: snapshot.cp,
            used_blocks: snapshot.used_blocks,
            held: snapshot.held,
        })
        .collect()
    }
}

/// A volume's requests on their way through consistency points.
#[derive(Debug)]
pub(crate) struct Requests<P> {
    pub create: Vec<NewSnapshot>,
    pub restore: Option<Restore<P>>,
}

impl<P> Default for Requests<P> {
    fn default() -> Self {
        Self { create: Vec::new(), restore: None }
    }
}

/// A restore under way.
#[derive(Debug)]
pub(crate) struct Restore<P> {
    pub snapshot: SnapshotId,
    pub name: String,
    /// Read by the first consistency point.
    pub image: Option<RestoredImage<P>>,
    /// The image is active; the second consistency point is to come.
    pub switched: bool,
    /// Why it cannot be.
    pub refusal: Option<String>,
    /// Maps, and blocks of the next one, that were found readable.
    pub checked: (usize, Fbn),
    /// What was read of the summary map and of the map of delayed frees.
    pub kept: [KeptContent; 2],
}

/// What the active image becomes.
#[derive(Debug)]
pub(crate) struct RestoredImage<P> {
    pub inode_file: (Root<P>, u64),
    pub active_map: MapFile<P>,
    pub orphans: Vec<InodeNumber>,
    pub used_inodes: u64,
    pub active_blocks: u64,
    /// The summary map and the map of delayed frees.
    pub summary: KeptMap<P>,
    pub delayed: KeptMap<P>,
    /// The snapshot table that the image's free map has, with its blocks.
    pub old_table: (Root<P>, u64),
    pub old_top_areas: TopAreasFile<P>,
    pub quotas: QuotaFile<P>,
}

/// The content of such a map, as far as it was read.
#[derive(Default, Debug)]
pub(crate) struct KeptContent {
    blocks: BTreeMap<Fbn, BlockRef>,
    /// Blocks before these are in it: of the restored image's map, and of the present one.
    old_from: Fbn,
    from: Fbn,
}

/// A map of which the content goes on, in the blocks that the restored image has for it.
#[derive(Debug)]
pub(crate) struct KeptMap<P> {
    content: BTreeMap<Fbn, BlockRef>,
    root: Root<P>,
    blocks: u64,
}

impl<P: Pointer> KeptMap<P> {
    /// The content of `map`, and the blocks that it has in the image with this inode file. What
    /// was read stays in `kept` over waits: all of it at once may be more than a cache holds.
    fn read(
        kept: &mut KeptContent,
        map: &MapFile<P>,
        inode_file: &Root<P>,
        reader: &Reader<'_>,
    ) -> Progress<Self> {
        let (volume, inode) = (map.key.volume, map.key.inode);
        let old = match read_record(inode_file, volume, inode, reader)? {
            Some(record) => MapFile::of(volume, inode.get(), &record),
            None => MapFile::new(volume, inode.get()),
        };
        let KeptContent { blocks, old_from, from } = kept;
        while let Some(index) = old.next_present(*old_from, reader)? {
            blocks.insert(index, zero_block());
            *old_from = index.offset(1);
        }
        while let Some(index) = map.next_present(*from, reader)? {
            let block = map.read(index, reader)?;
            // Where neither has anything there need not be a block.
            if !block.is_zero() || blocks.contains_key(&index) {
                blocks.insert(index, block);
            }
            *from = index.offset(1);
        }
        Ok(Self { content: blocks.clone(), root: old.root, blocks: old.blocks })
    }

    fn become_of(&self, map: &mut MapFile<P>) {
        (map.root, map.blocks) = (self.root, self.blocks);
        map.dirty.clone_from(&self.content);
    }
}

impl<P: Pointer> Requests<P> {
    /// Whether a request can be met, at a freeze.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self, space: &Space<P>, request: &SnapshotRequest) -> Result<(), AggregateError> {
        let refused = |text: String| Err(AggregateError::Refused(text));
        let beginning = self.restore.as_ref().filter(|restore| !restore.switched);
        match request {
            SnapshotRequest::Create(name) => {
                if let Some(Restore { name: restored, .. }) = beginning {
                    return refused(format!(
                        "the volume is being restored to '{restored}': make the snapshot when that \
                         is done"
                    ));
                }
                if live(space, name).is_some() || self.create.iter().any(|new| new.name == *name) {
                    return refused(format!("snapshot '{name}' exists"));
                }
                if space.snapshots.len() + self.create.len() >= SNAPSHOTS_MAX {
                    return refused(format!("the volume has {SNAPSHOTS_MAX} snapshots, the most"));
                }
            }
            SnapshotRequest::Delete(_) | SnapshotRequest::DeleteThrough(..) => {
                let going = deleted(space, request)?;
                check_not_held(space, &going)?;
                let kept = beginning.filter(|_| !mutation::broken(Rule::RestoredSnapshotDeleted));
                let is_kept = |at: &usize| {
                    kept.is_some_and(|restore| restore.snapshot == space.snapshots[*at].id)
                };
                if let Some(at) = going.into_iter().find(is_kept) {
                    let name = &space.snapshots[at].name;
                    return refused(format!(
                        "the volume is being restored to '{name}': delete the snapshot when that is \
                         done"
                    ));
                }
            }
            SnapshotRequest::Hold(name) | SnapshotRequest::Release(name) => {
                if self.will_lose(space, place(space, name)?) {
                    return refused(format!("a restore takes snapshot '{name}' away"));
                }
            }
            SnapshotRequest::Restore(name) => {
                check_not_held(space, &newer(space, place(space, name)?))?;
                if let Some(Restore { name: restored, .. }) = &self.restore {
                    return refused(format!("the volume is being restored to '{restored}'"));
                }
            }
        }
        Ok(())
    }

    /// Takes a request in that was checked.
    pub fn accept(&mut self, space: &mut Space<P>, request: &SnapshotRequest, birth: Birth) {
        let Birth { identity, time: created } = birth;
        match request {
            SnapshotRequest::Create(name) => {
                let name = name.clone();
                self.create.push(NewSnapshot { name, identity, created, deleting: false });
            }
            SnapshotRequest::Delete(_) | SnapshotRequest::DeleteThrough(..) => {
                let Ok(going) = deleted(space, request) else { unreachable!("it was checked") };
                for at in going {
                    space.snapshots[at].deleting = true;
                    space.note_snapshot(at);
                }
            }
            SnapshotRequest::Hold(name) | SnapshotRequest::Release(name) => {
                let Some(at) = live(space, name) else { unreachable!("it was checked") };
                space.snapshots[at].held = matches!(request, SnapshotRequest::Hold(_));
                space.note_snapshot(at);
            }
            SnapshotRequest::Restore(name) => {
                let Some(at) = live(space, name) else { unreachable!("it was checked") };
                let (snapshot, name) = (space.snapshots[at].id, name.clone());
                self.restore = Some(Restore {
                    snapshot,
                    name,
                    image: None,
                    switched: false,
                    refusal: None,
                    checked: (0, Fbn(0)),
                    kept: Default::default(),
                });
                let name = String::from("restored-over");
                self.create.push(NewSnapshot { name, identity, created, deleting: true });
            }
        }
    }

    /// Whether a restore that this freeze has taken in takes the snapshot at `at` away.
    pub fn will_lose(&self, space: &Space<P>, at: usize) -> bool {
        let beginning = self.restore.as_ref().filter(|restore| !restore.switched);
        let snapshots = &space.snapshots;
        beginning.is_some_and(|restore| {
            snapshots.iter().take(at).any(|older| older.id == restore.snapshot)
        })
    }

    /// Whether the next consistency point has something to do for a request.
    pub fn is_pending(&self) -> bool {
        !self.create.is_empty() || self.restore.is_some()
    }

    /// Reads what a restore needs, after the image that it leaves was cleaned.
    pub fn prepare_restore(&mut self, space: &mut Space<P>, reader: &Reader<'_>) -> Progress<()> {
        let Some(restore) = self.restore.as_mut().filter(|restore| !restore.switched) else {
            return Ok(());
        };
        let volume = space.volume;
        let found = space.snapshots.iter_mut().find(|found| found.id == restore.snapshot);
        let Some(snapshot) = found else { unreachable!("the snapshot was found at the freeze") };
        let root = snapshot.root();
        check_maps(volume, &root, &mut restore.checked, reader)?;
        let map = snapshot.map(volume, reader)?;
        let mut active_map = MapFile::new(volume, map.key.inode.get());
        active_map.root = map.root;
        active_map.blocks = map.blocks;
        let Some(old_table) = snapshot.snapshot_table else {
            unreachable!("the snapshot was committed, with a table")
        };
        let [summary, delayed] = &mut restore.kept;
        restore.image = Some(RestoredImage {
            inode_file: (root, snapshot.inode_file.blocks.get()),
            active_map,
            orphans: crate::load::read_orphans(volume, &root, reader)?,
            used_inodes: snapshot.used_inodes,
            active_blocks: snapshot.used_blocks,
            summary: KeptMap::read(summary, &space.summary_map, &root, reader)?,
            delayed: KeptMap::read(delayed, &space.delayed_map, &root, reader)?,
            old_table,
            old_top_areas: TopAreasFile::load(&root, volume, reader)?,
            quotas: QuotaFile::load(&root, volume, reader)?,
        });
        Ok(())
    }

    /// What the restore needs cannot be read: the volume stays as it is.
    pub fn refuse_restore(&mut self, stop: &Stop) {
        let Some(restore) = &mut self.restore else { unreachable!("a restore was prepared") };
        let name = &restore.name;
        restore.refusal = Some(format!(
            "snapshot '{name}' cannot be restored: {stop}; the volume stays as it is; copy what \
             can be read from .snapshot/{name}, or restore another snapshot"
        ));
    }

    /// At a commit: whether a restore takes effect now, and its image; or has ended. `grant` says
    /// whether there is room for so many blocks of maps and of the snapshot table, which the next
    /// consistency point writes.
    pub fn take_restore(
        &mut self,
        space: &mut Space<P>,
        grant: impl FnOnce(u64) -> bool,
    ) -> RestoreStep<P> {
        let Some(restore) = &mut self.restore else { return RestoreStep::None };
        if let Some(refusal) = restore.refusal.take() {
            self.restore = None;
            return RestoreStep::Refused(refusal);
        }
        if restore.switched {
            self.restore = None;
            return RestoreStep::Ended;
        }
        let Some(image) = restore.image.take() else {
            unreachable!("the consistency point read the image")
        };
        let maps = image.summary.content.len() + image.delayed.content.len();
        if !grant(maps as u64 + space.table_blocks()) {
            let name = std::mem::take(&mut restore.name);
            self.restore = None;
            return RestoreStep::Refused(format!(
                "the aggregate is full: there is no room to restore snapshot '{name}'; the volume \
                 stays as it is; delete files or other snapshots, then restore it again"
            ));
        }
        restore.switched = true;
        let at = space.snapshots.iter().position(|found| found.id == restore.snapshot);
        for newer in space.snapshots.iter_mut().skip(at.map_or(usize::MAX, |at| at + 1)) {
            newer.deleting = true;
        }
        space.drop_pool();
        space.inode_file = image.inode_file;
        space.active_blocks = image.active_blocks;
        space.active_map.root = image.active_map.root;
        space.active_map.blocks = image.active_map.blocks;
        // The content of the other maps and of the snapshot table goes on as it is, but its blocks
        // belong to the image that is left: the restored image's map does not have them. It has
        // those of these maps and the table of its own time; the content is written over them. So
        // it is with TopAA, whose scores are the same as before: no number became free.
        image.summary.become_of(&mut space.summary_map);
        image.delayed.become_of(&mut space.delayed_map);
        space.snapshot_table = image.old_table;
        // Limits are the volume's, and as old as its files.
        space.quotas = image.quotas;
        space.replace_top_areas(image.old_top_areas);
        space.note_snapshots_from(0);
        RestoreStep::Switched(Box::new(image))
    }
}

/// Where the snapshot of this name is that is not being deleted.
pub(crate) fn live<P: Pointer>(space: &Space<P>, name: &str) -> Option<usize> {
    space.snapshots.iter().position(|found| !found.deleting && found.name == name)
}

/// Where the snapshots are that were made after the one at `at`, without those being deleted.
pub(crate) fn newer<P: Pointer>(space: &Space<P>, at: usize) -> Vec<usize> {
    (at + 1..space.snapshots.len()).filter(|at| !space.snapshots[*at].deleting).collect()
}

/// # Errors
/// An administrator holds one of these snapshots.
pub(crate) fn check_not_held<P: Pointer>(
    space: &Space<P>,
    going: &[usize],
) -> Result<(), AggregateError> {
    let held = going.iter().map(|at| &space.snapshots[*at]).find(|one| one.held);
    match held.filter(|_| !mutation::broken(Rule::HeldSnapshotDeleted)) {
        None => Ok(()),
        Some(Snapshot { name, .. }) => {
            Err(AggregateError::Refused(format!("snapshot '{name}' is held, and would go")))
        }
    }
}

/// Notes in a volume's record that it has held snapshots, at the freeze at which one is held.
pub fn note_holds(side: &mut BlockSide, volume: VolumeId) {
    let Some(slot) = side.slot_of(volume) else { return };
    let features = &mut side.table[slot].record.features;
    if !features.has(&SNAPSHOT_HOLDS) {
        features.set(&SNAPSHOT_HOLDS);
        side.dirty_slots.insert(slot);
    }
}

fn place<P: Pointer>(space: &Space<P>, name: &str) -> Result<usize, AggregateError> {
    let none = || AggregateError::Refused(format!("there is no snapshot '{name}'"));
    live(space, name).ok_or_else(none)
}

/// Where the snapshots are that a request deletes.
///
/// # Errors
/// There is no such snapshot.
pub(crate) fn deleted<P: Pointer>(
    space: &Space<P>,
    request: &SnapshotRequest,
) -> Result<Vec<usize>, AggregateError> {
    let range = match request {
        SnapshotRequest::Create(_)
        | SnapshotRequest::Restore(_)
        | SnapshotRequest::Hold(_)
        | SnapshotRequest::Release(_) => return Ok(Vec::new()),
        SnapshotRequest::Delete(name) => {
            let at = place(space, name)?;
            at..=at
        }
        SnapshotRequest::DeleteThrough(oldest, newest) => {
            let range = place(space, oldest)?..=place(space, newest)?;
            if mutation::broken(Rule::DeletedRangeCutShort) && range.clone().count() > 1 {
                return Ok((*range.start()..*range.end()).collect());
            }
            if range.is_empty() {
                return Err(AggregateError::Refused(format!(
                    "snapshot '{newest}' is older than '{oldest}'"
                )));
            }
            range
        }
    };
    Ok(range.filter(|at| !space.snapshots[*at].deleting).collect())
}

/// Looks whether the maps can be read that an image cannot go on without.
fn check_maps<P: Pointer>(
    volume: VolumeId,
    root: &Root<P>,
    checked: &mut (usize, Fbn),
    reader: &Reader<'_>,
) -> Progress<()> {
    while let Some(number) = [metafile::ACTIVE_MAP, metafile::INODE_MAP].get(checked.0) {
        let record = read_record(root, volume, InodeNumber(*number), reader)?;
        let map = record.map(|record| MapFile::<P>::of(volume, *number, &record));
        while let Some(map) = &map
            && let Some(index) = map.next_present(checked.1, reader)?
        {
            map.read(index, reader)?;
            checked.1 = index.offset(1);
        }
        *checked = (checked.0 + 1, Fbn(0));
    }
    Ok(())
}

/// See [`Requests::take_restore`].
pub(crate) enum RestoreStep<P> {
    None,
    Switched(Box<RestoredImage<P>>),
    Ended,
    /// It is not to be, for this reason.
    Refused(String),
}
