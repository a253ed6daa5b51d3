//! What happened in an aggregate since its start, for status and metrics.

use crate::allocation::tuning::{FreeCounters, PickCounters};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What happened since the start.
#[derive(Default, Debug)]
pub struct Statistics {
    /// Consistency points completed.
    pub consistency_points: AtomicU64,
    /// Of them those until whose end operations waited for room in the log or in memory.
    pub back_to_back: AtomicU64,
    /// Blocks they wrote.
    pub blocks_written: AtomicU64,
    /// Shares of volumes' files that were cleaned by messages of their own.
    pub cleaned_shares: AtomicU64,
    /// Blocks in use, as of the last commit.
    pub used_blocks: AtomicU64,
    /// Blocks in use by the active image, as of the last commit.
    pub active_blocks: AtomicU64,
    /// Blocks that were moved to object stores and back.
    pub moved_blocks: AtomicU64,
    /// Of these, blocks that were moved back to disks.
    pub returned_blocks: AtomicU64,
    /// Blocks of volumes that were moved to empty an area.
    pub emptying_moved_blocks: AtomicU64,
    /// Blocks of the aggregate's own image that were written again for that.
    pub emptying_rewritten_blocks: AtomicU64,
    /// Blocks that clones had inherited and that were copied.
    pub split_blocks: AtomicU64,
    /// Blocks that were guaranteed to volumes and are not there, as of the last freeze or commit.
    pub guarantee_lacking_blocks: AtomicU64,
    /// Blocks of files that were written anew to lie in order.
    pub reallocated_blocks: AtomicU64,
    /// Areas that were gone through to empty them.
    pub emptied_areas: AtomicU64,
    /// Loads of blocks that neither redundancy nor the container map could make good.
    pub lost_blocks: Arc<AtomicU64>,
    /// Blocks there are.
    pub size_blocks: AtomicU64,
    /// Time in which scores of groups' areas were kept.
    pub group_scores_nanoseconds: AtomicU64,
    /// The same of volumes' areas.
    pub volume_scores_nanoseconds: AtomicU64,
    /// Areas of groups that were chosen to be filled.
    pub group_picks: PickCounters,
    /// Areas of volumes whose numbers were chosen to be given.
    pub volume_picks: PickCounters,
    /// What became of numbers that volumes released.
    pub frees: FreeCounters,
    /// Duration of the last consistency point in nanoseconds.
    pub last_cp_nanoseconds: AtomicU64,
}
