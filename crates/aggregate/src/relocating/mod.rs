//! Moving blocks to another place in the aggregate: out of areas that are to be empty ([`areas`]),
//! from an ancestor to a clone that is being split ([`splitting`]), and to groups in an object
//! store and back, for volumes whose policy says so (Fabric Pool, FreeSpace section 3.1).
//!
//! The container map decides where a volume's block lies (decision 11), so a move changes nothing
//! but its entry. Snapshots share the entry. Pointers keep a hint that is wrong from then on;
//! readers find that out ([`crate::loader`]).
//!
//! 1. *Look* for blocks to move. For a policy that moves everything: in the nodes of container maps
//!    with new entries, and in all nodes after a start. For a policy that heeds age: in all nodes
//!    now and then, and in the entries of what clients have read ([`look`], [`temperature`]).
//! 2. *Ask* the volume which of the blocks its active image has, where that matters.
//! 3. *Read* a batch of them. The identity beside each block proves whose it is.
//! 4. *Place*: the next consistency point writes the blocks to new numbers with the same identity,
//!    and enters these into the container map together with its other changes. The old numbers are
//!    free when it has committed.
//!
//! Invariants:
//! - A block is moved only if no consistency point has changed its entry since the look, the one
//!   that moves it included.
//! - Only data of files moves to object stores. Maps, nodes, inodes and what is read at a start
//!   stay on disks.
//! - The volume's record says that blocks were moved no later than the first one moves.
//!
//! Throttle: one batch of each sort at a time, and only a consistency point places one.
//!
//! Fails: a block that cannot be read stays where it is. Without room nothing moves.

pub mod areas;
mod batches;
pub mod count;
mod look;
mod owned;
mod read;
pub mod splitting;
pub mod temperature;

use crate::allocation::refill::is_near;
use crate::block_side::side::BlockSide;
use crate::relocation::moves::Placed;
use crate::service::aggregate::Aggregate;
use affinity::Access;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::Pvbn;

/// A consistency point has committed: what it has moved is moved; `freed` was freed by it.
pub(crate) fn committed(aggregate: &Arc<Aggregate>, side: &mut BlockSide, freed: &[Pvbn]) {
    let geometry = aggregate.parts.store.geometry();
    let relocation = &mut side.relocation;
    for queue in relocation.volumes.values_mut() {
        let fresh = std::mem::take(&mut queue.fresh);
        queue.add(fresh);
    }
    let placed = relocation.placed.take();
    relocation.is_running &= placed.is_none();
    relocation.has_batch &= placed.is_none();
    let placed = placed.unwrap_or_default();
    let emptied = relocation.areas.take_placed();
    splitting::take_placed(aggregate, relocation);
    let is_moving = relocation.areas.is_running() || relocation.splits.is_running();
    if !relocation.has_batch && !is_moving {
        relocation.changed.clear();
    }
    let statistics = &aggregate.statistics;
    statistics.moved_blocks.fetch_add(placed.len() as u64, Ordering::Relaxed);
    let returned = placed.iter().filter(|one| is_near(&geometry, one.to)).count();
    statistics.returned_blocks.fetch_add(returned as u64, Ordering::Relaxed);
    statistics.emptying_moved_blocks.fetch_add(emptied.len() as u64, Ordering::Relaxed);
    for Placed { from, checksum, to } in placed.into_iter().chain(emptied) {
        aggregate.parts.cache.note_moved(from, checksum, to);
    }
    relocation.is_full &= freed.iter().all(|pvbn| is_near(&geometry, *pvbn));
    batches::go_on(aggregate, side);
    areas::go_on(aggregate, side);
    splitting::go_on(aggregate, side);
}

/// At a freeze: promises room for what is to be moved; whether there is something.
pub(crate) fn promise(aggregate: &Arc<Aggregate>, access: &mut Access<'_>) -> bool {
    let side = aggregate.block_side.write(access);
    temperature::begin_scans(aggregate, side);
    let has_batch = batches::promise(aggregate, side);
    let has_area = areas::promise(aggregate, side);
    // A group that is to leave is looked at again after each commit.
    let has_split = splitting::promise(aggregate, side);
    has_batch || has_area || has_split || side.settings.leaving_group.is_some()
}
