//! Disks that are listed, failed, replaced, cleared of errors, zeroed, and looked for.
//!
//! Invariants: a dry run looks, and writes nothing.
//!
//! Fails: by `AdminError`.

mod locate;
mod replacement;
mod room;
mod zero;

pub(crate) use room::DiskAdministration;
