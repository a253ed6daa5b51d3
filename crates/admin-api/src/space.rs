//! Where a volume's blocks are.
//!
//! Invariants: each block counts in one of the fields. Of a volume that does not change, those that
//! are the volume's own add up to `owned_bytes`.

use crate::replies::SnapshotInfo;
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeSpace {
    /// The volume.
    pub volume: String,
    /// Its size.
    pub size_bytes: u64,
    /// Used by its present files, metadata included, and not inherited.
    pub live_bytes: u64,
    /// Its snapshots, oldest first, each with what it alone holds.
    pub snapshots: Vec<SnapshotInfo>,
    /// Used by several snapshots, and not by the present files.
    pub shared_snapshot_bytes: u64,
    /// Used by snapshots that were deleted: it comes back in the background.
    pub deleted_snapshot_bytes: u64,
    /// Freed by clients and not yet free in the aggregate.
    pub delayed_free_bytes: u64,
    /// What the aggregate has for this volume: the sum of the above.
    pub owned_bytes: u64,
    /// Used by the present files of a clone, and an ancestor's: it takes no space here.
    pub inherited_live_bytes: u64,
    /// The same of what only the clone's snapshots use.
    pub inherited_snapshot_bytes: u64,
    /// Room left: the smaller of the volume's and its aggregate's.
    pub available_bytes: u64,
}

impl VolumeSpace {
    /// What its snapshots hold alone, each of them.
    #[must_use]
    pub fn exclusive_bytes(&self) -> u64 {
        self.snapshots.iter().filter_map(|snapshot| snapshot.exclusive_bytes).sum()
    }
}
