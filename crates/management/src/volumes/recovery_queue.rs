//! The recovery queue: deleted volumes that are kept, come back, and are purged when their time is
//! over.
//!
//! Invariants: NFS clients see a volume that came back when that is durable. No volume is purged
//! before its time, and none because a clock was wrong for a moment: a volume must have been due for
//! [`DUE_NANOSECONDS_MIN`] while this process ran.
//!
//! Fails: by `AdminError`; nothing has changed then. A volume that cannot be purged when it is due
//! stays, and is tried again.

use crate::exports;
use crate::volumes::deletion::held_bytes;
use crate::volumes::room::Volumes;
use admin_api::{AdminError, Code, DeletedVolume, Time, VolumeInfo, VolumeState, VolumeUndelete};
use dblade::{EngineError, Queued, ServedVolume, VolumeKind};
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use std::collections::BTreeMap;
use units::VolumeUuid;

const UNDELETE: &str = "cannot undelete";
/// How long a volume is due before it is purged: a machine whose clock is wrong when it starts has
/// it set right by then.
pub(super) const DUE_NANOSECONDS_MIN: u64 = 600 * 1_000_000_000;

/// Volumes whose time is over, and since when on the clock that is never set.
#[derive(Default)]
pub(crate) struct Due(Mutex<BTreeMap<VolumeUuid, u64>>);

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
        held_bytes: held_bytes(volume),
        deleted: Time(queued.keeping.deleted),
        purge_after: Time(queued.keeping.purge_after),
    }
}

impl Volumes {
    /// The volumes of the queue, in the order of their deletion.
    pub(crate) fn list_deleted(&self) -> Vec<DeletedVolume> {
        let queued = self.node.queued().into_iter();
        let mut list: Vec<DeletedVolume> = queued
            .map(|(volume, queued)| DeletedVolume {
                snapshots: self.snapshots_of(&volume).map_or(0, |list| list.len() as u64),
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
        let _turn = self.node.turn();
        let volume = self.find_deleted(UNDELETE, &wanted.name)?;
        let title = volume.name();
        let name = wanted.new_name.clone().unwrap_or_else(|| volume.names().given);
        self.check_name_free(&name, None, || {
            AdminError::new(Code::Conflict, UNDELETE, &wanted.name)
                .because(format!("there is a volume '{name}'"))
                .try_next(format!("stroop volume undelete {title} --as NAME"))
        })?;
        if wanted.dry_run {
            let info = self.volume_info(&volume);
            let taken_offline = volume.queued().is_some_and(|queued| queued.is_offline);
            let is_whole = info.damage.is_none() && !taken_offline;
            let state = if is_whole { VolumeState::Online } else { info.state };
            return Ok(VolumeInfo { name, state, taken_offline, ..info });
        }
        let engine = &self.node.engine;
        self.node.waits.request(UNDELETE, &wanted.name, |done| {
            engine.undelete_volume(&title, &name, done);
        })?;
        exports::publish(&*self.node.front_ends, &volume);
        tracing::info!(volume = name, "deleted volume is back");
        Ok(self.volume_info(&volume))
    }

    /// Purges volumes of the queue whose time is over; nobody waits for that.
    pub(crate) fn purge_due(&self) {
        // Whoever brings one back now shall have it.
        let Some(_turn) = self.node.turn_now() else { return };
        let (now, wall) = (self.node.clock.monotonic_nanoseconds(), self.node.clock.wall());
        let mut queued = self.node.queued();
        if !mutation::broken(Rule::PurgedEarly) {
            queued.retain(|(_, one)| one.keeping.purge_after <= wall);
        }
        let mut due = self.due.0.lock();
        due.retain(|known, _| queued.iter().any(|(one, _)| one.environment.identity == *known));
        for (volume, _) in queued {
            let since = due.entry(volume.environment.identity).or_insert(now);
            if now.saturating_sub(*since) < DUE_NANOSECONDS_MIN {
                continue;
            }
            // If it cannot be purged now, it is tried again when as much time has passed.
            *since = now;
            let name = volume.name();
            let title = name.clone();
            let purged = move |outcome: Result<(), EngineError>| match outcome {
                Ok(()) => tracing::info!(volume = title, "deleted volume purged: its time is over"),
                Err(error) => tracing::warn!(volume = title, %error, "it cannot be purged"),
            };
            self.node.engine.delete_volume(&name, Box::new(purged));
        }
    }
}
