//! A round's rest: what clients and the operator see, and what lies on the media.
//!
//! Fails: with what is not as it should be.

use super::calls::wrong;
use super::desk::Asked;
use super::ending;
use super::expected::ExpectedDeleted;
use super::life::OperatorLife;
use super::queue::SECOND_NANOSECONDS;
use super::schedules::Hours;
use crate::checks::media;
use crate::checks::space::{check_lost, check_promises};
use crate::machine::AGGREGATE;
use crate::seed::finding::Finding;
use admin_api::recovery_queue::QUEUE_SECONDS_MIN;
use admin_api::{Reply, Request, VolumeFilter};

/// So long those deleted volumes are kept at most that are not kept for hours.
const KEPT_SECONDS_MAX: u64 = QUEUE_SECONDS_MIN + 200;
/// Looks of management until a volume is purged that is due.
const WATCHES_MAX: u32 = 4;
/// Of 100 rests with deleted volumes, those in which so much time passes.
const PASSING_PERCENT: u64 = 40;
/// How many of 100 jobs that are open at a rest lose their rate and their pause.
const RELEASE_PERCENT: u64 = 60;

impl OperatorLife<'_> {
    /// Everything is durable and as it should be.
    pub(super) fn rest(&mut self) -> Result<(), Finding> {
        self.machine.consistency_point()?;
        let Self { machine, losses, .. } = self;
        machine.drive_until("a lost disk", |machine| !losses.has_recent(machine))?;
        for tenant in &mut self.tenants {
            tenant.all_durable();
            tenant.compare_images(&mut self.machine)?;
            tenant.compare_snapshots(&mut self.machine)?;
        }
        self.machine.settle()?;
        self.look_around()?;
        self.let_time_end()?;
        Hours(self).pass()?;
        self.machine.settle()?;
        check_promises(&mut self.machine)?;
        check_lost(&self.machine)?;
        self.check_media()
    }

    /// The last rest: see [`ending`].
    pub(super) fn end_aggregate(&mut self) -> Result<(), Finding> {
        ending::end_aggregate(self)
    }

    /// The reader of the media finds nothing wrong.
    pub(super) fn check_media(&mut self) -> Result<(), Finding> {
        self.machine.see_disks();
        media::check_media(&mut self.machine)
    }

    /// Minutes pass, and volumes go whose time is over: a part of a rest.
    pub(super) fn let_time_end(&mut self) -> Result<(), Finding> {
        if self.expected.deleted.is_empty() || !self.events.chance(PASSING_PERCENT) {
            return Ok(());
        }
        self.machine.settle()?;
        if self.machine.world.pending_count() + self.machine.world.held_count() > 0 {
            // A disk that hangs would count as failed.
            return Ok(());
        }
        self.call(Asked::Watch)?;
        for _ in 0..WATCHES_MAX {
            self.machine.settle()?;
            self.pass_seconds(KEPT_SECONDS_MAX);
            self.call(Asked::Watch)?;
            let is_over = |kept: &ExpectedDeleted| kept.kept_seconds <= KEPT_SECONDS_MAX;
            // An aggregate may be away for a while, and its volumes are seen anew then.
            if self.machine.aggregate().is_none() || !self.expected.deleted.values().any(is_over) {
                return Ok(());
            }
        }
        let text = format!("the time of a volume is over, and it is there: {:?}", self.expected);
        Err(wrong(&Asked::Watch, &text))
    }

    fn pass_seconds(&mut self, seconds: u64) {
        self.machine.world.advance(seconds * SECOND_NANOSECONDS);
        self.machine.pass_time();
    }

    fn look_around(&mut self) -> Result<(), Finding> {
        let all = VolumeFilter::default();
        let looks = [
            Request::Status,
            Request::VolumeList,
            Request::VolumeListDeleted,
            Request::SnapshotList(all.clone()),
            Request::ExportList(all),
            Request::MountList,
            Request::AggregateList,
            Request::DiskList,
        ];
        self.release_jobs()?;
        self.settle_disks()?;
        looks.into_iter().try_for_each(|look| self.call(Asked::Request(Box::new(look))))?;
        self.check_events()
    }

    /// Jobs go on as the operator said; then most go on as fast as they can.
    fn release_jobs(&mut self) -> Result<(), Finding> {
        self.call(Asked::Request(Box::new(Request::JobList)))?;
        for number in self.jobs_seen.open() {
            if !self.typed.chance(RELEASE_PERCENT) {
                continue;
            }
            if let Some(request) = self.jobs_seen.release(number) {
                self.call(Asked::Request(Box::new(request)))?;
            }
        }
        Ok(())
    }

    /// Work with disks comes to its end, as far as it does so soon; then it is clear whose they
    /// are.
    fn settle_disks(&mut self) -> Result<(), Finding> {
        if self.expected.disks.is_clear() {
            return Ok(());
        }
        self.call(Asked::Watch)?;
        self.machine.settle()?;
        let reply = self.read(Request::AggregateList)?;
        let Reply::AggregateList(list) = reply else { return Ok(()) };
        for aggregate in list.iter().filter(|aggregate| aggregate.name == AGGREGATE) {
            // The disks of a group that leaves go later.
            if aggregate.leaving.is_none() {
                self.expected.disks.settle(&aggregate.disks);
            }
        }
        if self.expected.disks.is_clear() {
            self.machine.trace.meet("operator: work with disks is over");
        }
        Ok(())
    }
}
