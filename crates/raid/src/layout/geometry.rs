//! Which PVBN lies where.
//!
//! PVBNs are device-major: each data disk of a group owns one contiguous range. Checksum blocks
//! and parity disks have no PVBNs. A disk that joins a group, and a group that joins an aggregate,
//! take the PVBNs after the last that was ever given, so that nothing moves (FlexVol section 3.1).
//! A group that was removed keeps its index, as one without disks; its PVBNs are nobody's.
//!
//! Invariants: the ranges follow one another, the first begins at 0, and between them is room for
//! the PVBNs of removed groups and for no more; a PVBN is given once; `pvbn(locate(p)) == p`. PVBN
//! 0 is a place like others, but never a block: it marks a hole in pointers.

use media::{DeviceLayout, Profile};
use ondisk::identity::{REGION_BLOCKS, REGION_DATA_BLOCKS};
use ondisk::label::RaidKind;
use ondisk::medium::Medium;
use std::fmt;
use units::{BlockNumber, Dbn, Pvbn};

/// A disk's place in an aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskPlace {
    /// The group's index.
    pub group: u32,
    /// The disk's index in it, parity disks before data disks.
    pub member: usize,
}

/// A region of one data disk of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DiskRegion {
    /// The data disk's index among the data disks of its group.
    pub disk: usize,
    /// The region.
    pub tetris: TetrisId,
}

const STRIPES_PER_TETRIS: u64 = REGION_DATA_BLOCKS as u64;
/// Of a new group's disks at most this part is for the log.
const LOG_SHARE_OF_DISK: u64 = 4;

/// A region across all disks of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TetrisId {
    /// The group's index.
    pub group: u32,
    /// The region's index.
    pub region: u64,
}

impl TetrisId {
    /// The stripe of a row: the same number on each data disk of the group.
    #[must_use]
    pub const fn stripe(&self, row: usize) -> Dbn {
        Dbn(self.region * STRIPES_PER_TETRIS + row as u64)
    }
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
    pub stripe: Dbn,
}

impl Location {
    /// The tetris that the stripe is part of.
    #[must_use]
    pub const fn tetris(&self) -> TetrisId {
        TetrisId { group: self.group, region: self.stripe.get() / STRIPES_PER_TETRIS }
    }

    /// The stripe's row in its tetris.
    #[must_use]
    pub const fn row(&self) -> usize {
        (self.stripe.get() % STRIPES_PER_TETRIS) as usize
    }
}

/// One group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupGeometry {
    /// How it protects its data.
    pub kind: RaidKind,
    /// Tetrises.
    pub regions: u64,
    /// Regions behind them, on each disk, in which a copy of the log may be.
    pub log_regions: u64,
    /// The first PVBN of each data disk.
    pub bases: Vec<Pvbn>,
    /// What its disks are: how writes to them are best laid out.
    pub medium: Medium,
}

impl GroupGeometry {
    /// A group of so many data disks, whose ranges follow one another from `base`.
    #[must_use]
    pub fn new(kind: RaidKind, regions: u64, data_disks: usize, base: Pvbn) -> Self {
        let (bases, medium) = (Vec::new(), Medium::Unrecorded);
        let mut group = Self { kind, regions, log_regions: 0, bases, medium };
        group.extend(data_disks, base);
        group
    }

    /// Gives it so many data disks more, whose ranges follow one another from `base`.
    pub fn extend(&mut self, data_disks: usize, base: Pvbn) {
        let ranges = (0..data_disks as u64).map(|disk| base.offset(disk * self.blocks_per_disk()));
        let ranges: Vec<Pvbn> = ranges.collect();
        self.bases.extend(ranges);
    }

    /// What is left of a group that was removed.
    #[must_use]
    pub const fn removed() -> Self {
        let (kind, medium) = (RaidKind::None, Medium::Unrecorded);
        Self { kind, regions: 0, log_regions: 0, bases: Vec::new(), medium }
    }

    /// Whether it was removed: it has no disks.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.bases.is_empty()
    }

    /// What a group is whose disks are these: where they differ, what is hardest to please.
    pub(crate) fn medium_of(profiles: impl Iterator<Item = Profile>) -> Medium {
        let media = profiles.map(Profile::medium);
        media.max_by_key(|medium| medium.fields()).unwrap_or(Medium::Unrecorded)
    }

    /// Whether its disks lie in an object store: large and slow, for what is seldom read.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.medium == Medium::Object
    }

    /// Data disks.
    #[must_use]
    pub const fn data_disks(&self) -> usize {
        self.bases.len()
    }

    /// Data blocks of one disk, which is also the number of stripes.
    #[must_use]
    pub const fn blocks_per_disk(&self) -> u64 {
        self.regions * STRIPES_PER_TETRIS
    }

    /// Data blocks of the group.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks_per_disk() * self.data_disks() as u64
    }

    /// All disks, parity included.
    #[must_use]
    pub const fn disks(&self) -> usize {
        self.data_disks() + self.kind.parity_disks()
    }

    /// A data disk's index among all disks of the group: the parity disks come first.
    #[must_use]
    pub const fn member(&self, data_disk: usize) -> usize {
        self.kind.parity_disks() + data_disk
    }

    /// The layout of each of its disks.
    #[must_use]
    pub const fn layout(&self) -> DeviceLayout {
        DeviceLayout { regions: self.regions, log_regions: self.log_regions }
    }
}

/// All groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    groups: Vec<GroupGeometry>,
    /// The ranges of all data disks, in order.
    ranges: Vec<Range>,
    /// The PVBN after the last that was ever given.
    end: Pvbn,
}

/// The PVBNs of a data disk, from its first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Range {
    base: Pvbn,
    group: u32,
    disk: usize,
}

impl Geometry {
    /// The geometry of `groups`; `None` if there are none, or the ranges of their disks leave gaps
    /// or overlap.
    #[must_use]
    pub fn new(groups: Vec<GroupGeometry>) -> Option<Self> {
        Self::with_gaps(groups, 0)
    }

    /// The geometry of `groups`, some of which were removed and had so many blocks; `None` if the
    /// others do not leave room for just these, or overlap, or there are no others.
    #[must_use]
    pub fn with_gaps(groups: Vec<GroupGeometry>, removed_blocks: u64) -> Option<Self> {
        if groups.iter().any(GroupGeometry::is_removed) != (removed_blocks > 0) {
            return None;
        }
        let of_group = |(group, place): (u32, &GroupGeometry)| {
            let bases = place.bases.clone().into_iter().enumerate();
            bases.map(move |(disk, base)| Range { base, group, disk })
        };
        let mut ranges: Vec<Range> = (0..).zip(&groups).flat_map(of_group).collect();
        ranges.sort_unstable();
        // The end of the range before, and so many numbers as were given.
        let (mut last, mut end) = (Pvbn(0), removed_blocks);
        for range in &ranges {
            let blocks = groups[range.group as usize].blocks_per_disk();
            if range.base < last || blocks == 0 {
                return None;
            }
            last = range.base.checked_offset(blocks)?;
            end = end.checked_add(blocks)?;
        }
        let end = Pvbn(end);
        (!ranges.is_empty() && last <= end).then_some(Self { groups, ranges, end })
    }

    /// The geometry without a group; `None` if it has no other.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub fn without(&self, index: u32) -> Option<Self> {
        let removed_blocks = self.removed_blocks() + self.group(index).blocks();
        let mut groups = self.groups.clone();
        groups[index as usize] = GroupGeometry::removed();
        Self::with_gaps(groups, removed_blocks)
    }

    /// The groups, in order, removed ones among them.
    #[must_use]
    pub fn groups(&self) -> &[GroupGeometry] {
        &self.groups
    }

    /// Of so many regions that each disk of a new group has, those for the log: as many as in other
    /// groups, unless that is much of them, or the group lies in an object store.
    #[must_use]
    pub fn log_regions_of_another(&self, regions: u64, is_object: bool) -> u64 {
        let log_regions = self.groups.iter().map(|group| group.log_regions).max().unwrap_or(0);
        if is_object || regions / LOG_SHARE_OF_DISK < log_regions { 0 } else { log_regions }
    }

    /// The PVBN after the last that was ever given.
    #[must_use]
    pub const fn end(&self) -> Pvbn {
        self.end
    }

    /// Data blocks of all groups.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.groups.iter().map(GroupGeometry::blocks).sum()
    }

    /// PVBNs that removed groups had.
    #[must_use]
    pub fn removed_blocks(&self) -> u64 {
        self.end.get() - self.blocks()
    }

    /// Where a PVBN lies; `None` beyond the end, and where a group was that was removed.
    #[must_use]
    pub fn locate(&self, pvbn: Pvbn) -> Option<Location> {
        let index = self.ranges.partition_point(|range| range.base <= pvbn).checked_sub(1)?;
        let Range { base, group, disk } = *self.ranges.get(index)?;
        let stripe = Dbn(pvbn.since(base));
        let end = Dbn(self.group(group).blocks_per_disk());
        (stripe < end).then_some(Location { group, disk, stripe })
    }

    /// The PVBN at a location; `None` if there is no such place.
    #[must_use]
    pub fn pvbn(&self, location: Location) -> Option<Pvbn> {
        let group = self.groups.get(location.group as usize)?;
        let base = group.bases.get(location.disk)?;
        let stripe = location.stripe.get();
        (stripe < group.blocks_per_disk()).then(|| base.offset(stripe))
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
