//! Randomness, and what looks like it and is the same in each run.

/// A source of random numbers: the operating system's, or the simulator's seed.
pub trait Entropy: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// A random 128-bit identity (of a disk, an aggregate); never all zero.
    fn next_identity(&self) -> [u8; 16] {
        loop {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&self.next_u64().to_le_bytes());
            bytes[8..].copy_from_slice(&self.next_u64().to_le_bytes());
            if bytes != [0; 16] {
                return bytes;
            }
        }
    }
}

/// Numbers that a seed decides, the same in each run: SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If `end` is zero.
    pub const fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below zero");
        self.number() % end
    }
}
