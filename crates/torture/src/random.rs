//! Choices from a seed, so that a round can be made again.

use platform::Seeded;

/// A generator: the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(Seeded);

impl Random {
    /// A generator that begins at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(Seeded::new(seed))
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `end`, which is not zero.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// Whether something that happens once in `times` does.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Bytes, no two equal blocks among them.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}
