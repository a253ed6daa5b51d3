//! The image becomes durable, then the superblock that names it: the commit.
//!
//! Invariants: no superblock is written before every block that it reaches is durable. The slot of
//! the last superblock stays as it is (decision 20).
//!
//! Fails: what cannot be made durable takes the aggregate out of service.

use super::commit;
use crate::block_side::side::BlockSide;
use crate::service::aggregate::Aggregate;
use crate::service::state::Phase;
use affinity::{Access, Outcome};
use cowfs::image::ImageCleaner;
use ondisk::pointer::PhysicalPointer;
use ondisk::root::Superblock;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::CpNumber;
use zerocopy::little_endian::{I64, U16, U32};

/// The superblock of a cleaned image.
pub(crate) fn superblock(
    aggregate: &Aggregate,
    side: &BlockSide,
    cleaner: &ImageCleaner<PhysicalPointer>,
    cp: CpNumber,
) -> Superblock {
    let mut superblock = Superblock::new();
    // A stop may have been asked for while an earlier consistency point was under way.
    let is_last = match mutation::broken(Rule::CleanTooSoon) {
        true => aggregate.state.lock().stopping,
        false => aggregate.parts.log.is_closed(),
    };
    superblock.clean = U16::new(u16::from(is_last));
    superblock.aggregate = aggregate.parts.identity.aggregate;
    superblock.log = aggregate.parts.identity.log;
    superblock.set_cp(cp);
    superblock.time = I64::new(aggregate.parts.clock.wall().get());
    superblock.next_volume = U32::new(side.next_volume);
    superblock.traditional = U32::new(u32::from(side.traditional));
    side.settings.store(&mut superblock);
    superblock.root = cleaner.root(&side.space);
    superblock
}

/// Makes the image durable, then the superblock.
pub(crate) fn sync(aggregate: &Arc<Aggregate>, cp: CpNumber, superblock: Superblock) {
    if aggregate.advance(Phase::Syncing).is_err() {
        return;
    }
    if mutation::broken(Rule::LogRetiredEarly) {
        aggregate.parts.log.retire(cp);
    }
    if mutation::broken(Rule::SuperblockBeforeBlocks) {
        write_superblock(aggregate, cp, &superblock);
        return aggregate.parts.store.sync(Box::new(|_| ()));
    }
    let this = Arc::clone(aggregate);
    aggregate.parts.store.sync(Box::new(move |outcome| match outcome {
        Ok(()) => write_superblock(&this, cp, &superblock),
        Err(error) => this.fail(error.into()),
    }));
}

/// Makes the superblock durable: the commit.
fn write_superblock(aggregate: &Arc<Aggregate>, cp: CpNumber, superblock: &Superblock) {
    let last_slot = {
        let mut state = aggregate.state.lock();
        if !state.advance(Phase::Sealing, &*aggregate.parts.clock) {
            return;
        }
        state.superblock_slot
    };
    // Never the slot of the last one: it must survive a torn write.
    let is_kept = mutation::broken(Rule::SuperblockSlotKept);
    let slot = if is_kept { last_slot } else { 1 - last_slot };
    let block = Arc::new(superblock.to_block());
    aggregate.pins.note_superblock(cp, &block);
    let this = Arc::clone(aggregate);
    aggregate.parts.store.write_superblock(
        slot,
        block,
        Box::new(move |outcome| match outcome {
            Ok(()) => begin_commit(&this, cp, slot),
            Err(error) => this.fail(error.into()),
        }),
    );
}

fn begin_commit(aggregate: &Arc<Aggregate>, cp: CpNumber, slot: usize) {
    {
        let mut state = aggregate.state.lock();
        if !state.advance(Phase::Committing, &*aggregate.parts.clock) {
            return;
        }
        state.superblock_slot = slot;
    }
    let this = Arc::clone(aggregate);
    let message = move |access: &mut Access<'_>| {
        commit::commit(&this, access, cp);
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.affinity, Box::new(message));
}
