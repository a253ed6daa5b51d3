//! What the layers above see: blocks by PVBN.
//!
//! All calls return at once; completions run on the thread of the last disk completion that they
//! waited for, and before the call returns when they need not wait (a block that is still
//! queued). Callers hold no lock that a completion takes.

use crate::discard::DiskRegion;
use crate::error::{Expectation, ReadFailure, StoreError};
use crate::geometry::{Geometry, TetrisId};
use crate::growth::{GrowDone, NewDisk, NewGroup};
use crate::rebuild::{DiskPlace, ReplaceDone};
use crate::scrub::{ScrubDone, ScrubOrder};
use crate::status::Status;
use ondisk::identity::{BlockOwner, crc32c};
use platform::{Disk, WriteDone};
use std::sync::Arc;
use units::{Block, BlockRef, Pvbn, Timestamp};

/// Receives the end of a `sync`, of a superblock write or of a recovery.
pub type SyncDone = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
/// Receives a block.
pub type ReadDone = Box<dyn FnOnce(Result<BlockRef, ReadFailure>) + Send>;
/// Receives consecutive blocks.
pub type RunDone = Box<dyn FnOnce(Result<Vec<BlockRef>, ReadFailure>) + Send>;
/// Receives superblocks.
pub type SuperblocksDone = Box<dyn FnOnce(Vec<SuperblockCopy>) + Send>;

/// A block to be written.
#[derive(Clone, Debug)]
pub struct BlockWrite {
    /// Where to.
    pub pvbn: Pvbn,
    /// What.
    pub block: BlockRef,
    /// Whose it is.
    pub owner: BlockOwner,
    /// Its [`ondisk::identity::crc32c`], which the writer has computed for its own pointer.
    pub checksum: u32,
}

impl BlockWrite {
    /// A block whose checksum is not known yet.
    #[must_use]
    pub fn new(pvbn: Pvbn, block: BlockRef, owner: BlockOwner) -> Self {
        let checksum = crc32c(&block);
        Self { pvbn, block, owner, checksum }
    }
}

/// A block to be read.
pub struct BlockRead {
    /// Where from.
    pub pvbn: Pvbn,
    /// How to know that it is the right one.
    pub proof: Proof,
}

/// How to know that a block is what was written.
pub enum Proof {
    /// The caller knows by the content, from the CRC in the tree: costs no second read.
    Content(Box<dyn Fn(&Block) -> bool + Send + Sync>),
    /// By the identity beside the block.
    Identity {
        /// The owner that the identity must name; its `cp` does not count.
        owner: BlockOwner,
        /// The low 16 bits of the standard CRC32C.
        check: u16,
    },
    /// By the identity beside the block, whosever it is: for those who move blocks.
    Owned {
        /// Whether it may be this owner's.
        accepts: Box<dyn Fn(&BlockOwner) -> bool + Send + Sync>,
        /// The low 16 bits of the standard CRC32C.
        check: u16,
    },
}

impl Proof {
    /// What is expected, for messages.
    #[must_use]
    pub fn expectation(&self) -> Expectation {
        match self {
            Self::Content(_) => Expectation::Content,
            Self::Identity { owner, check } => {
                Expectation::Identity { owner: *owner, check: *check }
            }
            Self::Owned { check, .. } => Expectation::Owned { check: *check },
        }
    }
}

/// A superblock as found.
#[derive(Clone, Debug)]
pub struct SuperblockCopy {
    /// The disk's name.
    pub disk: String,
    /// The slot.
    pub slot: usize,
    /// The content; whether it is a superblock is for the caller to say.
    pub block: BlockRef,
}

/// Stripes of a tetris whose parity may be wrong after a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeNote {
    /// The tetris.
    pub tetris: TetrisId,
    /// A bit for each row; bit 63 is the row of checksum blocks.
    pub rows: u64,
    /// In a degraded group, the blocks of the missing disk: they exist only as parity.
    pub kept: Vec<KeptBlock>,
}

/// A block of a missing disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptBlock {
    /// The disk's index in its group.
    pub disk: usize,
    /// The row in the tetris.
    pub row: usize,
    /// The content.
    pub block: BlockRef,
}

/// Where stripes are noted before they are written in part: closes the write hole.
pub trait StripeJournal: Send + Sync {
    /// Makes the notes durable. They may be forgotten after the next successful `sync` whose
    /// consistency point is complete.
    fn note(&self, notes: Vec<StripeNote>, done: WriteDone);
}

/// No journal: for aggregates without parity, and for readers.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoJournal;

impl StripeJournal for NoJournal {
    fn note(&self, _notes: Vec<StripeNote>, done: WriteDone) {
        done(Ok(()));
    }
}

/// Blocks by PVBN.
pub trait BlockStore: Send + Sync {
    /// Which PVBN lies where.
    fn geometry(&self) -> Arc<Geometry>;

    /// Announces that `expected_blocks` more blocks of the tetris will be written: it goes to disk
    /// with the last of them. Without, or short of them, it goes at `sync`.
    fn open_tetris(&self, tetris: TetrisId, expected_blocks: u32);

    /// Queues a block. What fails is told by `sync`. The block's former content must not be in use.
    ///
    /// # Panics
    /// If the PVBN is 0 or beyond the end.
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

    /// Reads consecutive blocks of one disk with one request, as many as there are proofs.
    fn read_run(&self, first: Pvbn, proofs: Vec<Proof>, done: RunDone);

    /// Writes a superblock slot on every disk, and makes it durable.
    ///
    /// # Panics
    /// If there is no such slot.
    fn write_superblock(&self, slot: usize, block: BlockRef, done: SyncDone);

    /// Reads all slots of all disks; unreadable ones are left out.
    fn read_superblocks(&self, done: SuperblocksDone);

    /// After a crash and before any write: makes the parity of noted stripes right again.
    fn recover_stripes(&self, notes: Vec<StripeNote>, done: SyncDone);

    /// Gives the place of a missing disk to another, whose content may be lost, and rebuilds it in
    /// the background. Answers when the labels name it.
    fn replace_disk(
        &self,
        place: DiskPlace,
        disk: Arc<dyn Disk>,
        identity: [u8; 16],
        done: ReplaceDone,
    );

    /// Takes a disk out of use, as if it had failed, if the group can do without it. Answers when
    /// the labels say so.
    fn fail_disk(&self, place: DiskPlace, done: ReplaceDone);

    /// Gives a group data disks more, whose content may be lost: they are zeroed first. Nothing is
    /// rewritten. Answers when the labels name them; from then on the geometry has their blocks,
    /// which nobody uses.
    fn add_disks(&self, group: u32, disks: Vec<NewDisk>, done: GrowDone);

    /// Gives the aggregate groups more, of disks whose content may be lost. Answers when the labels
    /// of all groups count them.
    fn add_groups(&self, groups: Vec<NewGroup>, done: GrowDone);

    /// After recovery: goes on with rebuilding and scrubbing what was interrupted.
    fn resume(&self);

    /// Asks something of the scrub. Answers when the labels say it.
    fn scrub(&self, order: ScrubOrder, wall: Timestamp, done: ScrubDone);

    /// To be called several times a second, with the monotonic time and that of day: how fast
    /// background work may go, and does, is told by it.
    fn tick(&self, monotonic_nanoseconds: u64, wall: Timestamp);

    /// What is well and what is not.
    fn status(&self) -> Status;

    /// Lets go of everyone who waits, unanswered: their world is gone (a simulated power cut). They
    /// hold what holds the store.
    fn abandon(&self) {}
}
