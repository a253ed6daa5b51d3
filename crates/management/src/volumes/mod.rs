//! Volumes: seen, made, changed and deleted, with their snapshots, export rules and policies.
//!
//! Invariants: what is answered is durable; NFS clients see a change only then.
//!
//! Fails: by `AdminError`.

mod changes;
mod clones;
pub(crate) mod comparisons;
mod deletion;
pub(crate) mod differences;
mod due;
mod exported;
pub(crate) mod looks;
mod naming;
mod offline;
mod origins;
mod policies;
mod quota_trees;
pub(crate) mod quotas;
mod recovery_queue;
mod room;
pub(crate) mod schedules;
mod snapshots;
mod space;
pub(crate) mod splits;
mod sync;
mod view;

pub(crate) use due::Due;
pub(crate) use recovery_queue::RecoveryQueue;
pub(crate) use room::Volumes;
pub(crate) use space::Space;
