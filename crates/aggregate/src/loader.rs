//! Loading blocks for messages that wait for them.
//!
//! Blocks that lie near each other on one disk are read with one request, and the blocks between
//! them come along: a request costs more than a few blocks (decision 55). A wanted block goes into
//! the cache and to the message that waits. A block that came along is dropped.
//!
//! The PVBN of a dual pointer is a hint (decision 12). If the block is not there, the volume's
//! container map says where it is. Where blocks of a volume were moved, the map is asked first: no
//! read is wasted, and no other block is taken for the one that is wanted. A block that the
//! consistency point under way has placed is not in the map yet; it is where its pointer says. Of a
//! clone's block like that the map may tell an ancestor's place, where its content is not found.
//!
//! Fails: the waiting message is told which block can neither be read nor repaired, and fails with
//! an I/O error; nothing else does. A commit may free a block while it is being read. Its place may
//! have been used again by then, so this does not count as damage: the message finds that its block
//! is gone.

use crate::owner::block_owner;
use affinity::{Outcome, Waker};
use cowfs::cache::BufferCache;
use cowfs::content::content_checksum;
use cowfs::reader::{HeldBlocks, LoadProof, LoadRequest};
use cowfs::scatter::is_near;
use platform::sync::Mutex;
use platform::sync::atomic::{AtomicUsize, Ordering};
use raid::{BlockRead, BlockStore, Proof};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use units::{BlockNumber, BlockRef, CpNumber, Pvbn, VolumeId, Vvbn};

/// Blocks in one request at most, those included that come along.
const RUN_BLOCKS_MAX: u64 = 256;

/// Receives where blocks lie, if anywhere.
pub type PlacesDone = Box<dyn FnOnce(Vec<Place>) + Send>;

/// Where a container map has a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// There.
    At(Pvbn),
    /// Nowhere: the volume has let go of it.
    Nowhere,
    /// The map cannot be read there.
    Unknown,
}

/// Knows where the blocks of volumes lie, whatever pointers say.
pub trait ContainerMaps: Send + Sync {
    /// Whether blocks of a volume were ever moved.
    fn has_moved(&self, volume: VolumeId) -> bool;

    /// These blocks of volumes were loaded for somebody who reads out of sequence.
    fn note_random_reads(&self, blocks: &[(VolumeId, Vvbn)]);

    /// Where these blocks of volumes lie.
    fn places_of(&self, blocks: Vec<(VolumeId, Vvbn)>, done: PlacesDone);
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
/// them reads ahead of the other. A volume and its clones share blocks, and each looks for them by
/// its own container map: what one cannot find another may.
#[derive(Default)]
pub struct LoadsUnderWay(Mutex<FxHashMap<LoadKey, Load>>);

/// What a load is known by: the pointer, and the volume.
type LoadKey = (Pvbn, u32, Option<VolumeId>);

fn key(request: &LoadRequest) -> LoadKey {
    (request.pvbn, request.check, request.virtual_number.map(|(volume, _)| volume))
}

/// A load, and where it reads: not where the pointer says, if the block was moved.
struct Load {
    at: Pvbn,
    /// A commit has freed the place since.
    is_freed: bool,
    waiter: Waiter,
    /// Mostly there is one.
    others: Vec<Waiter>,
}

/// One message's part in a load.
#[derive(Clone)]
struct Waiter {
    held: HeldBlocks,
    pending: Arc<Pending>,
}

impl LoadsUnderWay {
    /// Adds a waiter to the load of each block. The requests that are returned had no load under
    /// way: the caller reads their blocks.
    fn join(&self, mut requests: Vec<LoadRequest>, waiter: &Waiter) -> Vec<LoadRequest> {
        let mut loads = self.0.lock();
        requests.retain(|request| {
            let (at, waiter) = (request.pvbn, waiter.clone());
            match loads.entry(key(request)) {
                Entry::Occupied(mut load) => {
                    load.get_mut().others.push(waiter);
                    false
                }
                Entry::Vacant(free) => {
                    free.insert(Load { at, is_freed: false, waiter, others: Vec::new() });
                    true
                }
            }
        });
        requests
    }

    /// A load reads elsewhere than its pointer says.
    fn read_at(&self, request: &LoadRequest, at: Pvbn) {
        if let Some(load) = self.0.lock().get_mut(&key(request)) {
            (load.at, load.is_freed) = (at, false);
        }
    }

    /// A commit has freed these places, in order.
    pub(crate) fn note_freed(&self, freed: &[Pvbn]) {
        for load in self.0.lock().values_mut() {
            load.is_freed |= freed.binary_search(&load.at).is_ok();
        }
    }

    /// Whether what a load reads was freed meanwhile.
    fn is_freed(&self, request: &LoadRequest) -> bool {
        let loads = self.0.lock();
        loads.get(&key(request)).is_some_and(|load| load.is_freed)
    }

    /// Ends the load of a block that is lost.
    fn lose(&self, request: &LoadRequest) {
        let load = self.0.lock().remove(&key(request));
        load.into_iter().for_each(|load| load.tell(request, None));
    }

    /// Ends the loads of blocks that are there now, and has them in the cache. A place that was
    /// freed meanwhile may have another block by now, which the cache has: so it is under the lock
    /// that a load learns of it.
    fn finish(&self, run: &[Wanted], blocks: &[BlockRef], cache: &BufferCache) {
        let ended: Vec<Option<Load>> = {
            let mut loads = self.0.lock();
            let end = |(one, block): (&Wanted, &BlockRef)| {
                let LoadRequest { check, class, .. } = one.request;
                let load = loads.remove(&key(&one.request));
                if load.as_ref().is_some_and(|load| !load.is_freed) {
                    cache.insert(one.at, (check, class), BlockRef::clone(block));
                }
                load
            };
            run.iter().zip(blocks).map(end).collect()
        };
        for ((load, one), block) in ended.into_iter().zip(run).zip(blocks) {
            load.into_iter().for_each(|load| load.tell(&one.request, Some(block)));
        }
    }

    /// Where is being read, in order.
    pub(crate) fn places(&self) -> Vec<Pvbn> {
        let mut places: Vec<Pvbn> = self.0.lock().values().map(|load| load.at).collect();
        places.sort_unstable();
        places
    }

    /// Lets go of everyone who waits, as after a power cut.
    pub fn abandon(&self) {
        let forgotten = std::mem::take(&mut *self.0.lock());
        drop(forgotten);
    }
}

impl Load {
    fn tell(self, request: &LoadRequest, block: Option<&BlockRef>) {
        for Waiter { held, pending } in std::iter::once(self.waiter).chain(self.others) {
            held.put(request, block.map(BlockRef::clone));
            pending.end_one();
        }
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
        requests.sort_unstable_by_key(key);
        requests.dedup_by_key(|request| key(request));
        if requests.is_empty() {
            return done();
        }
        self.note_random_reads(&requests);
        let left = AtomicUsize::new(requests.len());
        let pending = Arc::new(Pending { left, done: Mutex::new(Some(done)) });
        self.load_from_places(self.under_way.join(requests, &Waiter { held, pending }));
    }

    fn note_random_reads(&self, requests: &[LoadRequest]) {
        let random = requests.iter().filter(|request| request.is_random);
        let numbers: Vec<_> = random.filter_map(|request| request.virtual_number).collect();
        if let Some(maps) = self.maps.as_ref().filter(|_| !numbers.is_empty()) {
            maps.note_random_reads(&numbers);
        }
    }

    /// Finds out where blocks lie that may have moved, and reads all.
    fn load_from_places(&self, requests: Vec<LoadRequest>) {
        let (mut wanted, mut unknown) = (Vec::new(), Vec::new());
        for request in requests {
            let number = request.virtual_number;
            let numbers = number.zip(self.maps.as_ref());
            let moved = numbers.filter(|((volume, _), maps)| maps.has_moved(*volume));
            match moved.map(|(number, _)| (number, self.cache.moved(request.pvbn, request.check))) {
                None => wanted.push(Wanted { at: request.pvbn, request }),
                Some((_, Some(at))) => {
                    self.under_way.read_at(&request, at);
                    wanted.push(Wanted { at, request });
                }
                Some((number, None)) => unknown.push((number, request)),
            }
        }
        self.load_runs(wanted);
        let Some(maps) = self.maps.as_ref().filter(|_| !unknown.is_empty()) else { return };
        let this = self.clone();
        let (numbers, unknown): (Vec<_>, Vec<LoadRequest>) = unknown.into_iter().unzip();
        let found = move |places: Vec<Place>| {
            let mut wanted = Vec::new();
            for (request, place) in unknown.into_iter().zip(places) {
                match place {
                    Place::At(at) => {
                        this.note_place(&request, at);
                        wanted.push(Wanted { at, request });
                    }
                    // It is mostly where the pointer says, and its content proves it.
                    Place::Unknown => wanted.push(Wanted { at: request.pvbn, request }),
                    Place::Nowhere => this.load_unmapped(request),
                }
            }
            this.load_runs(wanted);
        };
        maps.places_of(numbers, Box::new(found));
    }

    /// Reads a block that no container map of the last commit has, of the volume or an ancestor.
    /// The consistency point under way has placed it, and then it is where its pointer says, for
    /// nothing moves before it is committed; or the volume has let go of it since, and whoever
    /// asked for it will see.
    fn load_unmapped(&self, request: LoadRequest) {
        let (this, at) = (self.clone(), request.pvbn);
        let read = move |outcome: Option<BlockRef>| match outcome {
            Some(block) => this.deliver(Wanted { at, request }, block),
            None => this.under_way.lose(&request),
        };
        self.read_at(at, request, Box::new(read));
    }

    /// A block that is to be read lies elsewhere than its pointer says.
    fn note_place(&self, request: &LoadRequest, at: Pvbn) {
        if at != request.pvbn {
            self.under_way.read_at(request, at);
            self.cache.note_moved(request.pvbn, request.check, at);
        }
    }

    fn load_runs(&self, mut wanted: Vec<Wanted>) {
        wanted.sort_unstable_by_key(|one| one.at);
        for run in self.runs(wanted) {
            self.load_run(run);
        }
    }

    /// Splits wanted blocks, in order, into runs that lie near each other on one disk.
    fn runs(&self, wanted: Vec<Wanted>) -> Vec<Vec<Wanted>> {
        let geometry = self.store.geometry();
        let mut runs: Vec<Vec<Wanted>> = Vec::new();
        for one in wanted {
            let extends = runs.last().is_some_and(|run| {
                let (first, last) = (&run[0], &run[run.len() - 1]);
                let (at, next) = (geometry.locate(last.at), geometry.locate(one.at));
                one.at.get() < first.at.get() + RUN_BLOCKS_MAX
                    && is_near(last.at, one.at)
                    && at
                        .zip(next)
                        .is_some_and(|(at, next)| at.group == next.group && at.disk == next.disk)
            });
            match runs.last_mut() {
                Some(run) if extends => run.push(one),
                _ => runs.push(vec![one]),
            }
        }
        runs
    }

    fn load_run(&self, run: Vec<Wanted>) {
        if let [one] = run[..] {
            return self.load_one(one);
        }
        let this = self.clone();
        let first = run[0].at;
        let mut proofs = Vec::with_capacity(run.len());
        for one in &run {
            let between = (one.at.since(first) as usize).saturating_sub(proofs.len());
            proofs.extend(std::iter::repeat_with(|| None).take(between));
            proofs.push(Some(proof(&one.request)));
        }
        let done = move |outcome: Result<Vec<BlockRef>, raid::ReadFailure>| match outcome {
            Ok(blocks) => {
                this.under_way.finish(&run, &blocks, &this.cache);
            }
            // Find out which; the others are good.
            Err(_) => run.into_iter().for_each(|one| this.load_one(one)),
        };
        self.store.read_run(first, proofs, Box::new(done));
    }

    fn load_one(&self, one: Wanted) {
        let this = self.clone();
        self.read_at(
            one.at,
            one.request,
            Box::new(move |outcome| match outcome {
                Some(block) => this.deliver(one, block),
                None => this.load_by_map(one),
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

    /// The hint is wrong, or the block is lost: the container map knows which (decision 12).
    fn load_by_map(&self, Wanted { at, request }: Wanted) {
        let (Some(maps), Some((volume, vvbn))) = (&self.maps, request.virtual_number) else {
            return self.lose(&request);
        };
        let this = self.clone();
        let found = move |places: Vec<Place>| {
            let place = match places.first() {
                Some(Place::At(pvbn)) => Some(*pvbn),
                Some(Place::Unknown) => Some(request.pvbn),
                Some(Place::Nowhere) | None => None,
            };
            // A clone's block that is in no map yet has its place from its pointer only, though an
            // ancestor may have another block under the same number.
            let hint = (at != request.pvbn).then_some(request.pvbn);
            let Some(pvbn) = place.filter(|pvbn| *pvbn != at).or(hint) else {
                return this.lose(&request);
            };
            // A number that was freed may have another block by now.
            if !this.under_way.is_freed(&request) {
                this.under_way.read_at(&request, pvbn);
            }
            let that = this.clone();
            let read = move |outcome: Option<BlockRef>| match outcome {
                Some(block) => {
                    tracing::debug!(%volume, %vvbn, hint = %request.pvbn, %pvbn, "a wrong hint");
                    if pvbn != request.pvbn || at != request.pvbn {
                        that.cache.note_moved(request.pvbn, request.check, pvbn);
                    }
                    that.deliver(Wanted { at: pvbn, request }, block);
                }
                None => that.lose(&request),
            };
            this.read_at(pvbn, request, Box::new(read));
        };
        maps.places_of(vec![(volume, vvbn)], Box::new(found));
    }

    fn lose(&self, request: &LoadRequest) {
        if !self.under_way.is_freed(request) {
            self.lost_blocks.fetch_add(1, Ordering::Relaxed);
            tracing::error!(pvbn = %request.pvbn, "a block is lost");
        }
        self.under_way.lose(request);
    }

    fn deliver(&self, one: Wanted, block: BlockRef) {
        self.under_way.finish(&[one], &[block], &self.cache);
    }
}

/// A block to be read, and where from.
#[derive(Clone, Copy)]
struct Wanted {
    at: Pvbn,
    request: LoadRequest,
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

#[cfg(test)]
mod tests;
