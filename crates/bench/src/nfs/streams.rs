//! Streams over NFS: files much larger than the node's memory, written and read in order, beside
//! the bare disk; and where the time goes meanwhile.
//!
//! Each round has a node of its own, so that the first stream finds a server that has not touched
//! its memory yet (*fresh*) and a later one finds one that has (*warm*). The node writes down what
//! its threads do (`stroop serve --activity`), and a load's part of that is told with its rate.
//!
//! The latencies of durable writes, by themselves and beside a stream, tell what one client's
//! stream costs another client.
//!
//! A peer has a file of its own in each round, and the system's page cache, which is emptied before
//! it reads.
//!
//! Invariants: a write is timed until its COMMIT is answered; the file is several times the node's
//! memory, so a load that reads it in order finds little more than its end there.

mod durable;

use super::driver::{Stopped, run};
use super::ganesha::{self, Peer};
use super::loads::{read_random, write_random};
use super::session::{Each, Kind, Session, Target};
use super::wire::{Call, Malformed, Reply, Stability};
use crate::machine::Machine;
use crate::measured::{Measured, Sample};
use crate::node::BenchError;
use crate::process::{NodeBench, NodeProcess, NodeShape, VOLUME};
use crate::streams::{
    BareDisk, LARGE_BYTES, LARGE_DEPTH, Line, Load, Outcome, SHAPES, SMALL_DEPTH, Side, Trace,
    report, run_bare, run_loads,
};
use crate::summary::Report;
use durable::{durable, durable_beside_stream};
use platform::Clock as _;
use platform::linux::SystemClock;
use units::BLOCK_SIZE_U64;

/// The loads on a node, in the order in which they run.
const LOADS: [Load; 11] = [
    Load::WriteFresh,
    Load::Rewrite,
    Load::WriteWarm,
    Load::Durable,
    Load::DurableBeside,
    Load::Read,
    Load::Overwrite,
    Load::ReadAged,
    Load::Rest,
    Load::ReadAgain,
    Load::ReadRandom,
];

/// A session whose server is ours, or not.
struct Streamed {
    session: Session,
    is_ours: bool,
}

impl Side for Streamed {
    fn name(&self) -> &str {
        &self.session.target.name
    }

    fn rests(&self) -> bool {
        self.is_ours
    }

    fn has_page_cache(&self) -> bool {
        !self.is_ours
    }

    fn run(&mut self, load: Load, nanoseconds: u64) -> Result<Sample, String> {
        self.measure(load, nanoseconds).map_err(Stopped::why)
    }
}

impl Streamed {
    fn measure(&mut self, load: Load, nanoseconds: u64) -> Result<Sample, Stopped> {
        let session = &mut self.session;
        let bytes = f64::from(LARGE_BYTES);
        let quarter = session.file_bytes / BLOCK_SIZE_U64 / 4;
        Ok(match load {
            Load::WriteFresh | Load::Rewrite | Load::WriteWarm => {
                Sample::of(session.write_all()?, bytes)
            }
            Load::Read | Load::ReadAged | Load::ReadAgain => Sample::of(read(session)?, bytes),
            Load::Durable => Sample::of(durable(session, nanoseconds)?, 1.0),
            Load::DurableBeside => Sample::of(durable_beside_stream(session)?, 1.0),
            Load::Rest => unreachable!("nothing is asked of a server that rests"),
            Load::Overwrite => {
                let begin = SystemClock.monotonic_nanoseconds();
                let how = Stability::Unstable;
                let written = write_random(session, how, SMALL_DEPTH, (quarter, None))?;
                let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
                Sample::of(Measured { nanoseconds, ..written }, 1.0)
            }
            Load::ReadRandom => Sample::of(read_random(session, SMALL_DEPTH, nanoseconds)?, 1.0),
        })
    }
}

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
    notes: Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let mut shapes = SHAPES.map(|shape| (Line::all(bench, &LOADS, shape.name), shape));
    if shapes.iter().all(|(lines, _)| lines.is_empty()) {
        let all = SHAPES.iter().map(|shape| (LOADS.as_slice(), shape.name.to_owned()));
        return Err(Line::none(all));
    }
    for round in 1..=bench.rounds {
        for (lines, shape) in shapes.iter_mut().filter(|(lines, _)| !lines.is_empty()) {
            let told = format!("round {round} of {}", bench.rounds);
            let mut progress = |what: &str| progress(&format!("{what}: {told}"));
            let mut lines: Vec<&mut Line> = lines.iter_mut().collect();
            run_round(bench, shape.node, &mut lines, &mut progress)?;
            for peer in peers.iter().filter(|peer| shape.peers.contains(&peer.file_system)) {
                let session = Session::open_empty(peer.target.clone(), bench.file.0)?;
                let mut side = Streamed { session, is_ours: false };
                let note = &mut |line: &mut Line, outcome: &_| {
                    Outcome::note(outcome, line.peer(&peer.target.name));
                    Ok(())
                };
                run_loads(bench, &mut side, &LOADS, &mut lines, &mut progress, note)?;
            }
        }
    }
    Ok(report(machine, shapes.into_iter().flat_map(|(lines, _)| lines).collect(), notes))
}

/// One round on a node of its own, up to the last load that was asked for.
fn run_round(
    bench: &NodeBench,
    shape: NodeShape,
    lines: &mut [&mut Line],
    progress: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    // The bare disk's file comes first: an error then costs no round. It is sparse.
    let disk = BareDisk::create(&bench.directory, bench.file.0)?;
    {
        let node = NodeProcess::start(bench, shape)?;
        let (nfs, mount, path) = (node.address, node.address, format!("/{VOLUME}"));
        let target = Target { name: "stroop".to_owned(), kind: Kind::Real, nfs, mount, path };
        let session = Session::open_empty(target, bench.file.0)?;
        let mut side = Streamed { session, is_ours: true };
        let mut trace = Trace::open(&node.activity())?;
        run_loads(bench, &mut side, &LOADS, lines, progress, &mut |line, outcome| {
            outcome.note(&mut line.ours);
            trace.add(&mut line.span, outcome.time.clone())
        })?;
    }
    // After the node, whose disks are gone then: a round needs room for one of both at a time.
    progress("the bare disk");
    run_bare(bench, &disk, &LOADS, lines)
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
        let session = Session::open_empty(target, 4 << 20).unwrap();
        let mut side = Streamed { session, is_ours: true };
        for load in LOADS.into_iter().filter(|load| *load != Load::Rest) {
            let sample = side.run(load, 1_000_000).unwrap();
            assert!(sample.rate > 0.0 && sample.latencies.total() > 0, "{load:?}");
        }
        // A quarter of the file's blocks, each once on average.
        let sample = side.run(Load::Overwrite, 1).unwrap();
        assert_eq!(sample.latencies.total(), 256);
    }

    #[test]
    fn a_load_that_is_called_otherwise_is_refused_before_anything_is_made() {
        let bench = NodeBench::of("no such");
        let refused = streams(&bench, &mut |_| {}).unwrap_err().to_string();
        assert!(refused.contains("read 4K cold on raid4 3+1"), "{refused}");
    }
}
