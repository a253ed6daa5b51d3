//! What callers ask of a store, and what they are answered with.

use crate::error::{RaidError, ReadFailure, StoreError};
use crate::proof::Proof;
use media::Profile;
use ondisk::identity::{BlockOwner, crc32c};
use ondisk::label::RaidKind;
use platform::Disk;
use std::sync::Arc;
use units::{BlockRef, DiskUuid, Pvbn};

/// Receives the end of a `sync`, of a superblock write or of a recovery.
pub type SyncDone = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Receives a block.
pub type ReadDone = Box<dyn FnOnce(Result<BlockRef, ReadFailure>) + Send>;

/// How to know the blocks of a run; `None` for one between others that nobody wants. It is read
/// with them where that takes no request of its own, and never looked at.
pub type RunProofs = Vec<Option<Proof>>;

/// Receives the blocks of a run that were wanted, in order.
pub type RunDone = Box<dyn FnOnce(Result<Vec<BlockRef>, ReadFailure>) + Send>;

/// Receives superblocks.
pub type SuperblocksDone = Box<dyn FnOnce(Vec<SuperblockCopy>) + Send>;

/// Receives the end of a replacement's beginning.
pub type ReplaceDone = Box<dyn FnOnce(Result<(), RaidError>) + Send>;

/// Receives the end of a growth.
pub type GrowDone = Box<dyn FnOnce(Result<(), RaidError>) + Send>;

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

/// A superblock as found.
#[derive(Clone, Debug)]
pub struct SuperblockCopy {
    /// The disk's name.
    pub disk: String,
    /// The slot.
    pub slot: usize,
    /// The content, `None` if the slot cannot be read. Whether the content is a superblock is for
    /// the caller to say.
    pub block: Option<BlockRef>,
}

/// A disk that is to join.
#[derive(Clone)]
pub struct NewDisk {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// What it will be known by.
    pub identity: DiskUuid,
    /// What it is good at.
    pub profile: Profile,
}

/// Disks that are to be a group.
#[derive(Clone)]
pub struct NewGroup {
    /// How it protects its data.
    pub kind: RaidKind,
    /// Its disks; the first become the parity disks.
    pub disks: Vec<NewDisk>,
}

/// Called with how many blocks a batch wrote, or gave up, with no lock held.
pub type WriteHook = Arc<dyn Fn(u64) + Send + Sync>;

/// Called once, with no lock held, when a store fails.
pub type FailureHook = Box<dyn FnOnce(StoreError) + Send>;
