//! The 4 KiB block, the unit of everything that is stored.
//!
//! Invariants: a [`BlockRef`] is shared by cloning it and changed only through
//! `Arc::make_mut`, which copies when anyone else holds it (decision 7): a frozen image never
//! changes under a consistency point.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// Bytes in a block.
pub const BLOCK_SIZE: usize = 4096;
/// [`BLOCK_SIZE`] for arithmetic on offsets.
pub const BLOCK_SIZE_U64: u64 = 4096;

/// One block's content. Aligned for direct I/O to devices with 512-byte logical blocks; aligning
/// to 4 KiB would double the allocation, because the reference counts precede the bytes.
#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(512))]
pub struct Block([u8; BLOCK_SIZE]);

/// A shared block (decision 7).
pub type BlockRef = Arc<Block>;

impl Block {
    /// A block of zeros.
    #[must_use]
    pub const fn zeroed() -> Self {
        Self([0; BLOCK_SIZE])
    }

    /// A block that begins with `bytes` and is zero after them.
    ///
    /// # Panics
    /// If `bytes` is longer than a block.
    #[must_use]
    pub fn from_prefix(bytes: &[u8]) -> Self {
        let mut block = Self::zeroed();
        block.0[..bytes.len()].copy_from_slice(bytes);
        block
    }

    /// A shared block that begins with `bytes` and is zero after them. Each byte is written once:
    /// a block that is made on the stack and moved is written three times.
    ///
    /// # Panics
    /// If `bytes` is longer than a block.
    #[must_use]
    #[expect(unsafe_code, reason = "the one way to fill an allocation in place")]
    pub fn shared(bytes: &[u8]) -> BlockRef {
        assert!(bytes.len() <= BLOCK_SIZE, "{} bytes are more than a block", bytes.len());
        let mut block = Arc::<Self>::new_uninit();
        let Some(place) = Arc::get_mut(&mut block) else { unreachable!("nobody else has it yet") };
        // SAFETY: a block is an array of `BLOCK_SIZE` bytes and nothing else (`repr(C)`), and both
        // writes together fill it exactly.
        unsafe {
            let start = place.as_mut_ptr().cast::<u8>();
            start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            start.add(bytes.len()).write_bytes(0, BLOCK_SIZE - bytes.len());
            block.assume_init()
        }
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; BLOCK_SIZE] {
        &self.0
    }

    /// The bytes, to be changed.
    pub const fn bytes_mut(&mut self) -> &mut [u8; BLOCK_SIZE] {
        &mut self.0
    }

    /// Whether every byte is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        // A chunked fold: the compiler turns it into vector code.
        self.0.chunks_exact(64).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
    }
}

impl Default for Block {
    fn default() -> Self {
        Self::zeroed()
    }
}

impl Deref for Block {
    type Target = [u8; BLOCK_SIZE];
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..16];
        write!(formatter, "Block({shown:02x?}..)")
    }
}

/// The shared block of zeros: what a hole reads as.
#[must_use]
pub fn zero_block() -> BlockRef {
    static ZERO: OnceLock<BlockRef> = OnceLock::new();
    Arc::clone(ZERO.get_or_init(|| Arc::new(Block::zeroed())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_block_is_filled_in_place() {
        let whole = [7; BLOCK_SIZE];
        for length in [0, 1, 511, 4095, BLOCK_SIZE] {
            assert_eq!(*Block::shared(&whole[..length]), Block::from_prefix(&whole[..length]));
        }
    }

    #[test]
    fn zero_is_seen() {
        let mut block = Block::zeroed();
        assert!(block.is_zero());
        block[4095] = 1;
        assert!(!block.is_zero());
        assert_eq!(align_of::<Block>(), 512);
        assert_eq!(size_of::<Block>(), BLOCK_SIZE);
    }
}
