//! Finding free blocks: which region of a block number space to fill next (FreeSpace section 3).
//!
//! A space is divided into *allocation areas*. The write allocator asks an [`AreaCache`] for an
//! area, takes all its free blocks in order, and comes back. The cache works from *scores*, the
//! count of free blocks of an area; it is told of frees in batches at the consistency point.
//!
//! Invariants: scores are hints. A wrong one costs a detour, never a block: the free map decides.

mod scores;

pub use scores::ScoreTable;

/// The number of an allocation area within its space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AreaNumber(pub u64);

/// Chooses areas.
pub trait AreaCache: Send + Sync {
    /// The area to fill next, taken out of the running until its score is set again; `None` when
    /// no area is known to have a free block and none is unknown.
    fn pick(&mut self) -> Option<AreaNumber>;

    /// There are this many areas from now on, no fewer than before, of so many blocks at most.
    fn grow(&mut self, areas: u64, area_blocks: u64);

    /// An area's score was counted.
    fn set_score(&mut self, area: AreaNumber, free_blocks: u64);

    /// Blocks of an area became free.
    fn add_free(&mut self, area: AreaNumber, free_blocks: u64);
}
