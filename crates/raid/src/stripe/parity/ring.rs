//! A block as a polynomial: what row-diagonal parity computes with.
//!
//! A block is 256 sub-blocks of 16 bytes. They are the coefficients of a polynomial of degree 255,
//! and all arithmetic is modulo `x^257 + 1`, 257 being prime: to multiply by `x^k` is to rotate 257
//! places, of which a block leaves the last one zero. Sub-blocks add by XOR.
//!
//! `1 + x^k` has no inverse there: the coefficients of every multiple of it add up to zero. So a
//! quotient is known but for a constant that is added to all of its coefficients, and something
//! else must tell it: that the last coefficient is zero, which is so for blocks, or that the
//! coefficients add up to zero. As 257 is prime, steps of `k` visit every coefficient, whatever
//! `k`.

use units::{BLOCK_SIZE, Block, BlockRef};

/// Coefficients, and the places of a rotation. Prime, and one more than a block's sub-blocks.
pub(super) const PRIME: usize = 257;

/// Bytes of a coefficient.
const SUB_BLOCK_BYTES: usize = 16;

const _: () = assert!((PRIME - 1) * SUB_BLOCK_BYTES == BLOCK_SIZE);

/// A polynomial modulo `x^257 + 1`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Polynomial([u128; PRIME]);

impl Polynomial {
    pub(super) const fn zero() -> Self {
        Self([0; PRIME])
    }

    /// The polynomial of a diagonal parity block: its missing last coefficient is what makes all
    /// of them add up to zero, as the coefficients of whole rows do.
    pub(super) fn of_diagonal(block: &Block) -> Self {
        let mut polynomial = Self::zero();
        polynomial.add(block, 0);
        polynomial.0[PRIME - 1] = polynomial.sum();
        polynomial
    }

    /// `self += x^shift * block`.
    pub(super) fn add(&mut self, block: &Block, shift: usize) {
        let (low, high) = self.0.split_at_mut(shift);
        let (sub_blocks, _) = block.bytes().as_chunks::<SUB_BLOCK_BYTES>();
        let (first, rest) = sub_blocks.split_at(high.len().min(sub_blocks.len()));
        for (run, sub_blocks) in [(high, first), (low, rest)] {
            for (coefficient, bytes) in run.iter_mut().zip(sub_blocks) {
                *coefficient ^= u128::from_le_bytes(*bytes);
            }
        }
    }

    /// `self += x^shift * other`.
    pub(super) fn add_shifted(&mut self, other: &Self, shift: usize) {
        let (low, high) = self.0.split_at_mut(shift);
        let (first, rest) = other.0.split_at(high.len());
        for (run, others) in [(high, first), (low, rest)] {
            for (coefficient, from) in run.iter_mut().zip(others) {
                *coefficient ^= from;
            }
        }
    }

    fn sum(&self) -> u128 {
        self.0.iter().fold(0, |sum, coefficient| sum ^ coefficient)
    }

    /// The polynomial that gives this one when it is multiplied by `1 + x^step`, up to a constant
    /// in all coefficients; the last one is zero.
    fn divided(&self, step: usize) -> Self {
        let mut quotient = Self::zero();
        let mut at = PRIME - 1;
        for _ in 1..PRIME {
            let next = (at + step) % PRIME;
            quotient.0[next] = self.0[next] ^ quotient.0[at];
            at = next;
        }
        quotient
    }

    /// The block that gives this polynomial when it is multiplied by `x^from + x^to`.
    pub(super) fn block_of(&self, from: usize, to: usize) -> BlockRef {
        self.shifted_back(from).divided(step(from, to)).to_block()
    }

    /// The polynomial that does, of those whose coefficients add up to zero.
    pub(super) fn quotient(&self, from: usize, to: usize) -> Self {
        let mut quotient = self.shifted_back(from).divided(step(from, to));
        // An odd number of coefficients: adding a constant to all adds it to their sum.
        let constant = quotient.sum();
        quotient.0.iter_mut().for_each(|coefficient| *coefficient ^= constant);
        quotient
    }

    fn shifted_back(&self, shift: usize) -> Self {
        let mut shifted = Self::zero();
        shifted.add_shifted(self, (PRIME - shift) % PRIME);
        shifted
    }

    /// The block; the last coefficient is left out.
    pub(super) fn to_block(&self) -> BlockRef {
        let mut block = [0; BLOCK_SIZE];
        for (bytes, coefficient) in block.chunks_exact_mut(SUB_BLOCK_BYTES).zip(self.0) {
            bytes.copy_from_slice(&coefficient.to_le_bytes());
        }
        Block::shared(&block)
    }
}

/// From `x^from + x^to` to `x^from * (1 + x^step)`.
const fn step(from: usize, to: usize) -> usize {
    (to + PRIME - from) % PRIME
}

/// `into += x^shift * from`, without the last coefficient: two runs of bytes, at the speed of a
/// plain XOR.
pub(super) fn add_rotated(into: &mut Block, from: &Block, shift: usize) {
    let (into, from) = (into.bytes_mut(), from.bytes());
    let ahead = shift * SUB_BLOCK_BYTES;
    xor_bytes(&mut into[ahead.min(BLOCK_SIZE)..], from);
    // The coefficient after those falls on the last place, which blocks do not have.
    let behind = BLOCK_SIZE + SUB_BLOCK_BYTES - ahead;
    if let Some(rest) = from.get(behind..) {
        xor_bytes(into, rest);
    }
}

/// `into ^= from`, as far as both go.
pub(super) fn xor_bytes(into: &mut [u8], from: &[u8]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into ^= from;
    }
}
