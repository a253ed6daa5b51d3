//! Where the readers of a file are going, and what to load ahead of them.
//!
//! A stream is read from left to right, give or take what pipelined calls are out of order; a file
//! may have some. Reading ahead begins when a stream had to wait for the disk, reaches further each
//! time that it has to wait again, and ends when what lies ahead turns out to be in memory: a file
//! in the cache is read without a look ahead. A reader that goes in equal steps ([`Stride`]), over
//! gaps or backward, is read ahead of in steps.
//!
//! Invariants: a stream asks for a block once on its way through a file; nothing is asked for
//! beyond the file's ends; what lies ahead of a stream is a share of the cache, so that a small
//! cache has room for some of them. A reader that is forgotten, since others came, begins anew.

use crate::overlay::STRIPE_BLOCKS;
use crate::stride::Stride;
use std::ops::Range;
use units::{BLOCK_SIZE_U64, Fbn};

/// How far from its expected place a read may begin and still be of the stream, counted in reads of
/// its own size: a client has so many under way.
const DISORDER_READS_MAX: u64 = 16;
/// And how far it is at most.
const DISORDER_BYTES_MAX: u64 = 16 << 20;
/// Reads that go on from one another before it is a stream: random reads of a small file come near
/// each other by chance.
const READS_MIN: u64 = 2;
/// Streams of a file that are remembered.
const STREAMS_MAX: usize = 4;
/// What the first look ahead covers.
const WINDOW_BLOCKS_MIN: u64 = 64;
/// What a look ahead covers at most: beyond a few mebibytes a disk gets no faster.
const WINDOW_BLOCKS_MAX: u64 = 1024;
/// And the share of the cache that it is at most.
const WINDOW_SHARE: u64 = 16;

/// A read, as streams see it.
#[derive(Clone, Copy, Debug)]
pub struct ReadNote {
    /// The bytes that were read.
    pub bytes: (u64, u64),
    /// Of a file of so many.
    pub size_bytes: u64,
    /// The disk was waited for.
    pub waited: bool,
    /// What the cache holds.
    pub cache_blocks: u64,
}

impl ReadNote {
    pub(crate) const fn length(&self) -> u64 {
        self.bytes.1.saturating_sub(self.bytes.0)
    }

    /// A window of so many blocks, grown after a wait.
    pub(crate) fn grown(&self, window_blocks: u64) -> u64 {
        let share = self.cache_blocks / WINDOW_SHARE;
        let most = share.clamp(WINDOW_BLOCKS_MIN, WINDOW_BLOCKS_MAX);
        (window_blocks * 2).clamp(WINDOW_BLOCKS_MIN, most)
    }
}

/// The streams of a file: see the module. A file that is always read whole at once, as small ones
/// are, has none, and takes no memory for them.
#[derive(Clone, Default, Debug)]
pub struct ReadStreams(Option<Box<Readers>>);

impl ReadStreams {
    /// Notes a read.
    pub fn note(&mut self, read: &ReadNote) -> Noted {
        let is_whole = read.bytes.0 == 0 && read.bytes.1 >= read.size_bytes;
        if is_whole && self.0.is_none() {
            return Noted::default();
        }
        self.0.get_or_insert_default().note(read)
    }

    /// Whether a read of these bytes is out of sequence: neither at the begin of the file nor about
    /// where a reader has come to.
    #[must_use]
    pub fn is_random(&self, bytes: (u64, u64)) -> bool {
        bytes.0 != 0 && self.0.as_ref().is_none_or(|readers| readers.is_random(bytes))
    }

    /// What lies ahead of the read of these bytes is in memory: no more looking until its reader
    /// waits again.
    pub fn rest(&mut self, bytes: (u64, u64)) {
        if let Some(readers) = &mut self.0 {
            readers.rest(bytes);
        }
    }
}

/// The streams of a file that was read in pieces.
#[derive(Clone, Default, Debug)]
struct Readers {
    /// The stream that was read last is first.
    streams: Vec<ReadStream>,
    stride: Stride,
}

/// See the module.
#[derive(Clone, Copy, Default, Debug)]
struct ReadStream {
    /// Where the next read is expected.
    next_byte: u64,
    /// The end of what was asked for ahead, in file blocks.
    asked_end: u64,
    /// Reads in a row that went on from one another.
    reads: u64,
    /// How many blocks to reach ahead; zero for none.
    window_blocks: u64,
    /// Runs of a stripe, from the file's begin, that need not be told as left behind.
    judged_runs: u64,
    /// Reads in a row, each where the last ended, that began behind; and where the last ended.
    late_reads: u64,
    late_end: u64,
}

/// File blocks that a read gives reason to load, or to judge.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Noted {
    /// The file blocks to be loaded ahead, if it is time for some.
    pub ahead: Vec<Range<Fbn>>,
    /// The last run of a stripe that a reader in order has left behind, if it reads from disk: each
    /// is told once.
    pub behind: Option<Range<Fbn>>,
}

impl Readers {
    fn note(&mut self, read: &ReadNote) -> Noted {
        let ahead = self.stride.note(read);
        if self.stride.is_reader() {
            return Noted { ahead, behind: None };
        }
        let Some(found) = self.stream_of(read.bytes) else {
            self.begin(read, 0);
            return Noted::default();
        };
        self.streams[..=found].rotate_right(1);
        let stream = &mut self.streams[0];
        if read.bytes.0 == 0 {
            // The file is read once more.
            self.streams.remove(0);
            self.begin(read, 0);
            return Noted::default();
        }
        if stream.note_late(read) {
            self.begin(read, DISORDER_READS_MAX);
            return Noted::default();
        }
        let ahead = stream.note(read).into_iter().collect();
        Noted { ahead, behind: stream.leave_behind(read) }
    }

    /// A reader has come, of whom so many reads are known.
    fn begin(&mut self, read: &ReadNote, reads: u64) {
        let (start, end) = read.bytes;
        let judged_runs = start / BLOCK_SIZE_U64 / STRIPE_BLOCKS;
        self.streams.truncate(STREAMS_MAX - 1);
        let stream = ReadStream { next_byte: end, reads, judged_runs, ..ReadStream::default() };
        self.streams.insert(0, stream);
    }

    fn is_random(&self, bytes: (u64, u64)) -> bool {
        self.stream_of(bytes).is_none() && !self.stride.expects(bytes.0)
    }

    /// The stream that a read goes on with.
    fn stream_of(&self, bytes: (u64, u64)) -> Option<usize> {
        self.nearest(bytes.0, bytes)
    }

    /// The stream that stands nearest to a place, if it may be that of a read of these bytes.
    fn nearest(&self, place: u64, (start, end): (u64, u64)) -> Option<usize> {
        let length = end.saturating_sub(start);
        let disorder = (length * DISORDER_READS_MAX).min(DISORDER_BYTES_MAX);
        let distance = |stream: &ReadStream| place.abs_diff(stream.next_byte);
        let places = self.streams.iter().map(distance).enumerate();
        let nearest = places.min_by_key(|(_, distance)| *distance);
        nearest.filter(|(_, distance)| *distance <= disorder).map(|(place, _)| place)
    }

    fn rest(&mut self, bytes: (u64, u64)) {
        if self.stride.is_reader() {
            self.stride.rest();
            return;
        }
        // It stands at the read's end, or beyond if its calls come out of order.
        if let Some(found) = self.nearest(bytes.1, bytes) {
            self.streams[found].window_blocks = 0;
        }
    }
}

impl ReadStream {
    fn note(&mut self, read: &ReadNote) -> Option<Range<Fbn>> {
        // Calls that come late tell nothing new, nor does a reader that goes backward.
        let goes_on = read.bytes.1 > self.next_byte;
        self.next_byte = self.next_byte.max(read.bytes.1);
        self.reads = self.reads.saturating_add(1);
        if read.waited && goes_on && self.reads >= READS_MIN {
            self.window_blocks = read.grown(self.window_blocks);
        }
        if self.window_blocks == 0 {
            return None;
        }
        let next = self.next_byte.div_ceil(BLOCK_SIZE_U64);
        let from = self.asked_end.max(next);
        let file_end = read.size_bytes.div_ceil(BLOCK_SIZE_U64);
        let to = (next + self.window_blocks).min(file_end);
        // Half a window at a time, so that requests are large.
        if to <= from || to - from < self.window_blocks / 2 && to < file_end {
            return None;
        }
        self.asked_end = to;
        Some(Fbn(from)..Fbn(to))
    }

    /// Notes a read that comes late, if this is one. Whether it is another reader's, though it
    /// begins near: it is one more of a sequence behind, longer than a client has calls under way.
    const fn note_late(&mut self, read: &ReadNote) -> bool {
        let (start, end) = read.bytes;
        // Nor is one at the file's end, which gets nothing.
        if end > self.next_byte || start == end {
            return false;
        }
        let goes_on = start == self.late_end;
        self.late_reads = if goes_on { self.late_reads + 1 } else { 0 };
        self.late_end = end;
        self.late_reads >= DISORDER_READS_MAX
    }

    /// The run of a stripe that the reader has left behind with this read, if it reads from disk.
    fn leave_behind(&mut self, read: &ReadNote) -> Option<Range<Fbn>> {
        let file_blocks = read.size_bytes.div_ceil(BLOCK_SIZE_U64);
        let runs = if self.next_byte >= read.size_bytes {
            file_blocks.div_ceil(STRIPE_BLOCKS)
        } else {
            self.next_byte / BLOCK_SIZE_U64 / STRIPE_BLOCKS
        };
        if runs <= self.judged_runs {
            return None;
        }
        self.judged_runs = runs;
        if self.window_blocks == 0 {
            return None;
        }
        let start = (runs - 1) * STRIPE_BLOCKS;
        Some(Fbn(start)..Fbn((start + STRIPE_BLOCKS).min(file_blocks)))
    }
}

#[cfg(test)]
mod tests;
