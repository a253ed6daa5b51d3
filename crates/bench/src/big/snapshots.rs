//! Very many snapshots of a volume that is written to: what consistency points cost with them and
//! without, reading through them, deleting them in a random order.

use super::plan::{BigBench, Report};
use super::rig::{NAME, Numbers, Outcome, Rig, largest, median};
use crate::node::{BenchError, wait};
use file_service::{FileHandle, Stability, calls};
use volume::SnapshotRequest;

const DEPTH: usize = 32;
const FILE_BYTES: u64 = 1 << 30;
/// Writes between two snapshots.
const WRITES: u64 = 500;
/// Writes before a consistency point that is timed.
const TIMED_WRITES: u64 = 2_000;
/// Consistency points that are timed.
const ROUNDS: usize = 9;

pub(super) fn run(bench: &BigBench, report: Report<'_>) -> Result<(), BenchError> {
    let rig = Rig::new(bench.shape(true, 24 << 30))?;
    let root = rig.root(NAME)?;
    let file = rig.file(root, "data")?;
    rig.fill(file, FILE_BYTES)?;
    rig.commit();
    let mut numbers = Numbers(5);
    report("CP of 2,000 random writes, no snapshot", cp_cost(&rig, file, &mut numbers)?);
    report("CP of one write, no snapshot", idle_cp(&rig, file, &mut numbers)?);
    let used = rig.used_blocks();

    let mut names = Vec::new();
    let (begin, mut slowest) = (rig.now(), 0.0_f64);
    for number in 0..bench.snapshots {
        write(&rig, file, WRITES, &mut numbers)?;
        let name = format!("snapshot-{number:04}");
        let asked = rig.now();
        rig.snapshot(SnapshotRequest::Create(name.clone()))?;
        slowest = slowest.max(rig.since(asked));
        names.push(name);
    }
    let cps = rig.take_cps();
    report(
        &format!("{} snapshots with {WRITES} writes before each", bench.snapshots),
        format!(
            "{:.1} s, slowest create {:.1} ms; {} CPs, median {:.1} ms, longest {:.1} ms",
            rig.since(begin),
            slowest * 1e3,
            cps.len(),
            median(cps.clone()) * 1e3,
            largest(&cps) * 1e3
        ),
    );
    rig.settle();
    let load = format!("CP of 2,000 random writes, {} snapshots", bench.snapshots);
    report(&load, cp_cost(&rig, file, &mut numbers)?);
    let load = format!("CP of one write, {} snapshots", bench.snapshots);
    report(&load, idle_cp(&rig, file, &mut numbers)?);
    read_through(&rig, root, &names, report)?;
    delete_all(&rig, file, names, &mut numbers, report)?;
    rig.settle();
    let (before, after) = (used, rig.used_blocks());
    report("blocks in use before and after", format!("{before}, {after}"));
    Ok(())
}

fn delete_all(
    rig: &Rig,
    file: FileHandle,
    mut names: Vec<String>,
    numbers: &mut Numbers,
    report: Report<'_>,
) -> Result<(), BenchError> {
    let (begin, mut slowest, mut writes) = (rig.now(), 0.0_f64, Vec::new());
    rig.take_cps();
    while !names.is_empty() {
        let name = names.swap_remove(numbers.next(names.len() as u64) as usize);
        let asked = rig.now();
        rig.snapshot(SnapshotRequest::Delete(name))?;
        slowest = slowest.max(rig.since(asked));
        writes.push(write(rig, file, WRITES / 10, numbers)?.p99_ms);
    }
    rig.settle();
    let cps = rig.take_cps();
    report(
        "deleted in a random order under writes",
        format!(
            "{:.1} s, slowest delete {:.1} ms; p99 of writes median {:.2}, worst {:.1} ms; {} CPs, \
             median {:.1} ms, longest {:.1} ms",
            rig.since(begin),
            slowest * 1e3,
            median(writes.clone()),
            largest(&writes),
            cps.len(),
            median(cps.clone()) * 1e3,
            largest(&cps) * 1e3
        ),
    );
    Ok(())
}

fn write(
    rig: &Rig,
    file: FileHandle,
    count: u64,
    numbers: &mut Numbers,
) -> Result<Outcome, BenchError> {
    rig.write_at_random((file, FILE_BYTES), (DEPTH, count), Stability::Unstable, numbers)
}

fn cp_cost(rig: &Rig, file: FileHandle, numbers: &mut Numbers) -> Result<String, BenchError> {
    timed(rig, file, TIMED_WRITES, numbers)
}

fn idle_cp(rig: &Rig, file: FileHandle, numbers: &mut Numbers) -> Result<String, BenchError> {
    timed(rig, file, 1, numbers)
}

fn timed(
    rig: &Rig,
    file: FileHandle,
    writes: u64,
    numbers: &mut Numbers,
) -> Result<String, BenchError> {
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        write(rig, file, writes, numbers)?;
        seconds.push(rig.commit());
    }
    let worst = largest(&seconds);
    Ok(format!("median {:.1} ms, longest {:.1} ms", median(seconds) * 1e3, worst * 1e3))
}

/// Lists `.snapshot` and reads a block of the file in each snapshot.
fn read_through(
    rig: &Rig,
    root: FileHandle,
    names: &[String],
    report: Report<'_>,
) -> Result<(), BenchError> {
    let begin = rig.now();
    let list = wait(|done| rig.engine().snapshots(NAME, done))?;
    report("list", format!("{} snapshots in {:.2} ms", list.len(), rig.since(begin) * 1e3));
    let snapshots = rig.find(root, ".snapshot")?;
    let begin = rig.now();
    let page = rig.page(snapshots, 0, 4096)?;
    let seconds = rig.since(begin);
    report("readdirplus .snapshot", format!("{} in {:.2} ms", page.entries.len(), seconds * 1e3));
    let begin = rig.now();
    for name in names {
        let file = rig.find(rig.find(snapshots, name)?, "data")?;
        rig.call("read in .snapshot", calls::Read { file, offset: 0, count: 4096 })?;
    }
    let each = rig.since(begin) / names.len().max(1) as f64;
    report("lookup and read in each snapshot", format!("{:.2} ms each", each * 1e3));
    Ok(())
}
