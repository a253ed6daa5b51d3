//! Asking for consistency points, and waiting for what they make: room.
//!
//! Invariants: a request that comes while a consistency point runs is met by the next one.

use super::action::{Action, CpDone};
use super::aggregate::Aggregate;
use super::state::Phase;
use crate::error::AggregateError;
use affinity::{Access, Outcome, Waker};
use std::sync::Arc;

impl Aggregate {
    /// Asks for a consistency point. `done` is called when one that froze after this call has
    /// committed.
    pub fn request_consistency_point(self: &Arc<Self>, done: Option<CpDone>) {
        self.state.lock().request(None, done);
        self.start_consistency_point();
    }

    /// Asks for a consistency point that begins with `action`, while nothing else of the aggregate
    /// runs. `done` is called when it has committed, or at once if the action fails. An action that
    /// is put off is called again at the next freeze, or fails for want of room if no commit comes.
    pub fn request_action(self: &Arc<Self>, action: Action, done: CpDone) {
        self.state.lock().request(Some((action, done)), None);
        self.start_consistency_point();
    }

    /// Begins a consistency point if one is asked for and none runs.
    pub(crate) fn start_consistency_point(self: &Arc<Self>) {
        let refused = {
            let mut state = self.state.lock();
            if let Some(failure) = state.failure() {
                let mut refused = std::mem::take(&mut state.waiting);
                refused.extend(state.actions.drain(..).map(|(_, done)| done));
                Some((refused, failure))
            } else if state.phase != Phase::Idle
                || !state.requested
                || !state.advance(Phase::Freezing, &*self.parts.clock)
            {
                return;
            } else {
                state.requested = false;
                state.started_nanoseconds = self.parts.clock.monotonic_nanoseconds();
                None
            }
        };
        if let Some((refused, failure)) = refused {
            refused.into_iter().for_each(|done| done(Err(failure.clone())));
            return;
        }
        let this = Arc::clone(self);
        let message = move |access: &mut Access<'_>| {
            (this.routines.freeze)(&this, access);
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.affinity, Box::new(message));
    }

    /// Commits once more, marking the superblock clean: everything logged is in the image.
    pub fn stop(self: &Arc<Self>, done: CpDone) {
        {
            let mut state = self.state.lock();
            state.stopping = true;
            state.forced = true;
            state.request(None, Some(done));
        }
        self.start_consistency_point();
    }

    /// Makes the next consistency point write a superblock, and begin the other half of the log,
    /// though nothing changed.
    pub fn force(&self) {
        self.state.lock().forced = true;
    }

    /// Goes on to the next state.
    pub(crate) fn advance(&self, to: Phase) -> Result<(), AggregateError> {
        let mut state = self.state.lock();
        match state.advance(to, &*self.parts.clock) {
            true => Ok(()),
            false => Err(state.failure().unwrap_or(AggregateError::Stopping)),
        }
    }

    /// Has a message run again at the next step that makes room: a freeze empties half of the log,
    /// a commit gives back memory and space. So it waits for what is left of a consistency point,
    /// not for a whole one. Who waits is woken in the order of arrival at the engine, and keeps its
    /// place if it has to wait again (`affinity`'s `state`): what comes later to the same affinity
    /// does not take the room away, but for small changes, which may use what large ones leave.
    pub(crate) fn wait_for_room(self: &Arc<Self>, waker: Waker) {
        {
            let mut state = self.state.lock();
            state.room.push(waker);
            state.requested |= state.phase == Phase::Idle;
        }
        self.start_consistency_point();
        if self.is_failed() {
            self.wake_for_room();
        }
    }

    pub(crate) fn wake_for_room(&self) {
        let waiting = std::mem::take(&mut self.state.lock().room);
        Waker::wake_all(waiting);
    }
}
