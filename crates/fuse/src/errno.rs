//! Error numbers that the protocol itself makes; those of file operations come from
//! [`FsError::errno`].

use file_service::FsError;

/// A Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub i32);

impl Errno {
    pub(crate) const INTERRUPTED: Self = Self(4);
    pub(crate) const IO: Self = Self(5);
    pub(crate) const AGAIN: Self = Self(11);
    pub(crate) const INVALID: Self = Self(22);
    pub(crate) const RANGE: Self = Self(34);
    pub(crate) const DEADLOCK: Self = Self(35);
    pub(crate) const NO_LOCKS: Self = Self(37);
    pub(crate) const NOT_IMPLEMENTED: Self = Self(38);
    pub(crate) const PROTOCOL: Self = Self(71);
    pub(crate) const NOT_SUPPORTED: Self = Self(95);
    pub(crate) const STALE: Self = Self(116);
}

impl From<FsError> for Errno {
    fn from(error: FsError) -> Self {
        Self(error.errno())
    }
}
