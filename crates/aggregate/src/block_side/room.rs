//! How much room of an aggregate may be promised to operations (decision 9).
//!
//! Invariants: what is stocked for blocks that move, what is free in a group that is to leave, and
//! what a pinned image keeps is nobody's room.

use super::evacuation::Evacuation;
use super::side::BlockSide;
use cowfs::logical::AggregateShared;
use raid::Geometry;

/// Blocks of an aggregate that operations which store leave alone: what rewriting its maps may
/// take (decisions 3, 9).
pub(crate) fn reserve_blocks(size_blocks: u64) -> u64 {
    size_blocks / 64 + 512
}

pub(crate) fn settle_budget(shared: &AggregateShared, side: &BlockSide, geometry: &Geometry) {
    let reserve = reserve_blocks(geometry.blocks());
    // Until it is counted what is in use of a group that leaves counts twice: frees still work.
    let is_counted =
        Evacuation::of(side, geometry).is_none_or(|leaving| leaving.used_blocks.is_some());
    // What a pin keeps nobody can have either.
    let free = free_blocks(side, geometry).saturating_sub(side.space.held_blocks());
    shared.budget.settle(if is_counted { free } else { free.max(reserve) }, reserve);
}

/// Blocks that operations could be promised, those that a pin keeps included.
pub(crate) fn free_blocks(side: &BlockSide, geometry: &Geometry) -> u64 {
    // What is stocked for blocks that move nobody else can have, nor what is to leave.
    let leaving = Evacuation::of(side, geometry);
    let unusable = leaving.map_or(0, |leaving| leaving.unusable_blocks());
    let taken = side.space.used_blocks + side.relocation.stocked() + unusable;
    geometry.blocks().saturating_sub(taken)
}
