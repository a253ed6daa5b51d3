//! Devices: disks that carry our label, and what lies where on them.
//!
//! ```text
//! block  0        label, copy A
//!        8..10    superblock slots 0 and 1
//!        16..     regions of 64 blocks: 63 of data, and their checksum block (AZCS)
//!        last     label, copy B
//! ```
//!
//! Invariants:
//! - No disk is labelled that holds anything of somebody's, unless the caller forces it.
//! - Labelling clears the reserved area, so that no superblock of an earlier life is found.
//! - A label changes one copy at a time, with a flush between: one of them is always whole.
//!
//! Fails: [`MediaError`] names the disk, what was found on it and what to do next.

#![forbid(unsafe_code)]

mod device;
mod error;
mod layout;
mod profile;
mod signature;
mod zero;

#[cfg(test)]
mod tests;

pub use device::{Device, DeviceDone, check_unused, initialize, open, read_label};
pub use error::MediaError;
pub use layout::{
    DATA_START, DISK_BLOCKS_MIN, DeviceLayout, LABEL_BLOCK, RESERVED_END_BLOCKS, SUPERBLOCK_BLOCK,
    SUPERBLOCK_SLOTS, regions_of,
};
pub use profile::{ERASE_BLOCK_BYTES_DEFAULT, ParseProfileError, Profile, ZONE_BYTES_DEFAULT};
pub use signature::{Found, PROBED_BLOCKS, identify};
pub use zero::{ZeroDone, Zeroing, zero};
