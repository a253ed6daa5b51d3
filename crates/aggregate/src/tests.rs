//! Property tests: an aggregate on simulated disks beside naive models.

mod containers;
mod host;
mod pool;
mod relocation;
mod twin;
