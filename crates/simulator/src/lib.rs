//! The simulator: a whole node in one thread out of one seed, with faults at every door (decision
//! 6; docs/testing.md, section 5).
//!
//! A seed chooses disks, protection, log, memory and volumes; the operations of `model-fs` that run
//! on the engine and on the model at once; which message runs next and which request completes
//! next; when the power goes, what of the unflushed writes is lost or torn; and what is wrong with
//! which disk. After each cut the node is opened again, and what is there must be something that
//! the history allows.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`plan`] | what kind of node a seed has |
//! | [`machine`] | the world and the engine on it; one step at a time |
//! | [`tenant`] | one volume on both sides, what is in flight, its history |
//! | [`schedule`], [`overlap`] | who is next, and who runs in the middle of another |
//! | [`losses`], [`outage`] | disks that go and come back: as many as parity covers, and more |
//! | [`neighbours`] | other aggregates of the node, one of them slow or dead |
//! | `sickness` | a disk with many errors, and whether they are counted and kept |
//! | `nfs` | clients over a network instead of operations at the engine's interface |
//! | [`life`] | rounds of work, cuts, recovery and checks |
//! | [`run`] | many seeds on many threads; panics are findings |
//! | [`boundaries`] | one seed, cut at each of its writes and flushes |
//! | [`reduction`], [`shrink`] | a finding made small enough to read |
//! | `mutations` | whether rules that are broken on purpose are noticed |
//!
//! Invariants: everything follows from the seed, bit for bit: [`trace::Trace::hash`] is the proof.
//! No part of a life knows the time, the machine or another life.
//!
//! Fails: [`Finding`], which names what is wrong; the seed replays it.

#![forbid(unsafe_code)]

mod beside;
pub mod boundaries;
pub mod choices;
mod clock;
pub mod cut;
pub mod damage;
pub mod finding;
pub mod footprint;
pub mod growth;
pub mod history;
mod kills;
pub mod life;
pub mod log_faults;
pub mod losses;
pub mod machine;
pub mod media;
#[cfg(feature = "mutations")]
pub mod mutations;
pub mod neighbours;
mod nfs;
pub mod online_check;
pub mod outage;
pub mod overlap;
pub mod plan;
mod recovery;
pub mod reduction;
mod removal;
pub mod run;
pub mod schedule;
mod scrubs;
pub mod shrink;
mod sickness;
pub mod slots;
pub mod space;
pub mod subject;
pub mod tenant;
pub mod tiering;
pub mod trace;
mod volumes;
mod workload;

pub use finding::Finding;
pub use plan::MixChoice;
pub use reduction::Reduction;
pub use run::{FrontEnd, Lives, Outcome, Summary, first_finding, live_seed, run};
