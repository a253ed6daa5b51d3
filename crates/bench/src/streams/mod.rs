//! Streams: a file much larger than memory, written and read in order, and overwritten at random
//! between: what benches over NFS and on mounts have in common.
//!
//! | module | does |
//! | --- | --- |
//! | `line` | a load on one aggregate in all rounds, and what stands beside it |
//! | `activity` | what a node wrote down of its threads |
//! | `bare` | the bare disk |
//! | `device` | what the device moves |
//! | `file` | threads that move a file |
//! | `shape` | the aggregates that are measured, and who stands beside each |
//!
//! A file that was overwritten at random is read twice: with `--reallocate auto` our server begins
//! to put it in order during the first read.
//!
//! What the device moved is told for each byte of a load: a server that writes each block twice,
//! or reads blocks that no call asked for, is not compared by its rate alone.
//!
//! Invariants: a write is timed until it is durable; before a load that is to find nothing in
//! memory the page cache of this machine is emptied, where the side has it.

mod activity;
mod bare;
mod device;
mod file;
mod line;
mod shape;

pub(crate) use activity::Trace;
pub(crate) use bare::BareDisk;
pub(crate) use file::StreamFile;
pub(crate) use line::{Line, Outcome, report};
pub(crate) use shape::{SHAPES, Shape};

use crate::measured::Sample;
use crate::node::BenchError;
use crate::process::NodeBench;
use crate::summary::Unit;
use device::Device;
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::sync::{Condvar, Mutex};
use std::time::Duration;
use units::BLOCK_SIZE_U64;

/// Bytes of a large transfer.
pub(crate) const LARGE_BYTES: u32 = 256 << 10;
/// Large transfers under way.
pub(crate) const LARGE_DEPTH: usize = 8;
/// Blocks under way, of loads at random.
pub(crate) const SMALL_DEPTH: usize = 32;
/// A rest is as long as it takes to write the file at this rate: half of what read reallocation
/// does (docs/decisions/0054).
const REST_BYTES_PER_SECOND: f64 = (32 << 20) as f64;

/// What is done with the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    WriteFresh,
    /// Not measured: the second time that the file is written.
    Rewrite,
    WriteWarm,
    /// Blocks of a small file at random, durable when answered, one at a time.
    Durable,
    /// The same beside a client that writes the file once more, on its own connection.
    DurableBeside,
    Read,
    /// Random blocks, a quarter as many as the file has.
    Overwrite,
    ReadAged,
    /// Not measured: nothing is asked of our server, as long as it may take to put the file in
    /// order. That has begun with the read before.
    Rest,
    ReadAgain,
    ReadRandom,
}

impl Load {
    /// Its name; none if it is not measured.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::WriteFresh => Some("write fresh"),
            Self::Rewrite | Self::Rest => None,
            Self::WriteWarm => Some("write warm"),
            Self::Durable => Some("write 4K durable"),
            Self::DurableBeside => Some("write 4K durable beside a stream"),
            Self::Read => Some("read cold"),
            Self::Overwrite => Some("overwrite 4K"),
            Self::ReadAged => Some("read cold aged"),
            Self::ReadAgain => Some("read cold aged again"),
            Self::ReadRandom => Some("read 4K cold"),
        }
    }

    /// What its figure counts.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Durable | Self::DurableBeside | Self::Overwrite | Self::ReadRandom => {
                Unit::Operations
            }
            _ => Unit::Bytes,
        }
    }

    /// Bytes that each of its calls moves.
    pub const fn call_bytes(self) -> u64 {
        match self.unit() {
            Unit::Operations => BLOCK_SIZE_U64,
            _ => LARGE_BYTES as u64,
        }
    }

    /// Whether it moves them to the server.
    pub const fn is_write(self) -> bool {
        !self.is_cold()
    }

    /// Whether nothing of the file is to be in memory when it begins.
    pub const fn is_cold(self) -> bool {
        matches!(self, Self::Read | Self::ReadAged | Self::ReadAgain | Self::ReadRandom)
    }

    /// The same on the bare disk.
    fn run_bare(self, disk: &BareDisk, nanoseconds: u64) -> Result<Option<f64>, BenchError> {
        match self {
            Self::WriteFresh | Self::WriteWarm => disk.write().map(Some),
            Self::Read | Self::ReadAged | Self::ReadAgain => disk.read().map(Some),
            Self::Durable | Self::DurableBeside | Self::Overwrite | Self::Rewrite | Self::Rest => {
                Ok(None)
            }
            Self::ReadRandom => disk.read_random(SMALL_DEPTH, nanoseconds).map(Some),
        }
    }
}

/// Somebody who has a file, and does loads with it.
pub(crate) trait Side {
    /// The side's name, as progress and notes have it.
    fn name(&self) -> &str;

    /// Whether it puts the file in order by itself, and is given the time for that.
    fn rests(&self) -> bool;

    /// Whether the page cache of this machine may have the file.
    fn has_page_cache(&self) -> bool;

    /// Does a load that is no rest; or why it cannot.
    fn run(&mut self, load: Load, nanoseconds: u64) -> Result<Sample, String>;
}

/// Keeps what came of a load in its lines.
pub(crate) type Note<'a> = dyn FnMut(&mut Line, &Outcome) -> Result<(), BenchError> + 'a;

/// Those of `loads`, in their order, up to the last that was asked for.
fn needed<'a>(loads: &'a [Load], lines: &[&mut Line]) -> impl Iterator<Item = Load> + use<'a> {
    let is_asked = |load: &Load| lines.iter().any(|line| line.load == *load);
    let count = loads.iter().rposition(is_asked).map_or(0, |last| last + 1);
    loads.iter().take(count).copied()
}

/// Has a side do them; `note` is told what came of each that was asked for, and when it ran.
pub(crate) fn run_loads(
    bench: &NodeBench,
    side: &mut dyn Side,
    loads: &[Load],
    lines: &mut [&mut Line],
    progress: &mut dyn FnMut(&str),
    note: &mut Note<'_>,
) -> Result<(), BenchError> {
    let device = Device::below(&bench.directory);
    for load in needed(loads, lines) {
        if load == Load::Rest && !side.rests() {
            continue;
        }
        let line = lines.iter().find(|line| line.load == load);
        let name = line.map_or("preparing", |line| &line.name).to_owned();
        progress(&format!("{name}, {}", side.name()));
        if load == Load::Rest {
            rest(bench.file.0);
            continue;
        }
        if load.is_cold() && side.has_page_cache() {
            empty_page_cache()?;
        }
        let before = device.count();
        let begin = SystemClock.monotonic_nanoseconds();
        let sample = side.run(load, bench.round_nanoseconds);
        let target = || side.name().to_owned();
        let sample =
            sample.map_err(|why| BenchError::Load { load: name, target: target(), why })?;
        let end = SystemClock.monotonic_nanoseconds();
        let device = before.zip(device.count()).map(|(before, after)| after.since(before));
        let outcome = Outcome { sample, time: begin..end, device };
        for line in lines.iter_mut().filter(|line| line.load == load) {
            note(line, &outcome)?;
        }
    }
    Ok(())
}

/// Does them on the bare disk.
pub(crate) fn run_bare(
    bench: &NodeBench,
    disk: &BareDisk,
    loads: &[Load],
    lines: &mut [&mut Line],
) -> Result<(), BenchError> {
    for load in needed(loads, lines) {
        // Loads that read need the first write, also where its rate was not asked for.
        let is_asked = lines.iter().any(|line| line.load == load);
        if !is_asked && load != Load::WriteFresh {
            continue;
        }
        let rate = load.run_bare(disk, bench.round_nanoseconds)?;
        let lines = lines.iter_mut().filter(|line| line.load == load);
        lines.for_each(|line| line.bare.rounds.extend(rate));
    }
    Ok(())
}

fn rest(file_bytes: u64) {
    let seconds = file_bytes as f64 / REST_BYTES_PER_SECOND;
    let (lock, never) = (Mutex::new(()), Condvar::new());
    let _ = never.wait_for(&mut lock.lock(), Duration::from_secs_f64(seconds));
}

/// Has the system write its page cache to the disks, and then drop it.
pub(crate) fn empty_page_cache() -> Result<(), BenchError> {
    let what = "cannot empty the page cache";
    rustix::fs::sync();
    let emptied = std::fs::write("/proc/sys/vm/drop_caches", "3");
    emptied.map_err(|error| BenchError::System { what, error })
}
