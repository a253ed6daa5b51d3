//! Very many inodes in a volume, in directories of a thousand files.

use super::plan::{BigBench, Report};
use super::rig::{NAME, Numbers, Rig, largest, median, resident_bytes};
use crate::node::BenchError;
use file_service::{CreateMode, FileHandle, SetAttributes, SetTime, calls};
use std::sync::atomic::Ordering;

const DEPTH: usize = 32;
const FILES_PER_DIRECTORY: u64 = 1_000;
/// Entries that are asked for at once.
const PAGE_ENTRIES: u32 = 512;
/// Files that are changed before a consistency point is timed.
const CHANGED: u64 = 500;
/// Times that it is timed.
const ROUNDS: usize = 5;

pub(super) fn run(bench: &BigBench, report: Report<'_>) -> Result<(), BenchError> {
    let mut rig = Rig::new(bench.shape(true, 96 << 30))?;
    let root = rig.root(NAME)?;
    let directories = (bench.inodes / FILES_PER_DIRECTORY).max(10);
    let mut files = Vec::new();
    for tenth in 0..10 {
        let (from, to) = (directories * tenth / 10, directories * (tenth + 1) / 10);
        rig.take_cps();
        let begin = rig.now();
        for directory in from..to {
            let folder = rig.folder(root, &format!("directory-{directory:05}"))?;
            fill(&rig, folder)?;
            files.push(rig.file(folder, "file-0")?);
        }
        let count = (to - from) * FILES_PER_DIRECTORY;
        let rate = count as f64 / rig.since(begin);
        let cps = rig.take_cps();
        let (changed, _) = changed_cps(&rig, &files)?;
        report(
            &format!("{} inodes", to * FILES_PER_DIRECTORY),
            format!(
                "{rate:.0} creates/s; {} CPs, longest {:.2} s; CP of {CHANGED} changed inodes \
                 {:.1} ms; resident {} MiB",
                cps.len(),
                largest(&cps),
                changed * 1e3,
                resident_bytes() >> 20
            ),
        );
    }
    report("open after a clean stop", format!("{:.1} ms", rig.restart()? * 1e3));
    let root = rig.root(NAME)?;
    let begin = rig.now();
    rig.file(root, "first-after-start")?;
    report(
        "first create after it",
        format!(
            "{:.1} ms, {} reads",
            rig.since(begin) * 1e3,
            rig.counts().reads.load(Ordering::Relaxed)
        ),
    );
    walk(&rig, root, report)
}

fn fill(rig: &Rig, folder: FileHandle) -> Result<(), BenchError> {
    let create = |number| {
        let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
        calls::Create { directory: folder, name: format!("file-{number}").into(), mode, set }
    };
    rig.load("create", DEPTH, 0..FILES_PER_DIRECTORY, create).map(drop)
}

/// The median time of a consistency point after `CHANGED` inodes changed, and of the changes.
fn changed_cps(rig: &Rig, files: &[FileHandle]) -> Result<(f64, f64), BenchError> {
    let mut numbers = Numbers(files.len() as u64 + 1);
    let (mut cps, mut changes) = (Vec::new(), Vec::new());
    rig.commit();
    for _ in 0..ROUNDS {
        let outcome = rig.load("chmod", DEPTH, 0..CHANGED, |_| {
            let file = files[numbers.next(files.len() as u64) as usize];
            let set = SetAttributes { mtime: Some(SetTime::Now), ..SetAttributes::default() };
            calls::SetFileAttributes { file, set }
        })?;
        changes.push(outcome.per_second);
        cps.push(rig.commit());
    }
    Ok((median(cps), median(changes)))
}

/// Looks at every inode, with cold caches and nothing changed: memory must stay bounded.
fn walk(rig: &Rig, root: FileHandle, report: Report<'_>) -> Result<(), BenchError> {
    let (begin, mut seen) = (rig.now(), 0_u64);
    for folder in list(rig, root)?.into_iter().flatten() {
        seen += list(rig, folder)?.len() as u64;
    }
    let seconds = rig.since(begin);
    let rate = seen as f64 / seconds;
    let resident = resident_bytes() >> 20;
    report(
        "readdirplus of everything, cold",
        format!("{seen} inodes in {seconds:.1} s, {rate:.0}/s; resident {resident} MiB"),
    );
    Ok(())
}

/// The entries of a directory; those that are directories with their handles.
fn list(rig: &Rig, folder: FileHandle) -> Result<Vec<Option<FileHandle>>, BenchError> {
    let (mut cookie, mut found) = (2, Vec::new());
    loop {
        let page = rig.page(folder, cookie, PAGE_ENTRIES)?;
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        found.extend(page.entries.into_iter().map(|entry| {
            let is_directory = entry.kind == file_service::FileKind::Directory;
            entry.entry.filter(|_| is_directory).map(|entry| entry.handle)
        }));
        if page.end {
            return Ok(found);
        }
    }
}
