//! A group of disks that is to leave: its blocks go to other groups, by what empties areas
//! ([`crate::relocate`]), and when none is left its disks are taken out of the aggregate.
//!
//! The superblock says which group leaves, so that a start goes on. Nothing is placed in it from
//! the freeze on that says so, and its free blocks are nobody's room.
//!
//! Invariants: the disks go when a commit has found nothing in use on them, and nothing can be
//! placed there any more. One group leaves at a time.
//!
//! Fails: without room elsewhere it waits; what cannot be read or moved is tried again after each
//! commit, and the group stays as long.

use crate::aggregate::{Aggregate, reserve_blocks};
use crate::block_side::BlockSide;
use crate::consistency_point::{CpDone, FreezeScope};
use crate::error::AggregateError;
use crate::refill::{Tier, tier_of};
use crate::relocate::FREE_BLOCKS_MIN;
use affinity::{Access, Outcome};
use raid::{Geometry, RaidError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{BLOCK_SIZE_U64, ByteSize};

/// How far the removal of a group is, as of the last commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// The group.
    pub group: u32,
    /// Its blocks that are in use still; `None` until its areas were counted.
    pub used_blocks: Option<u64>,
    /// Its blocks.
    pub blocks: u64,
}

impl Leaving {
    pub(crate) fn of(side: &BlockSide, geometry: &Geometry) -> Option<Self> {
        let group = side.settings.leaving_group?;
        let blocks = geometry.group(group).blocks();
        Some(Self { group, used_blocks: side.refill.used_in(group), blocks })
    }

    /// Blocks of the group that nothing may be placed at.
    pub(crate) fn unusable_blocks(&self) -> u64 {
        self.blocks - self.used_blocks.unwrap_or(0).min(self.blocks)
    }
}

impl Aggregate {
    /// The group that is to leave, if one is.
    #[must_use]
    pub fn leaving(&self) -> Option<Leaving> {
        *self.leaving.read()
    }

    /// Has a group leave. `done` is called when that is durable; emptying it goes on in the
    /// background, also after a start.
    pub fn remove_group(self: &Arc<Self>, group: u32, done: CpDone) {
        let begin = move |scope: &mut FreezeScope<'_, '_>| {
            let this = Arc::clone(scope.aggregate);
            let side = scope.block_side();
            this.check_removal(side, group).map_err(AggregateError::Refused)?;
            side.set_leaving(Some(group));
            let geometry = this.parts.store.geometry();
            let is_there = |pvbn| geometry.locate(pvbn).is_some_and(|at| at.group == group);
            for pvbn in this.pool.take_out(is_there) {
                side.space.take_back(pvbn.get());
            }
            this.note_leaving(side);
            Ok(())
        };
        self.request_action(Box::new(begin), done);
    }

    /// Has the group stay that was to leave. `done` is called when that is durable.
    pub fn keep_group(self: &Arc<Self>, done: CpDone) {
        let keep = |scope: &mut FreezeScope<'_, '_>| {
            let this = Arc::clone(scope.aggregate);
            let side = scope.block_side();
            if side.settings.leaving_group.is_none() || side.is_group_taken_out {
                return Err(AggregateError::Refused("no group is being emptied".to_owned()));
            }
            side.set_leaving(None);
            this.note_leaving(side);
            Ok(())
        };
        self.request_action(Box::new(keep), done);
    }

    fn check_removal(&self, side: &BlockSide, group: u32) -> Result<(), String> {
        let geometry = self.parts.store.geometry();
        let groups = || (0..).zip(geometry.groups()).filter(|(_, one)| one.data_disks() > 0);
        let Some((_, leaving)) = groups().find(|(number, _)| *number == group) else {
            return Err(format!("it has no group {group}"));
        };
        if let Some(other) = side.settings.leaving_group {
            return Err(format!("group {other} is being emptied to leave; one at a time"));
        }
        if side.traditional {
            return Err("the blocks of a traditional volume cannot move".to_owned());
        }
        if tier_of(leaving) == Tier::Object {
            return Err("a group in an object store cannot leave".to_owned());
        }
        if groups().filter(|(_, one)| tier_of(one) == Tier::Near).count() < 2 {
            return Err("it is the only group of disks".to_owned());
        }
        let Some(used) = side.refill.used_in(group) else {
            return Err("its free blocks are being counted; try again in a moment".to_owned());
        };
        let near = groups().filter(|(_, one)| tier_of(one) == Tier::Near);
        let others: Vec<u32> =
            near.map(|(number, _)| number).filter(|number| *number != group).collect();
        let free = |number: &u32| {
            let used = side.refill.used_in(*number)?;
            Some(geometry.group(*number).blocks() - used)
        };
        let Some(free) = others.iter().map(free).sum::<Option<u64>>() else {
            return Err("free blocks are being counted; try again in a moment".to_owned());
        };
        let needed = used + reserve_blocks(side.space.size_blocks) + FREE_BLOCKS_MIN;
        if free < needed {
            let size = |blocks: u64| ByteSize(blocks * BLOCK_SIZE_U64);
            return Err(format!(
                "the other groups of disks have {} free, and {} are needed to take what is in use \
                 in it; add disks, or delete volumes or snapshots",
                size(free),
                size(needed)
            ));
        }
        Ok(())
    }

    pub(crate) fn note_leaving(&self, side: &BlockSide) {
        *self.leaving.write() = Leaving::of(side, &self.parts.store.geometry());
    }

    /// At a commit: takes the disks out of a group in which nothing is in use.
    pub(crate) fn end_leaving(self: &Arc<Self>, side: &mut BlockSide) {
        let Some(group) = side.settings.leaving_group else { return };
        let is_due = side.refill.is_vacated(group) && !self.is_failed();
        if !is_due || std::mem::replace(&mut side.is_group_taken_out, true) {
            return;
        }
        let this = Arc::clone(self);
        let removed = move |outcome: Result<(), RaidError>| {
            if let Err(error) = outcome {
                // After the next commit again.
                tracing::warn!(group, %error, "a group that is empty cannot leave yet");
                return this.send_not_taken_out();
            }
            let end = move |scope: &mut FreezeScope<'_, '_>| {
                let this = Arc::clone(scope.aggregate);
                let side = scope.block_side();
                side.is_group_taken_out = false;
                side.set_leaving(None);
                let geometry = this.parts.store.geometry();
                side.refill.remove_group(group, &geometry);
                this.statistics.size_blocks.store(geometry.blocks(), Ordering::Relaxed);
                this.note_leaving(side);
                Ok(())
            };
            this.request_action(Box::new(end), Box::new(|_| ()));
        };
        self.parts.store.remove_group(group, Box::new(removed));
    }

    fn send_not_taken_out(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let message = move |access: &mut Access<'_>| {
            this.block_side.write(access).is_group_taken_out = false;
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }
}
