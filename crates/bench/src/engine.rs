//! The engine bench: the loads that matter first, each with many operations in flight.

use crate::node::{BenchError, Node, wait};
use crate::raw::RawFile;
use crate::summary::Figure;
use bytes::Bytes;
use file_service::{
    Caller, CreateMode, Done, FileHandle, FileService, FsError, SetAttributes, Stability,
};
use platform::Clock;
use platform::linux::SystemClock;
use platform::sync::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::Arc;
use units::ByteSize;

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct EngineBench {
    /// A directory for disks; it needs five times `file` of room.
    pub directory: PathBuf,
    /// The size of the file that is read and written.
    pub file: ByteSize,
    /// The memory of the engine.
    pub memory: ByteSize,
    /// Operations in flight.
    pub depth: usize,
    /// Rounds of each load.
    pub rounds: usize,
    /// Threads of the engine.
    pub workers: usize,
}

const SMALL: u64 = 4 << 10;
const LARGE: u64 = 1 << 20;
/// Operations of a round of loads that wait for the log.
const LOGGED_OPERATIONS: u64 = 4_000;
/// Operations of a round of loads in memory.
const MEMORY_OPERATIONS: u64 = 40_000;

/// Runs the bench; `progress` is told the name of each load.
///
/// # Errors
/// [`BenchError`].
pub fn engine(
    bench: &EngineBench,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Figure>, BenchError> {
    progress("making an aggregate");
    let disk_bytes = (bench.file.0 * 2).max(1 << 30);
    let node = Node::start(&bench.directory, disk_bytes, bench.memory.0, bench.workers)?;
    let loads = Loads { node: &node, bench, clock: SystemClock };
    let root = wait(|done: Done<_>| node.service.root("bench", done));
    let root = root.map_err(|error| failed("root", error))?.handle;
    let mut figures = Vec::new();

    progress("raw writes");
    let raw = loads.raw()?;
    progress("creates");
    figures.push(loads.creates(root)?.bounded("raw 4 KiB write+flush", raw));
    progress("sequential writes");
    let file = loads.make(root, "data", "sequential write 1 MiB")?;
    figures.push(loads.sequential_writes(file)?);
    progress("sequential reads");
    figures.push(loads.sequential_reads(file)?);
    progress("random reads");
    figures.push(loads.random_reads(file)?);
    progress("random writes");
    figures.push(loads.random_writes(file, Stability::Unstable, "random write 4 KiB, unstable")?);
    let stable = "random write 4 KiB, stable";
    figures.push(
        loads
            .random_writes(file, Stability::FileSync, stable)?
            .bounded("raw 4 KiB write+flush", raw),
    );
    Ok(figures)
}

fn failed(load: &'static str, error: FsError) -> BenchError {
    BenchError::Operation { load, error }
}

struct Loads<'a> {
    node: &'a Node,
    bench: &'a EngineBench,
    clock: SystemClock,
}

/// Keeps a number of operations in flight.
#[derive(Default)]
struct Flight {
    state: Mutex<(usize, Option<FsError>)>,
    changed: Condvar,
}

impl Flight {
    fn enter(&self, depth: usize) {
        let mut state = self.state.lock();
        while state.0 >= depth {
            self.changed.wait(&mut state);
        }
        state.0 += 1;
    }

    fn leave<T>(&self, outcome: Result<T, FsError>) {
        let mut state = self.state.lock();
        state.0 -= 1;
        if let Err(error) = outcome {
            state.1.get_or_insert(error);
        }
        self.changed.notify_one();
    }

    fn drain(&self) -> Result<(), FsError> {
        let mut state = self.state.lock();
        while state.0 > 0 {
            self.changed.wait(&mut state);
        }
        state.1.map_or(Ok(()), Err)
    }
}

/// A sequence of numbers that looks random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

impl Loads<'_> {
    /// Runs `count` operations a round; what `start` starts must call its `done`.
    fn run<T: Send + 'static>(
        &self,
        load: &'static str,
        (unit, scale): (&'static str, f64),
        count: u64,
        mut start: impl FnMut(u64, Done<T>),
    ) -> Result<Figure, BenchError> {
        let mut rounds = Vec::new();
        for round in 0..self.bench.rounds as u64 {
            let flight = Arc::new(Flight::default());
            let begin = self.clock.monotonic_nanoseconds();
            for number in 0..count {
                flight.enter(self.bench.depth);
                let same = Arc::clone(&flight);
                start(round * count + number, Box::new(move |outcome| same.leave(outcome)));
            }
            flight.drain().map_err(|error| failed(load, error))?;
            let seconds = (self.clock.monotonic_nanoseconds() - begin) as f64 / 1e9;
            rounds.push(count as f64 * scale / seconds);
        }
        Ok(Figure::of(load, unit, rounds))
    }

    fn raw(&self) -> Result<f64, BenchError> {
        let mut file = RawFile::create(&self.bench.directory)?;
        let (block, count) = (vec![1; SMALL as usize], 500);
        let begin = self.clock.monotonic_nanoseconds();
        for _ in 0..count {
            file.append(&block)?;
        }
        let seconds = (self.clock.monotonic_nanoseconds() - begin) as f64 / 1e9;
        Ok(f64::from(count) / seconds)
    }

    fn make(
        &self,
        root: FileHandle,
        name: &str,
        load: &'static str,
    ) -> Result<FileHandle, BenchError> {
        let made = wait(|done| {
            let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
            let caller = Caller::root();
            self.node.service.create(&caller, root, name.as_bytes(), mode, set, done);
        });
        made.map(|(entry, _)| entry.handle).map_err(|error| failed(load, error))
    }

    fn creates(&self, root: FileHandle) -> Result<Figure, BenchError> {
        let caller = Caller::root();
        self.run("create", ("files/s", 1.0), LOGGED_OPERATIONS, |number, done| {
            let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
            let name = format!("file{number}");
            self.node.service.create(&caller, root, name.as_bytes(), mode, set, done);
        })
    }

    fn sequential_writes(&self, file: FileHandle) -> Result<Figure, BenchError> {
        let (caller, count) = (Caller::root(), self.bench.file.0 / LARGE);
        let data = Bytes::from(vec![7; LARGE as usize]);
        let load = "sequential write 1 MiB";
        self.run(load, ("MiB/s", 1.0), count, |number, done| {
            let offset = number % count * LARGE;
            let stability = Stability::Unstable;
            self.node.service.write(&caller, file, offset, data.clone(), stability, done);
        })
    }

    fn sequential_reads(&self, file: FileHandle) -> Result<Figure, BenchError> {
        let (caller, count) = (Caller::root(), self.bench.file.0 / LARGE);
        self.run("sequential read 1 MiB", ("MiB/s", 1.0), count, |number, done| {
            let offset = number % count * LARGE;
            self.node.service.read(&caller, file, offset, LARGE as u32, done);
        })
    }

    fn random_reads(&self, file: FileHandle) -> Result<Figure, BenchError> {
        let (caller, mut numbers) = (Caller::root(), Numbers(1));
        let blocks = (self.bench.file.0 / SMALL).min(self.bench.memory.0 / 4 / SMALL);
        let load = "random read 4 KiB, cached";
        self.run(load, ("ops/s", 1.0), MEMORY_OPERATIONS, |_, done| {
            let offset = numbers.next(blocks) * SMALL;
            self.node.service.read(&caller, file, offset, SMALL as u32, done);
        })
    }

    fn random_writes(
        &self,
        file: FileHandle,
        stability: Stability,
        load: &'static str,
    ) -> Result<Figure, BenchError> {
        let (caller, mut numbers) = (Caller::root(), Numbers(2));
        let blocks = self.bench.file.0 / SMALL;
        let data = Bytes::from(vec![9; SMALL as usize]);
        let count = match stability {
            Stability::Unstable => MEMORY_OPERATIONS,
            Stability::DataSync | Stability::FileSync => LOGGED_OPERATIONS,
        };
        self.run(load, ("ops/s", 1.0), count, |_, done| {
            let offset = numbers.next(blocks) * SMALL;
            self.node.service.write(&caller, file, offset, data.clone(), stability, done);
        })
    }
}
