//! The aggregate in service: what its parts share.
//!
//! Invariants: the state of the consistency point changes under one short lock, which is never held
//! while a message runs, a callback is called or I/O is started.

use super::member::Member;
use super::pins::Pins;
use super::state::{ConsistencyPoint, Phase, PhaseDurations};
use super::statistics::Statistics;
use crate::allocation::pool::BlockPool;
use crate::allocation::tuning::Tuning;
use crate::block_side::backend::is_lost;
use crate::block_side::deletion::Deletion;
use crate::block_side::evacuation::Evacuation;
use crate::block_side::side::BlockSide;
use crate::error::AggregateError;
use crate::journal::LateJournal;
use crate::loader::LoadsUnderWay;
use crate::relocation::limit::MoveLimit;
use crate::relocation::splits::{CloneSplit, SplitState, SplitStates};
use crate::relocation::tiers::{Reads, Tiers};
use affinity::{Access, AffinityId, Partition, Scheduler};
use cowfs::cache::BufferCache;
use cowfs::logical::AggregateShared;
use cowfs::reader::Stop;
use nvlog::Log;
use platform::Clock;
use platform::sync::{Mutex, RwLock};
use raid::{GroupGeometry, ManagedStore};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use units::{AggregateUuid, CpNumber, LogUuid, Pvbn, VolumeId, Vvbn};

/// Who an aggregate is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AggregateIdentity {
    /// Its name.
    pub name: String,
    /// Its identity, as on the labels of its disks.
    pub aggregate: AggregateUuid,
    /// The identity of its log.
    pub log: LogUuid,
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
    pub store: Arc<dyn ManagedStore>,
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

/// What the aggregate in service has other rooms do, which know it.
pub(crate) struct Routines {
    /// Begins a consistency point, while nothing else of the aggregate runs.
    pub freeze: fn(&Arc<Aggregate>, &mut Access<'_>),
    /// Puts free numbers in stock, for messages that wait for them.
    pub refill: fn(&Arc<Aggregate>),
    /// Notes which blocks of volumes clients read out of sequence.
    pub note_random_reads: fn(&Arc<Aggregate>, &[(VolumeId, Vvbn)]),
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
    /// The parent of each clone.
    pub(crate) parents: RwLock<FxHashMap<VolumeId, VolumeId>>,
    pub(crate) tiers: RwLock<Tiers>,
    pub(crate) evacuation: RwLock<Option<Evacuation>>,
    pub(crate) evacuation_limit: Mutex<MoveLimit>,
    pub(crate) splits: Mutex<SplitStates>,
    pub(crate) deletions: RwLock<Vec<Deletion>>,
    pub(crate) pins: Pins,
    pub(crate) leaves_areas: AtomicBool,
    /// What clients have read of volumes whose blocks cool.
    pub(crate) reads: Mutex<Reads>,
    pub(crate) filling: AtomicU64,
    pub(crate) failed: AtomicBool,
    pub(crate) routines: &'static Routines,
    /// Counters for status and metrics.
    pub statistics: Statistics,
}

impl Aggregate {
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

    /// How long consistency points took, phase by phase.
    #[must_use]
    pub fn phase_durations(&self) -> PhaseDurations {
        self.state.lock().durations.clone()
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
            // Another build reads it.
            Stop::Wait(_) | Stop::NoSpace | Stop::OverQuota | Stop::OtherBuild(_) => true,
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

    /// Whether the last consistency point was asked for: what changes after it is lost.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Whether blocks of a volume were ever moved, or blocks that it may have inherited, so that
    /// hints may be wrong.
    #[must_use]
    pub fn has_moved(&self, volume: VolumeId) -> bool {
        let moved = self.moved_volumes.read();
        if moved.is_empty() {
            return false;
        }
        let parents = self.parents.read();
        let mut line = std::iter::successors(Some(&volume), |one| parents.get(one));
        line.any(|one| moved.contains(one))
    }

    /// Whether an image is pinned, or is to be: places of its blocks are not free again before the
    /// pin ends.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pins.is_pinned()
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
        self.parents.write().remove(&volume);
        self.splits.lock().states.remove(&volume);
    }

    /// The members, in the order of their numbers.
    pub(crate) fn members(&self) -> Vec<Arc<dyn Member>> {
        self.state.lock().members.values().map(Arc::clone).collect()
    }

    pub(crate) fn member(&self, volume: VolumeId) -> Option<Arc<dyn Member>> {
        self.state.lock().members.get(&volume).map(Arc::clone)
    }

    /// The consistency point that is running.
    pub(crate) fn running_cp(&self) -> CpNumber {
        self.state.lock().running_cp
    }

    /// Blocks that were guaranteed to volumes and are not there, as of the last freeze or commit.
    #[must_use]
    pub fn guarantee_lacking_blocks(&self) -> u64 {
        self.statistics.guarantee_lacking_blocks.load(Ordering::Relaxed)
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

    /// The group that is to leave, if one is.
    #[must_use]
    pub fn evacuation(&self) -> Option<Evacuation> {
        *self.evacuation.read()
    }

    /// How many bytes of a group that leaves may be moved a second; `None` if there is no limit.
    #[must_use]
    pub fn evacuation_rate(&self) -> Option<u64> {
        self.evacuation_limit.lock().rate()
    }

    /// Limits how fast a group that leaves is emptied, until it has left, stays, or the aggregate
    /// is opened anew; false if none leaves.
    pub fn limit_evacuation(&self, rate: Option<u64>) -> bool {
        let is_leaving = self.evacuation().is_some();
        if is_leaving {
            self.evacuation_limit.lock().set_rate(rate);
        }
        is_leaving
    }

    /// The deleted volumes whose blocks are still being freed, as of the last commit.
    #[must_use]
    pub fn deletions(&self) -> Vec<Deletion> {
        self.deletions.read().clone()
    }

    /// The splits under way.
    #[must_use]
    pub fn splits(&self) -> Vec<CloneSplit> {
        let shared = self.splits.lock();
        let split = |(clone, state): (&VolumeId, &SplitState)| CloneSplit {
            clone: *clone,
            blocks: state.blocks,
            rate: state.limit.rate(),
        };
        shared.states.iter().map(split).collect()
    }

    /// Whether a clone is being split.
    #[must_use]
    pub fn is_splitting(&self, clone: VolumeId) -> bool {
        self.splits.lock().states.contains_key(&clone)
    }

    /// Whether the last split of a clone gave up since the start: blocks are lost that it has
    /// inherited, or it was found damaged itself.
    #[must_use]
    pub fn has_split_failed(&self, clone: VolumeId) -> bool {
        self.splits.lock().failed.contains(&clone)
    }

    /// Blocks that copies may take: object stores have others.
    #[must_use]
    pub fn split_room_blocks(&self) -> u64 {
        let free = self.parts.shared.budget.free_blocks();
        self.splits.lock().near_free_blocks.map_or(free, |near| free.min(near))
    }

    /// Limits how fast a clone is split, until the split ends or the aggregate is opened anew;
    /// false if it is not being split.
    pub fn limit_split(&self, clone: VolumeId, rate: Option<u64>) -> bool {
        let mut shared = self.splits.lock();
        let state = shared.states.get_mut(&clone);
        state.map(|state| state.limit.set_rate(rate)).is_some()
    }

    /// Whether a volume is there, and not being deleted.
    #[must_use]
    pub fn has_volume(&self, volume: VolumeId) -> bool {
        self.state.lock().members.contains_key(&volume)
    }

    /// Whether a volume is a clone.
    #[must_use]
    pub fn is_clone(&self, volume: VolumeId) -> bool {
        self.parents.read().contains_key(&volume)
    }
}
