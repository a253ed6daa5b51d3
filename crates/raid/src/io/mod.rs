//! Reads and writes blocks: one tetris at a time, with identities beside them and parity across.

mod blame;
mod cache;
mod counters;
mod discard;
mod load;
mod locking;
mod noting;
mod parts;
mod read;
mod reconstruct;
mod recover;
mod resolve;
mod sync;
mod write;

pub(crate) use cache::ChecksumCache;
pub use counters::Counters;
pub(crate) use locking::ClosedGroup;
pub(crate) use noting::Notes;
pub(crate) use parts::parts_of_column;
