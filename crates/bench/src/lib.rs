//! Benches: figures, never tests.
//!
//! [`engine()`] runs loads against an engine on file-backed disks of its own, through the same
//! [`file_service::FileService`] that the front ends use, so that what is measured is the engine
//! and not a protocol. Beside each figure that the disk bounds stands what the bare disk does in
//! the same run.
//!
//! Invariants: a figure is the median of several rounds, printed with the lowest and the highest; a
//! load that fails ends the bench with its error.

mod engine;
mod node;
mod raw;
mod summary;

pub use engine::{EngineBench, engine};
pub use node::BenchError;
pub use summary::Figure;
