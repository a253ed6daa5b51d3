//! What happened since the start.

/// What happened since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Blocks that failed their proof or could not be read, and were made good from parity.
    pub repaired_blocks: u64,
    /// Blocks that could not.
    pub damaged_blocks: u64,
    /// Reads that were answered from parity because a disk is missing.
    pub degraded_reads: u64,
    /// Tetrises written.
    pub tetris_writes: u64,
    /// Of them those that had partial stripes.
    pub partial_tetris_writes: u64,
    /// Stripes written, of groups with parity.
    pub stripes: u64,
    /// Of them those in which every data disk had a new block: they cost no read.
    pub full_stripes: u64,
    /// Those of which old parity was read, and not the blocks that stay.
    pub modified_stripes: u64,
    /// Requests to disks for the writing of tetrises.
    pub device_writes: u64,
    /// Blocks in them.
    pub device_blocks: u64,
}
