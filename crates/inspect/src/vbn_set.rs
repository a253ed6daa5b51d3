//! Sets of block numbers, as sparse bitmaps: memory grows with what is in them.
//!
//! Invariants: a chunk has the bits of one block of a free map, so that a map is taken in block by
//! block.

use std::collections::BTreeMap;
use std::ops::Range;
use units::{BLOCK_SIZE, Block};

/// Block numbers of one block of a free map.
pub(crate) const VBNS_PER_BLOCK: u64 = BLOCK_SIZE as u64 * 8;
const WORD_BITS: u64 = 64;
const WORDS: usize = BLOCK_SIZE / 8;

/// See the module.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct VbnSet {
    chunks: BTreeMap<u64, Box<[u64; WORDS]>>,
}

/// Consecutive numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub first: u64,
    pub count: u64,
}

const fn position(vbn: u64) -> (u64, usize, u64) {
    let bit = vbn % VBNS_PER_BLOCK;
    (vbn / VBNS_PER_BLOCK, (bit / WORD_BITS) as usize, 1 << (bit % WORD_BITS))
}

impl VbnSet {
    /// Adds a number; false if it was there.
    pub fn insert(&mut self, vbn: u64) -> bool {
        let (chunk, word, mask) = position(vbn);
        let words = self.chunks.entry(chunk).or_insert_with(|| Box::new([0; WORDS]));
        let old = words[word];
        words[word] |= mask;
        old & mask == 0
    }

    /// Whether a number is in the set.
    pub fn contains(&self, vbn: u64) -> bool {
        let (chunk, word, mask) = position(vbn);
        self.chunks.get(&chunk).is_some_and(|words| words[word] & mask != 0)
    }

    /// Adds the bits of block `index` of a free map.
    pub fn add_map_block(&mut self, index: u64, block: &Block) {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(block.bytes().as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.add_words(index, &words);
    }

    fn add_words(&mut self, chunk: u64, words: &[u64; WORDS]) {
        if words.iter().all(|word| *word == 0) {
            return;
        }
        let own = self.chunks.entry(chunk).or_insert_with(|| Box::new([0; WORDS]));
        own.iter_mut().zip(words).for_each(|(own, word)| *own |= word);
    }

    /// Adds those numbers of another set that lie in blocks `from..to` of a map.
    pub fn add_blocks(&mut self, other: &Self, from: u64, to: u64) {
        if from < to {
            other.chunks.range(from..to).for_each(|(chunk, words)| self.add_words(*chunk, words));
        }
    }

    /// Adds another set.
    pub fn add(&mut self, other: &Self) {
        other.chunks.iter().for_each(|(chunk, words)| self.add_words(*chunk, words));
    }

    /// How many of these numbers are in it.
    pub fn count_in(&self, numbers: Range<u64>) -> u64 {
        let mut count = 0;
        let mut next = numbers.start;
        while next < numbers.end {
            let (chunk, word, _) = position(next);
            let Some(words) = self.chunks.get(&chunk) else {
                next = (chunk + 1) * VBNS_PER_BLOCK;
                continue;
            };
            let until = numbers.end.min((next / WORD_BITS + 1) * WORD_BITS);
            let bits = words[word] >> (next % WORD_BITS);
            let wanted = u64::MAX >> (WORD_BITS - (until - next));
            count += u64::from((bits & wanted).count_ones());
            next = until;
        }
        count
    }

    pub fn count(&self) -> u64 {
        let words = self.chunks.values().flat_map(|words| words.iter());
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().flat_map(|(chunk, words)| {
            let first = chunk * VBNS_PER_BLOCK;
            words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(move |(at, word)| {
                let (word, first) = (*word, first + at as u64 * WORD_BITS);
                (0..WORD_BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
            })
        })
    }

    /// Numbers in this set and not in the other.
    pub fn without(&self, other: &Self) -> Self {
        let mut left = Self::default();
        for (chunk, words) in &self.chunks {
            let mut words = **words;
            if let Some(others) = other.chunks.get(chunk) {
                words.iter_mut().zip(others.iter()).for_each(|(word, other)| *word &= !other);
            }
            left.add_words(*chunk, &words);
        }
        left
    }

    /// The set as runs of consecutive numbers.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for vbn in self.iter() {
            match runs.last_mut() {
                Some(run) if run.first + run.count == vbn => run.count += 1,
                _ => runs.push(Run { first: vbn, count: 1 }),
            }
        }
        runs
    }
}

impl FromIterator<u64> for VbnSet {
    fn from_iter<T: IntoIterator<Item = u64>>(numbers: T) -> Self {
        let mut set = Self::default();
        numbers.into_iter().for_each(|vbn| {
            set.insert(vbn);
        });
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn numbers() -> impl Strategy<Value = BTreeSet<u64>> {
        let number = prop_oneof![0..200_u64, 32_700..32_800_u64, 0..1_u64 << 44];
        proptest::collection::btree_set(number, 0..60)
    }

    proptest! {
        #[test]
        fn behaves_as_an_ordered_set(one in numbers(), two in numbers()) {
            let a: VbnSet = one.iter().copied().collect();
            let b: VbnSet = two.iter().copied().collect();
            prop_assert_eq!(a.iter().collect::<BTreeSet<_>>(), one.clone());
            prop_assert_eq!(a.count(), one.len() as u64);
            let left: BTreeSet<u64> = one.difference(&two).copied().collect();
            prop_assert_eq!(a.without(&b).iter().collect::<BTreeSet<_>>(), left);
            let mut both = a.clone();
            both.add(&b);
            let union: BTreeSet<u64> = one.union(&two).copied().collect();
            prop_assert_eq!(both.iter().collect::<BTreeSet<_>>(), union);
            let total: u64 = a.runs().iter().map(|run| run.count).sum();
            prop_assert_eq!(total, a.count());
            for vbn in two {
                prop_assert_eq!(both.clone().insert(vbn), false);
            }
        }
    }

    #[test]
    fn takes_map_blocks_in() {
        let mut block = Block::zeroed();
        block[0] = 0b101;
        block[4095] = 0x80;
        let mut set = VbnSet::default();
        set.add_map_block(2, &block);
        assert_eq!(set.iter().collect::<Vec<_>>(), [65_536, 65_538, 98_303]);
        let mut part = VbnSet::default();
        part.add_blocks(&set, 0, 2);
        assert_eq!(part.count(), 0);
        part.add_blocks(&set, 2, 3);
        assert_eq!(part, set);
    }
}
