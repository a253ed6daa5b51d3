//! The cleaning of a flexible volume that is under way, and what is left of it until the commit.
//!
//! Invariants: see [`crate::cleaning`].

use crate::backend::Holdings;
use crate::shares::Shares;
use aggregate::FreezeContext;
use cowfs::image::{GivenUp, ImageCleaner, ImageFacts, ImageFiles};
use cowfs::logical::{CleanedInode, Image};
use cowfs::reader::HeldBlocks;
use cowfs::space::DelayLimits;
use ondisk::pointer::DualPointer;
use std::sync::Arc;

/// See the module.
pub(crate) struct VolumeCleaning {
    /// What the freeze set aside, until the cleaning begins: sorting it is no work for a moment in
    /// which nothing else runs.
    pub image: Option<(ImageFacts, Image<DualPointer>)>,
    pub cleaner: Option<ImageCleaner<DualPointer>>,
    /// The files, until they are shared out.
    pub files: Option<Vec<ImageFiles<DualPointer>>>,
    /// They are being cleaned, or were.
    pub shares: Option<Arc<Shares>>,
    pub held: HeldBlocks,
    pub holdings: Holdings,
    pub context: FreezeContext,
    pub dirty_blocks: u64,
    pub restore_ready: bool,
    /// Map blocks that background work on snapshots may handle.
    pub scan_blocks_max: u64,
    pub delay_limits: DelayLimits,
}

/// What is left of a cleaning until the commit.
pub(crate) struct Finished {
    pub cleaned: Vec<CleanedInode<DualPointer>>,
    pub dirty_blocks: u64,
    pub given_up: Vec<GivenUp>,
}

/// What became of a cleaning.
pub(crate) enum Cleaned {
    /// It is finished.
    Whole(Finished),
    /// The volume is damaged: it has given the cleaning up.
    Damaged,
}

impl VolumeCleaning {
    pub(crate) fn new(
        image: (ImageFacts, Image<DualPointer>),
        dirty_blocks: u64,
        context: FreezeContext,
        (scan_blocks_max, delay_limits): (u64, DelayLimits),
    ) -> Self {
        Self {
            image: Some(image),
            cleaner: None,
            files: None,
            shares: None,
            held: HeldBlocks::default(),
            holdings: Holdings::default(),
            context,
            dirty_blocks,
            restore_ready: false,
            scan_blocks_max,
            delay_limits,
        }
    }
}
