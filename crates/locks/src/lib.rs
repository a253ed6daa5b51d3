//! The locks that clients take on files: one manager for all protocols, so that a lock taken over
//! one excludes the programs that come over another.
//!
//! | module | does |
//! | --- | --- |
//! | [`lock`] | what a lock is, who owns it, what excludes what |
//! | [`range`] | ranges of bytes |
//! | [`manager`] | held locks, waiting ones, clients, the grace period |
//! | `state` | what the manager's mutex guards: whose turn it is |
//! | `segments` | the locks held on one file |
//! | `file` | the same with what waits for them, and share reservations |
//! | `deadlock` | who waits for whom |
//! | `usage` | how much is kept for whom |
//!
//! A *client* is what loses its locks together: a machine that locks over NLM, a FUSE mount. An
//! *owner* is one of a client's programs, by the name that its protocol has for it. Locks are
//! *records* (ranges of bytes: `fcntl`, NLM, SMB) or *whole* (`flock`), and *shares* reserve modes
//! of opening (NLM SHARE, the opens of SMB).
//!
//! Invariants:
//! - No two locks are held that exclude each other ([`lock::Held::excludes`]).
//! - What waits is granted in the order of asking, as far as it excludes each other: nobody is
//!   overtaken for ever by those who ask later and share. Only a waiter that waits for somebody
//!   lets him pass.
//! - Nobody is let wait in a circle of records that are held: the last to ask gets
//!   [`LockError::Deadlock`].
//! - Locks are not durable. After a restart, until the grace period ends, only what was held before
//!   may be taken ([`Attempt::Reclaim`]).
//! - Memory is bounded by [`Limits`], for each party and in all.
//! - Deterministic: time comes from the clock, and callbacks run on the thread whose call made them
//!   due, after the manager's own lock is given back.
//!
//! *Architecture Invariant:* knows no protocol, no file system and no disk; a file is a handle.
//!
//! Fails: [`LockError`]; giving back never fails.

#![forbid(unsafe_code)]

pub mod asking;
pub mod lock;
pub mod manager;
pub mod range;

mod deadlock;
mod file;
mod segments;
mod state;
mod usage;

#[cfg(test)]
mod tests;

pub use asking::{Attempt, Cancelled, Done, Limits, Outcome, WaitId};
pub use lock::{ClientId, Held, Kind, LockError, Mode, Owner, Request, Share};
pub use manager::LockManager;
pub use range::Range;
