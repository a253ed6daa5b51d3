//! Who asks, and how durable the answer must be.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// When a change may be answered (decision 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Durability {
    /// When its log record is durable: NFS, where the client forgets what was answered.
    Logged,
    /// When it is applied and its log record has its place in the order: FUSE, where POSIX
    /// promises durability at fsync only. What fsync answers is durable with all before it.
    Ordered,
}

/// The identity that permissions are checked against.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// When changes may be answered.
    pub durability: Durability,
    /// Whether the permission to read and write data was checked already, as the kernel checks it
    /// for programs of a FUSE mount: when they open a file, or truncate it by its path. An open
    /// file stays open whatever becomes of its mode (POSIX), so data is not checked again.
    pub has_opened: bool,
    /// Mode bits that the caller's new files do not get, unless they inherit an access list. NFS
    /// clients take theirs off before they ask.
    pub umask: u32,
}

impl Caller {
    /// Root, for the machine's own work and for tests.
    #[must_use]
    pub fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            groups: Arc::default(),
            durability: Durability::Logged,
            has_opened: false,
            umask: 0,
        }
    }

    /// Whether the caller is in `group`.
    #[must_use]
    pub fn is_member_of(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    /// Whether the caller overrides permission bits.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }
}
