//! An aggregate on simulated disks, for the tests of this crate and of the crates above it.
//!
//! A [`Rig`] has a world of disks, a scheduler and an aggregate in service. It runs messages and
//! disk requests in an order that the world's seed chooses. It is opened again after a stop or a
//! power cut as a node opens an aggregate.
//!
//! Invariants: nothing of this is linked into a program: the feature `testing` is for tests only.

#![allow(clippy::missing_panics_doc, reason = "a test that cannot go on panics")]

mod blocks;

pub use blocks::{BlocksInUse, find_blocks};

use crate::{
    Aggregate, AggregateIdentity, BlockSide, LateJournal, Loader, Parts, Tuning, choose_superblock,
    decode_partial_parity, format_block_side, is_whole_slot, mount, suspend_for_load,
};
use affinity::{Access, AffinityId, AffinityKind, Outcome, Scheduler};
use cowfs::budget::Budget;
use cowfs::cache::BufferCache;
use cowfs::dirty_memory::DirtyMemory;
use cowfs::logical::AggregateShared;
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop, Wait};
use nvlog::{Log, LogIdentity, Record};
use ondisk::label::{DiskLabel, RaidKind};
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use platform::{Disk, Entropy};
use raid::{BlockStore, CreateRequest, GroupRequest, Store};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use units::{CpNumber, LogUuid, Timestamp};

/// Blocks of a disk: the smallest that a label fits on.
pub const DISK_BLOCKS: u64 = media::DISK_BLOCKS_MIN;
const LOG: &str = "log";
const LOG_BLOCKS: u64 = 1412;
/// Few, so that most of what is read comes from the disks.
const CACHE_BLOCKS: usize = 64;
/// Dirty blocks: more than any test has.
const DIRTY_BLOCKS: u64 = 1 << 16;

/// Receives what a [`Rig::wait`] waits for.
pub type Answer<T> = Box<dyn FnOnce(T) + Send>;

/// See the module.
pub struct Rig {
    /// The disks.
    pub world: SimulatedWorld,
    /// Runs the aggregate's messages.
    pub scheduler: Scheduler,
    /// The aggregate.
    pub aggregate: Arc<Aggregate>,
}

/// What an aggregate is assembled from, before it is in service.
struct Assembled {
    store: Arc<Store>,
    journal: Arc<LateJournal>,
    log: Log,
    identity: AggregateIdentity,
    committed: CpNumber,
    slot: usize,
}

/// What runs messages and disks.
struct Driver<'a> {
    world: &'a SimulatedWorld,
    scheduler: &'a Scheduler,
}

impl Driver<'_> {
    /// One step, of a message or of a disk; whether there was one.
    fn step(&self) -> bool {
        let mut choose = |count: usize| self.world.choose(count as u64) as usize;
        self.world.choose(4) == 0 && self.world.step()
            || self.scheduler.run_one(&mut choose)
            || self.world.step()
    }

    fn wait<T: Send + 'static>(&self, start: impl FnOnce(Answer<T>)) -> T {
        let answer: Arc<Mutex<Option<T>>> = Arc::default();
        let slot = Arc::clone(&answer);
        start(Box::new(move |value| *slot.lock() = Some(value)));
        loop {
            if let Some(value) = answer.lock().take() {
                return value;
            }
            assert!(self.step(), "nothing is left to run, and there is no answer");
        }
    }
}

impl Rig {
    /// A new aggregate of groups with so many disks each, with its first consistency point.
    #[must_use]
    pub fn create(world: &SimulatedWorld, groups: &[(RaidKind, usize)], tuning: Tuning) -> Self {
        let scheduler = Scheduler::new(Arc::new(world.clone()));
        let driver = Driver { world, scheduler: &scheduler };
        world.add_disk(LOG, LOG_BLOCKS);
        let mut requests = Vec::new();
        for (group, (kind, count)) in groups.iter().enumerate() {
            let disk = |disk: usize| -> Arc<dyn Disk> {
                world.add_disk(&format!("g{group}d{disk}"), DISK_BLOCKS)
            };
            requests.push(GroupRequest { kind: *kind, disks: (0..*count).map(disk).collect() });
        }
        let request = CreateRequest {
            name: "a1".to_owned(),
            groups: requests,
            created: Timestamp(1),
            force: false,
            media: None,
            log_regions: 0,
        };
        let journal = Arc::new(LateJournal::default());
        let late = Arc::clone(&journal);
        let store = driver.wait(|done| raid::create(request, world, late, done));
        let store = Arc::new(store.expect("the disks make up an aggregate"));
        let (aggregate, name) = store.aggregate();
        let identity = AggregateIdentity { name, aggregate, log: LogUuid(world.next_identity()) };
        let disk = log_disk(world);
        let log_identity = LogIdentity { aggregate, log: identity.log };
        let formatted = driver.wait(|done| Log::format(&disk, log_identity, done));
        formatted.expect("the log's disk works");
        let log = open_log(&driver, log_identity, CpNumber(0));
        let side = format_block_side(&store.geometry(), false).expect("the disks have room");
        let assembled =
            Assembled { store, journal, log, identity, committed: CpNumber(0), slot: 1 };
        let affinities = affinities(&scheduler);
        let cache = Arc::new(BufferCache::new(CACHE_BLOCKS));
        let aggregate = assembled.serve(world, (&scheduler, affinities), cache, side, tuning);
        let rig = Self { world: world.clone(), scheduler, aggregate };
        rig.aggregate.force();
        rig.consistency_point();
        rig
    }

    /// The aggregate on the disks of the world, as its newest superblock has it. Members are
    /// to be added.
    #[must_use]
    pub fn open(world: &SimulatedWorld, tuning: Tuning) -> Self {
        let scheduler = Scheduler::new(Arc::new(world.clone()));
        let driver = Driver { world, scheduler: &scheduler };
        let journal = Arc::new(LateJournal::default());
        let late = Arc::clone(&journal);
        let disks = labelled_disks(world);
        let store = driver.wait(|done| raid::assemble(disks, late, Timestamp(1), done));
        let store = Arc::new(store.expect("the disks make up an aggregate"));
        let (aggregate, name) = store.aggregate();
        let copies = driver.wait(|done| store.read_superblocks(done));
        let chosen = choose_superblock(&copies, &aggregate);
        let (superblock, slot) = chosen.expect("a superblock is whole");
        let block = Arc::new(superblock.to_block());
        let adopted = driver.wait(|done| store.adopt_superblock(slot, block, is_whole_slot, done));
        adopted.expect("the disks work");
        let identity = AggregateIdentity { name, aggregate, log: superblock.log };
        let log_identity = LogIdentity { aggregate, log: superblock.log };
        let log = open_log(&driver, log_identity, superblock.cp());
        let found = log.notes().take_found();
        let notes = found.into_iter().map(decode_partial_parity).collect::<Result<_, _>>();
        let notes = notes.expect("notes are whole");
        let recovered = driver.wait(|done| store.recover_stripes(notes, done));
        recovered.expect("the disks work");
        let affinities = affinities(&scheduler);
        let cache = Arc::new(BufferCache::new(CACHE_BLOCKS));
        let loader = Loader {
            maps: None,
            store: Arc::clone(&store) as Arc<dyn BlockStore>,
            cache: Arc::clone(&cache),
            lost_blocks: Arc::default(),
            under_way: Arc::default(),
        };
        let geometry = store.geometry();
        let side = driver.wait(|done| {
            let (held, mut done) = (HeldBlocks::default(), Some(done));
            let message = move |_: &mut Access<'_>| {
                let reader = Reader { cache: &loader.cache, held: &held };
                match mount(&superblock, &geometry, &reader) {
                    Err(Stop::Wait(Wait::Load(requests))) => {
                        return suspend_for_load(&loader, requests, &held);
                    }
                    mounted => {
                        if let Some(done) = done.take() {
                            done(mounted);
                        }
                    }
                }
                Outcome::Done
            };
            scheduler.send(affinities.0, Box::new(message));
        });
        let side = side.expect("the image can be read");
        let committed = superblock.cp();
        let assembled = Assembled { store, journal, log, identity, committed, slot };
        let aggregate = assembled.serve(world, (&scheduler, affinities), cache, side, tuning);
        Self { world: world.clone(), scheduler, aggregate }
    }

    const fn driver(&self) -> Driver<'_> {
        Driver { world: &self.world, scheduler: &self.scheduler }
    }

    /// Runs a message or completes a disk's request; whether there was one.
    pub fn step(&self) -> bool {
        self.driver().step()
    }

    /// Runs until nothing is left to run.
    pub fn settle(&self) {
        while self.step() {}
    }

    /// Runs until there is an answer.
    pub fn wait<T: Send + 'static>(&self, start: impl FnOnce(Answer<T>)) -> T {
        self.driver().wait(start)
    }

    /// A consistency point from its request to its commit.
    pub fn consistency_point(&self) {
        let committed = self.wait(|done| self.aggregate.request_consistency_point(Some(done)));
        committed.expect("the consistency point commits");
    }

    /// Looks at, or changes, the aggregate's own file system in a message of its affinity. `look`
    /// is called again after each wait.
    pub fn on_side<T: Send + 'static>(
        &self,
        mut look: impl FnMut(&mut BlockSide, &Reader<'_>) -> Progress<T> + Send + 'static,
    ) -> T {
        let (this, held) = (Arc::clone(&self.aggregate), HeldBlocks::default());
        self.wait(|done| {
            let mut done = Some(done);
            let message = move |access: &mut Access<'_>| {
                let reader = Reader { cache: &this.parts.cache, held: &held };
                match look(this.block_side.write(access), &reader) {
                    Err(Stop::Wait(wait)) => return this.suspend(wait, &held),
                    Err(stop) => panic!("{stop}"),
                    Ok(found) => {
                        if let Some(done) = done.take() {
                            done(found);
                        }
                    }
                }
                Outcome::Done
            };
            self.scheduler.send(self.aggregate.parts.vbn_affinity, Box::new(message));
        })
    }

    /// The power goes now: what was not flushed is there, or is not, as the seed has it.
    pub fn cut(self) {
        self.scheduler.halt();
        self.aggregate.abandon();
        self.world.power_cut();
    }
}

impl Assembled {
    fn serve(
        self,
        world: &SimulatedWorld,
        (scheduler, (affinity, vbn_affinity)): (&Scheduler, (AffinityId, AffinityId)),
        cache: Arc<BufferCache>,
        side: BlockSide,
        tuning: Tuning,
    ) -> Arc<Aggregate> {
        let shared = AggregateShared {
            budget: Budget::default(),
            reclaim_turns: Arc::default(),
            delayed_blocks: AtomicU64::default(),
            dirty: Arc::new(DirtyMemory::new(DIRTY_BLOCKS)),
            cache: Arc::clone(&cache),
        };
        let parts = Parts {
            identity: self.identity,
            scheduler: scheduler.clone(),
            affinity,
            vbn_affinity,
            store: self.store,
            cache,
            log: Arc::new(self.log),
            journal: self.journal,
            clock: Arc::new(world.clone()),
            shared: Arc::new(shared),
            committed: self.committed,
            superblock_slot: self.slot,
            tuning,
        };
        Aggregate::new(parts, side)
    }
}

fn affinities(scheduler: &Scheduler) -> (AffinityId, AffinityId) {
    let affinity = scheduler.add(scheduler.root(), AffinityKind::Aggregate);
    (affinity, scheduler.add(affinity, AffinityKind::AggregateVbn))
}

fn log_disk(world: &SimulatedWorld) -> Arc<dyn Disk> {
    world.disk(LOG).expect("the log's disk is there")
}

fn open_log(driver: &Driver<'_>, identity: LogIdentity, committed: CpNumber) -> Log {
    let disk = log_disk(driver.world);
    let opened = driver.wait(|done| Log::open(&disk, identity, committed, done));
    let (log, records): (Log, Vec<Record>) = opened.expect("the log is whole");
    assert!(records.is_empty(), "nothing is logged here");
    log
}

/// The disks of the aggregate: those of a group that was removed have no label any more.
fn labelled_disks(world: &SimulatedWorld) -> Vec<Arc<dyn Disk>> {
    let is_labelled = |name: &str| {
        let ends = [0, DISK_BLOCKS - 1].into_iter();
        ends.filter_map(|at| world.read_block(name, at)).any(|at| DiskLabel::is_claimed_by(&at))
    };
    let names = world.disk_names().into_iter().filter(|name| name.starts_with('g'));
    let disk = |name: Arc<str>| world.disk(&name).expect("it is named") as Arc<dyn Disk>;
    names.filter(|name| is_labelled(name)).map(disk).collect()
}
