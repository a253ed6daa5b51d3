//! A mount of ours beside local file systems that a user would have instead, with a file much
//! larger than memory, by the calls of a program: buffered, not past the page cache.
//!
//! Each round makes a node and peers anew, so the first write goes to disks that hold nothing yet.
//! Peers are on loop devices of files beside our disks, which use these past the page cache, as a
//! disk is used. With `--write-back` the kernel keeps data that is written to our mount in its page
//! cache, as it does for peers. Lines with `--write-back` are of writes only, because the kernel
//! reads in the same way.
//!
//! Memory: the page cache of the process that does the loads is bounded ([`bound`]) by the node's
//! memory, on all sides. Our node has its own memory besides. All page cache is dropped before a
//! load that is to find nothing there.
//!
//! Invariants: a write is timed until its fsync has ended; one side is there at a time, and nothing
//! of it stays. Fails: [`BenchError`]; a file system that cannot be made is left out with a note.

mod bound;

use crate::leftovers::Mountpoint;
use crate::machine::Machine;
use crate::measured::Sample;
use crate::mounted::MountedNode;
use crate::node::BenchError;
use crate::peer_disks::{FileSystem, Images, Place, note_left_out, wants_root};
use crate::process::{NodeBench, NodeShape};
use crate::streams::{
    BareDisk, LARGE_BYTES, LARGE_DEPTH, Line, Load, Outcome, SHAPES, SMALL_DEPTH, Shape, Side,
    StreamFile, Trace, report, run_bare, run_loads,
};
use crate::summary::Report;
use bound::Bound;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

/// The loads, in the order in which they run.
const LOADS: [Load; 9] = [
    Load::WriteFresh,
    Load::Rewrite,
    Load::WriteWarm,
    Load::Read,
    Load::Overwrite,
    Load::ReadAged,
    Load::Rest,
    Load::ReadAgain,
    Load::ReadRandom,
];
/// The loads whose figures differ with `--write-back`.
const WRITES: [Load; 4] = [Load::WriteFresh, Load::Rewrite, Load::WriteWarm, Load::Overwrite];

/// What a line of ours with `--write-back` is called after the aggregate's name.
const WRITE_BACK: &str = ", write-back";

/// A file on a mount.
struct OnMount<'a> {
    name: String,
    is_ours: bool,
    path: PathBuf,
    file_bytes: u64,
    bound: Option<&'a Bound>,
}

impl Side for OnMount<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn rests(&self) -> bool {
        self.is_ours
    }

    fn has_page_cache(&self) -> bool {
        true
    }

    fn run(&mut self, load: Load, nanoseconds: u64) -> Result<Sample, String> {
        let measure = || self.measure(load, nanoseconds);
        let measured = match self.bound {
            Some(bound) => bound.during(measure).flatten(),
            None => measure(),
        };
        measured.map_err(|error| error.to_string())
    }
}

impl OnMount<'_> {
    fn measure(&self, load: Load, nanoseconds: u64) -> io::Result<Sample> {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).read(true).write(true).open(&self.path)?;
        let file = StreamFile::new(file, self.file_bytes, LARGE_BYTES as usize);
        let bytes = f64::from(LARGE_BYTES);
        Ok(match load {
            Load::WriteFresh | Load::Rewrite | Load::WriteWarm => {
                Sample::of(file.write(LARGE_DEPTH)?, bytes)
            }
            Load::Read | Load::ReadAged | Load::ReadAgain => {
                Sample::of(file.read(LARGE_DEPTH)?, bytes)
            }
            Load::Overwrite => Sample::of(file.overwrite(SMALL_DEPTH)?, 1.0),
            Load::ReadRandom => Sample::of(file.read_random(SMALL_DEPTH, nanoseconds)?, 1.0),
            Load::Rest | Load::Durable | Load::DurableBeside => {
                unreachable!("not one of the loads")
            }
        })
    }
}

/// What all rounds have in common.
struct Rounds<'a> {
    bench: &'a NodeBench,
    bound: Option<Bound>,
    notes: Vec<String>,
}

/// Runs the bench; `progress` is told what goes on.
///
/// # Errors
/// [`BenchError`].
pub fn compare_local(
    bench: &NodeBench,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let back = |shape: &Shape| format!("{}{WRITE_BACK}", shape.name);
    let lines = |shape: &Shape| {
        (Line::all(bench, &LOADS, shape.name), Line::all(bench, &WRITES, &back(shape)))
    };
    let mut shapes = SHAPES.map(|shape| (lines(&shape), shape));
    if shapes.iter().all(|((through, back), _)| through.is_empty() && back.is_empty()) {
        let each = |shape: &Shape| {
            [(LOADS.as_slice(), shape.name.to_owned()), (WRITES.as_slice(), back(shape))]
        };
        return Err(Line::none(SHAPES.iter().flat_map(each)));
    }
    wants_root()?;
    let mut rounds = Rounds::new(bench);
    for round in 1..=bench.rounds {
        for ((through, back), shape) in &mut shapes {
            let mut progress =
                |what: &str| progress(&format!("{what}: round {round} of {}", bench.rounds));
            rounds.run(shape, through, back, &mut progress)?;
        }
    }
    let lines = shapes.into_iter().flat_map(|((through, back), _)| [through, back]).flatten();
    Ok(report(machine, lines.collect(), rounds.notes))
}

impl<'a> Rounds<'a> {
    fn new(bench: &'a NodeBench) -> Self {
        let mut notes = Vec::new();
        let bound = Bound::new(bench.memory.0);
        let cache = match &bound {
            Ok(_) => "bounded by the node's memory on all sides, by a control group".to_owned(),
            Err(why) => format!("that of the machine, not bounded: {why}"),
        };
        notes.push(format!(
            "the page cache of the process that does the loads is {cache}; it is dropped before \
             each load that reads; our node has its own memory besides"
        ));
        notes.push(
            "peers: XFS and btrfs on loop devices of files beside our disks, with direct I/O where \
             the file system of the directory has it, made anew for each round; XFS survives the \
             loss of no disk, beside raid4 neither"
                .to_owned(),
        );
        let has_md = Path::new("/proc/mdstat").exists();
        let why = if has_md { "no arrays are made here" } else { "this kernel has no md" };
        notes.push(format!("XFS on md is left out: {why}"));
        Self { bench, bound: bound.ok(), notes }
    }

    /// One round on an aggregate: ours, ours with write-back, the bare disk and the peers.
    fn run(
        &mut self,
        shape: &Shape,
        through: &mut [Line],
        back: &mut [Line],
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), BenchError> {
        if through.is_empty() && back.is_empty() {
            return Ok(());
        }
        // The bare disk's file comes first: an error then costs no round. It is sparse.
        let disk = BareDisk::create(&self.bench.directory, self.bench.file.0)?;
        self.run_ours(shape.node, (&LOADS, &[]), through, progress)?;
        self.run_ours(shape.node, (&WRITES, &["--write-back"]), back, progress)?;
        let mut lines: Vec<&mut Line> = through.iter_mut().chain(back).collect();
        progress(&format!("the bare disk, beside {}", shape.name));
        run_bare(self.bench, &disk, &LOADS, &mut lines)?;
        drop(disk);
        for file_system in shape.peers {
            self.run_peer(file_system, &mut lines, progress)?;
        }
        Ok(())
    }

    fn run_ours(
        &self,
        shape: NodeShape,
        (loads, options): (&[Load], &[&str]),
        lines: &mut [Line],
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), BenchError> {
        if lines.is_empty() {
            return Ok(());
        }
        progress("a node of ours and its mount");
        let mut mounted = MountedNode::start(self.bench, shape)?;
        let root = mounted.mount(&self.bench.directory, "mnt", options)?;
        let mut trace = Trace::open(&mounted.node.activity())?;
        let mut side = self.side(["stroop"].iter().chain(options).copied(), true, &root);
        let mut lines: Vec<&mut Line> = lines.iter_mut().collect();
        run_loads(self.bench, &mut side, loads, &mut lines, progress, &mut |line, outcome| {
            outcome.note(&mut line.ours);
            trace.add(&mut line.span, outcome.time.clone())
        })
    }

    fn run_peer(
        &mut self,
        file_system: FileSystem,
        lines: &mut [&mut Line],
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), BenchError> {
        let name = file_system.name();
        progress(&format!("making {name}"));
        let mounted = match self.mount(file_system) {
            Ok(mounted) => mounted,
            Err(error) => {
                note_left_out(&mut self.notes, name, &error);
                return Ok(());
            }
        };
        let mut side = self.side([name], false, mounted.path());
        let note = &mut |line: &mut Line, outcome: &_| {
            Outcome::note(outcome, line.peer(name));
            Ok(())
        };
        run_loads(self.bench, &mut side, &LOADS, lines, progress, note)
    }

    fn mount(&self, file_system: FileSystem) -> Result<Mountpoint, BenchError> {
        let (images, how) = (self.bench.directory.as_path(), Images::Direct);
        // Sparse; file systems that write elsewhere than before want room for that.
        let bytes = self.bench.disk_bytes() * 2;
        file_system.mount(&Place { images, how, bytes, mountpoints: images })
    }

    fn side<'n>(
        &self,
        name: impl IntoIterator<Item = &'n str>,
        is_ours: bool,
        root: &Path,
    ) -> OnMount<'_> {
        let name = name.into_iter().collect::<Vec<_>>().join(" ");
        let (path, file_bytes) = (root.join("data"), self.bench.file.0);
        OnMount { name, is_ours, path, file_bytes, bound: self.bound.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_is_called_otherwise_is_refused_before_anything_is_made() {
        let bench = NodeBench::of("no such");
        let refused = compare_local(&bench, &mut |_| {}).unwrap_err().to_string();
        assert!(refused.contains("read 4K cold on raid4 3+1"), "{refused}");
        assert!(refused.contains("overwrite 4K on one disk, write-back"), "{refused}");
        assert!(!refused.contains("read cold on one disk, write-back"), "{refused}");
    }

    #[test]
    fn every_load_runs_on_a_file_and_is_counted() {
        let root = std::env::temp_dir().join(format!("local-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let (name, path) = ("a directory".to_owned(), root.join("data"));
        let mut side = OnMount { name, is_ours: false, path, file_bytes: 4 << 20, bound: None };
        let calls = LOADS.into_iter().filter(|load| *load != Load::Rest).map(|load| {
            let sample = side.run(load, 1_000_000).unwrap();
            assert!(sample.rate > 0.0, "{load:?}");
            (load, sample.latencies.total())
        });
        for (load, calls) in calls.collect::<Vec<_>>() {
            match load {
                Load::Overwrite => assert_eq!(calls, 256, "a quarter of the blocks"),
                Load::ReadRandom => assert!(calls >= SMALL_DEPTH as u64),
                _ => assert_eq!(calls, 16, "{load:?}"),
            }
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
