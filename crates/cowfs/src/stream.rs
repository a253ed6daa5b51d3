//! Where the readers of a file are going, and how far to read ahead of them.
//!
//! A stream is read from left to right, give or take what pipelined calls are out of order. Reading
//! ahead begins when a stream had to wait for the disk, reaches further each time that it has to
//! wait again, and ends when what lies ahead turns out to be in memory: a file in the cache is read
//! without a look ahead.
//!
//! Invariants: a block is asked for once on the way through a file; nothing is asked for beyond the
//! file's end; what lies ahead of a stream is a share of the cache, so that a small cache has room
//! for some of them.

use std::ops::Range;
use units::{BLOCK_SIZE_U64, Fbn};

/// How far from its expected place a read may begin and still be of the stream: the calls that a
/// client has under way.
const DISORDER_BYTES_MAX: u64 = 2 << 20;
/// The same, counted in reads of its own size, for telling a read at random from one of a sequence:
/// a client has so many under way.
const DISORDER_READS_MAX: u64 = 16;
/// Reads that go on from one another before it is a stream: random reads of a small file come near
/// each other by chance.
const READS_MIN: u32 = 2;
/// What the first look ahead covers.
const WINDOW_BLOCKS_MIN: u64 = 64;
/// What a look ahead covers at most: beyond a few mebibytes a disk gets no faster.
const WINDOW_BLOCKS_MAX: u64 = 1024;
/// And the share of the cache that it is at most.
const WINDOW_SHARE: u64 = 16;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadStream {
    /// Where the next read is expected.
    next_byte: u64,
    /// Where the last read ended.
    last_end: u64,
    /// The end of what was asked for ahead, in file blocks.
    asked_end: u64,
    /// Reads in a row that went on from one another.
    reads: u32,
    /// How many blocks to reach ahead; zero for none.
    window_blocks: u64,
}

impl ReadStream {
    /// Notes that the bytes `start..end` were read, in a file of `size_bytes`; `waited` says that
    /// the disk was waited for. The file blocks to be loaded ahead into a cache of so many, if it
    /// is time for some.
    pub fn note(
        &mut self,
        (start, end): (u64, u64),
        size_bytes: u64,
        waited: bool,
        cache_blocks: u64,
    ) -> Option<Range<Fbn>> {
        if start.abs_diff(self.next_byte) > DISORDER_BYTES_MAX {
            *self = Self { next_byte: end, last_end: end, ..Self::default() };
            return None;
        }
        self.last_end = end;
        self.next_byte = self.next_byte.max(end);
        self.reads = self.reads.saturating_add(1);
        if waited && self.reads >= READS_MIN {
            let share = (cache_blocks / WINDOW_SHARE).clamp(WINDOW_BLOCKS_MIN, WINDOW_BLOCKS_MAX);
            self.window_blocks = (self.window_blocks * 2).clamp(WINDOW_BLOCKS_MIN, share);
        }
        if self.window_blocks == 0 {
            return None;
        }
        let next = self.next_byte.div_ceil(BLOCK_SIZE_U64);
        let from = self.asked_end.max(next);
        let file_end = size_bytes.div_ceil(BLOCK_SIZE_U64);
        let to = (next + self.window_blocks).min(file_end);
        // Half a window at a time, so that requests are large.
        if to <= from || to - from < self.window_blocks / 2 && to < file_end {
            return None;
        }
        self.asked_end = to;
        Some(Fbn(from)..Fbn(to))
    }

    /// Whether a read of the bytes `start..end` is out of sequence: neither at the begin of the
    /// file nor about where the last one ended.
    #[must_use]
    pub fn is_random(&self, (start, end): (u64, u64)) -> bool {
        let near = (end.saturating_sub(start) * DISORDER_READS_MAX).min(DISORDER_BYTES_MAX);
        start != 0 && start.abs_diff(self.last_end) > near
    }

    /// What lies ahead is in memory: no more looking until the stream waits again.
    pub const fn rest(&mut self) {
        self.window_blocks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::BlockNumber;

    const SIZE: u64 = 64 << 20;
    const STEP: u64 = 128 << 10;
    const CACHE: u64 = 1 << 20;

    #[test]
    fn a_stream_that_waits_is_read_ahead_of_to_its_end_and_no_block_twice() {
        let mut stream = ReadStream::default();
        let mut asked = Vec::new();
        for start in (0..SIZE).step_by(STEP as usize) {
            let waited =
                asked.iter().all(|range: &Range<Fbn>| range.end.get() * 4096 < start + STEP);
            asked.extend(stream.note((start, start + STEP), SIZE, waited, CACHE));
        }
        assert!(asked.windows(2).all(|pair| pair[0].end == pair[1].start), "{asked:?}");
        assert_eq!(asked.last().map(|range| range.end), Some(Fbn(SIZE / 4096)));
        assert!(asked.iter().all(|range| range.end.since(range.start) <= WINDOW_BLOCKS_MAX));
    }

    #[test]
    fn a_look_ahead_covers_a_small_share_of_the_cache() {
        let window = |cache_blocks: u64| {
            let mut stream = ReadStream::default();
            for start in (0..SIZE).step_by(STEP as usize) {
                stream.note((start, start + STEP), SIZE, true, cache_blocks);
            }
            stream.window_blocks
        };
        assert_eq!(window(1 << 30), WINDOW_BLOCKS_MAX);
        assert_eq!(window(8 << 10), 512);
        assert_eq!(window(100), WINDOW_BLOCKS_MIN);
    }

    #[test]
    fn reads_at_random_are_told_from_sequences() {
        let read = |at: u64, size: u64| (at * size, (at + 1) * size);
        let random = |stream: &mut ReadStream, range| {
            let is_random = stream.is_random(range);
            stream.note(range, SIZE, true, CACHE);
            is_random
        };
        // From the begin, as calls under way come out of order; again from the begin; on.
        let mut stream = ReadStream::default();
        for at in [0, 2, 1, 3, 7, 5, 6, 4, 8, 0, 1, 2, 12, 11] {
            assert!(!random(&mut stream, read(at, STEP)), "read {at}");
        }
        // In a small file, too.
        let mut stream = ReadStream::default();
        for at in [200, 100, 50, 250, 120] {
            assert!(random(&mut stream, read(at, 4096)), "read {at}");
        }
        assert!(!random(&mut stream, read(121, 4096)));
    }

    #[test]
    fn nothing_is_asked_for_random_reads_nor_for_cached_ones() {
        let mut stream = ReadStream { next_byte: 1 << 30, ..ReadStream::default() };
        for index in 0..100_u64 {
            let start = index * 37 % 100 * (8 << 20);
            assert_eq!(
                stream.note((start, start + 4096), 1 << 40, true, CACHE),
                None,
                "read {index}"
            );
        }
        let mut stream = ReadStream::default();
        for start in (0..SIZE).step_by(STEP as usize) {
            assert_eq!(stream.note((start, start + STEP), SIZE, false, CACHE), None);
        }
        assert!(stream.note((SIZE, SIZE + STEP), 2 * SIZE, true, CACHE).is_some());
        stream.rest();
        assert_eq!(stream.note((SIZE + STEP, SIZE + 2 * STEP), 2 * SIZE, false, CACHE), None);
    }
}
