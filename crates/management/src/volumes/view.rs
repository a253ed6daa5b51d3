//! Volumes as administrators see them.

use crate::exports;
use crate::volumes::origins::{Origins, clone_of};
use crate::volumes::policies::{
    shown_autodelete, shown_autogrow_max, shown_guarantee, shown_policy, shown_reallocation,
    stored_tiering,
};
use crate::volumes::room::Volumes;
use crate::volumes::schedules::shown_schedule;
use admin_api::{
    AggregateInfo, DamagedFile, Guarantee, Owner, Time, VolumeCreate, VolumeInfo, VolumeState,
};
use dblade::{GivenUp, ServedVolume, VolumeDamage, VolumeKind, room_blocks_max};
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// Owner of a new volume's root directory, unless another is named.
pub(crate) const ROOT_OWNER: Owner = Owner { uid: 0, gid: 0 };
/// What would be kept free for a new volume of this size.
pub(super) fn planned_guarantee(guarantee: Guarantee, size_blocks: u64) -> u64 {
    match guarantee {
        Guarantee::None => 0,
        Guarantee::Volume => room_blocks_max(size_blocks).saturating_mul(BLOCK_SIZE_U64),
    }
}

impl Volumes {
    /// How a volume of this name would be.
    pub(crate) fn planned(
        &self,
        name: &str,
        wanted: &VolumeCreate,
        aggregate: &AggregateInfo,
    ) -> VolumeInfo {
        VolumeInfo {
            name: name.to_owned(),
            id: 0,
            aggregate: wanted.aggregate.clone(),
            state: VolumeState::Online,
            taken_offline: false,
            traditional: false,
            tiering_policy: wanted.tiering_policy,
            tiering_minimum_cooling_days: stored_tiering(wanted).days(),
            reallocate: wanted.reallocate,
            autogrow_max_bytes: wanted.autogrow_max_bytes.filter(|bytes| *bytes > 0),
            snapshot_policy: wanted.snapshot_policy,
            snapshot_autodelete: wanted.snapshot_autodelete,
            guarantee: wanted.guarantee,
            guaranteed_bytes: planned_guarantee(
                wanted.guarantee,
                wanted.size_bytes.div_ceil(BLOCK_SIZE_U64),
            ),
            tiered_bytes: 0,
            size_bytes: wanted.size_bytes,
            live_bytes: 0,
            snapshot_bytes: 0,
            delayed_free_bytes: 0,
            available_bytes: match wanted.guarantee {
                Guarantee::None => wanted.size_bytes.min(aggregate.free_bytes),
                Guarantee::Volume => wanted.size_bytes,
            },
            files: 1,
            snapshots: 0,
            owner: wanted.owner.unwrap_or(ROOT_OWNER),
            created: Time(self.node.clock.wall()),
            clone_of: None,
            inherited_bytes: 0,
            exports: wanted.exports.clone(),
            mountpoints: Vec::new(),
            damaged_files: Vec::new(),
            damage: None,
            lacking_feature: None,
        }
    }

    /// A volume as administrators see it.
    pub(crate) fn volume_info(&self, volume: &Arc<ServedVolume>) -> VolumeInfo {
        self.info_with(volume, &mut Origins::default())
    }

    /// Volumes as administrators see them.
    pub(crate) fn volume_infos(&self, volumes: &[Arc<ServedVolume>]) -> Vec<VolumeInfo> {
        let mut origins = Origins::default();
        volumes.iter().map(|volume| self.info_with(volume, &mut origins)).collect()
    }

    fn info_with(&self, volume: &Arc<ServedVolume>, origins: &mut Origins) -> VolumeInfo {
        let failed = volume.aggregate.is_failed();
        VolumeInfo {
            snapshots: self.snapshots_of(volume).map_or(0, |list| list.len() as u64),
            owner: if failed { ROOT_OWNER } else { self.owner(&volume.name()) },
            exports: exports::from_records(&volume.name(), &volume.exports()),
            mountpoints: self.mountpoints(&volume.name()),
            clone_of: clone_of(self, volume, origins),
            ..Self::glimpse(volume)
        }
    }

    /// What of a volume is known without asking the engine: nothing of its snapshots, its owner,
    /// who may use it, and what it is a clone of.
    pub(crate) fn glimpse(volume: &Arc<ServedVolume>) -> VolumeInfo {
        let (files, traditional) = match &volume.kind {
            VolumeKind::Flexible(flexible) => (flexible.front.shared.used_inodes(), false),
            VolumeKind::Traditional(plain) => (plain.front.shared.used_inodes(), true),
        };
        let lacking_feature = volume.damage().as_ref().and_then(VolumeDamage::lacking);
        let damage = volume.damage().filter(|_| lacking_feature.is_none());
        VolumeInfo {
            name: volume.name(),
            id: volume.environment.volume.get(),
            aggregate: volume.aggregate.parts.identity.name.clone(),
            state: state_of(volume),
            taken_offline: volume.is_offline(),
            traditional,
            tiering_policy: shown_policy(volume.tiering().policy),
            tiering_minimum_cooling_days: volume.tiering().days(),
            reallocate: shown_reallocation(volume.reallocation()),
            autogrow_max_bytes: shown_autogrow_max(volume.autogrow_max()),
            snapshot_policy: shown_schedule(volume.schedule()),
            snapshot_autodelete: shown_autodelete(volume.autodelete()),
            guarantee: shown_guarantee(volume.guarantee()),
            guaranteed_bytes: volume.guaranteed_blocks() * BLOCK_SIZE_U64,
            tiered_bytes: volume.object_blocks() * BLOCK_SIZE_U64,
            size_bytes: volume.size_blocks() * BLOCK_SIZE_U64,
            live_bytes: volume.active_blocks() * BLOCK_SIZE_U64,
            snapshot_bytes: volume.used_blocks().saturating_sub(volume.active_blocks())
                * BLOCK_SIZE_U64,
            delayed_free_bytes: volume.delayed_blocks() * BLOCK_SIZE_U64,
            available_bytes: match volume.damage() {
                None => volume.available_blocks() * BLOCK_SIZE_U64,
                Some(_) => 0,
            },
            files,
            snapshots: 0,
            owner: ROOT_OWNER,
            created: Time(volume.created),
            clone_of: None,
            inherited_bytes: volume.inherited_blocks() * BLOCK_SIZE_U64,
            exports: Vec::new(),
            mountpoints: Vec::new(),
            damaged_files: volume.given_up().iter().map(damaged_file).collect(),
            damage: damage.map(|damage| damage.to_string()),
            lacking_feature,
        }
    }

    fn owner(&self, volume: &str) -> Owner {
        match self.node.waits.wait_for(|done| self.node.engine.root_attributes(volume, done)) {
            Some(Ok(root)) => Owner { uid: root.uid, gid: root.gid },
            _ => ROOT_OWNER,
        }
    }
}

fn state_of(volume: &ServedVolume) -> VolumeState {
    if volume.aggregate.is_failed() || volume.is_unreadable() || volume.is_offline() {
        VolumeState::Offline
    } else if volume.damage().is_some() {
        VolumeState::ReadOnly
    } else {
        VolumeState::Online
    }
}

/// A file that was given up, as administrators see it.
fn damaged_file(file: &GivenUp) -> DamagedFile {
    DamagedFile {
        inode: file.inode.get(),
        block: file.pvbn.get(),
        leaked_bytes: file.leaked_blocks.map(|blocks| blocks.saturating_mul(BLOCK_SIZE_U64)),
    }
}
