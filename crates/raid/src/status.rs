//! What is well and what is not, for operators and metrics.

use ondisk::label::{DiskRole, RaidKind};

/// The state of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// It works.
    Online,
    /// It was not there when the aggregate was put together, or missed writes before that.
    Missing,
    /// It took the place of a disk that was missing, and does not hold everything yet.
    Rebuilding {
        /// Regions that it holds.
        rebuilt_regions: u64,
        /// Regions that it has to.
        regions: u64,
    },
    /// It failed since.
    Failed {
        /// How.
        reason: String,
    },
}

/// A disk of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Its name, if it is there.
    pub name: Option<String>,
    /// Its identity.
    pub identity: [u8; 16],
    /// What it does.
    pub role: DiskRole,
    /// How it is.
    pub state: MemberState,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStatus {
    /// Its kind.
    pub kind: RaidKind,
    /// Its disks, in order.
    pub members: Vec<MemberStatus>,
}

impl GroupStatus {
    /// Whether a disk is missing.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.missing_disks() > 0
    }

    /// Disks that are missing.
    #[must_use]
    pub fn missing_disks(&self) -> usize {
        self.members.iter().filter(|member| member.state != MemberState::Online).count()
    }

    /// Disks that can fail now without loss.
    #[must_use]
    pub fn survivable_failures(&self) -> usize {
        self.kind.parity_disks().saturating_sub(self.missing_disks())
    }
}

/// What happened since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Blocks that failed their proof or could not be read, and were made good from parity.
    pub repaired_blocks: u64,
    /// Blocks that could not.
    pub damaged_blocks: u64,
    /// Reads that were answered from parity because a disk is missing.
    pub degraded_reads: u64,
    /// Tetrises written.
    pub tetris_writes: u64,
    /// Of them those that had partial stripes.
    pub partial_tetris_writes: u64,
    /// Requests to disks for the writing of tetrises.
    pub device_writes: u64,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The groups, in order.
    pub groups: Vec<GroupStatus>,
    /// What happened.
    pub counters: Counters,
}

impl Status {
    /// Whether a disk of any group is missing.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.groups.iter().any(GroupStatus::is_degraded)
    }
}
