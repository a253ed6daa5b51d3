//! Jobs: the long work of a node, each with a number that stays the same over restarts.
//!
//! The engine is asked what long work it does ([`works`]); what it says is matched with the jobs
//! that are known ([`table`]). A file keeps which jobs there are ([`stored`]). It is written when a
//! job begins, changes its state or ends, and not as a job gets on: how far the work is, the engine
//! knows after a restart, too (decision 37).
//!
//! Invariants: a number is given once; two looks at the engine are taken in the order in which they
//! were made; a job that is over never goes on.
//!
//! Fails: a file that cannot be read costs the history, never the start of the node; one that
//! cannot be written is tried again with the next look.

mod changes;
mod job;
mod room;
mod stored;
mod table;
mod works;

#[cfg(test)]
pub(crate) use job::{Identities, Key};
pub(crate) use job::{Job, Subject};
pub(crate) use room::Jobs;
#[cfg(test)]
pub(crate) use table::Table;
