//! Waiting for the engine: its calls answer through completions, administrators' calls block.
//!
//! On a node with threads a call sleeps until its answer comes. A node without threads (the
//! simulator) is driven by whoever waits: a [`Driver`] brings it on a little, again and again.
//!
//! Invariants: only threads of administrators and the main thread wait here, never one that runs
//! messages or completions, because those are what it waits for.
//!
//! Fails: `None` (or an error that says so) if the completion was dropped without an answer, as
//! happens when the scheduler is halted, or if nothing is left that could bring the answer.

use crate::refusals::refusal;
use admin_api::{AdminError, Code};
use dblade::EngineError;
use platform::sync::{Condvar, Mutex};
use platform::thread::spawn;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::Duration;

/// How often a node without threads looks whether something has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How long what is left of an aggregate is waited for.
const CLOSING_MAX: Duration = Duration::from_secs(5);

/// Receives the end of a call.
pub(crate) type Answer<T> = Box<dyn FnOnce(T) + Send>;

/// Brings a node on that has no threads of its own.
pub trait Driver: Send + Sync {
    /// Does a little of what is to be done; false if nothing is left but waiting for time to pass
    /// that does not pass by itself.
    fn step(&self) -> bool;

    /// Does what is to be done until a moment has passed; false if no time passes any more.
    fn pause(&self, moment: Duration) -> bool;
}

/// What comes to an end while others may wait for it, and how it ended.
pub(crate) struct Ending<T> {
    outcome: Mutex<Option<T>>,
    changed: Condvar,
}

impl<T> Default for Ending<T> {
    fn default() -> Self {
        Self { outcome: Mutex::new(None), changed: Condvar::new() }
    }
}

impl<T: Clone> Ending<T> {
    /// It is over.
    pub(crate) fn end(&self, outcome: T) {
        *self.outcome.lock() = Some(outcome);
        self.changed.notify_all();
    }

    /// How it ended, if it has.
    pub(crate) fn outcome(&self) -> Option<T> {
        self.outcome.lock().clone()
    }
}

/// How calls wait. Cheap to clone.
#[derive(Clone, Default)]
pub struct Waits(Option<Arc<dyn Driver>>);

impl Waits {
    /// Whoever waits drives the node.
    #[must_use]
    pub fn driving(driver: Arc<dyn Driver>) -> Self {
        Self(Some(driver))
    }

    /// Starts a call and waits for its answer; `None` if there will be none.
    pub(crate) fn wait_for<T: Send + 'static>(&self, start: impl FnOnce(Answer<T>)) -> Option<T> {
        let (sender, receiver) = sync_channel(1);
        start(Box::new(move |answer| {
            // Nobody hangs up: the receiver below waits until the sender is used or dropped.
            let _ = sender.send(answer);
        }));
        let Some(driver) = &self.0 else { return receiver.recv().ok() };
        loop {
            match receiver.try_recv() {
                Ok(answer) => return Some(answer),
                Err(TryRecvError::Empty) if driver.step() => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
            }
        }
    }

    /// Starts a request of the engine and waits for its end. `message` and `object` begin the
    /// error.
    ///
    /// # Errors
    /// What the engine said.
    pub(crate) fn request<T: Send + 'static>(
        &self,
        message: &str,
        object: &str,
        start: impl FnOnce(Answer<Result<T, EngineError>>),
    ) -> Result<T, AdminError> {
        match self.wait_for(start) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(refusal(message, object, &error)),
            None => Err(AdminError::new(Code::Failed, message, object)
                .because("the engine stopped before the request was done")),
        }
    }

    /// Begins work on a thread of its own, because it may hang. A node without threads does it here
    /// and now.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(crate) fn begin<T: Clone + Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Arc<Ending<T>>> {
        let ending = Arc::new(Ending::default());
        if self.0.is_some() {
            ending.end(work());
            return Ok(ending);
        }
        let same = Arc::clone(&ending);
        spawn(name, move || same.end(work()))?;
        Ok(ending)
    }

    /// How something ended, if it ends within `patience`.
    pub(crate) fn wait_a_while<T: Clone>(
        &self,
        ending: &Ending<T>,
        patience: Duration,
    ) -> Option<T> {
        let mut left = patience;
        while ending.outcome.lock().is_none() && !left.is_zero() {
            match &self.0 {
                Some(_) => {
                    let moment = left.min(LOOK_INTERVAL);
                    left = left.saturating_sub(moment);
                    if !self.pause(moment) {
                        break;
                    }
                }
                None => {
                    let mut outcome = ending.outcome.lock();
                    if outcome.is_none() {
                        ending.changed.wait_for(&mut outcome, patience);
                    }
                    break;
                }
            }
        }
        ending.outcome()
    }

    /// Waits until something is so, at most for [`CLOSING_MAX`]: what is left of an aggregate may
    /// hang.
    pub(crate) fn await_closing(&self, is_over: impl Fn() -> bool) {
        let mut left = CLOSING_MAX;
        while !is_over() && !left.is_zero() && self.pause(LOOK_INTERVAL) {
            left = left.saturating_sub(LOOK_INTERVAL);
        }
    }

    /// Lets a moment pass; false if none passes any more.
    pub(crate) fn pause(&self, moment: Duration) -> bool {
        if let Some(driver) = &self.0 {
            return driver.pause(moment);
        }
        // Nobody notifies: this is how to wait for a time.
        let (never, changed) = (Mutex::new(()), Condvar::new());
        changed.wait_for(&mut never.lock(), moment);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_from_other_threads_or_not_at_all() {
        let mut thread = None;
        let waits = Waits::default();
        let answer =
            waits.wait_for(|done| thread = Some(spawn("answer", move || done(7)).unwrap()));
        assert_eq!(answer, Some(7));
        thread.unwrap().join().unwrap();
        assert_eq!(waits.wait_for::<u32>(drop), None);
        let error = waits.request::<()>("cannot stop", "a1", drop).unwrap_err();
        assert_eq!((error.code, error.object.as_str()), (Code::Failed, "a1"));
    }

    struct Steps(Mutex<Vec<Box<dyn FnOnce() + Send>>>);

    impl Driver for Steps {
        fn step(&self) -> bool {
            let next = self.0.lock().pop();
            next.map(|step| step()).is_some()
        }

        fn pause(&self, _: Duration) -> bool {
            self.step()
        }
    }

    #[test]
    fn who_waits_drives_a_node_without_threads() {
        let steps = Arc::new(Steps(Mutex::default()));
        let waits = Waits::driving(Arc::clone(&steps) as Arc<dyn Driver>);
        let answer = waits.wait_for(|done| {
            steps.0.lock().push(Box::new(move || done(7)));
            steps.0.lock().push(Box::new(|| ()));
        });
        assert_eq!(answer, Some(7));
        let mut kept = None;
        assert_eq!(waits.wait_for::<u32>(|done| kept = Some(done)), None, "nothing is left to do");
        assert!(!waits.pause(Duration::from_secs(1000)));
    }

    #[test]
    fn work_that_hangs_is_waited_for_a_while_and_goes_on() {
        let waits = Waits::default();
        let (release, released) = sync_channel::<u32>(1);
        let ending = waits.begin("hangs", move || released.recv().unwrap()).unwrap();
        assert_eq!(waits.wait_a_while(&ending, Duration::from_millis(1)), None);
        release.send(7).unwrap();
        assert_eq!(waits.wait_a_while(&ending, Duration::MAX), Some(7));
    }

    #[test]
    fn a_while_is_as_long_as_the_node_says_that_it_is() {
        let steps = Arc::new(Steps(Mutex::default()));
        let waits = Waits::driving(Arc::clone(&steps) as Arc<dyn Driver>);
        let ending = Arc::new(Ending::default());
        let idle = |count| (0..count).for_each(|_| steps.0.lock().push(Box::new(|| ())));
        idle(3);
        let while_of = |moments: u32| waits.wait_a_while(&ending, moments * LOOK_INTERVAL);
        assert_eq!(while_of(2), None, "it is longer than two moments");
        assert_eq!(steps.0.lock().len(), 1);
        assert_eq!(while_of(2), None, "no time passes any more");
        let same = Arc::clone(&ending);
        steps.0.lock().push(Box::new(move || same.end(7)));
        idle(1);
        assert_eq!(while_of(1000), Some(7));
        assert_eq!(while_of(0), Some(7), "it has ended already");
        assert_eq!(Waits::default().wait_a_while(&ending, Duration::MAX), Some(7));
    }
}
