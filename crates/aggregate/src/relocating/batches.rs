//! Batches of blocks that volumes' policies have moved: looked for, asked about, read, and kept for
//! the next consistency point.
//!
//! Invariants: see [`super`]. One batch is on its way at a time.
//!
//! Fails: without room nothing moves, and of a volume whose container map cannot be read neither.

use super::look::{Look, QueueChange};
use super::read::{Wanted, read_all};
use crate::allocation::refill::{Tier, tier_of};
use crate::block_side::side::BlockSide;
use crate::relocation::moves::{BATCH_BLOCKS, Batch, FREE_BLOCKS_MIN};
use crate::relocation::plan::Relocation;
use crate::relocation::tiering::TieringPolicy;
use crate::service::aggregate::Aggregate;
use affinity::{Access, Outcome};
use cowfs::budget::{Spender, VOLUME_OVERHEAD_BLOCKS};
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop, Wait};
use ondisk::features::MOVED_BLOCKS;
use platform::mutation::{self, Rule};
use raid::{Geometry, GroupGeometry};
use std::sync::Arc;

/// One part in so many of the disks must be free for a block to move to them.
const NEAR_FREE_SHARE: u64 = 8;

/// Goes on after a commit: a start and a change of policy end in one.
pub(crate) fn go_on(aggregate: &Arc<Aggregate>, side: &mut BlockSide) {
    let geometry = aggregate.parts.store.geometry();
    let has = |tier| geometry.groups().iter().any(|group| tier_of(group) == tier);
    if !(has(Tier::Near) && has(Tier::Object)) {
        return;
    }
    let has_work = side.relocation.next_volume().is_some();
    if has_work && !std::mem::replace(&mut side.relocation.is_running, true) {
        send_look(aggregate);
    }
}

/// At a freeze: promises room for the batch; whether there is one.
pub(crate) fn promise(aggregate: &Arc<Aggregate>, side: &mut BlockSide) -> bool {
    let Some(volume) = side.relocation.batch.as_ref().map(|batch| batch.volume) else {
        return false;
    };
    let policy = side.relocation.volumes.get(&volume).map(|queue| queue.tiering.policy);
    let slot = side.slot_of(volume);
    let Some(batch) = &mut side.relocation.batch else { unreachable!("looked at above") };
    // It was looked for under the policy that there is.
    let slot = slot.filter(|_| policy == Some(batch.policy));
    // The blocks and what is freed, and each node of the container map with one above it.
    let blocks = 2 * (batch.moves.len() + batch.nodes.len());
    let cost = blocks as u64 + VOLUME_OVERHEAD_BLOCKS;
    let Some(slot) = slot.filter(|_| aggregate.parts.shared.budget.promise(cost, Spender::Common))
    else {
        side.relocation.drop_batch();
        return false;
    };
    batch.is_promised = true;
    let record = &mut side.table[slot].record;
    if let (Some(scan), Some(queue)) = (batch.scan, side.relocation.volumes.get_mut(&volume)) {
        scan.store(record);
        queue.scan = scan;
        side.dirty_slots.insert(slot);
    }
    if !batch.moves.is_empty() {
        record.features.set(&MOVED_BLOCKS);
        side.dirty_slots.insert(slot);
        aggregate.moved_volumes.write().insert(volume);
    }
    true
}

fn send_look(aggregate: &Arc<Aggregate>) {
    let this = Arc::clone(aggregate);
    let held = HeldBlocks::default();
    let message = move |access: &mut Access<'_>| match look_for_moves(&this, access, &held) {
        Ok(Some(batch)) => {
            ask_member(&this, batch);
            Outcome::Done
        }
        Ok(None) => Outcome::Done,
        Err(Stop::Wait(wait @ Wait::Load(_))) => this.suspend(wait, &held),
        Err(stop) => {
            let name = &this.parts.identity.name;
            tracing::warn!(aggregate = %name, %stop, "nothing is moved");
            let side = this.block_side.write(access);
            let old = std::mem::take(&mut side.relocation);
            let Relocation { stock, areas, splits, changed, .. } = old;
            side.relocation = Relocation { stock, areas, splits, changed, ..Relocation::default() };
            Outcome::Done
        }
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// Finds blocks to move; `None` if there are none, or there is no room.
fn look_for_moves(
    aggregate: &Arc<Aggregate>,
    access: &mut Access<'_>,
    held: &HeldBlocks,
) -> Progress<Option<Batch>> {
    let geometry = aggregate.parts.store.geometry();
    let reader = Reader { cache: &aggregate.parts.cache, held };
    // Nor from an aggregate that is being closed: it waits for each request to a disk that
    // hangs.
    let has_room =
        !aggregate.is_failed() && aggregate.parts.shared.budget.free_blocks() >= FREE_BLOCKS_MIN;
    let side = aggregate.block_side.write(access);
    let has_near_room = has_near_room(side, &geometry);
    let relocation = &mut side.relocation;
    let volume = relocation.next_volume().filter(|_| has_room);
    let Some((volume, queue)) = volume.and_then(|one| Some((one, relocation.volumes.get(&one)?)))
    else {
        relocation.is_running = false;
        return Ok(None);
    };
    let Some(container) = side.containers.get(&volume).filter(|one| one.is_live()) else {
        relocation.volumes.remove(&volume);
        send_look(aggregate);
        return Ok(None);
    };
    let look = Look {
        volume,
        container,
        geometry: &geometry,
        reader: &reader,
        has_object_room: !relocation.is_full,
        has_near_room,
    };
    let mut queue_change = QueueChange::default();
    let batch = match look.for_moves(queue, &mut queue_change) {
        Ok(batch) => batch,
        Err(stop @ Stop::Wait(_)) => return Err(stop),
        Err(stop) => {
            let name = &aggregate.parts.identity.name;
            tracing::warn!(aggregate = %name, %volume, %stop, "nothing of the volume is moved");
            relocation.volumes.remove(&volume);
            send_look(aggregate);
            return Ok(None);
        }
    };
    // What a clone has inherited its parent moves.
    if let Some(parent) = container.parent.and_then(|one| relocation.volumes.get_mut(&one)) {
        parent.reads.extend(queue_change.inherited.drain(..));
    }
    let Some(queue) = relocation.volumes.get_mut(&volume) else { unreachable!("found above") };
    queue_change.apply(queue, &batch);
    relocation.last = Some(volume);
    relocation.has_batch = !batch.is_empty();
    if batch.is_empty() {
        // On with the next nodes, or volume.
        queue.scan = batch.scan.unwrap_or(queue.scan);
        send_look(aggregate);
        return Ok(None);
    }
    Ok(Some(batch))
}

/// Has the volume say which of the blocks its active image has, if those are to stay.
fn ask_member(aggregate: &Arc<Aggregate>, mut batch: Batch) {
    let member = aggregate.state.lock().members.get(&batch.volume).map(Arc::clone);
    let asked = member.filter(|_| batch.asks_member());
    let Some(member) = asked else { return read_batch(aggregate, batch) };
    let numbers = batch.moves.iter().map(|one| one.vvbn).collect();
    let this = Arc::clone(aggregate);
    let answered = move |is_active: Vec<bool>| {
        let mut is_active = is_active.into_iter();
        let is_broken = mutation::broken(Rule::ActiveBlockMoved);
        // What nobody can tell stays.
        batch
            .moves
            .retain(|one| !is_active.next().unwrap_or(true) || is_broken || one.to == Tier::Near);
        read_batch(&this, batch);
    };
    member.find_active(numbers, Box::new(answered));
}

/// Reads what is to be moved, from blocks in a row with one request.
fn read_batch(aggregate: &Arc<Aggregate>, mut batch: Batch) {
    if batch.moves.is_empty() {
        return send_ready(aggregate, batch);
    }
    batch.moves.sort_unstable_by_key(|one| one.from.pvbn);
    let wanted = batch.moves.iter().map(Wanted::of).collect();
    let this = Arc::clone(aggregate);
    read_all(aggregate, wanted, move |found| {
        for (one, found) in batch.moves.iter_mut().zip(found) {
            one.found = found;
        }
        send_ready(&this, batch);
    });
}

/// What was read waits for the next consistency point.
fn send_ready(aggregate: &Arc<Aggregate>, batch: Batch) {
    let this = Arc::clone(aggregate);
    let mut batch = Some(batch);
    let message = move |access: &mut Access<'_>| {
        let Some(mut batch) = batch.take() else { return Outcome::Done };
        batch.sort_out();
        let side = this.block_side.write(access);
        if batch.is_empty() {
            side.relocation.has_batch = false;
            if let Some(queue) = side.relocation.volumes.get_mut(&batch.volume) {
                queue.scan = batch.scan.unwrap_or(queue.scan);
            }
            send_look(&this);
            return Outcome::Done;
        }
        // A few blocks that were read are in no hurry: they go with the next consistency point.
        let is_asked_for = batch.scan.is_some()
            || batch.policy == TieringPolicy::All
            || batch.nodes.len() + batch.moves.len() >= BATCH_BLOCKS / 4;
        side.relocation.batch = Some(batch);
        if is_asked_for {
            this.request_consistency_point(None);
        }
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// Whether there is room to move blocks to disks.
fn has_near_room(side: &BlockSide, geometry: &Geometry) -> bool {
    let near = geometry.groups().iter().filter(|group| tier_of(group) == Tier::Near);
    // What a group has that is to leave must find room in the others.
    let leaving = side.settings.leaving_group.map_or(0, |group| geometry.group(group).blocks());
    let size = near.map(GroupGeometry::blocks).sum::<u64>().saturating_sub(leaving);
    let objects: u64 = side.table.iter().map(|slot| slot.record.object_blocks.get()).sum();
    let used = side.space.used_blocks.saturating_sub(objects);
    size.saturating_sub(used) > size / NEAR_FREE_SHARE + 2 * BATCH_BLOCKS as u64
}
