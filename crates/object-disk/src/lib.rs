//! Object ranges: a disk whose blocks lie in the objects of an S3 bucket or of a directory. It is
//! the storage of FreeSpace section 3.1 that is redundant by itself, so that an aggregate lies on
//! it without RAID and its allocation areas are just consecutive blocks.
//!
//! The engine sees a [`platform::Disk`] and nothing else: label, superblocks and regions lie on it
//! as on every disk ([`geometry`]). A data object holds many blocks and is always put whole, which
//! object stores do atomically; a copy-on-write file system fills most objects in one go.
//!
//! | file | what |
//! | --- | --- |
//! | `name.rs` | how an operator names a range |
//! | `geometry.rs` | which object holds a block, and its key |
//! | `limits.rs` | every limit, with its reason |
//! | `requests.rs` | requests to a store with retries; errors without secrets |
//! | `pending.rs` | what is in memory: changes, uploads, who waits. No I/O |
//! | `upload.rs`, `read.rs` | the traffic |
//! | `lease.rs`, `lock.rs`, `fence.rs` | one process at a time |
//! | `disk.rs`, `opener.rs` | the disk, and how it is opened |
//!
//! Invariants:
//! - What a completed flush covers is in the store. After a crash each object is what it was or
//!   what was put last: never a mixture, because a put replaces an object as a whole.
//! - Puts of an object follow one another. In a bucket each is conditional on the version that it
//!   was made from, so that nothing which a dead or deposed process sent late replaces what is
//!   newer.
//! - A disk call never blocks, and its completion runs on a thread of this crate.
//! - Credentials come from the environment and are never in a name, a log line or an error.
//!
//! Fails: a request that fails after its retries gives [`platform::DiskError::Io`], which names the
//! object; its blocks stay in memory, and the next flush tries again. Without the lease every flush
//! fails with [`platform::DiskError::Gone`].

#![forbid(unsafe_code)]

mod disk;
mod error;
mod executor;
mod fence;
mod geometry;
mod lease;
mod limits;
mod lock;
mod name;
mod opener;
mod pending;
mod read;
mod requests;
mod upload;

#[cfg(test)]
mod tests;

pub use limits::{LIMITS_DEFAULT, Limits, memory_bytes_of};
pub use name::{NameError, RangeName, is_range_name};
pub use opener::{Environment, ObjectDiskOpener};
