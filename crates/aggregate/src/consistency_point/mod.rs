//! Consistency points: the whole aggregate from one image to the next (FlexVol section 2, decision
//! 8). The states are a table of [`crate::service::state`].
//!
//! - *Freezing* (Aggregate affinity, so nothing else runs): the steps of [`freeze::Freeze::STEPS`].
//! - *CleaningMembers* (each in its Volume VBN affinity, in parallel with operations).
//! - *CleaningAggregate* (Aggregate VBN affinity): container maps, volume table, free map
//!   ([`cleaning`]).
//! - *Syncing*: all blocks durable.
//! - *Sealing*: the superblock on every disk, durable. This is the commit ([`sealing`]).
//! - *Committing* (Aggregate affinity): the steps of [`commit::Commit::STEPS`].
//!
//! Invariants: one at a time. What takes part in a freeze or a commit stands in their tables, in
//! the order in which it is called, with the reason for its place. A failure on the way leaves the
//! last superblock as it was and takes the aggregate out of service.

pub mod cleaning;
pub mod commit;
pub mod freeze;
mod sealing;
pub mod steps;
