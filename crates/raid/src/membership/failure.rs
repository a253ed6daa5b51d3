//! The store as a whole fails: a group has lost one disk more than it can do without, or stripes
//! cannot be noted.
//!
//! From then on nothing that was not synced becomes durable through this store, whatever its disks
//! do later; whoever watches is told at once, so that nothing more is promised to clients. The way
//! back is to close the store and to put the aggregate together anew.
//!
//! Invariants:
//! - The first failure counts; it is told once, with no lock held.
//! - The disk that is one too many is *not* marked missing in any label. It need not be: since it
//!   failed no `sync` has succeeded, so no superblock names anything that it has not. What was
//!   being written is what a crash leaves: blocks that nothing points at, and stripes that the
//!   journal knows of. So when it returns it is a member like before, and the start makes parity
//!   right.
//! - Nothing is written any more that was computed from blocks which could not be read: they may be
//!   readable when the disks return, and would be overwritten.
//! - No disk takes another's place any more: the one that had it may be used again at the start.
//! - Blocks that can be proved as they are read are readable still; others are refused.

use crate::error::StoreError;
use crate::layout::DiskPlace;
use crate::membership::Members;
use crate::membership::lost::is_away;
use crate::request::FailureHook;
use media::{Device, MediaError};
use std::sync::Arc;

impl Members {
    /// Whether nothing more becomes durable.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    /// Whether a group has lost more disks than it can do without.
    pub(crate) fn has_lost(&self, of: u32) -> bool {
        let failure = &self.state.lock().failure;
        matches!(failure, Some(StoreError::GroupFailed { group, .. }) if *group == of)
    }

    /// Whether nothing more is begun.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.is_abandoned || state.failure.is_some()
    }

    /// Whether everyone who waited was let go.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.state.lock().is_abandoned
    }

    /// Why nothing more becomes durable.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.state.lock().failure.clone()
    }

    /// Nothing more becomes durable.
    pub(crate) fn fail_store(&self, error: StoreError) {
        let hook = {
            let mut state = self.state.lock();
            if state.failure.is_some() {
                return;
            }
            state.failure = Some(error.clone());
            state.failure_hook.take()
        };
        if let Some(hook) = hook {
            hook(error);
        }
    }

    pub(crate) fn watch_failure(&self, hook: FailureHook) {
        let failure = {
            let mut state = self.state.lock();
            match state.failure.clone() {
                Some(failure) => failure,
                None => {
                    state.failure_hook = Some(hook);
                    return;
                }
            }
        };
        hook(failure);
    }

    /// A disk failed while it was read. It is given up only where parity makes it good.
    pub(crate) fn fail_reading(
        self: &Arc<Self>,
        (group, member): (u32, usize),
        device: &Arc<Device>,
        error: MediaError,
    ) {
        self.fail((group, member), device, error, false);
    }

    /// A disk did not write what it should, or not durably. Either it is given up, or the store is.
    pub(crate) fn fail_writing(
        self: &Arc<Self>,
        (group, member): (u32, usize),
        device: &Arc<Device>,
        error: MediaError,
    ) {
        self.fail((group, member), device, error, true);
    }

    fn fail(
        self: &Arc<Self>,
        (group, member): (u32, usize),
        device: &Arc<Device>,
        error: MediaError,
        is_lost: bool,
    ) {
        self.count_failure((group, member), device, &error, is_lost);
        let is_promoted = {
            let mut state = self.state.lock();
            // What a disk did that was replaced since says nothing of the one in its place.
            if !self.is_taken_by((group, member), device) {
                drop(state);
                return self.fail_replacement((group, member), device);
            }
            let tolerated = self.group(group).kind.parity_disks();
            let complete_cp = state.points.complete;
            let disks = &mut state.groups[group as usize];
            let is_missing = disks.standing(member).is_missing();
            if is_missing && disks.filled(member).is_none() {
                return;
            }
            if !is_missing && disks.missing_count() >= tolerated {
                if !is_lost && !is_away(&error) {
                    return;
                }
                disks.blame(member, &error);
                drop(state);
                return self.fail_store(StoreError::GroupFailed { group, cause: error });
            }
            let seat = disks.fail(member, &error, complete_cp);
            let is_promoted = seat.is_some();
            seat.into_iter().for_each(|seat| self.group(group).members[member].set_seat(seat));
            is_promoted
        };
        self.write_labels(group);
        if is_promoted {
            // It may hold everything already.
            self.start_when_labelled(DiskPlace { group, member }, Box::new(|_| ()));
        }
    }
}
