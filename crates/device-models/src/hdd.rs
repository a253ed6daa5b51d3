//! A disk drive with a head that moves, and requests served in the order in which they come.
//!
//! Invariants: writes go through, so a flush moves nothing; but the host waited for it, and what it
//! asks for next has passed the head meanwhile.

use crate::mechanics::{HddConfiguration, Mechanics};
use crate::modelled::{Medium, Modelled};
use platform::{Disk, MediaHints};
use std::sync::Arc;

/// What happened in the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HddStatistics {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Blocks that were read.
    pub blocks_read: u64,
    /// Blocks that were written.
    pub blocks_written: u64,
    /// Requests that began where the one before had ended, with no flush between.
    pub sequential_requests: u64,
    /// Requests for which the head moved.
    pub seeks: u64,
    /// Blocks that it passed for them.
    pub seek_distance_blocks: u64,
    /// Time in which the drive worked.
    pub busy_nanoseconds: u64,
}

/// The drive.
pub struct Hdd {
    mechanics: Mechanics,
    counts: HddStatistics,
}

impl Hdd {
    fn transfer(&mut self, block: u64, count: u64) {
        let motion = self.mechanics.transfer(block, count);
        self.counts.sequential_requests += u64::from(motion.is_sequential);
        self.counts.seeks += u64::from(motion.distance_blocks > 0);
        self.counts.seek_distance_blocks += motion.distance_blocks;
        self.counts.busy_nanoseconds += motion.nanoseconds;
    }
}

/// A disk drive. See the module.
pub type HddModel = Modelled<Hdd>;

impl HddModel {
    /// A drive as large as `inner`, its head at the outer edge.
    ///
    /// # Panics
    /// As [`Mechanics::new`].
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>, configuration: HddConfiguration) -> Self {
        let mechanics = Mechanics::new(configuration, inner.size_blocks());
        Self::around(inner, Hdd { mechanics, counts: HddStatistics::default() })
    }
}

impl Medium for Hdd {
    type Statistics = HddStatistics;

    fn read(&mut self, block: u64, count: u64) {
        self.counts.reads += 1;
        self.counts.blocks_read += count;
        self.transfer(block, count);
    }

    fn write(&mut self, block: u64, count: u64) {
        self.counts.writes += 1;
        self.counts.blocks_written += count;
        self.transfer(block, count);
    }

    fn flush(&mut self) {
        self.counts.flushes += 1;
        self.mechanics.pause();
    }

    fn hints(&self) -> MediaHints {
        MediaHints { is_rotational: true, ..MediaHints::default() }
    }

    fn statistics(&self) -> HddStatistics {
        self.counts
    }

    fn reset_statistics(&mut self) {
        self.counts = HddStatistics::default();
    }
}
