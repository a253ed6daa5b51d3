//! What is under way in tetrises, and whether anything may begin in those of a group.

use crate::io::Io;
use crate::layout::TetrisId;
use crate::request::BlockWrite;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use units::{BlockRef, Pvbn};

/// Work that has a tetris to itself, from its start until it calls [`Io::unlock_tetris`].
pub(crate) type Job = Box<dyn FnOnce(&Arc<Io>) + Send>;

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

impl Tetris {
    /// The content of a block that is queued or on its way.
    pub(crate) fn queued(&self, pvbn: Pvbn) -> Option<BlockRef> {
        let in_flight = || self.in_flight.as_ref().and_then(|batch| batch.get(&pvbn));
        let write = self.filling.get(&pvbn).or_else(in_flight)?;
        Some(Arc::clone(&write.block))
    }
}

/// Whether anything may begin in the tetrises of a group.
#[derive(Default)]
pub(crate) struct Gate {
    /// Tetrises in which work is under way.
    pub busy_tetrises: usize,
    /// Nothing new is begun: the group is about to grow, or to leave.
    pub closed: Option<ClosedGroup>,
}

/// A group that begins nothing new.
pub(crate) struct ClosedGroup {
    /// Runs when nothing is under way.
    pub when_idle: Option<Job>,
    /// What would have begun meanwhile.
    pub held: Vec<(TetrisId, Job)>,
}
