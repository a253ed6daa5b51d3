//! Disks that go at moments under load, one after the other, and come back at a start with what
//! they had when they went.
//!
//! Invariant: after a disk has gone the power stays on until the consistency point is over that
//! found out. What a stripe that was being written in part when disk and power went had on that
//! disk is lost (docs/testing.md).

use crate::machine::{Machine, disk_name};
use aggregate::Phase;
use std::collections::BTreeSet;
use units::CpNumber;

/// See the module.
#[derive(Default, Debug)]
pub struct Losses {
    /// Disks that are not there.
    gone: BTreeSet<usize>,
    /// Disks that are there again, with old content.
    back: BTreeSet<usize>,
    recent: Option<Recent>,
}

/// A loss that the aggregate has not settled yet.
#[derive(Clone, Copy, Debug)]
enum Recent {
    /// It does not know.
    Unnoticed,
    /// It knew when this consistency point was the last.
    Noticed(CpNumber),
}

impl Losses {
    /// Whether the disk can be found.
    #[must_use]
    pub fn is_there(&self, disk: usize) -> bool {
        !self.gone.contains(&disk)
    }
}

impl Machine<'_> {
    /// The next disk of the plan goes, if there is one left and the last loss is settled.
    pub fn lose_disk(&mut self) {
        let losses = &self.losses;
        let is_left = |disk: &usize| !losses.gone.contains(disk) && !losses.back.contains(disk);
        let next = self.plan.lost_disks.iter().copied().find(is_left);
        let (Some(disk), Some(aggregate)) = (next, self.aggregate()) else { return };
        if self.has_recent_loss() {
            return;
        }
        self.trace.meet("fault: disk gone");
        self.trace.note(format!("disk {disk} is gone"));
        self.world.set_gone(&disk_name(disk), true);
        self.losses.gone.insert(disk);
        self.losses.recent = Some(Recent::Unnoticed);
        aggregate.force();
        aggregate.request_consistency_point(None);
    }

    /// Whether a disk has gone of late, so that the power must stay on.
    pub fn has_recent_loss(&mut self) -> bool {
        let (Some(recent), Some(aggregate)) = (self.losses.recent, self.aggregate()) else {
            self.losses.recent = None;
            return false;
        };
        match recent {
            Recent::Unnoticed => {
                let status = aggregate.parts.store.status();
                let missing: usize = status.groups.iter().map(|group| group.missing_disks()).sum();
                if missing >= self.losses.gone.len() + self.losses.back.len() {
                    self.losses.recent = Some(Recent::Noticed(aggregate.committed()));
                } else if aggregate.phase() == Phase::Idle {
                    // One that was under way was over with the disk already.
                    aggregate.force();
                    aggregate.request_consistency_point(None);
                }
            }
            Recent::Noticed(last) => {
                let is_over = aggregate.committed() > last || aggregate.phase() == Phase::Idle;
                self.losses.recent = self.losses.recent.filter(|_| !is_over);
            }
        }
        self.losses.recent.is_some()
    }

    /// The engine of the loss is no more.
    pub fn forget_recent_loss(&mut self) {
        self.losses.recent = None;
    }

    /// Disks that were gone are there again at the next start; they missed what was written since.
    pub fn return_disks(&mut self) {
        for disk in std::mem::take(&mut self.losses.gone) {
            self.trace.meet("fault: disk back, with old content");
            self.trace.note(format!("disk {disk} is back"));
            self.world.set_gone(&disk_name(disk), false);
            self.losses.back.insert(disk);
        }
    }
}
