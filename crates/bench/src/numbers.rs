//! Numbers that look random, the same in every run.

/// A sequence of them.
pub(crate) struct Numbers(u64);

impl Numbers {
    /// The sequence called `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next one, below a limit.
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}
