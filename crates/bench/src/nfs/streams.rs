//! Streams: files much larger than the node's memory, written and read in order over NFS, beside
//! the bare disk; and where the time goes meanwhile.
//!
//! Each round has a node of its own, so that the first stream finds a server that has not touched
//! its memory yet (*fresh*) and a later one finds one that has (*warm*). The node writes down what
//! its threads do (`stroop serve --activity`), and a load's part of that is told with its rate.
//!
//! The latencies of durable writes, by themselves and beside a stream, tell what one client's
//! stream costs another client.
//!
//! A file that was overwritten at random is read twice: with `--reallocate auto` the server
//! begins to put it in order during the first read.
//!
//! A peer has a file of its own in each round, and the system's page cache, which is emptied before
//! it reads. What the device moved meanwhile is told for each byte of a load: a server that writes
//! each block twice, or reads what nobody asked for, is not compared by its rate alone.
//!
//! Invariants: a write is timed until its COMMIT is answered; the file is several times the node's
//! memory, so a load that reads it in order finds little more than its end there.

mod activity;
mod bare;
mod device;
mod durable;

use super::driver::{Measured, Stopped, run};
use super::ganesha::{self, Peer};
use super::loads::{Sample, read_random, write_random};
use super::peer_disks::FileSystem;
use super::session::{Each, Kind, LARGE_BYTES, LARGE_DEPTH, Session, Target};
use super::wire::{Call, Malformed, Reply, Stability};
use crate::machine::Machine;
use crate::node::BenchError;
use crate::process::{NodeBench, NodeProcess, NodeShape, VOLUME};
use crate::summary::{Beside, DeviceBytes, Report, Role, Row, Series, Span, Unit};
use activity::Trace;
use bare::BareDisk;
use device::Device;
use durable::{durable, durable_beside_stream};
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::sync::{Condvar, Mutex};
use std::ops::Range;
use std::time::Duration;
use units::BLOCK_SIZE_U64;

/// The loads on a node, in the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
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
    const ALL: [Self; 11] = [
        Self::WriteFresh,
        Self::Rewrite,
        Self::WriteWarm,
        Self::Durable,
        Self::DurableBeside,
        Self::Read,
        Self::Overwrite,
        Self::ReadAged,
        Self::Rest,
        Self::ReadAgain,
        Self::ReadRandom,
    ];

    /// Its name; none if it is not measured.
    const fn name(self) -> Option<&'static str> {
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

    const fn unit(self) -> Unit {
        match self {
            Self::Durable | Self::DurableBeside | Self::Overwrite | Self::ReadRandom => {
                Unit::Operations
            }
            _ => Unit::Bytes,
        }
    }

    /// Bytes that each of its calls moves.
    const fn call_bytes(self) -> u64 {
        match self.unit() {
            Unit::Operations => BLOCK_SIZE_U64,
            _ => LARGE_BYTES as u64,
        }
    }

    /// Whether it moves them to the server.
    const fn is_write(self) -> bool {
        !self.is_cold()
    }

    /// What came of it; nothing of a rest.
    fn run(self, session: &mut Session, nanoseconds: u64) -> Result<Option<Sample>, Stopped> {
        let bytes = f64::from(LARGE_BYTES);
        let quarter = session.file_bytes / BLOCK_SIZE_U64 / 4;
        let sample = match self {
            Self::WriteFresh | Self::Rewrite | Self::WriteWarm => {
                Sample::of(session.write_all()?, bytes)
            }
            Self::Read | Self::ReadAged | Self::ReadAgain => Sample::of(read(session)?, bytes),
            Self::Durable => Sample::of(durable(session, nanoseconds)?, 1.0),
            Self::DurableBeside => Sample::of(durable_beside_stream(session)?, 1.0),
            Self::Rest => {
                let seconds = session.file_bytes as f64 / REST_BYTES_PER_SECOND;
                let (lock, never) = (Mutex::new(()), Condvar::new());
                let _ = never.wait_for(&mut lock.lock(), Duration::from_secs_f64(seconds));
                return Ok(None);
            }
            Self::Overwrite => {
                let begin = SystemClock.monotonic_nanoseconds();
                let how = Stability::Unstable;
                let written = write_random(session, how, SMALL_DEPTH, (quarter, None))?;
                let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
                Sample::of(Measured { nanoseconds, ..written }, 1.0)
            }
            Self::ReadRandom => Sample::of(read_random(session, SMALL_DEPTH, nanoseconds)?, 1.0),
        };
        Ok(Some(sample))
    }

    /// Whether nothing of the file is to be in memory when it begins.
    const fn is_cold(self) -> bool {
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

/// A server's rest is as long as it takes to write the file at this rate: half of what read
/// reallocation does (docs/decisions/0054).
const REST_BYTES_PER_SECOND: f64 = (32 << 20) as f64;
/// Calls in flight of random loads.
const SMALL_DEPTH: usize = 32;

/// An aggregate that is measured, and what stands beside it.
struct Shape {
    name: &'static str,
    node: NodeShape,
    /// The second has checksums and snapshots, and survives the loss of a disk where ours does.
    peers: [FileSystem; 2],
}

/// The aggregates that are measured.
const SHAPES: [Shape; 2] = [
    Shape {
        name: "one disk",
        node: NodeShape { disks: 1, raid: "none", activity: true },
        peers: [FileSystem::Xfs, FileSystem::Btrfs],
    },
    Shape {
        name: "raid4 3+1",
        node: NodeShape { disks: 4, raid: "raid4", activity: true },
        peers: [FileSystem::Xfs, FileSystem::BtrfsRaid1],
    },
];

/// A load on one shape of node, in all rounds.
struct Line {
    name: String,
    load: Load,
    ours: Series,
    bare: Series,
    /// By their names.
    peers: Vec<(String, Series)>,
    span: Span,
}

impl Line {
    fn peer(&mut self, name: &str) -> &mut Series {
        let at = self.peers.iter().position(|(known, _)| known == name);
        let at = at.unwrap_or_else(|| {
            self.peers.push((name.to_owned(), Series::default()));
            self.peers.len() - 1
        });
        &mut self.peers[at].1
    }

    /// What the device moved for each byte of the load.
    fn device_share(&self, series: &Series) -> Option<f64> {
        let moved = series.device?;
        let moved = if self.load.is_write() { moved.written } else { moved.read };
        let asked = series.latencies.total() * self.load.call_bytes();
        (asked > 0).then(|| moved as f64 / asked as f64)
    }

    fn device_note(&self) -> Option<String> {
        // Of the stream's bytes nobody knows here, and what our log took is written again by the
        // next consistency point, which comes later.
        if matches!(self.load, Load::Durable | Load::DurableBeside) {
            return None;
        }
        let ours = ("stroop", &self.ours);
        let peers = self.peers.iter().map(|(name, series)| (name.as_str(), series));
        let share = |(name, series): (&str, &Series)| {
            Some(format!("{name} {:.2}", self.device_share(series)?))
        };
        let shares: Vec<_> = [ours].into_iter().chain(peers).filter_map(share).collect();
        let verb = if self.load.is_write() { "wrote" } else { "read" };
        let name = &self.name;
        (!shares.is_empty())
            .then(|| format!("{name}: for each byte the device {verb}: {}", shares.join(", ")))
    }
}

/// What came of a load, and when it ran.
struct Outcome {
    sample: Sample,
    time: Range<u64>,
    device: Option<DeviceBytes>,
}

impl Outcome {
    fn note(&self, series: &mut Series) {
        super::note(series, &self.sample);
        if let Some(moved) = self.device {
            let sum = series.device.get_or_insert_default();
            (sum.read, sum.written) = (sum.read + moved.read, sum.written + moved.written);
        }
    }
}

/// Whose session it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Peer,
}

/// Keeps what came of a load in its line.
type Note<'a> = dyn FnMut(&mut Line, &Outcome) -> Result<(), BenchError> + 'a;

/// Runs the bench; `progress` is told what goes on.
///
/// # Errors
/// [`BenchError`].
pub fn streams(bench: &NodeBench, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    with_peers(bench, &[], Vec::new(), progress)
}

/// The same with nfs-ganesha on XFS and on btrfs in turns with ours. With `apart` the caller is in
/// network and mount namespaces of its own; otherwise the peer is left out, and the report says
/// why.
///
/// # Errors
/// [`BenchError`].
pub fn compare_streams(
    bench: &NodeBench,
    apart: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    if let Some(note) = super::left_out(apart) {
        return with_peers(bench, &[], vec![note], progress);
    }
    progress("starting nfs-ganesha");
    // A file for each round and shape, and room for what the file system keeps.
    let files = bench.rounds as u64 * SHAPES.len() as u64 + 2;
    let mut wanted = Vec::new();
    for file_system in SHAPES.iter().flat_map(|shape| shape.peers) {
        if !wanted.contains(&file_system) {
            wanted.push(file_system);
        }
    }
    let ganesha = ganesha::start(&bench.directory, bench.file.0 * files, &wanted)?;
    let note = "peers: nfs-ganesha, FSAL VFS, on XFS and on btrfs on loop devices of files beside our \
                disks, with the page cache of the machine, emptied before each load that reads";
    let mut notes = vec![note.to_owned()];
    notes.extend(ganesha.notes.iter().cloned());
    with_peers(bench, &ganesha.peers, notes, progress)
}

fn with_peers(
    bench: &NodeBench,
    peers: &[Peer],
    mut notes: Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let mut shapes: Vec<(Shape, Vec<Line>)> = Vec::new();
    for shape in SHAPES {
        let line = |load: Load| {
            let name = format!("{} on {}", load.name()?, shape.name);
            let (ours, bare, peers, span) = Default::default();
            let span = Span { load: name.clone(), ..span };
            bench.wants(&name).then_some(Line { name, load, ours, bare, peers, span })
        };
        let lines: Vec<Line> = Load::ALL.into_iter().filter_map(line).collect();
        if !lines.is_empty() {
            shapes.push((shape, lines));
        }
    }
    if shapes.is_empty() {
        let each = |name: &str| SHAPES.map(|shape| format!("{name} on {}", shape.name)).join(", ");
        let known = Load::ALL.into_iter().filter_map(Load::name).map(each);
        return Err(BenchError::NoLoad { known: known.collect::<Vec<_>>().join(", ") });
    }
    for round in 1..=bench.rounds {
        for (shape, lines) in &mut shapes {
            let told = format!("round {round} of {}", bench.rounds);
            let mut progress = |what: &str| progress(&format!("{what}: {told}"));
            run_round(bench, shape.node, lines, &mut progress)?;
            for peer in peers.iter().filter(|peer| shape.peers.contains(&peer.file_system)) {
                let mut session = Session::open_empty(peer.target.clone(), bench.file.0)?;
                let side = (bench, Side::Peer);
                run_loads(&mut session, side, lines, &mut progress, &mut |line, outcome| {
                    outcome.note(line.peer(&peer.target.name));
                    Ok(())
                })?;
            }
        }
    }
    let lines: Vec<Line> = shapes.into_iter().flat_map(|(_, lines)| lines).collect();
    notes.extend(lines.iter().filter_map(Line::device_note));
    notes.extend(lines.iter().map(|line| line.span.to_string()));
    let (mut rows, mut spans) = (Vec::new(), Vec::new());
    for Line { name, load, ours, bare, peers, span } in lines {
        let limit = Beside { name: "bare disk".to_owned(), role: Role::Limit, series: bare };
        let peer = |(name, series)| Beside { name, role: Role::Peer, series };
        let measured = |beside: &Beside| !beside.series.rounds.is_empty();
        let beside = [limit].into_iter().chain(peers.into_iter().map(peer));
        let beside = beside.filter(measured).collect();
        rows.push(Row { load: name, unit: load.unit(), ours, beside });
        spans.push(span);
    }
    Ok(Report { machine, rows, notes, spans })
}

/// One round on a node of its own, up to the last load that was asked for.
fn run_round(
    bench: &NodeBench,
    shape: NodeShape,
    lines: &mut [Line],
    progress: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    // The bare disk's file comes first: an error then costs no round. It is sparse.
    let disk = BareDisk::create(&bench.directory, bench.file.0)?;
    {
        let node = NodeProcess::start(bench, shape)?;
        let (nfs, mount, path) = (node.address, node.address, format!("/{VOLUME}"));
        let target = Target { name: "stroop".to_owned(), kind: Kind::Real, nfs, mount, path };
        let mut session = Session::open_empty(target, bench.file.0)?;
        let mut trace = Trace::open(&node.activity())?;
        let side = (bench, Side::Ours);
        run_loads(&mut session, side, lines, progress, &mut |line, outcome| {
            outcome.note(&mut line.ours);
            trace.add(&mut line.span, outcome.time.clone())
        })?;
    }
    // After the node, whose disks are gone then: a round needs room for one of both at a time.
    progress("the bare disk");
    for load in needed(lines) {
        let line = lines.iter_mut().find(|line| line.load == load);
        // Loads that read need the first write, also where its rate was not asked for.
        let is_needed = line.is_some() || load == Load::WriteFresh;
        if let Some(rate) = is_needed.then(|| load.run_bare(&disk, bench.round_nanoseconds)) {
            let rate = rate?;
            line.into_iter().for_each(|line| line.bare.rounds.extend(rate));
        }
    }
    Ok(())
}

/// The loads up to the last that was asked for.
fn needed(lines: &[Line]) -> impl Iterator<Item = Load> + use<> {
    let last = lines.iter().map(|line| line.load as usize).max().unwrap_or(0);
    Load::ALL.into_iter().take(last + 1)
}

/// Runs them; `note` is told what came of each that was asked for, and when it ran.
fn run_loads(
    session: &mut Session,
    (bench, side): (&NodeBench, Side),
    lines: &mut [Line],
    progress: &mut dyn FnMut(&str),
    note: &mut Note<'_>,
) -> Result<(), BenchError> {
    let server = session.target.name.clone();
    let device = Device::below(&bench.directory);
    for load in needed(lines) {
        if load == Load::Rest && side == Side::Peer {
            continue;
        }
        let line = lines.iter_mut().find(|line| line.load == load);
        let name = line.as_ref().map_or("preparing", |line| &line.name);
        progress(&format!("{name}, {server}"));
        if load.is_cold() && side == Side::Peer {
            empty_page_cache()?;
        }
        let before = device.count();
        let begin = SystemClock.monotonic_nanoseconds();
        let sample = load.run(session, bench.round_nanoseconds);
        let sample = sample.map_err(|stopped| stopped.error(name, &server))?;
        let end = SystemClock.monotonic_nanoseconds();
        let device = before.zip(device.count()).map(|(before, after)| after.since(before));
        if let Some((line, sample)) = line.zip(sample) {
            note(line, &Outcome { sample, time: begin..end, device })?;
        }
    }
    Ok(())
}

/// Has the system write its page cache to the disks, and then drop it.
fn empty_page_cache() -> Result<(), BenchError> {
    let what = "cannot empty the page cache";
    rustix::fs::sync();
    let emptied = std::fs::write("/proc/sys/vm/drop_caches", "3");
    emptied.map_err(|error| BenchError::System { what, error })
}

/// The whole file in order.
fn read(session: &mut Session) -> Result<Measured, Stopped> {
    let (file, count) = (session.file, session.file_bytes / u64::from(LARGE_BYTES));
    let call = |number: u64, call: Call<'_>| {
        call.read(&file, number * u64::from(LARGE_BYTES), LARGE_BYTES);
    };
    let mut load =
        Each::new(
            count,
            call,
            |mut reply: Reply<'_>| {
                if reply.read()? == LARGE_BYTES { Ok(()) } else { Err(Malformed) }
            },
        );
    run(&mut session.connections, LARGE_DEPTH, None, &mut load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::serve_nothing;
    use platform::thread::spawn;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn every_load_gets_through_to_a_server_and_is_counted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let nfs = listener.local_addr().unwrap();
        // It ends with the test's process.
        let _serving = spawn("limit", move || serve_nothing(&listener)).unwrap();
        let (name, path) = ("limit".to_owned(), "/".to_owned());
        let target = Target { name, kind: Kind::Limit, nfs, mount: nfs, path };
        let mut session = Session::open_empty(target, 4 << 20).unwrap();
        for load in Load::ALL {
            let Some(sample) = load.run(&mut session, 1_000_000).unwrap() else { continue };
            assert!(sample.rate > 0.0 && sample.latencies.total() > 0, "{load:?}");
        }
        // A quarter of the file's blocks, each once on average.
        let sample = Load::Overwrite.run(&mut session, 1).unwrap().unwrap();
        assert_eq!(sample.latencies.total(), 256);
    }

    #[test]
    fn a_load_that_is_called_otherwise_is_refused_before_anything_is_made() {
        let bench = NodeBench {
            program: std::path::PathBuf::new(),
            directory: std::path::PathBuf::new(),
            only: vec!["no such".to_owned()],
            round_nanoseconds: 1,
            rounds: 1,
            file: units::ByteSize(1),
            memory: units::ByteSize(1),
            journal: units::ByteSize(1),
        };
        let refused = streams(&bench, &mut |_| {}).unwrap_err().to_string();
        assert!(refused.contains("read 4K cold on raid4 3+1"), "{refused}");
    }
}
