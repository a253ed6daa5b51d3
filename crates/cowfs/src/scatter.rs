//! How blocks lie on the disks: together, or scattered, so that reading them in order takes many
//! requests. What is scattered is worth being written anew (*read reallocation*).
//!
//! Invariants: blocks that a consistency point places where areas are free lie in runs far longer
//! than what counts as scattered. Where none are free, what was reallocated may be scattered again.

use units::{BlockNumber, Fbn, Pvbn};

/// Blocks that are so near each other are read with one request: what lies between was overwritten,
/// or is in memory, and costs less than a request of its own (docs/decisions/0055).
const NEAR_BLOCKS: u64 = 8;
/// Blocks of a file that are judged together, about what a reader in order asks for at once: the
/// blocks that one consistency point placed lie near each other, but what lies between are blocks
/// of the rest of the file, and a call has no use for them.
const CALL_BLOCKS: u64 = 64;
/// Blocks in a run, on average, below which they are scattered.
const RUN_BLOCKS_MIN: u64 = 16;
/// Of fewer blocks nothing is said.
const BLOCKS_MIN: u64 = 32;

/// Whether a block lies so close behind another that both are read with one request.
#[must_use]
pub fn is_near(one: Pvbn, next: Pvbn) -> bool {
    next > one && next.since(one) <= NEAR_BLOCKS
}

/// Blocks, and the runs that they lie in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Runs {
    blocks: u64,
    runs: u64,
    last: Pvbn,
}

impl Runs {
    /// Those of blocks of a file, in its order, as calls of a reader in order find them.
    #[must_use]
    pub fn of_file(blocks: &[(Fbn, Pvbn)]) -> Self {
        let mut all = Self::default();
        for call in blocks.chunk_by(|(one, _), (next, _)| call_of(*one) == call_of(*next)) {
            let mut places: Vec<Pvbn> = call.iter().map(|(_, pvbn)| *pvbn).collect();
            places.sort_unstable();
            let mut runs = Self::default();
            places.into_iter().for_each(|pvbn| runs.note(pvbn));
            all.join(runs);
        }
        all
    }

    /// The next block lies here.
    pub fn note(&mut self, pvbn: Pvbn) {
        let is_next = self.blocks > 0 && is_near(self.last, pvbn);
        self.runs += u64::from(!is_next);
        self.blocks += 1;
        self.last = pvbn;
    }

    /// Whether these blocks have come to lie no better than `before`, and badly.
    #[must_use]
    pub const fn is_no_better_than(&self, before: &Self) -> bool {
        self.is_scattered() && self.runs * 2 > before.runs
    }

    /// And those of somebody else.
    pub const fn join(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.runs += other.runs;
    }

    /// How many blocks.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether the blocks are scattered.
    #[must_use]
    pub const fn is_scattered(&self) -> bool {
        self.blocks >= BLOCKS_MIN && self.blocks < self.runs * RUN_BLOCKS_MIN
    }
}

/// Which of the calls of a reader in order has this block.
const fn call_of(fbn: Fbn) -> u64 {
    fbn.get() / CALL_BLOCKS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_scattered(places: impl IntoIterator<Item = u64>) -> bool {
        let blocks: Vec<_> = (0..).map(Fbn).zip(places.into_iter().map(Pvbn)).collect();
        Runs::of_file(&blocks).is_scattered()
    }

    #[test]
    fn what_consistency_points_place_is_not_scattered() {
        assert!(!is_scattered(1000..1256));
        // Disk by disk of a group, as a tetris is filled.
        let disk = |index: u64| index * 1_000_000..index * 1_000_000 + 63;
        assert!(!is_scattered((0..4).flat_map(disk)));
        // A block here and there was overwritten.
        let place = |at: u64| if at.is_multiple_of(60) { at + 9000 } else { at };
        assert!(!is_scattered((1000..1256).map(place)));
    }

    #[test]
    fn what_was_overwritten_here_and_there_is_scattered() {
        let overwritten = |at: u64| at.is_multiple_of(4);
        let place = |at: u64| if overwritten(at) { 100_000 + at * 37 % 9973 * 20 } else { at };
        assert!(is_scattered((1000..1256).map(place)));
        assert!(!is_scattered((1000..1016).map(place)), "too few to tell");
        // What a consistency point had of each quarter of a mebibyte lies side by side.
        let together = |at: u64| if overwritten(at) { 100_000 * (at % 16) + at / 16 } else { at };
        assert!(is_scattered((1000..1512).map(together)));
    }
}
