//! Very many files in one directory: made, listed, looked up, listed and looked up with cold
//! caches, removed.

use super::plan::{BigBench, Report};
use super::rig::{NAME, Numbers, Outcome, Rig, largest, median};
use crate::node::BenchError;
use file_service::{CreateMode, FileHandle, SetAttributes, calls};
use std::sync::atomic::Ordering;

/// Operations in flight.
const DEPTH: usize = 32;
/// Entries of one page, as many as fit an NFS reply of 32 KiB or so.
const PAGE_ENTRIES: u32 = 128;
const LOOKUPS: u64 = 100_000;
const COLD_LOOKUPS: u64 = 1_000;
/// Entries of the directory that `ls -l` is timed on.
const LISTED: u64 = 50_000;

pub(super) fn run(bench: &BigBench, report: Report<'_>) -> Result<(), BenchError> {
    let mut rig = Rig::new(bench.shape(true, 48 << 30))?;
    let root = rig.root(NAME)?;
    let folder = rig.folder(root, "many")?;
    let small = rig.folder(root, "listed")?;
    let count = bench.directory_files;
    let batch = (count / 10).max(1);
    let mut rates = Vec::new();
    rig.take_cps();
    for first in (0..count).step_by(batch as usize) {
        let outcome = creates(&rig, folder, first..first + batch)?;
        let cps = rig.take_cps();
        report(
            &format!("create {first}.."),
            format!(
                "{outcome}; {} CPs, median {:.2} s, longest {:.2} s",
                cps.len(),
                median(cps.clone()),
                largest(&cps)
            ),
        );
        rates.push((outcome.per_second, outcome.processor_us));
    }
    let (first, last) = (rates[0], rates[rates.len() - 1]);
    report(
        "create, last tenth by first",
        format!(
            "rate {:.0} %, processor time {:.0} %",
            last.0 / first.0 * 100.0,
            last.1 / first.1 * 100.0
        ),
    );
    creates(&rig, small, 0..LISTED)?;
    report("CP after creates", format!("{:.2} s", rig.commit()));
    report("CP with one file changed", {
        rig.file(folder, "one-more")?;
        let seconds = rig.commit();
        rig.remove(folder, "one-more")?;
        format!("{:.1} ms", seconds * 1e3)
    });
    let lookups = lookups(&rig, folder, count, LOOKUPS)?;
    report("lookup, warm", lookups.to_string());
    listing(&rig, folder, "readdirplus of all, warm", report)?;
    listing(&rig, small, "readdirplus of 50,000, warm", report)?;
    cold(&mut rig, count, report)?;
    let root = rig.root(NAME)?;
    let folder = rig.find(root, "many")?;
    removes(&rig, folder, count, report)
}

fn cold(rig: &mut Rig, count: u64, report: Report<'_>) -> Result<(), BenchError> {
    report("open after a clean stop", format!("{:.1} ms", rig.restart()? * 1e3));
    let root = rig.root(NAME)?;
    let begin = rig.now();
    rig.file(root, "first-after-start")?;
    report("first create after it", format!("{:.1} ms", rig.since(begin) * 1e3));
    let small = rig.find(root, "listed")?;
    listing(rig, small, "readdirplus of 50,000, cold", report)?;
    let folder = rig.find(root, "many")?;
    let before = rig.counts().reads.load(Ordering::Relaxed);
    let outcome = lookups(rig, folder, count, COLD_LOOKUPS)?;
    let reads = rig.counts().reads.load(Ordering::Relaxed) - before;
    let each = reads as f64 / COLD_LOOKUPS as f64;
    report("lookup, cold", format!("{outcome}; {each:.2} reads each"));
    listing(rig, folder, "readdirplus of all, cold", report)
}

fn creates(
    rig: &Rig,
    folder: FileHandle,
    numbers: std::ops::Range<u64>,
) -> Result<Outcome, BenchError> {
    rig.load("create", DEPTH, numbers, |number| {
        let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
        calls::Create { directory: folder, name: name_of(number), mode, set }
    })
}

fn name_of(number: u64) -> Vec<u8> {
    format!("file-{number:07}.dat").into_bytes()
}

fn lookups(rig: &Rig, folder: FileHandle, files: u64, count: u64) -> Result<Outcome, BenchError> {
    let mut numbers = Numbers(7);
    rig.load("lookup", DEPTH, 0..count, |_| calls::Lookup {
        directory: folder,
        name: name_of(numbers.next(files)),
    })
}

fn listing(
    rig: &Rig,
    folder: FileHandle,
    load: &str,
    report: Report<'_>,
) -> Result<(), BenchError> {
    let before = rig.counts().reads.load(Ordering::Relaxed);
    let blocks = rig.counts().read_blocks.load(Ordering::Relaxed);
    let (begin, mut cookie, mut entries, mut slowest) = (rig.now(), 0, 0_u64, 0.0_f64);
    loop {
        let asked = rig.now();
        let page = rig.page(folder, cookie, PAGE_ENTRIES)?;
        slowest = slowest.max(rig.since(asked));
        entries += page.entries.len() as u64;
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        if page.end {
            break;
        }
    }
    let seconds = rig.since(begin);
    let reads = rig.counts().reads.load(Ordering::Relaxed) - before;
    let blocks = rig.counts().read_blocks.load(Ordering::Relaxed) - blocks;
    report(
        load,
        format!(
            "{entries} entries in {seconds:.2} s, slowest page {:.1} ms, {reads} reads of {blocks} \
             blocks",
            slowest * 1e3
        ),
    );
    Ok(())
}

fn removes(
    rig: &Rig,
    folder: FileHandle,
    count: u64,
    report: Report<'_>,
) -> Result<(), BenchError> {
    let batch = (count / 10).max(1);
    rig.take_cps();
    for first in (0..count).step_by(batch as usize) {
        let outcome = rig.load("remove", DEPTH, first..first + batch, |number| calls::Remove {
            directory: folder,
            name: name_of(number),
        })?;
        let longest = largest(&rig.take_cps());
        report(&format!("remove {first}.."), format!("{outcome}; longest CP {longest:.2} s"));
    }
    Ok(())
}
