//! Finding free blocks: which region of a block number space to fill next (FreeSpace section 3).
//!
//! A space is divided into *allocation areas*. The write allocator asks a cache for the best area,
//! takes all its free blocks in order, and comes back. The caches work from *scores*, the count of
//! free blocks of an area; they are told of changes in batches, at the end of a consistency point.
//!
//! - [`AreaHeap`]: all areas of a RAID group, where the very best one matters.
//! - [`Hbps`]: nearly the best of any number of areas in two pages, where it does not: in volumes
//!   and object stores.
//! - [`StripeAreas`]: which stripes of a group are in which area.
//!
//! Invariants: scores are hints. A wrong one costs a detour, never a block: the free map decides.
//! Nothing here reads or writes.

#![forbid(unsafe_code)]

mod choice;
mod hbps;
mod heap;
mod stripes;

pub use choice::{AreaChoice, Chance, Picks};
pub use hbps::Hbps;
pub use heap::AreaHeap;
pub use stripes::StripeAreas;
