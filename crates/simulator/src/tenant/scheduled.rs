//! Snapshots of schedules, in a volume that deletes them by itself where room is short.
//!
//! The model knows nothing of them: they come and go, and hold what clients free. All that the
//! model knows has to stay while they go.
//!
//! Fails: [`Finding::Space`] if somebody is refused for want of room while one of them is there.

use super::Tenant;
use crate::machine::Machine;
use crate::seed::finding::Finding;
use cowfs::budget::{Spender, VOLUME_OVERHEAD_BLOCKS};
use dblade::{ServedVolume, SnapshotAutodelete, VolumeKind};
use platform::completion::promise;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{Schedule, Timestamp};
use volume::SnapshotRequest;

/// Answers from one snapshot to the next.
const ANSWERS: usize = 12;
const HOUR_SECONDS: i64 = 3600;

impl Tenant {
    fn autodeleting(&self, machine: &Machine<'_>) -> Option<Arc<ServedVolume>> {
        let served = machine.engine.volume_named(&self.name)?;
        (served.autodelete() == SnapshotAutodelete::Scheduled).then_some(served)
    }

    /// Has a snapshot taken now and then. Whether that succeeds is not asked.
    pub(super) fn take_scheduled(&self, machine: &mut Machine<'_>) {
        let is_due = self.has_schedule && self.answered.is_multiple_of(ANSWERS);
        if !is_due || self.autodeleting(machine).is_none() {
            return;
        }
        let hour = i64::try_from(self.answered).unwrap_or(i64::MAX / HOUR_SECONDS);
        let name = Schedule::Hourly.name_at(Timestamp::from_parts(hour * HOUR_SECONDS, 0));
        let create = SnapshotRequest::Create(name);
        machine.engine.request_snapshot(&self.name, create, Box::new(drop));
        machine.trace.meet("snapshots of schedules: one is taken");
    }

    /// Notes what went by itself.
    pub(super) fn look_at_scheduled(&self, machine: &mut Machine<'_>) {
        if let Some(served) = self.autodeleting(machine) {
            let gone = served.take_autodeleted().len() as u64;
            machine.trace.meet_times("snapshots of schedules: went for want of room", gone);
        }
    }

    /// An operation was refused for want of room, and none else is under way.
    pub(super) fn check_none_could_go(&self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let Some(served) = self.autodeleting(machine) else { return Ok(()) };
        let budget = &served.aggregate.parts.shared.budget;
        // To delete takes room, too. Where the last freeze found none, nobody waits until the next.
        let VolumeKind::Flexible(volume) = &served.kind else { return Ok(()) };
        let is_tried = !volume.front.shared.may_delete_snapshot.load(Ordering::Relaxed);
        if is_tried || !budget.could_promise(VOLUME_OVERHEAD_BLOCKS, Spender::Reclaim) {
            return Ok(());
        }
        let engine = Arc::clone(&machine.engine);
        let listed = promise(|done| engine.snapshots(&self.name, done));
        let listed = machine.wait("list snapshots", &listed)?.unwrap_or_default();
        match listed.iter().find(|one| Schedule::of_name(&one.name).is_some()) {
            None => Ok(()),
            Some(one) => Err(Finding::Space(format!(
                "volume {} refuses for want of room and keeps snapshot {}, which may go",
                self.name, one.name
            ))),
        }
    }
}
