//! Every persistent structure of Stroop, its `validate()` and `Display`, and nothing else
//! (decision 13).
//!
//! Invariants: `repr(C)`, little-endian, no implicit padding, sizes asserted at compile time,
//! reserved fields named and zero. Nothing here allocates, performs I/O or knows who calls.
//!
//! Fails: [`damage::Damage`] says which structure is wrong and how; no bytes whatever panic.

#![forbid(unsafe_code)]

pub mod acl;
pub mod damage;
pub mod directory;
mod feature_name;
pub mod features;
pub mod identity;
pub mod inode;
pub mod label;
pub mod log;
pub mod log_copies;
pub mod medium;
pub mod newer;
pub mod object_range;
pub mod operation;
pub mod pointer;
pub mod quota;
pub mod records;
pub mod root;
pub mod scrub;
pub mod top_areas;
pub mod versions;
pub mod xattr;
