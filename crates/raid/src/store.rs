//! The store, and the trait's calls that need no more than a look at its state.

use crate::block_store::BlockStore;
use crate::error::RaidError;
use crate::inner::{Inner, State};
use crate::io::{ChecksumCache, Counters, Notes};
use crate::journal::{StripeJournal, StripeNote};
use crate::layout::{DiskPlace, DiskRegion, Geometry, Layout, TetrisId};
use crate::membership::{GroupState, Points};
use crate::patrol::{Scrub, ScrubDone, ScrubOrder, UseQuery};
use crate::proof::Proof;
use crate::request::{
    BlockRead, BlockWrite, FailureHook, GrowDone, NewDisk, NewGroup, ReadDone, ReplaceDone,
    RunDone, SuperblocksDone, SyncDone,
};
use crate::status::Status;
use media::{Device, Zeroing};
use platform::Disk;
use platform::sync::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use units::{Block, BlockRef, Pvbn, Timestamp};

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
