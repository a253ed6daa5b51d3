//! Who makes the load of a soak, and how the threads of it tell what they find.
//!
//! Fails: with the [`Failure`] of the first client, writer or program that cannot begin.

use super::control::Control;
use super::mirror::{Mirror, Shape};
use super::reader::Reader;
use super::run::Plan;
use super::snapshots::Client;
use crate::Failure;
use crate::measure::Recorder;
use crate::pace::Pace;
use crate::worker::Worker;
use platform::thread::{JoinHandle, spawn};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// Shares of a limited load: of each client over NFS, each writer over FUSE, and the reader.
const NFS_PERCENT_EACH: u64 = 20;
const FUSE_PERCENT_EACH: u64 = 5;
const READER_PERCENT: u64 = 10;
/// Writers over FUSE.
const FUSE_WRITERS: u64 = 2;
/// Clients over NFS: two like homes, one with many small files, one with few large ones.
const SHAPES: [Shape; 4] = [
    Shape {
        name: "home",
        names: 24,
        file_bytes_max: 256 << 10,
        write_bytes_max: 64 << 10,
        depth: 8,
        changes: 20,
        writes: 40,
    },
    Shape {
        name: "home",
        names: 24,
        file_bytes_max: 256 << 10,
        write_bytes_max: 64 << 10,
        depth: 4,
        changes: 20,
        writes: 40,
    },
    Shape {
        name: "mail",
        names: 150,
        file_bytes_max: 16 << 10,
        write_bytes_max: 12 << 10,
        depth: 8,
        changes: 50,
        writes: 25,
    },
    Shape {
        name: "base",
        names: 3,
        file_bytes_max: 8 << 20,
        // What a server with the least memory takes at once; more would be written in part.
        write_bytes_max: 128 << 10,
        depth: 4,
        changes: 1,
        writes: 45,
    },
];

/// A thread that gives back what it worked with.
pub(super) type Worked<T> = JoinHandle<(T, Result<(), Failure>)>;

impl Plan {
    fn pace(&self, percent: u64) -> Pace {
        Pace::per_second(self.operations_per_second * percent / 100)
    }
}

/// Where the load is made.
pub(super) struct Place<'a> {
    pub plan: &'a Plan,
    pub mountpoint: &'a Path,
    pub address: SocketAddr,
}

/// Starts the clients over NFS.
pub(super) fn begin_clients(
    place: &Place<'_>,
    control: &Arc<Control>,
    recorder: &Arc<Recorder>,
    find: &Sender<Failure>,
) -> Result<(Vec<Client>, Vec<Worked<Mirror>>), Failure> {
    let plan = place.plan;
    let (mut clients, mut mirrors) = (Vec::new(), Vec::new());
    for (number, shape) in (0..).zip(SHAPES) {
        let seed = plan.seed.wrapping_mul(1000) + number;
        let (control, recorder) = (Arc::clone(control), Arc::clone(recorder));
        let pace = plan.pace(NFS_PERCENT_EACH);
        let mut mirror = Mirror::new(shape, number, seed, place.address, control, recorder, pace)?;
        let (commands, commanded) = channel();
        clients.push(Client { name: mirror.name().to_owned(), commands });
        let find = find.clone();
        let body = move || {
            let result = tell_finding(&find, || mirror.work(&commanded));
            (mirror, result)
        };
        mirrors.push(spawn("nfs-client", body).map_err(Failure::machine("start a thread"))?);
    }
    Ok((clients, mirrors))
}

/// Makes the writers over FUSE and the reader, which work as long as a server lives.
pub(super) fn make_writers(
    place: &Place<'_>,
    recorder: &Arc<Recorder>,
) -> Result<(Vec<Worker>, Reader), Failure> {
    let plan = place.plan;
    let mut writers = Vec::new();
    for number in 0..FUSE_WRITERS {
        let seed = plan.seed.wrapping_mul(1000) + 100 + number;
        let mut writer = Worker::over_fuse(&format!("fuse{number}"), seed, place.mountpoint)?;
        writer.record_to(Arc::clone(recorder), plan.pace(FUSE_PERCENT_EACH));
        writers.push(writer);
    }
    let pace = plan.pace(READER_PERCENT);
    let reader = Reader::new(plan.seed, place.mountpoint, Arc::clone(recorder), pace)?;
    Ok((writers, reader))
}

/// Does the work of a thread, and tells the conductor if it ends with a finding.
pub(super) fn tell_finding(
    find: &Sender<Failure>,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let result = catch_unwind(AssertUnwindSafe(work));
    // What was asserted is on standard error, with the thread's name.
    let Err(failure) = result.unwrap_or(Err(Failure::Panicked)) else { return Ok(()) };
    if !matches!(failure, Failure::Stopped) {
        let _ = find.send(failure);
    }
    Err(Failure::Stopped)
}
