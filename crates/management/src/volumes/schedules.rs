//! Snapshots that the node takes by itself, and deletes when there are more of them than are kept
//! ([`admin_api::schedules`]).
//!
//! A volume is looked at once an hour ([`super::looks`]). A snapshot is due when there is none of
//! its schedule in the present period, and the volume is an hour old and older than the period. So
//! one that was missed, because the node or the volume was away, is taken when it is back. When
//! those that are due were taken, the oldest go of each schedule that keeps fewer. Who takes a
//! schedule out of the policy keeps the snapshots that there are.
//!
//! Invariants: snapshots that are held, that clones began with, or that somebody has taken are not
//! deleted, and do not count as kept. However the clock is set, a period has no second snapshot of
//! a schedule. Looks begin while no administrator changes anything. Nobody waits for any of this.
//!
//! Fails: a snapshot that cannot be taken is tried again after a minute; the health check
//! `SNAPSHOT_MISSED` tells it until a look finds all taken.

use crate::volumes::looks::Looks;
use crate::volumes::room::Volumes;
use admin_api::schedules::{Schedule, SnapshotPolicy};
use dblade::{Engine, EngineError, ServedVolume, SnapshotSchedule, SnapshotSummary};
use platform::mutation::{self, Rule};
use std::collections::BTreeSet;
use std::sync::Arc;
use units::{SnapshotId, Timestamp, VolumeUuid};
use volume::SnapshotRequest;

/// A volume is so old before its first snapshot is taken.
const AGE_NANOSECONDS_MIN: i64 = 3_600_000_000_000;
/// Looks that begin at once: those at a thousand volumes begin within ten seconds.
const LOOKS_MAX: usize = 100;

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
    // Of a volume that was made while the clock was ahead nobody knows how old it is.
    let is_age_known = created <= now;
    if is_age_known && now.get().saturating_sub(created.get()) < AGE_NANOSECONDS_MIN {
        return Vec::new();
    }
    let is_due = |schedule: &Schedule| {
        let period = schedule.period_of(now);
        let of = snapshots.iter().filter(|one| Schedule::of_name(&one.name) == Some(*schedule));
        let is_taken = of.map(|one| schedule.period_of(one.created)).any(|one| one == period);
        let is_older = !is_age_known || schedule.period_of(created) < period;
        is_older && !is_taken
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
    /// One question of the look was answered.
    fn answer(&self, failure: Option<&EngineError>) {
        if let Some(error) = failure {
            let name = self.served.name();
            tracing::warn!(volume = name, %error, "a snapshot of a schedule cannot be taken");
        }
        let identity = self.served.environment.identity;
        if self.looks.answer(identity, self.now, failure.map(ToString::to_string)) {
            self.clone().retire();
        }
    }

    fn take_due(self) {
        let (engine, name) = (Arc::clone(&self.engine), self.served.name());
        let listed = move |listed: Result<Vec<SnapshotSummary>, EngineError>| match listed {
            Err(error) => self.answer(Some(&error)),
            Ok(snapshots) => {
                let policy = shown_schedule(self.served.schedule());
                let due = due(policy, (self.served.created, self.wall), &snapshots);
                self.looks.ask(self.served.environment.identity, due.len());
                for schedule in due {
                    self.clone().take(schedule.name_at(self.wall));
                }
                self.answer(None);
            }
        };
        engine.snapshots(&name, Box::new(listed));
    }

    fn take(self, snapshot: String) {
        let (engine, name) = (Arc::clone(&self.engine), self.served.name());
        let create = SnapshotRequest::Create(snapshot.clone());
        let taken = move |outcome: Result<(), EngineError>| {
            if outcome.is_ok() {
                let object = format!("{}@{snapshot}", self.served.name());
                tracing::info!(snapshot = object, "snapshot taken");
            }
            self.answer(outcome.as_ref().err());
        };
        engine.request_snapshot(&name, create, Box::new(taken));
    }

    /// Deletes the oldest snapshots of schedules that keep fewer. Those for which that fails are
    /// seen by the next look.
    fn retire(self) {
        let (engine, name) = (Arc::clone(&self.engine), self.served.name());
        let listed = move |listed: Result<Vec<SnapshotSummary>, EngineError>| {
            let Ok(snapshots) = listed else { return };
            let bases = self.bases();
            for kept in shown_schedule(self.served.schedule()).schedules() {
                let going = surplus(kept, &snapshots, &bases);
                going.into_iter().for_each(|snapshot| self.delete(snapshot));
            }
        };
        engine.snapshots(&name, Box::new(listed));
    }

    fn delete(&self, snapshot: String) {
        let name = self.served.name();
        let object = format!("{name}@{snapshot}");
        let deleted = move |outcome: Result<(), EngineError>| match outcome {
            Ok(()) => tracing::info!(snapshot = object, "snapshot deleted: its time is over"),
            Err(error) => tracing::warn!(snapshot = object, %error, "it cannot be deleted"),
        };
        let delete = SnapshotRequest::Delete(snapshot);
        self.engine.request_snapshot(&name, delete, Box::new(deleted));
    }

    /// The snapshots of the volume that clones began with.
    fn bases(&self) -> BTreeSet<SnapshotId> {
        let volumes = self.engine.volumes().into_iter().filter(|one| one.is_beside(&self.served));
        let origins = volumes.filter_map(|one| one.origin());
        let own = origins.filter(|origin| origin.parent == self.served.environment.volume);
        own.map(|origin| origin.snapshot).collect()
    }
}

/// Takes the snapshots that are due, of some volumes now and of more a second later.
pub(crate) fn take_due(volumes: &Volumes) {
    // Who restores a volume has seen what snapshots there are.
    let Some(_turn) = volumes.node.turn_now() else { return };
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
    let looks = &volumes.looks;
    let begun = scheduled
        .into_iter()
        .filter(|one| looks.begin(one.environment.identity, (hour, now)))
        .take(LOOKS_MAX);
    for one in begun {
        let (engine, served) = (Arc::clone(&volumes.node.engine), Arc::clone(one));
        Volume { engine, served, looks: looks.clone(), wall, now }.take_due();
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
        // A clock that was set back, within the day and to before the volume was made.
        taken.push(snapshot(4, "daily.2026-11-30_1023", "2026-11-30T10:23:00Z"));
        assert!(!due_at("2026-11-30T09:59:00Z", &taken).contains(&Schedule::Daily));
        assert_eq!(due_at("2026-11-28T11:30:00Z", &taken), [Schedule::Hourly]);
        assert_eq!(due_at("2020-11-28T11:30:00Z", &[]), all);
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
}
