//! RAID: blocks by PVBN above disks, with identities beside them and parity across them
//! (FreeSpace sections 3.2.4 and 4.2; decisions 11, 19, 22, 32).
//!
//! A group is some data disks and none to three parity disks (`stripe/parity.rs`). Every disk is
//! divided into regions of 64 blocks: 63 of data and the checksum block with their identities. A
//! *tetris* is one region across all disks of a group: 63 stripes of data and the stripe of
//! checksum blocks, which has parity like every other. The tetris is the unit of writing and of
//! mutual exclusion.
//!
//! The crate is divided into rooms. Each knows those before it only, has its own state, and is
//! called by what its `mod.rs` shows:
//!
//! | Room | What it does |
//! | --- | --- |
//! | `layout` | which groups and disks there are, which block lies where; no state |
//! | `stripe` | what follows from the blocks of a row; no state |
//! | `membership` | places and the disks that have them, labels, superblocks, spares, errors |
//! | `io` | reads and writes tetrises, one piece of work in each at a time |
//! | `repair` | fills disks: rebuild, resync, copy |
//! | `patrol` | scrub |
//! | `resizing` | disks and groups that join, groups that leave |
//! | `opening` | creates an aggregate, or puts one together |
//!
//! Locks are taken in this order: the scrub, or a label; the state of `membership`; that of `io`.
//!
//! Invariants:
//! - After a successful [`BlockStore::sync`] every block written before it is readable, with any
//!   disks of each group lost, as many as it has parity disks.
//! - Parity is computed from blocks that were proved, or that no one can prove: damage is never
//!   folded into parity while parity could still undo it.
//! - Blocks in use are never overwritten, except by their own content (repair). So a crash can
//!   damage parity and identities of blocks in use only in stripes that were written in part, and
//!   those were noted in the [`PartialParityLog`] first.
//! - A disk that missed a write is marked missing in the labels of the others before `sync`
//!   succeeds; what it holds is not used again before it was rebuilt, or brought up to date.
//! - A disk that is filled beside one in use counts for nothing until it has the place, and the
//!   other for nothing after that.
//! - Work on one tetris happens one piece at a time; everything else is concurrent.
//!
//! Fails: [`RaidError`] when an aggregate cannot be created or put together, [`StoreError`] when
//! writes cannot be made durable (from then on every `sync` fails), [`ReadFailure`] when a block
//! can neither be read nor reconstructed.

#![forbid(unsafe_code)]

mod allowance;
mod block_store;
mod disk_administration;
mod error;
mod io;
mod layout;
mod membership;
mod opening;
mod partial_parity_log;
mod patrol;
mod proof;
mod repair;
mod request;
mod resizing;
mod status;
mod store;
mod stripe;
mod walk;

#[cfg(test)]
mod tests;

pub use allowance::Allowance;
pub use block_store::BlockStore;
pub use disk_administration::{DiskAdministration, ManagedStore};
pub use error::{Expectation, RaidError, ReadFailure, StoreError};
pub use io::{ChecksumMemory, Counters};
pub use layout::{DiskPlace, DiskRegion, Geometry, GroupGeometry, GroupList, Location, TetrisId};
pub use membership::LogPlace;
pub use membership::{
    ErrorCounts, FAILURES_MAX, FillingStatus, GroupStatus, MemberState, MemberStatus,
    ROTTEN_BLOCKS_MAX, ReplacementStatus, RetiredDisk, SpareStatus, UNREADABLE_BLOCKS_MAX,
    WINDOW_NANOSECONDS, Way as FillingWay,
};
pub use opening::{CreateRequest, GroupRequest, assemble, create};
pub use partial_parity_log::{NoPartialParityLog, PartialParityLog, PartialParityNote};
pub use patrol::{ScrubDone, ScrubFinding, ScrubOrder, ScrubStatus, UseQuery};
pub use proof::{OwnerTest, Proof};
pub use request::{
    BlockRead, BlockWrite, FailureHook, GrowDone, NewDisk, NewGroup, ReadDone, ReplaceDone,
    RunDone, RunProofs, SuperblockCopy, SuperblocksDone, SyncDone, WriteHook,
};
pub use status::Status;
pub use store::Store;
pub use stripe::parity_of_row;
pub use walk::Pace;
