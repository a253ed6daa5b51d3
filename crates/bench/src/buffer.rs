//! Memory that calls on a file move their bytes through, `O_DIRECT` or not.
//!
//! Invariants: its address is a multiple of [`ALIGNMENT_BYTES`], as `O_DIRECT` wants it.

use crate::numbers::Numbers;

/// What `O_DIRECT` wants of an address: a page will do everywhere.
const ALIGNMENT_BYTES: usize = 4096;

/// See the module.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// One of `length` bytes, which look random: nothing is gained by compressing them.
    pub fn new(length: usize) -> Self {
        let mut numbers = Numbers::new(0x9E37_79B9_7F4A_7C15);
        let words = (length + ALIGNMENT_BYTES).div_ceil(size_of::<u64>());
        let memory: Vec<u8> =
            (0..words).flat_map(|_| numbers.next(u64::MAX).to_le_bytes()).collect();
        let start = memory.as_ptr().align_offset(ALIGNMENT_BYTES);
        Self { memory, start, length }
    }

    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }
}
