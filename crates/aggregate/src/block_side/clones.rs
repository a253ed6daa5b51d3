//! Clones in the volume table: which volumes and snapshots clones keep from being deleted, and
//! where the blocks of clones lie (FlexVol section 4.2, "Volume Clones").
//!
//! A clone's container map has the blocks that the clone wrote. For a block that the clone
//! inherited the map has a hole, and the container map of the parent has the block, or that of the
//! parent's parent, and so on.
//!
//! Invariants: a volume that has a clone is not deleted, and a snapshot that a clone began with
//! stays. So the entry of an inherited block stays too. A parent's number is less than its clone's:
//! the way up ends.
//!
//! Fails: [`AggregateError::Refused`] names the clones.

use super::side::BlockSide;
use crate::containers::container_lookup;
use crate::error::AggregateError;
use cowfs::pointer::Pointer;
use cowfs::reader::{Progress, Reader};
use ondisk::features::CLONES;
use ondisk::pointer::PhysicalPointer;
use ondisk::records::{STATE_ONLINE, VolumeRecord};
use platform::mutation::{self, Rule};
use std::borrow::Cow;
use units::{SnapshotId, VolumeId, Vvbn};

/// Ancestors of a volume at most: as many container maps are asked for a block.
pub const ANCESTORS_MAX: usize = 16;
/// Clones that a refusal names at most.
const NAMED_MAX: usize = 8;

impl BlockSide {
    /// The place of a VVBN's block, inherited or not; a hole if there is none.
    ///
    /// Of a number that the volume has taken anew, and that is not in its container map yet, this
    /// is the place of the block that an ancestor has under the same number.
    ///
    /// # Errors
    /// What to wait for.
    pub fn place_of(
        &self,
        volume: VolumeId,
        vvbn: Vvbn,
        reader: &Reader<'_>,
    ) -> Progress<PhysicalPointer> {
        Ok(self.holder_of(volume, vvbn, reader)?.map_or_else(PhysicalPointer::default, |one| one.1))
    }

    /// The volume whose container map has a VVBN's block, and its place; `None` if none has. See
    /// [`Self::place_of`].
    ///
    /// # Errors
    /// What to wait for.
    pub(crate) fn holder_of(
        &self,
        volume: VolumeId,
        vvbn: Vvbn,
        reader: &Reader<'_>,
    ) -> Progress<Option<(VolumeId, PhysicalPointer)>> {
        let mut next = Some(volume);
        while let Some(volume) = next
            && let Some(container) = self.containers.get(&volume)
        {
            let found = container_lookup(volume, container, vvbn, reader)?;
            if !found.is_hole() || mutation::broken(Rule::AncestorNotAsked) {
                return Ok(Some((volume, found)));
            }
            next = container.parent;
        }
        Ok(None)
    }

    /// The ancestors of a volume, its parent first.
    pub fn ancestors_of(&self, volume: VolumeId) -> impl Iterator<Item = VolumeId> + '_ {
        let parent = |volume: &VolumeId| self.containers.get(volume).and_then(|one| one.parent);
        std::iter::successors(parent(&volume), parent)
    }

    /// The clones that need a volume. A clone that is being deleted reads nothing of it any more.
    pub fn clones_of(&self, volume: VolumeId) -> impl Iterator<Item = &VolumeRecord> {
        let records = self.table.iter().map(|slot| &slot.record);
        records.filter(move |one| one.state == STATE_ONLINE && one.parent() == Some(volume))
    }

    /// Notes that the aggregate has clones: in the superblock that the first of them comes with.
    pub fn note_clones(&mut self) {
        self.settings.features.set(&CLONES);
    }

    /// # Errors
    /// The volume has clones.
    pub fn check_no_clones(&self, volume: VolumeId) -> Result<(), AggregateError> {
        if mutation::broken(Rule::ParentUnpinned) {
            return Ok(());
        }
        refuse("its snapshots", self.clones_of(volume))
    }

    /// # Errors
    /// One of these snapshots of the volume is a clone's base.
    pub fn check_no_base(
        &self,
        volume: VolumeId,
        snapshots: &[SnapshotId],
    ) -> Result<(), AggregateError> {
        if mutation::broken(Rule::BaseUnpinned) {
            return Ok(());
        }
        let is_base = |clone: &&VolumeRecord| {
            snapshots.contains(&SnapshotId(clone.clone_base.snapshot.get()))
        };
        refuse("a snapshot that would go", self.clones_of(volume).filter(is_base))
    }
}

fn refuse<'a>(
    what: &str,
    clones: impl Iterator<Item = &'a VolumeRecord>,
) -> Result<(), AggregateError> {
    let names: Vec<Cow<'_, str>> = clones.map(VolumeRecord::title).collect();
    if names.is_empty() {
        return Ok(());
    }
    let others = names.len().saturating_sub(NAMED_MAX);
    let named = names[..names.len() - others].join(", ");
    let more = if others > 0 { format!(" and {others} more") } else { String::new() };
    Err(AggregateError::Refused(format!("clones use {what}: {named}{more}")))
}
