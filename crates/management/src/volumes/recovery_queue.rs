//! The recovery queue: deleted volumes that are kept, come back, and are purged when their time is
//! over.
//!
//! Invariants: NFS clients see a volume that came back when that is durable; no volume is purged
//! before its time ([`super::due`]).
//!
//! Fails: by `AdminError`; nothing has changed then. A volume that cannot be purged when it is due
//! stays, and is tried again.

use crate::exports;
use crate::volumes::room::Volumes;
use admin_api::recovery_queue::find_deleted;
use admin_api::{AdminError, Code, DeletedVolume, Time, VolumeInfo, VolumeState, VolumeUndelete};
use dblade::{EngineError, Queued, ServedVolume, VolumeDamage, VolumeKind};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, VolumeUuid};

const UNDELETE: &str = "cannot undelete";

/// What comes back when it is gone.
pub(super) fn held_bytes(volume: &ServedVolume) -> u64 {
    volume.owned_blocks() * BLOCK_SIZE_U64
}

/// A volume of the queue as administrators see it, but for its snapshots.
pub(super) fn shown(volume: &ServedVolume, queued: &Queued) -> DeletedVolume {
    let files = match &volume.kind {
        VolumeKind::Flexible(flexible) => flexible.front.shared.used_inodes(),
        VolumeKind::Traditional(plain) => plain.front.shared.used_inodes(),
    };
    DeletedVolume {
        name: volume.name(),
        former_name: volume.names().given,
        id: volume.environment.volume.get(),
        aggregate: volume.aggregate.parts.identity.name.clone(),
        files,
        snapshots: 0,
        damage: volume.damage().as_ref().map(VolumeDamage::to_string),
        held_bytes: held_bytes(volume),
        deleted: Time(queued.keeping.deleted),
        purge_after: Time(queued.keeping.purge_after),
    }
}

/// Volumes that are deleted, kept and brought back.
pub(crate) struct RecoveryQueue<'a>(pub &'a Volumes);

impl RecoveryQueue<'_> {
    /// The volume of the recovery queue that a request names. `message` begins the error.
    ///
    /// # Errors
    /// `NotFound` if there is none, `Conflict` if it may be several.
    pub(super) fn find_deleted(
        &self,
        message: &str,
        name: &str,
    ) -> Result<Arc<ServedVolume>, AdminError> {
        let queued = self.0.node.queued();
        let list: Vec<_> = queued.iter().map(|(volume, one)| shown(volume, one)).collect();
        let found = &find_deleted(message, &list, name)?.name;
        let mut volumes = queued.into_iter().map(|(volume, _)| volume);
        volumes
            .find(|volume| volume.name() == *found)
            .ok_or_else(|| AdminError::missing(message, "deleted volume", name))
    }

    /// The volumes of the queue, in the order of their deletion.
    pub(crate) fn list_deleted(&self) -> Vec<DeletedVolume> {
        let queued = self.0.node.queued().into_iter();
        let mut list: Vec<DeletedVolume> = queued
            .map(|(volume, queued)| DeletedVolume {
                snapshots: self.0.snapshots_of(&volume).map_or(0, |list| list.len() as u64),
                ..shown(&volume, &queued)
            })
            .collect();
        list.sort_by(|one, other| (one.deleted, &one.name).cmp(&(other.deleted, &other.name)));
        list
    }

    pub(crate) fn undelete_volume(
        &self,
        wanted: &VolumeUndelete,
    ) -> Result<VolumeInfo, AdminError> {
        let _turn = self.0.node.turn();
        let volume = self.find_deleted(UNDELETE, &wanted.name)?;
        let title = volume.name();
        let name = wanted.new_name.clone().unwrap_or_else(|| volume.names().given);
        let refused = || AdminError::new(Code::Conflict, UNDELETE, &wanted.name);
        if let Some(feature) = volume.damage().as_ref().and_then(VolumeDamage::lacking) {
            return Err(refused()
                .because(format!("it uses the feature '{feature}', which this build lacks"))
                .try_next("start the build that wrote it, or a later one"));
        }
        let taken = || {
            refused()
                .because(format!("there is a volume '{name}'"))
                .try_next(format!("stroop volume undelete {title} --as NAME"))
        };
        self.0.check_name_free(&name, None, taken)?;
        // A volume of this aggregate may own the name although it is served under another one for
        // now. The name stays its own.
        let has_it =
            |other: &Arc<ServedVolume>| other.is_beside(&volume) && other.names().given == name;
        if self.0.node.served().iter().any(has_it) {
            return Err(taken());
        }
        if wanted.dry_run {
            let info = self.0.volume_info(&volume);
            let taken_offline = volume.queued().is_some_and(|queued| queued.is_offline);
            let state = match volume.damage() {
                _ if taken_offline || volume.is_unreadable() => VolumeState::Offline,
                Some(_) => VolumeState::ReadOnly,
                None => VolumeState::Online,
            };
            return Ok(VolumeInfo { name, state, taken_offline, ..info });
        }
        let engine = &self.0.node.engine;
        self.0.node.waits.request(UNDELETE, &wanted.name, |done| {
            engine.undelete_volume(&title, &name, done);
        })?;
        exports::publish(&*self.0.node.front_ends, &volume);
        tracing::info!(volume = name, "deleted volume is back");
        Ok(self.0.volume_info(&volume))
    }

    /// Purges volumes of the queue whose time is over; nobody waits for that.
    pub(crate) fn purge_due(&self) {
        // Whoever brings one back now shall have it.
        let Some(_turn) = self.0.node.turn_now() else { return };
        let (now, wall) = (self.0.node.clock.monotonic_nanoseconds(), self.0.node.clock.wall());
        let queued = self.0.node.queued();
        let live = self.0.node.served();
        let is_live = |of: VolumeUuid| live.iter().any(|one| one.environment.identity == of);
        // One whose aggregate is away for a while is in the queue still.
        let engine = &self.0.node.engine;
        self.0.due.forget_unless(|volume| !is_live(volume) && !engine.is_gone(volume));
        for (volume, Queued { keeping, .. }) in queued {
            let identity = volume.environment.identity;
            if !self.0.due.is_over(identity, keeping, (now, wall)) {
                continue;
            }
            let (name, front_ends) = (volume.name(), Arc::clone(&self.0.node.front_ends));
            let title = name.clone();
            let purged = move |outcome: Result<(), EngineError>| match outcome {
                Ok(()) => {
                    front_ends.forget_exports(identity);
                    tracing::info!(volume = title, "deleted volume purged: its time is over");
                }
                Err(error) => tracing::warn!(volume = title, %error, "it cannot be purged"),
            };
            engine.purge_volume(&name, Box::new(purged));
        }
    }
}
