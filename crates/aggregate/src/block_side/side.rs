//! The aggregate's own file system: its free map, the containers and the volume table (FlexVol
//! section 3.1). Owned by the Aggregate VBN affinity.
//!
//! Invariants: `containers` has the roots of the last commit; changes of the table wait in
//! `dirty_slots` for the next freeze.

use super::settings::Settings;
use crate::allocation::reclaim::Reclaim;
use crate::allocation::refill::Refill;
use crate::containers::{
    Container, ContainerUpdate, MemberCleaned, VolumeSlot, container_inode, container_of,
};
use crate::error::{AggregateError, Lacking};
use crate::relocation::plan::Relocation;
use crate::relocation::tiering::Tiering;
use cowfs::buftree::Root;
use cowfs::cleaner::Leaf;
use cowfs::image::{FileWork, ImageCleaner, ImageFacts};
use cowfs::inode::InodeAttributes;
use cowfs::logical::{CleanedInode, FrozenInode};
use cowfs::ranges::RangeSet;
use cowfs::reader::HeldBlocks;
use cowfs::space::Space;
use ondisk::damage::Damage;
use ondisk::features::FeatureScope;
use ondisk::inode::{KIND_CONTAINER, KIND_METAFILE};
use ondisk::pointer::PhysicalPointer;
use ondisk::records::{STATE_DELETING, STATE_EMPTY, VOLUME_FLEXIBLE, VolumeRecord};
use ondisk::root::{FileSystemRoot, metafile};
use platform::mutation::{self, Rule};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Fbn, Generation, InodeNumber, Timestamp, VolumeId};

/// Volumes of an aggregate at most.
pub const VOLUMES_MAX: usize = 1000;

/// What the root of a traditional volume says of its files. A consistency point in which no file
/// changed writes it again.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts {
    /// The generation of the next file.
    pub next_generation: u32,
    /// Inodes in use.
    pub used_inodes: u64,
    /// Orphans.
    pub orphan_count: u32,
}

impl FileFacts {
    /// What `root` says.
    #[must_use]
    pub const fn of(root: &FileSystemRoot) -> Self {
        Self {
            next_generation: root.next_generation.get(),
            used_inodes: root.used_inodes.get(),
            orphan_count: root.orphan_count.get(),
        }
    }
}

/// See the module.
pub struct BlockSide {
    /// Free map and roots.
    pub space: Space<PhysicalPointer>,
    /// Where the next blocks go.
    pub refill: Refill,
    /// A message counts free blocks of areas.
    pub is_counting: bool,
    /// Where room may be given back to the disks.
    pub reclaim: Reclaim,
    /// What moves to other places.
    pub relocation: Relocation,
    /// What administrators have chosen.
    pub settings: Settings,
    /// The disks of the group that leaves are being taken out.
    pub is_group_taken_out: bool,
    /// Containers by volume.
    pub containers: BTreeMap<VolumeId, Container>,
    /// The volume table.
    pub table: Vec<VolumeSlot>,
    /// Its tree and blocks.
    pub table_file: (Root<PhysicalPointer>, u64),
    /// Slots changed since the last freeze.
    pub dirty_slots: BTreeSet<usize>,
    /// Volumes with something below their record that another build wrote, and what that is.
    pub not_understood: BTreeMap<VolumeId, Damage>,
    /// The number of the next volume.
    pub next_volume: u32,
    /// The root directory is a user's: a traditional volume.
    pub traditional: bool,
    /// What the last root said of the files of a traditional volume.
    pub file_facts: FileFacts,
    /// What the running consistency point changes in container maps, until its cleaning begins.
    pub cleaned: Option<Vec<MemberCleaned>>,
    /// The image being cleaned.
    pub cleaning: Option<AggregateCleaning>,
}

/// The cleaning of the aggregate's image.
pub struct AggregateCleaning {
    /// The cleaner.
    pub cleaner: ImageCleaner<PhysicalPointer>,
    /// Blocks loaded for it.
    pub held: HeldBlocks,
}

impl BlockSide {
    /// How many volumes more the volume table takes.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        let used = self.table.iter().filter(|slot| slot.record.state != STATE_EMPTY).count();
        VOLUMES_MAX.saturating_sub(used)
    }

    fn empty_slot(&self) -> Option<usize> {
        self.table.iter().position(|slot| slot.record.state == STATE_EMPTY)
    }

    /// The first of these names that is taken. That of a deleted volume is free.
    #[must_use]
    pub fn name_in_use<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let used = self.table.iter().filter(|slot| slot.record.state != STATE_EMPTY);
        let used: BTreeSet<Cow<'_, str>> = used.map(|slot| slot.record.title()).collect();
        names.into_iter().find(|name| used.contains(*name))
    }

    /// Adds a volume with the next number: its record, and the container of a flexible one; part of
    /// a freeze's action.
    ///
    /// # Panics
    /// If the record has another number, or the table is full.
    pub fn add_volume(&mut self, record: VolumeRecord) {
        assert_eq!(record.volume.get(), self.next_volume, "numbers are given in order");
        let slot = self.empty_slot().unwrap_or(self.table.len());
        assert!(slot < VOLUMES_MAX, "the volume table was looked at");
        if slot == self.table.len() {
            self.table.push(VolumeSlot { record });
        } else {
            self.table[slot].record = record;
        }
        self.dirty_slots.insert(slot);
        let volume = VolumeId(self.next_volume);
        self.next_volume += 1;
        if record.kind == VOLUME_FLEXIBLE {
            self.relocation.set(volume, &record);
            self.containers.insert(volume, Container::empty(record.parent()));
        }
    }

    /// The slot of a volume.
    #[must_use]
    pub fn slot_of(&self, volume: VolumeId) -> Option<usize> {
        self.table.iter().position(|slot| {
            slot.record.state != STATE_EMPTY && slot.record.volume.get() == volume.get()
        })
    }

    /// Another build wrote a structure below a volume's record: the volume stays as it is.
    pub fn set_not_understood(&mut self, volume: VolumeId, damage: Damage) {
        self.not_understood.insert(volume, damage);
        self.relocation.remove(volume);
    }

    /// The slot of a volume whose record an administrator's request may change. A volume of which
    /// this build lacks something stays as the build that has it left it (decision 34).
    ///
    /// # Errors
    /// The volume is gone, or in the recovery queue, or it is such a volume.
    pub fn changeable_slot_of(&self, volume: VolumeId) -> Result<usize, AggregateError> {
        let slot = self.slot_there(volume)?;
        let record = &self.table[slot].record;
        if record.is_queued() {
            let text = format!("volume '{}' is in the recovery queue", record.title());
            return Err(AggregateError::Refused(text));
        }
        self.check_understood(volume, record)?;
        Ok(slot)
    }

    /// The slot of a volume that is in the recovery queue.
    ///
    /// # Errors
    /// It is not, or this build lacks something of it.
    pub fn queued_slot_of(&self, volume: VolumeId) -> Result<usize, AggregateError> {
        let slot = self.slot_in_queue(volume)?;
        self.check_understood(volume, &self.table[slot].record)?;
        Ok(slot)
    }

    /// # Errors
    /// The volume is not in the recovery queue.
    pub fn check_queued(&self, volume: VolumeId) -> Result<(), AggregateError> {
        self.slot_in_queue(volume).map(drop)
    }

    fn slot_in_queue(&self, volume: VolumeId) -> Result<usize, AggregateError> {
        let slot = self.slot_there(volume)?;
        match self.table[slot].record.is_queued() {
            true => Ok(slot),
            false => Err(AggregateError::Refused("it is not in the recovery queue".to_owned())),
        }
    }

    /// The slot of a volume that is not being deleted.
    fn slot_there(&self, volume: VolumeId) -> Result<usize, AggregateError> {
        let is_live = |slot: &usize| self.table[*slot].record.state != STATE_DELETING;
        let gone = || AggregateError::Refused("the volume is gone".to_owned());
        self.slot_of(volume).filter(is_live).ok_or_else(gone)
    }

    fn check_understood(
        &self,
        volume: VolumeId,
        record: &VolumeRecord,
    ) -> Result<(), AggregateError> {
        let feature = record.features.forbids_writing(FeatureScope::Volume);
        let structure = self.not_understood.get(&volume).copied();
        match feature.map(Lacking::Feature).or_else(|| structure.map(Lacking::Structure)) {
            None => Ok(()),
            Some(_) if mutation::broken(Rule::LackingRecordChanged) => Ok(()),
            Some(lacking) => {
                Err(AggregateError::NotUnderstood { volume: record.title().into_owned(), lacking })
            }
        }
    }

    /// Whether a consistency point changes maps and trees now: they are not those of the last
    /// commit.
    #[must_use]
    pub const fn is_image_cleaned(&self) -> bool {
        self.cleaning.is_some() || self.cleaned.is_some()
    }

    /// Whether anything changed that no member knows of.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.dirty_slots.is_empty() || self.containers.values().any(|container| container.deleting)
    }

    /// The changed files of the aggregate's image.
    pub fn work(&mut self, cleaned: Vec<MemberCleaned>) -> Vec<FileWork<PhysicalPointer>> {
        let mut work = Vec::new();
        for member in cleaned {
            if let Some(container) = self.containers.get(&member.volume) {
                work.push(container_work(member.volume, container, member.updates));
            }
        }
        for (volume, container) in &self.containers {
            if container.deleting {
                work.push(deletion_work(*volume, container));
            }
        }
        let emptied: Vec<VolumeId> = self
            .containers
            .iter()
            .filter(|(_, container)| container.deleting && container.root.is_empty())
            .map(|(volume, _)| *volume)
            .collect();
        for volume in emptied {
            if let Some(slot) = self.slot_of(volume) {
                self.table[slot].record = VolumeRecord::empty();
                self.dirty_slots.insert(slot);
            }
        }
        if !self.dirty_slots.is_empty() {
            work.push(self.table_work());
        }
        work
    }

    fn table_work(&mut self) -> FileWork<PhysicalPointer> {
        let slots = std::mem::take(&mut self.dirty_slots);
        let leaves = slots
            .into_iter()
            .map(|slot| {
                (Fbn(slot as u64), Leaf::Block(Arc::new(self.table[slot].record.to_block())))
            })
            .collect();
        let number = InodeNumber(metafile::VOLUME_TABLE);
        let size = self.table.len() as u64 * BLOCK_SIZE_U64;
        let inode = frozen(number, KIND_METAFILE, size, self.table_file);
        FileWork { inode, leaves }
    }

    /// Takes over the trees of a finished image.
    pub fn publish(&mut self, cleaned: &[CleanedInode<PhysicalPointer>]) {
        for file in cleaned {
            if file.number.get() == metafile::VOLUME_TABLE {
                self.table_file = (file.root, file.blocks);
                continue;
            }
            let container = container_of(file.number).filter(|_| !self.traditional);
            let Some(volume) = container else { continue };
            if file.freed {
                self.containers.remove(&volume);
            } else if let Some(container) = self.containers.get_mut(&volume) {
                container.root = file.root;
                container.blocks = file.blocks;
                if file.quarantined.is_some() {
                    self.quarantine(volume);
                }
            }
        }
    }

    /// What a volume cannot live without is damaged: its container stays as the last commit has it,
    /// and the next one says so.
    pub fn quarantine(&mut self, volume: VolumeId) {
        if let Some(container) = self.containers.get_mut(&volume) {
            container.quarantined = true;
            self.relocation.remove(volume);
        }
    }

    /// From now on a volume's blocks move as `tiering` says; part of a freeze's action.
    ///
    /// # Errors
    /// Why they cannot.
    pub fn set_tiering(
        &mut self,
        volume: VolumeId,
        tiering: Tiering,
        now: Timestamp,
    ) -> Result<(), AggregateError> {
        tiering.check().map_err(AggregateError::Refused)?;
        let slot = self.changeable_slot_of(volume)?;
        let record = &mut self.table[slot].record;
        if !(tiering.is_cooling() && Tiering::of(record).is_cooling()) {
            // Blocks begin to cool now.
            record.scan_started.set(now.get());
            record.scan_next.set(0);
        }
        tiering.store(record);
        self.relocation.set(volume, record);
        self.dirty_slots.insert(slot);
        Ok(())
    }

    /// A group is to leave, or none any more; part of a freeze's action.
    pub fn set_leaving(&mut self, group: Option<u32>) {
        self.settings.leaving_group = group;
        self.refill.set_leaving(group);
    }

    /// Marks a volume deleted: its container is emptied in the background.
    pub fn delete_volume(&mut self, volume: VolumeId) {
        self.relocation.remove(volume);
        if let Some(container) = self.containers.get_mut(&volume) {
            container.deleting = true;
        }
        if let Some(slot) = self.slot_of(volume) {
            self.table[slot].record.object_blocks.set(0);
            self.table[slot].record.state = STATE_DELETING;
            self.dirty_slots.insert(slot);
        }
    }

    /// Facts of the image when no file of a user changed in it.
    #[must_use]
    pub fn facts(&self, cp: units::CpNumber) -> ImageFacts {
        let FileFacts { next_generation, used_inodes, orphan_count } = if self.traditional {
            self.file_facts
        } else {
            let used_inodes = self.containers.len() as u64;
            FileFacts { next_generation: 1, used_inodes, orphan_count: 0 }
        };
        ImageFacts {
            cp,
            next_generation,
            used_inodes,
            orphan_count,
            snapshots: Vec::new(),
            quota_changes: Vec::new(),
            counted_portion: 0,
        }
    }
}

fn frozen(
    number: InodeNumber,
    kind: u8,
    size: u64,
    (root, blocks): (Root<PhysicalPointer>, u64),
) -> FrozenInode<PhysicalPointer> {
    let mut attributes = InodeAttributes::new(kind, 0, Generation(1), Timestamp(0));
    attributes.size = size;
    FrozenInode {
        number,
        attributes,
        root,
        blocks,
        holes: RangeSet::default(),
        freed: false,
        reaping: false,
    }
}

fn container_work(
    volume: VolumeId,
    container: &Container,
    mut updates: Vec<ContainerUpdate>,
) -> FileWork<PhysicalPointer> {
    // Of updates of one number, the last counts. They come in runs that are in order.
    updates.sort_by_key(|(vvbn, _)| *vvbn);
    let size = updates.last().map_or(0, |(last, _)| (last.get() + 1) * BLOCK_SIZE_U64);
    let root = (container.root, container.blocks);
    let mut inode = frozen(container_inode(volume), KIND_CONTAINER, size, root);
    inode.attributes.quarantined = container.quarantined;
    let mut leaves = Vec::with_capacity(updates.len());
    let mut freed = Fbn(0)..Fbn(0);
    for same in updates.chunk_by(|(one, _), (next, _)| one == next) {
        let Some((vvbn, update)) = same.last() else { continue };
        let fbn = vvbn.in_container();
        match update {
            Some(pointer) => leaves.push((fbn, Leaf::Placed(*pointer))),
            None if fbn == freed.end => freed.end = fbn.offset(1),
            None => {
                inode.holes.add(freed.start, freed.end);
                freed = fbn..fbn.offset(1);
            }
        }
    }
    inode.holes.add(freed.start, freed.end);
    FileWork { inode, leaves }
}

fn deletion_work(volume: VolumeId, container: &Container) -> FileWork<PhysicalPointer> {
    let root = (container.root, container.blocks);
    let mut inode = frozen(container_inode(volume), KIND_CONTAINER, 0, root);
    inode.attributes.quarantined = container.quarantined;
    inode.holes = RangeSet::all();
    inode.reaping = true;
    inode.freed = container.root.is_empty();
    FileWork { inode, leaves: Vec::new() }
}
