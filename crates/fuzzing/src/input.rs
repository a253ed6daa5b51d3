//! The bytes of an input, taken as numbers and pieces.
//!
//! Invariants: an input that is used up gives zeros, so a prefix of an input means the prefix of
//! what the input means; that is what lets a fuzzer shrink and splice.

/// See the module.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number of `bytes` bytes, at most eight.
    fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A number below `end`, which is not 0, out of as few bytes as tell all of them apart.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "a choice among nothing");
        let bytes = match end - 1 {
            0 => return 0,
            1..0x100 => 1,
            0x100..0x1_0000 => 2,
            0x1_0000..0x1_0000_0000 => 4,
            _ => 8,
        };
        self.number(bytes) % end
    }

    /// An index below `count`.
    pub fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }

    /// True in about one of `of` cases, and not when the input is used up.
    pub fn rarely(&mut self, of: u8) -> bool {
        self.byte() % of == of - 1
    }

    /// 32 bits: small numbers, edges and any.
    pub fn u32(&mut self) -> u32 {
        match self.byte() {
            small @ 0..0xc0 => u32::from(small % 16),
            0xc0..0xd0 => u32::MAX - self.below(4) as u32,
            0xd0..0xe0 => 1 << self.below(32),
            0xe0..0xf0 => self.number(2) as u32,
            _ => self.number(4) as u32,
        }
    }

    /// 64 bits: small numbers, places in and about a file, edges and any.
    pub fn u64(&mut self) -> u64 {
        match self.byte() {
            small @ 0..0x80 => u64::from(small % 32),
            0x80..0xa0 => self.number(2),
            0xa0..0xc0 => self.below(64) << 12,
            0xc0..0xd0 => u64::MAX - self.below(4),
            0xd0..0xe0 => (1 << self.below(64)) - self.below(2),
            _ => self.number(8),
        }
    }

    /// Up to `most` bytes of the input.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_end_and_an_empty_input_gives_zeros() {
        let bytes = [0xff; 64];
        let mut input = Input::new(&bytes);
        for end in [1, 2, 256, 257, 65_537, u64::MAX] {
            assert!(input.below(end) < end);
        }
        let mut empty = Input::new(&[]);
        assert_eq!((empty.u32(), empty.u64(), empty.below(9), empty.rarely(3)), (0, 0, 0, false));
        assert!(empty.is_empty() && empty.bytes(3).is_empty());
    }
}
