//! The engine on more cores and disks than this machine has, in modelled time (decision 58).
//!
//! The engine is the real one, and so is its scheduler. Each call, message and completion really
//! runs, one after another on one thread. The processor time that it takes is charged to one of the
//! model's cores; its affinity stays taken for that time, and what it has started begins no earlier
//! ([`world`], [`cores`]). Disks answer when a device of a given bandwidth and latency would
//! ([`disk`]).
//!
//! Not in the model: sockets and the wire format; the kernel's own work on requests; waiting for
//! locks; caches and memory that cores share, so that processor time does not grow with cores; the
//! window that bounds writes in a device.
//!
//! Invariants: what is written counts until a consistency point has all of it on the disks; with
//! fixed costs the same bench gives the same figures; with measured costs only the costs differ
//! from run to run.
//!
//! Fails: with the first error of an operation.

mod cores;
mod disk;
mod figures;
mod rig;
mod streams;
mod usage;
mod world;

#[cfg(test)]
mod tests;

use crate::machine::Machine;
use crate::node::BenchError;
use file_service::FileHandle;
use rig::Rig;
use std::sync::atomic::Ordering;
use streams::Requests;
use units::ByteSize;
use world::Costs;

pub use disk::Medium;
pub use figures::{Bound, PhaseShare, Shares};
pub use streams::Direction;

/// What to model.
#[derive(Clone, Debug)]
pub struct ModelBench {
    /// Counts of cores, each with each count of disks.
    pub cores: Vec<usize>,
    /// Counts of disks. One disk has no parity, others are raid4.
    pub disks: Vec<usize>,
    /// Disks of a group at most, the one of parity included.
    pub group_size: usize,
    /// What the disks are.
    pub medium: Medium,
    /// The bytes that all streams together write, and read again.
    pub size: ByteSize,
    /// The memory of the engine.
    pub memory: ByteSize,
    /// Volumes.
    pub volumes: usize,
    /// Files of each volume; each file is a stream.
    pub files: usize,
    /// Requests that each stream has under way.
    pub depth: usize,
    /// Bytes of a request.
    pub request: ByteSize,
    /// Threads that run disks' completions; as many as a node has with the cores, if not given.
    pub completion_threads: Option<usize>,
    /// Rounds; the median counts.
    pub rounds: usize,
}

impl ModelBench {
    const fn streams(&self) -> usize {
        self.volumes * self.files
    }
}

/// Cores and disks of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Cores.
    pub cores: usize,
    /// Disks.
    pub disks: usize,
    /// Disks of a group at most, the one of parity included.
    pub group_size: usize,
}

impl Shape {
    /// Groups of raid4; a single disk is none.
    #[must_use]
    pub const fn groups(&self) -> usize {
        if self.disks == 1 { 0 } else { self.disks.div_ceil(self.group_size) }
    }

    /// Disks without those of parity.
    #[must_use]
    pub const fn data_disks(&self) -> usize {
        self.disks - self.groups()
    }
}

/// A round of a load.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelRound {
    /// Bytes a second.
    pub rate: u64,
    /// How busy each part was.
    pub shares: Shares,
}

/// A load on a case.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelRow {
    /// The case.
    pub shape: Shape,
    /// The load.
    pub direction: Direction,
    /// In the order of their rates.
    pub rounds: Vec<ModelRound>,
}

impl ModelRow {
    /// The round in the middle.
    #[must_use]
    pub fn median(&self) -> Option<&ModelRound> {
        self.rounds.get(self.rounds.len() / 2)
    }
}

/// What came out.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelReport {
    /// The machine that processor times were measured on.
    pub machine: Machine,
    /// The loads.
    pub rows: Vec<ModelRow>,
}

/// Runs the model; `progress` is told the name of each case.
///
/// # Errors
/// [`BenchError`].
pub fn model(
    bench: &ModelBench,
    progress: &mut dyn FnMut(&str),
) -> Result<ModelReport, BenchError> {
    let machine = Machine::here();
    let mut rows = Vec::new();
    for &disks in &bench.disks {
        for &cores in &bench.cores {
            let shape = Shape { cores, disks, group_size: bench.group_size };
            let row = |direction| ModelRow { shape, direction, rounds: Vec::new() };
            rows.extend([row(Direction::Write), row(Direction::Read)]);
        }
    }
    for round in 0..bench.rounds {
        for pair in rows.chunks_mut(2) {
            let Some(ModelRow { shape, .. }) = pair.first() else { continue };
            let (shape, of) = (*shape, bench.rounds);
            let Shape { cores, disks, .. } = shape;
            progress(&format!("round {} of {of}: {cores} cores, {disks} disks", round + 1));
            let [written, read] = run(bench, shape, Costs::Measured)?;
            pair.iter_mut().zip([written, read]).for_each(|(row, round)| row.rounds.push(round));
        }
    }
    rows.iter_mut().for_each(|row| row.rounds.sort_by_key(|round| round.rate));
    Ok(ModelReport { machine, rows })
}

/// A round of a case: written, and read.
fn run(bench: &ModelBench, shape: Shape, costs: Costs) -> Result<[ModelRound; 2], BenchError> {
    let mut rig = Rig::new(bench, shape, costs)?;
    let mut files = Vec::new();
    for file in 0..bench.files {
        for volume in 0..bench.volumes {
            files.push(rig.new_file(volume, file)?);
        }
    }
    let written = load(bench, &mut rig, &files, Direction::Write)?;
    Ok([written, load(bench, &mut rig, &files, Direction::Read)?])
}

fn load(
    bench: &ModelBench,
    rig: &mut Rig,
    files: &[FileHandle],
    direction: Direction,
) -> Result<ModelRound, BenchError> {
    let (request_bytes, depth) = (bench.request.0, bench.depth);
    let count = bench.size.0 / files.len() as u64 / request_bytes;
    let aggregate = rig.aggregate();
    let points = || {
        let points = &aggregate.statistics.consistency_points;
        let back_to_back = &aggregate.statistics.back_to_back;
        (points.load(Ordering::Relaxed), back_to_back.load(Ordering::Relaxed))
    };
    let before = points();
    // What came before does not count.
    let (_, _) = (rig.cores.take_usage(), rig.take_busy());
    streams::run(rig, files, Requests { direction, request_bytes, count, depth })?;
    if direction == Direction::Write {
        // A COMMIT may be answered with data that is in the log alone.
        rig.commit()?;
    }
    let usage = rig.cores.take_usage();
    let points = (points().0 - before.0, points().1 - before.1);
    let shares = Shares::new(&usage, rig.completion_threads, &rig.take_busy(), points);
    let bytes = u128::from(files.len() as u64 * count * request_bytes);
    let rate = bytes * 1_000_000_000 / u128::from(usage.elapsed().max(1));
    Ok(ModelRound { rate: u64::try_from(rate).unwrap_or(u64::MAX), shares })
}
