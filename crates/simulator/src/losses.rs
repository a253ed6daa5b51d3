//! Disks that go at moments under load, one after the other; come back at a start with what they
//! had when they went; and are replaced by new ones, which are rebuilt.
//!
//! Invariants: no more disks are missing than the plan says, those that are being rebuilt included.
//! After a disk has gone the power stays on until the consistency point is over that found out.
//! What a stripe that was being written in part when disk and power went had on that disk is lost
//! (docs/testing.md).

use crate::finding::Finding;
use crate::machine::{AGGREGATE, LOG_DISK, Machine, Promise, promise};
use crate::outage::OutagePhase;
use aggregate::Phase;
use dblade::EngineError;
use ondisk::label::DiskLabel;
use platform::Disk;
use raid::{DiskPlace, MemberState, MemberStatus};
use std::collections::BTreeSet;
use std::sync::Arc;
use units::CpNumber;

/// Of 100 disks that go, those that hang instead.
const HANG_PERCENT: u64 = 30;
/// Of 100 that hang, those that answer later, while all goes on without them.
const LATE_PERCENT: u64 = 50;

/// See the module.
#[derive(Default)]
pub struct Losses {
    /// Names of disks that are not there.
    gone: BTreeSet<String>,
    recent: Option<Recent>,
    replacing: Option<Promise<Result<(), EngineError>>>,
    replaced_count: u32,
    /// Disks that are gone though the group cannot do without them.
    pub(crate) away: Vec<String>,
    pub(crate) outage: OutagePhase,
    /// Disks that hang.
    hung: Vec<String>,
}

/// A loss that the aggregate has not settled yet.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// The disk's place.
    slot: usize,
    /// The last consistency point when the aggregate knew.
    noticed: Option<CpNumber>,
}

impl Machine<'_> {
    /// The aggregate's disks that are there, replaced ones as well.
    #[must_use]
    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let is_ours = |name: &str| name != LOG_DISK && !self.losses.gone.contains(name);
        let names = self.world.disk_names().into_iter().filter(|name| is_ours(name));
        let labelled = names.filter(|name| self.is_labelled(name));
        labelled
            .filter_map(|name| self.world.disk(&name))
            .map(|disk| self.watch.over(disk))
            .collect()
    }

    /// Whether the disk's label is there, if damaged.
    fn is_labelled(&self, name: &str) -> bool {
        let ends = [0, self.plan.disk_blocks - 1];
        let found = ends.iter().filter_map(|block| self.world.read_block(name, *block));
        found.into_iter().any(|block| DiskLabel::is_claimed_by(&block))
    }

    pub(crate) fn members(&self) -> Vec<MemberStatus> {
        let Some(aggregate) = self.aggregate() else { return Vec::new() };
        let status = aggregate.parts.store.status();
        status.groups.into_iter().flat_map(|group| group.members).collect()
    }

    /// One of the disks that the plan names goes, if as many as it names are not missing already
    /// and the last loss is settled. One that is being rebuilt may go at any time.
    pub fn lose_disk(&mut self) {
        if self.plan.lost_disks.is_empty()
            || self.is_outage()
            || self.has_recent_loss()
            || self.is_replacing()
        {
            return;
        }
        let Some(aggregate) = self.aggregate() else { return };
        let members = self.members();
        let missing = members.iter().filter(|member| member.state != MemberState::Online).count();
        let may_go = |slot: &usize| match members.get(*slot).map(|member| &member.state) {
            Some(MemberState::Online) => missing < self.plan.lost_disks.len(),
            Some(MemberState::Rebuilding { .. }) => true,
            _ => false,
        };
        let Some(slot) = self.plan.lost_disks.iter().copied().find(may_go) else { return };
        let Some(name) = members[slot].name.clone() else { return };
        self.trace.meet(match members[slot].state {
            MemberState::Online => "fault: disk gone",
            _ => "fault: disk gone while it is rebuilt",
        });
        self.take_away(&name);
        self.losses.gone.insert(name);
        self.losses.recent = Some(Recent { slot, noticed: None });
        aggregate.force();
        aggregate.request_consistency_point(None);
    }

    /// A disk goes, or hangs: then it answers late, or never.
    pub(crate) fn take_away(&mut self, name: &str) {
        let hangs = self.choices.chance(HANG_PERCENT);
        self.trace.note(format!("disk {name} {}", if hangs { "hangs" } else { "is gone" }));
        if hangs {
            self.trace.meet("fault: disk hangs");
            self.world.set_hung(name, true);
            self.losses.hung.push(name.to_owned());
        } else {
            self.world.set_gone(name, true);
        }
    }

    /// Disks that hung do what they were asked, late.
    pub(crate) fn answer_late(&mut self) {
        for name in std::mem::take(&mut self.losses.hung) {
            self.trace.meet("fault: a disk that hung answers late");
            self.trace.note(format!("disk {name} answers late"));
            self.world.set_hung(&name, false);
        }
    }

    /// Whether a disk has gone of late, so that the power must stay on.
    pub fn has_recent_loss(&mut self) -> bool {
        let (Some(mut recent), Some(aggregate)) = (self.losses.recent, self.aggregate()) else {
            self.losses.recent = None;
            return false;
        };
        let is_idle = aggregate.phase() == Phase::Idle;
        let is_over = match recent.noticed {
            Some(last) => is_idle || aggregate.committed() > last,
            None => false,
        };
        if recent.noticed.is_none() {
            let state = self.members().into_iter().nth(recent.slot).map(|member| member.state);
            match state {
                Some(MemberState::Online | MemberState::Rebuilding { .. }) if is_idle => {
                    // One that was under way was over with the disk already.
                    aggregate.force();
                    aggregate.request_consistency_point(None);
                }
                Some(MemberState::Online | MemberState::Rebuilding { .. }) => {}
                _ => recent.noticed = Some(aggregate.committed()),
            }
        }
        if is_over && self.choices.chance(LATE_PERCENT) {
            self.answer_late();
        }
        self.losses.recent = (!is_over).then_some(recent);
        self.losses.recent.is_some()
    }

    /// The engine of all this is no more.
    pub fn forget_requests_for_disks(&mut self) {
        self.losses.recent = None;
        self.losses.replacing = None;
    }

    /// Disks that were gone are there again at the next start; they missed what was written since.
    pub fn return_disks(&mut self) {
        self.answer_late();
        for name in std::mem::take(&mut self.losses.gone) {
            self.trace.meet("fault: disk back, with old content");
            self.trace.note(format!("disk {name} is back"));
            self.world.set_gone(&name, false);
        }
    }

    /// A disk that failed or is missing is replaced by a new one.
    pub fn replace_disk(&mut self) {
        if self.has_recent_loss() || self.is_replacing() || self.is_outage() {
            return;
        }
        let is_lost = |member: &MemberStatus| {
            matches!(member.state, MemberState::Missing | MemberState::Failed { .. })
        };
        let Some(member) = self.members().iter().position(is_lost) else { return };
        let name = format!("new{}", self.losses.replaced_count);
        self.losses.replaced_count += 1;
        self.trace.meet("disk replaced");
        self.trace.note(format!("disk {member} is replaced by {name}"));
        let disk = self.world.add_disk(&name, self.plan.disk_blocks);
        let (engine, place) = (Arc::clone(&self.engine), DiskPlace { group: 0, member });
        let disk = self.watch.over(disk);
        self.losses.replacing =
            Some(promise(|done| engine.replace_disk(AGGREGATE, place, (disk, false), done)));
    }

    pub(crate) fn is_replacing(&self) -> bool {
        self.losses.replacing.is_some()
    }

    /// Takes in how a replacement began.
    pub fn poll_replacement(&mut self) -> Result<(), Finding> {
        let Some(outcome) = self.losses.replacing.as_ref().and_then(|one| one.lock().take()) else {
            return Ok(());
        };
        self.losses.replacing = None;
        outcome.map_err(|error| self.refused("replace disk", &error.to_string()))
    }
}
