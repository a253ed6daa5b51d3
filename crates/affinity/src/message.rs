//! Messages: operations as synchronous, restartable functions (decision 4).
//!
//! Invariants: a message that needs something that is not in memory returns
//! [`Outcome::Suspend`] before it has changed anything, and runs again from the top when woken.
//! A message that was suspended is owned by its [`Waker`], which puts it back even when dropped.

use crate::AffinityId;
use crate::access::Access;
use crate::scheduler::Inner;
use std::fmt;
use std::sync::Arc;

/// Starts what a suspended message waits for, and sees to it that the waker is woken.
pub type Starter = Box<dyn FnOnce(Waker) + Send>;

/// One piece of work.
pub trait Message: Send {
    /// Runs it; again from the top after a suspend, a reroute or a yield.
    fn run(&mut self, access: &mut Access<'_>) -> Outcome;
}

impl<F: FnMut(&mut Access<'_>) -> Outcome + Send> Message for F {
    fn run(&mut self, access: &mut Access<'_>) -> Outcome {
        self(access)
    }
}

/// How a run ended.
#[must_use]
pub enum Outcome {
    /// The message is finished and dropped.
    Done,
    /// The message waits: its affinity is released, then the starter is called, outside any lock
    /// of the scheduler. The waker may be woken from any thread, even before the starter returns.
    Suspend(Starter),
    /// The message runs again in another affinity, usually a wider one (Waffinity's slowpath).
    Reroute(AffinityId),
    /// The message goes behind those that wait in its affinity: for work in many small steps.
    Yield,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => formatter.write_str("Done"),
            Self::Suspend(_) => formatter.write_str("Suspend"),
            Self::Reroute(affinity) => write!(formatter, "Reroute({affinity})"),
            Self::Yield => formatter.write_str("Yield"),
        }
    }
}

/// A message with its place in the order in which messages came to the scheduler. It keeps the
/// place while it is suspended, so that the message that waits longest runs first.
pub(crate) struct Queued {
    pub(crate) arrival: u64,
    pub(crate) message: Box<dyn Message>,
}

/// Owns a suspended message. Dropping it without a wake is a bug: it is counted, a debug build
/// panics, and the message is queued again all the same.
pub struct Waker {
    scheduler: Arc<Inner>,
    affinity: AffinityId,
    message: Option<Queued>,
}

impl Waker {
    pub(crate) fn new(scheduler: Arc<Inner>, affinity: AffinityId, message: Queued) -> Self {
        Self { scheduler, affinity, message: Some(message) }
    }

    /// Puts the message where it belongs by the order in which messages came to its affinity: in
    /// front of those that came after it, behind those that came before it and are queued.
    pub fn wake(mut self) {
        if let Some(message) = self.message.take() {
            self.scheduler.wake(self.affinity, message, false);
        }
    }

    /// Wakes several messages of one scheduler at once: none of them runs before all are queued.
    /// Where they compete for something they run in the order in which they came, and before the
    /// messages of affinities that got work later.
    ///
    /// # Panics
    /// If they are of several schedulers.
    pub fn wake_all(mut wakers: Vec<Self>) {
        wakers.sort_unstable_by_key(|waker| waker.message.as_ref().map(|queued| queued.arrival));
        let Some(first) = wakers.first() else { return };
        let scheduler = Arc::clone(&first.scheduler);
        let same = wakers.iter().all(|waker| Arc::ptr_eq(&waker.scheduler, &scheduler));
        assert!(same, "wakers of several schedulers");
        let queued = |waker: &mut Self| Some((waker.affinity, waker.message.take()?));
        scheduler.wake_all(wakers.iter_mut().filter_map(queued).collect());
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        let Some(message) = self.message.take() else { return };
        let halted = self.scheduler.wake(self.affinity, message, true);
        // After a halt (a simulated power cut) completions are dropped with the disks.
        debug_assert!(
            halted || std::thread::panicking(),
            "a waker of {} was dropped without a wake",
            self.affinity
        );
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Waker({})", self.affinity)
    }
}
