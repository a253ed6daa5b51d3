//! The simulator's own choices: streams of numbers out of the seed, one for each purpose, so that
//! leaving one choice out (an operation, when a life is shrunk) changes no other.
//!
//! They are not the streams of the simulated world (faults, torn writes) nor the engine's, so that
//! a change of the simulator's habits does not change what a disk does, and the other way round.
//!
//! Invariants: the same seed gives the same numbers on every machine and in every build.

use platform::Seeded;

/// What a stream is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// What kind of node it is.
    Plan = 1,
    /// Who runs next, which request completes next, how time passes.
    Schedule = 2,
    /// How rounds end, when the power goes, what happens beside operations.
    Events = 3,
    /// One operation.
    Operation = 4,
    /// What other threads would do in the middle of a message.
    Overlap = 5,
    /// Other aggregates of the node.
    Neighbours = 6,
    /// Whether the process dies or the power goes.
    Kills = 7,
    /// What is wrong with the log's disk.
    LogFaults = 8,
    /// The disks of the log's copies.
    LogCopies = 15,
    /// The log on the aggregate's disks.
    LogOnDisks = 16,
    /// How the clock of day is set.
    Clock = 9,
    /// Clients of a front end, and the network between.
    FrontEnd = 10,
    /// Checks of an image that is pinned.
    Check = 11,
    /// Superblock slots that cannot be read.
    Slots = 12,
    /// What an operator types.
    Operator = 20,
    /// Features that the build lacks.
    Lacking = 14,
}

/// A stream of choices.
#[derive(Clone, Debug)]
pub struct Choices(Seeded);

impl Choices {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // Neighbouring seeds begin far from each other.
        let begin = seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(0x2545_f491_4f6c_dd1d);
        Self(Seeded::new(begin))
    }

    /// Stream `index` of a purpose.
    #[must_use]
    pub const fn of(seed: u64, purpose: Purpose, index: u64) -> Self {
        let mut mixed = Self::new(seed ^ ((purpose as u64) << 56)).next();
        mixed ^= index.wrapping_mul(0x9e6c_63d0_876a_3f6b);
        Self::new(mixed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If `end` is zero.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// An index below `count`.
    pub const fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// From 1 to about `2^bits`, small numbers as often as large ones: for moments that are as
    /// likely to be early as late.
    pub const fn scaled(&mut self, bits: u64) -> u64 {
        let shift = self.below(bits);
        1 + (1 << shift) + self.below(1 << shift)
    }

    /// One of `items`.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_stream_and_another_seed_another() {
        let stream = |seed| {
            let mut choices = Choices::new(seed);
            (0..8).map(|_| choices.next()).collect::<Vec<_>>()
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
        let of = |purpose, index| Choices::of(1, purpose, index).next();
        assert_ne!(of(Purpose::Plan, 0), of(Purpose::Events, 0));
        assert_ne!(of(Purpose::Operation, 0), of(Purpose::Operation, 1));
        let mut choices = Choices::new(3);
        assert!((0..1000).all(|_| choices.scaled(8) <= 257));
        assert!((0..1000).any(|_| choices.chance(1)));
    }
}
