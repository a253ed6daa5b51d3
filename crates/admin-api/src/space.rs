//! Where the blocks of a volume and of an aggregate are.
//!
//! Invariants: each block counts in one of the fields. While a volume does not change, the fields
//! of its own blocks add up to `owned_bytes`. The fields of an aggregate add up to `size_bytes`.

use crate::replies::SnapshotInfo;
use serde::{Deserialize, Serialize};

/// Where the blocks of a volume are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeSpace {
    /// The volume.
    pub volume: String,
    /// Its size.
    pub size_bytes: u64,
    /// Used by its present files, metadata included, and not inherited.
    pub live_bytes: u64,
    /// The volume's snapshots, oldest first, each with the bytes that it alone holds.
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

/// What a volume has of an aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeShare {
    /// The volume.
    pub volume: String,
    /// Whether it is in the recovery queue.
    pub deleted: bool,
    /// What the aggregate has for it.
    pub owned_bytes: u64,
    /// Of this: used by its present files, metadata included. `None` of a clone whose snapshots
    /// could not be counted.
    pub live_bytes: Option<u64>,
    /// Of this: used by snapshots only, deleted snapshots included.
    pub snapshot_bytes: Option<u64>,
    /// Of this: freed by clients and not yet free.
    pub delayed_free_bytes: u64,
    /// Beside it: what a clone shares with its ancestors, which have it.
    pub inherited_bytes: u64,
}

/// Where the blocks of an aggregate are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AggregateSpace {
    /// The aggregate.
    pub aggregate: String,
    /// Its disks that are there, spares included.
    pub raw_bytes: u64,
    /// Of these: parity.
    pub parity_bytes: u64,
    /// Of these: spares.
    pub spare_bytes: u64,
    /// Usable size, parity, labels and the identities of blocks not counted.
    pub size_bytes: u64,
    /// What its volumes have, in order of name.
    pub volumes: Vec<VolumeShare>,
    /// Left of volumes that are gone: it comes back in the background.
    pub purged_bytes: u64,
    /// The aggregate's own metadata.
    pub metadata_bytes: u64,
    /// Held back so that deleting works when all else is full.
    pub reserve_bytes: u64,
    /// Free in a group of disks that leaves: nobody's room.
    pub leaving_bytes: u64,
    /// Free, and guaranteed to volumes: each has its own.
    #[serde(default)]
    pub guaranteed_bytes: u64,
    /// Free for all volumes.
    pub free_bytes: u64,
}

impl AggregateSpace {
    /// The sum of all parts of the usable size.
    #[must_use]
    pub fn sum_bytes(&self) -> u64 {
        let volumes: u64 = self.volumes.iter().map(|share| share.owned_bytes).sum();
        let volumes = volumes + self.purged_bytes + self.guaranteed_bytes;
        volumes + self.metadata_bytes + self.reserve_bytes + self.leaving_bytes + self.free_bytes
    }
}
