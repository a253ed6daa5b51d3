//! Quotas: what users, groups and trees use of a volume, and may use.
//!
//! Two sides, as everywhere in this crate. A consistency point counts usage into the quota file
//! ([`table`]), which belongs to its image: what a file uses is what its inode says, so usage is
//! exact in each image, and needs no repair after a crash. Operations ask the [`ledger`], which has
//! what the last image counted and what was promised since.
//!
//! Counting begins when a volume gets its first limit. Files that it has by then are counted in the
//! background; limits hold when all are.
//!
//! Source: `ondisk::quota` for the format.

pub(crate) mod counting;
pub mod ledger;
pub mod table;

use ondisk::inode::{KIND_ATTRIBUTES, KIND_REGULAR, KIND_SYMLINK, PAYLOAD_SIZE};

/// Whether a file of this size may lie in its inode, and take no block.
#[must_use]
pub const fn is_tiny(kind: u8, size: u64) -> bool {
    matches!(kind, KIND_REGULAR | KIND_SYMLINK | KIND_ATTRIBUTES) && size <= PAYLOAD_SIZE as u64
}

pub use ledger::{Admission, Admitted, Charge, QuotaRoom, Quotas, Refusal, Room, Source};
pub use table::{Limits, Passed, QuotaChange, QuotaFile, QuotaTarget};
