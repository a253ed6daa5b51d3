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
use rustc_hash::FxHashMap;
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
    /// What is being read now, whoever asked first.
    pub under_way: Arc<LoadsUnderWay>,
}

/// Loads under way and who waits for them: a block that two ask for is read once, be it that one of
/// them reads ahead of the other.
#[derive(Default)]
pub struct LoadsUnderWay(Mutex<FxHashMap<(Pvbn, u32), Vec<Waiter>>>);

/// One message's part in a load.
struct Waiter {
    held: HeldBlocks,
    pending: Arc<Pending>,
}

impl LoadsUnderWay {
    /// Waits for a block; whether nobody did before, so that it must be read now.
    fn join(&self, request: &LoadRequest, waiter: Waiter) -> bool {
        let mut loads = self.0.lock();
        let waiters = loads.entry((request.pvbn, request.check)).or_default();
        waiters.push(waiter);
        waiters.len() == 1
    }

    /// Ends a load; `None` if the block is lost.
    fn finish(&self, request: &LoadRequest, block: Option<&BlockRef>) {
        let waiters = self.0.lock().remove(&(request.pvbn, request.check));
        for waiter in waiters.into_iter().flatten() {
            waiter.held.put(request, block.map(BlockRef::clone));
            waiter.pending.end_one();
        }
    }

    /// Where is being read, in order.
    pub(crate) fn places(&self) -> Vec<Pvbn> {
        let mut places: Vec<Pvbn> = self.0.lock().keys().map(|(pvbn, _)| *pvbn).collect();
        places.sort_unstable();
        places
    }

    /// Lets go of everyone who waits, as after a power cut.
    pub fn abandon(&self) {
        let forgotten = std::mem::take(&mut *self.0.lock());
        drop(forgotten);
    }
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
        requests.sort_unstable_by_key(|request| (request.pvbn, request.check));
        requests.dedup_by_key(|request| (request.pvbn, request.check));
        if requests.is_empty() {
            return done();
        }
        let left = AtomicUsize::new(requests.len());
        let pending = Arc::new(Pending { left, done: Mutex::new(Some(done)) });
        requests.retain(|request| {
            let waiter = Waiter { held: held.clone(), pending: Arc::clone(&pending) };
            self.under_way.join(request, waiter)
        });
        for run in self.runs(requests) {
            self.load_run(run);
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

    fn load_run(&self, run: Vec<LoadRequest>) {
        if run.len() == 1 {
            return self.load_one(run[0]);
        }
        let this = self.clone();
        let proofs = run.iter().map(proof).collect();
        let first = run[0].pvbn;
        let done = move |outcome: Result<Vec<BlockRef>, raid::ReadFailure>| match outcome {
            Ok(blocks) => {
                for (request, block) in run.iter().zip(blocks) {
                    this.deliver(request, &block);
                }
            }
            // Find out which; the others are good.
            Err(_) => run.into_iter().for_each(|request| this.load_one(request)),
        };
        self.store.read_run(first, proofs, Box::new(done));
    }

    fn load_one(&self, request: LoadRequest) {
        let this = self.clone();
        self.read_at(
            request.pvbn,
            request,
            Box::new(move |outcome| match outcome {
                Some(block) => this.deliver(&request, &block),
                None => this.load_by_map(request),
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
    fn load_by_map(&self, request: LoadRequest) {
        let (Some(maps), Some((volume, vvbn))) = (&self.maps, request.virtual_number) else {
            return self.lose(&request);
        };
        let this = self.clone();
        let found = move |place: Option<Pvbn>| {
            let Some(pvbn) = place.filter(|pvbn| *pvbn != request.pvbn) else {
                return this.lose(&request);
            };
            let that = this.clone();
            let read = move |outcome: Option<BlockRef>| match outcome {
                Some(block) => {
                    tracing::debug!(%volume, %vvbn, hint = %request.pvbn, %pvbn, "a wrong hint");
                    // Not into the cache: there another block may lie under the hint.
                    that.under_way.finish(&request, Some(&block));
                }
                None => that.lose(&request),
            };
            this.read_at(pvbn, request, Box::new(read));
        };
        maps.place_of(volume, vvbn, Box::new(found));
    }

    fn lose(&self, request: &LoadRequest) {
        self.lost_blocks.fetch_add(1, Ordering::Relaxed);
        tracing::error!(pvbn = %request.pvbn, "a block is lost");
        self.under_way.finish(request, None);
    }

    fn deliver(&self, request: &LoadRequest, block: &BlockRef) {
        self.cache.insert(request.pvbn, request.check, BlockRef::clone(block));
        self.under_way.finish(request, Some(block));
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
