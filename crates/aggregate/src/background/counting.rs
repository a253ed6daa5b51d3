//! Messages that count the free blocks of allocation areas: after a start, and where an object
//! store's best areas are used up.
//!
//! Invariant: while a consistency point changes the free map nothing is counted; its commit goes
//! on with it.
//!
//! Fails: a free map that cannot be read is left to the allocator, which has to say more.

use crate::block_side::side::BlockSide;
use crate::service::aggregate::Aggregate;
use affinity::{Access, Outcome};
use cowfs::reader::{HeldBlocks, Reader, Stop};
use std::sync::Arc;

/// Areas that one message counts: a few dozen blocks of the free map.
const AREAS_PER_MESSAGE: usize = 16;

/// Goes on counting free blocks of areas, if that is to be done: after a start, and where an
/// object store's best areas are used up.
pub(crate) fn go_on(aggregate: &Arc<Aggregate>, side: &mut BlockSide) {
    if side.refill.wants_count() && !std::mem::replace(&mut side.is_counting, true) {
        send_count(aggregate);
    }
}

fn send_count(aggregate: &Arc<Aggregate>) {
    let (this, held) = (Arc::clone(aggregate), HeldBlocks::default());
    let message = move |access: &mut Access<'_>| count_some(&this, access, &held);
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

fn count_some(aggregate: &Arc<Aggregate>, access: &mut Access<'_>, held: &HeldBlocks) -> Outcome {
    let side = aggregate.block_side.write(access);
    // While maps change the commit to come goes on.
    side.is_counting &= !aggregate.is_failed() && !side.is_image_cleaned();
    if !side.is_counting {
        return Outcome::Done;
    }
    let reader = Reader { cache: &aggregate.parts.cache, held };
    match side.refill.count_areas(AREAS_PER_MESSAGE, None, &mut side.space, &reader) {
        Ok(()) if side.refill.wants_count() => send_count(aggregate),
        Ok(()) => {
            side.is_counting = false;
            if side.settings.leaving_group.is_some() {
                // Now it is known how much room there is.
                aggregate.request_consistency_point(None);
            }
        }
        Err(Stop::Wait(wait)) => return aggregate.suspend(wait, held),
        Err(stop) => {
            // The allocator will come by, and has to say more.
            side.is_counting = false;
            tracing::warn!(aggregate = %aggregate.parts.identity.name, %stop, "areas are not counted");
        }
    }
    Outcome::Done
}
