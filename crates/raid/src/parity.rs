//! Row parity: XOR.

use std::sync::Arc;
use units::{Block, BlockRef, zero_block};

/// Bytes that are taken at a time: wide enough that the compiler uses vector registers.
const LANE_BYTES: usize = 64;

/// `into ^= from`.
pub(crate) fn xor_into(into: &mut Block, from: &Block) {
    let into = into.bytes_mut().chunks_exact_mut(LANE_BYTES);
    for (into, from) in into.zip(from.bytes().chunks_exact(LANE_BYTES)) {
        for (into, from) in into.iter_mut().zip(from) {
            *into ^= from;
        }
    }
}

/// The XOR of all blocks.
pub(crate) fn xor_all<'a>(blocks: impl Iterator<Item = &'a BlockRef>) -> BlockRef {
    match xor_known(blocks.map(Some)) {
        Some(sum) => sum,
        None => unreachable!("every block is known"),
    }
}

/// The XOR of all blocks, if none is unknown.
pub(crate) fn xor_known<'a>(
    mut blocks: impl Iterator<Item = Option<&'a BlockRef>>,
) -> Option<BlockRef> {
    let Some(first) = blocks.next() else { return Some(zero_block()) };
    let mut result = Block::shared(first?.bytes());
    let sum = Arc::make_mut(&mut result);
    for block in blocks {
        xor_into(sum, block?);
    }
    Some(result)
}
