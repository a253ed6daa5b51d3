//! Aggregates that are away: a group has lost more disks than it can do without.
//!
//! From the moment that the store knows, nothing of the aggregate is answered any more: its clients
//! are told to wait ([`FsError::Offline`]), reads included, because what a client reads from memory
//! beside disks that may come back older is a question that nobody has to answer then. What was
//! acknowledged is in the log or in the last consistency point. At the next tick the aggregate is
//! closed as a crash would close it; what of it is in memory only was promised to nobody, and the
//! write verifier changes before clients find the aggregate again.
//!
//! It comes back by [`Engine::open_aggregate`], like after a crash, when its owner finds enough
//! disks. Until then its handles are not stale.
//!
//! Invariants:
//! - An aggregate is not opened while anything of it is left from before, requests to its disks
//!   included: a write of then must not land beside those of now.
//! - The other aggregates of the node notice nothing; what the one had in memory goes with it.

use crate::admin::file_system_of;
use crate::engine::Engine;
use crate::outages::{Outage, Remains};
use crate::served::ServedVolume;
use affinity::AffinityId;
use aggregate::Aggregate;
#[cfg(doc)]
use file_service::FsError;
use std::any::Any;
use std::sync::{Arc, Weak};

impl Engine {
    /// Aggregates that were in service and are away, in order of name.
    #[must_use]
    pub fn outages(&self) -> Vec<Outage> {
        let mut outages: Vec<Outage> = self.outages.lock().away.values().cloned().collect();
        outages.sort_by(|a, b| a.summary.name.cmp(&b.summary.name));
        outages
    }

    /// Clients shall wait for an aggregate that could not be opened: it is known to exist.
    pub fn expect_aggregate(&self, aggregate: [u8; 16]) {
        self.register.write().away.insert(file_system_of(aggregate));
    }

    /// An aggregate will not come back: its disks were given to another use.
    pub fn forget_aggregate(&self, aggregate: [u8; 16]) {
        self.outages.lock().away.remove(&aggregate);
        let file_system = file_system_of(aggregate);
        let mut register = self.register.write();
        register.away.remove(&file_system);
        register.away_names.retain(|_, owner| *owner != file_system);
    }

    /// Whether nothing is left of an aggregate that was closed: it may be opened.
    #[must_use]
    pub fn is_closed(&self, aggregate: &[u8; 16]) -> bool {
        self.sweep();
        self.outages.lock().remains.iter().all(|one| one.aggregate != *aggregate)
    }

    /// Whether messages or requests of closed aggregates are still under way.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.sweep();
        !self.outages.lock().remains.is_empty()
    }

    /// Closes aggregates whose disks are away.
    pub(crate) fn close_failed(&self) {
        for aggregate in self.aggregates() {
            let failure = aggregate.failure().filter(|_| aggregate.is_failed());
            if failure.is_some_and(|failure| failure.is_of_disks()) {
                self.close(&aggregate);
            }
        }
        self.sweep();
    }

    fn close(&self, aggregate: &Arc<Aggregate>) {
        let since = self.configuration.clock.wall();
        let outage = Outage { summary: self.summary_of(aggregate), since };
        let identity = aggregate.parts.identity.aggregate;
        let file_system = file_system_of(identity);
        let volumes = self.volumes();
        let own = volumes.iter().filter(|served| Arc::ptr_eq(&served.aggregate, aggregate));
        // From here on clients are told to wait, and never that a handle is stale.
        self.register.write().away.insert(file_system);
        for served in own {
            self.register.write().away_names.insert(served.name.clone(), file_system);
            self.unregister_volume(served);
        }
        let parts = &aggregate.parts;
        // Whatever uses the aggregate uses its store.
        let remains = vec![parts.store.remains(), parts.log.remains()];
        self.outages.lock().away.insert(identity, outage);
        self.leave(identity, remains, Some(parts.affinity));
        self.aggregates.lock().remove(&parts.identity.name);
    }

    /// Keeps in mind what is left of an aggregate.
    pub(crate) fn leave(
        &self,
        aggregate: [u8; 16],
        parts: Vec<Weak<dyn Any + Send + Sync>>,
        affinity: Option<AffinityId>,
    ) {
        let mut outages = self.outages.lock();
        outages.remains.push(Remains { aggregate, parts, affinity });
    }

    /// Takes away what nobody uses any more.
    fn sweep(&self) {
        let mut outages = self.outages.lock();
        outages.remains.retain_mut(|one| {
            if one.parts.iter().any(|part| part.strong_count() > 0) {
                return true;
            }
            one.affinity.is_some_and(|affinity| !self.scheduler.remove_tree_if_idle(affinity))
        });
    }

    /// Lets clients find an aggregate that was opened.
    pub(crate) fn enter_service(
        &self,
        aggregate: &Arc<Aggregate>,
        volumes: Vec<Arc<ServedVolume>>,
    ) {
        let identity = &aggregate.parts.identity;
        let was_away = self.outages.lock().away.remove(&identity.aggregate).is_some();
        if was_away {
            // What clients wrote unstably before is not all there.
            self.renew_verifier();
            let file_system = file_system_of(identity.aggregate);
            *self.register.write().losses.entry(file_system).or_default() += 1;
        }
        self.aggregates.lock().insert(identity.name.clone(), Arc::clone(aggregate));
        volumes.into_iter().for_each(|served| self.register_volume(served));
        self.forget_aggregate(identity.aggregate);
    }
}
