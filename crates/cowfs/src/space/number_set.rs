//! A set of block numbers, most of which lie together: a bit for each, in chunks of so many words.
//!
//! A consistency point takes numbers in runs. A file that is overwritten in order was mostly
//! written in order, so numbers that become free lie in runs, too. The numbers of a chunk have one
//! entry of the hash table, and the entry stays in the processor's cache. With one word a number
//! that lies apart takes 17 bytes, which is twice as much as in a set of numbers; with more of them
//! many numbers take less memory.
//!
//! Invariants: no chunk is empty; `count` is the number of bits that are set.

use crate::free_map::set_bits_of;
use rustc_hash::FxHashMap;
use std::marker::PhantomData;
use units::BlockNumber;

const WORD_NUMBERS: u64 = u64::BITS as u64;

/// See the module.
#[derive(Debug)]
pub(super) struct NumberSet<N, const WORDS: usize = 1> {
    chunks: FxHashMap<u64, [u64; WORDS]>,
    count: usize,
    numbers: PhantomData<N>,
}

impl<N, const WORDS: usize> Default for NumberSet<N, WORDS> {
    fn default() -> Self {
        Self { chunks: FxHashMap::default(), count: 0, numbers: PhantomData }
    }
}

impl<N: BlockNumber, const WORDS: usize> NumberSet<N, WORDS> {
    /// Memory that a chunk takes at most, in a table that is less than half full.
    pub const CHUNK_BYTES: u64 = (8 + WORDS as u64 * 8 + 1) * 5 / 2;

    const CHUNK_NUMBERS: u64 = WORDS as u64 * WORD_NUMBERS;

    /// The chunk of a number, the word in there, and the bit in that.
    fn place_of(number: N) -> (u64, usize, u64) {
        let at = number.get() % Self::CHUNK_NUMBERS;
        let bit = 1 << (at % WORD_NUMBERS);
        (number.get() / Self::CHUNK_NUMBERS, (at / WORD_NUMBERS) as usize, bit)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Chunks that have any.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    pub fn contains(&self, number: N) -> bool {
        let (chunk, word, bit) = Self::place_of(number);
        self.chunks.get(&chunk).is_some_and(|words| words[word] & bit != 0)
    }

    /// Adds a number; whether it was not there.
    pub fn insert(&mut self, number: N) -> bool {
        let (chunk, word, bit) = Self::place_of(number);
        let bits = &mut self.chunks.entry(chunk).or_insert([0; WORDS])[word];
        let is_new = *bits & bit == 0;
        *bits |= bit;
        self.count += usize::from(is_new);
        is_new
    }

    /// Takes a number out; whether it was there.
    pub fn remove(&mut self, number: N) -> bool {
        let (chunk, word, bit) = Self::place_of(number);
        let Some(words) = self.chunks.get_mut(&chunk) else { return false };
        if words[word] & bit == 0 {
            return false;
        }
        words[word] &= !bit;
        self.count -= 1;
        if *words == [0; WORDS] {
            self.chunks.remove(&chunk);
        }
        true
    }

    /// Takes all out, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = N> + use<N, WORDS> {
        let mut chunks: Vec<(u64, [u64; WORDS])> = self.chunks.drain().collect();
        chunks.sort_unstable();
        self.count = 0;
        let words = chunks.into_iter().flat_map(|(chunk, words)| {
            (chunk * WORDS as u64..).zip(words).filter(|(_, bits)| *bits != 0)
        });
        words.flat_map(|(word, bits)| {
            set_bits_of(bits).map(move |bit| N::new(word * WORD_NUMBERS + u64::from(bit)))
        })
    }

    /// Gives back memory but for so many chunks.
    pub fn shrink_to(&mut self, chunks: usize) {
        self.chunks.shrink_to(chunks);
    }

    /// Chunks that there is memory for.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.chunks.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use units::Vvbn;

    /// Beside a set of numbers.
    fn check<const WORDS: usize>(steps: &[(u8, u64)]) {
        let (mut set, mut naive) = (NumberSet::<Vvbn, WORDS>::default(), BTreeSet::new());
        for (step, number) in steps {
            let number = Vvbn(*number);
            match step {
                0 | 1 => assert_eq!(set.insert(number), naive.insert(number)),
                2 => assert_eq!(set.remove(number), naive.remove(&number)),
                _ if number.get() < 50 => {
                    let drained: Vec<Vvbn> = set.drain().collect();
                    let expected: Vec<Vvbn> = std::mem::take(&mut naive).into_iter().collect();
                    assert_eq!(drained, expected);
                }
                _ => assert_eq!(set.contains(number), naive.contains(&number)),
            }
            assert_eq!(set.len(), naive.len());
            assert!(set.chunks.values().all(|words| *words != [0; WORDS]));
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in proptest::collection::vec((0..4_u8, 0..1500_u64), 1..300)) {
            check::<1>(&steps);
            check::<8>(&steps);
        }
    }
}
