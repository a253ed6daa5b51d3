//! The hash of a name: SipHash-1-3 with the directory's 128-bit seed as key.
//!
//! Keyed, because clients choose names: without the key nobody can make names that collide. It is
//! part of the format ([`ondisk::directory::HASH_SIPHASH_1_3`]) and may never change.
//!
//! Specified by the SipHash paper: compression rounds 1, finalisation rounds 3; the seed's first
//! word is k0, the second k1.

/// The hash of `name` in a directory with this seed.
pub fn name_hash(seed: [u64; 2], name: &[u8]) -> u64 {
    sip_hash::<1, 3>(seed, name)
}

fn sip_hash<const COMPRESSION_ROUNDS: usize, const FINAL_ROUNDS: usize>(
    [k0, k1]: [u64; 2],
    message: &[u8],
) -> u64 {
    // "somepseudorandomlygeneratedbytes", as the specification has it.
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = message.as_chunks::<8>();
    for word in words {
        absorb::<COMPRESSION_ROUNDS>(&mut state, u64::from_le_bytes(*word));
    }
    let mut last = (message.len() as u64) << 56;
    for (index, byte) in rest.iter().enumerate() {
        last |= u64::from(*byte) << (8 * index);
    }
    absorb::<COMPRESSION_ROUNDS>(&mut state, last);
    state[2] ^= 0xff;
    for _ in 0..FINAL_ROUNDS {
        round(&mut state);
    }
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn absorb<const ROUNDS: usize>(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    for _ in 0..ROUNDS {
        round(state);
    }
    state[0] ^= word;
}

fn round(state: &mut [u64; 4]) {
    let [mut v0, mut v1, mut v2, mut v3] = *state;
    v0 = v0.wrapping_add(v1);
    v2 = v2.wrapping_add(v3);
    v1 = v1.rotate_left(13) ^ v0;
    v3 = v3.rotate_left(16) ^ v2;
    v0 = v0.rotate_left(32).wrapping_add(v3);
    v2 = v2.wrapping_add(v1);
    v1 = v1.rotate_left(17) ^ v2;
    v3 = v3.rotate_left(21) ^ v0;
    v2 = v2.rotate_left(32);
    *state = [v0, v1, v2, v3];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hasher};

    /// The SipHash paper's appendix A: key 00..0f, message 00..0e, SipHash-2-4.
    #[test]
    fn the_papers_example() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(sip_hash::<2, 4>(key, &message), 0xa129_ca61_49be_45e5);
    }

    /// The standard library's hasher is SipHash-1-3 with a key of zeros today; the constants pin
    /// the format should it ever change.
    #[test]
    fn agrees_with_an_independent_implementation() {
        for length in 0..=255_u8 {
            let name: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37) ^ length).collect();
            let mut hasher = DefaultHasher::new();
            hasher.write(&name);
            assert_eq!(name_hash([0, 0], &name), hasher.finish(), "length {length}");
        }
    }

    #[test]
    fn the_format_is_pinned() {
        assert_eq!(name_hash([0, 0], b""), 0xd1fb_a762_150c_532c);
        assert_ne!(name_hash([1, 0], b"a"), name_hash([0, 1], b"a"));
    }
}
