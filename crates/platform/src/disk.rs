//! Disks: arrays of 4 KiB blocks with asynchronous reads, writes and flushes.
//!
//! Invariants: see the crate. Calls of one disk may complete in any order; a `flush` covers the
//! writes that had completed when it was submitted, and no others.

use std::sync::Arc;
use thiserror::Error;
use units::BlockRef;

/// Why a disk did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The device reported an error; the data is not what was asked for.
    #[error("I/O error on disk {disk} at block {block}: {kind}")]
    Io {
        /// The disk's name.
        disk: String,
        /// The first block of the request.
        block: u64,
        /// What the operating system said.
        kind: String,
    },
    /// The request reaches past the end of the device (a truncated file, say).
    #[error("disk {disk} ends at block {size_blocks}, request at block {block}")]
    OutOfRange {
        /// The disk's name.
        disk: String,
        /// The first block of the request.
        block: u64,
        /// The disk's size.
        size_blocks: u64,
    },
    /// The device is gone.
    #[error("disk {disk} is gone")]
    Gone {
        /// The disk's name.
        disk: String,
    },
    /// It did not answer. What was asked for may happen still.
    #[error("disk {disk} has not answered for {seconds} s")]
    Hung {
        /// The disk's name.
        disk: String,
        /// How long.
        seconds: u64,
    },
    /// Another process has the device open for itself.
    #[error("disk {disk} is in use by another process")]
    InUse {
        /// The disk's name.
        disk: String,
    },
    /// There is no disk of that name, or it cannot be opened or created.
    #[error("cannot open disk {disk}: {kind}")]
    Open {
        /// The disk's name.
        disk: String,
        /// What the operating system said.
        kind: String,
    },
}

impl DiskError {
    /// The name of the disk that failed.
    #[must_use]
    pub fn disk(&self) -> &str {
        match self {
            Self::Io { disk, .. }
            | Self::OutOfRange { disk, .. }
            | Self::Gone { disk }
            | Self::Hung { disk, .. }
            | Self::InUse { disk }
            | Self::Open { disk, .. } => disk,
        }
    }

    /// Whether it is the whole disk that does not work, rather than a block of it.
    #[must_use]
    pub const fn is_of_disk(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Hung { .. })
    }
}

/// What a disk tells of its medium; what it says nothing about is not guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MediaHints {
    /// Whether it keeps its blocks in objects of a store with a redundancy of its own.
    pub is_object_store: bool,
    /// Whether it has a head that must move: then the distance between requests costs time. A disk
    /// that says nothing has none.
    pub is_rotational: bool,
    /// The size of its zones in bytes, if it has zones that are best written from start to end.
    pub zone_bytes: Option<u64>,
    /// The size in bytes that is erased, or best written, as a whole, if there is one.
    pub erase_block_bytes: Option<u64>,
    /// How many blocks give their room back together, if it makes anything of
    /// [`Disk::discard`]: those of a unit, counted from the start of the area that a label leaves
    /// for data, when all of them are discarded.
    pub discard_unit_blocks: Option<u64>,
}

/// Receives the blocks that were read, as many as were asked for.
pub type ReadDone = Box<dyn FnOnce(Result<Vec<BlockRef>, DiskError>) + Send>;
/// Receives the end of a write or flush.
pub type WriteDone = Box<dyn FnOnce(Result<(), DiskError>) + Send>;

/// A disk.
pub trait Disk: Send + Sync + 'static {
    /// What an operator calls it: a path.
    fn name(&self) -> &str;

    /// Its size in whole blocks.
    fn size_blocks(&self) -> u64;

    /// Reads `count` consecutive blocks from `block`.
    fn read(&self, block: u64, count: usize, done: ReadDone);

    /// Writes consecutive blocks from `block`.
    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone);

    /// Makes all completed writes durable.
    fn flush(&self, done: WriteDone);

    /// Writes consecutive blocks from `block` and makes them durable: what a log needs, in one
    /// request where the device knows how.
    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        let disk = Arc::clone(&self);
        let written: WriteDone = Box::new(move |result| match result {
            Ok(()) => disk.flush(done),
            Err(cause) => done(Err(cause)),
        });
        self.write(block, blocks, written);
    }

    /// The content of these blocks is nobody's any more: reading them gives what they held or
    /// zeros, until they are written again. Storage that is paid for by use gives their room back;
    /// it may also do nothing. Blocks past the end are none.
    ///
    /// It takes its place among the calls: what is written after it stays. No write of these blocks
    /// may be under way. Like a write it may be lost or torn by a crash until a flush.
    fn discard(&self, block: u64, count_blocks: u64) {
        let _ = (block, count_blocks);
    }

    /// What it tells of its medium.
    fn hints(&self) -> MediaHints {
        MediaHints::default()
    }
}

/// Opens disks by name: paths in the real world, names of simulated disks in the other.
pub trait DiskOpener: Send + Sync {
    /// Opens the disk for this process alone.
    ///
    /// # Errors
    /// [`DiskError::InUse`] if another process has it, [`DiskError::Open`] if it cannot be opened.
    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError>;
}

/// Whether `count` blocks from `block` lie on a disk of `size_blocks` blocks.
#[must_use]
pub fn is_in_range(block: u64, count: usize, size_blocks: u64) -> bool {
    u64::try_from(count)
        .ok()
        .and_then(|count| block.checked_add(count))
        .is_some_and(|end| end <= size_blocks)
}
