//! The state of a store.
//!
//! Invariant: the state's lock is held for a few instructions, never while a disk, the journal or
//! a completion is called.

use crate::error::StoreError;
use crate::io::{ChecksumCache, Counters, Notes};
use crate::journal::StripeJournal;
use crate::layout::{Geometry, Group, Layout, TetrisId};
use crate::membership::{GroupState, Points, RetiredDisk};
use crate::patrol::{Scrub, UseQuery};
use crate::request::{BlockWrite, FailureHook, SyncDone};
use media::Device;
use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
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
    pub layout: Mutex<Arc<Layout>>,
    pub journal: Arc<dyn StripeJournal>,
    pub state: Mutex<State>,
    /// Disks that wait for a place. Locked alone, or after the state.
    pub spares: Mutex<Vec<Arc<Device>>>,
    /// Names of those that are about to have one. Locked alone.
    pub leaving_spares: Mutex<Vec<String>>,
}

/// Work that has a tetris to itself, from its start until it calls [`Inner::unlock_tetris`].
pub(crate) type Job = Box<dyn FnOnce(&Arc<Inner>) + Send>;

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

impl State {
    /// The content of a block that is queued or on its way.
    pub(crate) fn queued(&self, tetris: TetrisId, pvbn: Pvbn) -> Option<BlockRef> {
        let tetris = self.tetrises.get(&tetris)?;
        let in_flight = || tetris.in_flight.as_ref().and_then(|batch| batch.get(&pvbn));
        let write = tetris.filling.get(&pvbn).or_else(in_flight)?;
        Some(Arc::clone(&write.block))
    }
}
