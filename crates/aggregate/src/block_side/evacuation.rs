//! A group of disks that is to leave: how far that is, and why it cannot.

use super::side::BlockSide;
use raid::Geometry;
use thiserror::Error;
use units::ByteSize;

/// Why a group cannot leave, or has nothing to give up.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EvacuationError {
    /// There is no such group, or it was removed.
    #[error("it has no group {group}")]
    NoGroup {
        /// What was asked for.
        group: u32,
    },
    /// One leaves already.
    #[error(
        "group {group} is being evacuated; wait for it, since one group is evacuated at a time"
    )]
    UnderWay {
        /// That one.
        group: u32,
    },
    /// The aggregate is a traditional volume.
    #[error("the blocks of a traditional volume cannot move")]
    Traditional,
    /// The group is in an object store.
    #[error("a group in an object store cannot be evacuated")]
    Object,
    /// No other group of disks could take its blocks.
    #[error("it is the only group of disks of the aggregate")]
    Only,
    /// The log is on its disks, and those of other groups have no room for it.
    #[error(
        "the journal is on its disks, and the disks of other groups have no room for it: add a \
         group of larger disks, or name another place under [node] journal"
    )]
    Log,
    /// It is not known yet what is free.
    #[error("free blocks are being counted; try again in a moment")]
    Uncounted,
    /// Its blocks do not fit into the others.
    #[error(
        "the other groups of disks have {free} free, and {needed} are needed to take what is in \
         use in it"
    )]
    NoRoom {
        /// What there is.
        free: ByteSize,
        /// What there must be.
        needed: ByteSize,
    },
    /// None leaves.
    #[error("no group is being evacuated")]
    NotUnderWay,
}

/// How far the removal of a group is, as of the last commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evacuation {
    /// The group.
    pub group: u32,
    /// Its blocks that are in use still; `None` until its areas were counted.
    pub used_blocks: Option<u64>,
    /// Its blocks.
    pub blocks: u64,
}

impl Evacuation {
    pub(crate) fn of(side: &BlockSide, geometry: &Geometry) -> Option<Self> {
        let group = side.settings.leaving_group?;
        let blocks = geometry.group(group).blocks();
        Some(Self { group, used_blocks: side.refill.used_in(group), blocks })
    }

    /// Blocks of the group that are free, and that nothing may be placed at.
    #[must_use]
    pub fn unusable_blocks(&self) -> u64 {
        self.blocks - self.used_blocks.unwrap_or(0).min(self.blocks)
    }
}
