//! What an operation knows beside its arguments: its volume, and who asks when.
//!
//! Invariants: `image_number` is the `st_dev` of the active image, for life: it is made of the
//! volume's identity. Images of snapshots have the numbers after it; that numbers of two volumes
//! meet is as unlikely as that two random numbers of 64 bits do.

use file_service::{Caller, FileHandle, FsError, Limits};
use units::{Generation, InodeNumber, SnapshotId, Timestamp, VolumeId, VolumeUuid};

/// The volume that an operation works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Environment {
    /// Its number within its aggregate, as log records have it.
    pub volume: VolumeId,
    /// Its identity, as handles have it.
    pub identity: VolumeUuid,
    /// The number of the active image (`st_dev`).
    pub image_number: u64,
    /// The service's limits.
    pub limits: Limits,
    /// Bytes that one COMMIT logs at most.
    pub commit_bytes_max: u64,
}

/// Who asks, and when.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Whose permissions count.
    pub caller: Caller,
    /// The time of the operation.
    pub now: Timestamp,
}

/// A call, with who asks and when: an operation.
#[derive(Clone, Debug)]
pub struct Scoped<C> {
    /// Who asks, and when.
    pub scope: Scope,
    /// What is asked.
    pub call: C,
}

impl Environment {
    /// The number of an image.
    #[must_use]
    pub fn image_number(&self, snapshot: SnapshotId) -> u64 {
        self.image_number.wrapping_add(u64::from(snapshot.get()))
    }

    /// A file's handle.
    #[must_use]
    pub const fn handle(
        &self,
        inode: InodeNumber,
        generation: Generation,
        snapshot: SnapshotId,
    ) -> FileHandle {
        FileHandle { volume: self.identity, inode, generation, snapshot }
    }

    /// # Errors
    /// `Stale` for a handle that leads elsewhere.
    pub(crate) fn check(&self, handle: FileHandle) -> Result<(), FsError> {
        if handle.volume == self.identity { Ok(()) } else { Err(FsError::Stale) }
    }

    /// # Errors
    /// As [`Self::check`]; `ReadOnly` for a file of a snapshot.
    pub(crate) fn check_active(&self, handle: FileHandle) -> Result<(), FsError> {
        self.check(handle)?;
        if handle.is_read_only() { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// # Errors
    /// `CrossDevice` for a second handle that leads elsewhere than the first.
    pub(crate) fn check_same(&self, handle: FileHandle) -> Result<(), FsError> {
        self.check(handle).map_err(|_| FsError::CrossDevice)
    }
}
