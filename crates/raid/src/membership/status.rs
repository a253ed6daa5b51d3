//! How the groups and their disks are, for operators and metrics.

use crate::layout::DiskPlace;
use crate::membership::errors::ErrorCounts;
use crate::membership::filling::Way;
use crate::walk::Pace;
use media::Profile;
use ondisk::features::FeatureSet;
use ondisk::label::{DiskRole, RaidKind, Sickness};
use units::DiskUuid;

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
        /// How it gets on.
        pace: Pace,
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
    pub identity: DiskUuid,
    /// What it does.
    pub role: DiskRole,
    /// How it is.
    pub state: MemberState,
    /// What its medium is, if it is there.
    pub media: Option<Profile>,
    /// Whether it is missing because it went, and is taken back when it is there again.
    pub is_away: bool,
    /// The disk that is being filled with what it holds, to take its place.
    pub replacement: Option<ReplacementStatus>,
    /// Its errors since it was labelled, or since they were cleared.
    pub errors: ErrorCounts,
    /// Why it should be replaced, if it should.
    pub sickness: Option<Sickness>,
    /// What its label says of the format; nothing, if it is not there.
    pub features: FeatureSet,
}

/// A disk that is filled with what another holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplacementStatus {
    /// Its name.
    pub name: String,
    /// What its medium is.
    pub media: Profile,
    /// Regions that it holds.
    pub copied_regions: u64,
    /// Regions that it has to.
    pub regions: u64,
    /// How it gets on.
    pub pace: Pace,
}

/// A disk that is being filled with what its place must hold, beside the disk that has the place or
/// in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FillingStatus {
    /// The place.
    pub place: DiskPlace,
    /// The disk's name.
    pub disk: String,
    /// Its identity: at another start it may have another name.
    pub identity: DiskUuid,
    /// How it is filled.
    pub way: Way,
    /// Whether it is held: nothing more is filled until it is let go.
    pub is_held: bool,
    /// Bytes of it that may be filled a second; `None` if there is no limit.
    pub rate: Option<u64>,
    /// Whether it will not hold everything before the next start: blocks of other disks that it
    /// needs could not be read.
    pub is_stuck: bool,
    /// Regions that it holds.
    pub done_regions: u64,
    /// Regions that it has to.
    pub regions: u64,
}

/// A disk that waits for a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpareStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: DiskUuid,
    /// Regions that it has room for.
    pub regions: u64,
    /// What its medium is.
    pub media: Profile,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStatus {
    /// Its kind.
    pub kind: RaidKind,
    /// Its disks, in order.
    pub members: Vec<MemberStatus>,
    /// Regions of each.
    pub regions: u64,
    /// Whether a disk of it has a head that moves.
    pub is_rotational: bool,
}

impl GroupStatus {
    /// Whether it was removed: it has no disks and is there for its number.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.members.is_empty()
    }

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
