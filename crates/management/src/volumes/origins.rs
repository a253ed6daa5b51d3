//! What clones began with, and which clones a volume has, as administrators see it.

use crate::volumes::room::Volumes;
use admin_api::CloneOf;
use dblade::{CloneOrigin, ServedVolume};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{AggregateUuid, SnapshotId, VolumeId};

/// The names of those clones that began with one of these snapshots, in order.
pub(super) fn names_of(clones: &[Arc<ServedVolume>], snapshots: &[SnapshotId]) -> Vec<String> {
    let is_base = |clone: &&Arc<ServedVolume>| {
        clone.origin().is_some_and(|origin| snapshots.contains(&origin.snapshot))
    };
    let mut names: Vec<String> = clones.iter().filter(is_base).map(|clone| clone.name()).collect();
    names.sort();
    names
}

/// What is known of parents while several volumes are shown.
#[derive(Default)]
pub(crate) struct Origins {
    parents: BTreeMap<(AggregateUuid, VolumeId), ParentNames>,
}

/// The name of a parent, if it is in service, and those of its snapshots.
#[derive(Default)]
struct ParentNames {
    volume: Option<String>,
    snapshots: BTreeMap<SnapshotId, String>,
}

/// The clones of a volume.
pub(super) fn clones_of(volumes: &Volumes, volume: &ServedVolume) -> Vec<Arc<ServedVolume>> {
    let mut served = volumes.node.engine.volumes();
    served.retain(|other| {
        let is_parent = |parent| parent == volume.environment.volume && other.is_beside(volume);
        other.origin().is_some_and(|origin| is_parent(origin.parent))
    });
    served
}

/// Their names, in order.
pub(super) fn clone_names(volumes: &Volumes, volume: &ServedVolume) -> Vec<String> {
    let mut names: Vec<String> =
        clones_of(volumes, volume).iter().map(|clone| clone.name()).collect();
    names.sort();
    names
}

/// What a clone began with.
pub(super) fn clone_of(
    volumes: &Volumes,
    clone: &ServedVolume,
    known: &mut Origins,
) -> Option<CloneOf> {
    let CloneOrigin { parent, snapshot } = clone.origin()?;
    let aggregate = clone.aggregate.parts.identity.aggregate;
    let names = known.parents.entry((aggregate, parent)).or_insert_with(|| {
        let mut served = volumes.node.engine.volumes().into_iter();
        let found =
            served.find(|other| other.environment.volume == parent && other.is_beside(clone));
        let Some(found) = found else { return ParentNames::default() };
        let snapshots = volumes.snapshots_of(&found).unwrap_or_default();
        let snapshots = snapshots.into_iter().map(|one| (one.id, one.name)).collect();
        ParentNames { volume: Some(found.name()), snapshots }
    });
    // Of a parent that cannot be read the number is all that is known.
    let name = names.snapshots.get(&snapshot).cloned();
    let snapshot = name.unwrap_or_else(|| format!("snapshot {snapshot}"));
    Some(CloneOf { volume: names.volume.clone()?, snapshot })
}
