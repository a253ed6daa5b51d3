//! The aggregate in service: what its parts share, and what asks for consistency points.
//!
//! Invariants: the state of the consistency point changes under one short lock, which is never held
//! while a message runs, a callback is called or I/O is started.

use crate::backend::is_lost;
use crate::block_side::BlockSide;
use crate::consistency_point::{Acted, Action, ConsistencyPoint, CpDone, FreezeScope, Phase};
use crate::error::AggregateError;
use crate::journal::LateJournal;
use crate::leaving::Leaving;
use crate::loader::{ContainerMaps, Loader, LoadsUnderWay, Place, PlacesDone, suspend_for_load};
use crate::member::Member;
use crate::memory;
use crate::mount::container_lookup;
use crate::pin::Pins;
use crate::pool::BlockPool;
use crate::relocate::cool::{Reads, Tiers};
use crate::relocate::tiering::Tiering;
use crate::tuning::{FreeCounters, PickCounters, Tuning};
use affinity::{Access, AffinityId, Outcome, Partition, Scheduler, Waker};
use cowfs::cache::BufferCache;
use cowfs::logical::AggregateShared;
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Reader, Stop, Wait};
use nvlog::Log;
use ondisk::features::MOVED_BLOCKS;
use platform::Clock;
use platform::sync::{Mutex, RwLock};
use raid::{BlockStore, Geometry, GroupGeometry};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use units::{CpNumber, Pvbn, VolumeId, Vvbn};

/// Who an aggregate is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AggregateIdentity {
    /// Its name.
    pub name: String,
    /// Its identity, as on the labels of its disks.
    pub aggregate: [u8; 16],
    /// The identity of its log.
    pub log: [u8; 16],
}

/// What an aggregate is put together from.
pub struct Parts {
    /// Who it is.
    pub identity: AggregateIdentity,
    /// Runs messages.
    pub scheduler: Scheduler,
    /// Its Aggregate affinity.
    pub affinity: AffinityId,
    /// Its Aggregate VBN affinity.
    pub vbn_affinity: AffinityId,
    /// Its disks.
    pub store: Arc<dyn BlockStore>,
    /// Blocks in memory.
    pub cache: Arc<BufferCache>,
    /// Its log.
    pub log: Arc<Log>,
    /// The log as the store's stripe journal.
    pub journal: Arc<LateJournal>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Space and memory shared with its volumes.
    pub shared: Arc<AggregateShared>,
    /// The last committed consistency point.
    pub committed: CpNumber,
    /// The slot that holds its superblock.
    pub superblock_slot: usize,
    /// How areas are chosen.
    pub tuning: Tuning,
}

/// See the module.
pub struct Aggregate {
    /// What it was put together from.
    pub parts: Parts,
    /// Free PVBNs in stock.
    pub pool: BlockPool,
    /// Its own file system.
    pub block_side: Partition<BlockSide>,
    pub(crate) state: Mutex<ConsistencyPoint>,
    pub(crate) loads: Arc<LoadsUnderWay>,
    /// Volumes whose pointers may be wrong about where blocks lie.
    pub(crate) moved_volumes: RwLock<FxHashSet<VolumeId>>,
    pub(crate) tiers: RwLock<Tiers>,
    pub(crate) leaving: RwLock<Option<Leaving>>,
    pub(crate) pins: Pins,
    leaves_areas: AtomicBool,
    /// What clients have read of volumes whose blocks cool.
    pub(crate) reads: Mutex<Reads>,
    filling: AtomicU64,
    pub(crate) failed: AtomicBool,
    /// Counters for status and metrics.
    pub statistics: Statistics,
}

/// What happened since the start.
#[derive(Default, Debug)]
pub struct Statistics {
    /// Consistency points completed.
    pub consistency_points: AtomicU64,
    /// Blocks they wrote.
    pub blocks_written: AtomicU64,
    /// Shares of volumes' files that were cleaned by messages of their own.
    pub cleaned_shares: AtomicU64,
    /// Blocks in use, as of the last commit.
    pub used_blocks: AtomicU64,
    /// Blocks in use by the active image, as of the last commit.
    pub active_blocks: AtomicU64,
    /// Blocks that were moved to object stores and back.
    pub moved_blocks: AtomicU64,
    /// Of these, blocks that were moved back to disks.
    pub returned_blocks: AtomicU64,
    /// Blocks of volumes that were moved to empty an area.
    pub emptying_moved_blocks: AtomicU64,
    /// Blocks of the aggregate's own image that were written again for that.
    pub emptying_rewritten_blocks: AtomicU64,
    /// Areas that were gone through to empty them.
    pub emptied_areas: AtomicU64,
    /// Loads of blocks that neither redundancy nor the container map could make good.
    pub lost_blocks: Arc<AtomicU64>,
    /// Blocks there are.
    pub size_blocks: AtomicU64,
    /// Time in which scores of groups' areas were kept.
    pub group_scores_nanoseconds: AtomicU64,
    /// The same of volumes' areas.
    pub volume_scores_nanoseconds: AtomicU64,
    /// Areas of groups that were chosen to be filled.
    pub group_picks: PickCounters,
    /// Areas of volumes whose numbers were chosen to be given.
    pub volume_picks: PickCounters,
    /// What became of numbers that volumes released.
    pub frees: FreeCounters,
    /// Duration of the last consistency point in nanoseconds.
    pub last_cp_nanoseconds: AtomicU64,
}

impl Aggregate {
    /// Puts an aggregate into service.
    #[must_use]
    pub fn new(parts: Parts, mut block_side: BlockSide) -> Arc<Self> {
        let geometry = parts.store.geometry();
        block_side.refill.tune(&parts.tuning, &geometry);
        block_side.refill.set_leaving(block_side.settings.leaving_group);
        let leaving = RwLock::new(Leaving::of(&block_side, &geometry));
        let leaves_areas = AtomicBool::new(block_side.settings.leaves_areas);
        let statistics = Statistics::default();
        statistics.used_blocks.store(block_side.space.used_blocks, Ordering::Relaxed);
        statistics.active_blocks.store(block_side.space.active_blocks, Ordering::Relaxed);
        statistics.size_blocks.store(geometry.blocks(), Ordering::Relaxed);
        settle_budget(&parts.shared, &block_side, &geometry);
        let filling = AtomicU64::new(parts.log.active_cp().get());
        parts.journal.set_log(Arc::clone(&parts.log));
        parts.journal.limit_epochs(parts.tuning.note_blocks_max);
        let state = Mutex::new(ConsistencyPoint::new(parts.committed, parts.superblock_slot));
        let moved = block_side.table.iter().filter(|slot| slot.record.features.has(&MOVED_BLOCKS));
        let moved = moved.map(|slot| VolumeId(slot.record.volume.get())).collect();
        let tiers = RwLock::new(Tiers::of(&block_side));
        let block_side = Partition::new(parts.vbn_affinity, block_side);
        let store = Arc::clone(&parts.store);
        let aggregate = Arc::new(Self {
            parts,
            pool: BlockPool::default(),
            block_side,
            state,
            loads: Arc::default(),
            moved_volumes: RwLock::new(moved),
            tiers,
            leaving,
            pins: Pins::default(),
            leaves_areas,
            reads: Mutex::default(),
            filling,
            failed: AtomicBool::new(false),
            statistics,
        });
        let holder = memory::MemoryHolder(Arc::downgrade(&aggregate));
        aggregate.parts.shared.dirty.set_holder(Arc::new(holder));
        let watched = Arc::downgrade(&aggregate);
        store.watch_failure(Box::new(move |error| {
            if let Some(aggregate) = watched.upgrade() {
                aggregate.fail(error.into());
            }
        }));
        aggregate.answer_use();
        aggregate
    }

    /// The consistency point that operations running now will be part of; the log stamps records
    /// with it. Fixed while a message of the aggregate's affinities runs.
    #[must_use]
    pub fn filling(&self) -> CpNumber {
        CpNumber(self.filling.load(Ordering::Acquire))
    }

    pub(crate) fn set_filling(&self, cp: CpNumber) {
        self.filling.store(cp.get(), Ordering::Release);
    }

    /// The last committed consistency point.
    #[must_use]
    pub fn committed(&self) -> CpNumber {
        self.state.lock().committed()
    }

    /// Where the consistency point is, for status and the simulator.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.state.lock().phase()
    }

    /// Why the aggregate is out of service, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<AggregateError> {
        self.state.lock().failure()
    }

    /// Whether the aggregate is out of service; cheap, for every operation to ask.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether a block that cannot be read is lost, and not only away with an object store.
    #[must_use]
    pub fn is_lost(&self, pvbn: Pvbn) -> bool {
        is_lost(&self.parts.store.geometry(), pvbn)
    }

    /// Whether what kept work from going on may be gone at another try: an object store that does
    /// not answer looks like damage. What is given up for damage is given up for good, so it is
    /// not given up for this.
    #[must_use]
    pub fn may_pass(&self, stop: &Stop) -> bool {
        let geometry = self.parts.store.geometry();
        match stop {
            Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn) => !is_lost(&geometry, *pvbn),
            Stop::Contradiction(_) => geometry.groups().iter().any(GroupGeometry::is_object),
            Stop::Wait(_) | Stop::NoSpace => true,
            // Nothing takes a quarantine back.
            Stop::Quarantined(_) => false,
        }
    }

    /// Whether a consistency point was asked for that has not begun, or one is running: asking
    /// again for want of room would change nothing.
    #[must_use]
    pub fn is_consistency_point_due(&self) -> bool {
        self.state.lock().is_due()
    }

    /// Blocks there are.
    #[must_use]
    pub fn size_blocks(&self) -> u64 {
        self.statistics.size_blocks.load(Ordering::Relaxed)
    }

    /// Blocks in use, as of the last commit.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        self.statistics.used_blocks.load(Ordering::Relaxed)
    }

    /// Blocks in use by its active image, as of the last commit.
    #[must_use]
    pub fn active_blocks(&self) -> u64 {
        self.statistics.active_blocks.load(Ordering::Relaxed)
    }

    /// Adds a volume to those that consistency points visit.
    pub fn add_member(&self, member: Arc<dyn Member>) {
        self.state.lock().members.insert(member.id(), member);
    }

    /// Takes a volume out.
    pub fn remove_member(&self, volume: VolumeId) {
        self.state.lock().members.remove(&volume);
    }

    /// Asks for a consistency point. `done` is called when one that froze after this call has
    /// committed.
    pub fn request_consistency_point(self: &Arc<Self>, done: Option<CpDone>) {
        self.state.lock().request(None, done);
        self.start_consistency_point();
    }

    /// Asks for a consistency point that begins with `action`, while nothing else of the aggregate
    /// runs. `done` is called when it has committed, or at once if the action fails. An action that
    /// is put off is called again at the next freeze, or fails for want of room if no commit comes.
    pub fn request_action(self: &Arc<Self>, action: Action, done: CpDone) {
        self.state.lock().request(Some((action, done)), None);
        self.start_consistency_point();
    }

    /// Has everyone know of disks that have joined the store. `done` is called when the larger size
    /// has committed.
    pub fn grow(self: &Arc<Self>, done: CpDone) {
        let grown = |scope: &mut FreezeScope<'_, '_>| {
            let this = scope.aggregate;
            let side = this.block_side.write(scope.access);
            let geometry = this.parts.store.geometry();
            side.space.grow(geometry.end().get());
            side.refill.grow(&geometry);
            side.relocation.grow();
            this.statistics.size_blocks.store(geometry.blocks(), Ordering::Relaxed);
            // The commit settles what may be promised.
            Ok(Acted::Done)
        };
        self.request_action(Box::new(grown), done);
    }

    /// From now on the blocks of a volume's files move as `tiering` says. `done` is called when
    /// that is durable.
    pub fn set_tiering(self: &Arc<Self>, volume: VolumeId, tiering: Tiering, done: CpDone) {
        let set = move |scope: &mut FreezeScope<'_, '_>| {
            let now = scope.aggregate.parts.clock.wall();
            scope.block_side().set_tiering(volume, tiering, now)?;
            Ok(Acted::Done)
        };
        self.request_action(Box::new(set), done);
    }

    /// From now on areas are emptied ahead of being filled, or not. `done` is called when that is
    /// durable.
    pub fn set_area_cleaning(self: &Arc<Self>, is_on: bool, done: CpDone) {
        let set = move |scope: &mut FreezeScope<'_, '_>| {
            let side = scope.block_side();
            side.settings.leaves_areas = !is_on;
            if !is_on {
                side.refill.leave_areas();
            }
            scope.aggregate.leaves_areas.store(!is_on, Ordering::Relaxed);
            Ok(Acted::Done)
        };
        self.request_action(Box::new(set), done);
    }

    /// Whether areas are emptied ahead of being filled.
    #[must_use]
    pub fn cleans_areas(&self) -> bool {
        !self.leaves_areas.load(Ordering::Relaxed)
    }

    /// Blocks of a volume that lie in object stores, as of the last commit.
    #[must_use]
    pub fn object_blocks_of(&self, volume: VolumeId) -> u64 {
        self.tiers.read().object_blocks.get(&volume).copied().unwrap_or(0)
    }

    /// Blocks of all volumes that lie in object stores, as of the last commit.
    #[must_use]
    pub fn object_blocks(&self) -> u64 {
        self.tiers.read().object_blocks.values().sum()
    }

    /// The loader of the aggregate's blocks.
    #[must_use]
    pub fn loader(self: &Arc<Self>) -> Loader {
        Loader {
            maps: Some(Arc::new(Maps(Arc::clone(self)))),
            store: Arc::clone(&self.parts.store),
            cache: Arc::clone(&self.parts.cache),
            lost_blocks: Arc::clone(&self.statistics.lost_blocks),
            under_way: Arc::clone(&self.loads),
        }
    }

    /// Suspends a message until what it waits for is there.
    pub fn suspend(self: &Arc<Self>, wait: Wait, held: &HeldBlocks) -> Outcome {
        match wait {
            Wait::Load(requests) => suspend_for_load(&self.loader(), requests, held),
            Wait::Room => {
                let this = Arc::clone(self);
                Outcome::Suspend(Box::new(move |waker| {
                    // First among those who are woken: a neighbour may give memory back meanwhile.
                    this.wait_for_room(waker);
                    this.parts.shared.dirty.note_waiting();
                }))
            }
            Wait::Blocks => {
                let this = Arc::clone(self);
                Outcome::Suspend(Box::new(move |waker| {
                    if this.pool.wait(waker) {
                        this.send_refill();
                    }
                    if this.is_failed() {
                        // Nothing is stocked any more: it sees that itself.
                        Waker::wake_all(this.pool.end_refill());
                    }
                }))
            }
        }
    }
}

/// The container maps of an aggregate in service.
struct Maps(Arc<Aggregate>);

impl ContainerMaps for Maps {
    fn has_moved(&self, volume: VolumeId) -> bool {
        self.0.moved_volumes.read().contains(&volume)
    }

    fn note_random_reads(&self, blocks: &[(VolumeId, Vvbn)]) {
        self.0.note_random_reads(blocks);
    }

    fn places_of(&self, blocks: Vec<(VolumeId, Vvbn)>, done: PlacesDone) {
        let aggregate = Arc::clone(&self.0);
        let (held, mut done) = (HeldBlocks::default(), Some(done));
        let message = move |access: &mut Access<'_>| {
            let side = aggregate.block_side.read(access);
            let reader = Reader { cache: &aggregate.parts.cache, held: &held };
            let mut places = Vec::with_capacity(blocks.len());
            for (volume, vvbn) in &blocks {
                let container = side.containers.get(volume);
                let find = |container| container_lookup(*volume, container, vvbn.get(), &reader);
                places.push(match container.map(find) {
                    Some(Err(Stop::Wait(wait))) => return aggregate.suspend(wait, &held),
                    Some(Ok(pointer)) if !pointer.is_hole() => Place::At(pointer.pvbn),
                    Some(Ok(_)) | None => Place::Nowhere,
                    Some(Err(_)) => Place::Unknown,
                });
            }
            if let Some(done) = done.take() {
                done(places);
            }
            Outcome::Done
        };
        self.0.parts.scheduler.send(self.0.parts.vbn_affinity, Box::new(message));
    }
}

/// Blocks of an aggregate that operations which store leave alone: what rewriting its maps may
/// take (decisions 3, 9).
pub(crate) fn reserve_blocks(size_blocks: u64) -> u64 {
    size_blocks / 64 + 512
}

pub(crate) fn settle_budget(shared: &AggregateShared, side: &BlockSide, geometry: &Geometry) {
    let reserve = reserve_blocks(geometry.blocks());
    // Until it is counted what is in use of a group that leaves counts twice: frees still work.
    let is_counted =
        Leaving::of(side, geometry).is_none_or(|leaving| leaving.used_blocks.is_some());
    // What a pin keeps nobody can have either.
    let free = free_blocks(side, geometry).saturating_sub(side.space.held_blocks());
    shared.budget.settle(if is_counted { free } else { free.max(reserve) }, reserve);
}

/// Blocks that operations could be promised, those that a pin keeps included.
pub(crate) fn free_blocks(side: &BlockSide, geometry: &Geometry) -> u64 {
    // What is stocked for blocks that move nobody else can have, nor what is to leave.
    let leaving = Leaving::of(side, geometry);
    let unusable = leaving.map_or(0, |leaving| leaving.unusable_blocks());
    let taken = side.space.used_blocks + side.relocation.stocked() + unusable;
    geometry.blocks().saturating_sub(taken)
}
