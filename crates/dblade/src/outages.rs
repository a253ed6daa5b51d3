//! Which aggregates were in service and are away, and what is left of those that were closed.
//!
//! Invariants: see [`crate::outage`], which fills and empties it.

use crate::summary::AggregateSummary;
use affinity::AffinityId;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Weak;
use units::{AggregateUuid, Timestamp};

/// An aggregate that was in service, and is away.
#[derive(Clone, Debug)]
pub struct Outage {
    /// How it was when it failed, and why it did.
    pub summary: AggregateSummary,
    /// Since when.
    pub since: Timestamp,
}

/// What has gone and is to go.
#[derive(Default)]
pub(crate) struct Outages {
    /// By identity.
    pub away: BTreeMap<AggregateUuid, Outage>,
    pub remains: Vec<Remains>,
    /// Continuations of swept aggregates that have not ended.
    pub unmakings: usize,
}

/// What may be left of an aggregate that was closed.
pub(crate) struct Remains {
    pub aggregate: AggregateUuid,
    pub parts: Vec<Weak<dyn Any + Send + Sync>>,
    /// Its Aggregate affinity, with all beneath.
    pub affinity: Option<AffinityId>,
    /// The continuation, which runs when the parts are gone.
    pub then: Option<Continuation>,
}

/// Work that waits until the parts of an aggregate are gone.
pub(crate) type Continuation = Box<dyn FnOnce() + Send>;
