//! What a lock is, who owns it, and what excludes what.
//!
//! Records and whole-file locks of one client do not see each other, as `fcntl` and `flock` do not
//! on Linux. Those of different clients do: an NFS client has one kind of lock only, and its
//! `flock` arrives as a record over the whole file.

use crate::range::Range;
use file_service::FileHandle;
use std::sync::Arc;
use thiserror::Error;

/// Names what loses its locks together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId {
    pub(crate) number: u64,
    /// Whose share of the limits is used.
    pub(crate) party: u64,
}

impl ClientId {
    /// A client that never has anything: whoever only looks.
    pub const NOBODY: Self = Self { number: 0, party: 0 };
}

/// A program of a client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// Whose program.
    pub client: ClientId,
    /// The name that the client has for it.
    pub name: Arc<[u8]>,
}

impl Owner {
    /// The program that `client` calls `name`.
    #[must_use]
    pub fn new(client: ClientId, name: &[u8]) -> Self {
        Self { client, name: name.into() }
    }
}

/// Whether a lock stands beside others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Beside others that share.
    Shared,
    /// Beside none.
    Exclusive,
}

/// Which of a client's two sorts of locks it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Of a range of bytes.
    Record,
    /// Of an open file, whole: `flock`. Taking it in another mode gives it back first.
    Whole,
}

/// A lock that is asked for, or about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Of which file.
    pub file: FileHandle,
    /// By whom.
    pub owner: Owner,
    /// The number that others are told of the owner.
    pub process: u32,
    /// Which sort.
    pub kind: Kind,
    /// Whether others may have it too.
    pub mode: Mode,
    /// Which bytes.
    pub range: Range,
}

/// A lock that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// By whom.
    pub owner: Owner,
    /// The number that others are told of the owner.
    pub process: u32,
    /// Which sort.
    pub kind: Kind,
    /// Whether others may have it too.
    pub mode: Mode,
    /// Which bytes.
    pub range: Range,
}

impl Held {
    /// Whether `request` cannot be had while this is held, on the same file.
    #[must_use]
    pub fn excludes(&self, request: &Request) -> bool {
        let seen = self.owner.client != request.owner.client || self.kind == request.kind;
        seen && self.owner != request.owner
            && (self.mode == Mode::Exclusive || request.mode == Mode::Exclusive)
            && self.range.overlaps(&request.range)
    }
}

impl From<&Request> for Held {
    fn from(request: &Request) -> Self {
        let Request { owner, process, kind, mode, range, .. } = request.clone();
        Self { owner, process, kind, mode, range }
    }
}

/// A reservation of ways to open a file. Bits: 1 reading, 2 writing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// Whose.
    pub owner: Owner,
    /// What the owner does.
    pub access: u8,
    /// What others may not do.
    pub deny: u8,
}

impl Share {
    /// Bits that there are.
    pub const BITS: u8 = 3;

    /// Whether both cannot be held.
    #[must_use]
    pub fn excludes(&self, other: &Self) -> bool {
        self.owner != other.owner
            && (self.access & other.deny != 0 || self.deny & other.access != 0)
    }
}

/// Why a lock was not given.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody has it.
    #[error("process {} has the bytes from {} on", .0.process, .0.range.start())]
    Conflict(Held),
    /// Somebody has opened the file in a way that excludes this.
    #[error("the file is reserved")]
    Reserved,
    /// Whoever has it waits for what the asker has.
    #[error("waiting for this lock would be a deadlock")]
    Deadlock,
    /// Others may still take back what they had before the server was started.
    #[error(
        "the server restarted a moment ago; during the grace period only earlier locks are granted"
    )]
    Grace,
    /// There is nothing to take back any more.
    #[error("the grace period for reclaiming locks is over")]
    NoGrace,
    /// A limit is reached.
    #[error("{what}: the limit is {limit}; give some back")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}
