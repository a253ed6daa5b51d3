//! Volumes that were deleted, and how much of them is still to be freed.

use super::side::BlockSide;
use units::VolumeId;

/// A deleted volume whose blocks are being freed, as of the last commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deletion {
    /// The volume's number.
    pub volume: VolumeId,
    /// The name that it had.
    pub name: String,
    /// Its blocks that are in use still.
    pub left_blocks: u64,
}

impl Deletion {
    /// All of an aggregate, in order of number.
    pub(crate) fn all_of(side: &BlockSide) -> Vec<Self> {
        let deleting = side.containers.iter().filter(|(_, container)| container.deleting);
        let deletion = |(volume, left_blocks): (VolumeId, u64)| {
            let slot = side.slot_of(volume).and_then(|slot| side.table.get(slot));
            let name = slot.map(|slot| slot.record.title().into_owned()).unwrap_or_default();
            Self { volume, name, left_blocks }
        };
        deleting.map(|(volume, container)| deletion((*volume, container.blocks))).collect()
    }
}
