//! Messages that put free numbers in stock for volumes that wait, and that count the free blocks of
//! allocation areas in the background.
//!
//! Invariant: while a consistency point changes the free map nothing is counted; its commit goes
//! on with it.
//!
//! Fails: a free map that cannot be read, or contradicts itself, takes the aggregate out of service
//! when numbers are needed. Counting leaves that to the allocator.

use crate::aggregate::Aggregate;
use crate::block_side::BlockSide;
use crate::error::AggregateError;
use affinity::{Access, Outcome, Waker};
use cowfs::reader::{HeldBlocks, Reader, Stop, Wait};
use std::sync::Arc;

/// Areas that one message counts: a few dozen blocks of the free map.
const AREAS_PER_MESSAGE: usize = 16;
/// Free numbers that a refill puts in stock at least.
const REFILL_BLOCKS: usize = 512;

impl Aggregate {
    /// Goes on counting free blocks of areas, if that is to be done: after a start, and where an
    /// object store's best areas are used up.
    pub(crate) fn count_areas(self: &Arc<Self>, side: &mut BlockSide) {
        if side.refill.wants_count() && !std::mem::replace(&mut side.is_counting, true) {
            self.send_count();
        }
    }

    fn send_count(self: &Arc<Self>) {
        let (this, held) = (Arc::clone(self), HeldBlocks::default());
        let message = move |access: &mut Access<'_>| this.count_some(access, &held);
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    fn count_some(self: &Arc<Self>, access: &mut Access<'_>, held: &HeldBlocks) -> Outcome {
        let side = self.block_side.write(access);
        // While maps change the commit to come goes on.
        side.is_counting &= !self.is_failed() && !side.is_image_cleaned();
        if !side.is_counting {
            return Outcome::Done;
        }
        let reader = Reader { cache: &self.parts.cache, held };
        match side.refill.count_areas(AREAS_PER_MESSAGE, None, &mut side.space, &reader) {
            Ok(()) if side.refill.wants_count() => self.send_count(),
            Ok(()) => {
                side.is_counting = false;
                if side.settings.leaving_group.is_some() {
                    // Now it is known how much room there is.
                    self.request_consistency_point(None);
                }
            }
            Err(Stop::Wait(wait)) => return self.suspend(wait, held),
            Err(stop) => {
                // The allocator will come by, and has to say more.
                side.is_counting = false;
                tracing::warn!(aggregate = %self.parts.identity.name, %stop, "areas are not counted");
            }
        }
        Outcome::Done
    }

    /// Sends the message that stocks the pool for volumes that wait.
    pub(crate) fn send_refill(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let held = HeldBlocks::default();
        let message = move |access: &mut Access<'_>| this.refill(access, &held);
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    fn refill(self: &Arc<Self>, access: &mut Access<'_>, held: &HeldBlocks) -> Outcome {
        if self.is_failed() {
            return Outcome::Done;
        }
        let side = self.block_side.write(access);
        let reader = Reader { cache: &self.parts.cache, held };
        while self.pool.len() < REFILL_BLOCKS {
            let (space, store) = (&mut side.space, &*self.parts.store);
            match side.refill.stock_tetris(space, store, &self.pool, &reader) {
                Ok(()) => {}
                Err(Stop::Wait(Wait::Load(requests))) => {
                    return self.suspend(Wait::Load(requests), held);
                }
                // The last blocks: those who wait get on with them.
                Err(Stop::Contradiction(_)) if !self.pool.is_empty() => break,
                Err(stop) => {
                    let what = "the aggregate's free map";
                    self.fail(match stop {
                        Stop::Contradiction(problem) => {
                            AggregateError::Contradiction { what, problem }
                        }
                        Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn) => {
                            AggregateError::Unreadable { what, pvbn }
                        }
                        _ => AggregateError::Unreadable { what, pvbn: units::Pvbn(0) },
                    });
                    return Outcome::Done;
                }
            }
        }
        Waker::wake_all(self.pool.end_refill());
        Outcome::Done
    }
}
