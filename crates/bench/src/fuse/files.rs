//! Loads on a file through the kernel, as a program makes them.
//!
//! Invariants: a thread has one call under way; buffers are aligned as `O_DIRECT` wants it; a round
//! is timed from the first call to the end of the last thread, or to the end of an fdatasync after
//! it ("+fsync"): without that, writes that a file system keeps in the page cache time memory.

use crate::buffer::Buffer;
use crate::latency::Latencies;
use crate::leftovers;
use crate::numbers::Numbers;
use crate::summary::Unit;
use platform::Clock;
use platform::linux::SystemClock;
use platform::thread::spawn;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

const SMALL_BYTES: usize = 4 << 10;
const LARGE_BYTES: usize = 256 << 10;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Read,
    Write,
}

/// What the page cache has to do with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cache {
    /// Nothing (`O_DIRECT`).
    Direct,
    /// It is asked first; a FUSE mount writes through it.
    Buffered,
    /// It is asked first, and a FUSE mount writes from it later.
    WriteBack,
    /// The same, with an fdatasync at the end.
    WriteBackSynced,
}

impl Cache {
    /// Whether a FUSE mount may keep writes.
    pub const fn is_write_back(self) -> bool {
        matches!(self, Self::WriteBack | Self::WriteBackSynced)
    }
}

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Case {
    pub direction: Direction,
    /// At random and small, or in order and large.
    pub random: bool,
    pub cache: Cache,
    pub threads: usize,
}

const fn case(direction: Direction, random: bool, cache: Cache, threads: usize) -> Case {
    Case { direction, random, cache, threads }
}

/// All of them, in the order they are run.
pub(super) const CASES: [Case; 17] = [
    case(Direction::Read, true, Cache::Direct, 1),
    case(Direction::Read, true, Cache::Direct, 8),
    case(Direction::Write, true, Cache::Direct, 1),
    case(Direction::Write, true, Cache::Direct, 8),
    case(Direction::Read, false, Cache::Direct, 1),
    case(Direction::Write, false, Cache::Direct, 1),
    case(Direction::Read, true, Cache::Buffered, 1),
    case(Direction::Read, true, Cache::Buffered, 8),
    case(Direction::Write, true, Cache::Buffered, 1),
    case(Direction::Write, true, Cache::Buffered, 8),
    case(Direction::Read, false, Cache::Buffered, 1),
    case(Direction::Write, false, Cache::Buffered, 1),
    case(Direction::Write, true, Cache::WriteBack, 1),
    case(Direction::Write, true, Cache::WriteBack, 8),
    case(Direction::Write, false, Cache::WriteBack, 1),
    case(Direction::Write, true, Cache::WriteBackSynced, 1),
    case(Direction::Write, false, Cache::WriteBackSynced, 1),
];

/// One thread's work.
struct Worker {
    file: Arc<File>,
    case: Case,
    file_bytes: u64,
    seed: u64,
    deadline: u64,
}

impl Case {
    pub fn name(self) -> String {
        let direction = match self.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        let size = if self.random { "4K" } else { "256K" };
        let cache = match self.cache {
            Cache::Direct => "direct",
            Cache::Buffered => "buffered",
            Cache::WriteBack => "write-back",
            Cache::WriteBackSynced => "write-back+fsync",
        };
        format!("{direction} {size} {cache} t{}", self.threads)
    }

    pub const fn unit(self) -> Unit {
        if self.random { Unit::Operations } else { Unit::Bytes }
    }

    const fn bytes(self) -> usize {
        if self.random { SMALL_BYTES } else { LARGE_BYTES }
    }

    /// One round on the file at `path`: the rate in the base unit, and latencies.
    pub fn run(
        self,
        path: &Path,
        file_bytes: u64,
        nanoseconds: u64,
    ) -> io::Result<(f64, Latencies)> {
        leftovers::load(|| self.measure(path, file_bytes, nanoseconds))
    }

    fn measure(
        self,
        path: &Path,
        file_bytes: u64,
        nanoseconds: u64,
    ) -> io::Result<(f64, Latencies)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if self.cache == Cache::Direct {
            options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
        }
        let file = Arc::new(options.open(path)?);
        let clock = SystemClock;
        let begin = clock.monotonic_nanoseconds();
        let deadline = begin + nanoseconds;
        let worker = |seed| Worker {
            file: Arc::clone(&file),
            case: self,
            file_bytes,
            seed: seed as u64 * 2 + 1,
            deadline,
        };
        let mut latencies = Latencies::default();
        if self.threads == 1 {
            latencies = worker(0).run()?;
        } else {
            let workers = (0..self.threads).map(|number| {
                let worker = worker(number);
                spawn("load", move || worker.run())
            });
            for worker in workers.collect::<io::Result<Vec<_>>>()? {
                let ended = worker.join().map_err(|_| io::Error::other("a thread panicked"))?;
                latencies.add(&ended?);
            }
        }
        let ended = clock.monotonic_nanoseconds();
        if self.direction == Direction::Write {
            // So that the next load does not pay for it.
            file.sync_data()?;
        }
        let is_synced = self.cache == Cache::WriteBackSynced;
        let ended = if is_synced { clock.monotonic_nanoseconds() } else { ended };
        let seconds = (ended - begin) as f64 / 1e9;
        let scale = if self.random { 1.0 } else { LARGE_BYTES as f64 };
        Ok((latencies.total() as f64 * scale / seconds, latencies))
    }
}

impl Worker {
    fn run(self) -> io::Result<Latencies> {
        let length = self.case.bytes();
        let mut memory = Buffer::new(length);
        let buffer = memory.bytes();
        let mut numbers = Numbers::new(self.seed);
        let (pieces, clock) = (self.file_bytes / length as u64, SystemClock);
        let mut latencies = Latencies::default();
        let (mut number, mut before) = (0, clock.monotonic_nanoseconds());
        // One call at least, however late this thread came to run.
        while !leftovers::is_ending() && (latencies.total() == 0 || before < self.deadline) {
            let piece = if self.case.random { numbers.next(pieces) } else { number % pieces };
            let offset = piece * length as u64;
            match self.case.direction {
                Direction::Read => self.file.read_exact_at(buffer, offset)?,
                Direction::Write => self.file.write_all_at(buffer, offset)?,
            }
            let now = clock.monotonic_nanoseconds();
            latencies.record(now - before);
            (number, before) = (number + 1, now);
        }
        Ok(latencies)
    }
}

/// Makes a file of `bytes` with data in it.
pub(super) fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    let data = vec![0x5a; LARGE_BYTES];
    for piece in 0..bytes / LARGE_BYTES as u64 {
        file.write_all_at(&data, piece * LARGE_BYTES as u64)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_runs_on_a_file() {
        const BYTES: u64 = 1 << 20;
        let name = format!("stroop-bench-files-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        make(&path, BYTES).unwrap();
        for case in CASES.into_iter().filter(|case| case.cache != Cache::Direct) {
            let (rate, latencies) = case.run(&path, BYTES, 1_000_000).unwrap();
            assert!(rate > 0.0 && latencies.total() > 0, "{}", case.name());
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), BYTES);
        std::fs::remove_file(&path).unwrap();
    }
}
