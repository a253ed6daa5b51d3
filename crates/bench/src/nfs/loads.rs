//! The loads: what each round of each of them does to a server.
//!
//! Invariants: a load is timed from its first call to its last reply, and what it leaves behind
//! (unstable writes) is committed before the next one, outside of the time unless it says so.

use super::driver::{Load, Stopped, run};
use super::limit::DIRECTORY_ENTRIES;
use super::session::{Each, Kind, Session};
use super::wire::{Call, DirectoryPlace, Handle, Malformed, Procedure, Reply, Stability};
use crate::latency::Latencies;
use crate::measured::{Measured, Sample};
use crate::numbers::Numbers;
use crate::streams::{LARGE_BYTES, LARGE_DEPTH};
use crate::summary::Unit;
use platform::Clock;
use platform::linux::SystemClock;

const SMALL_BYTES: u32 = 4 << 10;
/// Room of a READDIRPLUS reply.
const LISTING_BYTES: u32 = 64 << 10;

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Case {
    GetAttributes(usize),
    Lookup(usize),
    Read(usize),
    Write(Stability, usize),
    ReadSequential,
    WriteSequential,
    CreateRemove(usize),
    SmallFiles(usize),
    ReadDirectory,
}

/// All of them, in the order they are run.
pub(crate) const CASES: [Case; 18] = [
    Case::GetAttributes(1),
    Case::GetAttributes(32),
    Case::Lookup(1),
    Case::Lookup(32),
    Case::Read(1),
    Case::Read(32),
    Case::ReadSequential,
    Case::Write(Stability::Unstable, 1),
    Case::Write(Stability::Unstable, 32),
    Case::Write(Stability::FileSync, 1),
    Case::Write(Stability::FileSync, 32),
    Case::WriteSequential,
    Case::CreateRemove(1),
    Case::CreateRemove(32),
    Case::CreateRemove(128),
    Case::SmallFiles(1),
    Case::SmallFiles(8),
    Case::ReadDirectory,
];

impl Case {
    /// The lines that it makes.
    pub fn lines(self) -> Vec<(String, Unit)> {
        let operations = |text: String| vec![(text, Unit::Operations)];
        match self {
            Self::GetAttributes(depth) => operations(format!("getattr d{depth}")),
            Self::Lookup(depth) => operations(format!("lookup d{depth}")),
            Self::Read(depth) => operations(format!("read 4K cached d{depth}")),
            Self::Write(Stability::Unstable, depth) => {
                operations(format!("write 4K unstable d{depth}"))
            }
            Self::Write(Stability::FileSync, depth) => {
                operations(format!("write 4K filesync d{depth}"))
            }
            Self::ReadSequential => vec![("read 256K".to_owned(), Unit::Bytes)],
            Self::WriteSequential => vec![
                ("write 256K".to_owned(), Unit::Bytes),
                ("write 256K+commit".to_owned(), Unit::Bytes),
            ],
            Self::CreateRemove(depth) => vec![
                (format!("create d{depth}"), Unit::Files),
                (format!("remove d{depth}"), Unit::Files),
            ],
            Self::SmallFiles(clients) => {
                vec![(format!("small files x{clients}"), Unit::Files)]
            }
            Self::ReadDirectory => vec![("readdirplus 50k".to_owned(), Unit::Entries)],
        }
    }

    /// One round; a sample for each line, fewer where the server cannot.
    pub fn run(self, session: &mut Session, nanoseconds: u64) -> Result<Vec<Sample>, Stopped> {
        let clients = if let Self::SmallFiles(clients) = self { clients } else { 1 };
        session.connect(clients)?;
        let one = |measured| vec![Sample::of(measured, 1.0)];
        match self {
            Self::GetAttributes(depth) => get_attributes(session, depth, nanoseconds).map(one),
            Self::Lookup(depth) => lookup(session, depth, nanoseconds).map(one),
            Self::Read(depth) => read_random(session, depth, nanoseconds).map(one),
            Self::Write(how, depth) => {
                write_random(session, how, depth, (u64::MAX, Some(nanoseconds))).map(one)
            }
            Self::ReadSequential => {
                let measured = read_sequential(session, nanoseconds)?;
                Ok(vec![Sample::of(measured, f64::from(LARGE_BYTES))])
            }
            Self::WriteSequential => write_sequential(session, nanoseconds),
            Self::CreateRemove(depth) => create_remove(session, depth, nanoseconds),
            Self::SmallFiles(_) => small_files(session, nanoseconds).map(one),
            Self::ReadDirectory if session.target.kind == Kind::ForeignLimit => Ok(Vec::new()),
            Self::ReadDirectory => {
                let measured = read_directory(session, nanoseconds)?;
                Ok(vec![Sample::of(measured, DIRECTORY_ENTRIES as f64)])
            }
        }
    }
}

fn get_attributes(session: &mut Session, depth: usize, time: u64) -> Result<Measured, Stopped> {
    let file = session.file;
    let call = |_, call: Call<'_>| call.get_attributes(&file);
    let mut load = Each::new(u64::MAX, call, |_: Reply<'_>| Ok(()));
    run(&mut session.connections, depth, Some(time), &mut load)
}

fn lookup(session: &mut Session, depth: usize, time: u64) -> Result<Measured, Stopped> {
    let (directory, name) = (session.directory, session.new_name());
    session.one(|call| call.create(&directory, &name), |reply| reply.post_handle())?;
    let call = |_, call: Call<'_>| call.named(Procedure::Lookup, &directory, &name);
    let mut load = Each::new(u64::MAX, call, |mut reply: Reply<'_>| reply.handle().map(|_| ()));
    run(&mut session.connections, depth, Some(time), &mut load)
}

/// Reads of random blocks of the file.
pub(super) fn read_random(
    session: &mut Session,
    depth: usize,
    time: u64,
) -> Result<Measured, Stopped> {
    let (file, blocks) = (session.file, session.file_bytes / u64::from(SMALL_BYTES));
    let mut numbers = Numbers::new(1);
    let call = |_, call: Call<'_>| {
        call.read(&file, numbers.next(blocks) * u64::from(SMALL_BYTES), SMALL_BYTES);
    };
    let mut load = Each::new(u64::MAX, call, |reply: Reply<'_>| whole_read(reply, SMALL_BYTES));
    run(&mut session.connections, depth, Some(time), &mut load)
}

fn whole_read(mut reply: Reply<'_>, bytes: u32) -> Result<(), Malformed> {
    if reply.read()? == bytes { Ok(()) } else { Err(Malformed) }
}

fn whole_write(mut reply: Reply<'_>, bytes: u32, how: Stability) -> Result<(), Malformed> {
    let (written, durable) = reply.written()?;
    if written == bytes && (durable || how == Stability::Unstable) {
        Ok(())
    } else {
        Err(Malformed)
    }
}

/// Writes of random blocks of the file: so many, and no longer than so long.
pub(super) fn write_random(
    session: &mut Session,
    how: Stability,
    depth: usize,
    (count, time): (u64, Option<u64>),
) -> Result<Measured, Stopped> {
    let (file, blocks) = (session.file, session.file_bytes / u64::from(SMALL_BYTES));
    let mut numbers = Numbers::new(3);
    let call = |_, call: Call<'_>| {
        call.write(&file, numbers.next(blocks) * u64::from(SMALL_BYTES), SMALL_BYTES, how);
    };
    let reply = |reply: Reply<'_>| whole_write(reply, SMALL_BYTES, how);
    let mut load = Each::new(count, call, reply);
    let measured = run(&mut session.connections, depth, time, &mut load)?;
    session.commit()?;
    Ok(measured)
}

fn read_sequential(session: &mut Session, time: u64) -> Result<Measured, Stopped> {
    let (file, pieces) = (session.file, session.file_bytes / u64::from(LARGE_BYTES));
    let call = |number: u64, call: Call<'_>| {
        call.read(&file, number % pieces * u64::from(LARGE_BYTES), LARGE_BYTES);
    };
    let mut load = Each::new(u64::MAX, call, |reply: Reply<'_>| whole_read(reply, LARGE_BYTES));
    run(&mut session.connections, LARGE_DEPTH, Some(time), &mut load)
}

fn write_sequential(session: &mut Session, time: u64) -> Result<Vec<Sample>, Stopped> {
    let (file, pieces) = (session.file, session.file_bytes / u64::from(LARGE_BYTES));
    let call = |number: u64, call: Call<'_>| {
        let offset = number % pieces * u64::from(LARGE_BYTES);
        call.write(&file, offset, LARGE_BYTES, Stability::Unstable);
    };
    let reply = |reply: Reply<'_>| whole_write(reply, LARGE_BYTES, Stability::Unstable);
    let mut load = Each::new(u64::MAX, call, reply);
    let measured = run(&mut session.connections, LARGE_DEPTH, Some(time), &mut load)?;
    let clock = SystemClock;
    let begin = clock.monotonic_nanoseconds();
    session.commit()?;
    let commit = clock.monotonic_nanoseconds() - begin;
    let mut latencies = Latencies::default();
    latencies.record(commit);
    let nanoseconds = measured.nanoseconds + commit;
    let with_commit =
        Measured { operations: measured.operations, nanoseconds, latencies, ..Measured::default() };
    let bytes = f64::from(LARGE_BYTES);
    Ok(vec![Sample::of(measured, bytes), Sample::of(with_commit, bytes)])
}

fn create_remove(session: &mut Session, depth: usize, time: u64) -> Result<Vec<Sample>, Stopped> {
    let directory = session.new_directory()?;
    let create = |number: u64, call: Call<'_>| call.create(&directory, &name(number));
    let mut load = Each::new(u64::MAX, create, |_: Reply<'_>| Ok(()));
    let created = run(&mut session.connections, depth, Some(time), &mut load)?;
    let count = created.operations;
    let mut samples = vec![Sample::of(created, 1.0)];
    if session.target.kind != Kind::ForeignLimit {
        let remove = |number: u64, call: Call<'_>| {
            call.named(Procedure::Remove, &directory, &name(number));
        };
        let mut load = Each::new(count, remove, |_: Reply<'_>| Ok(()));
        let removed = run(&mut session.connections, depth, None, &mut load)?;
        samples.push(Sample::of(removed, 1.0));
    }
    Ok(samples)
}

fn name(number: u64) -> String {
    format!("file-{number}")
}

/// What a lane of [`SmallFiles`] waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Write,
    Commit,
}

/// Files of 4 KiB: CREATE, WRITE and COMMIT, one after another on each connection.
struct SmallFiles {
    directory: Handle,
    files: u64,
    lanes: Vec<(Step, Handle)>,
}

impl Load for SmallFiles {
    fn call(&mut self, lane: usize, call: Call<'_>) -> bool {
        let Some((step, file)) = self.lanes.get(lane) else { return false };
        match step {
            Step::Create => {
                call.create(&self.directory, &name(self.files));
                self.files += 1;
            }
            Step::Write => call.write(file, 0, SMALL_BYTES, Stability::Unstable),
            Step::Commit => call.commit(file),
        }
        true
    }

    fn reply(&mut self, lane: usize, mut reply: Reply<'_>) -> Result<bool, Malformed> {
        let (step, file) = self.lanes.get_mut(lane).ok_or(Malformed)?;
        match step {
            Step::Create => (*step, *file) = (Step::Write, reply.post_handle()?),
            Step::Write => {
                whole_write(reply, SMALL_BYTES, Stability::Unstable)?;
                *step = Step::Commit;
            }
            Step::Commit => *step = Step::Create,
        }
        Ok(*step == Step::Create)
    }
}

fn small_files(session: &mut Session, time: u64) -> Result<Measured, Stopped> {
    let directory = session.new_directory()?;
    let lanes = vec![(Step::Create, directory); session.connections.len()];
    let mut load = SmallFiles { directory, files: 0, lanes };
    run(&mut session.connections, 1, Some(time), &mut load)
}

/// The large directory from beginning to end, again and again.
struct Listing {
    directory: Handle,
    place: DirectoryPlace,
    entries: u64,
}

impl Load for Listing {
    fn call(&mut self, _lane: usize, call: Call<'_>) -> bool {
        call.read_directory(&self.directory, &self.place, LISTING_BYTES);
        true
    }

    fn reply(&mut self, _lane: usize, mut reply: Reply<'_>) -> Result<bool, Malformed> {
        self.entries += reply.entries(&mut self.place)?;
        if !self.place.ended {
            return Ok(false);
        }
        // "." and ".." may be among them.
        if !(DIRECTORY_ENTRIES..=DIRECTORY_ENTRIES + 2).contains(&self.entries) {
            return Err(Malformed);
        }
        (self.place, self.entries) = (DirectoryPlace::default(), 0);
        Ok(true)
    }
}

/// The large directory from beginning to end.
pub(super) fn read_directory(session: &mut Session, time: u64) -> Result<Measured, Stopped> {
    let directory = session.listing()?;
    let mut load = Listing { directory, place: DirectoryPlace::default(), entries: 0 };
    run(&mut session.connections, 1, Some(time), &mut load)
}
