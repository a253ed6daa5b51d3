//! Hours pass at a rest, and snapshots are taken by a schedule: a part of a rest.
//!
//! In rounds volumes have no schedules. For some hours a volume gets some; at the end of them its
//! snapshots are deleted, and it is as before.
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
/// Of 100 hours, those by which the clock is set back.
const BACK_PERCENT: u64 = 15;

/// Snapshots of these schedules are taken of a volume. `is_base`: a clone began with it.
fn take(
    volume: &mut ExpectedVolume,
    (policy, due): (SnapshotPolicy, &[(Schedule, String)]),
    is_base: impl Fn(&str) -> bool,
) {
    volume.snapshots.extend(due.iter().map(|(_, name)| name.clone()));
    for (schedule, kept) in policy.schedules() {
        let may_go = |name: &String| {
            Schedule::of_name(name) == Some(schedule)
                && !volume.held.contains(name)
                && !is_base(name)
        };
        let mut going: Vec<String> =
            volume.snapshots.iter().filter(|name| may_go(name)).cloned().collect();
        going.truncate(going.len().saturating_sub(kept));
        volume.snapshots.retain(|name| !going.contains(name));
    }
}

/// Hours of a rest.
pub(super) struct Hours<'l, 'a>(pub &'l mut OperatorLife<'a>);

impl Hours<'_, '_> {
    /// See the module.
    pub(super) fn pass(&mut self) -> Result<(), Finding> {
        let volumes = self.0.expected.volumes.iter();
        let served = volumes.filter(|(_, volume)| !volume.is_offline);
        let names: Vec<String> = served.map(|(name, _)| name.clone()).collect();
        if names.is_empty() || self.0.machine.is_outage() || !self.0.events.chance(HOURS_PERCENT) {
            return Ok(());
        }
        // Which snapshots a cut would leave is not known.
        self.0.machine.arm(None);
        let name = names[self.0.events.index(names.len())].clone();
        let policies = [[1, 0, 0, 0], [2, 1, 0, 0], [3, 2, 2, 0]].map(SnapshotPolicy::of_kept);
        let policy = self.0.events.pick(&policies);
        self.set_policy(&name, policy)?;
        for hour in 0..1 + self.0.events.below(HOURS_MAX) {
            if !self.let_hour_pass(&name, policy)? {
                break;
            }
            let held = self.0.expected.volumes[&name].snapshots.first().cloned();
            if let Some(held) = held.filter(|_| hour == 0 && self.0.events.chance(50)) {
                self.hold(&name, held, true)?;
            }
        }
        self.set_policy(&name, SnapshotPolicy::NONE)?;
        self.delete_taken(&name)
    }

    /// An hour or two pass, or the clock is set back by as much; whether another may.
    fn let_hour_pass(&mut self, name: &str, policy: SnapshotPolicy) -> Result<bool, Finding> {
        let shown = self.0.read(Request::VolumeShow(Named { name: name.to_owned() }))?;
        let Reply::VolumeShow(VolumeInfo { created, .. }) = shown else { return Ok(false) };
        let seconds = HOUR_SECONDS + self.0.events.below(HOUR_SECONDS);
        let is_back = self.0.events.chance(BACK_PERCENT);
        match is_back {
            true => self.0.machine.world.turn_back(seconds * SECOND_NANOSECONDS),
            false => self.0.machine.world.leap(seconds * SECOND_NANOSECONDS),
        }
        self.0.machine.trace.fold(2 * seconds + u64::from(is_back));
        self.0.machine.settle()?;
        let now = self.0.machine.world.wall();
        let due = self.due(name, policy, (created.0, now));
        self.0.call(Asked::Watch)?;
        self.0.machine.settle()?;
        if self.0.machine.aggregate().is_none() {
            return Ok(false);
        }
        if self.is_missed(name)? {
            // There was no room for one, or for several. Which is told by the next list.
            self.0.machine.trace.meet("schedules: there was no room for a snapshot");
            return self.adopt(name, &due).map(|()| false);
        }
        let base = self.0.expected.origins().filter(|(_, of)| of.volume == name);
        let bases: Vec<String> = base.map(|(_, of)| of.snapshot.clone()).collect();
        if let Some(volume) = self.0.expected.volumes.get_mut(name) {
            take(volume, (policy, &due), |snapshot| bases.iter().any(|base| base == snapshot));
        }
        self.0.machine.trace.meet("schedules: snapshots were taken");
        self.look_at_snapshots(name).map(|()| true)
    }

    /// What is due of a volume, and the names that it gets.
    fn due(
        &self,
        name: &str,
        policy: SnapshotPolicy,
        (created, now): (Timestamp, Timestamp),
    ) -> Vec<(Schedule, String)> {
        // The clock may have been set back, to before the volume was made.
        let is_age_known = created <= now;
        let age = now.get() - created.get();
        if is_age_known && age < (HOUR_SECONDS * SECOND_NANOSECONDS) as i64 {
            return Vec::new();
        }
        let taken = &self.0.expected.volumes[name].snapshots;
        let is_due = |schedule: &Schedule| {
            // Names tell minutes, and are in the order of time.
            let begin = schedule.name_at(begin_of(*schedule, now));
            let next = schedule.name_at(end_of(*schedule, now));
            let of = taken.iter().filter(|name| Schedule::of_name(name) == Some(*schedule));
            let is_taken = of.into_iter().any(|name| *name >= begin && *name < next);
            let is_older = schedule.period_of(created) < schedule.period_of(now);
            !is_taken && (is_older || !is_age_known)
        };
        let schedules = policy.schedules().map(|(schedule, _)| schedule).filter(is_due);
        schedules.map(|schedule| (schedule, schedule.name_at(now))).collect()
    }

    /// Whether status says that a snapshot could not be taken.
    fn is_missed(&mut self, name: &str) -> Result<bool, Finding> {
        let reply = self.0.read(Request::Status)?;
        let Reply::Status(status) = reply else { return Ok(false) };
        Ok(status
            .checks
            .iter()
            .any(|check| check.code == "SNAPSHOT_MISSED" && check.object == name))
    }

    /// Expects of what was due what there is.
    fn adopt(&mut self, name: &str, due: &[(Schedule, String)]) -> Result<(), Finding> {
        let reply = self.0.read(Request::SnapshotList(of_volume(name)))?;
        let Reply::SnapshotList(list) = reply else { return Ok(()) };
        let is_due = |name: &String| due.iter().any(|(_, due)| due == name);
        let Some(volume) = self.0.expected.volumes.get_mut(name) else { return Ok(()) };
        let shown: Vec<String> = list.into_iter().map(|one| one.name).collect();
        let is_own = |name: &String| Schedule::of_name(name).is_none();
        let held = volume.held.clone();
        let stays = |name: &String| is_own(name) || held.contains(name);
        volume.snapshots.retain(|name| stays(name) || shown.contains(name));
        volume.snapshots.extend(shown.into_iter().filter(is_due));
        self.look_at_snapshots(name)
    }

    fn look_at_snapshots(&mut self, name: &str) -> Result<(), Finding> {
        self.0.call(Asked::Request(Box::new(Request::SnapshotList(of_volume(name)))))
    }

    fn set_policy(&mut self, name: &str, policy: SnapshotPolicy) -> Result<(), Finding> {
        let set = Request::VolumeSet(VolumeSet {
            name: name.to_owned(),
            tiering_policy: None,
            tiering_minimum_cooling_days: None,
            reallocate: None,
            autogrow_max_bytes: None,
            snapshot_policy: Some(policy),
            snapshot_autodelete: None,
            guarantee: None,
        });
        self.0.call(Asked::Request(Box::new(set)))
    }

    fn hold(&mut self, name: &str, snapshot: String, held: bool) -> Result<(), Finding> {
        let volume = name.to_owned();
        let request = Request::SnapshotHold(SnapshotHold { volume, name: snapshot, held });
        self.0.call(Asked::Request(Box::new(request)))
    }

    /// Deletes what schedules have taken.
    fn delete_taken(&mut self, name: &str) -> Result<(), Finding> {
        let volume = &self.0.expected.volumes[name];
        let taken = volume.snapshots.iter().filter(|name| Schedule::of_name(name).is_some());
        for snapshot in taken.cloned().collect::<Vec<_>>() {
            if self.0.expected.volumes[name].held.contains(&snapshot) {
                self.hold(name, snapshot.clone(), false)?;
            }
            let delete = Request::SnapshotDelete(SnapshotDelete {
                volume: name.to_owned(),
                name: snapshot.clone(),
                through: None,
                dry_run: false,
                plan: None,
            });
            self.0.call(Asked::Request(Box::new(delete)))?;
            if self.0.expected.volumes[name].snapshots.contains(&snapshot) {
                let text = format!("{snapshot} cannot be deleted: {:?}", Code::Conflict);
                return Err(wrong(&Asked::Watch, &text));
            }
        }
        self.0.machine.settle()
    }
}

fn of_volume(name: &str) -> admin_api::VolumeFilter {
    admin_api::VolumeFilter { volume: Some(name.to_owned()) }
}

/// The minute in which the period began that a time lies in.
fn begin_of(schedule: Schedule, now: Timestamp) -> Timestamp {
    let is_before = |back: i64| schedule.period_of(minute(now, -back)) < schedule.period_of(now);
    let back = (0..).find(|back| is_before(back + 1));
    minute(now, -back.unwrap_or_default())
}

/// The minute in which the next period begins.
fn end_of(schedule: Schedule, now: Timestamp) -> Timestamp {
    let is_after = |on: &i64| schedule.period_of(minute(now, *on)) > schedule.period_of(now);
    minute(now, (0..).find(is_after).unwrap_or_default())
}

/// The full minute so many minutes later.
fn minute(time: Timestamp, later: i64) -> Timestamp {
    Timestamp::from_parts((time.seconds().div_euclid(60) + later) * 60, 0)
}
