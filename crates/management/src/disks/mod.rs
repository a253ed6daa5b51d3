//! The node's disks as such: which there are, what their labels say, which are in use here, and
//! what is done to those that are not.
//!
//! Invariants: aggregates are names here, and nothing more; nothing is written but the zeroes of
//! [`upkeep`].

pub(crate) mod deleted;
pub(crate) mod labels;
pub(crate) mod locating;
mod looks;
pub(crate) mod names;
mod owner;
pub(crate) mod shown;
pub(crate) mod table;
pub(crate) mod upkeep;

pub use owner::{DiskOwner, owner_of};
