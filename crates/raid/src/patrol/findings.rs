//! What a scrub says of itself.

use crate::layout::TetrisId;
use crate::walk::Pace;
use ondisk::scrub::ScrubPhase;
use std::fmt;
use units::{Pvbn, Timestamp};

/// Something that is damaged beyond repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScrubFinding {
    /// A block that is neither what its identity names nor to be had from parity.
    Block {
        /// Where it is.
        pvbn: Pvbn,
        /// Its disk.
        disk: String,
    },
    /// A checksum block that is neither readable nor to be had from parity.
    Checksums {
        /// Its region.
        tetris: TetrisId,
        /// Its disk.
        disk: String,
    },
    /// A row whose parity contradicts its blocks, and nothing tells which are right; or whose
    /// parity is wrong, and cannot be written before a missing disk was replaced.
    Row {
        /// Its tetris.
        tetris: TetrisId,
        /// The row in it.
        row: usize,
    },
}

impl fmt::Display for ScrubFinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block { pvbn, disk } => write!(formatter, "{pvbn} on disk {disk}"),
            Self::Checksums { tetris, disk } => {
                write!(formatter, "the checksum block of {tetris} on disk {disk}")
            }
            Self::Row { tetris, row } => write!(formatter, "parity of row {row} of {tetris}"),
        }
    }
}

/// A scrub: the last one, or the one under way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubStatus {
    /// Whether it goes on.
    pub phase: ScrubPhase,
    /// Tetrises that it has seen.
    pub done_tetrises: u64,
    /// Tetrises that there are for it.
    pub tetrises: u64,
    /// When it began.
    pub started: Timestamp,
    /// When it ended, was paused or stopped; when it began, while it runs.
    pub ended: Timestamp,
    /// Seconds that it ran.
    pub active_seconds: u64,
    /// Bytes a second that it may read; `None` if there is no limit.
    pub rate: Option<u64>,
    /// How it gets on.
    pub pace: Pace,
    /// Blocks that were read, as far as all disks were there.
    pub read_blocks: u64,
    /// Blocks that there are for it.
    pub blocks: u64,
    /// Blocks on data disks that were repaired.
    pub repaired_data: u64,
    /// Checksum blocks of data disks that were repaired.
    pub repaired_checksums: u64,
    /// Blocks on parity disks that were repaired.
    pub repaired_parity: u64,
    /// What could not be repaired.
    pub damaged: u64,
    /// The first of that since the start of the node.
    pub findings: Vec<ScrubFinding>,
}

impl ScrubStatus {
    /// What was repaired.
    #[must_use]
    pub const fn repaired(&self) -> u64 {
        self.repaired_data + self.repaired_checksums + self.repaired_parity
    }
}
