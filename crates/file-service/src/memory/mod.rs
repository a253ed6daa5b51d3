//! A [`crate::FileService`] wholly in memory: plain and obviously right rather than fast.
//!
//! It is the reference that the engine is compared with, and what front ends are tested against.
//! One lock around everything; every call is answered before it returns.
//!
//! Invariants:
//! - Deterministic: the same calls at the same times of the same clock give the same answers, inode
//!   numbers, generations and cookies included.
//! - The lock is not held while an answer is delivered, so a callback may call again.
//! - Every rule is one of [`crate::rules`] or [`crate::permission`]; the files here only keep
//!   books.
//!
//! Not here: snapshots (`.snapshot` is `NotFound`), durability (what is answered lasts as long as
//! the object; the write verifier never changes).

mod content;
mod data;
mod namespace;
mod node;
mod service;
mod volume;

#[cfg(test)]
mod tests;

pub use volume::VolumeOptions;

use crate::rules::{entries, names};
use crate::{FileHandle, FsError, Limits};
use platform::Clock;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::VolumeUuid;
use volume::Volume;

/// Largest file: 16 TiB, less than the engine takes.
const FILE_BYTES_MAX: u64 = 16 << 40;
/// Largest read or write: what Linux clients ask for at most.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// "Stroop" in ASCII, the lower half of all identities here: no volume of an engine has one.
const IDENTITY_HALF: u128 = 0x5374_726f_6f70;
const WRITE_VERIFIER: u64 = 1;

/// Volumes in memory. See the module.
pub struct MemoryFileSystem {
    clock: Arc<dyn Clock>,
    limits: Limits,
    volumes: Mutex<BTreeMap<VolumeUuid, Volume>>,
}

impl MemoryFileSystem {
    /// No volumes yet; times come from `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let limits = Limits {
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            file_bytes_max: FILE_BYTES_MAX,
            links_max: entries::LINKS_MAX,
            name_bytes_max: names::NAME_BYTES_MAX as u32,
        };
        Self { clock, limits, volumes: Mutex::new(BTreeMap::new()) }
    }

    /// The same with the limits of another service, to compare the two at their edges. The limits
    /// of names and links are the rules' and stay.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits.transfer_bytes_max = limits.transfer_bytes_max;
        self.limits.file_bytes_max = limits.file_bytes_max;
        self
    }

    /// Adds a volume with an empty root directory.
    ///
    /// # Errors
    /// `Exists` if there is one of this name.
    pub fn add_volume(&self, name: &str, options: VolumeOptions) -> Result<VolumeUuid, FsError> {
        let now = self.clock.wall();
        let mut volumes = self.volumes.lock();
        if volumes.values().any(|volume| volume.name == name) {
            return Err(FsError::Exists);
        }
        let number = volumes.len() as u128 + 1;
        let volume = VolumeUuid((number << 64 | IDENTITY_HALF).to_be_bytes());
        volumes.insert(volume, Volume::new(name, volume, options, now));
        Ok(volume)
    }

    /// Checks every invariant of every volume: link counts, parents, space.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn verify(&self) {
        self.volumes.lock().values().for_each(Volume::verify);
    }

    /// Makes an empty directory a quota tree, unless it is one.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`, `NotEmpty`; `Invalid` for the root directory, `CrossDevice` within
    /// a tree.
    pub fn make_tree(&self, directory: FileHandle) -> Result<(), FsError> {
        let mut volumes = self.volumes.lock();
        volumes.get_mut(&directory.volume).ok_or(FsError::Stale)?.make_tree(directory)
    }

    /// Whether a file is the directory of a quota tree.
    #[must_use]
    pub fn is_tree(&self, file: FileHandle) -> bool {
        let volumes = self.volumes.lock();
        let node = volumes.get(&file.volume).and_then(|volume| volume.node(file).ok());
        node.is_some_and(|node| node.tree == file.inode.get())
    }

    /// Files that exist in the volume of `handle`, those included that are unlinked and held.
    #[must_use]
    pub fn file_count(&self, handle: FileHandle) -> usize {
        self.volumes.lock().get(&handle.volume).map_or(0, |volume| volume.nodes.len())
    }
}
