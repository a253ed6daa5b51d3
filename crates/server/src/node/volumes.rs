//! Volumes and their export rules as administrators see, make and delete them.
//!
//! Invariants: NFS clients see a volume, or a changed rule, only when it is durable; a volume that
//! is mounted on this machine is not deleted.

use super::aggregates::check_takes_volumes;
use super::blocking::{request, wait_for};
use super::core::Core;
use super::refusals::{missing, taken};
use super::rules;
use admin_api::exports::{add_rule, remove_rule};
use admin_api::{
    AdminError, AggregateInfo, Code, DamagedFile, ExportAdd, ExportRemove, ExportRule, MountCreate,
    MountInfo, Owner, Removal, TieringPolicy, Time, VolumeCreate, VolumeDelete, VolumeExports,
    VolumeFilter, VolumeInfo, VolumeSet, VolumeState,
};
use dblade::{GivenUp, ServedVolume, Tiering, VolumeKind, VolumeRequest};
use file_service::{Caller, calls};
use ondisk::records::EXPORT_RULES_MAX;
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// Mode of a new volume's root directory.
const ROOT_MODE: u16 = 0o755;
/// Owner of a new volume's root directory, unless another is named.
const ROOT_OWNER: Owner = Owner { uid: 0, gid: 0 };
const CREATE: &str = "cannot create volume";

const fn shown_policy(policy: dblade::TieringPolicy) -> TieringPolicy {
    match policy {
        dblade::TieringPolicy::None => TieringPolicy::None,
        dblade::TieringPolicy::SnapshotOnly => TieringPolicy::SnapshotOnly,
        dblade::TieringPolicy::Auto => TieringPolicy::Auto,
        dblade::TieringPolicy::All => TieringPolicy::All,
    }
}

const fn stored_policy(policy: TieringPolicy) -> dblade::TieringPolicy {
    match policy {
        TieringPolicy::None => dblade::TieringPolicy::None,
        TieringPolicy::SnapshotOnly => dblade::TieringPolicy::SnapshotOnly,
        TieringPolicy::Auto => dblade::TieringPolicy::Auto,
        TieringPolicy::All => dblade::TieringPolicy::All,
    }
}

const fn stored_tiering(wanted: &VolumeCreate) -> Tiering {
    let policy = stored_policy(wanted.tiering_policy);
    Tiering { policy, cooling_days: wanted.tiering_minimum_cooling_days }
}

/// # Errors
/// What is wrong with it.
fn check_tiering(message: &str, name: &str, tiering: Tiering) -> Result<(), AdminError> {
    tiering.check().map_err(|cause| AdminError::usage(message, name).because(cause))
}

impl Core {
    /// The volumes in service, in order of name.
    pub(super) fn served(&self) -> Vec<Arc<ServedVolume>> {
        let mut volumes = self.engine.volumes();
        volumes.retain(|volume| self.is_in_service(volume));
        volumes
    }

    /// A volume in service. `message` begins the error.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(super) fn find(&self, message: &str, name: &str) -> Result<Arc<ServedVolume>, AdminError> {
        let found = self.engine.volume_named(name).filter(|volume| self.is_in_service(volume));
        found.ok_or_else(|| missing(message, "volume", name))
    }

    /// The volumes that a filter means. `message` begins the error.
    ///
    /// # Errors
    /// `NotFound` if it names one that is not there.
    pub(super) fn filtered(
        &self,
        message: &str,
        filter: &VolumeFilter,
    ) -> Result<Vec<Arc<ServedVolume>>, AdminError> {
        match &filter.volume {
            Some(name) => self.find(message, name).map(|volume| vec![volume]),
            None => Ok(self.served()),
        }
    }

    pub(super) fn create_volume(&self, wanted: &VolumeCreate) -> Result<VolumeInfo, AdminError> {
        let _turn = self.turn();
        if self.engine.volume_named(&wanted.name).is_some() {
            return Err(taken("volume", &wanted.name));
        }
        let aggregates = self.aggregate_list();
        let found = aggregates.iter().find(|aggregate| aggregate.name == wanted.aggregate);
        let Some(aggregate) = found else {
            return Err(missing("cannot create volume in", "aggregate", &wanted.aggregate));
        };
        check_takes_volumes(aggregate)?;
        let mut rules = Vec::new();
        for rule in &wanted.exports {
            add_rule(&wanted.name, &mut rules, *rule, None)?;
        }
        check_rules_count(CREATE, &wanted.name, &rules)?;
        check_tiering(CREATE, &wanted.name, stored_tiering(wanted))?;
        if wanted.dry_run {
            return Ok(self.planned(wanted, aggregate));
        }
        let owner = wanted.owner.unwrap_or(ROOT_OWNER);
        let create = VolumeRequest {
            name: wanted.name.clone(),
            aggregate: wanted.aggregate.clone(),
            size_blocks: wanted.size_bytes.div_ceil(BLOCK_SIZE_U64),
            root: (owner.uid, owner.gid, ROOT_MODE),
            exports: rules.iter().map(rules::to_record).collect(),
            tiering: stored_tiering(wanted),
        };
        let engine = &self.engine;
        request(CREATE, &wanted.name, |done| engine.create_volume(create, done))?;
        let volume = self.find(CREATE, &wanted.name)?;
        self.publish_exports(&volume);
        tracing::info!(volume = wanted.name, aggregate = wanted.aggregate, "volume created");
        Ok(self.volume_info(&volume))
    }

    /// How a volume would be.
    fn planned(&self, wanted: &VolumeCreate, aggregate: &AggregateInfo) -> VolumeInfo {
        VolumeInfo {
            name: wanted.name.clone(),
            id: 0,
            aggregate: wanted.aggregate.clone(),
            state: VolumeState::Online,
            traditional: false,
            tiering_policy: wanted.tiering_policy,
            tiering_minimum_cooling_days: stored_tiering(wanted).days(),
            tiered_bytes: 0,
            size_bytes: wanted.size_bytes,
            live_bytes: 0,
            snapshot_bytes: 0,
            delayed_free_bytes: 0,
            available_bytes: wanted.size_bytes.min(aggregate.free_bytes),
            files: 1,
            snapshots: 0,
            owner: wanted.owner.unwrap_or(ROOT_OWNER),
            created: Time(self.clock.wall()),
            exports: wanted.exports.clone(),
            mountpoints: Vec::new(),
            damaged_files: Vec::new(),
            damage: None,
        }
    }

    /// A volume as administrators see it.
    pub(super) fn volume_info(&self, volume: &Arc<ServedVolume>) -> VolumeInfo {
        let failed = volume.aggregate.is_failed();
        let (files, traditional) = match &volume.kind {
            VolumeKind::Flexible(flexible) => (flexible.front.shared.used_inodes(), false),
            VolumeKind::Traditional(plain) => (plain.front.shared.used_inodes(), true),
        };
        VolumeInfo {
            name: volume.name.clone(),
            id: volume.environment.volume.get(),
            aggregate: volume.aggregate.parts.identity.name.clone(),
            state: state_of(volume),
            traditional,
            tiering_policy: shown_policy(volume.tiering().policy),
            tiering_minimum_cooling_days: volume.tiering().days(),
            tiered_bytes: volume.object_blocks() * BLOCK_SIZE_U64,
            size_bytes: volume.size_blocks * BLOCK_SIZE_U64,
            // The engine does not tell apart what snapshots alone hold.
            live_bytes: volume.active_blocks() * BLOCK_SIZE_U64,
            snapshot_bytes: volume.used_blocks().saturating_sub(volume.active_blocks())
                * BLOCK_SIZE_U64,
            delayed_free_bytes: volume.delayed_blocks() * BLOCK_SIZE_U64,
            available_bytes: match volume.damage() {
                None => volume.available_blocks() * BLOCK_SIZE_U64,
                Some(_) => 0,
            },
            files,
            snapshots: self.snapshots_of(volume).map_or(0, |list| list.len() as u64),
            owner: if failed { ROOT_OWNER } else { self.owner(&volume.name) },
            created: Time(volume.created),
            exports: rules::from_records(&volume.name, &volume.exports()),
            mountpoints: self.mounts.of_volume(&volume.name),
            damaged_files: volume.given_up().iter().map(damaged_file).collect(),
            damage: volume.damage().map(|damage| damage.to_string()),
        }
    }

    pub(super) fn set_volume(&self, wanted: &VolumeSet) -> Result<VolumeInfo, AdminError> {
        let message = "cannot change volume";
        let name = &wanted.name;
        let _turn = self.turn();
        let volume = self.find(message, name)?;
        if let VolumeKind::Traditional(_) = volume.kind {
            return Err(AdminError::new(Code::Conflict, message, name)
                .because("it is a traditional volume, whose blocks stay where they are")
                .try_next(
                    "stroop volume create NAME, in an aggregate made without --traditional",
                ));
        }
        let before = volume.tiering();
        let policy = wanted.tiering_policy.map_or(before.policy, stored_policy);
        // Days that were chosen for another policy say nothing of this one.
        let kept = before.cooling_days.filter(|_| policy == before.policy);
        let cooling_days = wanted.tiering_minimum_cooling_days.or(kept);
        let tiering = Tiering { policy, cooling_days };
        check_tiering(message, name, tiering)?;
        request(message, name, |done| self.engine.set_tiering(name, tiering, done))?;
        let days = tiering.days();
        tracing::info!(volume = name, policy = %shown_policy(policy), ?days, "tiering policy set");
        Ok(self.volume_info(&volume))
    }

    fn owner(&self, volume: &str) -> Owner {
        match wait_for(|done| {
            self.service.root(&Caller::root(), calls::Root { name: volume.to_owned() }, done)
        }) {
            Some(Ok(root)) => Owner { uid: root.attributes.uid, gid: root.attributes.gid },
            _ => ROOT_OWNER,
        }
    }

    pub(super) fn delete_volume(&self, wanted: &VolumeDelete) -> Result<Removal, AdminError> {
        let message = "cannot delete";
        let name = &wanted.name;
        let _turn = self.turn();
        let volume = self.find(message, name)?;
        let info = self.volume_info(&volume);
        if let Some(mountpoint) = info.mountpoints.first() {
            return Err(AdminError::new(Code::Conflict, message, name)
                .because(format!("it is mounted at {mountpoint}"))
                .try_next(format!("stroop unmount {mountpoint}")));
        }
        if info.traditional {
            return Err(AdminError::new(Code::Conflict, message, name)
                .because("it is a traditional volume: it goes with its aggregate"));
        }
        let mut consequences = vec![counted(info.files, "file")];
        if info.snapshots > 0 {
            consequences.push(counted(info.snapshots, "snapshot"));
        }
        consequences.extend(info.exports.iter().map(|rule| format!("exported to {rule}")));
        if !wanted.dry_run {
            request(message, name, |done| self.engine.delete_volume(name, done))?;
            self.exports.remove(name);
            self.registry.forget("volume", name);
            tracing::info!(volume = name, "volume deleted");
        }
        let freed_bytes = info.used_bytes() + info.delayed_free_bytes;
        Ok(Removal { object: name.clone(), consequences, freed_bytes, dry_run: wanted.dry_run })
    }

    pub(super) fn add_export(&self, wanted: &ExportAdd) -> Result<VolumeExports, AdminError> {
        self.change_exports("cannot export", &wanted.volume, |rules| {
            add_rule(&wanted.volume, rules, wanted.rule, wanted.index)
        })
    }

    pub(super) fn remove_export(&self, wanted: &ExportRemove) -> Result<VolumeExports, AdminError> {
        self.change_exports("cannot change exports of", &wanted.volume, |rules| {
            remove_rule(&wanted.volume, rules, wanted.client)
        })
    }

    fn change_exports(
        &self,
        message: &str,
        name: &str,
        change: impl FnOnce(&mut Vec<ExportRule>) -> Result<(), AdminError>,
    ) -> Result<VolumeExports, AdminError> {
        let _turn = self.turn();
        let volume = self.find(message, name)?;
        let mut rules = rules::from_records(name, &volume.exports());
        change(&mut rules)?;
        check_rules_count(message, name, &rules)?;
        let records = rules.iter().map(rules::to_record).collect();
        request(message, name, |done| self.engine.set_exports(name, records, done))?;
        self.publish_exports(&volume);
        tracing::info!(volume = name, rules = rules.len(), "export rules changed");
        Ok(VolumeExports { volume: name.to_owned(), rules })
    }

    pub(super) fn mount(&self, wanted: &MountCreate) -> Result<MountInfo, AdminError> {
        // So that the volume is not deleted meanwhile.
        let _turn = self.turn();
        self.find("cannot mount", &wanted.volume)?;
        self.mounts.mount(wanted, Arc::clone(&self.service), Arc::clone(&self.locks))
    }
}

fn check_rules_count(message: &str, name: &str, rules: &[ExportRule]) -> Result<(), AdminError> {
    if rules.len() <= EXPORT_RULES_MAX {
        return Ok(());
    }
    let cause = format!("a volume has {EXPORT_RULES_MAX} export rules at most");
    Err(AdminError::new(Code::Failed, message, name).because(cause))
}

/// "1 file", "2 files".
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn state_of(volume: &ServedVolume) -> VolumeState {
    if volume.aggregate.is_failed() || volume.is_unreadable() {
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
        leaked_bytes: file.leaked_blocks.map(|blocks| blocks * BLOCK_SIZE_U64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stand-in of the tests says the same days as the engine.
    #[test]
    fn the_days_of_policies_are_the_engines() {
        for policy in [
            TieringPolicy::None,
            TieringPolicy::SnapshotOnly,
            TieringPolicy::Auto,
            TieringPolicy::All,
        ] {
            let stored = Tiering { policy: stored_policy(policy), cooling_days: None };
            assert_eq!(stored.days(), policy.default_cooling_days());
            assert_eq!(shown_policy(stored.policy), policy);
        }
    }
}
