//! Who changed what: what is told of each change that came over the socket.
//!
//! Invariants: the peer is whom the kernel names (`SO_PEERCRED`), as it was when it connected.

use admin_api::{Code, Request};
use units::Timestamp;

/// The process at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its number.
    pub pid: i32,
}

/// A change that was asked for, and how that ended.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Who asked.
    pub peer: Peer,
    /// For what.
    pub request: &'a Request,
    /// How it ended.
    pub result: Result<(), Code>,
    /// When it began.
    pub began: Timestamp,
    /// How long it took.
    pub duration_nanoseconds: u64,
}

/// Records changes.
pub trait Audit: Send + Sync {
    /// A change was made, or refused. Its client gets the answer when this returns, whatever became
    /// of the record: the change is made already.
    fn changed(&self, change: &Change<'_>);

    /// Whether somebody may have typed a secret into a request. The log does not repeat it then.
    fn may_hold_secret(&self, request: &Request) -> bool;
}
