//! Hours of mixed load on the real server, with SIGKILL in between: nothing may be lost, and memory
//! and latencies must stay what they are.
//!
//! | module | what |
//! | --- | --- |
//! | [`mod@run`] | the conductor: lives of the server, kills, restarts, checks |
//! | `load` | who works: clients, writers, programs |
//! | [`control`] | what all threads know of the server |
//! | [`hard_mount`] | a connection that repeats its calls over kills |
//! | [`mirror`] | NFS clients that know what must be there, to the byte |
//! | [`snapshots`] | snapshots with rotation, compared with what was there |
//! | [`reader`] | reads over FUSE |
//! | [`report`] | a line for each interval, the summary, the picture |
//!
//! Over NFS clients go on over kills, as kernels with hard mounts do. Over FUSE writers and
//! programs end with the server and begin again, as [`crate::rounds`] has them. Data come and go at
//! the same pace, so that a run can last as long as one likes in the same space.
//!
//! Fails: with the first [`crate::Failure`].

pub mod control;
pub mod hard_mount;
mod load;
pub mod mirror;
pub mod reader;
pub mod report;
pub mod run;
pub mod snapshots;

pub use run::{Plan, run};
