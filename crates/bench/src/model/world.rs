//! Modelled time: what has happened up to now, and what is to happen.
//!
//! Code of the engine runs in *segments*: a call of a client, a message, a completion. A segment
//! begins at a moment of modelled time and takes the processor time that it took on this machine,
//! or a fixed cost. What it starts (a message, a request to a disk) is noted for the moment within
//! the segment at which it was started.
//!
//! Invariants: time never goes back; events of one moment happen in the order in which they were
//! noted; what the model itself does ([`World::aside`]) costs nothing.
//!
//! Fails: never.

use affinity::{Carrier, HeldTurn, Parcel};
use platform::Clock;
use platform::sync::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::cmp::Ordering as Order;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use units::Timestamp;

/// The time of day at the beginning of modelled time.
const BEGIN_SECONDS: i64 = 1_600_000_000;
/// Modelled time begins here, so that no span before it reaches below zero.
const BEGIN_NANOSECONDS: u64 = 1_000_000_000;

/// What a segment does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// A front end's thread calls the engine.
    Call,
    /// A worker runs a message.
    Message,
    /// A worker starts what a message waits for.
    Start,
    /// A disk's request is over, and whoever asked for it is told.
    Completion,
}

/// What segments cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Costs {
    /// The processor time that they took here.
    Measured,
    /// So many nanoseconds, whatever they took. What a message waits for is started for nothing.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests calculate what comes out"))]
    Fixed { call: u64, message: u64, completion: u64 },
}

/// Threads that do the same kind of work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Lane {
    /// Those that run the engine's messages.
    Workers,
    /// Those that drive the disks' rings, and tell whoever waits for a request.
    Completions,
    /// Those that write the log, and tell whoever waits for that.
    Log,
    /// Those of clients' connections, and the one that ticks.
    Calls,
}

impl Lane {
    pub const ALL: [Self; 4] = [Self::Workers, Self::Completions, Self::Log, Self::Calls];
}

pub(super) type Task = Box<dyn FnOnce() + Send>;

/// What happens at a moment.
pub(super) enum Event {
    /// A message reaches its affinity.
    Arrive(Parcel),
    /// A thread of a lane has something to do.
    Ready(Lane, Task),
    /// A segment is over. After a message its affinity is given back.
    Over(Lane, Option<HeldTurn>),
    /// It is time for the engine's tick.
    Tick,
}

struct Entry {
    moment: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, for a heap that gives the greatest.
    fn cmp(&self, other: &Self) -> Order {
        (other.moment, other.number).cmp(&(self.moment, self.number))
    }
}

#[derive(Default)]
struct Agenda {
    entries: BinaryHeap<Entry>,
    numbers: u64,
}

/// A segment that runs.
struct Segment {
    /// What it has cost so far.
    used: u64,
    /// This thread's processor time since which it runs, none while the model does something.
    since: Option<u64>,
}

/// See the module.
pub(super) struct World {
    costs: Costs,
    now: AtomicU64,
    segment: Mutex<Option<Segment>>,
    agenda: Mutex<Agenda>,
}

/// Processor time of this thread.
fn processor_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl World {
    pub fn new(costs: Costs) -> Self {
        let now = AtomicU64::new(BEGIN_NANOSECONDS);
        Self { costs, now, segment: Mutex::default(), agenda: Mutex::default() }
    }

    /// The moment at which the running segment began, or the present outside of segments.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// The moment within the running segment.
    pub fn moment(&self) -> u64 {
        let segment = self.segment.lock();
        let used = segment.as_ref().map_or(0, |segment| {
            let running = segment.since.map_or(0, |since| processor_nanoseconds() - since);
            segment.used + running
        });
        self.now() + used
    }

    /// Begins a segment at the present moment.
    pub fn begin(&self, work: Work) {
        let segment = match (self.costs, work) {
            (Costs::Measured, _) => Segment { used: 0, since: Some(processor_nanoseconds()) },
            (Costs::Fixed { .. }, Work::Start) => Segment { used: 0, since: None },
            (Costs::Fixed { call, .. }, Work::Call) => Segment { used: call, since: None },
            (Costs::Fixed { message, .. }, Work::Message) => Segment { used: message, since: None },
            (Costs::Fixed { completion, .. }, Work::Completion) => {
                Segment { used: completion, since: None }
            }
        };
        let before = self.segment.lock().replace(segment);
        assert!(before.is_none(), "a segment runs within another");
    }

    /// Ends the segment; what it cost.
    pub fn end(&self) -> u64 {
        let cost = self.moment() - self.now();
        let ended = self.segment.lock().take();
        assert!(ended.is_some(), "a segment ends that did not begin");
        cost
    }

    /// Does something of the model's own, which costs the segment nothing.
    pub fn aside<R>(&self, body: impl FnOnce() -> R) -> R {
        let is_measured = self.pause();
        let result = body();
        if is_measured && let Some(segment) = self.segment.lock().as_mut() {
            segment.since = Some(processor_nanoseconds());
        }
        result
    }

    /// Stops the clock of a segment that is measured; whether it ran.
    fn pause(&self) -> bool {
        let mut segment = self.segment.lock();
        let Some(segment) = segment.as_mut() else { return false };
        let Some(since) = segment.since.take() else { return false };
        segment.used += processor_nanoseconds() - since;
        true
    }

    /// Notes what is to happen.
    pub fn note(&self, moment: u64, event: Event) {
        let mut agenda = self.agenda.lock();
        agenda.numbers += 1;
        let number = agenda.numbers;
        agenda.entries.push(Entry { moment: moment.max(self.now()), number, event });
    }

    /// Goes on to the next event.
    pub fn go_on(&self) -> Option<Event> {
        let Entry { moment, event, .. } = self.agenda.lock().entries.pop()?;
        assert!(moment >= self.now(), "time goes back");
        self.now.store(moment, Ordering::Relaxed);
        Some(event)
    }
}

impl Clock for World {
    fn wall(&self) -> Timestamp {
        let (seconds, nanoseconds) = (self.now() / 1_000_000_000, self.now() % 1_000_000_000);
        Timestamp::from_parts(BEGIN_SECONDS + seconds as i64, nanoseconds as u32)
    }

    /// The clock stands still within a segment: reading the processor time is not for nothing.
    fn monotonic_nanoseconds(&self) -> u64 {
        self.now()
    }
}

impl Carrier for World {
    fn carry(&self, parcel: Parcel) {
        self.aside(|| self.note(self.moment(), Event::Arrive(parcel)));
    }
}
