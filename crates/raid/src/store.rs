//! The store: its state, and the trait's calls that need no more than a look at it.
//!
//! Invariant: the state's lock is held for a few instructions, never while a disk, the journal or
//! a completion is called.

use crate::block_store::{
    BlockRead, BlockStore, BlockWrite, FailureHook, Proof, ReadDone, RunDone, StripeJournal,
    StripeNote, SuperblocksDone, SyncDone,
};
use crate::cache::ChecksumCache;
use crate::discard::DiskRegion;
use crate::error::{RaidError, StoreError};
use crate::geometry::{Geometry, TetrisId};
use crate::growth::{GrowDone, NewDisk, NewGroup};
use crate::health::RetiredDisk;
use crate::layout::Layout;
use crate::locking::Job;
use crate::member::{Group, GroupState};
use crate::noting::Notes;
use crate::replacing::{DiskPlace, ReplaceDone};
use crate::returning::Points;
use crate::scrub::{Scrub, ScrubDone, ScrubOrder, UseQuery};
use crate::status::{Counters, Status};
use media::{Device, Zeroing};
use platform::Disk;
use platform::sync::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use units::{Block, BlockRef, Pvbn, Timestamp};

/// Queued blocks of a tetris.
pub(crate) type Batch = BTreeMap<Pvbn, BlockWrite>;

/// What is under way in one tetris. Tetrises at rest have none.
#[derive(Default)]
pub(crate) struct Tetris {
    /// A piece of work has the tetris to itself.
    pub busy: bool,
    /// Work that waits for it.
    pub waiting: VecDeque<Job>,
    /// Blocks that were queued and not taken by a batch.
    pub filling: Batch,
    /// The batch that is on its way to disk.
    pub in_flight: Option<Arc<Batch>>,
    /// How many more blocks were announced; zero if none were.
    pub expected_blocks: u32,
    /// A batch waits that will take what is filling.
    pub is_batch_queued: bool,
    /// Disks whose region is to be discarded, unless something is written to it before.
    pub discarded: BTreeSet<usize>,
}

pub(crate) struct State {
    pub tetrises: BTreeMap<TetrisId, Tetris>,
    pub groups: Vec<GroupState>,
    pub cache: ChecksumCache,
    /// The number of the next batch.
    pub next_batch: u64,
    /// Batches that were started and have not ended.
    pub open_batches: BTreeSet<u64>,
    pub notes: Notes,
    /// Waits until no batch below the number is open.
    pub sync_waiters: Vec<(u64, SyncDone)>,
    /// Labels on their way.
    pub label_updates: usize,
    /// Waits until no label is.
    pub label_waiters: Vec<SyncDone>,
    /// What every `sync` fails with, once it happened.
    pub failure: Option<StoreError>,
    /// Who is told of it.
    pub failure_hook: Option<FailureHook>,
    /// Tells a scrub whose blocks are damaged.
    pub use_query: Option<UseQuery>,
    pub counters: Counters,
    /// Disks that were replaced for being sick, since the start.
    pub retired: Vec<RetiredDisk>,
    /// Disks are being added, or a group is being removed.
    pub is_changing: bool,
    /// Disks of removed groups, until they are nobody's.
    pub leftovers: Vec<Arc<Device>>,
    /// Writes of superblocks that have not ended.
    pub superblocks_under_way: usize,
    pub scrub: Scrub,
    /// Consistency points, as far as blocks tell of them.
    pub points: Points,
    /// Nothing new is begun.
    pub is_abandoned: bool,
}

pub(crate) struct Inner {
    layout: Mutex<Arc<Layout>>,
    pub journal: Arc<dyn StripeJournal>,
    pub state: Mutex<State>,
    /// Disks that wait for a place. Locked alone, or after the state.
    pub spares: Mutex<Vec<Arc<Device>>>,
    /// Names of those that are about to have one. Locked alone.
    pub leaving_spares: Mutex<Vec<String>>,
}

impl Inner {
    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.lock())
    }

    pub(crate) fn geometry(&self) -> Arc<Geometry> {
        Arc::clone(&self.layout.lock().geometry)
    }

    pub(crate) fn group(&self, group: u32) -> Arc<Group> {
        Arc::clone(&self.layout.lock().groups[group as usize])
    }

    pub(crate) fn set_layout(&self, layout: Layout) {
        *self.layout.lock() = Arc::new(layout);
    }
}

/// An aggregate's blocks.
pub struct Store {
    inner: Arc<Inner>,
}

impl Store {
    pub(crate) fn new(
        layout: Layout,
        groups: Vec<GroupState>,
        (spares, leftovers): (Vec<Arc<Device>>, Vec<Arc<Device>>),
        journal: Arc<dyn StripeJournal>,
    ) -> Self {
        let head = layout.head() as usize;
        let scrub = Scrub::of(
            &layout.geometry,
            layout.groups.get(head).map(|group| &**group).zip(groups.get(head)),
        );
        let state = State {
            tetrises: BTreeMap::new(),
            groups,
            cache: ChecksumCache::new(),
            next_batch: 0,
            open_batches: BTreeSet::new(),
            notes: Notes::new(),
            sync_waiters: Vec::new(),
            label_updates: 0,
            label_waiters: Vec::new(),
            failure: None,
            failure_hook: None,
            use_query: None,
            counters: Counters::default(),
            retired: Vec::new(),
            points: Points::default(),
            is_changing: false,
            leftovers,
            superblocks_under_way: 0,
            scrub,
            is_abandoned: false,
        };
        let (state, spares) = (Mutex::new(state), Mutex::new(spares));
        let layout = Mutex::new(Arc::new(layout));
        let leaving_spares = Mutex::default();
        Self { inner: Arc::new(Inner { layout, journal, state, spares, leaving_spares }) }
    }

    /// The aggregate's identity and name, from the labels.
    #[must_use]
    pub fn aggregate(&self) -> ([u8; 16], String) {
        let layout = self.inner.layout();
        let mut members = layout.groups.iter().flat_map(|group| &group.members);
        let Some(device) = members.find_map(|member| member.device()) else {
            unreachable!("a store has a disk")
        };
        let label = device.label();
        (label.aggregate, label.name().unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
impl Store {
    /// Has what is queued for a tetris written, and nothing flushed.
    pub(crate) fn start_batch_of(&self, tetris: TetrisId) {
        self.inner.start_batch(tetris);
    }
}

impl State {
    /// The content of a block that is queued or on its way.
    pub(crate) fn queued(&self, tetris: TetrisId, pvbn: Pvbn) -> Option<BlockRef> {
        let tetris = self.tetrises.get(&tetris)?;
        let in_flight = || tetris.in_flight.as_ref().and_then(|batch| batch.get(&pvbn));
        let write = tetris.filling.get(&pvbn).or_else(in_flight)?;
        Some(Arc::clone(&write.block))
    }
}

impl BlockStore for Store {
    fn geometry(&self) -> Arc<Geometry> {
        self.inner.geometry()
    }

    fn open_tetris(&self, tetris: TetrisId, expected_blocks: u32) {
        let mut state = self.inner.state.lock();
        state.tetrises.entry(tetris).or_default().expected_blocks += expected_blocks;
    }

    fn write(&self, write: BlockWrite) {
        assert!(write.pvbn != Pvbn(0), "PVBN 0 is never a block");
        let Some(location) = self.inner.geometry().locate(write.pvbn) else {
            panic!("{} is beyond the aggregate's end", write.pvbn)
        };
        let tetris = location.tetris();
        let is_full = {
            let mut state = self.inner.state.lock();
            state.note_write(write.owner.cp);
            let filling = state.tetrises.entry(tetris).or_default();
            filling.discarded.remove(&location.disk);
            let is_new = filling.filling.insert(write.pvbn, write).is_none();
            let was_expected = is_new && filling.expected_blocks > 0;
            filling.expected_blocks -= u32::from(was_expected);
            was_expected && filling.expected_blocks == 0
        };
        if is_full {
            self.inner.start_batch(tetris);
        }
    }

    fn sync(&self, done: SyncDone) {
        self.inner.sync(done);
    }

    fn discard_unit_regions(&self, group: u32) -> Option<u64> {
        self.inner.discard_unit_regions(group)
    }

    fn discard(&self, regions: &[DiskRegion]) {
        self.inner.discard(regions);
    }

    fn read(&self, read: BlockRead, done: ReadDone) {
        self.inner.read(read, done);
    }

    fn read_run(&self, first: Pvbn, proofs: Vec<Proof>, done: RunDone) {
        self.inner.read_run(first, proofs, done);
    }

    fn write_superblock(&self, slot: usize, block: BlockRef, done: SyncDone) {
        self.inner.write_superblock(slot, &block, done);
    }

    fn adopt_superblock(
        &self,
        slot: usize,
        block: BlockRef,
        is_whole: fn(&Block) -> bool,
        done: SyncDone,
    ) {
        self.inner.adopt_superblock(slot, block, is_whole, done);
    }

    fn read_superblocks(&self, done: SuperblocksDone) {
        self.inner.read_superblocks(done);
    }

    fn recover_stripes(&self, notes: Vec<StripeNote>, done: SyncDone) {
        self.inner.recover_stripes(notes, done);
    }

    fn replace_disk(
        &self,
        place: DiskPlace,
        disk: Arc<dyn Disk>,
        identity: [u8; 16],
        done: ReplaceDone,
    ) {
        self.inner.replace_disk(place, disk, identity, done);
    }

    fn fail_disk(&self, place: DiskPlace, done: ReplaceDone) {
        self.inner.fail_disk(place, done);
    }

    fn add_disks(&self, group: u32, disks: Vec<NewDisk>, zeroing: &Arc<Zeroing>, done: GrowDone) {
        self.inner.add_disks((group, disks), zeroing, done);
    }

    fn add_groups(&self, groups: Vec<NewGroup>, done: GrowDone) {
        self.inner.add_groups(groups, done);
    }

    fn remove_group(&self, group: u32, done: GrowDone) {
        self.inner.remove_group(group, done);
    }

    fn check_replacement(&self, place: DiskPlace, disk: &dyn Disk) -> Result<(), RaidError> {
        self.inner.check_replacement(place, disk)
    }

    fn return_disk(&self, disk: Arc<dyn Disk>, done: ReplaceDone) {
        self.inner.return_disk(disk, done);
    }

    fn add_spare(&self, disk: Arc<dyn Disk>, identity: [u8; 16], done: ReplaceDone) {
        self.inner.add_spare(disk, identity, done);
    }

    fn remove_spare(&self, identity: [u8; 16], done: ReplaceDone) {
        self.inner.remove_spare(identity, done);
    }

    fn take_spare(&self, place: DiskPlace, identity: [u8; 16], done: ReplaceDone) {
        self.inner.take_spare(place, identity, done);
    }

    fn resume(&self) {
        self.inner.resume_removals();
        self.inner.resume_rebuilds();
        self.inner.scrub_next();
    }

    fn scrub(&self, order: ScrubOrder, wall: Timestamp, done: ScrubDone) {
        self.inner.order_scrub(order, wall, done);
    }

    fn tick(&self, monotonic_nanoseconds: u64, wall: Timestamp) {
        self.inner.tick(monotonic_nanoseconds, wall);
    }

    fn save_errors(&self, done: SyncDone) {
        self.inner.save_errors(done);
    }

    fn clear_errors(&self, place: DiskPlace, done: ReplaceDone) {
        self.inner.clear_errors(place, done);
    }

    fn forget_retired(&self, name: &str) -> bool {
        self.inner.forget_retired(name)
    }

    fn status(&self) -> Status {
        self.inner.status()
    }

    fn watch_failure(&self, hook: FailureHook) {
        self.inner.watch_failure(hook);
    }

    fn set_use_query(&self, query: UseQuery) {
        self.inner.state.lock().use_query = Some(query);
    }

    fn remains(&self) -> Weak<dyn Any + Send + Sync> {
        let inner: Arc<dyn Any + Send + Sync> = Arc::clone(&self.inner) as _;
        Arc::downgrade(&inner)
    }

    fn abandon(&self) {
        let forgotten = {
            let mut state = self.inner.state.lock();
            state.is_abandoned = true;
            state.failure_hook = None;
            state.use_query = None;
            let syncs = std::mem::take(&mut state.sync_waiters);
            let labels = std::mem::take(&mut state.label_waiters);
            let waiting: Vec<_> = state
                .tetrises
                .values_mut()
                .map(|tetris| std::mem::take(&mut tetris.waiting))
                .collect();
            let closed: Vec<_> = state.groups.iter_mut().map(|group| group.closed.take()).collect();
            (syncs, labels, waiting, closed, state.scrub.abandon(), state.notes.abandon())
        };
        drop(forgotten);
        let layout = self.inner.layout();
        let members = layout.groups.iter().flat_map(|group| &group.members);
        members.filter_map(|member| member.device()).for_each(|device| device.abandon());
        self.inner.devices().iter().for_each(|(_, _, device)| device.abandon());
        let spares = self.inner.spares.lock().clone();
        spares.iter().for_each(|device| device.abandon());
    }
}
