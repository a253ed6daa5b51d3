//! Operations on the content of regular files.
//!
//! Reads and writes come in two ways. [`Read`] and [`WriteMutation`] run on a transaction, in the
//! Volume Logical affinity, and do everything. [`stripe`] does the common case in a stripe's
//! affinity (Waffinity section 4.2): a range within one stripe of a file that is in memory.

pub mod allocate;
pub mod commit;
pub mod read;
pub mod seek;
pub mod stripe;
pub mod write;

pub use allocate::Allocate;
pub use commit::{Commit, CommitReply};
pub use read::Read;
pub use seek::Seek;
pub use write::{WriteMutation, Written};
