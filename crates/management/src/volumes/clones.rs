//! Clones as administrators make them.
//!
//! Invariants: what is answered is durable; a clone has the export rules of the request, and none
//! of its parent's.

use crate::exports;
use crate::refusals::taken;
use crate::volumes::changes::{check_slots, checked_rules, object_of};
use crate::volumes::policies::{shown_guarantee, stored_guarantee};
use crate::volumes::room::Volumes;
use crate::volumes::view::planned_guarantee;
use admin_api::{
    AdminError, CloneCreate, CloneOf, Code, ExportRule, Guarantee, Time, VolumeInfo, VolumeState,
};
use dblade::{CloneRequest, ServedVolume, SnapshotSummary, VolumeKind, new_room_blocks};
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

const CLONE: &str = "cannot clone";
const CREATE: &str = "cannot create clone";

impl Volumes {
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
        let rules = checked_rules(CREATE, object, &wanted.exports)?;
        let guarantee = wanted.guarantee.unwrap_or_else(|| shown_guarantee(parent.guarantee()));
        if let Some(aggregate) = aggregates.iter().find(|aggregate| aggregate.name == *name) {
            check_slots(CREATE, object, (aggregate, wanted.names.len()))?;
        }
        if wanted.dry_run {
            let blocks = new_room_blocks(parent.size_blocks(), wanted.names.len());
            self.check_guarantee((CLONE, &source), (guarantee, name), blocks)?;
            let planned =
                |name: &String| self.planned_clone(name, (&parent, base), guarantee, &rules);
            return Ok(wanted.names.iter().map(planned).collect());
        }
        let request = CloneRequest {
            names: wanted.names.clone(),
            volume: parent.name(),
            snapshot: wanted.snapshot.clone(),
            exports: rules.iter().map(exports::to_record).collect(),
            guarantee: wanted.guarantee.map(stored_guarantee),
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
        guarantee: Guarantee,
        rules: &[ExportRule],
    ) -> VolumeInfo {
        let live_bytes = base.used_blocks * BLOCK_SIZE_U64;
        let of_parent = self.volume_info(parent);
        let own_bytes = of_parent.size_bytes.saturating_sub(live_bytes);
        let of_aggregate = parent.aggregate.parts.shared.budget.free_blocks() * BLOCK_SIZE_U64;
        let available_bytes = match guarantee {
            Guarantee::None => own_bytes.min(of_aggregate),
            Guarantee::Volume => own_bytes,
        };
        VolumeInfo {
            name: name.to_owned(),
            id: 0,
            state: VolumeState::Online,
            taken_offline: false,
            tiered_bytes: 0,
            live_bytes,
            snapshot_bytes: 0,
            delayed_free_bytes: 0,
            available_bytes,
            guarantee,
            guaranteed_bytes: planned_guarantee(guarantee, parent.size_blocks()),
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
