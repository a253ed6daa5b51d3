//! Which PVBN lies where.
//!
//! PVBNs are device-major: each data disk of a group owns one contiguous range. Checksum blocks
//! and parity disks have no PVBNs.
//!
//! Invariants: groups follow one another without a gap, the first begins at 0; `pvbn(locate(p)) ==
//! p`. PVBN 0 is a place like others, but never a block: it marks a hole in pointers.

use media::DeviceLayout;
use ondisk::identity::{REGION_BLOCKS, REGION_DATA_BLOCKS};
use ondisk::label::RaidKind;
use std::fmt;
use units::Pvbn;

const STRIPES_PER_TETRIS: u64 = REGION_DATA_BLOCKS as u64;

/// A region across all disks of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TetrisId {
    /// The group's index.
    pub group: u32,
    /// The region's index.
    pub region: u64,
}

impl fmt::Display for TetrisId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "tetris {} of group {}", self.region, self.group)
    }
}

/// Where a PVBN lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The group's index.
    pub group: u32,
    /// The data disk's index among the data disks of its group.
    pub disk: usize,
    /// The stripe: the block's index among the disk's data blocks.
    pub stripe: u64,
}

impl Location {
    /// The tetris that the stripe is part of.
    #[must_use]
    pub const fn tetris(&self) -> TetrisId {
        TetrisId { group: self.group, region: self.stripe / STRIPES_PER_TETRIS }
    }

    /// The stripe's row in its tetris.
    #[must_use]
    pub const fn row(&self) -> usize {
        (self.stripe % STRIPES_PER_TETRIS) as usize
    }
}

/// One group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupGeometry {
    /// Its first PVBN.
    pub base: Pvbn,
    /// How it protects its data.
    pub kind: RaidKind,
    /// Data disks.
    pub data_disks: usize,
    /// Tetrises.
    pub regions: u64,
}

impl GroupGeometry {
    /// Data blocks of one disk, which is also the number of stripes.
    #[must_use]
    pub const fn blocks_per_disk(&self) -> u64 {
        self.regions * STRIPES_PER_TETRIS
    }

    /// Data blocks of the group.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks_per_disk() * self.data_disks as u64
    }

    /// All disks, parity included.
    #[must_use]
    pub const fn disks(&self) -> usize {
        self.data_disks + self.kind.parity_disks()
    }

    /// A data disk's index among all disks of the group: the parity disks come first.
    #[must_use]
    pub const fn member(&self, data_disk: usize) -> usize {
        self.kind.parity_disks() + data_disk
    }

    /// The layout of each of its disks.
    #[must_use]
    pub const fn layout(&self) -> DeviceLayout {
        DeviceLayout { regions: self.regions }
    }
}

/// All groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    groups: Vec<GroupGeometry>,
}

impl Geometry {
    /// The geometry of `groups`.
    ///
    /// # Panics
    /// If there are none, or they do not follow one another from 0.
    #[must_use]
    pub fn new(groups: Vec<GroupGeometry>) -> Self {
        assert!(!groups.is_empty(), "an aggregate has a group");
        let mut base = Pvbn(0);
        for group in &groups {
            assert_eq!(group.base, base, "groups follow one another");
            assert!(group.blocks() > 0, "a group has blocks");
            base = base.offset(group.blocks());
        }
        Self { groups }
    }

    /// The groups, in order.
    #[must_use]
    pub fn groups(&self) -> &[GroupGeometry] {
        &self.groups
    }

    /// The PVBN after the last.
    #[must_use]
    pub fn end(&self) -> Pvbn {
        self.groups.last().map_or(Pvbn(0), |group| group.base.offset(group.blocks()))
    }

    /// Where a PVBN lies; `None` beyond the end.
    #[must_use]
    pub fn locate(&self, pvbn: Pvbn) -> Option<Location> {
        let index = self.groups.partition_point(|group| group.base <= pvbn).checked_sub(1)?;
        let group = self.groups.get(index)?;
        let within = pvbn.get() - group.base.get();
        if within >= group.blocks() {
            return None;
        }
        let disk = (within / group.blocks_per_disk()) as usize;
        Some(Location { group: index as u32, disk, stripe: within % group.blocks_per_disk() })
    }

    /// The PVBN at a location; `None` if there is no such place.
    #[must_use]
    pub fn pvbn(&self, location: Location) -> Option<Pvbn> {
        let group = self.groups.get(location.group as usize)?;
        let exists = location.disk < group.data_disks && location.stripe < group.blocks_per_disk();
        let disk_base = location.disk as u64 * group.blocks_per_disk();
        exists.then(|| group.base.offset(disk_base + location.stripe))
    }

    /// The tetris that a PVBN is part of.
    #[must_use]
    pub fn tetris_of(&self, pvbn: Pvbn) -> Option<TetrisId> {
        self.locate(pvbn).map(|location| location.tetris())
    }

    /// The device block of a row of a tetris: the same on each disk of the group.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn device_block(&self, tetris: TetrisId, row: usize) -> u64 {
        assert!(row < REGION_BLOCKS, "row {row}");
        self.group(tetris.group).layout().region_start(tetris.region) + row as u64
    }

    /// A group by its index.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub fn group(&self, index: u32) -> &GroupGeometry {
        &self.groups[index as usize]
    }
}
