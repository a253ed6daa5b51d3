//! Snapshots that the node takes by itself, and deletes when there are more of them than are kept
//! ([`admin_api::schedules`]).
//!
//! A snapshot of a schedule is due when the period has begun in which there is none. So one that
//! was missed, because the node or the volume was away, is taken when it is back. A volume has the
//! first when it is an hour old. The oldest of a schedule go when one was taken: who takes a policy
//! away keeps the snapshots that there are.
//!
//! Invariants: snapshots that are held, that clones began with, or that somebody has taken are not
//! deleted, and do not count as kept. A clock that is set back takes no snapshot twice. Nobody waits
//! for any of this.
//!
//! Fails: a snapshot that cannot be taken is tried again after a minute, while its hour lasts; the
//! health check `SNAPSHOT_MISSED` tells it until one was taken.

use crate::volumes::room::Volumes;
use admin_api::schedules::{Schedule, SnapshotPolicy};
use dblade::{Engine, EngineError, ServedVolume, SnapshotSchedule, SnapshotSummary};
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{SnapshotId, Timestamp, VolumeUuid};
use volume::SnapshotRequest;

/// A volume is so old before its first snapshot is taken.
const AGE_NANOSECONDS_MIN: i64 = 3_600_000_000_000;
const RETRY_NANOSECONDS: u64 = 60_000_000_000;

/// When a volume was looked at last.
struct Look {
    hour: i64,
    /// When it is to be looked at again in this hour, by the clock that is never set.
    again: Option<u64>,
    /// Why the last snapshot could not be taken.
    failure: Option<String>,
}

/// What is known of the schedules of volumes.
#[derive(Clone, Default)]
pub(crate) struct Looks(Arc<Mutex<BTreeMap<VolumeUuid, Look>>>);

impl Looks {
    /// Whether a volume is to be looked at now; notes that it is.
    fn begin(&self, volume: VolumeUuid, (hour, now): (i64, u64)) -> bool {
        let mut looks = self.0.lock();
        let known = looks.get(&volume);
        let is_known = |look: &&Look| look.hour == hour && look.again.is_none_or(|end| now < end);
        if known.filter(is_known).is_some() {
            return false;
        }
        let failure = known.and_then(|look| look.failure.clone());
        looks.insert(volume, Look { hour, again: None, failure });
        true
    }

    fn note(&self, volume: VolumeUuid, now: u64, outcome: Result<(), String>) {
        if let Some(look) = self.0.lock().get_mut(&volume) {
            match outcome {
                Ok(()) => look.failure = None,
                Err(failure) => {
                    look.again = Some(now.saturating_add(RETRY_NANOSECONDS));
                    look.failure = Some(failure);
                }
            }
        }
    }

    fn forget_unless(&self, is_there: impl Fn(VolumeUuid) -> bool) {
        self.0.lock().retain(|volume, _| is_there(*volume));
    }

    /// Why the last snapshot of a volume could not be taken, if it could not.
    pub(crate) fn failure(&self, volume: VolumeUuid) -> Option<String> {
        self.0.lock().get(&volume)?.failure.clone()
    }
}

/// The policy of a volume in the words of the interface.
pub(crate) const fn shown_schedule(schedule: SnapshotSchedule) -> SnapshotPolicy {
    SnapshotPolicy::of_kept(schedule.0)
}

pub(crate) const fn stored_schedule(policy: SnapshotPolicy) -> SnapshotSchedule {
    SnapshotSchedule(policy.kept())
}

/// The schedules of which a snapshot is to be taken now.
fn due(
    policy: SnapshotPolicy,
    (created, now): (Timestamp, Timestamp),
    snapshots: &[SnapshotSummary],
) -> Vec<Schedule> {
    if now.get().saturating_sub(created.get()) < AGE_NANOSECONDS_MIN {
        return Vec::new();
    }
    let is_due = |schedule: &Schedule| {
        // What a clock that was ahead has taken says nothing.
        let past = snapshots.iter().filter(|one| one.created <= now);
        let taken = past.filter(|one| Schedule::of_name(&one.name) == Some(*schedule));
        let last = taken.map(|one| one.created).max().map_or(created, |last| last.max(created));
        schedule.period_of(last) < schedule.period_of(now)
    };
    policy.schedules().map(|(schedule, _)| schedule).filter(is_due).collect()
}

/// The names of those snapshots of a schedule that are more than are kept, oldest first. `bases`
/// are those that clones began with.
fn surplus(
    (schedule, kept): (Schedule, usize),
    snapshots: &[SnapshotSummary],
    bases: &BTreeSet<SnapshotId>,
) -> Vec<String> {
    let is_of = |one: &&SnapshotSummary| match Schedule::of_name(&one.name) {
        None => mutation::broken(Rule::OwnSnapshotRetired),
        of => of == Some(schedule),
    };
    let going = snapshots.iter().filter(is_of);
    let going = going.filter(|one| !one.held && !bases.contains(&one.id));
    let names: Vec<String> = going.map(|one| one.name.clone()).collect();
    let more = names.len().saturating_sub(kept);
    names.into_iter().take(more).collect()
}

/// A volume whose schedules are looked at.
#[derive(Clone)]
struct Volume {
    engine: Arc<Engine>,
    served: Arc<ServedVolume>,
    looks: Looks,
    wall: Timestamp,
    now: u64,
}

impl Volume {
    fn note(&self, outcome: Result<(), &EngineError>) {
        let (volume, name) = (self.served.environment.identity, self.served.name());
        if let Err(error) = outcome {
            tracing::warn!(volume = name, %error, "a snapshot of a schedule cannot be taken");
        }
        self.looks.note(volume, self.now, outcome.map_err(ToString::to_string));
    }

    fn take_due(self) {
        let (engine, name) = (Arc::clone(&self.engine), self.served.name());
        let listed = move |listed: Result<Vec<SnapshotSummary>, EngineError>| match listed {
            Err(error) => self.note(Err(&error)),
            Ok(snapshots) => {
                let policy = shown_schedule(self.served.schedule());
                let due = due(policy, (self.served.created, self.wall), &snapshots);
                for schedule in due {
                    let name = schedule.name_at(self.wall);
                    if snapshots.iter().all(|one| one.name != name) {
                        self.clone().take(schedule, name);
                    }
                }
            }
        };
        engine.snapshots(&name, Box::new(listed));
    }

    fn take(self, schedule: Schedule, snapshot: String) {
        let (engine, name) = (Arc::clone(&self.engine), self.served.name());
        let create = SnapshotRequest::Create(snapshot.clone());
        let taken = move |outcome: Result<(), EngineError>| {
            self.note(outcome.as_ref().map(|()| ()));
            if outcome.is_ok() {
                let name = self.served.name();
                tracing::info!(snapshot = format!("{name}@{snapshot}"), "snapshot taken");
                self.retire(schedule);
            }
        };
        engine.request_snapshot(&name, create, Box::new(taken));
    }

    /// Deletes the oldest snapshots of a schedule, of which one was taken.
    fn retire(self, schedule: Schedule) {
        let (engine, name) = (Arc::clone(&self.engine), self.served.name());
        let listed = move |listed: Result<Vec<SnapshotSummary>, EngineError>| {
            let policy = shown_schedule(self.served.schedule());
            let kept = policy.schedules().find(|(of, _)| *of == schedule);
            // Who cannot be asked now is asked when the next is taken.
            let (Some(kept), Ok(snapshots)) = (kept, listed) else { return };
            for snapshot in surplus(kept, &snapshots, &self.bases()) {
                let name = self.served.name();
                let object = format!("{name}@{snapshot}");
                let deleted = move |outcome: Result<(), EngineError>| match outcome {
                    Ok(()) => {
                        tracing::info!(snapshot = object, "snapshot deleted: its time is over")
                    }
                    Err(error) => {
                        tracing::warn!(snapshot = object, %error, "it cannot be deleted");
                    }
                };
                let delete = SnapshotRequest::Delete(snapshot);
                self.engine.request_snapshot(&name, delete, Box::new(deleted));
            }
        };
        engine.snapshots(&name, Box::new(listed));
    }

    /// The snapshots of the volume that clones began with.
    fn bases(&self) -> BTreeSet<SnapshotId> {
        let volumes = self.engine.volumes().into_iter().filter(|one| one.is_beside(&self.served));
        let origins = volumes.filter_map(|one| one.origin);
        let own = origins.filter(|origin| origin.parent == self.served.environment.volume);
        own.map(|origin| origin.snapshot).collect()
    }
}

/// Takes the snapshots that are due.
pub(crate) fn take_due(volumes: &Volumes) {
    let (wall, now) = (volumes.node.clock.wall(), volumes.node.clock.monotonic_nanoseconds());
    let hour = Schedule::Hourly.period_of(wall);
    let served = volumes.node.served();
    let is_scheduled = |one: &&Arc<ServedVolume>| {
        one.schedule() != SnapshotSchedule::default() && one.damage().is_none() && !one.is_offline()
    };
    let scheduled: Vec<_> = served.iter().filter(is_scheduled).collect();
    let identities: BTreeSet<VolumeUuid> =
        scheduled.iter().map(|one| one.environment.identity).collect();
    volumes.looks.forget_unless(|volume| identities.contains(&volume));
    for one in scheduled {
        if volumes.looks.begin(one.environment.identity, (hour, now)) {
            let (engine, served) = (Arc::clone(&volumes.node.engine), Arc::clone(one));
            Volume { engine, served, looks: volumes.looks.clone(), wall, now }.take_due();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_api::Time;
    use units::CpNumber;

    fn at(text: &str) -> Timestamp {
        text.parse::<Time>().unwrap().0
    }

    fn snapshot(id: u32, name: &str, created: &str) -> SnapshotSummary {
        SnapshotSummary {
            id: SnapshotId(id),
            name: name.to_owned(),
            created: at(created),
            cp: CpNumber(u64::from(id)),
            used_blocks: 1,
            held: false,
        }
    }

    #[test]
    fn a_snapshot_is_due_once_in_a_period() {
        let policy = SnapshotPolicy::default();
        let created = at("2026-11-28T10:20:00Z");
        let due_at =
            |now: &str, snapshots: &[SnapshotSummary]| due(policy, (created, at(now)), snapshots);
        assert_eq!(due_at("2026-11-28T10:59:00Z", &[]), []);
        assert_eq!(due_at("2026-11-28T11:00:00Z", &[]), [], "it is not an hour old");
        assert_eq!(due_at("2026-11-28T12:00:00Z", &[]), [Schedule::Hourly]);
        let mut taken = vec![snapshot(1, "hourly.2026-11-28_1200", "2026-11-28T12:00:01Z")];
        assert_eq!(due_at("2026-11-28T12:59:59Z", &taken), []);
        assert_eq!(due_at("2026-11-28T13:00:00Z", &taken), [Schedule::Hourly]);
        let all = [Schedule::Hourly, Schedule::Daily, Schedule::Weekly];
        assert_eq!(due_at("2026-11-30T00:00:00Z", &taken), all);
        // Somebody's own snapshot is none of a schedule.
        taken.push(snapshot(2, "mine", "2026-11-30T00:00:01Z"));
        assert_eq!(due_at("2026-11-30T00:00:02Z", &taken), all);
        // A clock that was ahead.
        taken.push(snapshot(3, "hourly.2030-01-01_0000", "2030-01-01T00:00:00Z"));
        assert_eq!(due_at("2026-11-30T00:00:02Z", &taken), all);
        // A clock that was set back.
        assert_eq!(due_at("2026-11-28T11:30:00Z", &taken), [Schedule::Hourly]);
        assert_eq!(due(SnapshotPolicy::NONE, (created, at("2026-12-30T00:00:00Z")), &taken), []);
    }

    #[test]
    fn the_oldest_that_nobody_needs_are_more_than_are_kept() {
        let hour = |hour: u32| {
            let created = format!("2026-11-30T{hour:02}:00:01Z");
            snapshot(hour, &format!("hourly.2026-11-30_{hour:02}00"), &created)
        };
        let mut list: Vec<_> = (1..8).map(hour).collect();
        list.insert(0, snapshot(0, "mine", "2026-11-30T00:30:00Z"));
        list[2].held = true;
        let bases = BTreeSet::from([SnapshotId(4)]);
        let gone = surplus((Schedule::Hourly, 3), &list, &bases);
        assert_eq!(gone, ["hourly.2026-11-30_0100", "hourly.2026-11-30_0300"]);
        assert_eq!(surplus((Schedule::Hourly, 5), &list, &bases), [""; 0]);
        assert_eq!(surplus((Schedule::Daily, 1), &list, &bases), [""; 0]);
    }

    #[test]
    fn what_is_stored_of_a_policy_is_what_is_shown() {
        assert_eq!(SnapshotPolicy::KEPT_MAX, ondisk::records::SNAPSHOTS_KEPT_MAX);
        let policy = SnapshotPolicy::of_kept([1, 2, 3, 4]);
        assert_eq!(shown_schedule(stored_schedule(policy)), policy);
    }

    #[test]
    fn a_volume_is_looked_at_once_an_hour_and_again_after_a_failure() {
        let (looks, volume) = (Looks::default(), VolumeUuid([1; 16]));
        assert!(looks.begin(volume, (7, 0)));
        assert!(!looks.begin(volume, (7, u64::MAX)));
        looks.note(volume, 5, Err("full".to_owned()));
        assert!(!looks.begin(volume, (7, RETRY_NANOSECONDS)));
        assert_eq!(looks.failure(volume).as_deref(), Some("full"));
        assert!(looks.begin(volume, (7, 5 + RETRY_NANOSECONDS)));
        assert!(looks.failure(volume).is_some(), "nothing has come of it yet");
        looks.note(volume, 5, Ok(()));
        assert_eq!(looks.failure(volume), None);
        assert!(looks.begin(volume, (8, 0)));
        looks.forget_unless(|_| false);
        assert!(looks.begin(volume, (8, 0)));
    }
}
