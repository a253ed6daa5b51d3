//! Volumes and their clones: what a clone inherits, and of whom.
//!
//! Invariants: parents come before their clones. Only what a clone may ask for is kept: container
//! maps of volumes that have clones, and the maps of the snapshots that clones began with.

use crate::filesystem::{Ancestor, ContainerMap};
use crate::finding::Finding;
use crate::space::Snapshot;
use crate::vbn_set::VbnSet;
use ondisk::features::MOVED_BLOCKS;
use ondisk::records::{STATE_ONLINE, VolumeRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{SnapshotId, SnapshotUuid, VolumeId};

/// The identity of a snapshot, and what it has in use, if that could be read.
type Base = (SnapshotUuid, Option<Arc<VbnSet>>);

/// A volume that has clones.
struct Parent {
    /// The volume itself, and its own ancestors.
    line: Vec<Ancestor>,
    /// Its snapshots that are not being deleted, with what they have in use; `None` if the volume
    /// was not looked at.
    bases: Option<BTreeMap<u32, Base>>,
}

/// See the module.
pub(crate) struct Families {
    /// The snapshots that clones began with, by volume.
    wanted: BTreeMap<VolumeId, BTreeSet<u32>>,
    parents: BTreeMap<VolumeId, Parent>,
}

impl Families {
    /// Those of these volumes, of which nothing is known yet.
    pub fn new(records: &[VolumeRecord]) -> Self {
        let mut wanted: BTreeMap<VolumeId, BTreeSet<u32>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.state == STATE_ONLINE) {
            if let Some(parent) = record.parent() {
                wanted.entry(parent).or_default().insert(record.clone_base.snapshot.get());
            }
        }
        Self { wanted, parents: BTreeMap::new() }
    }

    /// Whether there are clones.
    pub fn has_clones(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The ancestors of a volume, its parent first; and a finding if its base is missing.
    pub fn ancestors_of(&self, record: &VolumeRecord) -> (Vec<Ancestor>, Option<Finding>) {
        let Some(number) = record.parent().filter(|_| record.state == STATE_ONLINE) else {
            return (Vec::new(), None);
        };
        let base = &record.clone_base;
        let volume = VolumeId(record.volume.get());
        let snapshot = SnapshotId(base.snapshot.get());
        let missing = Finding::CloneBase { volume, parent: number, snapshot };
        let Some(parent) = self.parents.get(&number) else { return (Vec::new(), Some(missing)) };
        let mut line = parent.line.clone();
        let Some(bases) = &parent.bases else { return (line, None) };
        let found = bases.get(&snapshot.get()).filter(|(identity, _)| *identity == base.identity);
        let Some((_, map)) = found else { return (line, Some(missing)) };
        if let Some(first) = line.first_mut() {
            first.base.clone_from(map);
        }
        (line, None)
    }

    /// A volume and its ancestors.
    pub fn add(
        &mut self,
        record: &VolumeRecord,
        container: &Arc<ContainerMap>,
        ancestors: &[Ancestor],
    ) {
        let volume = VolumeId(record.volume.get());
        if self.wanted.contains_key(&volume) {
            let own = Ancestor {
                volume,
                container: Arc::clone(container),
                has_moved: record.features.has(&MOVED_BLOCKS),
                base: None,
            };
            let line = std::iter::once(own).chain(ancestors.iter().cloned()).collect();
            self.parents.insert(volume, Parent { line, bases: None });
        }
    }

    /// The snapshots of a volume that was looked at.
    pub fn note_bases(&mut self, volume: VolumeId, snapshots: &[Snapshot]) {
        let wanted = self.wanted.get(&volume);
        let (Some(wanted), Some(parent)) = (wanted, self.parents.get_mut(&volume)) else { return };
        let bases = snapshots
            .iter()
            .filter(|one| !one.is_deleting() && wanted.contains(&one.record.snapshot.get()));
        let base = |one: &Snapshot| {
            let is_whole = one.image.as_ref().is_some_and(|image| image.is_whole);
            let map = is_whole.then(|| Arc::new(one.map.clone()));
            (one.record.snapshot.get(), (one.record.identity, map))
        };
        parent.bases = Some(bases.map(base).collect());
    }
}
