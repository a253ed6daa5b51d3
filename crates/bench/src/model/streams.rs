//! Clients that write files from start to end, and read them so: each has some requests under way,
//! and sends the next one when one is answered. Clients and the network take no time.
//!
//! Invariants: a stream that writes ends when its COMMIT is answered; a request is carried out
//! whole.
//!
//! Fails: with the first error of an operation, when all streams have ended.

use super::rig::Rig;
use super::world::{Event, Lane, World};
use crate::memory::COMMON_BYTE;
use crate::node::BenchError;
use bytes::Bytes;
use dblade::Service;
use file_service::{
    Caller, FileHandle, FileService, FsError, ReadData, Stability, WriteResult, calls,
};
use platform::sync::Mutex;
use std::sync::Arc;

/// What streams do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// They write, and commit at the end.
    Write,
    /// They read.
    Read,
}

impl Direction {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// The requests of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    pub direction: Direction,
    pub request_bytes: u64,
    /// Of each stream.
    pub count: u64,
    /// Of each stream, at a time.
    pub depth: usize,
}

struct Stream {
    file: FileHandle,
    sent: u64,
    under_way: usize,
    has_ended: bool,
}

/// What a stream sends.
#[derive(Clone, Copy)]
enum Request {
    /// The data of a number, counted from the start of the file.
    Data(u64),
    Commit,
}

impl Stream {
    /// What it sends next, if it may send more now.
    fn next(&mut self, requests: &Requests) -> Option<Request> {
        let Requests { direction, count, depth, .. } = *requests;
        let request = if self.sent < count {
            (self.under_way < depth).then_some(Request::Data(self.sent))
        } else {
            let commits = direction == Direction::Write && self.sent == count;
            (commits && self.under_way == 0).then_some(Request::Commit)
        };
        match request {
            Some(_) => {
                self.sent += 1;
                self.under_way += 1;
            }
            None => self.has_ended = self.under_way == 0,
        }
        request
    }
}

struct State {
    streams: Vec<Stream>,
    bytes: u64,
    failure: Option<FsError>,
}

/// See the module.
struct Streams {
    world: Arc<World>,
    service: Arc<Service>,
    requests: Requests,
    data: Bytes,
    state: Mutex<State>,
}

/// Has each file written or read by a stream of its own.
pub(super) fn run(
    rig: &mut Rig,
    files: &[FileHandle],
    requests: Requests,
) -> Result<(), BenchError> {
    let stream =
        |file: &FileHandle| Stream { file: *file, sent: 0, under_way: 0, has_ended: false };
    let streams = files.iter().map(stream).collect();
    let streams = Arc::new(Streams {
        world: Arc::clone(&rig.world),
        service: Arc::clone(&rig.service),
        requests,
        data: Bytes::from(vec![COMMON_BYTE; requests.request_bytes as usize]),
        state: Mutex::new(State { streams, bytes: 0, failure: None }),
    });
    for stream in 0..files.len() {
        (0..requests.depth).for_each(|_| streams.send_next(stream));
    }
    let load = requests.direction.name();
    let why = || "nothing is left to happen, and streams have not ended".to_owned();
    if !rig.cores.run_until(|| streams.have_ended()) {
        return Err(BenchError::Server { what: "the engine of the model", why: why() });
    }
    let state = streams.state.lock();
    if let Some(error) = state.failure {
        return Err(BenchError::Operation { load, error });
    }
    let expected = files.len() as u64 * requests.count * requests.request_bytes;
    assert!(state.bytes == expected, "requests are carried out whole");
    Ok(())
}

impl Streams {
    fn have_ended(&self) -> bool {
        self.state.lock().streams.iter().all(|stream| stream.has_ended)
    }

    /// Has the connection's thread make the next call, if there is one to make.
    fn send_next(self: &Arc<Self>, stream: usize) {
        let next = self.state.lock().streams[stream].next(&self.requests);
        let Some(request) = next else { return };
        let same = Arc::clone(self);
        let call = Box::new(move || same.call(stream, request));
        self.world.note(self.world.moment(), Event::Ready(Lane::Calls, call));
    }

    fn call(self: Arc<Self>, stream: usize, request: Request) {
        let (caller, file) = (Caller::root(), self.state.lock().streams[stream].file);
        let (same, request_bytes) = (Arc::clone(&self), self.requests.request_bytes);
        match request {
            Request::Data(number) if self.requests.direction == Direction::Read => {
                let (offset, count) = (number * request_bytes, request_bytes as u32);
                let bytes = |read: ReadData| read.len() as u64;
                let done = move |result: Result<_, _>| same.answered(stream, result.map(bytes));
                let call = calls::Read { file, offset, count };
                self.service.read(&caller, call, Box::new(done));
            }
            Request::Data(number) => {
                let (offset, data) = (number * request_bytes, self.data.clone());
                let bytes = |written: WriteResult| u64::from(written.count);
                let done = move |result: Result<_, _>| same.answered(stream, result.map(bytes));
                let call = calls::Write { file, offset, data, stability: Stability::Unstable };
                self.service.write(&caller, call, Box::new(done));
            }
            Request::Commit => {
                let done = move |result: Result<_, _>| same.answered(stream, result.map(|_| 0));
                self.service.commit(&caller, calls::Commit::of(file), Box::new(done));
            }
        }
    }

    /// A request of a stream is over.
    fn answered(self: &Arc<Self>, stream: usize, result: Result<u64, FsError>) {
        self.world.aside(|| {
            let mut state = self.state.lock();
            state.streams[stream].under_way -= 1;
            match result {
                Ok(bytes) => state.bytes += bytes,
                Err(error) => {
                    state.failure.get_or_insert(error);
                }
            }
            drop(state);
            self.send_next(stream);
        });
    }
}
