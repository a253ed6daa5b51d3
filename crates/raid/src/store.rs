//! The store: its state, and the trait's calls that need no more than a look at it.
//!
//! Invariant: the state's lock is held for a few instructions, never while a disk, the journal or
//! a completion is called.

use crate::block_store::{
    BlockRead, BlockStore, BlockWrite, FailureHook, Proof, ReadDone, RunDone, StripeJournal,
    StripeNote, SuperblocksDone, SyncDone,
};
use crate::cache::ChecksumCache;
use crate::error::StoreError;
use crate::geometry::{Geometry, TetrisId};
use crate::locking::Job;
use crate::member::{Group, GroupState, Member};
use crate::rebuild::{DiskPlace, ReplaceDone};
use crate::status::{Counters, Status};
use platform::Disk;
use platform::sync::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use units::{BlockRef, Pvbn};

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
}

pub(crate) struct State {
    pub tetrises: BTreeMap<TetrisId, Tetris>,
    pub groups: Vec<GroupState>,
    pub cache: ChecksumCache,
    /// The number of the next batch.
    pub next_batch: u64,
    /// Batches that were started and have not ended.
    pub open_batches: BTreeSet<u64>,
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
    pub counters: Counters,
    /// Nothing new is begun.
    pub is_abandoned: bool,
}

pub(crate) struct Inner {
    pub geometry: Geometry,
    pub groups: Vec<Group>,
    pub journal: Arc<dyn StripeJournal>,
    pub state: Mutex<State>,
}

/// An aggregate's blocks.
pub struct Store {
    inner: Arc<Inner>,
}

impl Store {
    pub(crate) fn new(
        geometry: Geometry,
        groups: Vec<(Group, GroupState)>,
        journal: Arc<dyn StripeJournal>,
    ) -> Self {
        let (groups, group_states) = groups.into_iter().unzip();
        let state = State {
            tetrises: BTreeMap::new(),
            groups: group_states,
            cache: ChecksumCache::new(),
            next_batch: 0,
            open_batches: BTreeSet::new(),
            sync_waiters: Vec::new(),
            label_updates: 0,
            label_waiters: Vec::new(),
            failure: None,
            failure_hook: None,
            counters: Counters::default(),
            is_abandoned: false,
        };
        Self { inner: Arc::new(Inner { geometry, groups, journal, state: Mutex::new(state) }) }
    }

    /// The aggregate's identity and name, from the labels.
    #[must_use]
    pub fn aggregate(&self) -> ([u8; 16], String) {
        let members = self.inner.groups.iter().flat_map(|group| &group.members);
        let Some(device) = members.filter_map(Member::device).next() else {
            unreachable!("a store has a disk")
        };
        let label = device.label();
        (label.aggregate, label.name().unwrap_or_default().to_owned())
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
    fn geometry(&self) -> &Geometry {
        &self.inner.geometry
    }

    fn open_tetris(&self, tetris: TetrisId, expected_blocks: u32) {
        let mut state = self.inner.state.lock();
        state.tetrises.entry(tetris).or_default().expected_blocks += expected_blocks;
    }

    fn write(&self, write: BlockWrite) {
        assert!(write.pvbn != Pvbn(0), "PVBN 0 is never a block");
        let Some(tetris) = self.inner.geometry.tetris_of(write.pvbn) else {
            panic!("{} is beyond the aggregate's end", write.pvbn)
        };
        let is_full = {
            let mut state = self.inner.state.lock();
            let filling = state.tetrises.entry(tetris).or_default();
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

    fn read(&self, read: BlockRead, done: ReadDone) {
        self.inner.read(read, done);
    }

    fn read_run(&self, first: Pvbn, proofs: Vec<Proof>, done: RunDone) {
        self.inner.read_run(first, proofs, done);
    }

    fn write_superblock(&self, slot: usize, block: BlockRef, done: SyncDone) {
        self.inner.write_superblock(slot, &block, done);
    }

    fn read_superblocks(&self, done: SuperblocksDone) {
        self.inner.read_superblocks(done);
    }

    fn readmit(&self, slot: usize, newest: BlockRef, done: SyncDone) {
        self.inner.readmit(slot, newest, done);
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

    fn resume(&self) {
        self.inner.resume_rebuilds();
    }

    fn status(&self) -> Status {
        self.inner.status()
    }

    fn watch_failure(&self, hook: FailureHook) {
        self.inner.watch_failure(hook);
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
            let syncs = std::mem::take(&mut state.sync_waiters);
            let labels = std::mem::take(&mut state.label_waiters);
            let waiting =
                state.tetrises.values_mut().map(|tetris| std::mem::take(&mut tetris.waiting));
            (syncs, labels, waiting.collect::<Vec<_>>())
        };
        drop(forgotten);
        let members = self.inner.groups.iter().flat_map(|group| &group.members);
        members.filter_map(Member::device).for_each(|device| device.abandon());
    }
}
