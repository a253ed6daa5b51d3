//! An image that somebody reads beside the consistency points to come: what they free of it is not
//! given again until the reader is done.
//!
//! A consistency point frees a number, and its commit lets the number be given. While an image is
//! pinned the commit keeps those numbers that the image has. Numbers that were taken after the pin
//! belong to no block of the image: they are given again as ever, so that a load which writes the
//! same blocks over and over is not held up.
//!
//! Invariants:
//! - A number that the pinned image has in use is not given before the pin ends.
//! - `written` has only numbers that were taken after the pin. It may lack some: those are kept
//!   longer than they need be, and nothing else follows.
//! - Memory is bounded by `chunks_max` for each of the two sets.
//!
//! Fails: never; when the bound is reached [`Pinned::is_overfull`] says so, and the pin must end.

use super::number_set::NumberSet;
use platform::mutation::{self, Rule};
use units::BlockNumber;

/// An image has many numbers, most of them together.
type Numbers<N> = NumberSet<N, 8>;

/// See the module.
#[derive(Debug)]
pub(super) struct Pinned<N> {
    /// Freed since, and of the image.
    held: Numbers<N>,
    /// In use, and not of the image.
    written: Numbers<N>,
    chunks_max: usize,
}

impl<N: BlockNumber> Pinned<N> {
    /// A pin of the image that was committed just now.
    pub fn new(memory_bytes: u64) -> Self {
        let chunks_max = memory_bytes / 2 / Numbers::<N>::CHUNK_BYTES;
        Self {
            held: Numbers::default(),
            written: Numbers::default(),
            chunks_max: usize::try_from(chunks_max).unwrap_or(usize::MAX),
        }
    }

    /// A block was placed at a number.
    pub fn note_taken(&mut self, number: N) {
        if self.written.chunks() < self.chunks_max {
            self.written.insert(number);
        }
    }

    /// A consistency point has committed and freed these; what of them may be given.
    pub fn sift(&mut self, freed: impl Iterator<Item = N>) -> Vec<N> {
        let mut given = Vec::new();
        for number in freed {
            if self.written.remove(number) || mutation::broken(Rule::PinnedBlockUsed) {
                given.push(number);
            } else {
                self.held.insert(number);
            }
        }
        given
    }

    /// Whether a number is kept.
    pub fn holds(&self, number: N) -> bool {
        self.held.contains(number)
    }

    /// Numbers that are kept.
    pub fn held_count(&self) -> u64 {
        self.held.len() as u64
    }

    /// Whether it takes more memory than it may.
    pub fn is_overfull(&self) -> bool {
        self.held.chunks() > self.chunks_max
    }

    /// Ends it: the numbers that were kept, in order.
    pub fn end(mut self) -> Vec<N> {
        self.held.drain().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use units::Vvbn;

    proptest! {
        /// Numbers are taken and freed at random: those of the image are kept, others are not.
        #[test]
        fn what_the_image_has_is_kept(steps in proptest::collection::vec(0..2000_u64, 1..400)) {
            let image = (0..2000).filter(|number| number % 3 == 0).map(Vvbn);
            let image: BTreeSet<Vvbn> = image.collect();
            let (mut used, mut held) = (image.clone(), BTreeSet::new());
            let mut pinned = Pinned::new(1 << 20);
            for number in steps.into_iter().map(Vvbn) {
                if used.remove(&number) {
                    let given = pinned.sift(std::iter::once(number));
                    if given.is_empty() {
                        held.insert(number);
                    }
                    prop_assert_eq!(pinned.holds(number), image.contains(&number));
                } else if !held.contains(&number) {
                    used.insert(number);
                    pinned.note_taken(number);
                }
            }
            prop_assert_eq!(pinned.held_count(), held.len() as u64);
            prop_assert!(held.is_subset(&image));
            prop_assert_eq!(pinned.end(), held.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn memory_is_bounded_and_what_is_not_remembered_is_kept() {
        let mut pinned = Pinned::new(2 * 4 * Numbers::<Vvbn>::CHUNK_BYTES);
        (0..10).for_each(|chunk| pinned.note_taken(Vvbn(chunk * 512)));
        let given = pinned.sift((0..10).map(|chunk| Vvbn(chunk * 512)));
        assert_eq!(given, [0, 512, 1024, 1536].map(Vvbn));
        assert!(pinned.is_overfull());
    }
}
