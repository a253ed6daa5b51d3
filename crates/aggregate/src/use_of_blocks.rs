//! Tells the store which blocks are in use, where a scrub finds damage.
//!
//! Fails: where the free maps cannot be read every block may be in use.

use crate::aggregate::Aggregate;
use affinity::{Access, Outcome};
use cowfs::free_map::position;
use cowfs::reader::{HeldBlocks, Reader, Stop};
use platform::completion::Sender;
use std::sync::Arc;
use units::Pvbn;

impl Aggregate {
    pub(crate) fn answer_use(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        self.parts.store.set_use_query(Arc::new(move |blocks, done| match this.upgrade() {
            Some(aggregate) => aggregate.send_use_query(blocks, done),
            None => done(vec![true; blocks.len()]),
        }));
    }

    fn send_use_query(self: &Arc<Self>, blocks: Vec<Pvbn>, done: Sender<Vec<bool>>) {
        let (this, held, mut done) = (Arc::clone(self), HeldBlocks::default(), Some(done));
        let message = move |access: &mut Access<'_>| {
            let found = match this.are_used(access, &blocks, &held) {
                Err(Stop::Wait(wait)) => return this.suspend(wait, &held),
                Err(_) => vec![true; blocks.len()],
                Ok(found) => found,
            };
            if let Some(done) = done.take() {
                done(found);
            }
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    /// Of each block whether an image holds it: the one that is committed, one that is being
    /// written, or a snapshot.
    fn are_used(
        &self,
        access: &mut Access<'_>,
        blocks: &[Pvbn],
        held: &HeldBlocks,
    ) -> Result<Vec<bool>, Stop> {
        let reader = Reader { cache: &self.parts.cache, held };
        let space = &mut self.block_side.write(access).space;
        let mut found = Vec::with_capacity(blocks.len());
        let mut last = None;
        for block in blocks {
            let (index, byte, mask) = position(block.get());
            let map = match last.take() {
                Some((at, map)) if at == index => map,
                _ => space.in_use(index, &reader)?,
            };
            // What the running consistency point frees is of the committed image still.
            found.push(map[byte] & mask != 0 || space.is_being_freed(block.get()));
            last = Some((index, map));
        }
        Ok(found)
    }
}
