//! A file that threads write and read, with plain calls of the file system.
//!
//! Invariants: a thread has one call under way; a write is timed until an fsync after it has ended.
//! Each block begins with its number, and a read that finds another number there fails. An
//! interrupt ends a load early. The data that the load has written is made durable then, too, so
//! that unmounting has nothing left to write.

use crate::buffer::Buffer;
use crate::latency::Latencies;
use crate::leftovers;
use crate::measured::{Measured, client_nanoseconds};
use crate::numbers::Numbers;
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::thread::spawn;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use units::{BLOCK_SIZE, BLOCK_SIZE_U64};

/// See the module.
pub(crate) struct StreamFile {
    file: Arc<File>,
    bytes: u64,
    /// Of requests in order.
    request_bytes: usize,
}

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// The pieces that a thread moves.
#[derive(Clone, Copy)]
struct Pieces {
    direction: Direction,
    length: usize,
    /// Writes of a thread from one fdatasync to its next.
    writes_per_sync: Option<u64>,
}

impl Pieces {
    const fn new(direction: Direction, length: usize) -> Self {
        Self { direction, length, writes_per_sync: None }
    }
}

impl StreamFile {
    /// A file of `bytes`, which requests in order move in pieces of `request_bytes`.
    pub fn new(file: File, bytes: u64, request_bytes: usize) -> Self {
        Self { file: Arc::new(file), bytes, request_bytes }
    }

    /// All of it in order, until it is durable.
    pub fn write(&self, depth: usize) -> io::Result<Measured> {
        self.in_order(Direction::Write, depth)
    }

    /// All of it in order.
    pub fn read(&self, depth: usize) -> io::Result<Measured> {
        self.in_order(Direction::Read, depth)
    }

    /// Blocks at random, a quarter as many as there are, until they are durable.
    pub fn overwrite(&self, depth: usize) -> io::Result<Measured> {
        let blocks = self.bytes / BLOCK_SIZE_U64;
        let begun = AtomicU64::new(0);
        let next = move |numbers: &mut Numbers, _| {
            (begun.fetch_add(1, Ordering::Relaxed) < blocks / 4).then(|| numbers.next(blocks))
        };
        self.run(Pieces::new(Direction::Write, BLOCK_SIZE), depth, next)
    }

    /// Blocks at random for so long, until they are durable. Each thread has its writes made
    /// durable after `writes_per_sync` of them; the last of these takes as long as that.
    pub fn overwrite_for(
        &self,
        depth: usize,
        nanoseconds: u64,
        writes_per_sync: u64,
    ) -> io::Result<Measured> {
        let pieces = Pieces::new(Direction::Write, BLOCK_SIZE);
        let pieces = Pieces { writes_per_sync: Some(writes_per_sync), ..pieces };
        self.run(pieces, depth, self.at_random_for(nanoseconds))
    }

    /// So many blocks at random, which nothing here makes durable.
    pub fn change(&self, count: u64, numbers: &mut Numbers) -> io::Result<()> {
        let blocks = self.bytes / BLOCK_SIZE_U64;
        let pieces = Pieces::new(Direction::Write, BLOCK_SIZE);
        let next = |done| (done < count).then(|| numbers.next(blocks));
        leftovers::load(|| move_pieces(&self.file, pieces, next)).map(drop)
    }

    /// Blocks at random for so long.
    pub fn read_random(&self, depth: usize, nanoseconds: u64) -> io::Result<Measured> {
        let pieces = Pieces::new(Direction::Read, BLOCK_SIZE);
        self.run(pieces, depth, self.at_random_for(nanoseconds))
    }

    /// Numbers of blocks, from now on for so long.
    fn at_random_for(
        &self,
        nanoseconds: u64,
    ) -> impl Fn(&mut Numbers, u64) -> Option<u64> + Send + Sync + 'static + use<> {
        let blocks = self.bytes / BLOCK_SIZE_U64;
        let deadline = SystemClock.monotonic_nanoseconds() + nanoseconds;
        // One at the least: a thread may begin late.
        move |numbers, done| {
            let is_time = done == 0 || SystemClock.monotonic_nanoseconds() < deadline;
            is_time.then(|| numbers.next(blocks))
        }
    }

    fn in_order(&self, direction: Direction, depth: usize) -> io::Result<Measured> {
        let count = self.bytes / self.request_bytes as u64;
        let begun = AtomicU64::new(0);
        let next = move |_: &mut Numbers, _| {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            (number < count).then_some(number)
        };
        self.run(Pieces::new(direction, self.request_bytes), depth, next)
    }

    /// Moves pieces on `depth` threads, each until `next` has no number for it. That is told how
    /// many the thread has done.
    fn run(
        &self,
        pieces: Pieces,
        depth: usize,
        next: impl Fn(&mut Numbers, u64) -> Option<u64> + Send + Sync + 'static,
    ) -> io::Result<Measured> {
        let next = Arc::new(next);
        let start = |number: u64| {
            let (next, file) = (Arc::clone(&next), Arc::clone(&self.file));
            // Small seeds would have all threads begin with small numbers.
            let mut numbers = Numbers::new((number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let body = move || move_pieces(&file, pieces, |done| next(&mut numbers, done));
            spawn("stream", body)
        };
        leftovers::load(|| {
            let client_begin = client_nanoseconds();
            let begin = SystemClock.monotonic_nanoseconds();
            let threads = (0..depth as u64).map(start).collect::<io::Result<Vec<_>>>()?;
            let mut latencies = Latencies::default();
            for thread in threads {
                let ended = thread.join().map_err(|_| io::Error::other("a thread panicked"))?;
                latencies.add(&ended?);
            }
            if pieces.direction == Direction::Write {
                self.file.sync_all()?;
            }
            let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
            let client_nanoseconds = client_nanoseconds() - client_begin;
            let operations = latencies.total();
            Ok(Measured { operations, nanoseconds, client_nanoseconds, latencies })
        })
    }
}

/// What one thread does.
fn move_pieces(
    file: &File,
    pieces: Pieces,
    mut next: impl FnMut(u64) -> Option<u64>,
) -> io::Result<Latencies> {
    let Pieces { direction, length, writes_per_sync } = pieces;
    let mut buffer = Buffer::new(length);
    let bytes = buffer.bytes();
    let mut latencies = Latencies::default();
    let blocks = length as u64 / BLOCK_SIZE_U64;
    while !leftovers::is_ending()
        && let Some(piece) = next(latencies.total())
    {
        let offset = piece * length as u64;
        if direction == Direction::Write {
            let blocks = bytes.chunks_exact_mut(BLOCK_SIZE).zip(piece * blocks..);
            blocks.for_each(|(block, number)| block[..8].copy_from_slice(&number.to_le_bytes()));
        }
        let begin = SystemClock.monotonic_nanoseconds();
        match direction {
            Direction::Read => file.read_exact_at(bytes, offset)?,
            Direction::Write => file.write_all_at(bytes, offset)?,
        }
        let written = latencies.total() + 1;
        if writes_per_sync.is_some_and(|writes| written.is_multiple_of(writes)) {
            file.sync_data()?;
        }
        latencies.record(SystemClock.monotonic_nanoseconds() - begin);
        if direction == Direction::Read {
            let mut blocks = bytes.chunks_exact(BLOCK_SIZE).zip(piece * blocks..);
            if let Some((_, number)) =
                blocks.find(|(block, number)| block[..8] != number.to_le_bytes())
            {
                return Err(io::Error::other(format!(
                    "block {number} does not hold the data that was written to it"
                )));
            }
        }
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{OpenOptions, remove_file};

    const BYTES: u64 = 1 << 20;

    #[test]
    fn all_of_it_is_moved_once_and_a_foreign_block_is_noticed() {
        let path = std::env::temp_dir().join(format!("stream-file-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        let stream = StreamFile::new(file.try_clone().unwrap(), BYTES, 256 << 10);
        assert_eq!(stream.write(8).unwrap().operations, 4);
        assert_eq!(file.metadata().unwrap().len(), BYTES);
        assert_eq!(stream.read(8).unwrap().operations, 4);
        assert_eq!(stream.overwrite(32).unwrap().operations, 64, "a quarter of the blocks");
        let random = stream.read_random(32, 1).unwrap();
        assert!(random.operations >= 32 && random.nanoseconds > 0, "one on each thread");
        assert!(stream.overwrite_for(4, 1, 1).unwrap().operations >= 4, "one on each thread");
        stream.change(16, &mut Numbers::new(1)).unwrap();
        assert_eq!(stream.read(8).unwrap().operations, 4, "each block has its number again");
        file.write_all_at(&7_u64.to_le_bytes(), 9 * BLOCK_SIZE_U64).unwrap();
        let noticed = stream.read(2).unwrap_err().to_string();
        assert!(noticed.contains("block 9 "), "{noticed}");
        remove_file(path).unwrap();
    }
}
