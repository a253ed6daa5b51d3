//! A reader of a file that goes in equal steps: over gaps, as through the columns of a table, or
//! backward.
//!
//! Invariants: those of [`crate::stream`]. Calls come in order: a reader with some under way loads
//! for itself. Steps that end where the next begins are a stream, and none of this module's.

use crate::stream::ReadNote;
use std::ops::Range;
use units::{BLOCK_SIZE_U64, Fbn};

/// Equal steps in a row before a reader is taken to go on so: calls that come out of order make
/// some by chance.
const READS_MIN: u32 = 4;
/// Steps to load ahead at most.
const STEPS_MAX: u64 = 64;

/// See the module.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stride {
    /// Where the last read began, and how long it was.
    start: u64,
    length: u64,
    /// From that of the read before it, in bytes.
    step: i64,
    /// Reads in a row that were such a step.
    reads: u32,
    /// Steps from the last read that are asked for.
    asked_steps: u64,
    /// How many blocks to have asked for; zero for none.
    window_blocks: u64,
}

impl Stride {
    /// Notes a read. The file blocks to be loaded ahead, if it is time for some.
    pub fn note(&mut self, read: &ReadNote) -> Vec<Range<Fbn>> {
        let (start, length) = (read.bytes.0, read.length());
        let step = start.wrapping_sub(self.start).cast_signed();
        self.start = start;
        if (step, length) != (self.step, self.length) {
            *self = Self { start, length, step, ..Self::default() };
            return Vec::new();
        }
        self.reads = self.reads.saturating_add(1);
        self.asked_steps = self.asked_steps.saturating_sub(1);
        if !self.is_reader() {
            return Vec::new();
        }
        if read.waited {
            self.window_blocks = read.grown(self.window_blocks);
        }
        let steps = (self.window_blocks * BLOCK_SIZE_U64 / length).min(STEPS_MAX);
        // Half a window at a time, so that requests are large.
        if self.asked_steps > steps / 2 || steps == 0 {
            return Vec::new();
        }
        let from = self.asked_steps + 1;
        self.asked_steps = steps;
        let places = (from..=steps).map_while(|number| self.place(number, read.size_bytes));
        joined(places)
    }

    /// Whether the last reads were such a reader's.
    pub const fn is_reader(&self) -> bool {
        let is_stream = self.step.cast_unsigned() == self.length;
        self.reads >= READS_MIN && self.step != 0 && self.length != 0 && !is_stream
    }

    /// Whether such a reader's next read begins here.
    pub const fn expects(&self, start: u64) -> bool {
        self.is_reader() && start == self.start.wrapping_add_signed(self.step)
    }

    /// Looking ahead is in vain until the reader waits again.
    pub const fn rest(&mut self) {
        self.window_blocks = 0;
    }

    /// The file blocks of a read so many steps on; none beyond an end of the file.
    fn place(&self, steps: u64, size_bytes: u64) -> Option<Range<Fbn>> {
        let distance = self.step.checked_mul(i64::try_from(steps).ok()?)?;
        let start = self.start.checked_add_signed(distance)?;
        let end = start.checked_add(self.length)?.min(size_bytes);
        let blocks = start / BLOCK_SIZE_U64..end.div_ceil(BLOCK_SIZE_U64);
        (start < end).then_some(Fbn(blocks.start)..Fbn(blocks.end))
    }
}

/// The same ranges in the same order; ranges that touch become one range.
fn joined(ranges: impl Iterator<Item = Range<Fbn>>) -> Vec<Range<Fbn>> {
    let mut joined: Vec<Range<Fbn>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end && last.start <= range.end => {
                last.start = last.start.min(range.start);
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}
