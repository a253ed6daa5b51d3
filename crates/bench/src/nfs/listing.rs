//! `ls -l` of a directory of 50,000 files, as clients see it: READDIRPLUS over NFS, and the real
//! `ls -l` on a FUSE mount, with what the node and the kernel have in memory and after restarts.
//!
//! Invariants: mounts are ended and files removed whatever happens. Fails: [`BenchError`]; a mount
//! that the machine does not allow is left out with a note.

use super::limit::DIRECTORY_ENTRIES;
use super::loads::read_directory;
use super::session::Session;
use super::start::target;
use crate::machine::Machine;
use crate::node::BenchError;
use crate::process::{NodeBench, NodeProcess, NodeShape, VOLUME};
use crate::summary::{Report, Row, Series, Unit};
use platform::Clock;
use platform::linux::SystemClock;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is timed, in this order.
const LOADS: [&str; 5] = ["NFS, node cold", "NFS", "FUSE, node cold", "FUSE, kernel cold", "FUSE"];
/// Those over NFS come first.
const NFS_LOADS: usize = 2;

/// Runs the bench; `progress` is told what goes on.
///
/// # Errors
/// [`BenchError`].
pub fn listing(bench: &NodeBench, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let mut notes = Vec::new();
    progress("making files");
    let mut node = NodeProcess::start(bench, NodeShape::default())?;
    let failed = |stopped: super::driver::Stopped| stopped.error("readdirplus", "stroop");
    let directory = Session::open(target(&node), 0)?.listing().map_err(failed)?;
    let mountpoint = bench.directory.join("mnt");
    let mountpoint = std::fs::create_dir_all(&mountpoint)
        .and_then(|()| std::fs::canonicalize(&mountpoint))
        .map_err(|error| BenchError::System { what: "cannot make a mountpoint", error })?;
    let mut times = LOADS.map(|_| Vec::new());
    for round in 1..=bench.rounds {
        progress(&format!("round {round} of {}", bench.rounds));
        node.stop();
        node.start_again()?;
        let mut session = Session::open(target(&node), 0)?;
        session.set_listing(directory);
        for times in times.iter_mut().take(NFS_LOADS) {
            let measured = read_directory(&mut session, 1).map_err(failed)?;
            times.push(measured.nanoseconds as f64 / measured.operations.max(1) as f64);
        }
        drop(session);
        node.stop();
        node.start_again()?;
        match on_mounts(&node, &mountpoint) {
            Ok(found) => {
                let mounted = times.iter_mut().skip(NFS_LOADS);
                mounted.zip(found).for_each(|(times, found)| times.push(found));
            }
            Err(error) => {
                notes = vec![format!("FUSE is left out: {error}")];
                let _ = node.command(&["unmount", &mountpoint.display().to_string()]);
            }
        }
    }
    // Whoever named the directory gets it back as it was; a leftover mount keeps it.
    let _ = std::fs::remove_dir(&mountpoint);
    let row = |(name, rounds)| {
        let load = format!("ls -l of {DIRECTORY_ENTRIES}, {name}");
        Row { load, unit: Unit::Duration, ours: Series::of(rounds), beside: Vec::new() }
    };
    let rows = LOADS.into_iter().zip(times).map(row).collect();
    Ok(Report { machine, rows, notes, spans: Vec::new() })
}

/// Times in nanoseconds on a first mount, on one after it, and again on that.
fn on_mounts(node: &NodeProcess, mountpoint: &Path) -> Result<[f64; 3], BenchError> {
    let name = mountpoint.display().to_string();
    node.command(&["mount", VOLUME, &name])?;
    let cold = list(mountpoint)?;
    node.command(&["unmount", &name])?;
    node.command(&["mount", VOLUME, &name])?;
    let (first, again) = (list(mountpoint)?, list(mountpoint)?);
    node.command(&["unmount", &name])?;
    Ok([cold, first, again])
}

fn list(mountpoint: &Path) -> Result<f64, BenchError> {
    let system = |what| move |error| BenchError::System { what, error };
    let directory = large_directory(mountpoint).map_err(system("cannot read the mount"))?;
    let mut command = Command::new("ls");
    command.args(["-l", "--numeric-uid-gid"]).arg(&directory);
    let begin = SystemClock.monotonic_nanoseconds();
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
    let done = done.map_err(system("cannot run ls"))?;
    if !done.success() {
        let (load, target) = ("ls -l".to_owned(), directory.display().to_string());
        return Err(BenchError::Load { load, target, why: done.to_string() });
    }
    Ok(nanoseconds as f64)
}

/// The one directory that lies in a directory: each session makes one of its own at the top.
fn large_directory(mountpoint: &Path) -> std::io::Result<PathBuf> {
    for session in std::fs::read_dir(mountpoint)? {
        for entry in std::fs::read_dir(session?.path())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                return Ok(entry.path());
            }
        }
    }
    Err(std::io::ErrorKind::NotFound.into())
}
