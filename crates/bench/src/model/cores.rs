//! The cores: they run the engine's code, one segment each at a time, in modelled time.
//!
//! The scheduler is the engine's own. A message runs when a core and a worker are free for it, and
//! its affinity stays taken until the modelled end of the run. Completions and clients' calls run
//! on threads of their own, which share the cores with the workers.
//!
//! Invariants: no more segments run at a time than there are cores, nor of a lane than it has
//! threads; lanes with work get free cores in turns, and within a lane who waits longest is first.
//!
//! Fails: if nothing is left to happen, or no end comes within [`PATIENCE_NANOSECONDS`], a step
//! says so.

use super::usage::Usage;
use super::world::{Event, Lane, Task, Work, World};
use affinity::Scheduler;
use aggregate::Phase;
use std::collections::VecDeque;
use std::sync::Arc;

/// Modelled time after which a load has hung.
const PATIENCE_NANOSECONDS: u64 = 3600 * 1_000_000_000;

/// Threads, and what waits for them.
struct Threads {
    count: usize,
    busy: usize,
    waiting: VecDeque<Task>,
}

/// What happens again and again.
struct Ticking {
    period_nanoseconds: u64,
    tick: Arc<dyn Fn() + Send + Sync>,
}

/// How many threads each lane has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    pub workers: usize,
    pub completions: usize,
    pub log: usize,
    pub calls: usize,
}

/// See the module.
pub(super) struct Cores {
    world: Arc<World>,
    scheduler: Scheduler,
    count: usize,
    busy: usize,
    lanes: [Threads; Lane::ALL.len()],
    /// The lane that gets the next free core, if it has work.
    turn: usize,
    ticking: Option<Ticking>,
    /// The phase of the consistency point.
    phase: Option<Box<dyn Fn() -> Phase>>,
    usage: Usage,
}

impl Cores {
    /// Cores that run what `scheduler` has; its messages arrive by way of `world` from now on.
    pub fn new(world: &Arc<World>, scheduler: &Scheduler, count: usize, lanes: Lanes) -> Self {
        scheduler.carry_with(Arc::clone(world) as _);
        let threads = |count| Threads { count, busy: 0, waiting: VecDeque::new() };
        let Lanes { workers, completions, log, calls } = lanes;
        Self {
            world: Arc::clone(world),
            scheduler: scheduler.clone(),
            count,
            busy: 0,
            lanes: [workers, completions, log, calls].map(threads),
            turn: 0,
            ticking: None,
            phase: None,
            usage: Usage::new(count),
        }
    }

    /// Has `tick` called again and again, for ever.
    pub fn tick_every(&mut self, period_nanoseconds: u64, tick: Arc<dyn Fn() + Send + Sync>) {
        self.ticking = Some(Ticking { period_nanoseconds, tick });
        self.world.note(self.world.now() + period_nanoseconds, Event::Tick);
    }

    /// Counts the time in each phase that `phase` tells.
    pub fn watch(&mut self, phase: Box<dyn Fn() -> Phase>) {
        self.phase = Some(phase);
    }

    /// What the cores did since the last call.
    pub fn take_usage(&mut self) -> Usage {
        std::mem::replace(&mut self.usage, Usage::new(self.count))
    }

    /// Starts what can run now, and goes on to the next event; false if there is none, or none that
    /// leads to an end.
    pub fn step(&mut self) -> bool {
        self.start_all();
        let before = self.world.now();
        let phase = self.phase.as_ref().map_or(Phase::Idle, |phase| phase());
        let Some(event) = self.world.go_on() else { return false };
        self.usage.pass(self.world.now() - before, self.busy, phase);
        match event {
            Event::Arrive(parcel) => parcel.arrive(),
            Event::Ready(lane, task) => self.lanes[lane as usize].waiting.push_back(task),
            Event::Over(lane, None) => {
                self.busy -= 1;
                self.lanes[lane as usize].busy -= 1;
            }
            Event::Over(lane, Some(turn)) => {
                self.world.begin(Work::Start);
                turn.end();
                self.charge(lane, None);
            }
            Event::Tick => self.tick(),
        }
        self.world.now() < PATIENCE_NANOSECONDS
    }

    /// Steps until `is_over`, or until nothing is left to happen.
    pub fn run_until(&mut self, mut is_over: impl FnMut() -> bool) -> bool {
        while !is_over() {
            if !self.step() {
                return is_over();
            }
        }
        true
    }

    fn tick(&mut self) {
        let Some(Ticking { period_nanoseconds, tick }) = &self.ticking else { return };
        let (next, tick) = (self.world.now() + period_nanoseconds, Arc::clone(tick));
        self.lanes[Lane::Calls as usize].waiting.push_back(Box::new(move || tick()));
        self.world.note(next, Event::Tick);
    }

    fn start_all(&mut self) {
        let mut without_work = 0;
        while self.busy < self.count && without_work < Lane::ALL.len() {
            let lane = Lane::ALL[self.turn];
            self.turn = (self.turn + 1) % Lane::ALL.len();
            without_work = if self.start_one(lane) { 0 } else { without_work + 1 };
        }
    }

    /// Runs a segment of a lane, if it has work and a thread for it.
    fn start_one(&mut self, lane: Lane) -> bool {
        let threads = &mut self.lanes[lane as usize];
        if threads.busy == threads.count {
            return false;
        }
        if lane == Lane::Workers {
            return self.start_message();
        }
        let Some(task) = threads.waiting.pop_front() else { return false };
        self.occupy(lane);
        self.world.begin(if lane == Lane::Calls { Work::Call } else { Work::Completion });
        task();
        self.charge(lane, None);
        true
    }

    fn start_message(&mut self) -> bool {
        self.world.begin(Work::Message);
        let Some(turn) = self.scheduler.hold_one(&mut |_| 0) else {
            self.world.end();
            return false;
        };
        self.occupy(Lane::Workers);
        self.charge(Lane::Workers, Some(turn));
        true
    }

    fn occupy(&mut self, lane: Lane) {
        self.busy += 1;
        self.lanes[lane as usize].busy += 1;
    }

    /// Ends a segment: its core, thread and affinity stay taken for as long as it cost.
    fn charge(&mut self, lane: Lane, turn: Option<affinity::HeldTurn>) {
        let cost = self.world.end();
        self.usage.charge(lane, turn.as_ref().map(affinity::HeldTurn::affinity), cost);
        self.world.note(self.world.now() + cost, Event::Over(lane, turn));
    }
}
