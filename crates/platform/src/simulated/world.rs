//! The world itself: clock, randomness, pending requests, power.
//!
//! Invariants: the lock is never held while a completion runs or is dropped, for both may submit.

use crate::completion::{self, Sender};
use crate::disk::is_in_range;
use crate::simulated::disk::{FaultRates, SimulatedDisk};
use crate::simulated::image::{DiskImage, Fate, GhostWrite, Judge, WorldImage};
use crate::simulated::perform::{Chance, flip, flush, read, write};
use crate::sync::Mutex;
use crate::{Clock, Disk, DiskError, DiskOpener, Entropy, ReadDone, WriteDone};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{BlockRef, Timestamp, zero_block};

/// The time of day at which a world begins: 2020-09-13T12:26:40Z, a round number of seconds.
const WALL_START_SECONDS: i64 = 1_600_000_000;
/// A step takes between one and this many nanoseconds: about what an SSD takes.
const STEP_NANOSECONDS_MAX: u64 = 100_000;
/// The generator that the engine draws from and the one that chooses faults and completions are
/// two streams of one seed, so that a new draw in the engine does not change the faults.
const ENGINE_STREAM: u64 = 1;

pub(super) enum RequestBody {
    Read { block: u64, count: usize, done: ReadDone },
    Write { block: u64, blocks: Vec<BlockRef>, done: Option<WriteDone> },
    Flush { sequence_end: u64, done: WriteDone },
}

pub(super) struct Request {
    pub disk: Arc<str>,
    pub epoch: u64,
    /// When it was submitted.
    pub since_nanoseconds: u64,
    pub body: RequestBody,
}

/// What a pending request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoKind {
    /// Reads blocks.
    Read,
    /// Writes blocks.
    Write,
    /// Makes completed writes durable.
    Flush,
}

/// A pending request, for a driver that chooses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingIo {
    /// The disk's name.
    pub disk: Arc<str>,
    /// What it does.
    pub kind: IoKind,
    /// The first block; zero for a flush.
    pub block: u64,
    /// How many blocks; zero for a flush.
    pub count: usize,
}

/// What happened in a world so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorldCounters {
    /// Moments at which what a power cut leaves has changed: a write or a flush was submitted or
    /// has completed.
    pub boundaries: u64,
    /// Unflushed writes of blocks that a power cut kept.
    pub kept_at_cuts: u64,
    /// Those that it lost.
    pub lost_at_cuts: u64,
    /// Those that it tore.
    pub torn_at_cuts: u64,
    /// Blocks that became unreadable.
    pub latent_errors: u64,
    /// Bits that flipped.
    pub flipped_bits: u64,
    /// Writes of blocks that were acknowledged and lost.
    pub lost_writes: u64,
    /// Writes of blocks that were acknowledged and went elsewhere.
    pub misdirected_writes: u64,
    /// Writes and flushes that were refused.
    pub refused_writes: u64,
    /// Blocks that were discarded.
    pub discarded_blocks: u64,
}

/// Called after each submission, with no lock held.
pub type SubmitHook = Arc<dyn Fn() + Send + Sync>;

struct State {
    monotonic_nanoseconds: u64,
    counters: WorldCounters,
    hook: Option<SubmitHook>,
    wall: Timestamp,
    choices: ChaCha8Rng,
    engine: ChaCha8Rng,
    epoch: u64,
    disks: BTreeMap<Arc<str>, DiskImage>,
    pending: Vec<Request>,
    /// Disks that hang.
    hung: BTreeSet<Arc<str>>,
    /// Requests of theirs, in their order.
    held: Vec<Request>,
}

/// The world. Clones are the same world.
#[derive(Clone)]
pub struct SimulatedWorld {
    seed: u64,
    state: Arc<Mutex<State>>,
}

impl SimulatedWorld {
    /// A world without disks, in which every choice follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let choices = ChaCha8Rng::seed_from_u64(seed);
        let mut engine = ChaCha8Rng::seed_from_u64(seed);
        engine.set_stream(ENGINE_STREAM);
        let state = State {
            monotonic_nanoseconds: 0,
            counters: WorldCounters::default(),
            hook: None,
            wall: Timestamp::from_parts(WALL_START_SECONDS, 0),
            choices,
            engine,
            epoch: 0,
            disks: BTreeMap::new(),
            pending: Vec::new(),
            hung: BTreeSet::new(),
            held: Vec::new(),
        };
        Self { seed, state: Arc::new(Mutex::new(state)) }
    }

    /// The seed.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Lets time pass.
    pub fn advance(&self, nanoseconds: u64) {
        self.state.lock().advance(nanoseconds);
    }

    /// The time of day leaps, and no other clock: what a sleeping machine finds.
    pub fn leap(&self, nanoseconds: u64) {
        let mut state = self.state.lock();
        let signed = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        state.wall = Timestamp(state.wall.get().saturating_add(signed));
    }

    /// The time of day goes back, and no other clock: what somebody who sets the clock does.
    pub fn turn_back(&self, nanoseconds: u64) {
        let mut state = self.state.lock();
        let signed = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        state.wall = Timestamp(state.wall.get().saturating_sub(signed));
    }

    /// A number below `end`, from the seed: for the driver's own choices.
    ///
    /// # Panics
    /// If `end` is zero.
    #[must_use]
    pub fn choose(&self, end: u64) -> u64 {
        assert!(end > 0, "a choice among nothing");
        self.state.lock().choices.next_u64() % end
    }

    /// Makes a disk of zeros; opens it.
    ///
    /// # Panics
    /// If there is one of that name.
    pub fn add_disk(&self, name: &str, size_blocks: u64) -> Arc<SimulatedDisk> {
        let mut state = self.state.lock();
        let name: Arc<str> = Arc::from(name);
        let old = state.disks.insert(Arc::clone(&name), DiskImage::new(size_blocks));
        assert!(old.is_none(), "there is a disk {name} already");
        Arc::new(SimulatedDisk::new(self.clone(), name, size_blocks, state.epoch))
    }

    /// Opens a disk, also after a power cut.
    #[must_use]
    pub fn disk(&self, name: &str) -> Option<Arc<SimulatedDisk>> {
        let state = self.state.lock();
        let (name, image) = state.disks.get_key_value(name)?;
        let disk =
            SimulatedDisk::new(self.clone(), Arc::clone(name), image.size_blocks, state.epoch);
        Some(Arc::new(disk))
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> WorldCounters {
        self.state.lock().counters
    }

    /// Has `hook` called after each submission: a place where another thread might run.
    pub fn set_submit_hook(&self, hook: Option<SubmitHook>) {
        let old = std::mem::replace(&mut self.state.lock().hook, hook);
        drop(old);
    }

    /// The names of all disks, in order.
    #[must_use]
    pub fn disk_names(&self) -> Vec<Arc<str>> {
        self.state.lock().disks.keys().map(Arc::clone).collect()
    }

    /// Lets go of all disks and of all requests: nothing will be asked of them any more. Whoever
    /// still holds the world holds no content then.
    pub fn clear(&self) {
        let forgotten = {
            let mut state = self.state.lock();
            let held = std::mem::take(&mut state.held);
            (std::mem::take(&mut state.disks), std::mem::take(&mut state.pending), held)
        };
        drop(forgotten);
    }

    /// The pending requests, oldest first; an index into them is the choice of
    /// [`Self::complete_one`].
    #[must_use]
    pub fn pending(&self) -> Vec<PendingIo> {
        self.state.lock().pending.iter().map(Request::describe).collect()
    }

    /// How many requests are pending.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.state.lock().pending.len()
    }

    /// The pending request that waits longest: its index, and for how long. The first of several.
    #[must_use]
    pub fn longest_wait(&self) -> Option<(usize, u64)> {
        let state = self.state.lock();
        let oldest = state.pending.iter().enumerate().min_by_key(|(_, one)| one.since_nanoseconds);
        let now = state.monotonic_nanoseconds;
        oldest.map(|(index, one)| (index, now.saturating_sub(one.since_nanoseconds)))
    }

    /// Completes the pending request at index `choice`; false if there is none.
    pub fn complete_one(&self, choice: usize) -> bool {
        let completion = {
            let mut state = self.state.lock();
            if choice >= state.pending.len() {
                return false;
            }
            let request = state.pending.remove(choice);
            state.perform(request)
        };
        completion();
        true
    }

    /// Completes a pending request of the seed's choice; false if there is none.
    pub fn step(&self) -> bool {
        let choice = {
            let mut state = self.state.lock();
            if state.pending.is_empty() {
                return false;
            }
            let nanoseconds = 1 + state.choices.next_u64() % STEP_NANOSECONDS_MAX;
            state.advance(nanoseconds);
            (state.choices.next_u64() % state.pending.len() as u64) as usize
        };
        self.complete_one(choice)
    }

    /// Steps until nothing is pending; the number of steps.
    pub fn run_until_idle(&self) -> u64 {
        let mut steps = 0;
        while self.step() {
            steps += 1;
        }
        steps
    }

    /// Starts a call and steps until nothing is pending; what it has answered.
    ///
    /// # Panics
    /// If it has not answered.
    #[track_caller]
    pub fn wait<T: Send + 'static>(&self, call: impl FnOnce(Sender<T>)) -> T {
        let answer = completion::wait(call, || self.step());
        self.run_until_idle();
        answer
    }

    /// The power goes and comes back. Handles opened before are dead; open the disks again.
    pub fn power_cut(&self) {
        self.power_cut_with(Fate::Each);
    }

    /// A power cut with a choice of what becomes of unflushed writes.
    pub fn power_cut_with(&self, fate: Fate) {
        let dropped = {
            let mut state = self.state.lock();
            state.epoch += 1;
            let mut dropped = std::mem::take(&mut state.pending);
            dropped.append(&mut state.held);
            let State { disks, choices, counters, .. } = &mut *state;
            let mut judge = Judge { fate, random: choices, counters };
            // First what had completed, in its order, then what was under way.
            for (place, image) in disks.values_mut().enumerate() {
                judge.fate = fate.of_disk(place);
                image.cut(&mut judge);
            }
            for request in &dropped {
                let RequestBody::Write { block, blocks, .. } = &request.body else { continue };
                let place = disks.range(..Arc::clone(&request.disk)).count();
                let Some(image) = disks.get_mut(&request.disk) else { continue };
                judge.fate = fate.of_disk(place);
                if image.faults.gone || !is_in_range(*block, blocks.len(), image.size_blocks) {
                    continue;
                }
                for (block, content) in (*block..).zip(blocks) {
                    image.settle(block, content, &mut judge);
                }
            }
            dropped
        };
        drop(dropped);
    }

    /// The process dies, and the machine goes on. Handles opened before are dead; open the disks
    /// again. What was written and not flushed is there at the next start, and a power cut may take
    /// it later. A write that was under way is done or not, each block by itself; none is torn.
    pub fn kill(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.epoch += 1;
            let mut dropped = std::mem::take(&mut state.pending);
            dropped.append(&mut state.held);
            let State { disks, choices, .. } = &mut *state;
            for request in &dropped {
                let RequestBody::Write { block, blocks, .. } = &request.body else { continue };
                let Some(image) = disks.get_mut(&request.disk) else { continue };
                if image.faults.gone || !is_in_range(*block, blocks.len(), image.size_blocks) {
                    continue;
                }
                for (block, content) in (*block..).zip(blocks) {
                    if choices.next_u32() % 2 == 0 {
                        image.apply(block, Arc::clone(content));
                    }
                }
            }
            dropped
        };
        drop(dropped);
    }

    /// A disk loses power alone: of what it had not flushed some is lost, as at a power cut. What
    /// is pending fails or not, as the disk is then.
    pub fn lose_unflushed(&self, disk: &str) {
        let mut state = self.state.lock();
        let State { disks, choices, counters, .. } = &mut *state;
        let mut judge = Judge { fate: Fate::Each, random: choices, counters };
        if let Some(image) = disks.get_mut(disk) {
            image.cut(&mut judge);
        }
    }

    /// All disks as they are now, with the writes that are pending.
    #[must_use]
    pub fn snapshot(&self) -> WorldImage {
        let state = self.state.lock();
        let ghosts = state.pending.iter().chain(&state.held).filter_map(Request::ghost).collect();
        WorldImage { disks: state.disks.clone(), ghosts }
    }

    /// Puts back the disks of `image`, of this world or another. Pending requests are dropped;
    /// those of the image are pending again, without completions. Handles opened before are dead.
    pub fn restore(&self, image: &WorldImage) {
        let dropped = {
            let mut state = self.state.lock();
            state.epoch += 1;
            state.disks = image.disks.clone();
            let (epoch, since_nanoseconds) = (state.epoch, state.monotonic_nanoseconds);
            let ghosts = image.ghosts.iter().cloned().map(|ghost| Request {
                disk: ghost.disk,
                epoch,
                since_nanoseconds,
                body: RequestBody::Write { block: ghost.block, blocks: ghost.blocks, done: None },
            });
            let held = std::mem::take(&mut state.held);
            (std::mem::replace(&mut state.pending, ghosts.collect()), held)
        };
        drop(dropped);
    }

    /// What a read of one block would see, without any request: for offline checkers. `None` if
    /// there is no such disk or block.
    #[must_use]
    pub fn read_block(&self, disk: &str, block: u64) -> Option<BlockRef> {
        let state = self.state.lock();
        let image = state.disks.get(disk)?;
        (block < image.size_blocks).then(|| image.current(block))
    }

    /// Overwrites one block durably, without any request: for tests that damage.
    pub fn write_block(&self, disk: &str, block: u64, content: &units::Block) {
        self.with_disk(disk, |image| image.corrupt(block, |bytes| bytes.clone_from(content)));
    }

    /// Flips one bit of a block.
    pub fn flip_bit(&self, disk: &str, block: u64, bit: usize) {
        self.with_disk(disk, |image| image.corrupt(block, |bytes| flip(bytes, bit)));
    }

    /// A latent error: reads of the block fail until it is written.
    pub fn fail_block(&self, disk: &str, block: u64) {
        self.with_disk(disk, |image| {
            image.faults.unreadable.insert(block);
        });
    }

    /// Reads of the block fail, or give again what it holds.
    pub fn set_unreadable(&self, disk: &str, block: u64, is_unreadable: bool) {
        self.with_disk(disk, |image| {
            if is_unreadable {
                image.faults.unreadable.insert(block);
            } else {
                image.faults.unreadable.remove(&block);
            }
        });
    }

    /// Writes of the block fail, or no longer.
    pub fn fail_writes(&self, disk: &str, block: u64, fails: bool) {
        self.with_disk(disk, |image| {
            if fails {
                image.faults.unwritable.insert(block);
            } else {
                image.faults.unwritable.remove(&block);
            }
        });
    }

    /// The next write of the block is acknowledged and not applied.
    pub fn lose_next_write(&self, disk: &str, block: u64) {
        self.with_disk(disk, |image| {
            image.faults.lose_next.insert(block);
        });
    }

    /// The next write of `block` is acknowledged and applied to `target`.
    pub fn misdirect_next_write(&self, disk: &str, block: u64, target: u64) {
        self.with_disk(disk, |image| {
            assert!(target < image.size_blocks, "the target lies on the disk");
            image.faults.misdirect_next.insert(block, target);
        });
    }

    /// The whole disk is gone, or back with what it held.
    pub fn set_gone(&self, disk: &str, gone: bool) {
        self.with_disk(disk, |image| image.faults.gone = gone);
    }

    /// Whether the whole disk is gone.
    #[must_use]
    pub fn is_gone(&self, disk: &str) -> bool {
        self.state.lock().disks.get(disk).is_some_and(|image| image.faults.gone)
    }

    /// The whole disk hangs: its requests wait, those under way included. Or it answers again,
    /// late.
    pub fn set_hung(&self, disk: &str, hangs: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some((name, _)) = state.disks.get_key_value(disk) else {
            panic!("there is no disk {disk}")
        };
        let name = Arc::clone(name);
        let (from, to) = match hangs {
            true => (&mut state.pending, &mut state.held),
            false => (&mut state.held, &mut state.pending),
        };
        to.extend(from.extract_if(.., |request| request.disk == name));
        match hangs {
            true => state.hung.insert(name),
            false => state.hung.remove(&name),
        };
    }

    /// Whether something that was asked of a disk has not ended.
    #[must_use]
    pub fn has_requests(&self, disk: &str) -> bool {
        let state = self.state.lock();
        state.pending.iter().chain(&state.held).any(|request| &*request.disk == disk)
    }

    /// How many requests wait for disks that hang.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.state.lock().held.len()
    }

    /// Faults that happen by themselves from now on.
    pub fn set_fault_rates(&self, disk: &str, rates: FaultRates) {
        self.with_disk(disk, |image| image.faults.rates = rates);
    }

    fn with_disk(&self, disk: &str, change: impl FnOnce(&mut DiskImage)) {
        let mut state = self.state.lock();
        let Some(image) = state.disks.get_mut(disk) else { panic!("there is no disk {disk}") };
        change(image);
    }

    /// Discarded blocks are zeros at once, as if zeros had been written and not been flushed.
    pub(super) fn discard(&self, disk: &str, epoch: u64, block: u64, count_blocks: u64) {
        let mut state = self.state.lock();
        if epoch != state.epoch {
            return;
        }
        let state = &mut *state;
        let Some(image) = state.disks.get_mut(disk).filter(|image| !image.faults.gone) else {
            return;
        };
        state.counters.boundaries += 1;
        let end = block.saturating_add(count_blocks).min(image.size_blocks);
        for block in block..end {
            image.faults.unreadable.remove(&block);
            image.apply(block, zero_block());
            state.counters.discarded_blocks += 1;
        }
    }

    pub(super) fn submit(&self, mut request: Request) {
        let mut state = self.state.lock();
        if request.epoch != state.epoch {
            // A dead machine: dropped, outside the lock.
            drop(state);
            drop(request);
            return;
        }
        request.since_nanoseconds = state.monotonic_nanoseconds;
        if let RequestBody::Flush { sequence_end, .. } = &mut request.body
            && let Some(image) = state.disks.get(&request.disk)
        {
            *sequence_end = image.writes_completed;
        }
        state.counters.boundaries += u64::from(request.changes_disk());
        if state.hung.contains(&request.disk) {
            state.held.push(request);
        } else {
            state.pending.push(request);
        }
        let hook = state.hook.clone();
        drop(state);
        if let Some(hook) = hook {
            hook();
        }
    }
}

impl Request {
    const fn changes_disk(&self) -> bool {
        !matches!(self.body, RequestBody::Read { .. })
    }

    fn describe(&self) -> PendingIo {
        let (kind, block, count) = match &self.body {
            RequestBody::Read { block, count, .. } => (IoKind::Read, *block, *count),
            RequestBody::Write { block, blocks, .. } => (IoKind::Write, *block, blocks.len()),
            RequestBody::Flush { .. } => (IoKind::Flush, 0, 0),
        };
        PendingIo { disk: Arc::clone(&self.disk), kind, block, count }
    }

    fn ghost(&self) -> Option<GhostWrite> {
        let RequestBody::Write { block, blocks, .. } = &self.body else { return None };
        Some(GhostWrite { disk: Arc::clone(&self.disk), block: *block, blocks: blocks.clone() })
    }
}

impl State {
    fn advance(&mut self, nanoseconds: u64) {
        self.monotonic_nanoseconds += nanoseconds;
        let signed = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        self.wall = Timestamp(self.wall.get().saturating_add(signed));
    }

    /// Does what the request asks; what is returned tells its owner.
    fn perform(&mut self, request: Request) -> Box<dyn FnOnce()> {
        self.counters.boundaries += u64::from(request.changes_disk());
        let Request { disk, body, .. } = request;
        let Some(image) = self.disks.get_mut(&disk) else {
            unreachable!("disks are never removed, and requests of another epoch are dropped")
        };
        let chance = &mut Chance { random: &mut self.choices, counters: &mut self.counters };
        match body {
            RequestBody::Read { block, count, done } => {
                let result = read(image, &disk, block, count, chance);
                Box::new(move || done(result))
            }
            RequestBody::Write { block, blocks, done } => {
                let result = write(image, &disk, block, blocks, chance);
                Box::new(move || {
                    if let Some(done) = done {
                        done(result);
                    }
                })
            }
            RequestBody::Flush { sequence_end, done } => {
                let result = flush(image, &disk, chance);
                if result.is_ok() {
                    image.make_durable(sequence_end);
                }
                Box::new(move || done(result))
            }
        }
    }
}

impl Clock for SimulatedWorld {
    fn wall(&self) -> Timestamp {
        self.state.lock().wall
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        self.state.lock().monotonic_nanoseconds
    }
}

impl Entropy for SimulatedWorld {
    fn next_u64(&self) -> u64 {
        self.state.lock().engine.next_u64()
    }
}

impl DiskOpener for SimulatedWorld {
    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError> {
        match self.disk(path) {
            Some(disk) => Ok(disk),
            None => {
                let kind = "there is no such simulated disk".to_owned();
                Err(DiskError::Open { disk: path.to_owned(), kind })
            }
        }
    }
}
