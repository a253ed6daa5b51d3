//! Which disks of a group cannot be used, and why.
//!
//! Invariants: as many members may be missing as the group has parity disks. A member that is being
//! rebuilt is missing, but for the regions that are rebuilt.

use crate::layout::Missing;
use crate::membership::errors::{Health, Known};
use crate::membership::filling::{Rebuild, Way};
use crate::membership::lost::{Fate, Lost, is_away};
use crate::membership::told::Told;
use media::MediaError;
use std::collections::BTreeMap;

/// Which disks of a group cannot be used.
#[derive(Default)]
pub(crate) struct GroupState {
    /// A bit for each.
    pub missing: u32,
    /// Those of them that are being written anew.
    pub rebuilding: BTreeMap<usize, Rebuild>,
    /// Disks that are filled with what a member holds, to take its place: one at a time.
    pub copies: BTreeMap<usize, Rebuild>,
    /// Missing ones that may be taken back, and those that have been and are not whole yet.
    pub lost: BTreeMap<usize, Lost>,
    /// What all labels say, or are about to.
    pub labelled: Option<Told>,
    /// Disks that took another's place since the start, and copies that were begun.
    pub replacements: u64,
    /// A bit for each that is whole, of which the labels may not say so yet: others may not go.
    pub unlabelled: u32,
    /// Why, for those that failed since the start.
    pub reasons: BTreeMap<usize, String>,
    /// The errors of disks that had some since the start.
    pub health: BTreeMap<usize, Health>,
    /// What write_labels gave last; a device adds one. No label has a higher number, not even that
    /// of a disk that was replaced.
    pub sequence: u64,
}

impl GroupState {
    /// The disks that cannot be used in a region.
    pub(crate) fn missing_at(&self, region: u64) -> Missing {
        self.missing_but(|rebuild| rebuild.has(region))
    }

    /// The disks that a start after a crash could not use there.
    pub(crate) fn missing_after_crash_at(&self, region: u64) -> Missing {
        self.missing_but(|rebuild| rebuild.has_durably(region))
    }

    /// The disks that nothing is written to.
    pub(crate) fn unused(&self) -> Missing {
        self.missing_but(|_| true)
    }

    pub(crate) fn missing_but(&self, is_there: impl Fn(&Rebuild) -> bool) -> Missing {
        let there = self.rebuilding.iter().filter(|(_, rebuild)| is_there(rebuild));
        let mask = there.fold(self.missing, |mask, (member, _)| mask & !(1 << member));
        let copied = self.copies.values().find(|copy| is_there(copy)).and_then(|one| one.copy);
        Missing::new(mask, self.replacements, copied)
    }

    /// The number of a disk that takes a place, or begins to be filled for one.
    pub(crate) const fn next_replacement(&mut self) -> u64 {
        self.replacements += 1;
        self.replacements
    }

    /// What the labels are to say now.
    pub(crate) fn told(&self) -> Told {
        let mask = |members: &mut dyn Iterator<Item = usize>| {
            members.fold(0, |mask, member| mask | 1 << member)
        };
        let settled = self.lost.iter().filter(|(_, lost)| lost.is_settled());
        Told {
            missing: self.missing,
            rebuilding: mask(&mut self.rebuilding.keys().copied()),
            successor: self.copies.values().next().map_or([0; 16], Rebuild::identity),
            // Of disks that went at different times what all of them have.
            trusted_cp: self
                .lost
                .values()
                .map(|lost| lost.trusted_cp.unwrap_or(0))
                .min()
                .unwrap_or(0),
            away: mask(&mut self.lost.keys().copied()),
            settled: mask(&mut settled.map(|(member, _)| *member)),
        }
    }

    /// All disks that are being filled.
    pub(crate) fn fillings(&self) -> impl Iterator<Item = &Rebuild> {
        self.rebuilding.values().chain(self.copies.values())
    }

    /// The same, to be changed.
    pub(crate) fn fillings_mut(&mut self) -> impl Iterator<Item = &mut Rebuild> {
        self.rebuilding.values_mut().chain(self.copies.values_mut())
    }

    /// The disks that do not hold what their places must.
    pub(crate) fn missing_or_filled(&self) -> Missing {
        self.missing_but(|_| false)
    }

    /// Notes that a member went, or failed, which was being rebuilt perhaps.
    pub(crate) fn lose(
        &mut self,
        member: usize,
        error: &MediaError,
        rebuilding: Option<Rebuild>,
        complete_cp: Option<u64>,
    ) {
        // One that hangs, too, may answer again, with what it held.
        let is_gone = is_away(error);
        let before = self.lost.remove(&member);
        let lost = match (before, rebuilding) {
            (_, None) => Some(Lost { trusted_cp: complete_cp, fate: Fate::Settling }),
            // What it held when it went first it still holds, or something later.
            (Some(before), Some(rebuild)) if rebuild.way == Way::Resync => {
                Some(Lost { fate: Fate::Settling, ..before })
            }
            (Some(before), Some(_)) => Some(Lost { fate: Fate::Torn, ..before }),
            // It never held anything of ours as a whole.
            (None, Some(_)) => None,
        };
        if let Some(lost) = lost.filter(|_| is_gone) {
            self.lost.insert(member, lost);
        }
    }

    /// Forgets the errors of the disk that has a place.
    pub(crate) fn forget_errors(&mut self, member: usize, disk: [u8; 16]) {
        self.health.insert(member, Health::new(disk, Known::default()));
    }

    /// The errors of the disk that has a place; `saved` is what its label says.
    pub(crate) fn errors_of(&self, member: usize, disk: [u8; 16], saved: Known) -> Known {
        let health = self.health.get(&member).filter(|health| health.disk == disk);
        health.map_or(saved, |health| health.known)
    }
}
