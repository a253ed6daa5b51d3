//! The hash of names in directories: SipHash-1-3 of the SipHash paper, keyed with the directory's
//! seed, written anew for the cross-check; and the hash of contents that images are compared by.

use units::{BLOCK_SIZE, Block};

/// The hash of `name` under `seed`.
pub(crate) fn name_hash(seed: [u64; 2], name: &[u8]) -> u64 {
    let mut v = [
        seed[0] ^ u64::from_be_bytes(*b"somepseu"),
        seed[1] ^ u64::from_be_bytes(*b"dorandom"),
        seed[0] ^ u64::from_be_bytes(*b"lygenera"),
        seed[1] ^ u64::from_be_bytes(*b"tedbytes"),
    ];
    let mut tail = [0; 8];
    let (words, rest) = name.as_chunks::<8>();
    tail.iter_mut().zip(rest).for_each(|(tail, byte)| *tail = *byte);
    tail[7] = name.len() as u8;
    for word in words.iter().chain(std::iter::once(&tail)) {
        let word = u64::from_le_bytes(*word);
        v[3] ^= word;
        mix(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    (0..3).for_each(|_| mix(&mut v));
    v.iter().fold(0, |hash, word| hash ^ word)
}

fn mix(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32).wrapping_add(v[3]);
    v[2] = v[2].wrapping_add(v[1]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

/// A hash of contents. Blocks of zeros do not count, so that a hole and written zeros are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentHasher {
    state: u64,
}

impl ContentHasher {
    /// Of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: 0x5354_524f_4f50_2031 }
    }

    /// Takes a number in.
    pub const fn number(&mut self, number: u64) {
        // A multiplication by an odd number and a rotation: each bit comes to depend on all.
        let mixed = (self.state ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.state = mixed ^ mixed.rotate_right(29);
    }

    /// Takes the content of file block `fbn` in; blocks are given in order.
    pub fn block(&mut self, fbn: u64, content: &Block) {
        if content.is_zero() {
            return;
        }
        self.number(fbn);
        content.as_chunks::<8>().0.iter().for_each(|word| self.number(u64::from_le_bytes(*word)));
    }

    /// Takes some bytes in.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(word, byte)| *word = *byte);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// The hash, of a file of `size_bytes`.
    #[must_use]
    pub const fn finish(mut self, size_bytes: u64) -> u64 {
        self.number(size_bytes);
        self.state
    }

    /// The hash of a file with this content.
    #[must_use]
    pub fn of(content: &[u8]) -> u64 {
        let mut hasher = Self::new();
        for (fbn, bytes) in (0..).zip(content.chunks(BLOCK_SIZE)) {
            hasher.block(fbn, &Block::from_prefix(bytes));
        }
        hasher.finish(content.len() as u64)
    }
}

impl Default for ContentHasher {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hasher};

    #[test]
    fn names_hash_as_siphash_1_3() {
        for length in 0..=64_u8 {
            let name: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(91) ^ length).collect();
            let mut hasher = DefaultHasher::new();
            hasher.write(&name);
            assert_eq!(name_hash([0, 0], &name), hasher.finish(), "length {length}");
        }
        assert_ne!(name_hash([1, 0], b"a"), name_hash([0, 1], b"a"));
    }

    #[test]
    fn contents_differ_and_holes_do_not() {
        let mut content = vec![0; 3 * BLOCK_SIZE + 5];
        content[2 * BLOCK_SIZE] = 7;
        let mut hasher = ContentHasher::new();
        hasher.block(2, &Block::from_prefix(&[7]));
        assert_eq!(hasher.finish(content.len() as u64), ContentHasher::of(&content));
        let mut seen = vec![ContentHasher::of(&content)];
        content.push(0);
        seen.push(ContentHasher::of(&content));
        content.swap(2 * BLOCK_SIZE, 2 * BLOCK_SIZE + 1);
        seen.push(ContentHasher::of(&content));
        content.swap(2 * BLOCK_SIZE + 1, BLOCK_SIZE + 1);
        seen.push(ContentHasher::of(&content));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4);
    }
}
