//! The file system core, written once and used twice (FlexVol section 3): over VVBNs within a
//! volume, where a file is a user's file, and over PVBNs within an aggregate, where a file is a
//! volume's container. Generic over the format of block pointers ([`pointer::Pointer`]).
//!
//! Two sides, as in Waffinity section 4.2. The *logical* side ([`logical`]) is what operations
//! change: inodes, and dirty blocks in overlays. The *block* side ([`space`]) is what consistency
//! points change: free maps and snapshots. A consistency point freezes the logical side into an
//! image, cleans the image into a new tree beside the old one ([`image`], [`cleaner`]), and
//! publishes the new roots.
//!
//! Architecture invariants:
//! - The core performs no I/O and waits for nothing: work that needs a block ends with
//!   [`reader::Stop::Wait`] and is run again.
//! - The core knows no volume, no RAID and no log; the space below is a [`image::Backend`].
//! - Trees in memory are those of the last commit and never change; changes lie in overlays.

#![forbid(unsafe_code)]

pub mod accounts;
pub mod budget;
pub mod buftree;
pub mod cache;
pub mod cleaner;
pub mod content;
pub mod differences;
pub mod directory;
pub mod dirty_memory;
pub mod free_map;
pub mod holds;
pub mod image;
pub mod inode;
pub mod inode_file;
pub mod logical;
pub mod orphans;
pub mod overlay;
pub mod pointer;
pub mod quotas;
pub mod ranges;
pub mod reader;
pub mod scatter;
pub mod snapshot;
pub mod space;
pub mod spans;
pub mod stream;
mod stride;
#[cfg(test)]
mod test_media;
pub mod transaction;
