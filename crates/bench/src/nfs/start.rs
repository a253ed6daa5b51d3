//! How long a node takes until it serves again: killed with a log half that is as full as it gets,
//! stopped with more and more data at rest, and with more and more volumes.
//!
//! The engine never lets a half fill up: a consistency point takes it before. How much it lets in
//! is seen when the first half is taken; the node is killed when the next holds nine tenths of
//! that. Creates are slower, so that the time takes their half and not its fill.
//!
//! Invariants: time runs from the start of the process until its NFS port takes a connection, which
//! is after the last aggregate came into service; what the replay was, the node says itself.

use super::driver::{Load, run};
use super::session::{Each, Kind, Session, Target};
use super::start_volumes::with_volumes;
use super::wire::{Call, Malformed, Reply, Stability};
use crate::machine::Machine;
use crate::node::BenchError;
use crate::numbers::Numbers;
use crate::process::{NodeBench, NodeProcess, NodeShape, VOLUME};
use crate::summary::{Report, Row, Series, Unit};

/// Calls in flight while a half is filled.
const FILL_DEPTH: usize = 32;
/// How long the load runs between two looks at the log.
const SLICE_NANOSECONDS: u64 = 20_000_000;
/// Most looks: several intervals of consistency points.
const SLICES_MAX: usize = 3_000;
const SMALL_BYTES: u32 = 4 << 10;
/// The file that small writes go to: so many that few blocks are written twice.
const FILE_BYTES: u64 = 256 << 20;
/// Data in a fresh node, and by what it grows each time.
const DATA_STEPS: [u64; 3] = [128, 8, 1];
/// Files beside the data, at first.
const FILES_FEW: u64 = 10;

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct StartBench {
    /// The node of our own; its file is the most data at rest.
    pub node: NodeBench,
    /// Most files at rest.
    pub files: u64,
    /// Counts of idle volumes, one after another.
    pub volumes: Vec<usize>,
}

/// What fills the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    Writes,
    Creates,
}

impl Fill {
    const fn name(self) -> &'static str {
        match self {
            Self::Writes => "4K writes, filesync",
            Self::Creates => "creates",
        }
    }
}

/// Runs the bench; `progress` is told what goes on.
///
/// # Errors
/// [`BenchError`].
pub fn start(bench: &StartBench, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let node = &bench.node;
    if node.wants("kill") {
        for fill in [Fill::Writes, Fill::Creates] {
            killed(node, fill, &mut rows, progress)?;
        }
        let note = "a half is as full as the engine lets it be; start: from the process to NFS";
        notes.push(note.to_owned());
    }
    if node.wants("stop") {
        stopped(bench, &mut rows, progress)?;
    }
    if node.wants("volumes") {
        with_volumes(bench, &mut rows, progress)?;
        let note = "volumes: made with one command, and idle; one more has the node's NFS export";
        notes.push(note.to_owned());
    }
    if rows.is_empty() {
        let known = "kill, stop, volumes".to_owned();
        return Err(BenchError::NoLoad { known });
    }
    Ok(Report { machine, rows, notes, spans: Vec::new() })
}

/// A node of our own as sessions find it.
pub(super) fn target(node: &NodeProcess) -> Target {
    let (nfs, mount, path) = (node.address, node.address, format!("/{VOLUME}"));
    Target { name: "stroop".to_owned(), kind: Kind::Real, nfs, mount, path }
}

/// Rounds of a kill with a half of the log full.
fn killed(
    bench: &NodeBench,
    fill: Fill,
    rows: &mut Vec<Row>,
    progress: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let figures = [
        ("records", Unit::Records),
        ("bytes", Unit::Size),
        ("replay", Unit::Duration),
        ("start", Unit::Duration),
    ];
    let mut series = figures.map(|_| Vec::new());
    let mut node = NodeProcess::start(bench, NodeShape::default())?;
    for round in 1..=bench.rounds {
        progress(&format!("kill amid {}: round {round} of {}", fill.name(), bench.rounds));
        let mut session = Session::open(target(&node), FILE_BYTES)?;
        fill_half(&node, &mut session, fill)?;
        drop(session);
        node.kill();
        let start = node.start_again()?;
        let recovery = node.json(&["status"])?;
        let of = |field: &str| recovery["recovery"][field].as_u64().unwrap_or(0);
        let found = [of("operations"), of("bytes"), of("duration_ns"), start];
        for (series, found) in series.iter_mut().zip(found) {
            series.push(found as f64);
        }
    }
    for ((name, unit), rounds) in figures.into_iter().zip(series) {
        let load = format!("kill, {}: {name}", fill.name());
        rows.push(Row { load, unit, ours: Series::of(rounds), beside: Vec::new() });
    }
    Ok(())
}

/// Loads the node until a half of the log holds nearly what one held when it was taken.
fn fill_half(node: &NodeProcess, session: &mut Session, fill: Fill) -> Result<(), BenchError> {
    let failed = |stopped: super::driver::Stopped| stopped.error(fill.name(), "stroop");
    let (file, blocks) = (session.file, session.file_bytes / u64::from(SMALL_BYTES));
    let directory = session.new_directory().map_err(failed)?;
    let mut numbers = Numbers::new(11);
    let write = |_, call: Call<'_>| {
        let offset = numbers.next(blocks) * u64::from(SMALL_BYTES);
        call.write(&file, offset, SMALL_BYTES, Stability::FileSync);
    };
    let create = |number, call: Call<'_>| call.create(&directory, &format!("file-{number}"));
    let any = |_: Reply<'_>| Ok::<(), Malformed>(());
    let mut writes = Each::new(u64::MAX, write, any);
    let mut creates = Each::new(u64::MAX, create, any);
    let load: &mut dyn Load = match fill {
        Fill::Writes => &mut writes,
        Fill::Creates => &mut creates,
    };
    let (mut last, mut taken) = (0, None);
    for _ in 0..SLICES_MAX {
        run(&mut session.connections, FILL_DEPTH, Some(SLICE_NANOSECONDS), load).map_err(failed)?;
        let used = node.json(&["aggr", "show", VOLUME])?["log_used_bytes"].as_u64().unwrap_or(0);
        if used < last {
            taken = taken.max(Some(last));
        }
        last = used;
        if taken.is_some_and(|taken| used >= taken / 10 * 9) {
            return Ok(());
        }
    }
    let why = "the log never held nine tenths of what it held before".to_owned();
    Err(BenchError::Load { load: fill.name().to_owned(), target: "stroop".to_owned(), why })
}

/// Clean stops with more and more at rest.
fn stopped(
    bench: &StartBench,
    rows: &mut Vec<Row>,
    progress: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let mut node = NodeProcess::start(&bench.node, NodeShape::default())?;
    let mut written = 0;
    let mut files = 0;
    let last = (bench.node.file.0, bench.files);
    let steps = DATA_STEPS.map(|share| (bench.node.file.0 / share, FILES_FEW));
    for (data_bytes, count) in steps.into_iter().chain([last]) {
        progress(&format!("{} MiB, {count} files: filling", data_bytes >> 20));
        let mut session = Session::open(target(&node), data_bytes - written)?;
        session.make_files(count - files).map_err(|stopped| stopped.error("creates", "stroop"))?;
        drop(session);
        (written, files) = (data_bytes, count);
        let mut rounds = Vec::new();
        for _ in 0..bench.node.rounds {
            node.stop();
            rounds.push(node.start_again()? as f64);
        }
        let load = format!("stop, {} MiB in {count} files: start", data_bytes >> 20);
        rows.push(Row { load, unit: Unit::Duration, ours: Series::of(rounds), beside: Vec::new() });
    }
    Ok(())
}
