//! The honest client: reads, writes and looks, one call at a time; a file whose bytes it knows, and
//! a lock that it holds from the beginning.
//!
//! Fails: with what was not as it must be; a call that is not answered in [`wire::PATIENCE`] is not
//! served.

use super::target::{HONEST, Target, WITNESS};
use super::wire::{self, Lock};
use crate::Failure;
use crate::measure::now_ns;
use nfs_client::{NfsClient, NfsFailure};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NAME: &[u8] = b"honest";
const GRANTED: u32 = 0;
const DENIED: u32 = 1;
/// Names of its newcomers: fewer than one machine may have.
const NAMES: u32 = 16;
/// Calls of one of its connections.
const CALLS_MAX: u32 = 1 << 24;
/// Bytes of its file.
const BYTES: usize = 48 << 10;

/// Operations in a second, and what 99 of 100 took no longer than.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    operations: usize,
    nanoseconds: u64,
    p99_nanoseconds: u64,
}

impl Rate {
    fn of(mut latencies: Vec<u64>, nanoseconds: u64) -> Self {
        latencies.sort_unstable();
        let place = (latencies.len() * 99).div_ceil(100).saturating_sub(1);
        let p99_nanoseconds = latencies.get(place).copied().unwrap_or(0);
        Self { operations: latencies.len(), nanoseconds, p99_nanoseconds }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.nanoseconds as f64 / 1e9;
        let rate = self.operations as f64 / seconds.max(1e-9);
        let p99_ms = self.p99_nanoseconds as f64 / 1e6;
        write!(formatter, "{rate:.0}/s, p99 {p99_ms:.1} ms")
    }
}

fn refused(operation: &str) -> impl FnOnce(NfsFailure) -> Failure {
    let (worker, operation) = ("honest client".to_owned(), operation.to_owned());
    move |failure| Failure::Refused { worker, operation, reason: failure.to_string() }
}

fn connect(target: &Target) -> Result<NfsClient, Failure> {
    let socket = wire::connect(HONEST, target.address).map_err(Failure::machine("connect"))?;
    NfsClient::over(socket, wire::next_xid(CALLS_MAX)).map_err(refused("connect"))
}

fn content(round: u64) -> Vec<u8> {
    (0..BYTES).map(|at| (at as u64).wrapping_mul(round * 2 + 1).to_le_bytes()[1]).collect()
}

/// A client with a file of its own.
struct Worker {
    client: NfsClient,
    file: Vec<u8>,
    round: u64,
}

impl Worker {
    fn begin(target: &Target, name: &str) -> Result<Self, Failure> {
        let mut client = connect(target)?;
        let file = match client.lookup(&target.root, name) {
            Ok(file) => file,
            Err(_) => client.create(&target.root, name).map_err(refused("create"))?,
        };
        let mut worker = Self { client, file, round: 0 };
        worker.write()?;
        Ok(worker)
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.round += 1;
        let data = content(self.round);
        self.client.write(&self.file, 0, &data, true).map(drop).map_err(refused("write"))
    }

    fn check(&mut self) -> Result<(), Failure> {
        let data = self.client.read(&self.file).map_err(refused("read"))?;
        let is_right = data == content(self.round);
        let what = "its file is not what it wrote".to_owned();
        is_right.then_some(()).ok_or(Failure::Lost { who: "honest client".to_owned(), what })
    }

    /// Works until the end: of ten operations one writes, two read, the others look.
    fn work(&mut self, is_over: impl Fn() -> bool) -> Result<Rate, Failure> {
        let (began, mut latencies) = (now_ns(), Vec::new());
        while !is_over() || latencies.is_empty() {
            let start = now_ns();
            match latencies.len() % 10 {
                0 => self.write()?,
                3 | 6 => self.check()?,
                _ => {
                    let look = nfs_client::Request::attributes(&self.file);
                    self.client.call(&look).map(drop).map_err(refused("look"))?;
                }
            }
            latencies.push(now_ns() - start);
        }
        Ok(Rate::of(latencies, now_ns() - began))
    }
}

/// Works over a connection of its own until the end.
pub(crate) fn work_until(target: &Target, is_over: &AtomicBool) -> Result<Rate, Failure> {
    Worker::begin(target, "beside")?.work(|| is_over.load(Ordering::SeqCst))
}

/// See the module.
pub(crate) struct Honest {
    worker: Worker,
    has_lock: bool,
    arrivals: u32,
}

impl Honest {
    /// Connects, writes its file, and locks it if there are locks.
    pub(crate) fn begin(target: &Target, has_lock: bool) -> Result<Self, Failure> {
        let honest = Self { worker: Worker::begin(target, "honest")?, has_lock, arrivals: 0 };
        if has_lock {
            honest.expect(target, (HONEST, NAME), |lock| lock.lock(), GRANTED)?;
        }
        Ok(honest)
    }

    /// Works for a while.
    pub(crate) fn work(&mut self, duration: Duration) -> Result<Rate, Failure> {
        let end = now_ns() + duration.as_nanos() as u64;
        self.worker.work(|| now_ns() >= end)
    }

    /// Connects once more, and locks under a new name.
    pub(crate) fn arrive_anew(&mut self, target: &Target) -> Result<(), Failure> {
        self.arrivals += 1;
        let mut worker = Worker::begin(target, "anew")?;
        worker.check()?;
        if self.has_lock {
            let name = format!("arrival{}", self.arrivals % NAMES);
            let lock = Lock { name: name.as_bytes(), file: &worker.file, owner: b"owner" };
            let calls = [lock.lock(), lock.share()];
            let statuses = ask(target, HONEST, &calls)?;
            ask(target, HONEST, &[lock.unlock(), lock.unshare()])?;
            if statuses != [Some(GRANTED), Some(GRANTED)] {
                return Err(lost(&format!("a newcomer's locks were refused: {statuses:?}")));
            }
        }
        Ok(())
    }

    /// Its bytes and its lock are still there.
    pub(crate) fn has_all(&mut self, target: &Target) -> Result<(), Failure> {
        self.worker.check()?;
        match self.has_lock {
            true => self.expect(target, (WITNESS, b"looks"), |lock| lock.test(), DENIED),
            false => Ok(()),
        }
    }

    fn expect(
        &self,
        target: &Target,
        (from, name): (IpAddr, &[u8]),
        call: impl Fn(&Lock<'_>) -> Vec<u8>,
        status: u32,
    ) -> Result<(), Failure> {
        let lock = Lock { name, file: &self.worker.file, owner: name };
        let found = ask(target, from, &[call(&lock)])?;
        match found == [Some(status)] {
            true => Ok(()),
            false => Err(lost(&format!("a lock: {found:?} is not {status}"))),
        }
    }
}

fn lost(what: &str) -> Failure {
    Failure::Lost { who: "honest client".to_owned(), what: what.to_owned() }
}

/// The statuses of calls about locks.
fn ask(target: &Target, from: IpAddr, calls: &[Vec<u8>]) -> Result<Vec<Option<u32>>, Failure> {
    let mut socket = wire::connect(from, target.address).map_err(Failure::machine("connect"))?;
    Ok(wire::ask_all(&mut socket, calls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_its_slow_end() {
        let rate = Rate::of((1..=200).map(|ms| ms * 1_000_000).collect(), 2_000_000_000);
        assert_eq!(rate.to_string(), "100/s, p99 198.0 ms");
        assert_eq!(Rate::of(Vec::new(), 0).to_string(), "0/s, p99 0.0 ms");
    }
}
