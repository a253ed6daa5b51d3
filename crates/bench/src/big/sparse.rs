//! A sparse file of 4 TiB written at random, beside one of 1 GiB.

use super::plan::{BigBench, Report};
use super::rig::{NAME, Numbers, Outcome, Rig, largest, median, resident_bytes};
use crate::node::BenchError;
use file_service::{FileHandle, SeekTarget, Stability, calls};

const DEPTH: usize = 32;
const BLOCK: u64 = 4096;
const SMALL_BYTES: u64 = 1 << 30;
const LARGE_BYTES: u64 = 4 << 40;
/// Searches for data and holes, each from where the one before ended.
const SEEKS: u64 = 20_000;

pub(super) fn run(bench: &BigBench, report: Report<'_>) -> Result<(), BenchError> {
    let mut rig = Rig::new(bench.shape(true, 24 << 30))?;
    let root = rig.root(NAME)?;
    for (name, size) in [("1 GiB", SMALL_BYTES), ("4 TiB", LARGE_BYTES)] {
        let file = rig.file(root, name)?;
        rig.set_size(file, size)?;
        let (mut numbers, batch) = (Numbers(3), (bench.sparse_writes / 4).max(1));
        for first in (0..bench.sparse_writes).step_by(batch as usize) {
            rig.take_cps();
            let outcome = writes(&rig, file, size, batch, &mut numbers)?;
            let last = rig.commit();
            let cps = rig.take_cps();
            report(
                &format!("{name} random write {first}.."),
                format!(
                    "{outcome}; {} CPs, median {:.2} s, longest {:.2} s; last {last:.2} s; \
                     resident {} MiB",
                    cps.len(),
                    median(cps.clone()),
                    largest(&cps),
                    resident_bytes() >> 20
                ),
            );
        }
        seeks(&rig, file, name, report)?;
    }
    report("open after a clean stop", format!("{:.1} ms", rig.restart()? * 1e3));
    let root = rig.root(NAME)?;
    let file = rig.file(root, "4 TiB")?;
    let mut numbers = Numbers(3);
    let outcome = rig.load("read", DEPTH, 0..20_000, |_| {
        let offset = numbers.next(LARGE_BYTES / BLOCK) * BLOCK;
        calls::Read { file, offset, count: BLOCK as u32 }
    })?;
    report("4 TiB random read of what was written, cold", outcome.to_string());
    let mut numbers = Numbers(11);
    let outcome = writes(&rig, file, LARGE_BYTES, 20_000, &mut numbers)?;
    let seconds = rig.commit();
    report("4 TiB random write, cold", format!("{outcome}; CP {seconds:.2} s"));
    Ok(())
}

fn writes(
    rig: &Rig,
    file: FileHandle,
    size: u64,
    count: u64,
    numbers: &mut Numbers,
) -> Result<Outcome, BenchError> {
    rig.write_at_random((file, size), (DEPTH, count), Stability::Unstable, numbers)
}

fn seeks(rig: &Rig, file: FileHandle, name: &str, report: Report<'_>) -> Result<(), BenchError> {
    let (begin, mut offset, mut slowest, mut done_count) = (rig.now(), 0, 0.0_f64, 0_u64);
    for number in 0..SEEKS {
        let target = if number % 2 == 0 { SeekTarget::Data } else { SeekTarget::Hole };
        let asked = rig.now();
        let found = rig.call("seek", calls::Seek { file, offset, target });
        slowest = slowest.max(rig.since(asked));
        let Ok(found) = found else { break };
        offset = found;
        done_count += 1;
    }
    let rate = done_count as f64 / rig.since(begin);
    report(
        &format!("{name} SEEK_DATA, SEEK_HOLE in turn"),
        format!("{rate:.0}/s, slowest {:.2} ms", slowest * 1e3),
    );
    Ok(())
}
