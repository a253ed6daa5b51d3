//! Restores of volumes with very much in them and very many snapshots: how long one takes.

use super::plan::{BigBench, Report};
use super::rig::{Rig, largest, median};
use super::sparse_volume::{SIZES, SparseVolume, VOLUME_SHARE};
use crate::node::BenchError;
use volume::SnapshotRequest;

/// Writes that a restore takes back.
const WRITES: u64 = 1000;
/// Restores that are timed.
const ROUNDS: usize = 9;

pub(super) fn run(bench: &BigBench, report: Report<'_>) -> Result<(), BenchError> {
    for (name, bytes) in SIZES {
        let mut shape = bench.shape(true, 24 << 30);
        shape.volume_bytes = bytes * VOLUME_SHARE;
        let rig = Rig::new(shape)?;
        let mut volume = SparseVolume::new(&rig, bytes)?;
        report(&format!("restore of {name}, 1 snapshot"), restores(&rig, &mut volume, "few")?);
        // One is there, and the restores go back to one more.
        volume.snapshots(2..bench.snapshots)?;
        let title = format!("restore of {name}, {} snapshots", bench.snapshots);
        report(&title, restores(&rig, &mut volume, "many")?);
    }
    Ok(())
}

/// Goes back to a new snapshot again and again, with some writes before each time: how long that
/// takes.
fn restores(rig: &Rig, volume: &mut SparseVolume<'_>, name: &str) -> Result<String, BenchError> {
    let name = format!("back-{name}");
    rig.snapshot(SnapshotRequest::Create(name.clone()))?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        volume.write(round as u64, WRITES)?;
        rig.settle();
        let begin = rig.now();
        rig.snapshot(SnapshotRequest::Restore(name.clone()))?;
        times.push(rig.since(begin) * 1e3);
    }
    Ok(format!("median {:.2} ms, longest {:.2}", median(times.clone()), largest(&times)))
}
