//! What a disk must be to get a place, and a group to be one.

use crate::error::RaidError;
use crate::layout::geometry::GroupGeometry;
use media::{DeviceLayout, MediaError, regions_of};
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

/// Where the blocks of a new group of so many disks lie.
pub(crate) fn new_place(
    kind: RaidKind,
    count: usize,
    regions: u64,
    base: Pvbn,
) -> Result<GroupGeometry, RaidError> {
    let (minimum, maximum) = (kind.parity_disks() + 1, GROUP_DISKS_MAX);
    if !(minimum..=maximum).contains(&count) {
        return Err(RaidError::DiskCount { kind, count, minimum, maximum });
    }
    Ok(GroupGeometry::new(kind, regions.max(1), count - kind.parity_disks(), base))
}

/// Refuses a disk that has no room for so many regions.
pub(crate) fn check_size(disk: &dyn Disk, regions: u64) -> Result<(), RaidError> {
    if regions_of(disk.size_blocks()) >= regions {
        return Ok(());
    }
    Err(RaidError::Media(MediaError::TooSmall {
        disk: disk.name().to_owned(),
        size: ByteSize(disk.size_blocks() * BLOCK_SIZE_U64),
        minimum: ByteSize(DeviceLayout { regions }.blocks() * BLOCK_SIZE_U64),
    }))
}
