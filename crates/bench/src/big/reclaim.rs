//! Much space that comes back: a large file removed, another truncated, a snapshot and a volume
//! deleted that alone hold one; each while a writer goes on, whose latency is noted.

use super::plan::{BigBench, Report};
use super::rig::{NAME, Numbers, Outcome, Rig, largest, median};
use crate::node::{BenchError, wait};
use file_service::{FileHandle, Stability};
use volume::SnapshotRequest;

/// Writes in flight.
const DEPTH: usize = 4;
const BLOCK: u64 = 4096;
/// The writer's file.
const WRITER_BYTES: u64 = 256 << 20;
/// Writes of one round of the writer.
const ROUND: u64 = 2_000;
/// Rounds without anything else going on.
const BASE_ROUNDS: usize = 10;
/// Rounds at most that reclaim is waited for.
const ROUNDS_MAX: usize = 2_000;

pub(super) fn run(bench: &BigBench, report: Report<'_>) -> Result<(), BenchError> {
    let rig = Rig::new(bench.shape(false, bench.reclaim.0 * 2 + (8 << 30)))?;
    let root = rig.root(NAME)?;
    let size = bench.reclaim.0;
    let writer = rig.file(root, "writer")?;
    rig.fill(writer, WRITER_BYTES)?;
    rig.commit();
    rig.take_cps();
    let mut rounds = Vec::new();
    for _ in 0..BASE_ROUNDS {
        rounds.push(round(&rig, writer)?);
    }
    summary("writer alone", &rig, 0.0, &rounds, report);

    let file = rig.file(root, "large")?;
    let begin = rig.now();
    rig.fill(file, size)?;
    rig.commit();
    let rate = size as f64 / rig.since(begin) / (1 << 20) as f64;
    report("sequential write of the large file", format!("{rate:.0} MiB/s"));
    let (begin, before) = (rig.now(), rig.used_blocks());
    rig.remove(root, "large")?;
    report("remove of the large file", format!("{:.2} ms", rig.since(begin) * 1e3));
    reclaim("writer while it is reclaimed", &rig, writer, before - size / BLOCK * 9 / 10, report)?;

    let file = rig.file(root, "large")?;
    rig.fill(file, size)?;
    rig.commit();
    let (begin, before) = (rig.now(), rig.used_blocks());
    rig.set_size(file, 0)?;
    report("truncate of the large file", format!("{:.2} ms", rig.since(begin) * 1e3));
    reclaim("writer while it is truncated", &rig, writer, before - size / BLOCK * 9 / 10, report)?;

    rig.fill(file, size)?;
    rig.snapshot(SnapshotRequest::Create("held".to_owned()))?;
    rig.remove(root, "large")?;
    settle(&rig);
    let (begin, before) = (rig.now(), rig.used_blocks());
    rig.snapshot(SnapshotRequest::Delete("held".to_owned()))?;
    report("snapshot delete", format!("{:.2} ms", rig.since(begin) * 1e3));
    reclaim(
        "writer while the snapshot goes",
        &rig,
        writer,
        before - size / BLOCK * 9 / 10,
        report,
    )?;

    rig.add_volume("second")?;
    let second = rig.root("second")?;
    let file = rig.file(second, "large")?;
    rig.fill(file, size)?;
    rig.commit();
    let (begin, before) = (rig.now(), rig.used_blocks());
    wait(|done| rig.engine().delete_volume("second", done))?;
    report("volume delete", format!("{:.2} ms", rig.since(begin) * 1e3));
    reclaim("writer while the volume goes", &rig, writer, before - size / BLOCK * 9 / 10, report)
}

/// Waits until consistency points free nothing more.
fn settle(rig: &Rig) {
    loop {
        let before = rig.used_blocks();
        rig.commit();
        rig.commit();
        if rig.used_blocks() >= before {
            return;
        }
    }
}

fn round(rig: &Rig, writer: FileHandle) -> Result<Outcome, BenchError> {
    let mut numbers = Numbers(rig.now() | 1);
    let load = (DEPTH, ROUND);
    rig.write_at_random((writer, WRITER_BYTES), load, Stability::FileSync, &mut numbers)
}

/// Writes on until no more than `used_blocks` are in use.
fn reclaim(
    load: &str,
    rig: &Rig,
    writer: FileHandle,
    used_blocks: u64,
    report: Report<'_>,
) -> Result<(), BenchError> {
    let begin = rig.now();
    let mut rounds = Vec::new();
    rig.take_cps();
    for _ in 0..ROUNDS_MAX {
        rounds.push(round(rig, writer)?);
        if rig.used_blocks() <= used_blocks {
            break;
        }
    }
    summary(load, rig, rig.since(begin), &rounds, report);
    settle(rig);
    Ok(())
}

fn summary(load: &str, rig: &Rig, seconds: f64, rounds: &[Outcome], report: Report<'_>) {
    let of = |value: fn(&Outcome) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    let cps = rig.take_cps();
    report(
        load,
        format!(
            "{:.0} writes/s, p50 {:.2}, p99 median {:.2} worst {:.2}, max {:.1} ms; {seconds:.1} s; \
             {} CPs, median {:.3} s, longest {:.3} s",
            median(of(|outcome| outcome.per_second)),
            median(of(|outcome| outcome.p50_ms)),
            median(of(|outcome| outcome.p99_ms)),
            largest(&of(|outcome| outcome.p99_ms)),
            largest(&of(|outcome| outcome.max_ms)),
            cps.len(),
            median(cps.clone()),
            largest(&cps)
        ),
    );
}
