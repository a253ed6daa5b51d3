//! Reading blocks that are to be moved: each proved by the identity beside it, which says whose it
//! is.
//!
//! Fails: a block that cannot be read is left out.

use super::plan::Move;
use crate::aggregate::Aggregate;
use ondisk::identity::{BlockOwner, crc32c};
use ondisk::pointer::PhysicalPointer;
use ondisk::root::metafile;
use platform::completion::{Sender, gather};
use platform::sync::Mutex;
use raid::{BlockRead, Proof};
use std::sync::Arc;
use units::{BlockRef, VolumeId, Vvbn};

/// What an identity calls a block of a file.
const KIND_DATA: u8 = 1;

/// Blocks that are read with one request at most.
pub(super) const BLOCKS_PER_READ: usize = 256;

pub(super) type Found = Option<(BlockRef, BlockOwner)>;

/// Whether a block may move: maps, nodes, inodes and what is read at a start may not.
pub(super) fn may_move(owner: &BlockOwner) -> bool {
    owner.inode.get() >= metafile::FIRST_FILE && owner.kind == KIND_DATA && owner.level == 0
}

/// A block to be read, and whose it turns out to be.
#[derive(Clone)]
pub(super) struct Wanted {
    volume: VolumeId,
    vvbn: u64,
    from: PhysicalPointer,
    owner: Arc<Mutex<Option<BlockOwner>>>,
}

impl Wanted {
    pub(super) fn new(volume: VolumeId, one: &Move) -> Self {
        Self { volume, vvbn: one.vvbn, from: one.from, owner: Arc::default() }
    }

    fn proof(&self) -> Proof {
        let wanted = self.clone();
        let accepts = move |owner: &BlockOwner| {
            let is_right = owner.volume == wanted.volume && owner.vvbn == Vvbn(wanted.vvbn);
            if is_right {
                *wanted.owner.lock() = Some(*owner);
            }
            is_right
        };
        Proof::Owned { accepts: Box::new(accepts), check: self.from.check }
    }

    fn found(self, block: BlockRef) -> Found {
        let owner = self.owner.lock().take();
        // What is still in raid's queue was not proved.
        owner.filter(|_| crc32c(&block) as u16 == self.from.check).map(|owner| (block, owner))
    }
}

pub(super) fn read_run(aggregate: Arc<Aggregate>, run: Vec<Wanted>, done: Sender<Vec<Found>>) {
    let Some(first) = run.first().map(|one| one.from.pvbn) else { return done(Vec::new()) };
    let proofs = run.iter().map(Wanted::proof).collect();
    let store = Arc::clone(&aggregate.parts.store);
    let read = move |outcome: Result<Vec<BlockRef>, raid::ReadFailure>| match outcome {
        Ok(blocks) => {
            done(run.into_iter().zip(blocks).map(|(one, block)| one.found(block)).collect())
        }
        Err(_) if aggregate.is_failed() => done(vec![None; run.len()]),
        Err(_) => {
            // Those that can be read move.
            for (one, part) in run.iter().zip(gather(run.len(), done)) {
                let (pvbn, one) = (one.from.pvbn, one.clone());
                let read = BlockRead { pvbn, proof: one.proof() };
                aggregate.parts.store.read(
                    read,
                    Box::new(move |outcome| part(outcome.ok().and_then(|block| one.found(block)))),
                );
            }
        }
    };
    store.read_run(first, proofs, Box::new(read));
}
