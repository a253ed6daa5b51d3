//! Splitting clones from their parents (FlexVol section 4.2, "Volume Clones"): what a clone
//! inherited is written as its own.
//!
//! A copy has the block number of the block that is copied, so no pointer changes, and snapshots of
//! the clone share it: all that changes is the clone's container map, where the hole was through
//! which an ancestor was asked.
//!
//! 1. *Ask* the clone for the next numbers that it uses and its base has.
//! 2. *Look them up*: a number with an entry in the clone's own map is done. The maps of its
//!    ancestors say where the others' blocks lie.
//! 3. *Read* a batch of them, each proved by the identity beside it.
//! 4. *Place*: the next consistency point writes them as the clone's.
//!
//! When no inherited block is left the volume ends the split (`volume::splitting`).
//!
//! Invariants:
//! - A copy is written only if no consistency point has changed the number's entry in the clone
//!   since the clone named the number. The consistency point that writes the copy counts, too.
//! - A clone is asked after a commit, or goes on from there: no change is missed.
//! - The clone's record says that its blocks were moved no later than the first copy is written.
//!
//! Throttle: one batch at a time for all clones of the aggregate, and the limit of a split
//! ([`crate::relocation::limit`]).
//!
//! Fails: a block that cannot be read stays inherited. A split that finds only such gives up.
//! Without room the split waits.

use super::read::{Wanted, read_all};
use crate::administration::splitting;
use crate::allocation::refill::Tier;
use crate::block_side::side::BlockSide;
use crate::containers::{container_lookup, node_of};
use crate::relocation::moves::{Found, Move};
use crate::relocation::plan::Relocation;
use crate::relocation::splits::{Looked, Numbers, PassEnd, SplitBatch, SplitStates, Splits, Stage};
use crate::service::aggregate::Aggregate;
use crate::service::member::Inherited;
use affinity::{Access, Outcome};
use cowfs::budget::{Spender, VOLUME_OVERHEAD_BLOCKS};
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop, all};
use ondisk::features::MOVED_BLOCKS;
use ondisk::identity::BlockOwner;
use ondisk::root::VOL_INFO_VVBN;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{VolumeId, Vvbn};

/// Blocks that a consistency point takes along at most: 4 MiB.
const BATCH_BLOCKS: u64 = 1024;
/// One part in so many of the free blocks is what a consistency point takes along at most.
const FREE_SHARE: u64 = 8;
/// Time after which a split that does nothing is looked at again.
const RETRY_NANOSECONDS: u64 = 10_000_000_000;

/// Goes on after a commit.
pub(crate) fn go_on(aggregate: &Arc<Aggregate>, side: &mut BlockSide) {
    note_commit(aggregate, side);
    let splits = &mut side.relocation.splits;
    splits.wants_pass = false;
    splits.clones.values_mut().for_each(|pass| pass.is_over = false);
    match std::mem::take(&mut side.relocation.splits.stage) {
        Stage::Idle => ask_next(aggregate, side),
        Stage::Found(numbers) => {
            side.relocation.splits.stage = Stage::Looking;
            send_look_up(aggregate, numbers);
        }
        other => side.relocation.splits.stage = other,
    }
}

/// Tells status how much room there is, and which clones are being split. A clone that was found
/// damaged is split no further.
fn note_commit(aggregate: &Aggregate, side: &BlockSide) {
    let mut shared = aggregate.splits.lock();
    shared.near_free_blocks = side.refill.near_free_blocks();
    let SplitStates { states, failed, .. } = &mut *shared;
    let is_split = |clone: &VolumeId| side.relocation.splits.clones.contains_key(clone);
    failed.extend(states.extract_if(.., |clone, _| !is_split(clone)).map(|(clone, _)| clone));
}

/// Asks the clone whose turn it is for numbers.
fn ask_next(aggregate: &Arc<Aggregate>, side: &mut BlockSide) {
    let splits = &mut side.relocation.splits;
    let batch_blocks = batch_blocks(aggregate);
    if splits.clones.is_empty() || aggregate.is_failed() || batch_blocks == 0 {
        return;
    }
    let containers = &side.containers;
    let mut shared = aggregate.splits.lock();
    let found = splits.next_clone(|clone, pass| {
        let state = shared.states.get_mut(clone);
        // Who may go on is due no longer, whatever else keeps it.
        let may_go_on = state.is_some_and(|state| state.limit.may_go_on());
        let is_live = containers.get(clone).is_some_and(|one| one.is_live());
        may_go_on && is_live && !pass.is_over
    });
    drop(shared);
    let Some(clone) = found else { return };
    splits.last = Some(clone);
    let member = aggregate.state.lock().members.get(&clone).map(Arc::clone);
    let (Some(member), Some(pass)) = (member, splits.clones.get(&clone)) else { return };
    splits.stage = Stage::Looking;
    let this = Arc::clone(aggregate);
    let found = move |found: Option<Inherited>| {
        let Some(Inherited { numbers, next, is_damaged }) = found else {
            return send_idle(&this, clone);
        };
        send_look_up(&this, Numbers { clone, numbers, next, is_damaged });
    };
    member.find_inherited(pass.next, batch_blocks as usize, Box::new(found));
}

/// Blocks that there is room to copy.
fn batch_blocks(aggregate: &Aggregate) -> u64 {
    let free = aggregate.split_room_blocks();
    BATCH_BLOCKS.min(free.saturating_sub(2 * VOLUME_OVERHEAD_BLOCKS) / FREE_SHARE)
}

/// The clone cannot tell its numbers now. It is asked again after the next commit.
fn send_idle(aggregate: &Arc<Aggregate>, clone: VolumeId) {
    let this = Arc::clone(aggregate);
    let message = move |access: &mut Access<'_>| {
        let side = this.block_side.write(access);
        let splits = &mut side.relocation.splits;
        splits.stage = Stage::Idle;
        if let Some(pass) = splits.clones.get_mut(&clone) {
            pass.is_over = true;
        }
        ask_next(&this, side);
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

fn send_look_up(aggregate: &Arc<Aggregate>, numbers: Numbers) {
    let (this, held, mut numbers) = (Arc::clone(aggregate), HeldBlocks::default(), Some(numbers));
    let message = move |access: &mut Access<'_>| {
        let side = this.block_side.write(access);
        let Some(found) = numbers.take() else { unreachable!("a message runs to its end once") };
        if this.is_failed() {
            // Nothing is read of an aggregate that is being closed.
            side.relocation.splits.stage = Stage::Idle;
            return Outcome::Done;
        }
        if side.is_image_cleaned() {
            // The maps are about to change.
            side.relocation.splits.stage = Stage::Found(found);
            return Outcome::Done;
        }
        let reader = Reader { cache: &this.parts.cache, held: &held };
        match side.inherited_among(&found, &reader) {
            Ok(wishes) => read_batch(&this, side, found, wishes),
            Err(Stop::Wait(wait)) => {
                numbers = Some(found);
                return this.suspend(wait, &held);
            }
            Err(stop) => {
                let (name, clone) = (&this.parts.identity.name, found.clone);
                tracing::warn!(aggregate = %name, %clone, %stop, "some blocks of a clone are not copied");
                let unreadable = found.numbers.len() as u64;
                skip(&this, side, &found, Looked { unreadable, ..Looked::default() });
            }
        }
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// A block to be copied, and the ancestor that has it, if any has.
type Wish = (Move, Option<VolumeId>);

impl BlockSide {
    /// Those of a clone's numbers that its own container map does not have, with their places.
    fn inherited_among(&self, found: &Numbers, reader: &Reader<'_>) -> Progress<Vec<Wish>> {
        let Some(container) = self.containers.get(&found.clone) else { return Ok(Vec::new()) };
        // What the clone has taken anew is its own.
        let numbers = found.numbers.iter().filter(|one| one.get() != 0 && **one != VOL_INFO_VVBN);
        let wishes = numbers.map(|vvbn| {
            if !container_lookup(found.clone, container, *vvbn, reader)?.is_hole() {
                return Ok(None);
            }
            let holder = self.holder_of(found.clone, *vvbn, reader)?;
            let from = holder.map(|(_, from)| from).unwrap_or_default();
            let one = Move::new((found.clone, *vvbn), from, Tier::Near);
            Ok(Some((one, holder.map(|(ancestor, _)| ancestor))))
        });
        Ok(all(wishes)?.into_iter().flatten().collect())
    }
}

/// Reads the blocks that are to be copied.
fn read_batch(
    aggregate: &Arc<Aggregate>,
    side: &mut BlockSide,
    numbers: Numbers,
    wishes: Vec<Wish>,
) {
    let Numbers { clone, next, is_damaged, .. } = numbers;
    let placed = |(one, ancestor): (Move, Option<VolumeId>)| Some((one, ancestor?));
    let all = wishes.len();
    let mut wishes: Vec<(Move, VolumeId)> = wishes.into_iter().filter_map(placed).collect();
    let unreadable = (all - wishes.len()) as u64 + u64::from(is_damaged);
    let mut looked = Looked { unreadable, ..Looked::default() };
    if wishes.is_empty() {
        return skip(aggregate, side, &numbers, looked);
    }
    if let Some(state) = aggregate.splits.lock().states.get_mut(&clone) {
        state.limit.spend(wishes.len() as u64);
    }
    wishes.sort_unstable_by_key(|(one, _)| one.from.pvbn);
    let wanted = wishes.iter().map(|(one, ancestor)| Wanted::inherited(one, *ancestor)).collect();
    let this = Arc::clone(aggregate);
    read_all(aggregate, wanted, move |found| {
        let taken = |((one, _), found): ((Move, VolumeId), Found)| {
            let Some((block, owner)) = found else {
                match this.is_lost(one.from.pvbn) {
                    true => looked.unreadable += 1,
                    false => looked.away += 1,
                }
                return None;
            };
            let volume = if mutation::broken(Rule::SplitKeepsOwner) { owner.volume } else { clone };
            Some(Move { found: Some((block, BlockOwner { volume, ..owner })), ..one })
        };
        let moves = wishes.into_iter().zip(found).filter_map(taken).collect();
        send_ready(&this, SplitBatch { clone, moves, looked, next, is_promised: false });
    });
}

/// Nothing of these numbers is copied: the pass goes on behind them.
fn skip(aggregate: &Arc<Aggregate>, side: &mut BlockSide, found: &Numbers, looked: Looked) {
    let splits = &mut side.relocation.splits;
    splits.stage = Stage::Idle;
    pass_on(aggregate, splits, (found.clone, found.next), looked);
    ask_next(aggregate, side);
}

/// What was read waits for the next consistency point.
fn send_ready(aggregate: &Arc<Aggregate>, batch: SplitBatch) {
    let (this, mut batch) = (Arc::clone(aggregate), Some(batch));
    let message = move |access: &mut Access<'_>| {
        let side = this.block_side.write(access);
        let Some(batch) = batch.take() else { return Outcome::Done };
        if batch.moves.is_empty() {
            let SplitBatch { clone, looked, next, .. } = batch;
            let (numbers, is_damaged) = (Vec::new(), false);
            skip(&this, side, &Numbers { clone, numbers, next, is_damaged }, looked);
            return Outcome::Done;
        }
        let splits = &mut side.relocation.splits;
        splits.stage = Stage::Ready(batch);
        if !splits.lacks_room {
            this.request_consistency_point(None);
        }
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// At a freeze: promises room for a batch; whether there is one, or one could be had.
pub(crate) fn promise(aggregate: &Aggregate, side: &mut BlockSide) -> bool {
    let splits = &mut side.relocation.splits;
    let Stage::Ready(batch) = &splits.stage else {
        // Only a commit has the next clone asked.
        return !splits.is_running() && splits.wants_pass;
    };
    let (clone, cost) = (batch.clone, batch.cost_blocks());
    // Object stores have room that copies may not take.
    let near_room = side.refill.near_free_blocks().unwrap_or(u64::MAX);
    let slot = side.slot_of(clone);
    let is_live = side.containers.get(&clone).is_some_and(|one| one.is_live());
    let splits = &mut side.relocation.splits;
    let slot = slot.filter(|_| is_live && splits.clones.contains_key(&clone));
    let budget = &aggregate.parts.shared.budget;
    let has_room = slot.is_some() && near_room >= cost && budget.promise(cost, Spender::Common);
    splits.lacks_room = slot.is_some() && !has_room;
    let Some(slot) = slot.filter(|_| has_room) else {
        splits.stage = Stage::Idle;
        return false;
    };
    if let Stage::Ready(batch) = &mut splits.stage {
        batch.is_promised = true;
    }
    let record = &mut side.table[slot].record;
    if !record.features.has(&MOVED_BLOCKS) && !mutation::broken(Rule::SplitUnsaid) {
        record.features.set(&MOVED_BLOCKS);
        side.dirty_slots.insert(slot);
        aggregate.moved_volumes.write().insert(clone);
    }
    true
}

/// A consistency point has committed: what it has copied is the clone's.
pub(super) fn take_placed(aggregate: &Arc<Aggregate>, relocation: &mut Relocation) {
    let Some(placed) = relocation.splits.take_placed() else { return };
    let count = &aggregate.statistics.split_blocks;
    count.fetch_add(placed.looked.copied, Ordering::Relaxed);
    if placed.is_whole {
        let place = (placed.clone, placed.next);
        pass_on(aggregate, &mut relocation.splits, place, placed.looked);
    }
    // Those of a volume of which everything is to lie in object stores move on.
    relocation.put_back(placed.clone, placed.nodes);
}

/// The pass through a clone's numbers goes on, or begins anew.
fn pass_on(
    aggregate: &Arc<Aggregate>,
    splits: &mut Splits,
    (clone, next): (VolumeId, Option<Vvbn>),
    looked: Looked,
) {
    let Some(pass) = splits.clones.get_mut(&clone) else { return };
    pass.note(looked);
    if let Some(next) = next {
        pass.next = next;
        return;
    }
    let wants_next = pass.wants_next();
    match pass.end() {
        PassEnd::Another if wants_next => {
            splits.wants_pass = true;
            aggregate.request_consistency_point(None);
        }
        PassEnd::Another => {}
        PassEnd::Vain => splitting::give_up(aggregate, clone),
    }
}

/// Time has passed: a split may have waited long enough. Those that do nothing, whatever for, are
/// looked at now and then.
pub(crate) fn tick(aggregate: &Arc<Aggregate>, now_nanoseconds: u64) {
    let is_due = {
        let mut shared = aggregate.splits.lock();
        let SplitStates { states, looked_at, .. } = &mut *shared;
        let mut is_due = false;
        for state in states.values_mut() {
            is_due |= state.limit.tick(now_nanoseconds);
        }
        let is_idle = states.values().any(|state| !state.limit.is_waiting());
        let is_late = now_nanoseconds.saturating_sub(*looked_at) >= RETRY_NANOSECONDS;
        if is_late {
            *looked_at = now_nanoseconds;
        }
        is_due || is_idle && is_late
    };
    if !is_due || aggregate.is_consistency_point_due() {
        return;
    }
    let this = Arc::clone(aggregate);
    let message = move |access: &mut Access<'_>| {
        let splits = &mut this.block_side.write(access).relocation.splits;
        if !splits.is_running() && !splits.clones.is_empty() && batch_blocks(&this) > 0 {
            splits.wants_pass = true;
            this.request_consistency_point(None);
        }
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// Nodes of a container map that have the entries of so many blocks, if they lie close together.
pub(crate) const fn nodes_of(blocks: u64) -> u64 {
    node_of(Vvbn(blocks)) + 1
}
