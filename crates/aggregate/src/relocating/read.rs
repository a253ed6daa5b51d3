//! Reading blocks that are to be moved: each proved by the identity beside it, which says whose it
//! is.
//!
//! Fails: a block that cannot be read is left out.

use crate::relocation::moves::{Found, Move};
use crate::service::aggregate::Aggregate;
use ondisk::identity::{BlockOwner, Owners, crc32c};
use platform::completion::{Sender, gather};
use platform::sync::Mutex;
use raid::{BlockRead, Proof};
use std::sync::Arc;
use units::{BlockRef, Pvbn, VolumeId, Vvbn};

/// Blocks that are read with one request at most.
const BLOCKS_PER_READ: usize = 256;

/// A block to be read, and whose it turns out to be.
#[derive(Clone)]
pub(crate) struct Wanted {
    pvbn: Pvbn,
    /// Whose it must be, with which check, if that is known.
    expected: Option<Expected>,
    owner: Arc<Mutex<Option<(BlockOwner, u16)>>>,
}

type Expected = (Owners, Vvbn, u16);

impl Wanted {
    /// The block of a move.
    pub(crate) fn of(one: &Move) -> Self {
        let expected = Some((Owners::of(one.volume), one.vvbn, one.from.check));
        Self { pvbn: one.from.pvbn, expected, owner: Arc::default() }
    }

    /// The block of a move, which is that of an ancestor.
    pub(crate) fn inherited(one: &Move, ancestor: VolumeId) -> Self {
        let expected = Some((Owners::of(ancestor), one.vvbn, one.from.check));
        Self { expected, ..Self::any(one.from.pvbn) }
    }

    /// Whatever lies there.
    pub(crate) fn any(pvbn: Pvbn) -> Self {
        Self { pvbn, expected: None, owner: Arc::default() }
    }

    fn proof(&self) -> Proof {
        let wanted = self.clone();
        let accepts = move |owner: &BlockOwner, check: u16| {
            let is_expected = |(owners, vvbn, of): Expected| {
                owners.may_own(owner.volume) && (owner.vvbn, check) == (vvbn, of)
            };
            let is_right = wanted.expected.is_none_or(is_expected);
            if is_right {
                *wanted.owner.lock() = Some((*owner, check));
            }
            is_right
        };
        Proof::Owned(Box::new(accepts))
    }

    fn found(self, block: BlockRef) -> Found {
        let found = self.owner.lock().take();
        // What is still in raid's queue was not proved.
        let (owner, _) = found.filter(|(_, check)| crc32c(&block) as u16 == *check)?;
        Some((block, owner))
    }
}

/// Reads blocks in order, those in a row on one disk with one request.
pub(crate) fn read_all(
    aggregate: &Arc<Aggregate>,
    wanted: Vec<Wanted>,
    done: impl FnOnce(Vec<Found>) + Send + 'static,
) {
    let geometry = aggregate.parts.store.geometry();
    let place = |pvbn| geometry.locate(pvbn).map(|at| (at.group, at.disk));
    let is_run = |one: &Wanted, next: &Wanted| {
        one.pvbn.offset(1) == next.pvbn && place(one.pvbn) == place(next.pvbn)
    };
    let runs = wanted.chunk_by(is_run).flat_map(|run| run.chunks(BLOCKS_PER_READ));
    let runs: Vec<Vec<Wanted>> = runs.map(<[Wanted]>::to_vec).collect();
    let done = move |found: Vec<Vec<Found>>| done(found.into_iter().flatten().collect());
    let parts = gather(runs.len(), done);
    for (run, part) in runs.into_iter().zip(parts) {
        read_run(Arc::clone(aggregate), run, part);
    }
}

fn read_run(aggregate: Arc<Aggregate>, run: Vec<Wanted>, done: Sender<Vec<Found>>) {
    let Some(first) = run.first().map(|one| one.pvbn) else { return done(Vec::new()) };
    let proofs = run.iter().map(|one| Some(one.proof())).collect();
    let store = Arc::clone(&aggregate.parts.store);
    let read = move |outcome: Result<Vec<BlockRef>, raid::ReadFailure>| match outcome {
        Ok(blocks) => {
            done(run.into_iter().zip(blocks).map(|(one, block)| one.found(block)).collect())
        }
        Err(_) if aggregate.is_failed() => done(vec![None; run.len()]),
        Err(_) => {
            // Those that can be read move.
            for (one, part) in run.iter().zip(gather(run.len(), done)) {
                let (pvbn, one) = (one.pvbn, one.clone());
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
