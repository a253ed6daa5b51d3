//! Which disk has which place, which of them can be used, and what the labels say of it.
//!
//! The room writes labels and superblocks, and nothing else. It never asks the rooms above it: what
//! a disk that takes a place must hold is written by `repair`.

mod error_counts;
mod errors;
mod failure;
mod filled;
mod filling;
mod group_state;
mod label;
mod lost;
mod members;
mod replacement;
mod replacing;
mod returning;
mod sequence;
mod spares;
mod status;
mod superblock;
mod told;

pub use errors::{
    ErrorCounts, FAILURES_MAX, ROTTEN_BLOCKS_MAX, RetiredDisk, UNREADABLE_BLOCKS_MAX,
    WINDOW_NANOSECONDS,
};
pub(crate) use errors::{Known, Trouble, known_of, tell};
pub(crate) use filling::{Rebuild, Task, Way};
pub(crate) use group_state::GroupState;
pub(crate) use lost::{Fate, Lost, Points};
pub(crate) use sequence::first_sequence;
pub use status::{GroupStatus, MemberState, MemberStatus, SpareStatus, SuccessorStatus};
pub(crate) use told::Told;
