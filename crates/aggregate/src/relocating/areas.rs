//! Emptying allocation areas (FreeSpace section 3.3.1). The blocks in use in one of a group's best
//! areas go elsewhere. So a few areas are always empty as a whole, and are filled in full stripes.
//!
//! 1. *Choose*: the best area that is not empty, while its group has fewer empty areas than wanted.
//!    The area leaves the heap, so that no block is placed in it meanwhile.
//! 2. *Read* some of the blocks that the free map says are in use. The identity beside each block
//!    says whose it is.
//! 3. *Match* them with the trees of the last commit ([`super::owned`]). A volume's block moves
//!    like every block that is relocated: its entry in the container map changes. A block of the
//!    aggregate's own image is written again where it stands in its tree, to another place.
//! 4. The next consistency point does both. When it has committed, the old places are free.
//!
//! Invariants:
//! - What is moved is the block that the tree names, by its place and its check.
//! - An area is gone through once: a block that cannot be moved stays.
//! - Emptying begins no consistency point, unless a group is to leave: each consistency point takes
//!   one batch along.
//! - A group that leaves is emptied no faster than was asked ([`crate::relocation::limit`]). While
//!   it waits, areas of others are emptied as if none left.
//!
//! Fails: a block that cannot be read stays where it is, and so does a number of the area that was
//! handed out before. Without room nothing moves. An allocation that finds no free block elsewhere
//! takes the area back.

use super::owned::match_found;
use super::read::{Wanted, read_all};
use crate::administration::evacuation;
use crate::allocation::refill::Refill;
use crate::block_side::side::BlockSide;
use crate::relocation::areas::{AreaBatch, AreaCleaning, Emptying, FoundBlocks, Stage};
use crate::service::aggregate::Aggregate;
use affinity::{Access, Outcome};
use cowfs::budget::{Spender, VOLUME_OVERHEAD_BLOCKS};
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use ondisk::features::MOVED_BLOCKS;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::VolumeId;

/// Blocks of an area that a consistency point takes along at most: 4 MiB.
const BATCH_BLOCKS: u64 = 1024;
/// Blocks that each of a batch may cost: [`AreaBatch::cost_blocks`] is no more for each.
const COST_PER_BLOCK: u64 = 8;

/// Goes on after a commit.
pub(crate) fn go_on(aggregate: &Arc<Aggregate>, side: &mut BlockSide) {
    // A traditional volume's pointers are the only ones to its blocks: nothing can move.
    if side.traditional {
        return;
    }
    match std::mem::take(&mut side.relocation.areas.stage) {
        Stage::Idle => empty_next(aggregate, side),
        Stage::Found(found) => {
            side.relocation.areas.stage = Stage::Looking;
            send_match(aggregate, found);
        }
        other => side.relocation.areas.stage = other,
    }
}

/// Goes on with the area, or with the next one.
fn empty_next(aggregate: &Arc<Aggregate>, side: &mut BlockSide) {
    let BlockSide { relocation, refill, settings, .. } = side;
    let areas = &mut relocation.areas;
    let (mut leaving, mut staying) = (None, None);
    for one in [areas.area.take(), areas.aside.take()].into_iter().flatten() {
        if refill.is_emptying(one.group, one.area) {
            let is_leaving = settings.leaving_group == Some(one.group);
            *(if is_leaving { &mut leaving } else { &mut staying }) = Some(one);
        }
    }
    let new = |(group, area, from)| Emptying { group, area, from };
    if settings.leaving_group.is_some() && aggregate.evacuation_limit.lock().may_go_on() {
        areas.area = leaving.take().or_else(|| refill.begin_leaving().map(new));
    }
    if areas.area.is_none() {
        let wanted = if settings.leaves_areas { 0 } else { aggregate.parts.tuning.empty_areas };
        areas.area = staying.take().or_else(|| refill.begin_emptying(wanted).map(new));
    }
    areas.aside = leaving.or(staying);
    if areas.area.is_some() {
        areas.stage = Stage::Looking;
        send_area_look(aggregate);
    }
}

/// Time has passed: a group that leaves may have waited long enough.
pub(crate) fn tick(aggregate: &Arc<Aggregate>, now_nanoseconds: u64) {
    if !aggregate.evacuation_limit.lock().tick(now_nanoseconds) {
        return;
    }
    let this = Arc::clone(aggregate);
    let message = move |access: &mut Access<'_>| {
        let side = this.block_side.write(access);
        let areas = &side.relocation.areas;
        match &areas.stage {
            Stage::Idle => empty_next(&this, side),
            // Blocks of another group: its turn comes after them.
            Stage::Ready(_) if !areas.lacks_room && !this.is_consistency_point_due() => {
                this.request_consistency_point(None);
            }
            // It goes on from there.
            _ => {}
        }
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

fn send_area_look(aggregate: &Arc<Aggregate>) {
    let (this, held) = (Arc::clone(aggregate), HeldBlocks::default());
    let message = move |access: &mut Access<'_>| match look_at_area(&this, access, &held) {
        Ok(()) => Outcome::Done,
        Err(Stop::Wait(wait)) => this.suspend(wait, &held),
        Err(stop) => give_area_up(&this, access, &stop),
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// Blocks that there is room to move.
fn batch_blocks(aggregate: &Aggregate, refill: &Refill) -> u64 {
    let free = aggregate.parts.shared.budget.free_blocks();
    // Object stores have room that nothing of this may take.
    let free = refill.near_free_blocks().map_or(free, |near| free.min(near));
    let room = free.saturating_sub(2 * VOLUME_OVERHEAD_BLOCKS);
    BATCH_BLOCKS.min(room / COST_PER_BLOCK)
}

/// Has the next used blocks of the area read.
fn look_at_area(
    aggregate: &Arc<Aggregate>,
    access: &mut Access<'_>,
    held: &HeldBlocks,
) -> Progress<()> {
    let side = aggregate.block_side.write(access);
    // While maps change the commit to come goes on. Nor is anything moved in an aggregate that
    // is being closed: it waits for each request to a disk that hangs.
    let is_quiet = !side.is_image_cleaned() && !aggregate.is_failed();
    let batch_blocks = if is_quiet { batch_blocks(aggregate, &side.refill) } else { 0 };
    let BlockSide { relocation, refill, space, settings, .. } = &mut *side;
    let areas = &mut relocation.areas;
    let area = areas.area.as_ref().filter(|one| refill.is_emptying(one.group, one.area));
    let Some(&Emptying { group, area, from }) = area.filter(|_| batch_blocks > 0) else {
        areas.stage = Stage::Idle;
        return Ok(());
    };
    let reader = Reader { cache: &aggregate.parts.cache, held };
    let (used, next) =
        refill.used_blocks(group, area, from, batch_blocks as usize, space, &reader)?;
    if used.is_empty() {
        refill.end_emptying(group, area);
        aggregate.statistics.emptied_areas.fetch_add(1, Ordering::Relaxed);
        areas.area = None;
        areas.stage = Stage::Idle;
        empty_next(aggregate, side);
        evacuation::end(aggregate, side);
        return Ok(());
    }
    if settings.leaving_group == Some(group) {
        aggregate.evacuation_limit.lock().spend(used.len() as u64);
    }
    let this = Arc::clone(aggregate);
    let wanted = used.iter().map(|pvbn| Wanted::any(*pvbn)).collect();
    read_all(aggregate, wanted, move |found| {
        let blocks = used.into_iter().zip(found).collect();
        send_match(&this, FoundBlocks { blocks, next });
    });
    Ok(())
}

fn send_match(aggregate: &Arc<Aggregate>, found: FoundBlocks) {
    let (this, held, mut found) = (Arc::clone(aggregate), HeldBlocks::default(), Some(found));
    let message = move |access: &mut Access<'_>| {
        let side = this.block_side.write(access);
        let Some(blocks) = found.take() else { unreachable!("a message runs to its end once") };
        if side.is_image_cleaned() {
            // The trees are about to change.
            side.relocation.areas.stage = Stage::Found(blocks);
            return Outcome::Done;
        }
        let reader = Reader { cache: &this.parts.cache, held: &held };
        match match_found(side, &blocks, &reader) {
            Ok(batch) => take_batch(&this, side, batch),
            Err(Stop::Wait(wait)) => {
                found = Some(blocks);
                return this.suspend(wait, &held);
            }
            Err(stop) => return give_area_up(&this, access, &stop),
        }
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// What was matched waits for the next consistency point.
fn take_batch(aggregate: &Arc<Aggregate>, side: &mut BlockSide, batch: AreaBatch) {
    let areas = &mut side.relocation.areas;
    let group = areas.area.as_ref().map(|area| area.group);
    let is_leaving = group.is_some() && group == side.settings.leaving_group;
    if batch.is_empty() {
        if let Some(area) = &mut areas.area {
            area.from = batch.next;
        }
        if is_leaving && !aggregate.evacuation_limit.lock().may_go_on() {
            areas.stage = Stage::Idle;
            return empty_next(aggregate, side);
        }
        areas.stage = Stage::Looking;
        return send_area_look(aggregate);
    }
    areas.stage = Stage::Ready(batch);
    let is_wanted = is_leaving || aggregate.evacuation_limit.lock().is_due();
    if is_wanted && !areas.lacks_room {
        aggregate.request_consistency_point(None);
    }
}

fn give_area_up(aggregate: &Arc<Aggregate>, access: &mut Access<'_>, stop: &Stop) -> Outcome {
    let side = aggregate.block_side.write(access);
    let name = &aggregate.parts.identity.name;
    tracing::warn!(aggregate = %name, %stop, "an allocation area cannot be cleaned");
    side.relocation.areas.stage = Stage::Idle;
    if let Some(area) = side.relocation.areas.area.take() {
        side.refill.end_emptying(area.group, area.area);
    }
    Outcome::Done
}

/// At a freeze: promises room for what empties a part of an area; whether there is something.
pub(crate) fn promise(aggregate: &Aggregate, side: &mut BlockSide) -> bool {
    let BlockSide { relocation, refill, .. } = &mut *side;
    let AreaCleaning { area, stage, .. } = &relocation.areas;
    let Stage::Ready(batch) = stage else { return false };
    let is_wanted = area.as_ref().is_some_and(|one| refill.is_emptying(one.group, one.area));
    let cost = batch.cost_blocks();
    let has_room = is_wanted && aggregate.parts.shared.budget.promise(cost, Spender::Common);
    relocation.areas.lacks_room = is_wanted && !has_room;
    if !has_room {
        relocation.areas.stage = Stage::Idle;
        return false;
    }
    let Stage::Ready(batch) = &mut relocation.areas.stage else { unreachable!("seen above") };
    batch.is_promised = true;
    let rewritten = &aggregate.statistics.emptying_rewritten_blocks;
    rewritten.fetch_add(batch.own_blocks(), Ordering::Relaxed);
    // A node that is written again leaves its entries as they are.
    let moved: BTreeSet<VolumeId> = batch.moves.iter().map(|one| one.volume).collect();
    let slots = batch.slots.clone();
    for volume in moved {
        let Some(slot) = side.slot_of(volume) else { continue };
        if !side.table[slot].record.features.has(&MOVED_BLOCKS) {
            side.table[slot].record.features.set(&MOVED_BLOCKS);
            side.dirty_slots.insert(slot);
        }
        aggregate.moved_volumes.write().insert(volume);
    }
    let known = side.table.len();
    side.dirty_slots.extend(slots.into_iter().filter(|slot| *slot < known));
    true
}
