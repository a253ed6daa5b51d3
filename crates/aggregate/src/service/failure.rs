//! The end of an aggregate's service: a failure, or a world that ends.
//!
//! Invariants: an aggregate that has failed holds no dirty memory once a message of its affinity
//! has run. The dirty blocks are dropped then: no consistency point will write it, no operation is
//! answered from it, and what was promised of it is in the log.

use super::aggregate::Aggregate;
use super::state::{ConsistencyPoint, Phase};
use crate::error::AggregateError;
use affinity::{Access, Outcome, Waker};
use cowfs::dirty_memory::Holder;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// An aggregate's part of the dirty memory of its node.
pub(crate) struct MemoryHolder(pub Weak<Aggregate>);

impl Holder for MemoryHolder {
    fn asked_back(&self) {
        let Some(aggregate) = self.0.upgrade() else { return };
        if !aggregate.is_consistency_point_due() {
            aggregate.request_consistency_point(None);
        }
    }

    fn has_room(&self) {
        if let Some(aggregate) = self.0.upgrade() {
            aggregate.wake_for_room();
        }
    }
}

impl Aggregate {
    /// Takes the aggregate out of service: nothing more is written, everything waiting fails. What
    /// was answered and still gathers for the log goes there: the log is another disk. The first
    /// failure counts.
    pub fn fail(self: &Arc<Self>, error: AggregateError) {
        let told = error.clone();
        if self.end_service(error) {
            let aggregate = &self.parts.identity.name;
            tracing::error!(aggregate, error = %told, "out of service");
        }
    }

    /// Takes the aggregate out of service because it was stopped, behind its last consistency
    /// point, or because it is deleted. Nobody wants another one: one that is under way ends where
    /// it is, as in a failure. So nobody waits for a disk or a log that hangs.
    pub fn halt(self: &Arc<Self>) {
        self.end_service(AggregateError::Stopping);
    }

    /// Whether this ended the service: it may have ended before.
    fn end_service(self: &Arc<Self>, error: AggregateError) -> bool {
        let (waiting, error, is_first) = {
            let mut state = self.state.lock();
            let is_first = state.failure.is_none();
            state.phase = Phase::Failed;
            let error = state.failure.get_or_insert(error).clone();
            let mut waiting = std::mem::take(&mut state.running);
            waiting.append(&mut state.waiting);
            waiting.extend(state.actions.drain(..).map(|(_, done)| done));
            (waiting, error, is_first)
        };
        self.failed.store(true, Ordering::Release);
        if is_first {
            self.parts.log.push();
            self.let_go_of_memory();
        }
        waiting.into_iter().for_each(|done| done(Err(error.clone())));
        self.wake_for_room();
        Waker::wake_all(self.pool.end_refill());
        is_first
    }

    /// Lets go of everything that waits: the world that would have ended it is gone (a simulated
    /// power cut). What waits holds the aggregate, and the aggregate holds what waits.
    pub fn abandon(&self) {
        let forgotten = {
            let mut state = self.state.lock();
            let fresh = ConsistencyPoint::new(state.committed, state.superblock_slot);
            std::mem::replace(&mut *state, fresh)
        };
        drop(forgotten);
        drop(self.pool.end_refill());
        self.loads.abandon();
        self.parts.log.abandon();
        self.parts.store.abandon();
    }

    /// Gives the aggregate's part of the memory to the others, and lets go of what is dirty.
    fn let_go_of_memory(self: &Arc<Self>) {
        self.parts.shared.dirty.give_up();
        let this = Arc::clone(self);
        let message = move |access: &mut Access<'_>| {
            this.members().iter().for_each(|member| member.let_go(access));
            Outcome::Done
        };
        // The affinity is gone when nothing of the aggregate is left.
        let refused = self.parts.scheduler.try_send(self.parts.affinity, Box::new(message));
        drop(refused);
    }
}
