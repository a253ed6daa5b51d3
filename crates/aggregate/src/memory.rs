//! An aggregate's part of the dirty memory of its node.
//!
//! Invariants: an aggregate that has failed holds no dirty memory once a message of its affinity
//! has run. The dirty blocks are dropped then: no consistency point will write it, no operation is
//! answered from it, and what was promised of it is in the log.

use crate::aggregate::Aggregate;
use affinity::{Access, Outcome};
use cowfs::dirty_memory::Holder;
use std::sync::{Arc, Weak};

/// See the module.
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
    /// Gives the aggregate's part of the memory to the others, and lets go of what is dirty.
    pub(crate) fn let_go_of_memory(self: &Arc<Self>) {
        self.parts.shared.dirty.give_up();
        let this = Arc::clone(self);
        let message = move |access: &mut Access<'_>| {
            let members: Vec<_> = this.state.lock().members.values().map(Arc::clone).collect();
            members.iter().for_each(|member| member.let_go(access));
            Outcome::Done
        };
        // The affinity is gone when nothing of the aggregate is left.
        let refused = self.parts.scheduler.try_send(self.parts.affinity, Box::new(message));
        drop(refused);
    }
}
