//! The 4 KiB block, the unit of everything that is stored.
//!
//! Invariants: a [`BlockRef`] is shared by cloning it and changed only through
//! `Arc::make_mut`, which copies when anyone else holds it (decision 7): a frozen image never
//! changes under a consistency point.
//!
//! The bytes are a page of memory of their own, apart from the counts of those who share them
//! (decision 59): a device reads and writes whole pages, and whoever takes a share of a block, or
//! gives it back, does not touch the block's memory.

use std::alloc::Layout;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// Bytes in a block.
pub const BLOCK_SIZE: usize = 4096;
/// [`BLOCK_SIZE`] for arithmetic on offsets.
pub const BLOCK_SIZE_U64: u64 = 4096;

/// What a block's bytes lie in: a page.
#[derive(PartialEq, Eq)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_SIZE]);

/// One block's content.
///
/// The alignment is for the allocator: no other common allocation has the layout of a shared block
/// then, so that it knows them apart.
#[derive(PartialEq, Eq)]
#[repr(align(16))]
pub struct Block(Box<Page>);

/// A shared block (decision 7).
pub type BlockRef = Arc<Block>;

/// A block whose bytes nobody has written yet: what a device reads into.
#[derive(Debug)]
pub struct UnwrittenBlock(Box<MaybeUninit<Page>>);

impl UnwrittenBlock {
    /// A block of bytes that mean nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(Box::new_uninit())
    }

    /// The number of the first byte of memory that it takes.
    #[must_use]
    pub fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Where its bytes begin.
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    /// The block, with its bytes.
    ///
    /// # Safety
    /// All [`BLOCK_SIZE`] bytes have been written.
    #[must_use]
    #[expect(unsafe_code, reason = "a device fills the bytes, not this program")]
    pub unsafe fn assume_written(self) -> Block {
        // SAFETY: a page is an array of bytes and nothing else (`repr(C)`), and the caller promises
        // that they were written.
        Block(unsafe { self.0.assume_init() })
    }
}

impl Default for UnwrittenBlock {
    fn default() -> Self {
        Self::new()
    }
}

impl Block {
    /// What is asked of the allocator for the bytes of a block.
    pub const LAYOUT: Layout = Layout::new::<Page>();

    /// A block of zeros.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::from_prefix(&[])
    }

    /// A block that begins with `bytes` and is zero after them. Each byte is written once: a block
    /// that is made on the stack and moved is written three times.
    ///
    /// # Panics
    /// If `bytes` is longer than a block.
    #[must_use]
    #[expect(unsafe_code, reason = "the one way to fill an allocation in place")]
    pub fn from_prefix(bytes: &[u8]) -> Self {
        assert!(bytes.len() <= BLOCK_SIZE, "{} bytes are more than a block", bytes.len());
        let mut block = UnwrittenBlock::new();
        // SAFETY: both writes together fill the block exactly.
        unsafe {
            let start = block.as_mut_ptr();
            start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            start.add(bytes.len()).write_bytes(0, BLOCK_SIZE - bytes.len());
            block.assume_written()
        }
    }

    /// The same, shared.
    ///
    /// # Panics
    /// If `bytes` is longer than a block.
    #[must_use]
    pub fn shared(bytes: &[u8]) -> BlockRef {
        Arc::new(Self::from_prefix(bytes))
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; BLOCK_SIZE] {
        &self.0.0
    }

    /// The bytes, to be changed.
    pub const fn bytes_mut(&mut self) -> &mut [u8; BLOCK_SIZE] {
        &mut self.0.0
    }

    /// Whether every byte is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        // A chunked fold: the compiler turns it into vector code.
        self.bytes().chunks_exact(64).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
    }
}

impl Clone for Block {
    fn clone(&self) -> Self {
        Self::from_prefix(self.bytes())
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
        self.bytes()
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.bytes_mut()
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self[..16];
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
    fn bytes_are_a_page_of_their_own() {
        let shared = Block::shared(&[1]);
        assert_eq!(shared.bytes().as_ptr() as usize % BLOCK_SIZE, 0);
        let mut copy = Arc::clone(&shared);
        Arc::make_mut(&mut copy)[0] = 2;
        assert_eq!((shared[0], copy[0]), (1, 2));
        assert_eq!(copy.bytes().as_ptr() as usize % BLOCK_SIZE, 0);
    }

    #[test]
    fn zero_is_seen() {
        let mut block = Block::zeroed();
        assert!(block.is_zero());
        block[4095] = 1;
        assert!(!block.is_zero());
    }
}
