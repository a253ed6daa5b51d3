//! One file per client operation, over the file system core (`cowfs`).
//!
//! An operation is a call of `file-service` with who asks and when ([`Scoped`]); it is a
//! [`Mutation`] or a [`Query`]. It runs on a [`cowfs::transaction::Transaction`]: it reads what it
//! needs, decides by the rules of `file-service`, and puts its changes into the transaction. If a
//! block is missing it stops, nothing has happened, and it runs again from the top (decision 4).
//! What it did it also says as records for the log ([`Record`]), which [`replay()`] applies after a
//! crash (decision 10).
//!
//! Who runs a mutation does, in one message of the Volume Logical affinity:
//! `execute`, [`cowfs::transaction::Transaction::promise`] with the spender it names, append the
//! records to the log, apply, and answer when the last record is durable. A mutation without
//! records has changed nothing, or nothing that a crash may not undo, but what it saw may not be
//! durable yet: its answer waits for all that is in the log before it.
//!
//! Reads and writes within one stripe need no more than the stripe's affinity: [`data::stripe`].
//!
//! Architecture invariants:
//! - This crate performs no I/O, knows no scheduler and no log, and keeps no state.
//! - A rule of POSIX is asked of `file_service::rules`, never decided here.
//! - What a record carries is decided; replay chooses nothing and asks for no permission.
//!
//! Fails: by [`OperationStop`].

#![forbid(unsafe_code)]

mod apply;
mod attributes;
mod directory_file;
mod environment;
mod file;
mod holder;
mod lists;
mod mutation;
mod stop;
mod view;

mod access;
mod acls;
mod create;
mod create_unnamed;
pub mod data;
pub mod format;
mod get_attributes;
pub mod holds;
mod link;
mod lookup;
mod make_node;
pub mod quota_trees;
mod read_directory;
mod read_link;
pub mod reap;
mod remove;
mod remove_directory;
mod rename;
pub mod replay;
mod set_attributes;
mod xattrs;

#[cfg(test)]
mod tests;

pub use environment::{Environment, Scope, Scoped};
pub use file::Files;
pub use get_attributes::GetRoot;
pub use make_node::MakeNode;
pub use mutation::{Executed, Mutation, Query, Record};
pub use reap::{Reap, Reaped};
pub use replay::{record_file, record_volume, replay, replay_without_list};
pub use stop::{OperationStop, Outcome, RecordError};
