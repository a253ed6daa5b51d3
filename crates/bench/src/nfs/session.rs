//! A server to load, and what was prepared on it: a directory, a file with data, a large directory.
//!
//! Invariants: what the loads touch is made before the clock runs; names are never used twice.

use super::connection::Connection;
use super::driver::{Load, Stopped, run};
use super::limit::DIRECTORY_ENTRIES;
use super::wire::{Call, Handle, MOUNT, Malformed, Reply, Stability, accepted};
use crate::measured::Measured;
use crate::node::BenchError;
use crate::streams::{LARGE_BYTES, LARGE_DEPTH};
use platform::Clock as _;
use platform::linux::SystemClock;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What kind of server it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One that does what it is asked.
    Real,
    /// One that does nothing, ours.
    Limit,
    /// One that does nothing and knows fewer procedures.
    ForeignLimit,
}

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub name: String,
    pub kind: Kind,
    pub nfs: SocketAddr,
    pub mount: SocketAddr,
    pub path: String,
}

/// See the module.
pub(crate) struct Session {
    pub target: Target,
    pub connections: Vec<Connection>,
    pub directory: Handle,
    pub file: Handle,
    pub file_bytes: u64,
    payload: Arc<[u8]>,
    listing: Option<Handle>,
}

/// Names that the sessions of this process took: one follows another on the same server.
static NAMES: AtomicU64 = AtomicU64::new(0);

/// Calls in flight while something is prepared.
const PREPARE_DEPTH: usize = 32;

/// One call after another, by number, each lane for itself.
pub(crate) struct Each<C, R> {
    next: u64,
    end: u64,
    call: C,
    reply: R,
}

impl<C, R> Each<C, R>
where
    C: FnMut(u64, Call<'_>),
    R: FnMut(Reply<'_>) -> Result<(), Malformed>,
{
    pub const fn new(end: u64, call: C, reply: R) -> Self {
        Self { next: 0, end, call, reply }
    }
}

impl<C, R> Load for Each<C, R>
where
    C: FnMut(u64, Call<'_>),
    R: FnMut(Reply<'_>) -> Result<(), Malformed>,
{
    fn call(&mut self, _lane: usize, call: Call<'_>) -> bool {
        if self.next == self.end {
            return false;
        }
        (self.call)(self.next, call);
        self.next += 1;
        true
    }

    fn reply(&mut self, _lane: usize, reply: Reply<'_>) -> Result<bool, Malformed> {
        (self.reply)(reply)?;
        Ok(true)
    }
}

impl Session {
    /// Mounts, and makes a directory and a file of `file_bytes` in it, which the server then has in
    /// memory.
    pub fn open(target: Target, file_bytes: u64) -> Result<Self, BenchError> {
        let name = target.name.clone();
        Self::prepare(target, file_bytes).map_err(|stopped| stopped.error("preparing", &name))
    }

    /// The same with an empty file, which loads are to fill.
    pub fn open_empty(target: Target, file_bytes: u64) -> Result<Self, BenchError> {
        let name = target.name.clone();
        Self::make(target, file_bytes).map_err(|stopped| stopped.error("preparing", &name))
    }

    fn prepare(target: Target, file_bytes: u64) -> Result<Self, Stopped> {
        let mut session = Self::make(target, file_bytes)?;
        session.write_all()?;
        session.read_all()?;
        Ok(session)
    }

    fn make(target: Target, file_bytes: u64) -> Result<Self, Stopped> {
        // Not all the same, so that nothing is gained by noticing.
        let payload: Vec<u8> = (0..LARGE_BYTES).map(|number| (number * 7 / 3) as u8).collect();
        let payload: Arc<[u8]> = payload.into();
        let root = mount(&target, &payload)?;
        let connections = vec![Connection::open(target.nfs, &payload)?];
        let (directory, file, listing) = (root, root, None);
        let mut session =
            Self { target, connections, directory, file, file_bytes, payload, listing };
        session.directory = session.new_directory()?;
        session.file = session.new_file()?;
        Ok(session)
    }

    /// Has exactly `count` connections.
    pub fn connect(&mut self, count: usize) -> Result<(), Stopped> {
        self.connections.truncate(count);
        while self.connections.len() < count {
            self.connections.push(Connection::open(self.target.nfs, &self.payload)?);
        }
        Ok(())
    }

    /// A name that was not used yet, also not by an earlier bench on this server.
    pub fn new_name(&self) -> String {
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        format!("bench-{}-{number}", std::process::id())
    }

    /// A new, empty directory.
    pub fn new_directory(&mut self) -> Result<Handle, Stopped> {
        let (parent, name) = (self.directory, self.new_name());
        if self.target.kind == Kind::ForeignLimit {
            return Ok(parent);
        }
        self.one(|call| call.make_directory(&parent, &name), |reply| reply.post_handle())
    }

    /// A new, empty file.
    pub fn new_file(&mut self) -> Result<Handle, Stopped> {
        let (parent, name) = (self.directory, self.new_name());
        self.one(|call| call.create(&parent, &name), |reply| reply.post_handle())
    }

    /// COMMIT of the file.
    pub fn commit(&mut self) -> Result<(), Stopped> {
        let file = self.file;
        self.one(|call| call.commit(&file), |reply| reply.change())
    }

    /// One call on the first connection.
    pub fn one<T>(
        &mut self,
        mut call: impl FnMut(Call<'_>),
        mut reply: impl FnMut(&mut Reply<'_>) -> Result<T, Malformed>,
    ) -> Result<T, Stopped> {
        let mut answer = None;
        let mut load = Each::new(
            1,
            |_, made: Call<'_>| call(made),
            |mut results: Reply<'_>| {
                answer = Some(reply(&mut results)?);
                Ok(())
            },
        );
        run(self.connections.get_mut(..1).unwrap_or_default(), 1, None, &mut load)?;
        answer.ok_or(Stopped::Malformed)
    }

    /// Writes the whole file in order, and commits it: timed to the end of the COMMIT.
    pub fn write_all(&mut self) -> Result<Measured, Stopped> {
        let begin = SystemClock.monotonic_nanoseconds();
        let measured = self.write_in_order()?;
        self.commit()?;
        let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
        Ok(Measured { nanoseconds, ..measured })
    }

    /// Writes the whole file in order.
    pub fn write_in_order(&mut self) -> Result<Measured, Stopped> {
        let (file, count) = (self.file, self.file_bytes / u64::from(LARGE_BYTES));
        let write = |number: u64, call: Call<'_>| {
            let offset = number * u64::from(LARGE_BYTES);
            call.write(&file, offset, LARGE_BYTES, Stability::Unstable);
        };
        let mut load = Each::new(count, write, |mut reply: Reply<'_>| {
            let (written, _) = reply.written()?;
            if written == LARGE_BYTES { Ok(()) } else { Err(Malformed) }
        });
        run(&mut self.connections, LARGE_DEPTH, None, &mut load)
    }

    fn read_all(&mut self) -> Result<(), Stopped> {
        let (file, count) = (self.file, self.file_bytes / u64::from(LARGE_BYTES));
        let read = |number: u64, call: Call<'_>| {
            call.read(&file, number * u64::from(LARGE_BYTES), LARGE_BYTES);
        };
        let mut load = Each::new(count, read, |mut reply: Reply<'_>| reply.read().map(|_| ()));
        run(&mut self.connections, LARGE_DEPTH, None, &mut load)?;
        Ok(())
    }

    /// Makes empty files in a directory of their own.
    pub fn make_files(&mut self, count: u64) -> Result<Handle, Stopped> {
        let directory = self.new_directory()?;
        let create =
            |number: u64, call: Call<'_>| call.create(&directory, &format!("file-{number:05}"));
        let mut load = Each::new(count, create, |_: Reply<'_>| Ok(()));
        run(&mut self.connections, PREPARE_DEPTH, None, &mut load)?;
        Ok(directory)
    }

    /// The directory of [`DIRECTORY_ENTRIES`] names was made by an earlier session.
    pub const fn set_listing(&mut self, directory: Handle) {
        self.listing = Some(directory);
    }

    /// The directory of [`DIRECTORY_ENTRIES`] names.
    pub fn listing(&mut self) -> Result<Handle, Stopped> {
        if let Some(listing) = self.listing {
            return Ok(listing);
        }
        let directory = if self.target.kind == Kind::Real {
            self.make_files(DIRECTORY_ENTRIES)?
        } else {
            self.new_directory()?
        };
        self.listing = Some(directory);
        Ok(directory)
    }
}

/// MNT: the root's handle.
fn mount(target: &Target, payload: &Arc<[u8]>) -> Result<Handle, Stopped> {
    const XID: u32 = 1;
    let mut connection = Connection::open(target.mount, payload)?;
    connection.calls.call(XID, (MOUNT, 1), |calls| calls.opaque(target.path.as_bytes()));
    connection.flush()?;
    loop {
        if let Some(record) = connection.input.next()? {
            let (_, mut reply) = accepted(record)?;
            let status = reply.u32()?;
            return if status == 0 { Ok(reply.handle()?) } else { Err(Stopped::Status(status)) };
        }
        connection.fill()?;
    }
}
