//! The engine bench: the loads that matter first, each with many operations in flight.

use crate::flight::Flight;
use crate::machine::Machine;
use crate::node::{BenchError, Node, NodePlan, wait};
use crate::numbers::Numbers;
use crate::raw::RawFile;
use crate::summary::{Beside, Report, Role, Row, Series, Unit};
use bytes::Bytes;
use file_service::{
    Caller, CreateMode, Done, FileHandle, FileService, FsError, SetAttributes, Stability, calls,
};
use platform::Clock;
use platform::linux::SystemClock;
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
/// Writes of a round to the bare disk.
const RAW_WRITES: u64 = 200;
/// Operations of a round of loads in memory.
const MEMORY_OPERATIONS: u64 = 40_000;

/// The bare disk: 4 KiB appended and flushed.
const RAW: &str = "disk 4K+flush";

/// Runs the bench; `progress` is told the name of each load.
///
/// # Errors
/// [`BenchError`].
pub fn engine(bench: &EngineBench, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    let machine = Machine::here();
    progress("making an aggregate");
    let disk_bytes = (bench.file.0 * 2).max(1 << 30);
    let (memory_bytes, workers) = (bench.memory.0, bench.workers);
    let plan = NodePlan { disk_bytes, memory_bytes, workers, traditional: false };
    let node = Node::start(&bench.directory, plan)?;
    let loads = Loads { node: &node, bench, clock: SystemClock };
    let root = wait(|done: Done<_>| {
        node.service.root(&Caller::root(), calls::Root { name: "bench".to_owned() }, done)
    });
    let root = root.map_err(|error| failed("root", error))?.handle;
    let mut rows = Vec::new();

    progress("raw writes");
    let raw = Beside { name: RAW.to_owned(), role: Role::Orientation, series: loads.raw()? };
    progress("creates");
    rows.push(beside(loads.creates(root)?, &raw));
    progress("sequential writes");
    let file = loads.make(root, "data", "write 1M")?;
    rows.push(loads.sequential_writes(file)?);
    progress("sequential reads");
    rows.push(loads.sequential_reads(file)?);
    progress("random reads");
    rows.push(loads.random_reads(file)?);
    progress("random writes");
    rows.push(loads.random_writes(file, Stability::Unstable, "write 4K unstable")?);
    rows.push(beside(loads.random_writes(file, Stability::FileSync, "write 4K stable")?, &raw));
    Ok(Report { machine, rows, notes: Vec::new(), spans: Vec::new() })
}

fn beside(mut row: Row, other: &Beside) -> Row {
    row.beside.push(other.clone());
    row
}

fn failed(load: &'static str, error: FsError) -> BenchError {
    BenchError::Operation { load, error }
}

struct Loads<'a> {
    node: &'a Node,
    bench: &'a EngineBench,
    clock: SystemClock,
}

impl Loads<'_> {
    /// Runs `count` operations a round; what `start` starts must call its `done`.
    fn run<T: Send + 'static>(
        &self,
        load: &'static str,
        (unit, scale): (Unit, f64),
        count: u64,
        mut start: impl FnMut(u64, Done<T>),
    ) -> Result<Row, BenchError> {
        let mut ours = Series::default();
        for round in 0..self.bench.rounds as u64 {
            let flight = Arc::new(Flight::default());
            let begin = self.clock.monotonic_nanoseconds();
            for number in 0..count {
                flight.enter(self.bench.depth);
                let (same, clock) = (Arc::clone(&flight), self.clock);
                let begun = clock.monotonic_nanoseconds();
                let done = move |outcome| {
                    same.leave(outcome, clock.monotonic_nanoseconds() - begun);
                };
                start(round * count + number, Box::new(done));
            }
            let latencies = flight.drain().map_err(|error| failed(load, error))?;
            ours.latencies.add(&latencies);
            let seconds = (self.clock.monotonic_nanoseconds() - begin) as f64 / 1e9;
            ours.rounds.push(count as f64 * scale / seconds);
        }
        Ok(Row { load: load.to_owned(), unit, ours, beside: Vec::new() })
    }

    fn raw(&self) -> Result<Series, BenchError> {
        let mut file = RawFile::create(&self.bench.directory)?;
        let block = vec![1; SMALL as usize];
        let mut series = Series::default();
        for _ in 0..self.bench.rounds {
            let begin = self.clock.monotonic_nanoseconds();
            let mut last = begin;
            for _ in 0..RAW_WRITES {
                file.append(&block)?;
                let now = self.clock.monotonic_nanoseconds();
                series.latencies.record(now - last);
                last = now;
            }
            series.rounds.push(RAW_WRITES as f64 * 1e9 / (last - begin) as f64);
        }
        Ok(series)
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
            self.node.service.create(
                &caller,
                calls::Create { directory: root, name: name.as_bytes().to_vec(), mode, set },
                done,
            );
        });
        made.map(|(entry, _)| entry.handle).map_err(|error| failed(load, error))
    }

    fn creates(&self, root: FileHandle) -> Result<Row, BenchError> {
        let caller = Caller::root();
        self.run("create", (Unit::Files, 1.0), LOGGED_OPERATIONS, |number, done| {
            let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
            let name = format!("file{number}");
            self.node.service.create(
                &caller,
                calls::Create { directory: root, name: name.as_bytes().to_vec(), mode, set },
                done,
            );
        })
    }

    fn sequential_writes(&self, file: FileHandle) -> Result<Row, BenchError> {
        let (caller, count) = (Caller::root(), self.bench.file.0 / LARGE);
        let data = Bytes::from(vec![7; LARGE as usize]);
        let load = "write 1M";
        self.run(load, (Unit::Bytes, LARGE as f64), count, |number, done| {
            let offset = number % count * LARGE;
            let stability = Stability::Unstable;
            self.node.service.write(
                &caller,
                calls::Write { file, offset, data: data.clone(), stability },
                done,
            );
        })
    }

    fn sequential_reads(&self, file: FileHandle) -> Result<Row, BenchError> {
        let (caller, count) = (Caller::root(), self.bench.file.0 / LARGE);
        self.run("read 1M", (Unit::Bytes, LARGE as f64), count, |number, done| {
            let offset = number % count * LARGE;
            self.node.service.read(
                &caller,
                calls::Read { file, offset, count: LARGE as u32 },
                done,
            );
        })
    }

    fn random_reads(&self, file: FileHandle) -> Result<Row, BenchError> {
        let (caller, mut numbers) = (Caller::root(), Numbers::new(1));
        let blocks = (self.bench.file.0 / SMALL).min(self.bench.memory.0 / 4 / SMALL);
        let load = "read 4K cached";
        self.run(load, (Unit::Operations, 1.0), MEMORY_OPERATIONS, |_, done| {
            let offset = numbers.next(blocks) * SMALL;
            self.node.service.read(
                &caller,
                calls::Read { file, offset, count: SMALL as u32 },
                done,
            );
        })
    }

    fn random_writes(
        &self,
        file: FileHandle,
        stability: Stability,
        load: &'static str,
    ) -> Result<Row, BenchError> {
        let (caller, mut numbers) = (Caller::root(), Numbers::new(3));
        let blocks = self.bench.file.0 / SMALL;
        let data = Bytes::from(vec![9; SMALL as usize]);
        let count = match stability {
            Stability::Unstable => MEMORY_OPERATIONS,
            Stability::DataSync | Stability::FileSync => LOGGED_OPERATIONS,
        };
        self.run(load, (Unit::Operations, 1.0), count, |_, done| {
            let offset = numbers.next(blocks) * SMALL;
            self.node.service.write(
                &caller,
                calls::Write { file, offset, data: data.clone(), stability },
                done,
            );
        })
    }
}
