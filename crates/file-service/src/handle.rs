//! File handles: which file, for ever (decision 35).
//!
//! A handle names (volume, inode, generation, snapshot) and neither the aggregate nor the node: a
//! volume may move, and its handles stay valid. It outlives restarts; when the file is gone it gets
//! [`FsError::Stale`].
//!
//! Clients get handles *sealed*: the bytes of the handle, and a code that only who has the volume's
//! key can make ([`FileHandle::seal`]). A client that makes up a handle, to reach a file that no
//! directory leads it to, is refused ([`SealedHandle::open`]).
//!
//! | bytes | sealed handle |
//! | --- | --- |
//! | 0 | version, 2 |
//! | 1..4 | zero |
//! | 4..8 | member of a group of volumes; zero, the volume itself, as long as there are no groups |
//! | 8..24 | identity of the volume |
//! | 24..32 | inode |
//! | 32..36 | generation |
//! | 36..40 | snapshot |
//! | 40..48 | SipHash-2-4 of the bytes before, under the volume's key |
//!
//! Invariants: what is sealed and opened with one key is the same handle; other bytes are
//! [`FsError::BadHandle`]. A handle is sealed to the same bytes each time: clients compare them.

use crate::FsError;
use platform::mutation::{self, Rule};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use std::fmt;
use units::{Generation, InodeNumber, SnapshotId, VolumeUuid};

/// Names a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct FileHandle {
    /// The volume.
    pub volume: VolumeUuid,
    /// The inode within the volume.
    pub inode: InodeNumber,
    /// Which of the files that the inode held one after another.
    pub generation: Generation,
    /// The image: [`SnapshotId::ACTIVE`], a snapshot, or [`SnapshotId::DIRECTORY`] for the
    /// `.snapshot` directory of the directory that `inode` names.
    pub snapshot: SnapshotId,
}

const VERSION: u8 = 2;

impl FileHandle {
    /// Bytes of a handle before it is sealed.
    const SIZE: usize = 40;

    fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = VERSION;
        bytes[8..24].copy_from_slice(&self.volume.0);
        bytes[24..32].copy_from_slice(&self.inode.get().to_le_bytes());
        bytes[32..36].copy_from_slice(&self.generation.get().to_le_bytes());
        bytes[36..40].copy_from_slice(&self.snapshot.get().to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; Self::SIZE]) -> Result<Self, FsError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[0] != VERSION || bytes[1..8] != [0; 7] {
            return Err(FsError::BadHandle);
        }
        let mut volume = VolumeUuid::NIL;
        volume.0.copy_from_slice(&bytes[8..24]);
        Ok(Self {
            volume,
            inode: InodeNumber(u64::from(word(24)) | (u64::from(word(28)) << 32)),
            generation: Generation(word(32)),
            snapshot: SnapshotId(word(36)),
        })
    }

    /// The handle as clients get it.
    #[must_use]
    pub fn seal(&self, key: &HandleKey) -> [u8; SealedHandle::SIZE] {
        let encoded = self.encode();
        let mut bytes = [0; SealedHandle::SIZE];
        bytes[..Self::SIZE].copy_from_slice(&encoded);
        bytes[Self::SIZE..].copy_from_slice(&key.code(&encoded).to_le_bytes());
        bytes
    }

    /// Whether the handle lies in an image that cannot change.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.snapshot != SnapshotId::ACTIVE
    }
}

/// Seals the handles of one volume. Secret: whoever has it can make up handles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HandleKey(pub [u8; 16]);

impl HandleKey {
    fn code(&self, encoded: &[u8; FileHandle::SIZE]) -> u64 {
        SipHasher24::new_with_key(&self.0).hash(encoded)
    }
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HandleKey(..)")
    }
}

/// A handle as it came from a client, which may have made it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SealedHandle {
    claimed: FileHandle,
    code: u64,
}

impl SealedHandle {
    /// Bytes of a sealed handle.
    pub const SIZE: usize = FileHandle::SIZE + 8;

    /// The sealed handle that `bytes` are.
    ///
    /// # Errors
    /// [`FsError::BadHandle`] if they are none.
    pub fn parse(bytes: &[u8]) -> Result<Self, FsError> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().map_err(|_| FsError::BadHandle)?;
        let malformed = || FsError::BadHandle;
        let (handle, code) = bytes.split_first_chunk().ok_or_else(malformed)?;
        let code = code.try_into().map_err(|_| malformed())?;
        Ok(Self { claimed: FileHandle::decode(handle)?, code: u64::from_le_bytes(code) })
    }

    /// The volume whose key opens it, if any does.
    #[must_use]
    pub const fn volume(&self) -> VolumeUuid {
        self.claimed.volume
    }

    /// The handle, if it was sealed with `key`.
    ///
    /// # Errors
    /// [`FsError::BadHandle`] if it was not.
    pub fn open(self, key: &HandleKey) -> Result<FileHandle, FsError> {
        let is_sealed =
            key.code(&self.claimed.encode()) == self.code || mutation::broken(Rule::SealUnchecked);
        if is_sealed { Ok(self.claimed) } else { Err(FsError::BadHandle) }
    }
}

/// Opens handles of one volume. A client mostly sends the handle that it sent last, so a handle
/// equal to the last one that was opened is not verified again. Make a new opener when the key
/// may have changed.
pub struct Opener {
    key: HandleKey,
    last: Option<SealedHandle>,
}

impl Opener {
    /// Opens what `key` seals.
    #[must_use]
    pub const fn new(key: HandleKey) -> Self {
        Self { key, last: None }
    }

    /// As [`SealedHandle::open`].
    ///
    /// # Errors
    /// [`FsError::BadHandle`] if it was not sealed with the key.
    pub fn open(&mut self, sealed: SealedHandle) -> Result<FileHandle, FsError> {
        if self.last != Some(sealed) {
            sealed.open(&self.key)?;
            self.last = Some(sealed);
        }
        Ok(sealed.claimed)
    }
}

/// A hold of a file (`FileService::hold`), for its release.
///
/// Holds are kept in memory. When an aggregate was away they are gone, and the same file may have
/// been opened anew; so a release says in which time of the volume its hold was given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Hold {
    /// The file.
    pub file: FileHandle,
    /// How often what was written to the file's volume, and not committed, may have been lost
    /// since the service started, when the file was held.
    pub losses: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HandleKey = HandleKey([7; 16]);

    fn handle() -> FileHandle {
        FileHandle {
            volume: VolumeUuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
            inode: InodeNumber(u64::from(u32::MAX) + 5),
            generation: Generation(9),
            snapshot: SnapshotId::DIRECTORY,
        }
    }

    #[test]
    fn handles_survive_their_bytes() {
        let bytes = handle().encode();
        assert_eq!(FileHandle::decode(&bytes), Ok(handle()));
        for (at, value) in [(0, 1), (0, 3), (1, 1), (3, 1), (4, 1), (7, 1)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert_eq!(FileHandle::decode(&wrong), Err(FsError::BadHandle));
        }
    }

    #[test]
    fn a_handle_that_was_made_up_does_not_open() {
        let sealed = handle().seal(&KEY);
        let open = |bytes: &[u8], key| SealedHandle::parse(bytes).and_then(|one| one.open(key));
        assert_eq!(SealedHandle::parse(&sealed).unwrap().volume(), handle().volume);
        assert_eq!(open(&sealed, &KEY), Ok(handle()));
        assert_eq!(open(&sealed, &HandleKey([8; 16])), Err(FsError::BadHandle));
        assert_eq!(open(&sealed[..FileHandle::SIZE], &KEY), Err(FsError::BadHandle));
        let mut opener = Opener::new(KEY);
        for bit in 0..sealed.len() * 8 {
            let mut wrong = sealed;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&wrong, &KEY), Err(FsError::BadHandle), "bit {bit}");
            let mut opened =
                |bytes: &[u8]| SealedHandle::parse(bytes).and_then(|it| opener.open(it));
            assert_eq!(opened(&wrong), Err(FsError::BadHandle), "bit {bit}");
            assert_eq!(opened(&sealed), Ok(handle()), "behind a wrong one");
        }
    }

    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{KEY:?}"), "HandleKey(..)");
    }
}
