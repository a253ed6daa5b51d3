//! Keeps calls in flight and counts what comes back.
//!
//! A *lane* is a chain of calls, one at a time; a connection of depth D has D lanes. What ends an
//! operation is the load's business: one reply, or the last of several.
//!
//! Invariants: one thread; a lane that was told to stop is not started again; time runs from the
//! first call to the last reply. Fails: with the first status other than OK.

use super::connection::Connection;
use super::wire::{Call, Malformed, Reply, accepted};
use crate::measured::{Measured, client_nanoseconds};
use crate::node::BenchError;
use platform::Clock;
use platform::linux::SystemClock;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;

/// Most lanes of a connection: the low bits of a transaction number name the lane.
pub(crate) const DEPTH_MAX: usize = 1024;
const LANE_BITS: u32 = DEPTH_MAX.trailing_zeros();

/// What to call, and what a reply means.
pub(crate) trait Load {
    /// Makes the lane's next call. False if there is nothing left to do.
    fn call(&mut self, lane: usize, call: Call<'_>) -> bool;

    /// Takes the results behind a status OK. Whether an operation ended.
    fn reply(&mut self, lane: usize, reply: Reply<'_>) -> Result<bool, Malformed>;

    /// An operation of a lane ended, which had taken so long.
    fn ended(&mut self, _lane: usize, _now_nanoseconds: u64, _nanoseconds: u64) {}
}

/// Why a run ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    Io(io::ErrorKind),
    Malformed,
    Status(u32),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

impl From<Malformed> for Stopped {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl Stopped {
    /// The same as a sentence.
    pub fn why(self) -> String {
        match self {
            Self::Io(kind) => format!("the connection failed: {kind}"),
            Self::Malformed => "a reply makes no sense".to_owned(),
            Self::Status(status) => format!("NFS status {status}"),
        }
    }

    /// The same as an error of `load` against `target`.
    pub fn error(self, load: &str, target: &str) -> BenchError {
        let (load, target) = (load.to_owned(), target.to_owned());
        BenchError::Load { load, target, why: self.why() }
    }
}

/// A run's state.
struct Run<'a> {
    depth: usize,
    /// When lanes stop, if ever before the load does.
    deadline: u64,
    /// When each lane's operation began.
    begun: Vec<u64>,
    /// Transactions under way, by lane; none is odd enough to be 0.
    waiting: Vec<u32>,
    in_flight: usize,
    sequence: u32,
    measured: Measured,
    load: &'a mut dyn Load,
}

/// Runs `load` with `depth` lanes on each connection, for `nanoseconds` or until it has nothing
/// left to do.
pub(crate) fn run(
    connections: &mut [Connection],
    depth: usize,
    nanoseconds: Option<u64>,
    load: &mut dyn Load,
) -> Result<Measured, Stopped> {
    assert!((1..=DEPTH_MAX).contains(&depth), "{depth} lanes");
    let clock = SystemClock;
    let begin = clock.monotonic_nanoseconds();
    let client_begin = client_nanoseconds();
    let lanes = connections.len() * depth;
    let mut run = Run {
        depth,
        deadline: nanoseconds.map_or(u64::MAX, |length| begin + length),
        begun: vec![begin; lanes],
        waiting: vec![0; lanes],
        in_flight: 0,
        // Servers remember transactions: a connection must not begin where another one did.
        sequence: begin as u32,
        measured: Measured::default(),
        load,
    };
    for (number, connection) in connections.iter_mut().enumerate() {
        (number * depth..(number + 1) * depth).for_each(|lane| run.start(lane, connection));
        connection.flush()?;
    }
    let mut end = begin;
    while run.in_flight > 0 {
        if let [connection] = connections {
            connection.fill()?;
            end = clock.monotonic_nanoseconds();
            run.take(0, connection, end)?;
            continue;
        }
        let ready = wait(connections)?;
        for (number, connection) in connections.iter_mut().enumerate() {
            if ready & 1 << number != 0 {
                connection.fill()?;
                end = clock.monotonic_nanoseconds();
                run.take(number, connection, end)?;
            }
        }
    }
    run.measured.nanoseconds = end - begin;
    run.measured.client_nanoseconds = client_nanoseconds() - client_begin;
    Ok(run.measured)
}

/// Waits until any connection has something to read; which, as bits.
fn wait(connections: &[Connection]) -> Result<u64, Stopped> {
    assert!(connections.len() <= 64, "connections are bits of a word");
    let interest = |connection| PollFd::from_borrowed_fd(socket(connection), PollFlags::IN);
    let mut polled: Vec<PollFd<'_>> = connections.iter().map(interest).collect();
    poll(&mut polled, None).map_err(io::Error::from)?;
    let ready = polled.iter().enumerate().filter(|(_, one)| !one.revents().is_empty());
    Ok(ready.fold(0, |bits, (number, _)| bits | 1 << number))
}

fn socket(connection: &Connection) -> std::os::fd::BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(&connection.socket)
}

impl Run<'_> {
    fn start(&mut self, lane: usize, connection: &mut Connection) {
        self.sequence = self.sequence.wrapping_add(1);
        let xid = self.sequence << LANE_BITS | (lane % self.depth) as u32;
        let call = Call { calls: &mut connection.calls, xid };
        if self.load.call(lane, call) {
            if let Some(waiting) = self.waiting.get_mut(lane) {
                *waiting = xid;
            }
            self.in_flight += 1;
        }
    }

    /// Takes all replies that are there and makes the calls that follow them.
    fn take(
        &mut self,
        number: usize,
        connection: &mut Connection,
        now: u64,
    ) -> Result<(), Stopped> {
        while let Some(record) = connection.input.next()? {
            let (xid, mut reply) = accepted(record)?;
            let lane = number * self.depth + (xid & (DEPTH_MAX as u32 - 1)) as usize;
            if self.waiting.get(lane) != Some(&xid) {
                return Err(Stopped::Malformed);
            }
            let status = reply.u32()?;
            if status != 0 {
                return Err(Stopped::Status(status));
            }
            self.in_flight -= 1;
            let ended = self.load.reply(lane, reply)?;
            let Some(begun) = self.begun.get_mut(lane) else { return Err(Stopped::Malformed) };
            if ended {
                let nanoseconds = now - *begun;
                *begun = now;
                self.measured.operations += 1;
                self.measured.latencies.record(nanoseconds);
                self.load.ended(lane, now, nanoseconds);
            }
            if !ended || now < self.deadline {
                self.start(lane, connection);
            }
        }
        connection.flush()?;
        Ok(())
    }
}
