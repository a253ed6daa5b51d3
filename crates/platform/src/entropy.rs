//! Randomness.

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
