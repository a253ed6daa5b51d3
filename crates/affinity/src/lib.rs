//! Hierarchical Waffinity: parallelism by partitioning of data, not by locks (Waffinity section 4;
//! decisions 4, 5, 6).
//!
//! Work arrives as [`Message`]s, each sent to one affinity of a tree. A message runs only while no
//! other message runs in the same affinity, in an ancestor or in a descendant of it; everything
//! else runs in parallel:
//!
//! ```text
//!                         Serial
//!                           |
//!            +--------- Aggregate ---------+            one for each aggregate
//!            |                             |
//!       AggregateVbn             +------ Volume ------+  one for each volume
//!            |                   |                    |
//!     AggregateRange ...    VolumeLogical         VolumeVbn
//!                                |                    |
//!                            Stripe ...         VolumeRange ...
//! ```
//!
//! State lives in [`Partition`]s, cells that belong to an affinity and open only to the [`Access`]
//! of a running message that the affinity's exclusion protects. This crate knows no block.
//!
//! Architecture invariants:
//! - Exclusion is decided under one short lock (`state`); whoever got an [`Access`] holds its
//!   affinity until the run ends, and nothing else makes an [`Access`].
//! - All unsafe code of the crate is in `partition`.
//! - No message is lost: it ends with [`Outcome::Done`], or it is queued, running or in a
//!   [`Waker`]; only [`Scheduler::halt`] discards.
//! - With one driver ([`Scheduler::run_one`]) the order of runs is a function of the calls and of
//!   the chooser's answers alone.

#![deny(unsafe_code)]

mod access;
mod counters;
mod hierarchy;
mod message;
mod partition;
mod scheduler;
mod state;
mod sync;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, shuttle))]
mod shuttle_tests;

pub use access::{Above, Access};
pub use counters::{Counters, KindCounters};
pub use hierarchy::{AffinityId, AffinityKind};
pub use message::{Carrier, Message, Outcome, Parcel, Starter, Waker};
pub use partition::Partition;
pub use scheduler::{HeldTurn, Scheduler};
