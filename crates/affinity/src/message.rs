//! Messages: operations as synchronous, restartable functions (decision 4).
//!
//! Invariants: a message that needs something that is not in memory returns
//! [`Outcome::Suspend`] before it has changed anything, and runs again from the top when woken.
//! A message that was suspended is owned by its [`Waker`], which puts it back even when dropped.
//! A [`Parcel`] arrives once, and then is queued as without a [`Carrier`]; a waker that is dropped
//! does without the carrier, for that is a bug that is to be seen at once.
//!
//! A carrier is for models in which a run takes modelled time. In production a message is in its
//! affinity's queue as soon as it is sent. A model runs the code in no time, and has to hold back
//! what a run sends until the moment at which the run would have sent it.

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

/// Decides when messages arrive ([`crate::Scheduler::carry_with`]).
pub trait Carrier: Send + Sync {
    /// Takes a parcel. It may arrive at once, later, or on another thread.
    fn carry(&self, parcel: Parcel);
}

/// What a [`Parcel`] brings: a message.
pub(crate) enum Load {
    Sent(AffinityId, Box<dyn Message>),
    Woken(AffinityId, Queued),
    /// In the order of their arrival at the scheduler.
    WokenTogether(Vec<(AffinityId, Queued)>),
}

/// Messages that were sent or woken and are not queued yet.
#[must_use = "messages are lost if it does not arrive"]
pub struct Parcel {
    scheduler: Arc<Inner>,
    load: Load,
}

impl Parcel {
    pub(crate) const fn new(scheduler: Arc<Inner>, load: Load) -> Self {
        Self { scheduler, load }
    }

    /// Queues the messages.
    ///
    /// # Panics
    /// If the affinity of one is gone.
    pub fn arrive(self) {
        match self.load {
            Load::Sent(affinity, message) => self.scheduler.arrive(affinity, message),
            Load::Woken(affinity, message) => {
                self.scheduler.wake(affinity, message, false);
            }
            Load::WokenTogether(messages) => self.scheduler.wake_all(messages),
        }
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Parcel")
    }
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
            self.scheduler.bring_back(Load::Woken(self.affinity, message));
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
        scheduler.bring_back(Load::WokenTogether(wakers.iter_mut().filter_map(queued).collect()));
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
