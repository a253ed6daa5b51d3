//! What is well and what is not, for operators and metrics.

use crate::member::{Member, Missing};
use crate::store::Inner;
use media::Profile;
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
    /// Whether it is missing because it went, and is taken back when it is there again.
    pub is_away: bool,
    /// The disk that is being filled with what it holds, to take its place.
    pub successor: Option<SuccessorStatus>,
}

/// A disk that is filled with what another holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuccessorStatus {
    /// Its name.
    pub name: String,
    /// Regions that it holds.
    pub copied_regions: u64,
    /// Regions that it has to.
    pub regions: u64,
}

/// A disk that waits for a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpareStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: [u8; 16],
    /// Regions that it has room for.
    pub regions: u64,
    /// Whether it has a head that moves.
    pub is_rotational: bool,
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
    /// Whether a disk is missing.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.missing_disks() > 0
    }

    fn missing_disks(&self) -> usize {
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
    /// Blocks in them.
    pub device_blocks: u64,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The groups, in order.
    pub groups: Vec<GroupStatus>,
    /// Disks that wait for a place.
    pub spares: Vec<SpareStatus>,
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

impl Inner {
    pub(crate) fn status(&self) -> Status {
        let state = self.state.lock();
        let groups = self.groups.iter().zip(&state.groups).zip(self.geometry.groups());
        let groups = groups.map(|((group, disks), place)| {
            let members = group.members.iter().enumerate().map(|(index, member)| {
                let seat = member.seat();
                let state = match (disks.rebuilding.get(&index), disks.reasons.get(&index)) {
                    (Some(rebuild), _) => MemberState::Rebuilding {
                        rebuilt_regions: rebuild.regions(),
                        regions: place.regions,
                    },
                    (None, Some(reason)) => MemberState::Failed { reason: reason.clone() },
                    (None, None) if Missing(disks.missing).contains(index) => MemberState::Missing,
                    (None, None) => MemberState::Online,
                };
                let name = seat.device.map(|device| device.name().to_owned());
                let is_away = disks.lost.contains_key(&index) && state != MemberState::Online;
                let successor = disks.copies.get(&index).map(|copy| SuccessorStatus {
                    name: copy.device().name().to_owned(),
                    copied_regions: copy.regions(),
                    regions: place.regions,
                });
                let (identity, role) = (seat.identity, member.role);
                MemberStatus { name, identity, role, state, is_away, successor }
            });
            let members = members.collect();
            let devices = group.members.iter().filter_map(Member::device);
            let is_rotational = devices.into_iter().any(|one| one.profile() == Profile::Hdd);
            GroupStatus { kind: group.kind, members, regions: place.regions, is_rotational }
        });
        Status { groups: groups.collect(), spares: self.spares(), counters: state.counters }
    }
}
