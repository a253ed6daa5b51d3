//! Tells the store which blocks are in use, where a scrub finds damage.
//!
//! Fails: where the free maps cannot be read every block may be in use.

use crate::service::aggregate::Aggregate;
use affinity::{Access, Outcome};
use cowfs::free_map::position;
use cowfs::reader::{HeldBlocks, Reader, Stop};
use platform::completion::Sender;
use std::sync::Arc;
use units::Pvbn;

pub(crate) fn answer(aggregate: &Arc<Aggregate>) {
    let this = Arc::downgrade(aggregate);
    aggregate.parts.store.set_use_query(Arc::new(move |blocks, done| match this.upgrade() {
        Some(aggregate) => send_use_query(&aggregate, blocks, done),
        None => done(vec![true; blocks.len()]),
    }));
}

fn send_use_query(aggregate: &Arc<Aggregate>, blocks: Vec<Pvbn>, done: Sender<Vec<bool>>) {
    let (this, held, mut done) = (Arc::clone(aggregate), HeldBlocks::default(), Some(done));
    let message = move |access: &mut Access<'_>| {
        let found = match are_used(&this, access, &blocks, &held) {
            Err(Stop::Wait(wait)) => return this.suspend(wait, &held),
            Err(_) => vec![true; blocks.len()],
            Ok(found) => found,
        };
        if let Some(done) = done.take() {
            done(found);
        }
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// Of each block whether an image holds it: the one that is committed, one that is being
/// written, or a snapshot.
fn are_used(
    aggregate: &Aggregate,
    access: &mut Access<'_>,
    blocks: &[Pvbn],
    held: &HeldBlocks,
) -> Result<Vec<bool>, Stop> {
    let reader = Reader { cache: &aggregate.parts.cache, held };
    let space = &mut aggregate.block_side.write(access).space;
    let mut found = Vec::with_capacity(blocks.len());
    let mut last = None;
    for block in blocks {
        let (index, byte, mask) = position(*block);
        let map = match last.take() {
            Some((at, map)) if at == index => map,
            _ => space.in_use(index, &reader)?,
        };
        // What the running consistency point frees is of the committed image still.
        found.push(map[byte] & mask != 0 || space.is_being_freed(*block));
        last = Some((index, map));
    }
    Ok(found)
}
