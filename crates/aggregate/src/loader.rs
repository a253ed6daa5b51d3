//! Loading blocks for messages that wait for them.
//!
//! Blocks that lie in a row on one disk are read with one request. What arrives goes into the cache
//! and to the message that waits.
//!
//! The PVBN of a dual pointer is a hint (decision D8). When the block is not there, the volume's
//! container map is asked where it is.
//!
//! Fails: a block that cannot be read or repaired is noted as such for the waiting message, which
//! then fails with an I/O error; nothing else does.

use crate::owner::block_owner;
use affinity::{Outcome, Waker};
use cowfs::cache::BufferCache;
use cowfs::content::content_checksum;
use cowfs::reader::{HeldBlocks, LoadProof, LoadRequest};
use platform::sync::Mutex;
use raid::{BlockRead, BlockStore, Proof};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use units::{BlockRef, CpNumber, Pvbn, VolumeId, Vvbn};

/// Blocks in one request at most.
const RUN_BLOCKS_MAX: usize = 256;

/// Receives where a block lies, if anywhere.
pub type PlaceDone = Box<dyn FnOnce(Option<Pvbn>) + Send>;

/// Knows where the blocks of volumes lie, whatever pointers say.
pub trait ContainerMaps: Send + Sync {
    /// Where block `vvbn` of a volume lies.
    fn place_of(&self, volume: VolumeId, vvbn: Vvbn, done: PlaceDone);
}

/// Reads blocks from an aggregate's disks into its cache.
#[derive(Clone)]
pub struct Loader {
    /// Asked when a pointer's hint turns out wrong.
    pub maps: Option<Arc<dyn ContainerMaps>>,
    /// The disks.
    pub store: Arc<dyn BlockStore>,
    /// The cache.
    pub cache: Arc<BufferCache>,
    /// Counts blocks that are lost.
    pub lost_blocks: Arc<AtomicU64>,
}

/// Suspends a message until `requests` are there.
pub fn suspend_for_load(loader: &Loader, requests: Vec<LoadRequest>, held: &HeldBlocks) -> Outcome {
    let (loader, held) = (loader.clone(), held.clone());
    Outcome::Suspend(Box::new(move |waker| {
        loader.load(requests, held, Box::new(move || waker_wake(waker)));
    }))
}

fn waker_wake(waker: Waker) {
    waker.wake();
}

/// Counts down to the end of a load.
struct Pending {
    left: AtomicUsize,
    done: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Pending {
    fn end_one(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let done = self.done.lock().take();
            if let Some(done) = done {
                done();
            }
        }
    }
}

impl Loader {
    /// Loads `requests`; `done` is called when the last is there or failed.
    pub fn load(
        &self,
        mut requests: Vec<LoadRequest>,
        held: HeldBlocks,
        done: Box<dyn FnOnce() + Send>,
    ) {
        requests.sort_unstable_by_key(|request| request.pvbn);
        requests.dedup_by_key(|request| (request.pvbn, request.check));
        let runs = self.runs(requests);
        let left = AtomicUsize::new(runs.len());
        let pending = Arc::new(Pending { left, done: Mutex::new(Some(done)) });
        if runs.is_empty() {
            let done = pending.done.lock().take();
            done.into_iter().for_each(|done| done());
        }
        for run in runs {
            self.load_run(run, held.clone(), Arc::clone(&pending));
        }
    }

    /// Splits sorted requests into runs of consecutive blocks of one disk.
    fn runs(&self, requests: Vec<LoadRequest>) -> Vec<Vec<LoadRequest>> {
        let geometry = self.store.geometry();
        let mut runs: Vec<Vec<LoadRequest>> = Vec::new();
        for request in requests {
            let extends = runs.last().is_some_and(|run| {
                let last = &run[run.len() - 1];
                let (at, next) = (geometry.locate(last.pvbn), geometry.locate(request.pvbn));
                run.len() < RUN_BLOCKS_MAX
                    && last.pvbn.get() + 1 == request.pvbn.get()
                    && at
                        .zip(next)
                        .is_some_and(|(at, next)| at.group == next.group && at.disk == next.disk)
            });
            match runs.last_mut() {
                Some(run) if extends => run.push(request),
                _ => runs.push(vec![request]),
            }
        }
        runs
    }

    fn load_run(&self, run: Vec<LoadRequest>, held: HeldBlocks, pending: Arc<Pending>) {
        if run.len() == 1 {
            return self.load_one(run[0], held, pending);
        }
        let this = self.clone();
        let proofs = run.iter().map(proof).collect();
        let first = run[0].pvbn;
        let done = move |outcome: Result<Vec<BlockRef>, raid::ReadFailure>| match outcome {
            Ok(blocks) => {
                for (request, block) in run.iter().zip(blocks) {
                    this.deliver(request, block, &held);
                }
                pending.end_one();
            }
            Err(_) => {
                // Find out which; the others are good.
                pending.left.fetch_add(run.len() - 1, Ordering::AcqRel);
                for request in run {
                    this.load_one(request, held.clone(), Arc::clone(&pending));
                }
            }
        };
        self.store.read_run(first, proofs, Box::new(done));
    }

    fn load_one(&self, request: LoadRequest, held: HeldBlocks, pending: Arc<Pending>) {
        let this = self.clone();
        self.read_at(
            request.pvbn,
            request,
            Box::new(move |outcome| match outcome {
                Some(block) => {
                    this.deliver(&request, block, &held);
                    pending.end_one();
                }
                None => this.load_by_map(request, held, pending),
            }),
        );
    }

    /// Reads the block that `request` describes, from wherever.
    fn read_at(
        &self,
        pvbn: Pvbn,
        request: LoadRequest,
        done: Box<dyn FnOnce(Option<BlockRef>) + Send>,
    ) {
        if self.store.geometry().locate(pvbn).is_none() {
            return done(None);
        }
        let read = BlockRead { pvbn, proof: proof(&request) };
        self.store.read(read, Box::new(move |outcome| done(outcome.ok())));
    }

    /// The pointer's hint is wrong, or the block is lost: the container map knows which (D8).
    fn load_by_map(&self, request: LoadRequest, held: HeldBlocks, pending: Arc<Pending>) {
        let lost_blocks = Arc::clone(&self.lost_blocks);
        let lost = move |held: &HeldBlocks, pending: &Pending| {
            lost_blocks.fetch_add(1, Ordering::Relaxed);
            tracing::error!(pvbn = %request.pvbn, "a block is lost");
            held.put(&request, None);
            pending.end_one();
        };
        let (Some(maps), Some((volume, vvbn))) = (&self.maps, request.virtual_number) else {
            return lost(&held, &pending);
        };
        let this = self.clone();
        let found = move |place: Option<Pvbn>| {
            match place {
            Some(pvbn) if pvbn != request.pvbn => this.read_at(
                pvbn,
                request,
                Box::new(move |outcome| match outcome {
                    Some(block) => {
                        tracing::debug!(%volume, %vvbn, hint = %request.pvbn, %pvbn, "a wrong hint");
                        // Not into the cache: there another block may lie under the hint.
                        held.put(&request, Some(block));
                        pending.end_one();
                    }
                    None => lost(&held, &pending),
                }),
            ),
            _ => lost(&held, &pending),
        }
        };
        maps.place_of(volume, vvbn, Box::new(found));
    }

    fn deliver(&self, request: &LoadRequest, block: BlockRef, held: &HeldBlocks) {
        self.cache.insert(request.pvbn, request.check, BlockRef::clone(&block));
        held.put(request, Some(block));
    }
}

fn proof(request: &LoadRequest) -> Proof {
    match request.proof {
        LoadProof::Content { checksum, content } => {
            Proof::Content(Box::new(move |block| content_checksum(block, content) == checksum))
        }
        LoadProof::Identity { place, check } => {
            Proof::Identity { owner: block_owner(&place, Vvbn(0), CpNumber(0)), check }
        }
    }
}
