//! Figures 5 to 8: operations of 4 KiB on one file, from a quarter of the memory to four times as
//! much.
//!
//! Invariants: a round has a new file, written in order; each load runs on the flexible and on the
//! traditional volume before the next one, and whose turn is first changes with the round.

use super::{FlexvolBench, FlexvolFigure};
use crate::flight::Flight;
use crate::latency::Latencies;
use crate::node::{BenchError, Node, NodePlan, wait};
use crate::numbers::Numbers;
use crate::summary::{Beside, Role, Row, Series, Unit};
use bytes::Bytes;
use file_service::{
    Caller, CreateMode, Done, FileHandle, FileService, FsError, SetAttributes, Stability, calls,
};
use platform::Clock;
use platform::linux::SystemClock;
use std::sync::Arc;

const SMALL: u64 = 4 << 10;
const LARGE: u64 = 1 << 20;
/// The size of a disk in files. Three of them have data: a file, what overwrites leave behind until
/// the commit, and the file of the round before while it is being freed.
const DISK_FILES: u64 = 2;
const FILE: &[u8] = b"file";

/// A kind of volume, with an engine of its own.
struct Side {
    node: Node,
    root: FileHandle,
}

pub(super) fn run(
    bench: &FlexvolBench,
    figures: &[FlexvolFigure],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for percent in &bench.sizes_percent {
        let bytes = (bench.memory.0 * percent / 100 / LARGE).max(1) * LARGE;
        let sides = [Side::start(bench, false, bytes)?, Side::start(bench, true, bytes)?];
        let mut found = vec![[Series::default(), Series::default()]; figures.len()];
        for round in 0..bench.rounds {
            progress(&format!("{percent} % of memory: round {} of {}", round + 1, bench.rounds));
            let mut files = Vec::new();
            for side in &sides {
                files.push(side.make_file(bytes)?);
            }
            for (figure, found) in figures.iter().zip(&mut found) {
                for turn in 0..sides.len() {
                    let at = (round + turn) % sides.len();
                    let (figure, file) = (*figure, files[at]);
                    let mut load = Load { bench, figure, file, bytes, next: 0 };
                    load.run(&sides[at], bench.round_nanoseconds / 2)?;
                    let (rate, latencies) = load.run(&sides[at], bench.round_nanoseconds)?;
                    found[at].rounds.push(rate);
                    found[at].latencies.add(&latencies);
                }
            }
            sides.iter().try_for_each(Side::remove_file)?;
        }
        for (figure, [flexible, traditional]) in figures.iter().zip(found) {
            let name = "traditional".to_owned();
            let role = Role::Orientation;
            rows.push(Row {
                load: format!("{}: {}, {percent} %", figure.name(), figure.load()),
                unit: Unit::Operations,
                ours: flexible,
                beside: vec![Beside { name, role, series: traditional }],
            });
        }
    }
    rows.sort_by(|one, other| one.load[..1].cmp(&other.load[..1]));
    Ok(rows)
}

fn failed(load: &'static str) -> impl Fn(FsError) -> BenchError {
    move |error| BenchError::Operation { load, error }
}

impl Side {
    fn start(bench: &FlexvolBench, traditional: bool, bytes: u64) -> Result<Self, BenchError> {
        let name = if traditional { "traditional" } else { "flexible" };
        let plan = NodePlan {
            disk_bytes: (bytes * DISK_FILES).max(1 << 30),
            memory_bytes: bench.memory.0,
            workers: bench.workers,
            traditional,
        };
        let node = Node::start(&bench.directory.join(name), plan)?;
        let root = wait(|done: Done<_>| {
            node.service.root(&Caller::root(), calls::Root { name: "bench".to_owned() }, done)
        });
        let root = root.map_err(failed("root"))?.handle;
        Ok(Self { node, root })
    }

    /// A consistency point commits all that was asked before.
    fn settle(&self) -> Result<(), BenchError> {
        for aggregate in self.node.engine.aggregates() {
            let committed = wait(|done| aggregate.request_consistency_point(Some(done)));
            committed.map_err(|error| BenchError::Engine(error.into()))?;
        }
        Ok(())
    }

    fn make_file(&self, bytes: u64) -> Result<FileHandle, BenchError> {
        let made = wait(|done| {
            let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
            let (directory, name) = (self.root, FILE.to_vec());
            let create = calls::Create { directory, name, mode, set };
            self.node.service.create(&Caller::root(), create, done);
        });
        let file = made.map_err(failed("create"))?.0.handle;
        let data = Bytes::from(vec![7; LARGE as usize]);
        let flight = Arc::new(Flight::default());
        for piece in 0..bytes / LARGE {
            self.write(&flight, (file, piece * LARGE, data.clone()), 8);
        }
        flight.drain().map_err(failed("filling the file"))?;
        self.settle()?;
        Ok(file)
    }

    /// The file's blocks are free again, as far as they come back at once.
    fn remove_file(&self) -> Result<(), BenchError> {
        let removed = wait(|done| {
            let remove = calls::Remove { directory: self.root, name: FILE.to_vec() };
            self.node.service.remove(&Caller::root(), remove, done);
        });
        removed.map_err(failed("remove"))?;
        let used = || self.node.engine.aggregates().iter().map(|one| one.active_blocks()).sum();
        let mut before: u64 = u64::MAX;
        while used() < before {
            before = used();
            self.settle()?;
        }
        Ok(())
    }

    fn write(
        &self,
        flight: &Arc<Flight>,
        (file, offset, data): (FileHandle, u64, Bytes),
        depth: usize,
    ) {
        let write = calls::Write { file, offset, data, stability: Stability::Unstable };
        let done = entered(flight, depth);
        self.node.service.write(&Caller::root(), write, done);
    }
}

/// Waits until fewer than `depth` operations are in flight. Counts one more, and gives the callback
/// for its answer.
fn entered<T: Send + 'static>(flight: &Arc<Flight>, depth: usize) -> Done<T> {
    flight.enter(depth);
    let (same, begun) = (Arc::clone(flight), SystemClock.monotonic_nanoseconds());
    Box::new(move |outcome| same.leave(outcome, SystemClock.monotonic_nanoseconds() - begun))
}

/// A load on a file of so many bytes.
struct Load<'a> {
    bench: &'a FlexvolBench,
    figure: FlexvolFigure,
    file: FileHandle,
    bytes: u64,
    /// The block that is next in order: a round goes on where the one before has ended.
    next: u64,
}

impl Load<'_> {
    /// Runs for so long; operations a second, and how long they took.
    fn run(&mut self, side: &Side, nanoseconds: u64) -> Result<(f64, Latencies), BenchError> {
        let (blocks, depth) = (self.bytes / SMALL, self.bench.depth);
        let mut numbers = Numbers::new(nanoseconds);
        let data = Bytes::from(vec![9; SMALL as usize]);
        let flight = Arc::new(Flight::default());
        let begin = SystemClock.monotonic_nanoseconds();
        let mut count = 0;
        while SystemClock.monotonic_nanoseconds() - begin < nanoseconds {
            let random = self.figure.is_random();
            let block = if random { numbers.next(blocks) } else { self.next % blocks };
            self.next += 1;
            let offset = block * SMALL;
            if self.figure.is_write() {
                side.write(&flight, (self.file, offset, data.clone()), depth);
            } else {
                let read = calls::Read { file: self.file, offset, count: SMALL as u32 };
                let done = entered(&flight, depth);
                side.node.service.read(&Caller::root(), read, done);
            }
            count += 1;
        }
        let latencies = flight.drain().map_err(failed(self.figure.load()))?;
        if self.figure.is_write() {
            side.settle()?;
        }
        let seconds = (SystemClock.monotonic_nanoseconds() - begin) as f64 / 1e9;
        Ok((count as f64 / seconds, latencies))
    }
}
