//! RAID: blocks by PVBN above disks, with identities beside them and parity across them
//! (FreeSpace sections 3.2.4 and 4.2; decisions 11, 19, 22, 32).
//!
//! A group is some data disks and none to three parity disks ([`parity`]). Every disk is divided
//! into regions of 64 blocks: 63 of data and the checksum block with their identities. A *tetris*
//! is one region across all disks of a group: 63 stripes of data and the stripe of checksum blocks,
//! which has parity like every other. The tetris is the unit of writing and of mutual exclusion.
//!
//! Invariants:
//! - After a successful [`BlockStore::sync`] every block written before it is readable, with any
//!   disks of each group lost, as many as it has parity disks.
//! - Parity is computed from blocks that were proved, or that no one can prove: damage is never
//!   folded into parity while parity could still undo it.
//! - Blocks in use are never overwritten, except by their own content (repair). So a crash can
//!   damage parity and identities of blocks in use only in stripes that were written in part, and
//!   those were noted in the [`StripeJournal`] first.
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

mod assemble;
mod block_store;
mod cache;
mod discard;
mod error;
mod failure;
mod geometry;
mod group_list;
mod growth;
mod health;
mod label;
mod layout;
mod load;
mod locking;
mod member;
mod noting;
mod parity;
mod partial_parity;
mod parts;
mod read;
mod rebuild;
mod reconstruct;
mod recover;
mod removal;
mod replacing;
mod resolve;
mod returning;
mod rows;
mod scrub;
mod spares;
mod stable;
mod status;
mod store;
mod successor;
mod superblock;
mod sync;
mod walk;
mod write;

#[cfg(test)]
mod tests;

pub use assemble::{CreateRequest, GroupRequest, assemble, create};
pub use block_store::{
    BlockRead, BlockStore, BlockWrite, FailureHook, NoJournal, OwnerTest, Proof, ReadDone, RunDone,
    StripeJournal, StripeNote, SuperblockCopy, SuperblocksDone, SyncDone,
};
pub use discard::DiskRegion;
pub use error::{Expectation, RaidError, ReadFailure, StoreError};
pub use geometry::{Geometry, GroupGeometry, Location, TetrisId};
pub use group_list::GroupList;
pub use growth::{GrowDone, NewDisk, NewGroup};
pub use health::{
    ErrorCounts, FAILURES_MAX, ROTTEN_BLOCKS_MAX, RetiredDisk, UNREADABLE_BLOCKS_MAX,
    WINDOW_NANOSECONDS,
};
pub use parity::parity_of_row;
pub use replacing::{DiskPlace, ReplaceDone};
pub use scrub::{ScrubDone, ScrubFinding, ScrubOrder, ScrubStatus, UseQuery};
pub use status::{
    Counters, GroupStatus, MemberState, MemberStatus, SpareStatus, Status, SuccessorStatus,
};
pub use store::Store;
pub use walk::Pace;
