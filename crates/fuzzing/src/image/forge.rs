//! Changes a block and keeps its checksum: four bytes somewhere in it make up for the change.
//!
//! A checksum is a CRC, so it follows the bits of the block linearly over GF(2): the effect of each
//! of 32 bits is measured, and the system of equations solved. So a damaged block fits the identity
//! beside it, the pointers to it and the container map, and none of them needs to be changed.
//!
//! Invariants: only the four bytes are changed. The block is left as it is if no four bytes help.

use units::Block;

/// Bits that make up for a change.
const BITS: usize = 32;

/// Makes `checksum` of `block` what it was, `wanted`, by the four bytes at `at`; whether it could.
pub(crate) fn keep(
    block: &mut Block,
    at: usize,
    wanted: u32,
    checksum: impl Fn(&Block) -> u32,
) -> bool {
    let Some(place) = block.get_mut(at..at + BITS / 8) else { return false };
    place.fill(0);
    let none = checksum(block);
    let mut rows = [(0_u32, 0_u32); BITS];
    for (bit, row) in rows.iter_mut().enumerate() {
        block[at + bit / 8] = 1 << (bit % 8);
        *row = (checksum(block) ^ none, 1 << bit);
        block[at + bit / 8] = 0;
    }
    let Some(bits) = solve(rows, none ^ wanted) else { return false };
    block[at..at + BITS / 8].copy_from_slice(&bits.to_le_bytes());
    checksum(block) == wanted
}

/// Which rows' effects sum up to `wanted`: each row is an effect, and the bits that have it.
fn solve(mut rows: [(u32, u32); BITS], wanted: u32) -> Option<u32> {
    let (mut left, mut bits) = (wanted, 0);
    for index in 0..BITS {
        let column = 1 << index;
        let found = rows.iter().skip(index).position(|row| row.0 & column != 0);
        let Some(found) = found else {
            // Nothing else can change this bit of the checksum.
            if left & column != 0 {
                return None;
            }
            rows[index..].rotate_left(1);
            continue;
        };
        rows.swap(index, index + found);
        let pivot = rows[index];
        for row in rows.iter_mut().skip(index + 1) {
            if row.0 & column != 0 {
                *row = (row.0 ^ pivot.0, row.1 ^ pivot.1);
            }
        }
        if left & column != 0 {
            left ^= pivot.0;
            bits ^= pivot.1;
        }
    }
    (left == 0).then_some(bits)
}

/// Where four bytes do the least harm: in the longest stretch of zeros, and there in the part of a
/// pointer that no checksum leaves out.
pub(crate) fn place(block: &Block) -> usize {
    /// Bytes of a pointer; its last four are its checksum.
    const POINTER_SIZE: usize = 16;
    let (mut longest, mut start) = (0..0, 0);
    for (at, byte) in block.iter().enumerate() {
        if *byte != 0 {
            start = at + 1;
        } else if at + 1 - start > longest.len() {
            longest = start..at + 1;
        }
    }
    let last = longest.end.min(block.len()) / POINTER_SIZE * POINTER_SIZE;
    last.max(POINTER_SIZE) - BITS / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowfs::content::{Content, content_checksum};

    #[test]
    fn a_change_is_made_up_for() {
        let mut block = Block::zeroed();
        block[100..200].fill(7);
        for content in [Content::Data, Content::Pointers] {
            let sum = |block: &Block| content_checksum(block, content);
            let wanted = sum(&block);
            let mut changed = block.clone();
            changed[96] ^= 0x55;
            let at = place(&changed);
            assert!(at >= 200, "{at}");
            assert!(keep(&mut changed, at, wanted, sum));
            assert_eq!(sum(&changed), wanted);
            assert_ne!(changed[96], block[96]);
            assert_eq!(changed[..at].len(), at);
        }
    }

    #[test]
    fn what_a_checksum_leaves_out_does_not_help() {
        let mut block = Block::zeroed();
        let sum = |block: &Block| content_checksum(block, Content::Pointers);
        // Bits 44 to 87 of a pointer to a block are not in the sum.
        block[16] = 1;
        assert!(!keep(&mut block, 16 + 6, 1, sum));
    }
}
