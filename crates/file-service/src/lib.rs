//! The table of calls ([`calls`]) that every front end makes and every backend answers: files,
//! directories and attributes, without a word about blocks or protocols. The trait [`FileService`]
//! and the messages on a wire ([`wire`]) are made from it.
//!
//! Front ends (`nfs`, `fuse`) decode a protocol into these calls; the engine (`operations`) and
//! the memory backend of this crate (feature `testing`) answer them. Because both answer the same
//! trait, a protocol can be tested without the engine and the engine without a protocol.
//!
//! Invariants:
//! - A call never blocks its caller: the answer arrives through its [`Done`] callback, on any
//!   thread, possibly before the call returns.
//! - Every callback is called exactly once.
//! - Permission checks are made by the backend, from [`Caller`]; mapping an address or a
//!   credential to a caller (squashing root, say) is the front end's.
//! - An error is one of [`FsError`]; the mapping to a protocol's numbers is made in [`error`] only.
//!
//! Fails: by [`FsError`]; nothing here panics on what a client sent.

#![forbid(unsafe_code)]

pub mod acl;
pub mod attributes;
pub mod caller;
#[macro_use]
pub mod calls;
pub mod error;
pub mod handle;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
pub mod permission;
pub mod requests;
pub mod rules;
pub mod wire;

pub use acl::AccessList;
pub use attributes::{Attributes, FileKind, FileSystemStatistics, SetAttributes, SetTime};
pub use caller::{Caller, Durability};
pub use calls::{Call, CallKind, Done, FileService, Limits, OpenUse, Reply, Request};
pub use error::FsError;
pub use handle::{FileHandle, HandleKey, Hold, Opener, SealedHandle};
pub use requests::{
    Allocation, CommitResult, CreateMode, DirectoryEntry, DirectoryPage, Entry, NewNode,
    NodeChange, ReadData, RenameFlags, SeekTarget, Stability, WriteResult, XattrSetMode,
};
