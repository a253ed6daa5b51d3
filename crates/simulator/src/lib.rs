//! The simulator: a whole node in one thread out of one seed, with faults at every door (decision
//! D3, verification layer 3).
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
//! | [`life`] | rounds of work, cuts, recovery and checks |
//! | [`run`] | many seeds on many threads; panics are findings |
//!
//! Invariants: everything follows from the seed, bit for bit: [`trace::Trace::hash`] is the proof.
//! No part of a life knows the time, the machine or another life.
//!
//! Fails: [`Finding`], which names what is wrong; the seed replays it.

pub mod choices;
pub mod finding;
pub mod footprint;
pub mod history;
pub mod life;
pub mod machine;
pub mod media;
#[cfg(feature = "mutations")]
pub mod mutations;
pub mod plan;
pub mod run;
pub mod subject;
pub mod tenant;
pub mod trace;

pub use finding::Finding;
pub use plan::MixChoice;
pub use run::{Lives, Outcome, Summary, first_finding, live_seed, run};
