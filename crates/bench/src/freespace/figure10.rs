//! Figure 10: the first consistency point after a start, with TopAA and without, of one volume of
//! growing size and of a growing number of volumes (FreeSpace section 4.4).
//!
//! An aggregate of hard disks is made, with thin volumes and some data in each. In each round some
//! blocks are written, so that the next one finds its blocks elsewhere, and it is stopped. A new
//! engine, which has nothing in memory,
//! - *opens* it, which ends with a consistency point of what the log held: nothing, here;
//! - takes one small write to the last volume, and ends its *first CP*;
//! - *counts* areas in the background until it has nothing more to do.
//!
//! *Modelled* is the time for which the busiest drive worked, *all drives* what they worked
//! together. What the log is asked is not counted.
//!
//! Volumes are thin, and their free maps have holes where nothing was written yet: to count such
//! areas takes processor time, but reads nothing.
//!
//! Invariant: rounds with TopAA and without are taken in turns, each on an aggregate of its own,
//! made by the same loads. A drive does few things in a step, and where they lie matters as much as
//! how many they are: rounds differ by where the one before ended, by chance, with the same numbers
//! for all cases.

use crate::freespace::drive::{Model, Work};
use crate::freespace::loads::{Place, write};
use crate::freespace::plan::{Found, FreespaceBench};
use crate::freespace::rig::Rig;
use crate::freespace::variant::{AS_IT_IS, Progress, Variant};
use crate::node::BenchError;
use crate::numbers::Numbers;
use crate::summary::{Beside, Role, Row, Series, Unit};
use device_models::HddConfiguration;
use platform::Clock;
use platform::linux::SystemClock;
use platform::sync::{Condvar, Mutex};
use std::time::Duration;
use units::{BLOCK_SIZE_U64, ByteSize};

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// A: one volume, of so many bytes.
const SIZES: [u64; 5] = [GIB, 100 * GIB, TIB, 10 * TIB, 100 * TIB];
/// B: so many volumes, as large as those of FreeSpace.
const COUNTS: [u64; 4] = [1, 10, 100, 1000];
const SIZE: u64 = 100 * GIB;
/// Room of an aggregate for a volume and its data.
const AGGREGATE_BYTES_OF_VOLUME: u64 = 4 << 20;
/// A volume is at most so many times as large as its aggregate: one of 100 TiB with 4 GiB.
const TIMES_AGGREGATE_MAX: u64 = 25_600;
const DATA_BYTES: u64 = 64 << 10;
/// How often it is looked whether all areas are counted.
const POLL: Duration = Duration::from_millis(1);

const WITHOUT: Variant = Variant {
    name: "without TopAA",
    configure: |_, engine| engine.tuning.reads_top_areas = false,
    ..AS_IT_IS
};

/// What is asked of a round, step by step.
const STEPS: [&str; 3] = ["opening", "first CP", "counting"];

/// Its name, its unit, and what of a step it is.
type Metric = (&'static str, Unit, fn(&Step) -> u64);

/// What is told of a step.
const METRICS: [Metric; 5] = [
    ("modelled", Unit::Duration, |step| step.busy_nanoseconds),
    ("all drives", Unit::Duration, |step| step.work_nanoseconds),
    ("blocks read", Unit::Count, |step| step.read_blocks),
    ("blocks written", Unit::Count, |step| step.written_blocks),
    ("here", Unit::Duration, |step| step.nanoseconds),
];

/// Volumes of a case.
#[derive(Clone, Copy)]
struct Volumes {
    part: &'static str,
    count: u64,
    bytes: u64,
}

/// What a step took of drives and of this machine.
#[derive(Clone, Copy)]
struct Step {
    busy_nanoseconds: u64,
    work_nanoseconds: u64,
    read_blocks: u64,
    written_blocks: u64,
    nanoseconds: u64,
}

type Round = [Step; STEPS.len()];

/// An aggregate that is started again and again.
struct Started {
    rig: Rig,
    place: Place,
    numbers: Numbers,
    rounds: Vec<Round>,
}

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let aggregate_bytes = bench.disk.0 * bench.data_disks as u64;
    let has_room = |volumes: &Volumes| {
        volumes.count * AGGREGATE_BYTES_OF_VOLUME <= aggregate_bytes
            && volumes.bytes <= aggregate_bytes.saturating_mul(TIMES_AGGREGATE_MAX)
    };
    let of_size = |bytes| Volumes { part: "A", count: 1, bytes };
    let of_count = |count| Volumes { part: "B", count, bytes: SIZE };
    let all = SIZES.into_iter().map(of_size).chain(COUNTS.into_iter().map(of_count));
    let mut rows = Vec::new();
    for volumes in all.filter(has_room) {
        rows.extend(measure(bench, volumes, progress)?);
    }
    let note = "hard disks; volumes are thin, with 64 KiB of data; those for which the aggregate is \
                too small are left out; opening ends with a consistency point of its own; the \
                paper: flat with TopAA, linear in the volumes' size and number without";
    Ok((rows, note.to_owned()))
}

fn measure(
    bench: &FreespaceBench,
    volumes: Volumes,
    progress: Progress<'_>,
) -> Result<Vec<Row>, BenchError> {
    let name = format!("10 {}, {} of {}", volumes.part, volumes.count, ByteSize(volumes.bytes));
    progress(&format!("figure {name}"));
    let mut with = prepare(bench, volumes)?;
    let mut without = prepare(bench, volumes)?;
    for _ in 0..bench.rounds {
        with.round(&AS_IT_IS)?;
        without.round(&WITHOUT)?;
    }
    let mut rows = Vec::new();
    for (step, step_name) in STEPS.iter().enumerate() {
        for (metric, unit, of) in METRICS {
            let series = |started: &Started| {
                let values = started.rounds.iter().map(|round| of(&round[step]) as f64);
                Series::of(values.collect())
            };
            let peer = Beside {
                name: WITHOUT.name.to_owned(),
                role: Role::Peer,
                series: series(&without),
            };
            let load = format!("{name}: {step_name}, {metric}");
            rows.push(Row { load, unit, ours: series(&with), beside: vec![peer] });
        }
    }
    Ok(rows)
}

/// An aggregate with volumes, and in each a file.
fn prepare(bench: &FreespaceBench, volumes: Volumes) -> Result<Started, BenchError> {
    let rig = Rig::new(&bench.shape(Model::Hdd(HddConfiguration::default())), &AS_IT_IS)?;
    let file = |number| rig.new_file(&format!("volume{number}"), volumes.bytes / BLOCK_SIZE_U64);
    let files = (0..volumes.count).map(file).collect::<Result<Vec<_>, _>>()?;
    write(&rig, files.iter().map(|file| (*file, 0)), DATA_BYTES)?;
    rig.commit()?;
    let Some(last) = files.last() else { unreachable!("a case has volumes") };
    Ok(Started { rig, place: (*last, 0), numbers: Numbers::new(10), rounds: Vec::new() })
}

impl Started {
    fn round(&mut self, variant: &Variant) -> Result<(), BenchError> {
        let blocks = 1 + self.numbers.next(DATA_BYTES / BLOCK_SIZE_U64);
        write(&self.rig, std::iter::once(self.place), blocks * BLOCK_SIZE_U64)?;
        self.rig.commit()?;
        self.rig.restart(variant)?;
        let rig = &self.rig;
        let opening = step(rig, || rig.open())?;
        let first = step(rig, || {
            write(rig, std::iter::once(self.place), BLOCK_SIZE_U64)?;
            rig.commit()
        })?;
        let counting = step(rig, || {
            until_idle(rig);
            Ok(())
        })?;
        self.rounds.push([opening, first, counting]);
        Ok(())
    }
}

/// Waits until the engine has no message left, of those that count areas either.
fn until_idle(rig: &Rig) {
    let (never, lock) = (Condvar::new(), Mutex::new(()));
    while !rig.engine.scheduler().is_idle() {
        let _ = never.wait_for(&mut lock.lock(), POLL);
    }
}

fn step(rig: &Rig, work: impl FnOnce() -> Result<(), BenchError>) -> Result<Step, BenchError> {
    drop(take_work(rig));
    let begin = SystemClock.monotonic_nanoseconds();
    work()?;
    let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
    let work = take_work(rig);
    let total = |of: fn(&Work) -> u64| work.iter().map(of).sum();
    Ok(Step {
        busy_nanoseconds: work.iter().map(|work| work.busy_nanoseconds).max().unwrap_or(0),
        work_nanoseconds: total(|work| work.busy_nanoseconds),
        read_blocks: total(|work| work.read_blocks),
        written_blocks: total(|work| work.host_blocks),
        nanoseconds,
    })
}

/// What each drive did since the last call.
fn take_work(rig: &Rig) -> Vec<Work> {
    rig.groups().flatten().map(|drive| drive.take_work()).collect()
}
