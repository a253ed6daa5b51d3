//! What readers of a volume have found scattered, and how fast it may be reallocated
//! ([`crate::reallocating`]).
//!
//! Invariants: of each volume one piece is on its way at a time. No more is written of an aggregate
//! in a second than [`BYTES_PER_SECOND`]. The queue is in memory only, and bounded.

use cowfs::overlay::STRIPE_BLOCKS;
use operations::data::reallocate::Scattered;
use platform::sync::Mutex;
use raid::Allowance;
use std::collections::VecDeque;
use units::{BLOCK_SIZE_U64, Fbn};

/// What the reallocation of an aggregate writes at most: an eighth of what one SSD does, so that
/// clients hardly notice, and a file of some gigabytes is done within minutes.
const BYTES_PER_SECOND: u64 = 64 << 20;
/// What a piece counts for at least: it was looked at, and mostly read.
const PIECE_BLOCKS_MIN: u64 = 32;
/// Ranges of files that wait at most.
const QUEUE_MAX: usize = 256;

/// What of a volume is to be reallocated.
pub(crate) struct ScatteredBlocks(Mutex<State>);

struct State {
    queue: VecDeque<Scattered>,
    is_running: bool,
    allowance: Allowance,
    last_tick_nanoseconds: u64,
}

impl Default for ScatteredBlocks {
    fn default() -> Self {
        Self(Mutex::new(State {
            queue: VecDeque::new(),
            is_running: false,
            allowance: Allowance::new(Some(BYTES_PER_SECOND)),
            last_tick_nanoseconds: 0,
        }))
    }
}

impl ScatteredBlocks {
    /// A reader has found blocks scattered.
    pub fn note(&self, found: Scattered) {
        self.0.lock().note(found);
    }

    /// Whether there is something to do, or under way.
    pub fn has_work(&self) -> bool {
        self.0.lock().has_work()
    }

    /// Time has passed, in which so many volumes of the aggregate have had work. The piece to begin
    /// with, if nothing is on its way.
    pub fn tick(&self, now_nanoseconds: u64, volumes: u64) -> Option<Scattered> {
        let mut state = self.0.lock();
        let passed = now_nanoseconds.saturating_sub(state.last_tick_nanoseconds);
        state.last_tick_nanoseconds = now_nanoseconds;
        // Who has nothing to do saves nothing up.
        if state.has_work() {
            state.allowance.earn(passed / volumes.max(1));
        }
        if state.is_running {
            return None;
        }
        state.next()
    }

    /// A piece has come to its end, `blocks` of it are to be written; the next one.
    pub fn go_on(&self, blocks: u64) -> Option<Scattered> {
        let mut state = self.0.lock();
        state.allowance.spend(blocks.max(PIECE_BLOCKS_MIN) * BLOCK_SIZE_U64);
        state.next()
    }

    /// A piece has to wait for a later tick.
    pub fn put_back(&self, piece: Scattered) {
        let mut state = self.0.lock();
        state.queue.push_back(piece);
        state.is_running = false;
    }

    /// Drops all that is queued: the next reader finds it again.
    pub fn give_up(&self) {
        let mut state = self.0.lock();
        state.queue.clear();
        state.is_running = false;
    }
}

impl State {
    /// Requests of one reader run beside each other, so what lies one behind another is found in
    /// any order: ranges that touch become one, in the place of the first.
    fn note(&mut self, mut found: Scattered) {
        let touches = |other: &Scattered, found: &Scattered| {
            (other.inode, other.generation) == (found.inode, found.generation)
                && other.blocks.start <= found.blocks.end
                && found.blocks.start <= other.blocks.end
        };
        let mut place = None;
        while let Some(at) = self.queue.iter().position(|other| touches(other, &found))
            && let Some(other) = self.queue.remove(at)
        {
            found.blocks.start = found.blocks.start.min(other.blocks.start);
            found.blocks.end = found.blocks.end.max(other.blocks.end);
            place = Some(place.map_or(at, |place: usize| place.min(at)));
        }
        match place {
            Some(place) => self.queue.insert(place, found),
            None if self.queue.len() < QUEUE_MAX => self.queue.push_back(found),
            None => {}
        }
    }

    fn has_work(&self) -> bool {
        self.is_running || !self.queue.is_empty()
    }

    /// Takes what falls to one stripe off the queue.
    fn next(&mut self) -> Option<Scattered> {
        self.is_running = self.allowance.may_begin() && !self.queue.is_empty();
        if !self.is_running {
            return None;
        }
        let mut first = self.queue.pop_front()?;
        let stripe_end = Fbn((first.blocks.start.get() / STRIPE_BLOCKS + 1) * STRIPE_BLOCKS);
        let end = first.blocks.end.min(stripe_end);
        let piece = Scattered { blocks: first.blocks.start..end, ..first.clone() };
        first.blocks.start = end;
        if first.blocks.start < first.blocks.end {
            // Other files have their turn before the rest of this one.
            self.queue.push_back(first);
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{BlockNumber, Generation, InodeNumber};

    const SECOND: u64 = 1_000_000_000;

    fn found(inode: u64, blocks: std::ops::Range<u64>) -> Scattered {
        let blocks = Fbn(blocks.start)..Fbn(blocks.end);
        Scattered { inode: InodeNumber(inode), generation: Generation(1), blocks }
    }

    #[test]
    fn what_is_found_one_after_another_is_cut_by_stripes() {
        let scattered = ScatteredBlocks::default();
        for window in [0..64, 64..600, 200..400, 600..700] {
            scattered.note(found(70, window));
        }
        scattered.note(found(71, 0..64));
        assert_eq!(scattered.tick(0, 1), Some(found(70, 0..512)));
        assert_eq!(scattered.tick(1, 1), None, "one is on its way");
        scattered.put_back(found(70, 0..64));
        // Another file has its turn between.
        assert_eq!(scattered.tick(SECOND, 1), Some(found(71, 0..64)));
        assert_eq!(scattered.go_on(0), Some(found(70, 512..700)));
        assert_eq!(scattered.go_on(0), Some(found(70, 0..64)));
        assert_eq!(scattered.go_on(0), None);
    }

    #[test]
    fn no_more_than_its_share_is_written_in_a_second() {
        for volumes in [1, 4] {
            let all: Vec<_> = (0..volumes).map(|_| ScatteredBlocks::default()).collect();
            let mut written = 0;
            for tick in 0..200 {
                // For ten seconds there is nothing to do.
                if tick == 100 {
                    all.iter().for_each(|one| one.note(found(70, 0..1 << 30)));
                }
                for scattered in &all {
                    let mut piece = scattered.tick(tick * SECOND / 10, volumes);
                    while let Some(one) = piece {
                        let blocks = one.blocks.end.since(one.blocks.start);
                        written += blocks * BLOCK_SIZE_U64;
                        piece = scattered.go_on(blocks);
                    }
                }
            }
            is_about(written, 10 * BYTES_PER_SECOND);
        }
    }

    fn is_about(written: u64, expected: u64) {
        assert!(written.abs_diff(expected) < expected / 8, "{written} bytes in ten seconds");
    }

    #[test]
    fn what_is_found_in_any_order_is_one_range() {
        let scattered = ScatteredBlocks::default();
        scattered.note(found(71, 0..64));
        // Every second window first, so that there are as many ranges as there may be.
        for first in [64, 0] {
            for window in 0..QUEUE_MAX as u64 - 1 {
                let start = window * 128 + first;
                scattered.note(found(70, start..start + 64));
            }
        }
        let queue = &scattered.0.lock().queue;
        let expected = [found(71, 0..64), found(70, 0..(QUEUE_MAX as u64 - 1) * 128)];
        assert_eq!(queue.iter().cloned().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_queue_is_bounded() {
        let scattered = ScatteredBlocks::default();
        for inode in 0..1000 {
            scattered.note(found(inode, 0..64));
        }
        assert_eq!(scattered.0.lock().queue.len(), QUEUE_MAX);
    }
}
