//! What the big loads are run with, and where their figures go.

use super::rig::Shape;
use std::path::PathBuf;
use units::ByteSize;

/// Takes a figure: what was done and what came out.
pub(super) type Report<'a> = &'a mut dyn FnMut(&str, String);

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct BigBench {
    /// A directory for sparse disks.
    pub directory: PathBuf,
    /// The memory of the engine.
    pub memory: ByteSize,
    /// Threads of the engine.
    pub workers: usize,
    /// Files in one directory.
    pub directory_files: u64,
    /// Inodes in a volume.
    pub inodes: u64,
    /// Writes to the sparse file.
    pub sparse_writes: u64,
    /// The file that is removed; the disk needs that much room.
    pub reclaim: ByteSize,
    /// Snapshots of a volume.
    pub snapshots: u64,
}

impl BigBench {
    /// Disks of `bytes` together, one without parity or three and one for parity.
    pub(super) fn shape(&self, protected: bool, bytes: u64) -> Shape {
        Shape {
            directory: self.directory.clone(),
            disks: if protected { 4 } else { 1 },
            disk_bytes: if protected { bytes / 3 } else { bytes },
            volume_bytes: bytes,
            memory_bytes: self.memory.0,
            workers: self.workers,
        }
    }
}
