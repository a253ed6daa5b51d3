//! What the layers above see: blocks by PVBN.
//!
//! All calls return at once; completions run on the thread of the last disk completion that they
//! waited for, and before the call returns when they need not wait (a block that is still
//! queued). Callers hold no lock that a completion takes.

use crate::io::ChecksumMemory;
use crate::layout::{DiskRegion, Geometry, TetrisId};
use crate::partial_parity_log::PartialParityNote;
use crate::request::{
    BlockRead, BlockWrite, FailureHook, ReadDone, RunDone, RunProofs, SuperblocksDone, SyncDone,
    WriteHook,
};
use std::any::Any;
use std::sync::{Arc, Weak};
use units::{Block, BlockRef, Pvbn};

/// Blocks by PVBN.
pub trait BlockStore: Send + Sync {
    /// Which PVBN lies where.
    fn geometry(&self) -> Arc<Geometry>;

    /// Has it share the memory for checksum blocks with the other aggregates of the node. Until
    /// then it has next to none.
    fn share_checksum_memory(&self, memory: &Arc<ChecksumMemory>);

    /// Announces that `expected_blocks` more blocks of the tetris will be written: it goes to disk
    /// with the last of them. Without, or short of them, it goes at `sync`.
    fn open_tetris(&self, tetris: TetrisId, expected_blocks: u32);

    /// Queues a block. What fails is told by `sync`. The block's former content must not be in use.
    ///
    /// # Panics
    /// If the PVBN is 0 or beyond the end, or its group was removed.
    fn write(&self, write: BlockWrite);

    /// Makes all writes durable that were queued before.
    fn sync(&self, done: SyncDone);

    /// How many regions of a disk of the group give their room back together when all of them are
    /// discarded, counted from the disk's first; `None` if nothing comes of a [`Self::discard`].
    fn discard_unit_regions(&self, group: u32) -> Option<u64>;

    /// Lets go of regions in which no block is in use, nor given to anybody who may write it: the
    /// disks may give their room back. Blocks that are written after the call stay.
    ///
    /// # Panics
    /// If a group has parity.
    fn discard(&self, regions: &[DiskRegion]);

    /// Reads a block and proves it; repairs it where it can.
    fn read(&self, read: BlockRead, done: ReadDone);

    /// Reads consecutive blocks of one disk with one request, as many as there are proofs; those
    /// without a proof come along.
    fn read_run(&self, first: Pvbn, proofs: RunProofs, done: RunDone);

    /// Writes a superblock slot on every disk, and makes it durable.
    ///
    /// # Panics
    /// If there is no such slot.
    fn write_superblock(&self, slot: usize, block: BlockRef, done: SyncDone);

    /// Has every disk in use have, durably, a superblock that was read from some. A disk gets it in
    /// its other slot, too, if `is_whole` says that this slot holds no superblock.
    ///
    /// # Panics
    /// If there is no such slot.
    fn adopt_superblock(
        &self,
        slot: usize,
        block: BlockRef,
        is_whole: fn(&Block) -> bool,
        done: SyncDone,
    );

    /// Reads all slots of all disks that hold what their places must: not of disks that are being
    /// filled, whose superblocks may be old.
    fn read_superblocks(&self, done: SuperblocksDone);

    /// After a crash and before any write: makes noted stripes whole again. `notes` are those that
    /// were not forgotten, in order.
    fn recover_stripes(&self, notes: Vec<PartialParityNote>, done: SyncDone);

    /// Has `hook` called when it is certain that no `sync` will succeed any more: at once if it is
    /// already. Of several hooks the last one set is called.
    fn watch_failure(&self, hook: FailureHook);

    /// Has `hook` called for each batch of blocks that the disks have taken, or that was given up
    /// because the store has failed, from the thread of the last completion and before a `sync`
    /// that waits for it. They are not durable before that. Of several hooks the last one set is
    /// called.
    fn watch_writes(&self, hook: WriteHook);

    /// Alive as long as the store or a request to one of its disks is.
    fn remains(&self) -> Weak<dyn Any + Send + Sync>;

    /// Lets go of everyone who waits, unanswered: their world is gone (a simulated power cut). They
    /// hold what holds the store.
    fn abandon(&self) {}
}
