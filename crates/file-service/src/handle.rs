//! File handles: which file, for ever (decision 14).
//!
//! A handle names (file system, volume, inode, generation, snapshot). It outlives restarts; when
//! the file is gone it gets [`FsError::Stale`]. On the wire it is [`FileHandle::SIZE`] bytes.
//!
//! Invariants: `decode(encode(handle)) == handle`; bytes that `encode` cannot have made are
//! [`FsError::BadHandle`].

use crate::FsError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{Generation, InodeNumber, SnapshotId, VolumeId};

/// Identifies an aggregate's set of volumes in handles: the first 64 bits of its identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct FileSystemId(pub u64);

/// Names a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileHandle {
    /// The aggregate.
    pub file_system: FileSystemId,
    /// The volume within it.
    pub volume: VolumeId,
    /// The inode within the volume.
    pub inode: InodeNumber,
    /// Which of the files that the inode held one after another.
    pub generation: Generation,
    /// The image: [`SnapshotId::ACTIVE`], a snapshot, or [`SnapshotId::DIRECTORY`] for the
    /// `.snapshot` directory of the directory that `inode` names.
    pub snapshot: SnapshotId,
}

const VERSION: u8 = 1;

impl FileHandle {
    /// Bytes of an encoded handle.
    pub const SIZE: usize = 32;

    /// The handle's bytes for the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = VERSION;
        bytes[4..8].copy_from_slice(&self.volume.get().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.file_system.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.inode.get().to_le_bytes());
        bytes[24..28].copy_from_slice(&self.generation.get().to_le_bytes());
        bytes[28..32].copy_from_slice(&self.snapshot.get().to_le_bytes());
        bytes
    }

    /// The handle that `bytes` encode.
    ///
    /// # Errors
    /// [`FsError::BadHandle`] if they encode none.
    pub fn decode(bytes: &[u8]) -> Result<Self, FsError> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().map_err(|_| FsError::BadHandle)?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | (u64::from(word(at + 4)) << 32);
        if bytes[0] != VERSION || bytes[1..4] != [0; 3] {
            return Err(FsError::BadHandle);
        }
        Ok(Self {
            volume: VolumeId(word(4)),
            file_system: FileSystemId(long(8)),
            inode: InodeNumber(long(16)),
            generation: Generation(word(24)),
            snapshot: SnapshotId(word(28)),
        })
    }

    /// Whether the handle lies in an image that cannot change.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.snapshot != SnapshotId::ACTIVE
    }
}

impl Serialize for FileHandle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.encode().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FileHandle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <[u8; Self::SIZE]>::deserialize(deserializer)?;
        Self::decode(&bytes).map_err(serde::de::Error::custom)
    }
}

/// A hold of a file (`FileService::hold`), for its release.
///
/// Holds are kept in memory. When an aggregate was away they are gone, and the same file may have
/// been opened anew; so a release says in which time of the file system its hold was given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Hold {
    /// The file.
    pub file: FileHandle,
    /// How often what was written to the file's file system, and not committed, may have been lost
    /// since the service started, when the file was held.
    pub losses: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_survive_the_wire() {
        let handle = FileHandle {
            file_system: FileSystemId(0x0123_4567_89ab_cdef),
            volume: VolumeId(7),
            inode: InodeNumber(u64::from(u32::MAX)),
            generation: Generation(9),
            snapshot: SnapshotId::DIRECTORY,
        };
        let bytes = handle.encode();
        assert_eq!(FileHandle::decode(&bytes), Ok(handle));
        assert_eq!(FileHandle::decode(&bytes[1..]), Err(FsError::BadHandle));
        for (at, value) in [(0, 2), (1, 1), (3, 1)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert_eq!(FileHandle::decode(&wrong), Err(FsError::BadHandle));
        }
    }
}
