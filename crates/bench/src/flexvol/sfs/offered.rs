//! Offers operations to a server: at a rate that does not wait for answers, or as many as it takes.
//!
//! At a rate operations arrive as `arrivals` says. One that arrives when all lanes are taken waits
//! for a lane. Its response time counts from its arrival, and so has this wait in it, and the wait
//! for this thread to wake up. As many as the server takes means that each lane asks again as soon
//! as it is answered; response times then count from the call.
//!
//! Invariants: one thread; only what is answered within the measured time counts, also if it
//! arrived before; afterwards nothing is asked, and all that is under way is answered. Arrivals
//! that still wait then are dropped. Fails: with the first answer that is not what it should be,
//! and the operation that it is of.

use super::arrivals::Arrivals;
use super::calls::{Asked, answered, ask};
use super::files::DataSet;
use super::mix::{Operation, numbers};
use crate::latency::Latencies;
use crate::nfs::connection::Connection;
use crate::nfs::driver::Stopped;
use crate::nfs::wire::{Call, Malformed, accepted};
use crate::numbers::Numbers;
use platform::Clock as _;
use platform::linux::SystemClock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Connections to a server, as of so many clients.
pub(super) const CONNECTIONS: usize = 4;
/// Operations under way at most, on all connections together.
pub(super) const LANES: usize = 64;
const LANE_BITS: u32 = LANES.trailing_zeros();
const _: () = assert!(LANES.is_power_of_two(), "the low bits of a transaction name the lane");

/// How operations are offered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Pace {
    /// As many as the server takes.
    Closed,
    /// So many a second.
    Rate(f64),
}

/// What is offered, and for how long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Offer {
    pub pace: Pace,
    pub warm_nanoseconds: u64,
    pub measured_nanoseconds: u64,
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Achieved {
    pub nanoseconds: u64,
    /// Operations that arrived.
    pub offered: u64,
    /// Operations that were answered, and how long they took altogether.
    pub answered: u64,
    pub response_nanoseconds: u64,
    pub latencies: Latencies,
}

/// Why an offer ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Failed {
    /// The operation whose answer it was.
    pub operation: Option<Operation>,
    pub stopped: Stopped,
}

impl<T: Into<Stopped>> From<T> for Failed {
    fn from(cause: T) -> Self {
        Self { operation: None, stopped: cause.into() }
    }
}

impl Achieved {
    fn note(&mut self, nanoseconds: u64) {
        self.answered += 1;
        self.response_nanoseconds += nanoseconds;
        self.latencies.record(nanoseconds);
    }

    fn a_second(&self, operations: u64) -> f64 {
        operations as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }

    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.a_second(self.answered)
    }

    /// Arrivals a second.
    pub fn offered_rate(&self) -> f64 {
        self.a_second(self.offered)
    }

    /// The average response time in nanoseconds, none if nothing was answered.
    pub fn response(&self) -> Option<f64> {
        (self.answered > 0).then(|| self.response_nanoseconds as f64 / self.answered as f64)
    }
}

/// An operation under way, by its transaction.
#[derive(Clone, Copy)]
struct UnderWay {
    transaction: u32,
    arrived: u64,
    asked: Asked,
}

struct Run<'a> {
    set: &'a mut DataSet,
    numbers: Numbers,
    /// None asks whenever a lane is free.
    arrivals: Option<Arrivals>,
    lanes: [Option<UnderWay>; LANES],
    /// The lane that was free for longest is first, so that all connections are used.
    free: VecDeque<usize>,
    sequence: u32,
    /// The measured time.
    from: u64,
    end: u64,
    achieved: Achieved,
}

/// Offers operations on `set`, and takes the answers.
pub(super) fn offer(
    connections: &mut [Connection],
    set: &mut DataSet,
    offer: Offer,
) -> Result<Achieved, Failed> {
    let begin = SystemClock.monotonic_nanoseconds();
    let from = begin + offer.warm_nanoseconds;
    let arrivals = match offer.pace {
        Pace::Closed => None,
        Pace::Rate(rate) => Some(Arrivals::new(rate, begin, numbers(offer.seed + 1))),
    };
    let mut run = Run {
        set,
        numbers: numbers(offer.seed),
        arrivals,
        lanes: [None; LANES],
        free: (0..LANES).collect(),
        // Servers remember transactions: a run must not begin where another one did.
        sequence: begin as u32,
        from,
        end: from + offer.measured_nanoseconds,
        achieved: Achieved { nanoseconds: offer.measured_nanoseconds, ..Achieved::default() },
    };
    loop {
        let now = SystemClock.monotonic_nanoseconds();
        run.ask(connections, now)?;
        if now >= run.end && run.free.len() == LANES {
            return Ok(run.achieved());
        }
        let ready = wait(connections, run.pause(now))?;
        for (number, connection) in connections.iter_mut().enumerate() {
            if ready & 1 << number != 0 {
                connection.fill()?;
                run.take(connection, SystemClock.monotonic_nanoseconds())?;
            }
        }
    }
}

/// Waits for something to read, no longer than `pause` nanoseconds; on which connections, as bits.
fn wait(connections: &[Connection], pause: Option<u64>) -> io::Result<u64> {
    let interest = |one| PollFd::from_borrowed_fd(socket(one), PollFlags::IN);
    let mut polled: Vec<PollFd<'_>> = connections.iter().map(interest).collect();
    let pause = pause.map(|nanoseconds| Timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as i64,
    });
    match poll(&mut polled, pause.as_ref()) {
        // A signal that ends it early only makes the next look come earlier.
        Err(Errno::INTR) => return Ok(0),
        polled => polled?,
    };
    let ready = polled.iter().enumerate().filter(|(_, one)| !one.revents().is_empty());
    Ok(ready.fold(0, |bits, (number, _)| bits | 1 << number))
}

fn socket(connection: &Connection) -> BorrowedFd<'_> {
    connection.socket.as_fd()
}

impl Run<'_> {
    /// Asks for what has arrived, as far as lanes are free, and sends it.
    fn ask(&mut self, connections: &mut [Connection], now: u64) -> Result<(), Failed> {
        while now < self.end
            && let Some(arrived) = self.arrival(now)
            && let Some(lane) = self.free.pop_front()
        {
            let count = connections.len().max(1);
            let Some(connection) = connections.get_mut(lane % count) else { break };
            self.note_arrival(arrived);
            self.sequence = self.sequence.wrapping_add(1);
            let transaction = self.sequence << LANE_BITS | lane as u32;
            let call = Call { calls: &mut connection.calls, xid: transaction };
            let asked = ask(self.set, &mut self.numbers, call);
            if let Some(place) = self.lanes.get_mut(lane) {
                *place = Some(UnderWay { transaction, arrived, asked });
            }
        }
        for connection in connections {
            connection.flush()?;
        }
        Ok(())
    }

    /// Takes the operation that has arrived by now, if there is one and a lane for it.
    fn arrival(&mut self, now: u64) -> Option<u64> {
        if self.free.is_empty() {
            return None;
        }
        match &mut self.arrivals {
            None => Some(now),
            Some(arrivals) => (arrivals.next() <= now).then(|| arrivals.take()),
        }
    }

    /// How long there is nothing to ask for; none until an answer comes.
    fn pause(&self, now: u64) -> Option<u64> {
        if now >= self.end || self.free.is_empty() {
            return None;
        }
        let next = self.arrivals.as_ref()?.next();
        Some(next.min(self.end).saturating_sub(now))
    }

    /// What was measured, with the arrivals that nobody had a lane for.
    fn achieved(mut self) -> Achieved {
        if let Some(mut arrivals) = self.arrivals.take() {
            while arrivals.next() < self.end {
                self.note_arrival(arrivals.take());
            }
        }
        self.achieved
    }

    fn note_arrival(&mut self, arrived: u64) {
        self.achieved.offered += u64::from((self.from..self.end).contains(&arrived));
    }

    /// Takes all answers of a connection that are there.
    fn take(&mut self, connection: &mut Connection, now: u64) -> Result<(), Failed> {
        while let Some(record) = connection.input.next()? {
            let (transaction, mut reply) = accepted(record)?;
            let lane = transaction as usize & (LANES - 1);
            let under_way = self.lanes.get_mut(lane).and_then(Option::take);
            let of_it = |one: &UnderWay| one.transaction == transaction;
            let Some(under_way) = under_way.filter(of_it) else { return Err(Malformed.into()) };
            let operation = Some(under_way.asked.operation());
            let failed = |stopped| Failed { operation, stopped };
            let status = reply.u32()?;
            if status != 0 {
                return Err(failed(Stopped::Status(status)));
            }
            answered(self.set, under_way.asked, reply).map_err(|why| failed(why.into()))?;
            self.free.push_back(lane);
            if (self.from..self.end).contains(&now) {
                self.achieved.note(now - under_way.arrived);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::serve_nothing;
    use crate::nfs::session::{Kind, Session, Target};
    use platform::thread::spawn;
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};

    /// A session with the server that does nothing.
    fn session() -> Session {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let nfs = listener.local_addr().unwrap();
        // It ends with the test's process.
        let _serving = spawn("limit", move || serve_nothing(&listener)).unwrap();
        let (name, path) = ("limit".to_owned(), "/".to_owned());
        let target = Target { name, kind: Kind::Limit, nfs, mount: nfs, path };
        let mut session = Session::open_empty(target, 0).unwrap();
        session.connect(CONNECTIONS).unwrap();
        session
    }

    fn offer_of(pace: Pace) -> Offer {
        let (warm_nanoseconds, measured_nanoseconds) = (1_000_000, 100_000_000);
        Offer { pace, warm_nanoseconds, measured_nanoseconds, seed: 3 }
    }

    #[test]
    fn the_mix_gets_through_to_a_server_and_is_counted() {
        let mut session = session();
        let mut set = DataSet::make(&mut session, 1 << 20).unwrap();
        let most = offer(&mut session.connections, &mut set, offer_of(Pace::Closed)).unwrap();
        assert!(most.answered > 0 && most.response() > Some(0.0));
        assert_eq!(most.latencies.total(), most.answered);
        let pace = Pace::Rate(2_000.0);
        let paced = offer(&mut session.connections, &mut set, offer_of(pace)).unwrap();
        assert!((140..260).contains(&paced.offered), "200 on average: {}", paced.offered);
        let again = offer(&mut session.connections, &mut set, offer_of(pace)).unwrap();
        assert_eq!(again.offered, paced.offered, "the same arrivals");
    }

    #[test]
    fn an_answer_that_is_wrong_ends_the_offer_and_is_named() {
        const STATUS: u32 = 70;
        let mut session = session();
        let mut set = DataSet::make(&mut session, 1 << 20).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let refusing = Connection::open(listener.local_addr().unwrap(), &[].into()).unwrap();
        let _serving = spawn("refusing", move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut call = [0; 8];
            socket.read_exact(&mut call).unwrap();
            let transaction = u32::from_be_bytes(call[4..].try_into().unwrap());
            let words = [0x8000_001c, transaction, 1, 0, 0, 0, 0, STATUS];
            socket.write_all(&words.map(u32::to_be_bytes).concat()).unwrap();
            // The other calls are read until the client is gone.
            let _ = socket.read_to_end(&mut Vec::new());
        })
        .unwrap();
        let failed = offer(&mut [refusing], &mut set, offer_of(Pace::Closed)).unwrap_err();
        assert_eq!(failed.stopped, Stopped::Status(STATUS));
        assert!(failed.operation.is_some(), "the first one of the mix");
    }

    #[test]
    fn rates_and_the_average_response_are_of_the_measured_time() {
        let mut achieved = Achieved { nanoseconds: 2_000_000_000, ..Achieved::default() };
        assert_eq!(achieved.response(), None);
        [100, 300].into_iter().for_each(|nanoseconds| achieved.note(nanoseconds));
        achieved.offered = 4;
        assert_eq!((achieved.rate(), achieved.offered_rate()), (1.0, 2.0));
        assert_eq!(achieved.response(), Some(200.0));
    }
}
