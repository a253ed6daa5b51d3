//! A group of disks that is to leave. Its blocks go to other groups, by the same means as those of
//! areas that are emptied ([`crate::relocating`]). When none is left, its disks leave the
//! aggregate.
//!
//! The superblock says which group leaves, so that the next start goes on. From the freeze that
//! says so no block is placed in the group, and its free blocks count as nobody's room.
//!
//! Invariants: the disks leave when a commit has found no block in use on them. One group leaves at
//! a time.
//!
//! Fails: without room elsewhere the group waits. A block that cannot be read or moved is tried
//! again when the other blocks have moved; the group stays until then.

use crate::allocation::refill::{Tier, tier_of};
use crate::block_side::evacuation::{Evacuation, EvacuationError};
use crate::block_side::room::{reserve_blocks, settle_budget};
use crate::block_side::side::BlockSide;
use crate::error::AggregateError;
use crate::relocating::{areas, splitting};
use crate::relocation::moves::FREE_BLOCKS_MIN;
use crate::service::action::{Acted, CpDone, FreezeScope};
use crate::service::aggregate::Aggregate;
use crate::service::guarantees;
use affinity::{Access, Outcome};
use nvlog::CopyState;
use raid::RaidError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{BLOCK_SIZE_U64, ByteSize};

/// Receives what a removal would move.
pub type RemovalPlanned = Box<dyn FnOnce(Result<Evacuation, AggregateError>) + Send>;

impl Aggregate {
    /// Time has passed: a group that leaves no faster than was asked, or a clone that is split so,
    /// may have waited long enough.
    /// To be called several times a second.
    pub fn tick(self: &Arc<Self>, now_nanoseconds: u64) {
        areas::tick(self, now_nanoseconds);
        splitting::tick(self, now_nanoseconds);
    }

    /// Tells what of a group would have to move for it to leave, or why it cannot.
    pub fn plan_removal(self: &Arc<Self>, group: u32, done: RemovalPlanned) {
        let (this, mut done) = (Arc::clone(self), Some(done));
        let message = move |access: &mut Access<'_>| {
            let planned = this.check_removal(this.block_side.read(access), group);
            if let Some(done) = done.take() {
                done(planned.map_err(AggregateError::from));
            }
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    /// Has a group leave. `done` is called when that is durable; emptying it goes on in the
    /// background, also after a start. Until the next start no more bytes of it are moved a second
    /// than `rate` says.
    pub fn remove_group(self: &Arc<Self>, group: u32, rate: Option<u64>, done: CpDone) {
        let begin = move |scope: &mut FreezeScope<'_, '_>| {
            let this = Arc::clone(scope.aggregate);
            let side = scope.block_side();
            this.check_removal(side, group)?;
            side.set_leaving(Some(group));
            this.evacuation_limit.lock().set_rate(rate);
            let geometry = this.parts.store.geometry();
            let is_there = |pvbn| geometry.locate(pvbn).is_some_and(|at| at.group == group);
            for pvbn in this.pool.take_out(is_there) {
                side.space.take_back(pvbn);
            }
            // From now on its room is nobody's to promise.
            settle_budget(&this.parts.shared, side, &geometry);
            note(&this, side);
            guarantees::settle_shares(&this, side);
            Ok(Acted::Done)
        };
        self.request_action(Box::new(begin), done);
    }

    /// Has the group stay that was to leave. `done` is called when that is durable.
    pub fn keep_group(self: &Arc<Self>, done: CpDone) {
        let keep = |scope: &mut FreezeScope<'_, '_>| {
            let this = Arc::clone(scope.aggregate);
            let side = scope.block_side();
            if side.settings.leaving_group.is_none() || side.is_group_taken_out {
                return Err(EvacuationError::NotUnderWay.into());
            }
            side.set_leaving(None);
            this.evacuation_limit.lock().set_rate(None);
            note(&this, side);
            Ok(Acted::Done)
        };
        self.request_action(Box::new(keep), done);
    }

    /// A copy of the log has left a disk: the log lets go of the disk with the next consistency
    /// point, and a removal goes on that waited for it.
    pub fn log_has_left(self: &Arc<Self>) {
        self.force();
        self.request_consistency_point(None);
    }

    fn check_removal(&self, side: &BlockSide, group: u32) -> Result<Evacuation, EvacuationError> {
        let geometry = self.parts.store.geometry();
        let groups = || (0..).zip(geometry.groups()).filter(|(_, one)| !one.is_removed());
        let Some((_, leaving)) = groups().find(|(number, _)| *number == group) else {
            return Err(EvacuationError::NoGroup { group });
        };
        if let Some(group) = side.settings.leaving_group {
            return Err(EvacuationError::UnderWay { group });
        }
        if side.traditional {
            return Err(EvacuationError::Traditional);
        }
        if tier_of(leaving) == Tier::Object {
            return Err(EvacuationError::Object);
        }
        let near = groups().filter(|(_, one)| tier_of(one) == Tier::Near);
        let others: Vec<u32> =
            near.map(|(number, _)| number).filter(|number| *number != group).collect();
        if others.is_empty() {
            return Err(EvacuationError::Only);
        }
        let has_room = |number: &u32| geometry.group(*number).log_regions > 0;
        if has_log(self, group) && !others.iter().any(has_room) {
            return Err(EvacuationError::Log);
        }
        let used = side.refill.used_in(group).ok_or(EvacuationError::Uncounted)?;
        let free = |number: &u32| {
            let used = side.refill.used_in(*number)?;
            Some(geometry.group(*number).blocks() - used)
        };
        let free =
            others.iter().map(free).sum::<Option<u64>>().ok_or(EvacuationError::Uncounted)?;
        // Operations were promised room that may be in it, and so were volumes.
        let guaranteed = self.parts.shared.budget.guaranteed_blocks();
        let promised = self.parts.shared.budget.promised_blocks() + guaranteed;
        let reserve = reserve_blocks(side.space.size_blocks);
        let needed = used + promised + reserve + FREE_BLOCKS_MIN;
        if free < needed {
            let size = |blocks: u64| ByteSize(blocks * BLOCK_SIZE_U64);
            return Err(EvacuationError::NoRoom { free: size(free), needed: size(needed) });
        }
        Ok(Evacuation { group, used_blocks: Some(used), blocks: leaving.blocks() })
    }
}

/// Has status know how far the removal of a group is.
pub(crate) fn note(aggregate: &Aggregate, side: &BlockSide) {
    *aggregate.evacuation.write() = Evacuation::of(side, &aggregate.parts.store.geometry());
}

/// At a commit: takes the disks out of a group in which nothing is in use.
pub(crate) fn end(aggregate: &Arc<Aggregate>, side: &mut BlockSide) {
    let Some(group) = side.settings.leaving_group else { return };
    let is_due = side.refill.is_vacated(group)
        && !aggregate.is_failed()
        && !aggregate.pins.is_pinned()
        && !has_log(aggregate, group);
    if !is_due || std::mem::replace(&mut side.is_group_taken_out, true) {
        return;
    }
    let this = Arc::clone(aggregate);
    let removed = move |outcome: Result<(), RaidError>| {
        if let Err(error) = outcome {
            // After the next commit again.
            tracing::warn!(group, %error, "an evacuated group cannot be removed yet");
            return send_not_taken_out(&this);
        }
        let end = move |scope: &mut FreezeScope<'_, '_>| {
            let this = Arc::clone(scope.aggregate);
            let side = scope.block_side();
            side.is_group_taken_out = false;
            side.set_leaving(None);
            this.evacuation_limit.lock().set_rate(None);
            let geometry = this.parts.store.geometry();
            side.refill.grow(&geometry);
            this.statistics.size_blocks.store(geometry.blocks(), Ordering::Relaxed);
            note(&this, side);
            Ok(Acted::Done)
        };
        this.request_action(Box::new(end), Box::new(|_| ()));
    };
    aggregate.parts.store.remove_group(group, Box::new(removed));
}

/// Whether a copy of the log is on a disk of the group. Whoever has copies where they should be
/// makes others, lets go of these, and asks for a commit ([`Aggregate::log_has_left`]).
fn has_log(aggregate: &Aggregate, group: u32) -> bool {
    let copies = aggregate.parts.log.copies();
    let is_there = |disk: &str| {
        let mut on_disk = copies.iter().filter(|copy| copy.disk == disk);
        on_disk.any(|copy| !matches!(copy.state, CopyState::Lost(_)))
    };
    let places = aggregate.parts.store.log_places();
    places.iter().any(|one| one.place.group == group && is_there(one.disk.name()))
}

fn send_not_taken_out(aggregate: &Arc<Aggregate>) {
    let this = Arc::clone(aggregate);
    let message = move |access: &mut Access<'_>| {
        this.block_side.write(access).is_group_taken_out = false;
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}
