//! The simulator: a whole node in one thread out of one seed, with faults at every door (decision
//! 6; docs/testing.md, section 5).
//!
//! A seed chooses disks, protection, log, memory and volumes; the operations of `model-fs` that run
//! on the engine and on the model at once; which message runs next and which request completes
//! next; when the power goes, what of the unflushed writes is lost or torn; and what is wrong with
//! which disk. After each cut the node is opened again, and what is there must be something that
//! the history allows.
//!
//! The rooms stand on one another, the lowest first: each imports from those above it in this table
//! only.
//!
//! | room | what it does |
//! | --- | --- |
//! | [`seed`] | choices, what is left out, what was met and found |
//! | [`plan`] | what kind of node a seed has |
//! | [`machine`] | the world and the engine on it; one step at a time |
//! | [`checks`] | space and media of a node at rest |
//! | [`tenant`] | one volume on both sides, what is in flight, its history |
//! | [`faults`] | disks and logs that do not do what they should |
//! | [`management`] | growth, removal, tiering, scrubs, checks |
//! | [`life`] | rounds of work, cuts, recovery and checks |
//! | `operator` | a node that is managed by calls of an administrator, and by nothing else |
//! | `nfs` | clients over a network instead of operations at the engine's interface |
//! | [`runs`] | many seeds on many threads; boundaries; findings made small; broken rules |
//!
//! Invariants: everything follows from the seed, bit for bit: [`seed::trace::Trace::hash`] is the
//! proof.
//! No part of a life knows the time, the machine or another life.
//!
//! Fails: [`Finding`], which names what is wrong; the seed replays it.

#![forbid(unsafe_code)]

pub mod checks;
pub mod faults;
pub mod life;
pub mod machine;
pub mod management;
mod nfs;
mod operator;
pub mod plan;
pub mod runs;
pub mod seed;
pub mod tenant;

pub use runs::run::{Outcome, Summary, first_finding, live_seed, run};
pub use seed::finding::Finding;
pub use seed::lives::{FrontEnd, Lives, MixChoice};
pub use seed::reduction::Reduction;
