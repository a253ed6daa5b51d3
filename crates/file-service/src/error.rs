//! The one error type of the file service, and its mapping to errno and NFSv3 status.
//!
//! Invariants: front ends translate through [`FsError::errno`] and [`FsError::nfs3_status`] and
//! invent no mapping of their own.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a file operation was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FsError {
    /// The caller lacks the permission bits (EACCES).
    #[error("permission denied")]
    AccessDenied,
    /// Only the owner or root may do this (EPERM).
    #[error("operation not permitted")]
    NotPermitted,
    /// No entry of that name (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken (EEXIST).
    #[error("file exists")]
    Exists,
    /// A directory was needed (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// A directory was not expected (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// The directory still has entries (ENOTEMPTY).
    #[error("directory not empty")]
    NotEmpty,
    /// The handle names a file that is gone (ESTALE).
    #[error("stale file handle")]
    Stale,
    /// The handle's bytes make no sense (NFS3ERR_BADHANDLE; ESTALE elsewhere).
    #[error("bad file handle")]
    BadHandle,
    /// The volume or the aggregate has no room (ENOSPC).
    #[error("no space left on device")]
    NoSpace,
    /// The owner of the file or its group would use more than its quota (EDQUOT).
    #[error("disk quota exceeded")]
    OverQuota,
    /// A snapshot, or a volume that is read-only (EROFS).
    #[error("read-only file system")]
    ReadOnly,
    /// An argument is out of its range (EINVAL).
    #[error("invalid argument")]
    Invalid,
    /// The name is longer than 255 bytes (ENAMETOOLONG).
    #[error("file name too long")]
    NameTooLong,
    /// The file would be larger than the format allows (EFBIG).
    #[error("file too large")]
    FileTooLarge,
    /// The file has 65,000 links (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// Two file systems would be joined by one operation (EXDEV).
    #[error("cross-device link")]
    CrossDevice,
    /// A directory cookie is from another time (NFS3ERR_BAD_COOKIE; EINVAL elsewhere).
    #[error("bad directory cookie")]
    BadCookie,
    /// The SETATTR guard did not match (NFS3ERR_NOT_SYNC; EAGAIN elsewhere).
    #[error("guard does not match")]
    GuardMismatch,
    /// No extended attribute of that name (ENODATA).
    #[error("no such attribute")]
    NoAttribute,
    /// The extended attributes would exceed their limit (ENOSPC, as on other file systems).
    #[error("extended attributes too large")]
    AttributeTooLarge,
    /// The answer does not fit the caller's buffer (ERANGE).
    #[error("result too large")]
    Range,
    /// SEEK found no data or hole beyond the offset (ENXIO).
    #[error("no such offset")]
    NoSuchOffset,
    /// The operation is not known for this file (EOPNOTSUPP).
    #[error("operation not supported")]
    NotSupported,
    /// The node is not ready, a retry will help (NFS3ERR_JUKEBOX; EAGAIN elsewhere).
    #[error("temporarily unavailable")]
    TryLater,
    /// More disks are away than redundancy makes good, and the node waits for them: the client
    /// shall, too (NFS3ERR_JUKEBOX). A program of this machine cannot, and EAGAIN would mislead it
    /// (EIO).
    #[error("disks are away")]
    Offline,
    /// The media failed beyond what redundancy repairs (EIO).
    #[error("input/output error")]
    Io,
}

impl FsError {
    /// The Linux errno.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotPermitted => 1,
            Self::NotFound => 2,
            Self::Io | Self::Offline => 5,
            Self::NoSuchOffset => 6,
            Self::GuardMismatch | Self::TryLater => 11,
            Self::AccessDenied => 13,
            Self::Exists => 17,
            Self::CrossDevice => 18,
            Self::NotDirectory => 20,
            Self::IsDirectory => 21,
            Self::Invalid | Self::BadCookie => 22,
            Self::FileTooLarge => 27,
            Self::NoSpace | Self::AttributeTooLarge => 28,
            Self::ReadOnly => 30,
            Self::TooManyLinks => 31,
            Self::Range => 34,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::NoAttribute => 61,
            Self::NotSupported => 95,
            Self::OverQuota => 122,
            Self::Stale | Self::BadHandle => 116,
        }
    }

    /// The NFSv3 status (RFC 1813 section 2.6).
    #[must_use]
    pub const fn nfs3_status(self) -> u32 {
        match self {
            Self::NotPermitted => 1,
            Self::NotFound | Self::NoAttribute => 2,
            Self::Io | Self::Range => 5,
            Self::NoSuchOffset => 6,
            Self::AccessDenied => 13,
            Self::Exists => 17,
            Self::CrossDevice => 18,
            Self::NotDirectory => 20,
            Self::IsDirectory => 21,
            Self::Invalid => 22,
            Self::FileTooLarge => 27,
            Self::NoSpace | Self::AttributeTooLarge => 28,
            Self::ReadOnly => 30,
            Self::TooManyLinks => 31,
            Self::NameTooLong => 63,
            Self::NotEmpty => 66,
            Self::OverQuota => 69,
            Self::Stale => 70,
            Self::BadHandle => 10001,
            Self::GuardMismatch => 10002,
            Self::BadCookie => 10003,
            Self::NotSupported => 10004,
            Self::TryLater | Self::Offline => 10008,
        }
    }
}
