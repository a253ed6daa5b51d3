//! Settings that a user never changes: how the write allocator chooses (FreeSpace section 4), and
//! limits that the simulator makes small. Benches compare the choices. Counters beside them tell
//! how good the allocator's choices were.

use allocator::{AreaChoice, Picks};
use cowfs::space::FreeCounts;
use std::sync::atomic::{AtomicU64, Ordering};

/// Areas of a group that are kept empty: one that is filled next, and one after it.
const EMPTY_AREAS: u32 = 2;
/// FlexVol's one percent (section 3.4), with two percent as the most. FlexVol has pages of 1,024
/// numbers, ours have half of that: one percent is five frees of a page on average. The pages that
/// are cleared have the most, 13 in `bench freespace frees`.
const DELAYED_PERMILLE: u32 = 10;

/// A fraction of the log, and no more than a consistency point writes as fast.
const COMMIT_BYTES_MAX: u64 = 8 << 20;

/// What may be other than it is best.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Which areas of groups are filled.
    pub group_choice: AreaChoice,
    /// Which areas of volumes' numbers are given.
    pub volume_choice: AreaChoice,
    /// Stripes of an area of disks, if it is not to follow from the medium.
    pub area_stripes: Option<u64>,
    /// Whether a start takes over what TopAA says; else all areas are counted.
    pub reads_top_areas: bool,
    /// Areas of each group of disks that are kept empty as a whole, by moving what is in use.
    pub empty_areas: u32,
    /// Of a volume's block numbers, frees that may be delayed; twice as many are the most.
    pub delayed_permille: u32,
    /// What one COMMIT logs at most; for more a consistency point is the better way.
    pub commit_bytes_max: u64,
    /// Blocks that notes of stripes take before the next epoch of notes begins, if the log has room
    /// for so many.
    pub note_blocks_max: u64,
    /// Whether what lies about whatever is read is reallocated, in order or not.
    pub reallocates_all: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        let (group_choice, volume_choice) = (AreaChoice::Best, AreaChoice::Best);
        Self {
            group_choice,
            volume_choice,
            area_stripes: None,
            reads_top_areas: true,
            empty_areas: EMPTY_AREAS,
            delayed_permille: DELAYED_PERMILLE,
            commit_bytes_max: COMMIT_BYTES_MAX,
            note_blocks_max: u64::MAX,
            reallocates_all: false,
        }
    }
}

/// The areas that were chosen since the start.
#[derive(Default, Debug)]
pub struct PickCounters {
    areas: AtomicU64,
    free_blocks: AtomicU64,
    blocks: AtomicU64,
}

impl PickCounters {
    /// These were chosen too.
    pub fn add(&self, picks: Picks) {
        self.areas.fetch_add(picks.areas, Ordering::Relaxed);
        self.free_blocks.fetch_add(picks.free_blocks, Ordering::Relaxed);
        self.blocks.fetch_add(picks.blocks, Ordering::Relaxed);
    }

    /// All of them.
    #[must_use]
    pub fn sum(&self) -> Picks {
        Picks {
            areas: self.areas.load(Ordering::Relaxed),
            free_blocks: self.free_blocks.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
        }
    }
}

/// What became of numbers that volumes released, since the start.
#[derive(Default, Debug)]
pub struct FreeCounters {
    delayed: AtomicU64,
    cleared: AtomicU64,
    pages: AtomicU64,
}

impl FreeCounters {
    /// These too.
    pub fn add(&self, counts: FreeCounts) {
        self.delayed.fetch_add(counts.delayed, Ordering::Relaxed);
        self.cleared.fetch_add(counts.cleared, Ordering::Relaxed);
        self.pages.fetch_add(counts.pages, Ordering::Relaxed);
    }

    /// All of them.
    #[must_use]
    pub fn sum(&self) -> FreeCounts {
        FreeCounts {
            delayed: self.delayed.load(Ordering::Relaxed),
            cleared: self.cleared.load(Ordering::Relaxed),
            pages: self.pages.load(Ordering::Relaxed),
        }
    }
}
