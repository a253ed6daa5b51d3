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

use crate::engine::{AwayVolumes, Engine};
use crate::outages::{Outage, Remains};
use crate::served::ServedVolume;
use crate::summary::AggregateSummary;
use aggregate::Aggregate;
#[cfg(doc)]
use file_service::FsError;
use std::sync::Arc;
use units::{AggregateUuid, VolumeUuid};

impl Engine {
    /// Aggregates that were in service and are away, in order of name.
    #[must_use]
    pub fn outages(&self) -> Vec<Outage> {
        let mut outages: Vec<Outage> = self.outages.lock().away.values().cloned().collect();
        outages.sort_by(|a, b| a.summary.name.cmp(&b.summary.name));
        outages
    }

    /// All aggregates at a glance, and those that are away, at one moment: one that goes or comes
    /// back meanwhile is in one of the two lists.
    #[must_use]
    pub fn summaries_and_outages(&self) -> (Vec<AggregateSummary>, Vec<Outage>) {
        // One that goes is away before it leaves service; one that comes back is in service first.
        let before = self.outages();
        let summaries = self.aggregate_summaries();
        let mut outages = self.outages();
        let is_known = |identity: &AggregateUuid, outages: &[Outage]| {
            outages.iter().any(|one| one.summary.identity == *identity)
        };
        for outage in before {
            if !is_known(&outage.summary.identity, &outages) {
                outages.push(outage);
            }
        }
        outages.retain(|one| summaries.iter().all(|each| each.identity != one.summary.identity));
        outages.sort_by(|a, b| a.summary.name.cmp(&b.summary.name));
        (summaries, outages)
    }

    /// The volumes of an aggregate, in service or away, with their names; `None` if they are not
    /// known.
    #[must_use]
    pub fn volumes_of(&self, aggregate: &AggregateUuid) -> Option<Vec<(VolumeUuid, String)>> {
        let mut volumes: Vec<(VolumeUuid, String)> = Vec::new();
        let mut is_known =
            self.aggregates().iter().any(|one| one.parts.identity.aggregate == *aggregate);
        for served in self.volumes() {
            if served.aggregate.parts.identity.aggregate == *aggregate {
                volumes.push((served.environment.identity, served.name()));
            }
        }
        if let Some(AwayVolumes::Known(away)) = self.register.read().away.get(aggregate) {
            is_known = true;
            volumes.extend(away.iter().map(|(volume, name)| (*volume, name.clone())));
        }
        volumes.sort_by(|a, b| a.1.cmp(&b.1));
        volumes.dedup();
        is_known.then_some(volumes)
    }

    /// An aggregate is deleted: handles of its volumes are stale from now on, whatever other
    /// aggregates are away.
    pub fn forget_deleted(&self, aggregate: AggregateUuid) {
        let volumes = self.volumes_of(&aggregate).unwrap_or_default();
        self.note_gone(volumes.into_iter().map(|(volume, _)| volume));
        self.forget_aggregate(aggregate);
    }

    /// Clients shall wait for an aggregate that could not be opened: it is known to exist.
    pub fn expect_aggregate(&self, aggregate: AggregateUuid) {
        self.register.write().away.entry(aggregate).or_insert(AwayVolumes::Unknown);
    }

    /// Nothing of an aggregate is away any more: it is in service, or will not come back because
    /// its disks were given to another use.
    pub fn forget_aggregate(&self, aggregate: AggregateUuid) {
        self.outages.lock().away.remove(&aggregate);
        let mut register = self.register.write();
        // Whether a deletion that the outage cut off has happened is known by now.
        register.away.remove(&aggregate);
        register.going.retain(|_, of| *of != aggregate);
    }

    /// Whether nothing is left of an aggregate that was closed: it may be opened.
    #[must_use]
    pub fn is_closed(&self, aggregate: &AggregateUuid) -> bool {
        self.sweep();
        self.outages.lock().remains.iter().all(|one| one.aggregate != *aggregate)
    }

    /// Whether messages or requests of closed aggregates are still under way.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.sweep();
        let outages = self.outages.lock();
        !outages.remains.is_empty() || outages.unmakings > 0
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
        let mut own = self.volumes();
        own.retain(|served| Arc::ptr_eq(&served.aggregate, aggregate));
        let named = |served: &Arc<ServedVolume>| (served.environment.identity, served.name());
        let away = AwayVolumes::Known(own.iter().map(named).collect());
        // From here on clients are told to wait, and never that a handle is stale.
        self.register.write().away.insert(identity, away);
        own.iter().for_each(|served| self.unregister_volume(served));
        if !self.leave_service(aggregate, Some(outage)) {
            // It is deleted just now, and nobody shall wait for it.
            self.register.write().away.remove(&identity);
        }
    }

    /// An aggregate leaves service, for a while if there is an outage. `false`: it has left before.
    pub(crate) fn leave_service(&self, aggregate: &Arc<Aggregate>, outage: Option<Outage>) -> bool {
        let parts = &aggregate.parts;
        let identity = parts.identity.aggregate;
        {
            let mut outages = self.outages.lock();
            let affinity = Some(parts.affinity);
            // Who is second would take the same affinities away again.
            if outages.remains.iter().any(|one| one.affinity == affinity) {
                return false;
            }
            // Whatever uses the aggregate uses its store.
            let left = vec![parts.store.remains(), parts.log.remains()];
            outages.remains.push(Remains {
                aggregate: identity,
                parts: left,
                affinity,
                then: None,
            });
            outages.away.extend(outage.map(|outage| (identity, outage)));
        }
        let mut aggregates = self.aggregates.lock();
        // Another one may have the name by now.
        if aggregates.get(&parts.identity.name).is_some_and(|one| Arc::ptr_eq(one, aggregate)) {
            aggregates.remove(&parts.identity.name);
        }
        true
    }

    /// Adds an aggregate that did not get into service to those that are swept.
    pub(crate) fn leave(&self, remains: Remains) {
        self.outages.lock().remains.push(remains);
    }

    /// Takes away what nobody uses any more.
    fn sweep(&self) {
        let mut next = Vec::new();
        let mut outages = self.outages.lock();
        outages.remains.retain_mut(|one| {
            if one.parts.iter().any(|part| part.strong_count() > 0) {
                return true;
            }
            let is_busy =
                one.affinity.is_some_and(|affinity| !self.scheduler.remove_tree_if_idle(affinity));
            if !is_busy {
                next.extend(one.then.take());
            }
            is_busy
        });
        outages.unmakings += next.len();
        drop(outages);
        next.into_iter().for_each(|then| then());
    }

    /// The continuation of a swept aggregate has ended.
    pub(crate) fn end_unmaking(&self) {
        self.outages.lock().unmakings -= 1;
    }

    /// Lets clients find an aggregate that was opened.
    pub(crate) fn enter_service(
        &self,
        aggregate: &Arc<Aggregate>,
        volumes: Vec<Arc<ServedVolume>>,
    ) {
        let identity = &aggregate.parts.identity;
        let was_away = self.outages.lock().away.contains_key(&identity.aggregate);
        if was_away {
            // What clients wrote unstably before is not all there.
            self.renew_verifier();
            let losses = &mut self.register.write().losses;
            for served in &volumes {
                *losses.entry(served.environment.identity).or_default() += 1;
            }
        }
        self.aggregates.lock().insert(identity.name.clone(), Arc::clone(aggregate));
        volumes.into_iter().for_each(|served| self.register_volume(served));
        self.forget_aggregate(identity.aggregate);
    }
}
