//! Freed blocks leave the cache.

use crate::service::aggregate::Aggregate;
use affinity::{Access, Outcome};
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::Pvbn;

/// Takes blocks out of the cache that nothing points at any more: their memory is worth more to
/// others. The message comes before every refill that could give their numbers again.
pub(crate) fn send(aggregate: &Arc<Aggregate>, freed: Vec<Pvbn>) {
    let this = Arc::clone(aggregate);
    let message = move |_: &mut Access<'_>| {
        let gone = freed.iter().filter(|_| !mutation::broken(Rule::CacheEntryKept));
        gone.for_each(|pvbn| this.parts.cache.remove(*pvbn));
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}
