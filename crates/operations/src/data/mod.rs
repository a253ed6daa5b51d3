//! Operations on the content of regular files.
//!
//! Reads and writes come in two ways. `Read` and `Write` run on a transaction, in the
//! Volume Logical affinity, and do everything. [`stripe`] does the common case in a stripe's
//! affinity (Waffinity section 4.2): a range within one stripe of a file that is in memory.

mod allocate;
pub(crate) mod commit;
pub(crate) mod read;
pub mod reallocate;
mod seek;
pub mod stripe;
mod write;

pub use commit::CommitReply;
pub use write::Written;
