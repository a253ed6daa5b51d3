//! Messages that put free numbers in stock for volumes that wait.
//!
//! Fails: a free map that cannot be read, or contradicts itself, takes the aggregate out of
//! service.

use crate::error::AggregateError;
use crate::service::aggregate::Aggregate;
use affinity::{Access, Outcome, Waker};
use cowfs::reader::{HeldBlocks, Reader, Stop, Wait};
use std::sync::Arc;
use units::Pvbn;

/// Free numbers that a refill puts in stock at least.
const REFILL_BLOCKS: usize = 512;

/// Sends the message that stocks the pool for volumes that wait.
pub(crate) fn send_refill(aggregate: &Arc<Aggregate>) {
    let this = Arc::clone(aggregate);
    let held = HeldBlocks::default();
    let message = move |access: &mut Access<'_>| refill(&this, access, &held);
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

fn refill(aggregate: &Arc<Aggregate>, access: &mut Access<'_>, held: &HeldBlocks) -> Outcome {
    if aggregate.is_failed() {
        return Outcome::Done;
    }
    let side = aggregate.block_side.write(access);
    let reader = Reader { cache: &aggregate.parts.cache, held };
    while aggregate.pool.len() < REFILL_BLOCKS {
        let (space, store) = (&mut side.space, &*aggregate.parts.store);
        match side.refill.stock_tetris(space, store, &aggregate.pool, &reader) {
            Ok(()) => {}
            Err(Stop::Wait(Wait::Load(requests))) => {
                return aggregate.suspend(Wait::Load(requests), held);
            }
            // The last blocks: those who wait get on with them.
            Err(Stop::Contradiction(_)) if !aggregate.pool.is_empty() => break,
            Err(stop) => {
                let what = "the aggregate's free map";
                aggregate.fail(match stop {
                    Stop::Contradiction(problem) => AggregateError::Contradiction { what, problem },
                    Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn) => {
                        AggregateError::Unreadable { what, pvbn }
                    }
                    Stop::OtherBuild(damage) => AggregateError::other_build(what, damage),
                    _ => AggregateError::Unreadable { what, pvbn: Pvbn(0) },
                });
                return Outcome::Done;
            }
        }
    }
    Waker::wake_all(aggregate.pool.end_refill());
    Outcome::Done
}
