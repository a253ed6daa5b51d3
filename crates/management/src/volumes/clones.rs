//! Clones as administrators make and see them.
//!
//! Invariants: what is answered is durable; whoever may mount a volume may not mount its clones
//! unless the request says so.

use crate::exports;
use crate::refusals::taken;
use crate::volumes::changes::{check_slots, checked_rules, object_of};
use crate::volumes::room::Volumes;
use admin_api::{
    AdminError, CloneCreate, CloneOf, Code, ExportRule, Time, VolumeInfo, VolumeState,
};
use dblade::{CloneOrigin, CloneRequest, ServedVolume, SnapshotSummary, VolumeKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{AggregateUuid, BLOCK_SIZE_U64, SnapshotId, VolumeId};

const CLONE: &str = "cannot clone";
const CREATE: &str = "cannot create clone";

/// The names of those clones that began with one of these snapshots, in order.
pub(super) fn names_of(clones: &[Arc<ServedVolume>], snapshots: &[SnapshotId]) -> Vec<String> {
    let is_base = |clone: &&Arc<ServedVolume>| {
        clone.origin.is_some_and(|origin| snapshots.contains(&origin.snapshot))
    };
    let mut names: Vec<String> = clones.iter().filter(is_base).map(|clone| clone.name()).collect();
    names.sort();
    names
}

/// What is known of parents while several volumes are shown.
#[derive(Default)]
pub(crate) struct Origins {
    /// The name of each, and those of its snapshots.
    parents: BTreeMap<(AggregateUuid, VolumeId), (Option<String>, BTreeMap<SnapshotId, String>)>,
}

impl Volumes {
    /// The clones of a volume.
    pub(super) fn clones_of(&self, volume: &ServedVolume) -> Vec<Arc<ServedVolume>> {
        let mut served = self.node.engine.volumes();
        served.retain(|other| {
            let is_parent = |parent| parent == volume.environment.volume && other.is_beside(volume);
            other.origin.is_some_and(|origin| is_parent(origin.parent))
        });
        served
    }

    /// Their names, in order.
    pub(super) fn clone_names(&self, volume: &ServedVolume) -> Vec<String> {
        let mut names: Vec<String> =
            self.clones_of(volume).iter().map(|clone| clone.name()).collect();
        names.sort();
        names
    }

    /// What a clone began with.
    pub(super) fn clone_of(&self, clone: &ServedVolume, known: &mut Origins) -> Option<CloneOf> {
        let CloneOrigin { parent, snapshot } = clone.origin?;
        let aggregate = clone.aggregate.parts.identity.aggregate;
        let (volume, names) = known.parents.entry((aggregate, parent)).or_insert_with(|| {
            let mut served = self.node.engine.volumes().into_iter();
            let found =
                served.find(|other| other.environment.volume == parent && other.is_beside(clone));
            let Some(found) = found else { return Default::default() };
            let snapshots = self.snapshots_of(&found).unwrap_or_default();
            let names = snapshots.into_iter().map(|one| (one.id, one.name)).collect();
            (Some(found.name()), names)
        });
        // Of a parent that cannot be read the number is all that is known.
        let name = names.get(&snapshot).cloned();
        let snapshot = name.unwrap_or_else(|| format!("snapshot {snapshot}"));
        Some(CloneOf { volume: volume.clone()?, snapshot })
    }

    pub(crate) fn create_clones(
        &self,
        wanted: &CloneCreate,
    ) -> Result<Vec<VolumeInfo>, AdminError> {
        let [first, ..] = &wanted.names[..] else { return Ok(Vec::new()) };
        let _turn = self.node.turn();
        for name in &wanted.names {
            self.check_name_free(name, None, || taken("volume", name))?;
        }
        let source = format!("{}@{}", wanted.volume, wanted.snapshot);
        let parent = self.find(CLONE, &wanted.volume)?;
        if let VolumeKind::Traditional(_) = parent.kind {
            return Err(AdminError::new(Code::Conflict, CLONE, &source)
                .because("its volume is a traditional one, and its aggregate takes no other")
                .try_next(
                    "stroop volume create NAME, in an aggregate made without --traditional",
                ));
        }
        if let Some(damage) = parent.damage() {
            return Err(AdminError::new(Code::Conflict, CLONE, &source)
                .because(format!("its volume is read-only: {damage}")));
        }
        let list = self.snapshots_of(&parent)?;
        let base = list.iter().find(|snapshot| snapshot.name == wanted.snapshot);
        let base = base.ok_or_else(|| AdminError::missing(CLONE, "snapshot", &source))?;
        let aggregates = self.aggregates.aggregate_list();
        let name = &parent.aggregate.parts.identity.name;
        let object = &object_of(first, wanted.names.len());
        if let Some(aggregate) = aggregates.iter().find(|aggregate| aggregate.name == *name) {
            check_slots(CREATE, object, (aggregate, wanted.names.len()))?;
        }
        let rules = checked_rules(CREATE, object, &wanted.exports)?;
        if wanted.dry_run {
            let planned = |name: &String| self.planned_clone(name, (&parent, base), &rules);
            return Ok(wanted.names.iter().map(planned).collect());
        }
        let request = CloneRequest {
            names: wanted.names.clone(),
            volume: parent.name(),
            snapshot: wanted.snapshot.clone(),
            exports: rules.iter().map(exports::to_record).collect(),
        };
        let engine = &self.node.engine;
        self.node.waits.request(CLONE, &source, |done| engine.create_clones(request, done))?;
        let made = |name: &String| {
            let volume = self.find(CLONE, name)?;
            exports::publish(&*self.node.front_ends, &volume);
            tracing::info!(volume = name, of = source, "clone created");
            Ok(volume)
        };
        let made: Result<Vec<_>, AdminError> = wanted.names.iter().map(made).collect();
        Ok(self.volume_infos(&made?))
    }

    /// How a clone would be.
    fn planned_clone(
        &self,
        name: &str,
        (parent, base): (&Arc<ServedVolume>, &SnapshotSummary),
        rules: &[ExportRule],
    ) -> VolumeInfo {
        let live_bytes = base.used_blocks * BLOCK_SIZE_U64;
        let of_parent = self.volume_info(parent);
        let own_bytes = of_parent.size_bytes.saturating_sub(live_bytes);
        let aggregate = parent.aggregate.parts.shared.budget.free_blocks() * BLOCK_SIZE_U64;
        VolumeInfo {
            name: name.to_owned(),
            id: 0,
            state: VolumeState::Online,
            taken_offline: false,
            tiered_bytes: 0,
            live_bytes,
            snapshot_bytes: 0,
            delayed_free_bytes: 0,
            available_bytes: own_bytes.min(aggregate),
            snapshots: 0,
            created: Time(self.node.clock.wall()),
            clone_of: Some(CloneOf { volume: parent.name(), snapshot: base.name.clone() }),
            inherited_bytes: live_bytes,
            exports: rules.to_vec(),
            mountpoints: Vec::new(),
            damaged_files: Vec::new(),
            damage: None,
            lacking_feature: None,
            ..of_parent
        }
    }
}
