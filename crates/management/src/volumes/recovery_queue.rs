//! The recovery queue: deleted volumes that are kept, come back, and are purged when their time is
//! over.
//!
//! Invariants: NFS clients see a volume that came back when that is durable. No volume is purged
//! before its time. The time that is left is read from the wall clock once, when the volume is first
//! seen by this process, and is counted by the clock that is never set from then on: a clock that is
//! set while the server runs purges nothing early. The first [`SEEN_NANOSECONDS_MIN`] of a process
//! purge nothing at all: a machine whose clock is wrong when it starts has it set right by then.
//!
//! Fails: by `AdminError`; nothing has changed then. A volume that cannot be purged when it is due
//! stays, and is tried again.

use crate::exports;
use crate::volumes::deletion::held_bytes;
use crate::volumes::room::Volumes;
use admin_api::{AdminError, Code, DeletedVolume, Time, VolumeInfo, VolumeState, VolumeUndelete};
use dblade::{EngineError, Keeping, Queued, ServedVolume, VolumeDamage, VolumeKind};
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{Timestamp, VolumeUuid};

const UNDELETE: &str = "cannot undelete";
/// A volume is seen for so long before it is purged.
const SEEN_NANOSECONDS_MIN: u64 = 600 * 1_000_000_000;

/// When volumes of the queue are to be purged, by the clock that is never set.
#[derive(Default)]
pub(crate) struct Due(Mutex<BTreeMap<VolumeUuid, u64>>);

/// What is left of a volume's time, in nanoseconds. A wall clock that is behind the deletion leaves
/// no more than the whole.
fn left_nanoseconds(keeping: &Keeping, wall: Timestamp) -> u64 {
    let begin = keeping.deleted.get().max(wall.get());
    let left = keeping.purge_after.get().saturating_sub(begin);
    u64::try_from(left).unwrap_or(0).max(SEEN_NANOSECONDS_MIN)
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
        self.check_name_free(&name, None, taken)?;
        // One that is served under another name than its own is to find its own again.
        let has_it =
            |other: &Arc<ServedVolume>| other.is_beside(&volume) && other.names().given == name;
        if self.node.served().iter().any(has_it) {
            return Err(taken());
        }
        if wanted.dry_run {
            let info = self.volume_info(&volume);
            let taken_offline = volume.queued().is_some_and(|queued| queued.is_offline);
            let state = match volume.damage() {
                _ if taken_offline || volume.is_unreadable() => VolumeState::Offline,
                Some(_) => VolumeState::ReadOnly,
                None => VolumeState::Online,
            };
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
        let queued = self.node.queued();
        let mut due = self.due.0.lock();
        due.retain(|known, _| queued.iter().any(|(one, _)| one.environment.identity == *known));
        for (volume, Queued { keeping, .. }) in queued {
            let end = || now.saturating_add(left_nanoseconds(&keeping, wall));
            let end = due.entry(volume.environment.identity).or_insert_with(end);
            if now < *end && !mutation::broken(Rule::PurgedEarly) {
                continue;
            }
            // If it cannot be purged now, it is tried again later.
            *end = now.saturating_add(SEEN_NANOSECONDS_MIN);
            let (name, front_ends) = (volume.name(), Arc::clone(&self.node.front_ends));
            let title = name.clone();
            let purged = move |outcome: Result<(), EngineError>| match outcome {
                Ok(()) => {
                    front_ends.forget_exports(&title);
                    tracing::info!(volume = title, "deleted volume purged: its time is over");
                }
                Err(error) => tracing::warn!(volume = title, %error, "it cannot be purged"),
            };
            self.node.engine.purge_volume(&name, Box::new(purged));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn the_time_that_is_left_is_not_less_for_a_clock_that_is_behind_nor_more_than_the_whole() {
        let at = |seconds: i64| Timestamp(seconds * SECOND);
        let keeping = Keeping { deleted: at(10_000), purge_after: at(20_000) };
        let left = |wall| left_nanoseconds(&keeping, at(wall)) as i64 / SECOND;
        assert_eq!(left(10_000), 10_000);
        assert_eq!(left(15_000), 5_000);
        assert_eq!(left(-50_000), 10_000, "the clock is behind");
        assert_eq!(left(19_900), 600, "some of it is to pass in this process");
        assert_eq!(left(1_000_000), 600);
        let odd = Keeping { deleted: Timestamp(i64::MIN), purge_after: Timestamp(i64::MAX) };
        assert_eq!(left_nanoseconds(&odd, Timestamp(i64::MIN)), i64::MAX as u64);
    }
}
