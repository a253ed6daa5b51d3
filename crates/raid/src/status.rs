//! What is well and what is not, for operators and metrics.

use crate::io::Counters;
use crate::membership::{FillingStatus, GroupStatus, RetiredDisk, SpareStatus};
use crate::patrol::ScrubStatus;
use std::collections::BTreeMap;
use units::DiskUuid;

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The groups, in order, removed ones among them.
    pub groups: Vec<GroupStatus>,
    /// Disks that wait for a place.
    pub spares: Vec<SpareStatus>,
    /// Names of disks that are no spares any more and have no place yet, and of those whose group
    /// was removed and whose labels still are to be erased.
    pub leaving_disks: Vec<String>,
    /// Disks that are being filled, in order of place.
    pub fillings: Vec<FillingStatus>,
    /// Disks that were replaced for being sick, since the start.
    pub retired: Vec<RetiredDisk>,
    /// Whether a disk that is being filled waits for a superblock, which the next consistency point
    /// writes to it.
    pub waits_for_superblock: bool,
    /// The numbers in the short names of disks, as labels have them.
    pub numbers: BTreeMap<DiskUuid, u32>,
    /// What happened.
    pub counters: Counters,
    /// The last scrub, or the one under way.
    pub scrub: ScrubStatus,
}

impl Status {
    /// Whether a disk of any group is missing.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.groups.iter().any(GroupStatus::is_degraded)
    }
}
