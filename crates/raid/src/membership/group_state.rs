//! Which disks of a group cannot be used, and why.
//!
//! What a member is follows from what is kept here ([`GroupState::standing`]), and changes by the
//! methods that are named after an event alone ([`Event`]); each of them asks the table.
//!
//! Invariants: as many members may be missing as the group has parity disks. A member that is being
//! rebuilt is missing, but for the regions that are rebuilt. One replacement is filled at a time,
//! beside a member that is not missing.

use crate::layout::{Missing, Seat, is_in};
use crate::membership::errors::{Health, Known};
use crate::membership::filling::{Arrival, Rebuild, Way};
use crate::membership::lost::{Fate, Lost, is_away};
use crate::membership::standing::{Event, Standing};
use crate::membership::told::Told;
use media::{Device, MediaError};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::DiskUuid;

/// See the module.
#[derive(Default)]
pub(crate) struct GroupState {
    /// A bit for each.
    missing: u32,
    /// Those of them that are being written anew.
    rebuilding: BTreeMap<usize, Rebuild>,
    /// Disks that are filled with what a member holds, to take its place: one at a time.
    copies: BTreeMap<usize, Rebuild>,
    /// Missing ones that may be taken back, and those that have been and are not whole yet.
    lost: BTreeMap<usize, Lost>,
    /// Disks that took another's place since the start, and copies that were begun.
    replacements: u64,
    /// A bit for each that is whole, of which the labels may not say so yet: others may not go.
    unlabelled: u32,
    /// Why, for those that failed since the start.
    reasons: BTreeMap<usize, String>,
    /// What all labels say, or are about to.
    pub labelled: Option<Told>,
    /// The errors of disks that had some since the start.
    pub health: BTreeMap<usize, Health>,
    /// What write_labels gave last; a device adds one. No label has a higher number, not even that
    /// of a disk that was replaced.
    pub sequence: u64,
}

/// A bit of a mask.
const fn bit(member: usize) -> u32 {
    1 << member
}

/// A member as a start finds it.
pub(crate) struct Starting {
    pub standing: Standing,
    /// The disk, if it is being filled.
    pub device: Option<Arc<Device>>,
    /// The spare that is filled beside it.
    pub copy: Option<Rebuild>,
    /// The consistency points that it is known to hold, if it may be taken back and the labels say
    /// it.
    pub trusted_cp: Option<u64>,
}

impl GroupState {
    /// The state of a group that is new, or has no disks any more.
    pub(crate) fn new(sequence: u64) -> Self {
        Self { sequence, ..Self::default() }
    }

    /// The state of a group whose labels say `labelled`, if they all say the same.
    pub(crate) fn at_start(
        members: impl IntoIterator<Item = Starting>,
        labelled: Option<Told>,
        sequence: u64,
    ) -> Self {
        let mut state = Self { labelled, sequence, ..Self::default() };
        for (member, starting) in members.into_iter().enumerate() {
            state.start(member, starting);
        }
        state
    }

    fn start(&mut self, member: usize, starting: Starting) {
        let Starting { standing, device, copy, trusted_cp } = starting;
        if standing.is_missing() {
            self.missing |= bit(member);
        }
        let (fate, way) = match standing {
            Standing::Offline => (Some(Fate::Settled), None),
            Standing::Torn => (Some(Fate::Torn), None),
            Standing::Resyncing => (Some(Fate::Settled), Some(Way::Resync)),
            Standing::Rebuilding => (trusted_cp.map(|_| Fate::Torn), Some(Way::Anew)),
            Standing::Online | Standing::Replacing | Standing::Failed => (None, None),
            Standing::Unsettled => unreachable!("a start settles what it finds"),
        };
        if let Some(fate) = fate {
            self.lost.insert(member, Lost { trusted_cp, fate });
        }
        if let Some((way, device)) = way.zip(device) {
            self.rebuilding.insert(member, Rebuild::new(device, way));
        }
        if let Some(copy) = copy.filter(|_| standing == Standing::Replacing) {
            self.copies.insert(member, copy);
        }
        assert_eq!(self.standing(member), standing, "member {member} is what its label says");
    }

    /// What a member is.
    pub(crate) fn standing(&self, member: usize) -> Standing {
        if !is_in(self.missing, member) {
            return match self.copies.contains_key(&member) {
                true => Standing::Replacing,
                false => Standing::Online,
            };
        }
        let fate = self.lost.get(&member).map(|lost| lost.fate);
        match (self.rebuilding.get(&member).map(|rebuild| rebuild.way), fate) {
            (Some(Way::Resync), _) => Standing::Resyncing,
            (Some(Way::Anew | Way::Copy), _) => Standing::Rebuilding,
            (None, Some(Fate::Settling)) => Standing::Unsettled,
            (None, Some(Fate::Settled)) => Standing::Offline,
            (None, Some(Fate::Torn)) => Standing::Torn,
            (None, None) => Standing::Failed,
        }
    }

    /// Changes what a member is, by an event.
    fn change<T>(&mut self, member: usize, event: Event, change: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.standing(member);
        let changed = change(self);
        let after = self.standing(member);
        assert!(
            before.may_become(event, after),
            "member {member} was {before:?} and is {after:?} after {event:?}"
        );
        changed
    }

    /// A member went, or failed. If another was being filled beside it that takes the place as it
    /// is; `complete_cp` is the last consistency point that completed.
    pub(crate) fn fail(
        &mut self,
        member: usize,
        error: &MediaError,
        complete_cp: Option<u64>,
    ) -> Option<Seat> {
        // One that hangs, too, may answer again, with what it held.
        let event = if is_away(error) { Event::Goes } else { Event::Fails };
        self.change(member, event, |state| {
            // What was rebuilt of it is old from now on.
            let rebuilding = state.rebuilding.remove(&member);
            state.missing |= bit(member);
            state.reasons.insert(member, error.to_string());
            let before = state.lost.remove(&member);
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
            let mut copy = match state.copies.remove(&member) {
                Some(copy) => copy,
                None => {
                    if let Some(lost) = lost.filter(|_| event == Event::Goes) {
                        state.lost.insert(member, lost);
                    }
                    return None;
                }
            };
            state.reasons.remove(&member);
            let seat = state.seat_of(&copy);
            (copy.way, copy.is_told) = (Way::Anew, false);
            // Nobody asked that a degraded group wait, or be slow. It goes on when the labels tell
            // of it.
            copy.hold(false);
            copy.set_rate(None);
            state.rebuilding.insert(member, copy);
            Some(seat)
        })
    }

    /// The seat of a disk that takes a place. Work that is under way uses one that was filled
    /// beside another in regions that it held when the work began: there it has all that the other
    /// has, and what is written must reach it.
    fn seat_of(&mut self, rebuild: &Rebuild) -> Seat {
        Seat {
            identity: rebuild.identity(),
            device: Some(rebuild.device()),
            replacement: self.next_replacement(),
            copy: rebuild.copy,
        }
    }

    /// A disk takes the place of a missing one, or its own.
    pub(crate) fn take_place(&mut self, member: usize, rebuild: Rebuild, arrival: Arrival) -> Seat {
        let event = match arrival {
            Arrival::Returns => Event::Returns,
            Arrival::Replaces => Event::Replaced,
        };
        self.change(member, event, |state| {
            if arrival == Arrival::Replaces {
                state.lost.remove(&member);
            }
            let seat = state.seat_of(&rebuild);
            state.reasons.remove(&member);
            state.rebuilding.insert(member, rebuild);
            // The identity is new even if the masks are not.
            state.labelled = None;
            seat
        })
    }

    /// A disk begins to be filled with what a member holds.
    pub(crate) fn begin_copy(&mut self, member: usize, mut rebuild: Rebuild) {
        self.change(member, Event::CopyBegins, |state| {
            rebuild.copy = Some(state.next_replacement());
            state.copies.insert(member, rebuild);
        });
    }

    /// A disk that was being filled beside a member failed; false if it was not.
    pub(crate) fn fail_copy(&mut self, member: usize, device: &Arc<Device>) -> bool {
        if !self.is_copy(member, device) {
            return false;
        }
        self.change(member, Event::CopyFails, |state| state.copies.remove(&member));
        true
    }

    /// A disk that was filled beside a member takes the place, if it still is beside one.
    pub(crate) fn end_copy(&mut self, member: usize, device: &Arc<Device>) -> Option<Seat> {
        if !self.is_copy(member, device) {
            return None;
        }
        self.change(member, Event::CopyEnds, |state| {
            let copy = state.copies.remove(&member)?;
            state.labelled = None;
            Some(state.seat_of(&copy))
        })
    }

    /// A disk holds all that its place must, unless it failed in this very moment.
    pub(crate) fn fill(&mut self, member: usize, device: &Arc<Device>) {
        if !self.rebuilding.get(&member).is_some_and(|rebuild| rebuild.is_of(device)) {
            return;
        }
        self.change(member, Event::Filled, |state| {
            state.rebuilding.remove(&member);
            state.lost.remove(&member);
            state.missing &= !bit(member);
            state.unlabelled |= bit(member);
        });
    }

    /// A consistency point has completed on all disks that are there.
    pub(crate) fn settle(&mut self) {
        for member in self.away() {
            if self.standing(member) == Standing::Unsettled {
                self.change(member, Event::Settles, |state| state.judge(member, Fate::Settled));
            }
        }
    }

    /// Stripes were being written in part at a crash.
    pub(crate) fn distrust(&mut self) {
        for member in self.away() {
            self.change(member, Event::Distrusted, |state| {
                state.judge(member, Fate::Torn);
                if let Some(rebuild) = state.rebuilding.get_mut(&member) {
                    rebuild.way = Way::Anew;
                }
            });
        }
    }

    fn judge(&mut self, member: usize, fate: Fate) {
        if let Some(lost) = self.lost.get_mut(&member) {
            lost.fate = fate;
        }
    }

    /// The labels say that a member is whole.
    pub(crate) const fn tell_whole(&mut self, member: usize) {
        self.unlabelled &= !bit(member);
    }

    /// A member is one too many that failed: it stays what it is.
    pub(crate) fn blame(&mut self, member: usize, error: &MediaError) {
        self.reasons.insert(member, error.to_string());
    }

    /// Before the first write: what is known of disks that were absent at the start.
    pub(crate) fn trust_absent(&mut self, complete_cp: u64) {
        for lost in self.lost.values_mut() {
            lost.trusted_cp.get_or_insert(complete_cp);
        }
    }

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

    /// The disks that do not hold what their places must.
    pub(crate) fn missing_or_filled(&self) -> Missing {
        self.missing_but(|_| false)
    }

    fn missing_but(&self, is_there: impl Fn(&Rebuild) -> bool) -> Missing {
        let there = self.rebuilding.iter().filter(|(_, rebuild)| is_there(rebuild));
        let mask = there.fold(self.missing, |mask, (member, _)| mask & !bit(*member));
        let copied = self.copies.values().find(|copy| is_there(copy)).and_then(|one| one.copy);
        Missing::new(mask, self.replacements, copied)
    }

    /// The number of a disk that takes a place, or begins to be filled for one.
    const fn next_replacement(&mut self) -> u64 {
        self.replacements += 1;
        self.replacements
    }

    /// How many members are missing, those that are being filled as well.
    pub(crate) const fn missing_count(&self) -> usize {
        self.missing.count_ones() as usize
    }

    /// What the labels are to say now.
    pub(crate) fn told(&self) -> Told {
        let mask = |members: &mut dyn Iterator<Item = usize>| {
            members.fold(0, |mask, member| mask | bit(member))
        };
        let settled = self.lost.iter().filter(|(_, lost)| lost.fate == Fate::Settled);
        Told {
            missing: self.missing,
            rebuilding: mask(&mut self.rebuilding.keys().copied()),
            replacement: self.copies.values().next().map_or(DiskUuid::NIL, Rebuild::identity),
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
    pub(crate) fn fillings(&self) -> impl Iterator<Item = (usize, &Rebuild)> {
        let fillings = self.rebuilding.iter().chain(&self.copies);
        fillings.map(|(member, rebuild)| (*member, rebuild))
    }

    /// The same, to be changed.
    pub(crate) fn fillings_mut(&mut self) -> impl Iterator<Item = (usize, &mut Rebuild)> {
        let fillings = self.rebuilding.iter_mut().chain(&mut self.copies);
        fillings.map(|(member, rebuild)| (*member, rebuild))
    }

    /// The disks that are being filled at a place.
    pub(crate) fn fillings_at(&self, member: usize) -> impl Iterator<Item = &Rebuild> {
        self.filled(member).into_iter().chain(self.copies.get(&member))
    }

    /// One of them, to be changed.
    pub(crate) fn filling_mut(&mut self, member: usize, of: &Arc<Device>) -> Option<&mut Rebuild> {
        let own = self.rebuilding.get_mut(&member).into_iter();
        own.chain(self.copies.get_mut(&member)).find(|rebuild| rebuild.is_of(of))
    }

    /// The disk that has a place, if it is being filled.
    pub(crate) fn filled(&self, member: usize) -> Option<&Rebuild> {
        self.rebuilding.get(&member)
    }

    /// The disk that is filled beside a member, and that member.
    pub(crate) fn copy(&self) -> Option<(usize, &Rebuild)> {
        self.copies.first_key_value().map(|(member, copy)| (*member, copy))
    }

    fn is_copy(&self, member: usize, device: &Arc<Device>) -> bool {
        self.copies.get(&member).is_some_and(|copy| copy.is_of(device))
    }

    /// Missing members that may be taken back, and those that have been and are not whole yet.
    pub(crate) fn away(&self) -> Vec<usize> {
        self.lost.keys().copied().collect()
    }

    /// What is known of such a member.
    pub(crate) fn lost(&self, member: usize) -> Option<&Lost> {
        self.lost.get(&member)
    }

    /// Why a member failed, if it did since the start.
    pub(crate) fn reason(&self, member: usize) -> Option<&String> {
        self.reasons.get(&member)
    }

    /// Whether a member is whole, and labels may not say so yet.
    pub(crate) const fn is_unlabelled(&self, member: usize) -> bool {
        is_in(self.unlabelled, member)
    }

    /// Forgets the errors of the disk that has a place.
    pub(crate) fn forget_errors(&mut self, member: usize, disk: DiskUuid) {
        self.health.insert(member, Health::new(disk, Known::default()));
    }

    /// The errors of the disk that has a place; `saved` is what its label says.
    pub(crate) fn errors_of(&self, member: usize, disk: DiskUuid, saved: Known) -> Known {
        let health = self.health.get(&member).filter(|health| health.disk == disk);
        health.map_or(saved, |health| health.known)
    }
}

#[cfg(test)]
mod tests;
