//! What is known of volumes and tiers without asking the block side.

use super::plan::Relocation;
use crate::containers::VolumeSlot;
use ondisk::records::VolumeRecord;
use std::collections::{BTreeMap, BTreeSet};
use units::{VolumeId, Vvbn};

/// What clients have read.
#[derive(Default)]
pub(crate) struct Reads {
    pub blocks: BTreeSet<(VolumeId, Vvbn)>,
    /// A message takes them in.
    pub is_sent: bool,
}

/// What is known of volumes and tiers without asking the block side.
#[derive(Default)]
pub(crate) struct Tiers {
    /// Volumes whose blocks have an age.
    pub cooling: BTreeSet<VolumeId>,
    /// Blocks in object stores, as of the last commit.
    pub object_blocks: BTreeMap<VolumeId, u64>,
}

impl Tiers {
    pub(crate) fn of(relocation: &Relocation, table: &[VolumeSlot]) -> Self {
        let volumes = relocation.volumes.iter();
        let cooling = volumes.filter(|(_, queue)| queue.tiering.is_cooling());
        let in_use = table.iter().filter(|slot| slot.record.object_blocks.get() > 0);
        let number = |record: &VolumeRecord| VolumeId(record.volume.get());
        Self {
            cooling: cooling.map(|(volume, _)| *volume).collect(),
            object_blocks: in_use
                .map(|slot| (number(&slot.record), slot.record.object_blocks.get()))
                .collect(),
        }
    }
}
