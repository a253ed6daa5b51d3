//! Room that an aggregate guarantees to volumes (decision 76, FlexVol section 4.3). A volume with a
//! guarantee has a *share*: free blocks that no other volume may take, as many as it lacks of its
//! whole size.
//!
//! At each commit, and at freezes at which a volume gets another guarantee or another size, comes
//! or goes, all shares are settled anew. A volume lacks its block numbers, and the blocks that its
//! images cost beside, less the blocks that it has.
//!
//! Invariants: all shares, the reserve, and promises out of the rest are together no more than the
//! free blocks. A guarantee is given only where there is room for it.
//!
//! Fails: room may be lost after it was guaranteed: a pinned image keeps freed blocks, say. Then
//! each share has the same fraction of the blocks that its volume lacks
//! ([`cowfs::accounts::divide`]). Status tells how many blocks are missing.

use super::action::Acted;
use super::aggregate::Aggregate;
use super::member::{Member, MemberRoom};
use crate::block_side::policies::Guarantee;
use crate::block_side::side::BlockSide;
use crate::error::AggregateError;
use crate::relocation::moves::FREE_BLOCKS_MIN;
use affinity::Access;
use cowfs::accounts::divide;
use cowfs::pointer::Pointer;
use ondisk::pointer::PhysicalPointer;
use ondisk::records::STATE_ONLINE;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{BLOCK_SIZE_U64, ByteSize, VolumeId};

/// Of an aggregate, the part that is not guaranteed to volumes where that is less than blocks that
/// move need.
const MOVES_SHARE: u64 = 64;
/// Pointers in a node of a container map.
const POINTERS_PER_NODE: u64 = PhysicalPointer::FANOUT;
/// Freezes at which a guarantee waits for room.
const PUT_OFFS_MAX: u32 = 3;

/// How often an action has waited for room.
#[derive(Default)]
pub struct Patience(u32);

/// Settles the shares of all volumes. Nothing else of the aggregate runs meanwhile.
pub fn settle(aggregate: &Aggregate, access: &Access<'_>) {
    settle_shares(aggregate, aggregate.block_side.read(access));
}

/// A consistency point has committed: its promises are blocks in use. Settles all shares.
pub(crate) fn commit(aggregate: &Aggregate, side: &BlockSide) {
    for member in aggregate.members() {
        if let Some(room) = member.room() {
            room.account.commit();
        }
    }
    settle_shares(aggregate, side);
}

/// Settles the shares of all volumes.
pub(crate) fn settle_shares(aggregate: &Aggregate, side: &BlockSide) {
    let owned = owned_by_guaranteed(side);
    let budget = &aggregate.parts.shared.budget;
    let members = aggregate.members();
    let mut rooms: Vec<(MemberRoom<'_>, Option<u64>)> = Vec::with_capacity(members.len());
    for member in &members {
        let Some(room) = member.room() else { continue };
        let owned = owned.get(&member.id());
        let wanted = owned.map(|owned| lacking(room.blocks_max, *owned));
        rooms.push((room, wanted));
    }
    let share = |(room, wanted): &(MemberRoom<'_>, Option<u64>)| {
        (wanted.unwrap_or(0), room.account.promised_blocks())
    };
    let shares: Vec<(u64, u64)> = rooms.iter().map(share).collect();
    let (mut all, mut missing) = (0, 0);
    for ((room, wanted), blocks) in rooms.iter().zip(divide(budget.guarantee_blocks_max(), &shares))
    {
        room.account.guarantee(blocks, wanted.is_some());
        all += room.account.blocks();
        missing += wanted.unwrap_or(0).saturating_sub(blocks);
    }
    budget.set_guaranteed(all);
    let growth = free_blocks(aggregate);
    rooms.iter().for_each(|(room, _)| room.account.set_growth(growth));
    aggregate.statistics.guarantee_lacking_blocks.store(missing, Ordering::Relaxed);
}

/// The volumes that have a guarantee, and how many blocks each has.
fn owned_by_guaranteed(side: &BlockSide) -> FxHashMap<VolumeId, u64> {
    let has_guarantee = |record: &ondisk::records::VolumeRecord| {
        let is_live = record.state == STATE_ONLINE && !record.is_queued();
        is_live && Guarantee::of(record) == Guarantee::Volume
    };
    let live = side.table.iter().map(|slot| &slot.record).filter(|record| has_guarantee(record));
    let volumes = live.map(|record| VolumeId(record.volume.get()));
    let owned = |volume: &VolumeId| side.containers.get(volume).map_or(0, |one| one.blocks);
    volumes.map(|volume| (volume, owned(&volume))).collect()
}

/// Blocks that a volume lacks which takes `blocks_max` of its aggregate and has `owned_blocks`.
/// With these come nodes of its container map, which are no blocks of the volume.
#[must_use]
pub const fn lacking(blocks_max: u64, owned_blocks: u64) -> u64 {
    let nodes = owned_blocks.div_ceil(POINTERS_PER_NODE);
    blocks_max.saturating_sub(owned_blocks + nodes)
}

/// Blocks that could be guaranteed. Some are left for blocks that move, and all that a group that
/// leaves has to give to others.
#[must_use]
pub fn free_blocks(aggregate: &Aggregate) -> u64 {
    let leaving = aggregate.evacuation();
    let leaving = leaving.map_or(0, |leaving| leaving.used_blocks.unwrap_or(leaving.blocks));
    let for_moves = FREE_BLOCKS_MIN.min(aggregate.size_blocks() / MOVES_SHARE);
    aggregate.parts.shared.budget.free_blocks().saturating_sub(for_moves + leaving)
}

/// Whether so many blocks more can be guaranteed; part of a freeze's action. Where operations were
/// promised the room, which is mostly more than they come to use, or some is on its way back, the
/// action is put off a few times.
///
/// # Errors
/// They cannot.
pub fn check_room(
    aggregate: &Aggregate,
    blocks: u64,
    patience: &mut Patience,
) -> Result<Acted, AggregateError> {
    let (budget, free_blocks) = (&aggregate.parts.shared.budget, free_blocks(aggregate));
    if blocks <= free_blocks {
        return Ok(Acted::Done);
    }
    budget.note_refused();
    let refused = no_room(blocks, free_blocks);
    let promised = budget.unpromised_blocks().saturating_sub(budget.free_blocks());
    let may_come = budget.has_frees() || blocks <= free_blocks + promised;
    if !may_come || patience.0 == PUT_OFFS_MAX {
        return Err(refused);
    }
    patience.0 += 1;
    Ok(Acted::PutOff(refused))
}

/// The same without waiting for anything, and at any time: what [`check_room`] would likely say.
///
/// # Errors
/// They cannot be guaranteed now.
pub fn check_now(aggregate: &Aggregate, blocks: u64) -> Result<(), AggregateError> {
    let free_blocks = free_blocks(aggregate);
    if blocks <= free_blocks { Ok(()) } else { Err(no_room(blocks, free_blocks)) }
}

fn no_room(blocks: u64, free_blocks: u64) -> AggregateError {
    let size = |blocks: u64| ByteSize(blocks.saturating_mul(BLOCK_SIZE_U64));
    AggregateError::Refused(format!(
        "{} of the aggregate would be guaranteed, and {} are free, guaranteed to no volume and not \
         needed for blocks that move",
        size(blocks),
        size(free_blocks)
    ))
}

/// Blocks that a volume lacks of its whole size.
///
/// # Errors
/// There is no such volume, or it is not a flexible one.
pub fn lacking_blocks(
    aggregate: &Aggregate,
    side: &BlockSide,
    volume: VolumeId,
) -> Result<u64, AggregateError> {
    let member: Option<Arc<dyn Member>> = aggregate.member(volume);
    let room = member.as_ref().and_then(|member| member.room());
    let Some(room) = room else {
        let text = "only a flexible volume has a guarantee".to_owned();
        return Err(AggregateError::Refused(text));
    };
    let owned = side.containers.get(&volume).map_or(0, |one| one.blocks);
    Ok(lacking(room.blocks_max, owned))
}
