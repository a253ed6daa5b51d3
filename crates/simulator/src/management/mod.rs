//! What an administrator does in a life, beside the operations of clients: disks join, groups
//! leave, volumes get tiering policies, scrubs are ordered, images are pinned for a check.
//!
//! Invariants: a file here knows the machine, and no life. What is asked of an engine is forgotten
//! with it.

pub mod growth;
pub mod online_check;
pub mod removal;
pub mod scrubs;
pub mod splits;
pub mod tiering;
