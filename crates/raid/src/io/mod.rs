//! Reads and writes blocks: one tetris at a time, with identities beside them and parity across.
//!
//! Rooms above it that work on a tetris have it to themselves ([`Io::lock_tetris`]), and read,
//! prove and write through it.
//!
//! Invariants: work on one tetris happens one piece at a time; everything else is concurrent. The
//! state's lock is held for a few instructions, never while a disk, the journal or a completion is
//! called. It is locked alone, or after those of `patrol` and `membership`.

mod blame;
mod cache;
mod counters;
mod discard;
mod load;
mod locking;
mod notes;
mod noting;
mod parts;
mod queue;
mod read;
mod reconstruct;
mod recover;
mod resolve;
mod sync;
mod tetris;
mod write;

use crate::io::cache::ChecksumCache;
use crate::io::notes::Notes;
use crate::io::tetris::{Gate, Tetris};
use crate::layout::TetrisId;
use crate::membership::Members;
use crate::partial_parity_log::PartialParityLog;
use crate::request::{SyncDone, WriteHook};
use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use cache::ChecksumMemory;
pub use counters::Counters;

/// Blocks of an aggregate, read and written.
pub(crate) struct Io {
    members: Arc<Members>,
    journal: Arc<dyn PartialParityLog>,
    state: Mutex<State>,
}

struct State {
    tetrises: BTreeMap<TetrisId, Tetris>,
    /// One for each group.
    gates: Vec<Gate>,
    cache: ChecksumCache,
    /// The number of the next batch.
    next_batch: u64,
    /// Batches that were started and have not ended.
    open_batches: BTreeSet<u64>,
    notes: Notes,
    /// Waits until no batch below the number is open.
    sync_waiters: Vec<(u64, SyncDone)>,
    /// Who is told of each batch that has ended.
    write_hook: Option<WriteHook>,
    counters: Counters,
}

impl Io {
    pub(crate) fn new(members: Arc<Members>, journal: Arc<dyn PartialParityLog>) -> Self {
        let state = State {
            tetrises: BTreeMap::new(),
            gates: Vec::new(),
            cache: ChecksumCache::new(),
            next_batch: 0,
            open_batches: BTreeSet::new(),
            notes: Notes::new(),
            sync_waiters: Vec::new(),
            write_hook: None,
            counters: Counters::default(),
        };
        let groups = members.layout().groups.len();
        let io = Self { members, journal, state: Mutex::new(state) };
        io.add_groups(groups);
        io
    }

    pub(crate) fn watch_writes(&self, hook: WriteHook) {
        self.state.lock().write_hook = Some(hook);
    }

    /// Shares the memory for checksum blocks with others.
    pub(crate) fn share_checksum_memory(&self, memory: &Arc<ChecksumMemory>) {
        self.state.lock().cache.share(memory);
    }

    /// Gives back memory that others want.
    pub(crate) fn tick(&self) {
        self.state.lock().cache.tick();
    }

    pub(crate) fn counters(&self) -> Counters {
        self.state.lock().counters
    }

    /// Lets go of everyone who waits, and of its part of the memory that it shares.
    pub(crate) fn abandon(&self) {
        let forgotten = {
            let mut state = self.state.lock();
            let tetrises = state.tetrises.values_mut();
            let waiting: Vec<_> =
                tetrises.map(|tetris| std::mem::take(&mut tetris.waiting)).collect();
            let closed: Vec<_> = state.gates.iter_mut().map(|gate| gate.closed.take()).collect();
            let cache = std::mem::replace(&mut state.cache, ChecksumCache::new());
            let sync_waiters = std::mem::take(&mut state.sync_waiters);
            (sync_waiters, waiting, closed, state.notes.abandon(), cache)
        };
        drop(forgotten);
    }
}
