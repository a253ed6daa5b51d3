//! Hours pass at a rest, and snapshots are taken by a schedule: a part of a rest.
//!
//! In rounds volumes have policies of which nothing is due for weeks. For some hours a volume gets
//! another; at the end of them its snapshots are deleted, and it is as before.
//!
//! Fails: a snapshot that is not there, or that should not be there, as lists of snapshots do.

use super::calls::wrong;
use super::desk::Asked;
use super::expected::ExpectedVolume;
use super::life::OperatorLife;
use super::queue::SECOND_NANOSECONDS;
use crate::seed::finding::Finding;
use admin_api::{
    Code, Named, Reply, Request, Schedule, SnapshotDelete, SnapshotHold, SnapshotPolicy,
    VolumeInfo, VolumeSet,
};
use platform::Clock as _;
use units::Timestamp;

/// Of 100 rests with a volume that is served, those in which hours pass.
const HOURS_PERCENT: u64 = 30;
const HOURS_MAX: u64 = 4;
const HOUR_SECONDS: u64 = 3600;

impl ExpectedVolume {
    /// Snapshots of these schedules are taken now. `is_base`: a clone began with it.
    fn take(
        &mut self,
        policy: SnapshotPolicy,
        due: &[(Schedule, String)],
        is_base: impl Fn(&str) -> bool,
    ) {
        self.snapshots.extend(due.iter().map(|(_, name)| name.clone()));
        for (schedule, kept) in policy.schedules() {
            if due.iter().all(|(of, _)| *of != schedule) {
                continue;
            }
            let may_go = |name: &String| {
                Schedule::of_name(name) == Some(schedule)
                    && !self.held.contains(name)
                    && !is_base(name)
            };
            let mut going: Vec<String> =
                self.snapshots.iter().filter(|name| may_go(name)).cloned().collect();
            going.truncate(going.len().saturating_sub(kept));
            self.snapshots.retain(|name| !going.contains(name));
        }
    }
}

impl OperatorLife<'_> {
    /// See the module.
    pub(super) fn let_hours_pass(&mut self) -> Result<(), Finding> {
        let volumes = self.expected.volumes.iter();
        let served = volumes.filter(|(_, volume)| !volume.is_offline);
        let names: Vec<String> = served.map(|(name, _)| name.clone()).collect();
        if names.is_empty() || self.machine.is_outage() || !self.events.chance(HOURS_PERCENT) {
            return Ok(());
        }
        // Which snapshots a cut would leave is not known.
        self.machine.arm(None);
        let name = names[self.events.index(names.len())].clone();
        let policies = [[1, 0, 0, 0], [2, 1, 0, 0], [3, 2, 2, 0]].map(SnapshotPolicy::of_kept);
        let policy = self.events.pick(&policies);
        let before = self.expected.volumes[&name].snapshot_policy;
        self.set_policy(&name, policy)?;
        for hour in 0..1 + self.events.below(HOURS_MAX) {
            if !self.let_hour_pass(&name, policy)? {
                break;
            }
            let held = self.expected.volumes[&name].snapshots.first().cloned();
            if let Some(held) = held.filter(|_| hour == 0 && self.events.chance(50)) {
                self.hold(&name, held, true)?;
            }
        }
        self.set_policy(&name, before)?;
        self.delete_taken(&name)
    }

    /// An hour or two pass; whether another may.
    fn let_hour_pass(&mut self, name: &str, policy: SnapshotPolicy) -> Result<bool, Finding> {
        let shown = self.read(Request::VolumeShow(Named { name: name.to_owned() }))?;
        let Reply::VolumeShow(VolumeInfo { created, .. }) = shown else { return Ok(false) };
        let seconds = HOUR_SECONDS + self.events.below(HOUR_SECONDS);
        self.machine.world.leap(seconds * SECOND_NANOSECONDS);
        self.machine.trace.fold(seconds);
        self.machine.settle()?;
        let now = self.machine.world.wall();
        let due = self.due(name, policy, (created.0, now));
        self.call(Asked::Watch)?;
        self.machine.settle()?;
        if self.machine.aggregate().is_none() {
            return Ok(false);
        }
        if self.is_missed(name)? {
            // There was no room for one, or for several. Which is told by the next list.
            self.machine.trace.meet("schedules: there was no room for a snapshot");
            return self.adopt(name, &due).map(|()| false);
        }
        let base = self.expected.origins().filter(|(_, of)| of.volume == name);
        let bases: Vec<String> = base.map(|(_, of)| of.snapshot.clone()).collect();
        if let Some(volume) = self.expected.volumes.get_mut(name) {
            volume.take(policy, &due, |snapshot| bases.iter().any(|base| base == snapshot));
        }
        self.machine.trace.meet("schedules: snapshots were taken");
        self.look_at_snapshots(name).map(|()| true)
    }

    /// What is due of a volume, and the names that it gets.
    fn due(
        &self,
        name: &str,
        policy: SnapshotPolicy,
        (created, now): (Timestamp, Timestamp),
    ) -> Vec<(Schedule, String)> {
        // The clock may have been set back.
        let is_young = now.get() - created.get() < (HOUR_SECONDS * SECOND_NANOSECONDS) as i64;
        let last_of = |schedule: Schedule| {
            let taken = self.expected.volumes[name].snapshots.iter();
            let taken = taken.filter(|name| Schedule::of_name(name) == Some(schedule));
            // Names tell minutes, and are in the order of time.
            taken.filter(|name| **name <= schedule.name_at(now)).max().cloned()
        };
        let is_due = |schedule: &Schedule| match last_of(*schedule) {
            // Its minute lies in the period that it was taken for.
            Some(last) => last < schedule.name_at(begin_of(*schedule, now)),
            None => schedule.period_of(created) < schedule.period_of(now),
        };
        let schedules = policy.schedules().map(|(schedule, _)| schedule);
        let schedules = schedules.filter(|_| !is_young).filter(is_due);
        schedules.map(|schedule| (schedule, schedule.name_at(now))).collect()
    }

    /// Whether status says that a snapshot could not be taken.
    fn is_missed(&mut self, name: &str) -> Result<bool, Finding> {
        let reply = self.read(Request::Status)?;
        let Reply::Status(status) = reply else { return Ok(false) };
        Ok(status
            .checks
            .iter()
            .any(|check| check.code == "SNAPSHOT_MISSED" && check.object == name))
    }

    /// Expects of what was due what there is.
    fn adopt(&mut self, name: &str, due: &[(Schedule, String)]) -> Result<(), Finding> {
        let reply = self.read(Request::SnapshotList(of_volume(name)))?;
        let Reply::SnapshotList(list) = reply else { return Ok(()) };
        let is_due = |name: &String| due.iter().any(|(_, due)| due == name);
        let Some(volume) = self.expected.volumes.get_mut(name) else { return Ok(()) };
        let shown: Vec<String> = list.into_iter().map(|one| one.name).collect();
        let is_own = |name: &String| Schedule::of_name(name).is_none();
        volume.snapshots.retain(|name| is_own(name) || shown.contains(name));
        volume.snapshots.extend(shown.into_iter().filter(is_due));
        self.look_at_snapshots(name)
    }

    fn look_at_snapshots(&mut self, name: &str) -> Result<(), Finding> {
        self.call(Asked::Request(Box::new(Request::SnapshotList(of_volume(name)))))
    }

    fn set_policy(&mut self, name: &str, policy: SnapshotPolicy) -> Result<(), Finding> {
        let set = Request::VolumeSet(VolumeSet {
            name: name.to_owned(),
            tiering_policy: None,
            tiering_minimum_cooling_days: None,
            reallocate: None,
            autogrow_max_bytes: None,
            snapshot_policy: Some(policy),
        });
        self.call(Asked::Request(Box::new(set)))
    }

    fn hold(&mut self, name: &str, snapshot: String, held: bool) -> Result<(), Finding> {
        let volume = name.to_owned();
        let request = Request::SnapshotHold(SnapshotHold { volume, name: snapshot, held });
        self.call(Asked::Request(Box::new(request)))
    }

    /// Deletes what schedules have taken.
    fn delete_taken(&mut self, name: &str) -> Result<(), Finding> {
        let volume = &self.expected.volumes[name];
        let taken = volume.snapshots.iter().filter(|name| Schedule::of_name(name).is_some());
        for snapshot in taken.cloned().collect::<Vec<_>>() {
            if self.expected.volumes[name].held.contains(&snapshot) {
                self.hold(name, snapshot.clone(), false)?;
            }
            let delete = Request::SnapshotDelete(SnapshotDelete {
                volume: name.to_owned(),
                name: snapshot.clone(),
                through: None,
                dry_run: false,
                plan: None,
            });
            self.call(Asked::Request(Box::new(delete)))?;
            if self.expected.volumes[name].snapshots.contains(&snapshot) {
                let text = format!("{snapshot} cannot be deleted: {:?}", Code::Conflict);
                return Err(wrong(&Asked::Watch, &text));
            }
        }
        self.machine.settle()
    }
}

fn of_volume(name: &str) -> admin_api::VolumeFilter {
    admin_api::VolumeFilter { volume: Some(name.to_owned()) }
}

/// When the period began that a time lies in.
fn begin_of(schedule: Schedule, now: Timestamp) -> Timestamp {
    let minute = |minutes: i64| Timestamp::from_parts((now.seconds() / 60 - minutes) * 60, 0);
    let minutes =
        (0..).find(|minutes| schedule.period_of(minute(minutes + 1)) < schedule.period_of(now));
    minute(minutes.unwrap_or_default())
}
