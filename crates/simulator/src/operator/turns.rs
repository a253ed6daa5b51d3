//! Calls that block in a world of one thread.
//!
//! Calls of management wait for the engine. Here the engine is driven by the machine, so a call
//! runs on a thread of its own, and only while the machine waits for it: where the call would wait
//! it hands its turn back ([`management::Driver`]), and gets another when the machine has done
//! something.
//!
//! Invariants: one of the two threads runs at any moment, so all follows from the seed.
//!
//! Fails: [`Finding::Panic`] if the call panics.

use crate::seed::finding::Finding;
use admin_api::{AdminError, Reply};
use management::{Driver, Waits};
use platform::Clock;
use platform::sync::Mutex;
use platform::thread::{JoinHandle, spawn};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What a call comes to.
pub(super) type Answer = Result<Reply, AdminError>;

type Call = Box<dyn FnOnce() -> Answer + Send>;

enum Order {
    Begin(Call),
    GoOn,
    /// Nothing that the call waits for will come.
    GiveUp,
}

enum Event {
    /// The call waits for an answer of the engine.
    Waits,
    /// The call lets time pass.
    Pauses,
    Over(Box<Answer>),
    Panicked(String),
}

/// The side of the call.
struct Caller {
    events: Sender<Event>,
    orders: Mutex<Receiver<Order>>,
    clock: Arc<dyn Clock>,
}

impl Caller {
    /// Hands the turn back; whether the call goes on.
    fn hand_back(&self, event: Event) -> bool {
        let is_heard = self.events.send(event).is_ok();
        is_heard && matches!(self.orders.lock().recv(), Ok(Order::GoOn))
    }

    fn serve(&self) {
        loop {
            let order = self.orders.lock().recv();
            let call = match order {
                Ok(Order::Begin(call)) => call,
                Ok(Order::GoOn | Order::GiveUp) => continue,
                Err(_) => return,
            };
            let event = match catch_unwind(AssertUnwindSafe(call)) {
                Ok(answer) => Event::Over(Box::new(answer)),
                Err(panic) => Event::Panicked(words_of(&*panic)),
            };
            if self.events.send(event).is_err() {
                return;
            }
        }
    }
}

impl Driver for Caller {
    fn step(&self) -> bool {
        self.hand_back(Event::Waits)
    }

    fn pause(&self, moment: Duration) -> bool {
        let moment = u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX);
        let end = self.clock.monotonic_nanoseconds().saturating_add(moment);
        while self.clock.monotonic_nanoseconds() < end {
            if !self.hand_back(Event::Pauses) {
                return false;
            }
        }
        true
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without words".to_owned())
}

/// Where the call is.
enum State {
    /// There is none.
    Idle,
    Waiting,
    Pausing,
    Answered(Box<Answer>),
}

/// See the module.
pub(super) struct Turns {
    caller: Arc<Caller>,
    /// None when the thread is to end.
    orders: Option<Sender<Order>>,
    events: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
    state: State,
}

impl Turns {
    /// The thread of a node's calls.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (orders, of_machine) = channel();
        let (of_call, events) = channel();
        let caller = Caller { events: of_call, orders: Mutex::new(of_machine), clock };
        let caller = Arc::new(caller);
        let same = Arc::clone(&caller);
        let Ok(thread) = spawn("operator", move || same.serve()) else {
            unreachable!("there is room for one thread more for each life")
        };
        let (orders, thread) = (Some(orders), Some(thread));
        Self { caller, orders, events, thread, state: State::Idle }
    }

    /// How the calls of this thread wait.
    pub(super) fn waits(&self) -> Waits {
        Waits::driving(Arc::clone(&self.caller) as Arc<dyn Driver>)
    }

    /// Whether a call is under way, or its answer is not taken.
    pub(super) const fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Whether the call only lets time pass.
    pub(super) const fn is_pausing(&self) -> bool {
        matches!(self.state, State::Pausing)
    }

    /// Begins a call, and runs it until it waits.
    pub(super) fn begin(
        &mut self,
        call: impl FnOnce() -> Answer + Send + 'static,
    ) -> Result<(), Finding> {
        assert!(!self.is_busy(), "one call at a time");
        self.turn(Order::Begin(Box::new(call)))
    }

    /// Gives the call a turn, if it waits for one.
    pub(super) fn go_on(&mut self) -> Result<(), Finding> {
        match self.state {
            State::Waiting | State::Pausing => self.turn(Order::GoOn),
            State::Idle | State::Answered(_) => Ok(()),
        }
    }

    /// Nothing that the call waits for will come: it ends, and its answer says nothing.
    pub(super) fn give_up(&mut self) -> Result<(), Finding> {
        while matches!(self.state, State::Waiting | State::Pausing) {
            self.turn(Order::GiveUp)?;
        }
        self.state = State::Idle;
        Ok(())
    }

    /// The answer, once.
    pub(super) fn take_answer(&mut self) -> Option<Answer> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Answered(answer) => Some(*answer),
            state => {
                self.state = state;
                None
            }
        }
    }

    fn turn(&mut self, order: Order) -> Result<(), Finding> {
        let is_sent = self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
        let event = if is_sent { self.events.recv().ok() } else { None };
        self.state = match event {
            Some(Event::Waits) => State::Waiting,
            Some(Event::Pauses) => State::Pausing,
            Some(Event::Over(answer)) => State::Answered(answer),
            Some(Event::Panicked(text)) => {
                self.state = State::Idle;
                return Err(Finding::Panic(text));
            }
            None => unreachable!("the thread ends with this"),
        };
        Ok(())
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // What it panicked with was told.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::simulated::SimulatedWorld;

    fn turns() -> (SimulatedWorld, Turns) {
        let world = SimulatedWorld::new(1);
        let turns = Turns::new(Arc::new(world.clone()));
        (world, turns)
    }

    #[test]
    fn a_call_runs_while_the_machine_waits_and_waits_while_it_works() {
        let (world, mut turns) = turns();
        let driver = Arc::clone(&turns.caller);
        turns
            .begin(move || {
                assert!(driver.step() && driver.pause(Duration::from_nanos(10)));
                assert!(!driver.step() && !driver.pause(Duration::from_nanos(10)));
                Ok(Reply::Shutdown(()))
            })
            .unwrap();
        assert!(turns.is_busy() && !turns.is_pausing());
        turns.go_on().unwrap();
        for _ in 0..3 {
            assert!(turns.is_pausing() && turns.take_answer().is_none());
            turns.go_on().unwrap();
        }
        world.advance(10);
        turns.go_on().unwrap();
        assert!(turns.is_busy() && !turns.is_pausing());
        turns.give_up().unwrap();
        assert!(!turns.is_busy());
        turns.begin(|| Ok(Reply::Shutdown(()))).unwrap();
        assert_eq!(turns.take_answer(), Some(Ok(Reply::Shutdown(()))));
    }

    #[test]
    fn a_panic_is_a_finding_and_a_call_under_way_ends_with_its_thread() {
        let (_, mut turns) = turns();
        let panicked = turns.begin(|| panic!("on purpose"));
        assert_eq!(panicked, Err(Finding::Panic("on purpose".to_owned())));
        let driver = Arc::clone(&turns.caller);
        let call = move || {
            assert!(!driver.step());
            Ok(Reply::Shutdown(()))
        };
        turns.begin(call).unwrap();
        drop(turns);
    }
}
