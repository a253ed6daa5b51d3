//! What a disk must be to get a place, and a group to be one.

use crate::error::RaidError;
use crate::layout::geometry::GroupGeometry;
use media::{DeviceLayout, MediaError};
use ondisk::label::{GROUP_DISKS_MAX, RaidKind};
use platform::Disk;
use std::collections::BTreeSet;
use units::{BLOCK_SIZE_U64, ByteSize, Pvbn};

/// Refuses a disk that is named twice.
pub(crate) fn check_distinct<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), RaidError> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            let disk = name.to_owned();
            return Err(RaidError::Duplicate { other: disk.clone(), disk });
        }
    }
    Ok(())
}

/// Where the blocks of a new group of so many disks lie, of which the smallest has room for so many
/// regions; those for the log are taken of them.
pub(crate) fn new_place(
    kind: RaidKind,
    count: usize,
    (regions, log_regions): (u64, u64),
    base: Pvbn,
) -> Result<GroupGeometry, RaidError> {
    let (minimum, maximum) = (kind.parity_disks() + 1, GROUP_DISKS_MAX);
    if !(minimum..=maximum).contains(&count) {
        return Err(RaidError::DiskCount { kind, count, minimum, maximum });
    }
    let data_regions = regions.saturating_sub(log_regions).max(1);
    let group = GroupGeometry::new(kind, data_regions, count - kind.parity_disks(), base);
    Ok(GroupGeometry { log_regions, ..group })
}

/// Refuses a disk that has no room for what the disks of a group have.
pub(crate) fn check_size(disk: &dyn Disk, layout: DeviceLayout) -> Result<(), RaidError> {
    if disk.size_blocks() >= layout.blocks() {
        return Ok(());
    }
    Err(RaidError::Media(MediaError::TooSmall {
        disk: disk.name().to_owned(),
        size: ByteSize(disk.size_blocks() * BLOCK_SIZE_U64),
        minimum: ByteSize(layout.blocks() * BLOCK_SIZE_U64),
    }))
}
