//! A volume that holds very much, most of it in holes: sparse files with some blocks written.
//!
//! Invariants: what is written follows from the numbers of the writes, so that two volumes of one
//! size are alike.

use super::rig::{NAME, Numbers, Outcome, Rig};
use crate::node::BenchError;
use file_service::{FileHandle, Stability};
use volume::SnapshotRequest;

/// Writes in flight.
pub(super) const DEPTH: usize = 32;
/// The sizes that are compared.
pub(super) const SIZES: [(&str, u64); 3] =
    [("1 GiB", 1 << 30), ("100 GiB", 100 << 30), ("100 TiB", 100 << 40)];
/// The largest file here: the engine takes none of 100 TiB.
const FILE_BYTES_MAX: u64 = 4 << 40;
/// A volume is so much larger than its files: room for what the snapshots hold, and for its maps.
pub(super) const VOLUME_SHARE: u64 = 2;
/// Blocks of the files that are written before the first snapshot.
const FIRST_WRITES: u64 = 20_000;
/// Writes between two snapshots.
const WRITES: u64 = 20;

/// See the module.
pub(super) struct SparseVolume<'r> {
    rig: &'r Rig,
    files: Vec<FileHandle>,
    /// The length of each file.
    pub file_bytes: u64,
    numbers: Numbers,
}

impl<'r> SparseVolume<'r> {
    /// Makes the files, and writes some of their blocks.
    pub fn new(rig: &'r Rig, bytes: u64) -> Result<Self, BenchError> {
        let (root, count) = (rig.root(NAME)?, bytes.div_ceil(FILE_BYTES_MAX));
        let file_bytes = bytes / count;
        let mut files = Vec::new();
        for number in 0..count {
            let file = rig.file(root, &format!("data{number}"))?;
            rig.set_size(file, file_bytes)?;
            files.push(file);
        }
        let mut made = Self { rig, files, file_bytes, numbers: Numbers(5) };
        for at in 0..count {
            made.write(at, made.first_writes())?;
        }
        Ok(made)
    }

    /// Blocks of each file that are written before the first snapshot.
    pub const fn first_writes(&self) -> u64 {
        FIRST_WRITES / self.files.len() as u64
    }

    /// Writes blocks of one of the files.
    pub fn write(&mut self, at: u64, count: u64) -> Result<Outcome, BenchError> {
        let file = self.files[at as usize % self.files.len()];
        let (target, load) = ((file, self.file_bytes), (DEPTH, count));
        self.rig.write_at_random(target, load, Stability::Unstable, &mut self.numbers)
    }

    /// Makes snapshots with these numbers, with a few writes before each.
    pub fn snapshots(&mut self, numbers: std::ops::Range<u64>) -> Result<(), BenchError> {
        for number in numbers {
            self.write(number, WRITES)?;
            let name = format!("snapshot-{number:04}");
            self.rig.snapshot(SnapshotRequest::Create(name))?;
        }
        Ok(())
    }
}
