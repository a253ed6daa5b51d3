//! A mount of ours beside a FUSE file system that does nothing, and beside local file systems.
//!
//! The one that does nothing is C, in `peers/nothing_fuse.c`, compiled when it is needed: it has
//! nothing of our crates in it. Local file systems stand there for orientation only.
//!
//! Invariants: rounds of a load go round all of them in turns; mounts are ended and files removed
//! whatever happens. Fails: [`BenchError`]; what is missing on the machine is left out with a note.

mod files;

use crate::leftovers::{self, Leftover};
use crate::machine::Machine;
use crate::mounted::{MountedNode, directory};
use crate::node::BenchError;
use crate::process::{NodeBench, NodeShape, Process, wait_until};
use crate::summary::{Beside, Report, Role, Row, Series};
use files::{CASES, Case};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NOTHING: &str = include_str!("../../peers/nothing_fuse.c");
/// Where Linux has a file system in memory.
const MEMORY_DIRECTORY: &str = "/dev/shm";

/// A file system with the file.
struct Side {
    name: &'static str,
    /// None for ours.
    role: Option<Role>,
    path: PathBuf,
    /// The same file where the kernel may keep writes.
    write_back: PathBuf,
}

impl Side {
    fn path(&self, case: Case) -> &Path {
        if case.cache.is_write_back() { &self.write_back } else { &self.path }
    }
}

/// Runs the bench; `progress` is told what goes on.
///
/// # Errors
/// [`BenchError`].
pub fn fuse(bench: &NodeBench, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let cases = selected(bench)?;
    let mut notes = Vec::new();
    progress("mounting");
    let mut mounted = MountedNode::start(bench, NodeShape::default())?;
    let mut ours = |name, options: &[&str]| {
        mounted.mount(&bench.directory, name, options).map(|path| path.join("data"))
    };
    let (path, write_back) = (ours("mnt", &[])?, ours("mnt-write-back", &["--write-back"])?);
    let mut sides = vec![Side { name: "stroop", role: None, path, write_back }];
    let nothing = match nothing(bench) {
        Ok((processes, [path, write_back])) => {
            sides.push(Side { name: "nothing", role: Some(Role::Limit), path, write_back });
            Some(processes)
        }
        Err(error) => {
            notes.push(format!("the FUSE file system that does nothing is left out: {error}"));
            None
        }
    };
    let local = [("disk", bench.directory.as_path()), ("tmpfs", Path::new(MEMORY_DIRECTORY))];
    let mut removed = Vec::new();
    for (name, directory) in local.into_iter().filter(|(_, directory)| directory.is_dir()) {
        let path = directory.join(format!("stroop-bench-data-{}", std::process::id()));
        removed.push(Leftover::at(path.clone()));
        let write_back = path.clone();
        sides.push(Side { name, role: Some(Role::Orientation), path, write_back });
    }
    for side in &sides {
        progress(&format!("preparing {}", side.name));
        files::make(&side.path, bench.file.0).map_err(|error| failed("preparing", side, &error))?;
    }
    let rows = measure(bench, &cases, &sides, &mut notes, progress)?;
    drop((nothing, removed));
    Ok(Report { machine, rows, notes, spans: Vec::new() })
}

fn failed(load: &str, side: &Side, error: &std::io::Error) -> BenchError {
    let (load, target) = (load.to_owned(), side.name.to_owned());
    BenchError::Load { load, target, why: error.to_string() }
}

fn selected(bench: &NodeBench) -> Result<Vec<Case>, BenchError> {
    let is_wanted = |case: &&Case| bench.wants(&case.name());
    let cases: Vec<Case> = CASES.iter().filter(is_wanted).copied().collect();
    if cases.is_empty() {
        let known = CASES.iter().map(|case| case.name()).collect::<Vec<_>>().join(", ");
        return Err(BenchError::NoLoad { known });
    }
    Ok(cases)
}

/// Compiles the file system that does nothing, and mounts it through and with write-back;
/// where its files are.
fn nothing(bench: &NodeBench) -> Result<([Process; 2], [PathBuf; 2]), BenchError> {
    let what = "the compiler (cc)";
    let system = |error| BenchError::System { what, error };
    let (source, program) = (bench.directory.join("nothing.c"), bench.directory.join("nothing"));
    let _removed = [Leftover::at(source.clone()), Leftover::at(program.clone())];
    std::fs::write(&source, NOTHING).map_err(system)?;
    let mut compiler = Command::new("cc");
    compiler.arg("-O2").arg("-o").arg(&program).arg(&source).arg("-lpthread");
    compiler.process_group(0).stdin(Stdio::null());
    let compiled = leftovers::run(|| compiler.output()).map_err(system)?;
    if !compiled.status.success() {
        let said = String::from_utf8_lossy(&compiled.stderr);
        let why = said.lines().next().unwrap_or_default().to_owned();
        return Err(BenchError::Server { what, why });
    }
    let mount = |name, option: Option<&str>| {
        let mountpoint = directory(&bench.directory, name)?;
        let data = mountpoint.join("data");
        let mut command = Command::new(&program);
        command.arg(&mountpoint).arg(bench.file.0.to_string()).args(option);
        let mut process = Process::start(command.stdin(Stdio::null()).stderr(Stdio::null()), true)?;
        wait_until("the FUSE file system that does nothing", &mut process, || data.exists())?;
        Ok::<_, BenchError>((process, data))
    };
    let (through, path) = mount("nothing-mnt", None)?;
    let (back, write_back) = mount("nothing-mnt-write-back", Some("write-back"))?;
    Ok(([through, back], [path, write_back]))
}

fn measure(
    bench: &NodeBench,
    cases: &[Case],
    sides: &[Side],
    notes: &mut Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for case in cases {
        let load = case.name();
        let mut series = vec![Series::default(); sides.len()];
        for round in 1..=bench.rounds {
            progress(&format!("{load}: round {round} of {}", bench.rounds));
            for (side, series) in sides.iter().zip(&mut series) {
                match case.run(side.path(*case), bench.file.0, bench.round_nanoseconds) {
                    Ok((rate, latencies)) => {
                        series.rounds.push(rate);
                        series.latencies.add(&latencies);
                    }
                    // tmpfs knows O_DIRECT since Linux 6.6 only.
                    Err(error) if side.role == Some(Role::Orientation) => {
                        let note = format!("{load} is left out on {}: {error}", side.name);
                        if !notes.contains(&note) {
                            notes.push(note);
                        }
                    }
                    Err(error) => return Err(failed(&load, side, &error)),
                }
            }
        }
        let mut each = series.into_iter();
        let ours = each.next().unwrap_or_default();
        let others = sides.iter().skip(1).zip(each);
        let beside = others.filter_map(|(side, series)| {
            let name = side.name.to_owned();
            side.role.map(|role| Beside { name, role, series })
        });
        rows.push(Row { load, unit: case.unit(), ours, beside: beside.collect() });
    }
    Ok(rows)
}
