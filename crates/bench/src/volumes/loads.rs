//! The loads on a volume: snapshots, clones, overwrites and a read, each with how long it takes.
//!
//! A volume has one large file and [`FILES`] small ones. Before each snapshot that is timed
//! [`CHANGED_BLOCKS`] blocks of the large file and [`CHANGED_FILES`] small files are written again,
//! and not made durable: the snapshot does that. The large file ages under [`SMALL_DEPTH`] threads
//! that each write blocks at random, with an fdatasync after [`WRITES_PER_SYNC`] of its writes.
//! Meanwhile a thread takes a snapshot each time that an interval is over.
//!
//! Invariants: all sides get the same calls with the same numbers of blocks, in the same order.
//! XFS, which has no snapshots, does not get the writes that come before each of them.
//! Each block begins with its number, and a read that finds another number there fails.
//!
//! Fails: with the message of the call that failed, also of the thread that takes snapshots.

use super::VolumesBench;
use super::keeper::{DATA, Keeper};
use crate::latency::Latencies;
use crate::leftovers;
use crate::measured::Sample;
use crate::numbers::Numbers;
use crate::streams::{LARGE_BYTES, LARGE_DEPTH, SMALL_DEPTH, StreamFile};
use crate::summary::Unit;
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::sync::{Condvar, Mutex};
use platform::thread::{JoinHandle, spawn};
use std::fs::{self, OpenOptions};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use units::BLOCK_SIZE;

/// Small files of a volume, and those that are written again before a snapshot.
const FILES: u64 = 1000;
const CHANGED_FILES: u64 = 100;
/// Blocks of the large file that are written again before a snapshot: 16 MiB.
const CHANGED_BLOCKS: u64 = 4096;
/// Snapshots that are taken one after another, and clones.
const REPETITIONS: u32 = 8;
/// Writes of a thread from one fdatasync to its next: 1 MiB.
const WRITES_PER_SYNC: u64 = 256;
/// The snapshot that clones begin with.
const BASE: &str = "base";

/// A load. A round does them in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    SnapshotCreate,
    SnapshotDelete,
    CloneCreate,
    /// The overwrites, and the snapshots that are taken meanwhile.
    Overwrite,
    ReadAged,
}

impl Load {
    pub const ALL: [Self; 5] = [
        Self::SnapshotCreate,
        Self::SnapshotDelete,
        Self::CloneCreate,
        Self::Overwrite,
        Self::ReadAged,
    ];

    /// The lines that it has: their names, and what their figures count.
    pub const fn lines(self) -> &'static [(&'static str, Unit)] {
        match self {
            Self::SnapshotCreate => &[("snapshot create", Unit::Duration)],
            Self::SnapshotDelete => &[("snapshot delete", Unit::Duration)],
            Self::CloneCreate => &[("clone create", Unit::Duration)],
            Self::Overwrite => &[
                ("overwrite 4K amid snapshots", Unit::Operations),
                ("snapshot create amid overwrites", Unit::Duration),
            ],
            Self::ReadAged => &[("read cold aged", Unit::Bytes)],
        }
    }

    /// Whether nothing of the file is to be in memory when it begins.
    pub const fn is_cold(self) -> bool {
        matches!(self, Self::ReadAged)
    }

    /// Whether it needs snapshots of volumes: clones of files are none.
    const fn wants_snapshots(self) -> bool {
        matches!(self, Self::SnapshotCreate | Self::SnapshotDelete)
    }

    /// Does it; a sample for each of its lines, or none where the keeper cannot do it.
    pub fn run(self, bench: &VolumesBench, keeper: &Keeper) -> Result<Vec<Sample>, String> {
        if self.wants_snapshots() && !keeper.has_snapshots() {
            return Ok(Vec::new());
        }
        match self {
            Self::SnapshotCreate => create_snapshots(bench, keeper).map(|sample| vec![sample]),
            Self::SnapshotDelete => repeated(|number| keeper.delete(&snapshot(number)), |_| Ok(()))
                .map(|sample| vec![sample]),
            Self::CloneCreate => {
                if keeper.has_snapshots() {
                    keeper.snapshot(BASE)?;
                }
                let clone = |number| keeper.clone_of(BASE, &format!("clone-{number}"));
                repeated(clone, |_| Ok(())).map(|sample| vec![sample])
            }
            Self::Overwrite => overwrite(bench, keeper),
            Self::ReadAged => {
                let measured = data(bench, keeper).and_then(|data| data.read(LARGE_DEPTH));
                let sample = Sample::of(measured.map_err(shown)?, f64::from(LARGE_BYTES));
                Ok(vec![sample])
            }
        }
    }
}

fn shown(error: io::Error) -> String {
    error.to_string()
}

fn snapshot(number: u32) -> String {
    format!("snapshot-{number}")
}

/// The large file.
fn data(bench: &VolumesBench, keeper: &Keeper) -> io::Result<StreamFile> {
    let mut options = OpenOptions::new();
    let path = keeper.files().join(DATA);
    let file = options.create(true).truncate(false).read(true).write(true).open(path)?;
    Ok(StreamFile::new(file, bench.node.file.0, LARGE_BYTES as usize))
}

/// Writes small files, again or for the first time.
fn write_files(keeper: &Keeper, numbers: impl Iterator<Item = u64>) -> io::Result<()> {
    let (directory, content) = (keeper.files().join("small"), vec![7; BLOCK_SIZE]);
    leftovers::load(|| {
        fs::create_dir_all(&directory)?;
        for number in numbers {
            if leftovers::is_ending() {
                break;
            }
            fs::write(directory.join(format!("file-{number}")), &content)?;
        }
        Ok(())
    })
}

/// Fills a volume.
pub(super) fn fill(bench: &VolumesBench, keeper: &Keeper) -> Result<(), String> {
    write_files(keeper, 0..FILES).map_err(shown)?;
    data(bench, keeper).and_then(|data| data.write(LARGE_DEPTH)).map(drop).map_err(shown)
}

/// Does `act` for some numbers, each after `before`, which is not timed.
fn repeated(
    mut act: impl FnMut(u32) -> Result<(), String>,
    mut before: impl FnMut(u32) -> Result<(), String>,
) -> Result<Sample, String> {
    let mut times = Times::default();
    for number in 0..REPETITIONS {
        before(number)?;
        times.note(|| act(number))?;
    }
    times.sample().ok_or_else(|| "nothing was done".to_owned())
}

fn create_snapshots(bench: &VolumesBench, keeper: &Keeper) -> Result<Sample, String> {
    let (data, mut numbers) = (data(bench, keeper).map_err(shown)?, Numbers::new(11));
    let change = |number| {
        data.change(CHANGED_BLOCKS, &mut numbers).map_err(shown)?;
        let first = u64::from(number) * CHANGED_FILES;
        let files = (first..first + CHANGED_FILES).map(|file| file % FILES);
        write_files(keeper, files).map_err(shown)
    };
    repeated(|number| keeper.snapshot(&snapshot(number)), change)
}

/// How long calls took.
#[derive(Default)]
struct Times {
    nanoseconds: u64,
    latencies: Latencies,
}

impl Times {
    fn note(&mut self, call: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let begin = SystemClock.monotonic_nanoseconds();
        call()?;
        let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
        self.nanoseconds += nanoseconds;
        self.latencies.record(nanoseconds);
        Ok(())
    }

    /// The mean of all; none of none.
    fn sample(self) -> Option<Sample> {
        let count = self.latencies.total();
        let rate = self.nanoseconds as f64 / count as f64;
        let Self { latencies, .. } = self;
        (count > 0).then_some(Sample { rate, latencies, client_nanoseconds: 0 })
    }
}

/// Overwrites blocks while snapshots are taken: the samples of both, or of the first if there was
/// no time for a snapshot.
fn overwrite(bench: &VolumesBench, keeper: &Keeper) -> Result<Vec<Sample>, String> {
    let data = data(bench, keeper).map_err(shown)?;
    let taking = Taking::begin(keeper.clone(), bench.snapshot_nanoseconds).map_err(shown)?;
    let nanoseconds = bench.node.round_nanoseconds;
    let measured = data.overwrite_for(SMALL_DEPTH, nanoseconds, WRITES_PER_SYNC);
    // Not within the load: an interrupt waits for that.
    let taken = taking.end()?;
    let writes = Sample::of(measured.map_err(shown)?, 1.0);
    Ok([writes].into_iter().chain(taken.sample()).collect())
}

/// A thread that takes snapshots until it is told to end.
struct Taking {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<Result<Times, String>>,
}

impl Taking {
    fn begin(keeper: Keeper, nanoseconds: u64) -> io::Result<Self> {
        let ended: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let same = Arc::clone(&ended);
        let thread = spawn("snapshots", move || take_snapshots(&keeper, nanoseconds, &same))?;
        Ok(Self { ended, thread })
    }

    fn end(self) -> Result<Times, String> {
        *self.ended.0.lock() = true;
        self.ended.1.notify_all();
        self.thread.join().map_err(|_| "the thread that takes snapshots panicked".to_owned())?
    }
}

fn take_snapshots(
    keeper: &Keeper,
    nanoseconds: u64,
    (ended, told): &(Mutex<bool>, Condvar),
) -> Result<Times, String> {
    let (mut times, mut due) = (Times::default(), SystemClock.monotonic_nanoseconds());
    let mut number = 0;
    loop {
        due += nanoseconds;
        let mut has_ended = ended.lock();
        while !*has_ended {
            let left = due.saturating_sub(SystemClock.monotonic_nanoseconds());
            if left == 0 {
                break;
            }
            let _ = told.wait_for(&mut has_ended, Duration::from_nanos(left));
        }
        if *has_ended {
            return Ok(times);
        }
        drop(has_ended);
        times.note(|| keeper.snapshot(&format!("amid-{number}")))?;
        number += 1;
    }
}

/// Snapshots that are taken during the overwrites at most.
pub(super) const fn snapshots_amid(bench: &VolumesBench) -> u64 {
    bench.node.round_nanoseconds / bench.snapshot_nanoseconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_calls_is_their_sample() {
        assert!(Times::default().sample().is_none());
        let mut times = Times::default();
        assert_eq!(times.note(|| Err("no".to_owned())), Err("no".to_owned()));
        assert!(times.latencies.total() == 0, "a call that failed has no time");
        times.nanoseconds = 6;
        (1..=3).for_each(|nanoseconds| times.latencies.record(nanoseconds));
        let sample = times.sample().unwrap();
        assert_eq!((sample.rate, sample.latencies.total()), (2.0, 3));
    }

    #[test]
    fn snapshots_are_taken_until_the_end_and_a_failure_is_told() {
        let nobody = |name: &str| {
            let (socket, files) = ("/no/such/socket".into(), name.into());
            Keeper::Ours { socket, files, write_back: false }
        };
        let idle = Taking::begin(nobody("idle"), u64::MAX / 2).unwrap();
        assert_eq!(idle.end().unwrap().latencies.total(), 0, "none was due");
        let failing = Taking::begin(nobody("failing"), 1).unwrap();
        while !failing.thread.is_finished() {
            crate::process::pause();
        }
        assert!(failing.end().is_err_and(|why| why.contains("/no/such/socket")));
    }
}
