//! Clones of volumes with very much in them and very many snapshots (FlexVol section 4.2): how long
//! one takes to be made, and how many blocks.

use super::plan::{BigBench, Report};
use super::rig::{NAME, Numbers, Rig, largest, median};
use super::sparse_volume::{DEPTH, SIZES, SparseVolume, VOLUME_SHARE};
use crate::node::{BenchError, wait};
use dblade::CloneRequest;
use file_service::calls;
use units::BLOCK_SIZE_U64;
use volume::SnapshotRequest;

/// Clones that are timed.
const ROUNDS: usize = 9;

pub(super) fn run(bench: &BigBench, report: Report<'_>) -> Result<(), BenchError> {
    for (name, bytes) in SIZES {
        let mut shape = bench.shape(true, 24 << 30);
        shape.volume_bytes = bytes * VOLUME_SHARE;
        of_size(&Rig::new(shape)?, (name, bytes), bench.snapshots, report)?;
    }
    Ok(())
}

fn of_size(
    rig: &Rig,
    (name, bytes): (&str, u64),
    snapshots: u64,
    report: Report<'_>,
) -> Result<(), BenchError> {
    let mut volume = SparseVolume::new(rig, bytes)?;
    let before = clones(rig, "few")?;
    report(&format!("clone of {name}, 1 snapshot"), before);
    // One is there, and the clones make one more.
    volume.snapshots(2..snapshots)?;
    let after = clones(rig, "many")?;
    report(&format!("clone of {name}, {snapshots} snapshots"), after);
    let file = rig.file(rig.root("many-0")?, "data0")?;
    let (mut numbers, file_bytes) = (Numbers(5), volume.file_bytes);
    // In the order in which they were written: no hole is read.
    let outcome = rig.load("read", DEPTH, 0..volume.first_writes(), |_| {
        let offset = numbers.next(file_bytes / BLOCK_SIZE_U64) * BLOCK_SIZE_U64;
        calls::Read { file, offset, count: BLOCK_SIZE_U64 as u32 }
    })?;
    report(
        &format!("random read of what a clone of {name} shares, in memory"),
        outcome.to_string(),
    );
    Ok(())
}

/// Makes clones of a new snapshot: how long each takes, and how many blocks of the aggregate.
fn clones(rig: &Rig, prefix: &str) -> Result<String, BenchError> {
    let snapshot = format!("base-{prefix}");
    rig.snapshot(SnapshotRequest::Create(snapshot.clone()))?;
    rig.settle();
    let (mut times, mut blocks) = (Vec::new(), Vec::new());
    let mut discards = Vec::new();
    for number in 0..ROUNDS {
        let used = rig.used_blocks();
        let request = CloneRequest {
            names: vec![format!("{prefix}-{number}")],
            volume: NAME.to_owned(),
            snapshot: snapshot.clone(),
            exports: Vec::new(),
            guarantee: None,
        };
        let begin = rig.now();
        wait(|done| rig.engine().create_clones(request, done))?;
        times.push(rig.since(begin) * 1e3);
        blocks.push((rig.used_blocks() - used) as f64);
        let begin = rig.now();
        rig.settle();
        discards.push(rig.since(begin) * 1e3);
    }
    Ok(format!(
        "median {:.2} ms, longest {:.2}; median {} blocks, most {}; {:.0} ms until the clone has let \
         go of the parent's maps",
        median(times.clone()),
        largest(&times),
        median(blocks.clone()),
        largest(&blocks),
        median(discards)
    ))
}
