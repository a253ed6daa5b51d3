//! Property tests: volumes on simulated disks beside naive models.

mod delayed;
mod lifecycle;
mod model;
mod room;
mod twin;
