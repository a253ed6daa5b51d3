//! The rules of POSIX (as Linux refines them) as pure functions over [`crate::Attributes`].
//!
//! A backend reads the attributes of the files that an operation touches, asks the rule here, and
//! then changes its own structures. The memory backend and the engine's `operations` call the same
//! functions, so they refuse the same things in the same order.
//!
//! Invariants: no I/O and no state; a rule decides before anything is changed; existence, emptiness
//! and ancestry, which need a directory's content, are the backend's to find out.
//!
//! Fails: by [`crate::FsError`], with the errno that Linux gives on a local file system.

pub mod acls;
pub mod attributes;
pub mod entries;
pub mod names;
pub mod xattrs;

#[cfg(test)]
mod acl_tests;
#[cfg(test)]
mod tests;
