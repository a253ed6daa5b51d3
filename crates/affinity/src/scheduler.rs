//! The scheduler: takes messages in, gives affinities to threads (Waffinity section 4.3).
//!
//! Drivers: [`Scheduler::worker_loop`] for the threads of production, [`Scheduler::send_direct`]
//! for a thread that has a message and may run it itself, [`Scheduler::run_one`] for the
//! simulator, [`Scheduler::hold_one`] for a model in which a run takes modelled time. They can be
//! mixed. Where a [`Carrier`] is set, it decides when a message reaches its affinity.
//!
//! Invariants: the lock is held for a few steps of `state` and never while a message, a starter
//! or a drop runs. Exclusion never depends on which thread drives; the mark of a thread that is
//! inside a message only keeps the stack flat.
//!
//! Cost: one lock for each turn of up to [`QUANTUM_MESSAGES_MAX`](crate::state) messages in a
//! worker, two for a direct run; two readings of the clock for each turn.
//!
//! Fails: a message that panics unwinds through the driver and its affinity stays taken for ever;
//! a process that serves ends on panic.

use crate::counters::Counters;
use crate::message::{Carrier, Load, Message, Outcome, Parcel, Queued, Starter, Waker};
use crate::state::State;
use crate::sync::{Condvar, Inside, Mutex, MutexGuard};
use crate::{Access, AffinityId, AffinityKind};
use platform::Clock;
use platform::mutation::{self, Rule};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

type Batch = VecDeque<Queued>;

pub(crate) struct Inner {
    state: Mutex<State>,
    work: Condvar,
    root: AffinityId,
    clock: Arc<dyn Clock>,
    carrier: OnceLock<Arc<dyn Carrier>>,
}

/// Runs messages in affinities. A handle: clones are the same scheduler.
#[derive(Clone)]
pub struct Scheduler(Arc<Inner>);

/// What one turn of an affinity came to.
struct Turn {
    affinity: AffinityId,
    messages: u64,
    busy_nanoseconds: u64,
    /// The last message, unless it was done.
    unfinished: Option<(Queued, Outcome)>,
}

/// A message has run, and its affinity is still taken ([`Scheduler::hold_one`]).
#[must_use = "the affinity is taken until the turn ends"]
pub struct HeldTurn {
    scheduler: Arc<Inner>,
    turn: Turn,
}

impl HeldTurn {
    /// The affinity that is taken.
    #[must_use]
    pub const fn affinity(&self) -> AffinityId {
        self.turn.affinity
    }

    /// Gives the affinity back. What a message that waits has to have started is started here.
    pub fn end(self) {
        let mut state = self.scheduler.state.lock();
        let after = self.turn.settle(&mut state, &mut Batch::new(), false);
        self.scheduler.unlock(state);
        self.scheduler.finish(after);
    }
}

impl fmt::Debug for HeldTurn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "HeldTurn({})", self.turn.affinity)
    }
}

/// What is left to do after a turn, outside the lock.
enum After {
    Nothing,
    Start(AffinityId, Starter, Queued),
    /// The affinity is taken; the caller runs the message there.
    RunDirect(AffinityId, Queued),
    Discard(#[expect(dead_code, reason = "kept to be dropped outside the lock")] Queued),
}

impl Scheduler {
    /// A scheduler with the root affinity only.
    ///
    /// # Panics
    /// After 2^32 schedulers.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        // Tells apart the affinities of several schedulers in one process. Only ever compared for
        // equality, so no run depends on its value.
        static SCHEDULERS: AtomicU32 = AtomicU32::new(0);
        let number = SCHEDULERS.fetch_add(1, Ordering::Relaxed);
        assert!(number < u32::MAX, "scheduler numbers are not used twice");
        Self(Arc::new(Inner {
            state: Mutex::new(State::new(number)),
            work: Condvar::new(),
            root: AffinityId::root(number),
            clock,
            carrier: OnceLock::new(),
        }))
    }

    /// Hands each message that is sent or woken from now on to `carrier`, which has it arrive in
    /// its own time. No affinity may be removed while a message is on its way there.
    ///
    /// # Panics
    /// If there is a carrier already.
    pub fn carry_with(&self, carrier: Arc<dyn Carrier>) {
        assert!(self.0.carrier.set(carrier).is_ok(), "a scheduler has one carrier");
    }

    /// The Serial affinity.
    #[must_use]
    pub fn root(&self) -> AffinityId {
        self.0.root
    }

    /// Adds an affinity under `parent`.
    ///
    /// # Panics
    /// If `kind` does not belong there, or the parent is gone.
    #[must_use]
    pub fn add(&self, parent: AffinityId, kind: AffinityKind) -> AffinityId {
        self.0.state.lock().add(parent, kind)
    }

    /// Removes an affinity. Its cells can be opened by its ancestors still.
    ///
    /// # Panics
    /// Unless it is idle: no child, no message queued, running or suspended.
    pub fn remove(&self, affinity: AffinityId) {
        self.0.state.lock().remove(affinity);
    }

    /// Removes an affinity with all beneath it, if all of them are idle; whether it did.
    ///
    /// # Panics
    /// If it is gone already, or the root.
    #[must_use]
    pub fn remove_tree_if_idle(&self, affinity: AffinityId) -> bool {
        self.0.state.lock().remove_tree_if_idle(affinity)
    }

    /// Queues a message at the back of an affinity. After a halt it is dropped.
    ///
    /// # Panics
    /// If the affinity is gone.
    pub fn send(&self, affinity: AffinityId, message: Box<dyn Message>) {
        match self.0.carrier.get() {
            Some(carrier) => carrier.carry(self.0.parcel(Load::Sent(affinity, message))),
            None => self.0.arrive(affinity, message),
        }
    }

    /// Queues a message like [`Self::send`], or gives it back if the affinity is gone: for senders
    /// that may race with the end of a volume.
    ///
    /// # Errors
    /// The message, if the affinity is gone.
    pub fn try_send(
        &self,
        affinity: AffinityId,
        message: Box<dyn Message>,
    ) -> Result<(), Box<dyn Message>> {
        let mut state = self.0.state.lock();
        if !state.is_live(affinity) {
            return Err(message);
        }
        if self.0.carrier.get().is_some() {
            drop(state);
            self.send(affinity, message);
            return Ok(());
        }
        let refused = state.push_new(affinity, message);
        self.0.unlock(state);
        drop(refused);
        Ok(())
    }

    /// Runs a message at once on the calling thread if its affinity is free and has nothing
    /// queued, and else queues it. From inside a message, or with a carrier, it always queues.
    ///
    /// # Panics
    /// If the affinity is gone.
    pub fn send_direct(&self, affinity: AffinityId, message: Box<dyn Message>) {
        if Inside::is_inside() || self.0.carrier.get().is_some() {
            return self.send(affinity, message);
        }
        let mut state = self.0.state.lock();
        if !state.begin_direct(affinity) {
            let refused = state.push_new(affinity, message);
            self.0.unlock(state);
            drop(refused);
            return;
        }
        let first = state.arrive(message);
        drop(state);
        let mut batch = Batch::new();
        let mut next = Some((affinity, first));
        while let Some((affinity, message)) = next.take() {
            let turn = self.0.run(affinity, Some(message), &mut batch);
            let mut state = self.0.state.lock();
            let after = turn.settle(&mut state, &mut batch, true);
            self.0.unlock(state);
            match after {
                After::RunDirect(target, message) => next = Some((target, message)),
                other => self.0.finish(other),
            }
        }
    }

    /// Runs messages until [`Self::shutdown`] or [`Self::halt`]; sleeps when there is nothing to
    /// run. The body of each of production's worker threads.
    pub fn worker_loop(&self) {
        let inner = &*self.0;
        let mut batch = Batch::new();
        let mut state = inner.state.lock();
        loop {
            let picked = state.pick(&mut batch);
            let wakeups = state.wakeups_due();
            let Some(affinity) = picked else {
                if state.is_over() {
                    drop(state);
                    inner.notify(wakeups);
                    return;
                }
                state.sleep();
                inner.work.wait(&mut state);
                state.wake_up();
                continue;
            };
            drop(state);
            inner.notify(wakeups);
            let turn = inner.run(affinity, None, &mut batch);
            state = inner.state.lock();
            let after = turn.settle(&mut state, &mut batch, false);
            if !matches!(after, After::Nothing) || !batch.is_empty() {
                inner.unlock(state);
                self.0.finish(after);
                // Not empty only after a halt.
                batch.clear();
                state = inner.state.lock();
            }
        }
    }

    /// Runs one message of the affinity that `choose` picks: it is given the number of affinities
    /// that can run and answers with an index below it; index 0 waits longest. Returns whether
    /// anything could run.
    ///
    /// # Panics
    /// If the chooser's answer is out of range.
    pub fn run_one(&self, choose: &mut dyn FnMut(usize) -> usize) -> bool {
        self.run_one_of(&mut |ready| choose(ready.len()))
    }

    /// Like [`Self::run_one`], for a chooser that wants to know which affinities can run. It may be
    /// called while a message of another affinity runs on the calling thread, where that message
    /// calls out: what runs then is what another thread might have run.
    ///
    /// # Panics
    /// If the chooser's answer is out of range.
    pub fn run_one_of(&self, choose: &mut dyn FnMut(&[AffinityId]) -> usize) -> bool {
        self.hold_one(choose).map(HeldTurn::end).is_some()
    }

    /// Like [`Self::run_one_of`], but the affinity stays taken until the caller ends the turn: for
    /// a model in which the run takes modelled time.
    ///
    /// # Panics
    /// If the chooser's answer is out of range.
    pub fn hold_one(&self, choose: &mut dyn FnMut(&[AffinityId]) -> usize) -> Option<HeldTurn> {
        let mut batch = Batch::new();
        let mut state = self.0.state.lock();
        let affinity = state.pick_chosen(choose, &mut batch)?;
        self.0.unlock(state);
        let turn = self.0.run(affinity, None, &mut batch);
        Some(HeldTurn { scheduler: Arc::clone(&self.0), turn })
    }

    /// Runs messages, first in first out, until none can run; returns how many it ran.
    pub fn run_until_idle(&self) -> u64 {
        let mut count = 0;
        while self.run_one(&mut |_| 0) {
            count += 1;
        }
        count
    }

    /// Runs `body` on the calling thread as Serial, for mounting and unmounting: queued and
    /// suspended messages may exist, but none runs.
    ///
    /// # Panics
    /// If any message runs.
    pub fn exclusive<R>(&self, body: impl FnOnce(&mut Access<'_>) -> R) -> R {
        let root = self.0.state.lock().begin_exclusive();
        let result = {
            let _inside = Inside::enter();
            body(&mut Access::new(root))
        };
        let mut state = self.0.state.lock();
        state.end(root, &mut Batch::new());
        self.0.unlock(state);
        result
    }

    /// Lets the workers return once no message is queued, running or suspended. Messages can
    /// still be sent, and run as long as a driver is there.
    pub fn shutdown(&self) {
        let mut state = self.0.state.lock();
        state.drain();
        self.0.unlock(state);
    }

    /// The end of this world, as in a power cut: all queued messages are dropped, and so is every
    /// message that is sent, woken or unfinished afterwards; workers return.
    pub fn halt(&self) {
        let mut state = self.0.state.lock();
        let dropped = state.halt();
        self.0.unlock(state);
        drop(dropped);
    }

    /// Whether no message is queued, running or suspended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.state.lock().is_idle()
    }

    /// The affinities whose messages run now: for a driver that checks exclusion.
    #[must_use]
    pub fn running(&self) -> Vec<AffinityId> {
        self.0.state.lock().running()
    }

    /// The affinities that could run a message now: for the same.
    #[must_use]
    pub fn ready(&self) -> Vec<AffinityId> {
        self.0.state.lock().ready()
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.state.lock().snapshot()
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Scheduler")
    }
}

impl Inner {
    /// Runs `first`, then the batch, until one message is not done.
    fn run(&self, affinity: AffinityId, first: Option<Queued>, batch: &mut Batch) -> Turn {
        let _inside = Inside::enter();
        let started = self.clock.monotonic_nanoseconds();
        // The only access of this run: the state gave `affinity` to this thread, and `settle`
        // gives it back when the access is gone.
        let mut access = Access::new(affinity);
        let mut messages = 0;
        let mut unfinished = None;
        let mut next = first.or_else(|| batch.pop_front());
        while let Some(mut queued) = next {
            messages += 1;
            match queued.message.run(&mut access) {
                Outcome::Done => next = batch.pop_front(),
                outcome => {
                    unfinished = Some((queued, outcome));
                    break;
                }
            }
        }
        let busy_nanoseconds = self.clock.monotonic_nanoseconds().saturating_sub(started);
        Turn { affinity, messages, busy_nanoseconds, unfinished }
    }

    fn finish(self: &Arc<Self>, after: After) {
        match after {
            After::Nothing | After::Discard(_) => {}
            After::RunDirect(..) => unreachable!("given to direct senders only, who run it"),
            After::Start(affinity, starter, message) => {
                // Inside, so that a starter which sends directly does not nest runs.
                let _inside = Inside::enter();
                starter(Waker::new(Arc::clone(self), affinity, message));
            }
        }
    }

    /// Gives the lock back and wakes the workers that there is work for now.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let wakeups = state.wakeups_due();
        drop(state);
        self.notify(wakeups);
    }

    fn notify(&self, wakeups: usize) {
        for _ in 0..wakeups {
            self.work.notify_one();
        }
    }

    fn parcel(self: &Arc<Self>, load: Load) -> Parcel {
        Parcel::new(Arc::clone(self), load)
    }

    /// Queues a message that was sent.
    pub(crate) fn arrive(&self, affinity: AffinityId, message: Box<dyn Message>) {
        let mut state = self.state.lock();
        let refused = state.push_new(affinity, message);
        self.unlock(state);
        drop(refused);
    }

    /// Queues suspended messages again, or has the carrier bring them.
    pub(crate) fn bring_back(self: &Arc<Self>, load: Load) {
        let parcel = self.parcel(load);
        match self.carrier.get() {
            Some(carrier) => carrier.carry(parcel),
            None => parcel.arrive(),
        }
    }

    /// Queues suspended messages again, which are in the order of their arrival.
    pub(crate) fn wake_all(&self, mut messages: Vec<(AffinityId, Queued)>) {
        if mutation::broken(Rule::WaitersReversed) {
            messages.reverse();
        }
        let mut refused = Vec::new();
        let mut state = self.state.lock();
        // The last message first, so that each goes to the front of its queue.
        for (affinity, message) in messages.into_iter().rev() {
            state.resume(affinity);
            refused.extend(state.push_woken(affinity, message));
            state.expedite(affinity);
        }
        self.unlock(state);
        drop(refused);
    }

    /// Queues a suspended message again. Returns whether the scheduler is halted.
    pub(crate) fn wake(&self, affinity: AffinityId, message: Queued, dropped: bool) -> bool {
        let mut state = self.state.lock();
        state.resume(affinity);
        let refused = state.push_woken(affinity, message);
        let halted = refused.is_some();
        if dropped && !halted {
            state.counters.wakers_dropped += 1;
        }
        self.unlock(state);
        drop(refused);
        halted
    }
}

impl Turn {
    /// Gives the affinity back and sends the unfinished message where it belongs.
    fn settle(self, state: &mut State, batch: &mut Batch, direct: bool) -> After {
        let Self { affinity, messages, busy_nanoseconds, unfinished } = self;
        state.end(affinity, batch);
        let kind = affinity.kind();
        let counters = state.counters.kind_mut(kind);
        counters.messages += messages;
        counters.busy_nanoseconds += busy_nanoseconds;
        let Some((message, outcome)) = unfinished else { return After::Nothing };
        let refused = match outcome {
            Outcome::Done => unreachable!("a message that is done is not unfinished"),
            Outcome::Suspend(_) if state.is_halted() => Some(message),
            Outcome::Suspend(starter) => {
                state.counters.kind_mut(kind).suspends += 1;
                state.suspend(affinity);
                return After::Start(affinity, starter, message);
            }
            Outcome::Yield => {
                state.counters.kind_mut(kind).yields += 1;
                state.push_new(affinity, message.message)
            }
            Outcome::Reroute(target) => {
                state.counters.kind_mut(kind).reroutes += 1;
                if direct && state.begin_direct(target) {
                    return After::RunDirect(target, message);
                }
                state.push_new(target, message.message)
            }
        };
        refused.map_or(After::Nothing, After::Discard)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
