//! The engine of a node: what its aggregates share, and the register of volumes.
//!
//! Invariants: the register changes only when a volume is brought online or goes; requests look it
//! up under a read lock held for the look-up alone.

use crate::error::EngineError;
use crate::mending::Mending;
use crate::outages::Outages;
use crate::served::{ServedVolume, VolumeNames};
use crate::tending::SharedTending;
use affinity::Scheduler;
use aggregate::{Aggregate, Tuning};
use cowfs::cache::{BlockGauge, BufferCache};
use cowfs::dirty_memory::NodeMemory;
use file_service::{FileHandle, FsError};
use platform::mutation::{self, Rule};
use platform::sync::{Mutex, RwLock};
use platform::{Clock, Disk, DiskError, Entropy};
use raid::ChecksumMemory;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use units::{AggregateUuid, BLOCK_SIZE_U64, VolumeUuid};

/// Receives the end of an administrator's request.
pub type Done<T> = Box<dyn FnOnce(Result<T, EngineError>) + Send>;

/// Why there is no log of an aggregate to be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogUnavailable {
    /// Nothing is where it should be. [`LogProvider::create`] may make a new one there.
    #[error("{0}")]
    Missing(String),
    /// Something is there and cannot be used, or nobody knows.
    #[error("{0}")]
    Failed(String),
}

impl From<DiskError> for LogUnavailable {
    fn from(error: DiskError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Where the logs of aggregates are.
pub trait LogProvider: Send + Sync {
    /// A disk for a new log: of a new aggregate, or of an aggregate whose log is missing.
    ///
    /// # Errors
    /// Why there is none.
    fn create(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, String>;

    /// The disk with the log of an aggregate.
    ///
    /// # Errors
    /// Why it cannot be used.
    fn open(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable>;

    /// The places outside of the aggregate, each of which should have a copy of its log; none if
    /// there is but one, and it has no name.
    fn places(&self, aggregate: AggregateUuid) -> Vec<LogPlace> {
        let _ = aggregate;
        Vec::new()
    }

    /// Whether logs should be on the disks of their aggregates, where those have room for them.
    fn is_on_disks(&self) -> bool {
        false
    }

    /// How many blocks of each disk a new aggregate keeps for its log, if the smallest has so many;
    /// 0 if it has none to spare.
    fn blocks_on_disks(&self, disk_blocks: u64) -> u64 {
        let _ = disk_blocks;
        0
    }

    /// Takes away the log of an aggregate that is deleted, if there is one; false if it lies on a
    /// device, which has to be cleared.
    ///
    /// # Errors
    /// Why it cannot be taken away.
    fn remove(&self, aggregate: AggregateUuid) -> Result<bool, String> {
        let _ = aggregate;
        Ok(false)
    }
}

/// One of several places of an aggregate's log.
pub struct LogPlace {
    /// The name that its disk has.
    pub name: String,
    /// Has the log there.
    pub provider: Arc<dyn LogProvider>,
}

/// What becomes of an aggregate whose log is lost and needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostLog {
    /// It is not opened.
    Refused,
    /// It is opened without what only the log had.
    Replaced,
}

/// What an engine needs of its world.
#[derive(Clone)]
pub struct Configuration {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Logs.
    pub logs: Arc<dyn LogProvider>,
    /// Hard cap for cached and dirty blocks.
    pub memory_bytes: u64,
    /// A consistency point begins at the latest this long after the one before, if anything
    /// changed.
    pub cp_interval_nanoseconds: u64,
    /// How the write allocator chooses.
    pub tuning: Tuning,
}

/// The memory that a process has for blocks.
#[derive(Clone, Copy)]
pub struct BlockMemory {
    /// Blocks that live now, or nearly so many; those that are withheld are among them.
    pub live_blocks: fn() -> u64,
    /// What each takes.
    pub block_bytes: u64,
    /// Has so many blocks take no memory, and be nobody's.
    pub withhold: fn(u64),
    /// How many are withheld.
    pub withheld_blocks: fn() -> u64,
}

/// The share of the memory that dirty blocks may take that count: a consistency point begins at
/// half of it. Half as many again may be written, and not committed.
const DIRTY_SHARE: u64 = 4;
/// The share of the memory that checksum blocks of disks may take, and more for some ticks when
/// aggregates come.
const CHECKSUMS_SHARE: u64 = 16;
/// The share of the memory that clean inodes may take.
const INODES_SHARE: u64 = 16;
/// What an inode in memory takes, with its place in a table that doubles as it fills.
const INODE_BYTES: u64 = 1536;
/// What an idle volume takes beside blocks. Measured: 59 KiB, where 990 were made and written once.
const VOLUME_BYTES: u64 = 64 << 10;
/// The share of the blocks that may be withheld for volumes.
const WITHHELD_SHARE: u64 = 2;
/// The share of the memory that one half of a log may come to before a consistency point begins:
/// what it holds is read back whole when it is replayed.
const LOG_SHARE: u64 = 8;
/// The log's half is this full when a consistency point begins: the rest is for operations until
/// the freeze.
const LOG_FILL_MAX: f64 = 0.6;

/// Volumes of deleted aggregates that are remembered. Clients of more than these are told to wait
/// while any aggregate is away whose volumes nobody knows.
const GONE_VOLUMES_MAX: usize = 100_000;

/// See the module.
pub struct Engine {
    pub(crate) configuration: Configuration,
    pub(crate) scheduler: Scheduler,
    pub(crate) cache: Arc<BufferCache>,
    pub(crate) dirty: Arc<NodeMemory>,
    pub(crate) checksums: Arc<ChecksumMemory>,
    pub(crate) register: RwLock<Register>,
    pub(crate) aggregates: Mutex<BTreeMap<String, Arc<Aggregate>>>,
    pub(crate) outages: Mutex<Outages>,
    verifier: AtomicU64,
    inodes_max: u64,
    blocks_max: u64,
    memory: Option<BlockMemory>,
    last_tick_cp: AtomicU64,
    pub(crate) tending: SharedTending,
    pub(crate) mending: Arc<Mutex<Mending>>,
}

#[derive(Default)]
pub(crate) struct Register {
    pub by_identity: FxHashMap<VolumeUuid, Arc<ServedVolume>>,
    pub by_name: BTreeMap<String, Arc<ServedVolume>>,
    /// Aggregates that are known and away ([`crate::outage`]), by identity.
    pub away: BTreeMap<AggregateUuid, AwayVolumes>,
    /// Volumes that are being deleted, and their aggregates: they are back if the power goes.
    pub going: BTreeMap<VolumeUuid, AggregateUuid>,
    /// How often volumes came back with an aggregate that had been in service.
    pub losses: FxHashMap<VolumeUuid, u64>,
    /// Volumes that went with aggregates which were deleted since the start; at most
    /// [`GONE_VOLUMES_MAX`].
    pub gone: BTreeSet<VolumeUuid>,
}

/// The volumes of an aggregate that is away.
pub(crate) enum AwayVolumes {
    /// It was not in service since the start: any volume that is nowhere else may be its.
    Unknown,
    /// Those that it had when it went, by identity, with their names.
    Known(BTreeMap<VolumeUuid, String>),
}

impl AwayVolumes {
    fn may_have(&self, volume: VolumeUuid) -> bool {
        match self {
            Self::Unknown => true,
            Self::Known(volumes) => volumes.contains_key(&volume),
        }
    }

    pub(crate) fn have_name(&self, name: &str) -> bool {
        match self {
            Self::Unknown => false,
            Self::Known(volumes) => volumes.values().any(|volume| volume == name),
        }
    }
}

impl Engine {
    /// An engine without aggregates.
    #[must_use]
    pub fn new(configuration: Configuration) -> Arc<Self> {
        let blocks = configuration.memory_bytes / BLOCK_SIZE_U64;
        let dirty_max = blocks / DIRTY_SHARE;
        let cache = BufferCache::new((blocks - dirty_max) as usize);
        Self::assembled(configuration, cache, blocks, None)
    }

    /// An engine without aggregates, in a process that counts its blocks: its cache leaves room for
    /// those that are elsewhere, and for what volumes take.
    #[must_use]
    pub fn with_memory(configuration: Configuration, memory: BlockMemory) -> Arc<Self> {
        let blocks_max = Self::blocks_max(configuration.memory_bytes, memory.block_bytes);
        let gauge = BlockGauge { live_blocks: memory.live_blocks, blocks_max };
        let cache = BufferCache::with_gauge(gauge);
        Self::assembled(configuration, cache, blocks_max, Some(memory))
    }

    /// The most blocks that an engine with so much memory has, if each takes `block_bytes`.
    #[must_use]
    pub const fn blocks_max(memory_bytes: u64, block_bytes: u64) -> u64 {
        (memory_bytes - memory_bytes / INODES_SHARE) / block_bytes
    }

    fn assembled(
        configuration: Configuration,
        cache: BufferCache,
        blocks: u64,
        memory: Option<BlockMemory>,
    ) -> Arc<Self> {
        let cache = Arc::new(cache);
        let inodes_max = configuration.memory_bytes / INODES_SHARE / INODE_BYTES;
        let verifier = configuration.entropy.next_u64();
        Arc::new(Self {
            scheduler: Scheduler::new(Arc::clone(&configuration.clock)),
            cache,
            dirty: Arc::new(NodeMemory::new(blocks / DIRTY_SHARE)),
            checksums: Arc::new(ChecksumMemory::new((blocks / CHECKSUMS_SHARE) as usize)),
            register: RwLock::default(),
            aggregates: Mutex::default(),
            outages: Mutex::default(),
            verifier: AtomicU64::new(verifier),
            inodes_max,
            blocks_max: blocks,
            memory,
            last_tick_cp: AtomicU64::new(configuration.clock.monotonic_nanoseconds()),
            tending: SharedTending::default(),
            mending: Arc::default(),
            configuration,
        })
    }

    /// The scheduler, for the threads that run it.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Changes with each start, and each return of an aggregate: unstable writes before it may be
    /// lost.
    #[must_use]
    pub fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Acquire)
    }

    pub(crate) fn renew_verifier(&self) {
        if mutation::broken(Rule::VerifierKept) {
            return;
        }
        self.verifier.store(self.configuration.entropy.next_u64(), Ordering::Release);
    }

    /// Blocks in the cache, and dirty blocks.
    #[must_use]
    pub fn memory_blocks(&self) -> (u64, u64) {
        (self.cache.len() as u64, self.dirty.blocks())
    }

    /// The volume that a handle names.
    #[must_use]
    pub fn volume_of(&self, handle: &FileHandle) -> Option<Arc<ServedVolume>> {
        self.register.read().by_identity.get(&handle.volume).map(Arc::clone)
    }

    /// The volume of this name.
    #[must_use]
    pub fn volume_named(&self, name: &str) -> Option<Arc<ServedVolume>> {
        self.register.read().by_name.get(name).map(Arc::clone)
    }

    /// All volumes, by name.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<ServedVolume>> {
        self.register.read().by_name.values().map(Arc::clone).collect()
    }

    /// The aggregate that is away and has a volume of this name.
    #[must_use]
    pub fn away_with_name(&self, name: &str) -> Option<AggregateUuid> {
        let register = self.register.read();
        let has_name = |away: &AwayVolumes| away.have_name(name);
        register.away.iter().find(|(_, away)| has_name(away)).map(|(aggregate, _)| *aggregate)
    }

    pub(crate) fn register_volume(&self, volume: Arc<ServedVolume>) {
        let mut register = self.register.write();
        register.by_identity.insert(volume.environment.identity, Arc::clone(&volume));
        register.by_name.insert(volume.name(), volume);
        self.share_memory(register.by_name.len());
    }

    /// Shares memory out among so many volumes. What they take is no block: blocks that would take
    /// as much are withheld from all others.
    fn share_memory(&self, volumes: usize) {
        self.dirty.share_inodes(self.inodes_max, volumes);
        let Some(memory) = self.memory else { return };
        let bytes = VOLUME_BYTES * volumes as u64;
        let blocks = (bytes / memory.block_bytes).min(self.blocks_max / WITHHELD_SHARE);
        let more = blocks.saturating_sub((memory.withheld_blocks)());
        if more > 0 {
            self.cache.make_room(more);
        }
        (memory.withhold)(blocks);
    }

    /// A volume is not in service any more, and gone once that is durable.
    pub(crate) fn begin_deletion(&self, volume: &ServedVolume) {
        let aggregate = volume.aggregate.parts.identity.aggregate;
        if !mutation::broken(Rule::DeletionToldEarly) {
            self.register.write().going.insert(volume.environment.identity, aggregate);
        }
        volume.set_gone();
        self.unregister_volume(volume);
    }

    /// A volume in service is found under another name from now on.
    pub(crate) fn rename_served(&self, volume: &Arc<ServedVolume>, names: VolumeNames) {
        let mut register = self.register.write();
        let is_its = |other: &Arc<ServedVolume>| Arc::ptr_eq(other, volume);
        let before = volume.name();
        if !register.by_name.get(&before).is_some_and(is_its) {
            // It left service meanwhile, and is opened anew as its record says.
            return;
        }
        register.by_name.remove(&before);
        register.by_name.insert(names.served.clone(), Arc::clone(volume));
        volume.set_names(names);
    }

    pub(crate) fn unregister_volume(&self, volume: &ServedVolume) {
        let mut register = self.register.write();
        register.by_identity.remove(&volume.environment.identity);
        let is_its = |other: &Arc<ServedVolume>| std::ptr::eq(&**other, volume);
        let name = volume.name();
        if register.by_name.get(&name).is_some_and(is_its) {
            register.by_name.remove(&name);
        }
        self.share_memory(register.by_name.len());
    }

    /// Whether a volume is no more: neither in service nor of an aggregate that is away.
    #[must_use]
    pub fn is_gone(&self, volume: VolumeUuid) -> bool {
        let is_served = self.register.read().by_identity.contains_key(&volume);
        !is_served && self.absence_of(volume) == FsError::Stale
    }

    /// Volumes went with their aggregate: their handles are stale, whatever else is away.
    pub(crate) fn note_gone(&self, volumes: impl IntoIterator<Item = VolumeUuid>) {
        let gone = &mut self.register.write().gone;
        let room = GONE_VOLUMES_MAX.saturating_sub(gone.len());
        gone.extend(volumes.into_iter().take(room));
    }

    /// See [`file_service::Hold::losses`].
    pub(crate) fn losses(&self, file: &FileHandle) -> u64 {
        self.register.read().losses.get(&file.volume).copied().unwrap_or(0)
    }

    /// What to tell a client whose handle leads to no volume in service: it is gone, or it is away
    /// or about to go.
    pub(crate) fn absence_of(&self, volume: VolumeUuid) -> FsError {
        let register = self.register.read();
        if register.gone.contains(&volume) {
            return FsError::Stale;
        }
        let is_away = register.away.values().any(|away| away.may_have(volume));
        match is_away || register.going.contains_key(&volume) {
            true => FsError::Offline,
            false => FsError::Stale,
        }
    }

    /// The aggregate of this name.
    #[must_use]
    pub fn aggregate_named(&self, name: &str) -> Option<Arc<Aggregate>> {
        self.aggregates.lock().get(name).map(Arc::clone)
    }

    /// All aggregates, by name.
    #[must_use]
    pub fn aggregates(&self) -> Vec<Arc<Aggregate>> {
        self.aggregates.lock().values().map(Arc::clone).collect()
    }

    /// To be called several times a second: pushes out what lies in logs without anyone waiting,
    /// starts consistency points that are due, lets rebuilds, scrubs, reallocation and groups that
    /// leave go on, and closes what has failed.
    pub fn tick(self: &Arc<Self>) {
        self.close_failed();
        let now = self.configuration.clock.monotonic_nanoseconds();
        let interval = self.configuration.cp_interval_nanoseconds;
        let due = now.saturating_sub(self.last_tick_cp.load(Ordering::Relaxed)) >= interval;
        if due {
            self.last_tick_cp.store(now, Ordering::Relaxed);
        }
        let wall = self.configuration.clock.wall();
        for aggregate in self.aggregates() {
            aggregate.parts.log.push();
            aggregate.parts.store.tick(now, wall);
            aggregate.tick(now);
            if due {
                aggregate.request_consistency_point(None);
            }
        }
        self.tick_reallocation(now);
        self.tend_disks();
    }

    /// What one half of a log may come to: as much again as when a consistency point begins.
    pub(crate) const fn log_bytes_max(&self) -> u64 {
        2 * self.configuration.memory_bytes / LOG_SHARE
    }

    /// Starts a consistency point if the log or the aggregate's part of the memory fills.
    pub(crate) fn watch_pressure(&self, aggregate: &Arc<Aggregate>) {
        let (used_bytes, capacity_bytes) = aggregate.parts.log.used_bytes();
        let used_bytes_max = (self.configuration.memory_bytes / LOG_SHARE)
            .min((capacity_bytes as f64 * LOG_FILL_MAX) as u64);
        let dirty = &aggregate.parts.shared.dirty;
        let is_memory_full = dirty.is_half_full();
        let is_full = used_bytes >= used_bytes_max || is_memory_full;
        if is_full && !aggregate.is_consistency_point_due() {
            aggregate.request_consistency_point(None);
            if is_memory_full {
                // Early, if others have borrowed: it has less than it might have.
                dirty.ask_back();
            }
        }
    }

    /// Stops where it is, as a power cut does: every message is dropped, nothing more is written.
    ///
    /// No message may be running, on any thread: what one has in hand it would give back to an
    /// aggregate that has forgotten it. So whoever lends threads halts the scheduler, joins them,
    /// and calls this.
    pub fn halt(&self) {
        self.scheduler.halt();
        for aggregate in self.aggregates() {
            aggregate.abandon();
        }
        self.aggregates.lock().clear();
        *self.outages.lock() = Outages::default();
        *self.register.write() = Register::default();
    }

    /// Ends the service of all aggregates with a last consistency point each. Front ends must have
    /// been stopped before.
    pub fn stop(&self, done: Done<()>) {
        let aggregates = self.aggregates();
        let parts = platform::completion::gather(aggregates.len(), move |results: Vec<_>| {
            let outcome: Result<Vec<()>, EngineError> = results.into_iter().collect();
            done(outcome.map(|_| ()));
        });
        for (aggregate, part) in aggregates.into_iter().zip(parts) {
            let store = Arc::clone(&aggregate.parts.store);
            let stopped = move |outcome: Result<(), _>| {
                // What its disks did until then; the outcome is the consistency point's.
                let saved = move |_| part(outcome.map_err(EngineError::from));
                store.save_errors(Box::new(saved));
            };
            aggregate.stop(Box::new(stopped));
        }
    }
}
