//! The disks of a group, and which of them can be used.
//!
//! Invariants: as many members may be missing as the group has parity disks; a failure beyond that
//! fails the store (`failure`) and leaves the disk as it is in the labels. A missing disk is marked
//! in the labels of the others before `sync` succeeds. A member that is being rebuilt is missing,
//! but for the regions that are rebuilt. A piece of work uses the disks that it began with: one
//! that takes another's place meanwhile has nothing of what the other had, and is as good as
//! missing, unless it had been filled beside the other in that region when the work began.

use crate::error::StoreError;
use crate::failure::is_away;
use crate::health::Health;
use crate::label::Told;
use crate::locking::ClosedGroup;
use crate::parity::Code;
use crate::rebuild::Rebuild;
use crate::replacing::DiskPlace;
use crate::resolve::Answer;
use crate::returning::Lost;
use crate::store::Inner;
use media::{Device, MediaError};
use ondisk::label::{DiskRole, RaidKind};
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::Timestamp;

/// A group's disks: parity disks first, then data.
pub(crate) struct Group {
    pub kind: RaidKind,
    pub data_disks: usize,
    pub members: Vec<Arc<Member>>,
}

/// A place in a group.
pub(crate) struct Member {
    pub role: DiskRole,
    seat: Mutex<Seat>,
}

/// The disk that has a place.
#[derive(Clone)]
pub(crate) struct Seat {
    pub identity: [u8; 16],
    /// Not there: the disk was absent when the aggregate was put together.
    pub device: Option<Arc<Device>>,
    /// The number of its replacement in the group; 0 since the start.
    pub replacement: u64,
    /// Which copy in the group it was, if it was filled beside the disk that had the place.
    pub copy: Option<u64>,
}

impl Seat {
    /// The place of a disk that is not there.
    pub(crate) const fn empty(identity: [u8; 16]) -> Self {
        Self { identity, device: None, replacement: 0, copy: None }
    }
}

impl Member {
    pub(crate) const fn new(role: DiskRole, seat: Seat) -> Self {
        Self { role, seat: Mutex::new(seat) }
    }

    pub(crate) fn seat(&self) -> Seat {
        self.seat.lock().clone()
    }

    pub(crate) fn device(&self) -> Option<Arc<Device>> {
        self.seat.lock().device.clone()
    }

    /// Whether it is this disk that has the place.
    pub(crate) fn is_taken_by(&self, device: &Arc<Device>) -> bool {
        self.seat.lock().device.as_ref().is_some_and(|own| Arc::ptr_eq(own, device))
    }

    /// Another disk takes the place.
    pub(crate) fn set_seat(&self, seat: Seat) {
        *self.seat.lock() = seat;
    }
}

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
    /// Tetrises in which work is under way.
    pub busy_tetrises: usize,
    /// Nothing new is begun: the group is about to grow.
    pub closed: Option<ClosedGroup>,
}

/// Numbers of labels that one start may use.
const SEQUENCES_PER_START: u64 = 1 << 22;
const NANOSECONDS_PER_MILLISECOND: i64 = 1_000_000;
const MILLISECONDS_PER_SECOND: u64 = 1000;
/// 2100-01-01. Starts from then on are told apart by the second: by the millisecond the numbers
/// would end in 2109. By the second they end long after what a [`Timestamp`] can say.
const SECONDS_FROM_MILLISECONDS: u64 = 4_102_444_800_000;

/// The number that a start at this time begins with. It is higher than any that the start finds,
/// and than those of starts before it whose labels it does not find: a disk that was labelled last
/// before a crash, and stays away, is not believed later.
pub(crate) fn first_sequence(highest: u64, now: Timestamp) -> u64 {
    let milliseconds = u64::try_from(now.get() / NANOSECONDS_PER_MILLISECOND).unwrap_or(0);
    let late = milliseconds.saturating_sub(SECONDS_FROM_MILLISECONDS);
    let time = milliseconds - late + late / MILLISECONDS_PER_SECOND;
    let next = (highest / SEQUENCES_PER_START).saturating_add(1);
    next.max(time).saturating_mul(SEQUENCES_PER_START)
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
        Missing { mask, replacements: self.replacements, copied }
    }

    /// The number of a disk that takes a place, or begins to be filled for one.
    pub(crate) const fn next_replacement(&mut self) -> u64 {
        self.replacements += 1;
        self.replacements
    }
}

/// The disks of a group that a piece of work cannot use, as of its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing {
    /// A bit for each.
    mask: u32,
    /// Disks that had taken another's place by then. Later ones cannot be used either,
    replacements: u64,
    /// but for the one that was being filled beside another, and held the region.
    copied: Option<u64>,
}

impl Missing {
    pub(crate) const fn contains(self, member: usize) -> bool {
        is_in(self.mask, member)
    }

    /// What is missing here or there, at one moment.
    pub(crate) const fn union(self, other: Self) -> Self {
        let copied = match (self.copied, other.copied) {
            (Some(one), Some(two)) if one == two => Some(one),
            _ => None,
        };
        Self { mask: self.mask | other.mask, copied, ..self }
    }
}

/// Whether a mask of a group's disks has one of them.
pub(crate) const fn is_in(mask: u32, member: usize) -> bool {
    mask >> member & 1 == 1
}

impl Group {
    /// How its rows are made.
    pub(crate) const fn code(&self) -> Code {
        Code { data_disks: self.data_disks, parity_disks: self.kind.parity_disks() }
    }

    /// The indices of parity disks that can be used.
    pub(crate) fn parity(&self, missing: Missing) -> impl Iterator<Item = usize> {
        (0..self.kind.parity_disks()).filter(move |member| self.device(*member, missing).is_some())
    }

    /// Whether there is parity to ask and to keep right.
    pub(crate) fn has_parity(&self, missing: Missing) -> bool {
        self.parity(missing).next().is_some()
    }

    /// A disk, if it can be used.
    pub(crate) fn device(&self, member: usize, missing: Missing) -> Option<Arc<Device>> {
        if missing.contains(member) {
            return None;
        }
        let seat = self.members.get(member)?.seat();
        let is_known = seat.replacement <= missing.replacements
            || seat.copy.is_some() && seat.copy == missing.copied;
        seat.device.filter(|_| is_known)
    }

    /// A disk, if it was used by a piece of work from its beginning.
    pub(crate) fn device_throughout(&self, member: usize, missing: Missing) -> Option<Arc<Device>> {
        let seat = self.members.get(member)?.seat();
        let is_same = !missing.contains(member) && seat.replacement <= missing.replacements;
        seat.device.filter(|_| is_same)
    }

    /// What to call a disk.
    pub(crate) fn name(&self, member: usize) -> String {
        match self.members.get(member).map(|member| member.seat()) {
            Some(Seat { device: Some(device), .. }) => device.name().to_owned(),
            Some(seat) => ondisk::label::Hexadecimal(&seat.identity).to_string(),
            None => "?".to_owned(),
        }
    }
}

impl Inner {
    /// The disks of a group that are written to, those that are being filled as well.
    pub(crate) fn devices_of(
        &self,
        group: u32,
        missing: impl FnOnce(&GroupState) -> Missing,
    ) -> Vec<(usize, Arc<Device>)> {
        let (missing, copies) = {
            let state = self.state.lock();
            let disks = &state.groups[group as usize];
            let copies = disks.copies.iter().map(|(member, copy)| (*member, copy.device()));
            (missing(disks), copies.collect::<Vec<_>>())
        };
        let place = self.group(group);
        let own = |member| Some((member, place.device(member, missing)?));
        (0..place.members.len()).filter_map(own).chain(copies).collect()
    }

    /// All disks that are written to: group, index in it, disk.
    pub(crate) fn devices(&self) -> Vec<(u32, usize, Arc<Device>)> {
        let groups = self.layout().groups.len() as u32;
        let of_group = |group| {
            let devices = self.devices_of(group, GroupState::unused).into_iter();
            devices.map(move |(member, device)| (group, member, device))
        };
        (0..groups).flat_map(of_group).collect()
    }

    /// A place, unless its group was removed.
    pub(crate) fn member(&self, DiskPlace { group, member }: DiskPlace) -> Option<Arc<Member>> {
        self.group(group).members.get(member).cloned()
    }

    /// Whether it is this disk that has a place.
    pub(crate) fn is_taken_by(&self, (group, member): (u32, usize), device: &Arc<Device>) -> bool {
        self.member(DiskPlace { group, member }).is_some_and(|place| place.is_taken_by(device))
    }

    /// A disk failed while it was read. It is given up only where parity makes it good.
    pub(crate) fn fail_reading(
        self: &Arc<Self>,
        (group, member): (u32, usize),
        device: &Arc<Device>,
        error: MediaError,
    ) {
        self.fail((group, member), device, error, false);
    }

    /// A disk did not write what it should, or not durably. Either it is given up, or the store is.
    pub(crate) fn fail_writing(
        self: &Arc<Self>,
        (group, member): (u32, usize),
        device: &Arc<Device>,
        error: MediaError,
    ) {
        self.fail((group, member), device, error, true);
    }

    fn fail(
        self: &Arc<Self>,
        (group, member): (u32, usize),
        device: &Arc<Device>,
        error: MediaError,
        is_lost: bool,
    ) {
        self.count_failure((group, member), device, &error, is_lost);
        let is_promoted = {
            let mut state = self.state.lock();
            // What a disk did that was replaced since says nothing of the one in its place.
            if !self.is_taken_by((group, member), device) {
                drop(state);
                return self.fail_successor((group, member), device);
            }
            let tolerated = self.group(group).kind.parity_disks();
            let complete_cp = state.points.complete;
            let disks = &mut state.groups[group as usize];
            let is_missing = is_in(disks.missing, member);
            // What was rebuilt of it is old from now on.
            let rebuilding = disks.rebuilding.remove(&member);
            if is_missing && rebuilding.is_none() {
                return;
            }
            if !is_missing && disks.missing.count_ones() as usize >= tolerated {
                if !is_lost && !is_away(&error) {
                    return;
                }
                disks.reasons.insert(member, error.to_string());
                drop(state);
                return self.fail_store(StoreError::GroupFailed { group, cause: error });
            }
            disks.missing |= 1 << member;
            disks.reasons.insert(member, error.to_string());
            disks.lose(member, &error, rebuilding, complete_cp);
            self.promote_successor(disks, (group, member))
        };
        self.write_labels(group);
        if is_promoted {
            // It may hold everything already.
            self.start_when_labelled(DiskPlace { group, member }, Box::new(|_| ()));
        }
    }

    /// What was found wrong with blocks, and made good or not.
    pub(crate) fn count_damage(&self, answer: &Answer) {
        let counters = &mut self.state.lock().counters;
        counters.repaired_blocks += answer.repaired_blocks;
        counters.damaged_blocks += answer.damaged_blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR_NANOSECONDS: i64 = 31_556_952_000_000_000;

    /// They ended in 2109: then every start began with the highest number, and the next label had
    /// number 0.
    #[test]
    fn regression_numbers_of_labels_grow_as_long_as_there_is_time() {
        let mut last = 0;
        for year in [0, 56, 129, 130, 131, 139, 140, 200, 292] {
            let noon = year * YEAR_NANOSECONDS;
            for start in 0..20 {
                let now = Timestamp(noon + start * 1_000_000_000);
                // What a start does not find the next is above all the same.
                let first = first_sequence(0, now);
                assert!(first > last, "year {}: {first} after {last}", 1970 + year);
                last = first + SEQUENCES_PER_START - 1;
            }
        }
        // A clock that stands still, or goes back, is no matter where the labels are found.
        for now in [i64::MAX, 0, i64::MIN] {
            for _ in 0..100_000 {
                let first = first_sequence(last, Timestamp(now));
                assert!(first > last);
                last = first + SEQUENCES_PER_START - 1;
            }
        }
        assert!(u64::MAX - last > u64::MAX / 20, "there is room for billions of starts");
    }
}
