//! The disks of a group, and which of them can be used.
//!
//! Invariants: as many members may be missing as the group has parity disks; a failure beyond that
//! leaves the disk in use for reading and makes every `sync` fail. A missing disk is marked in the
//! labels of the others before `sync` succeeds. A member that is being rebuilt is missing, but for
//! the regions that are rebuilt.

use crate::error::StoreError;
use crate::label::Told;
use crate::parity::Code;
use crate::rebuild::Rebuild;
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
    pub members: Vec<Member>,
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
    /// Disks that are filled with what a member holds, to take its place.
    pub copies: BTreeMap<usize, Rebuild>,
    /// Missing ones that may be taken back, and those that have been and are not whole yet.
    pub lost: BTreeMap<usize, Lost>,
    /// What all labels say, or are about to.
    pub labelled: Option<Told>,
    /// Why, for those that failed since the start.
    pub reasons: BTreeMap<usize, String>,
    /// What write_labels gave last; a device adds one. No label has a higher number, not even that
    /// of a disk that was replaced.
    pub sequence: u64,
}

/// Numbers of labels that one start may use.
const SEQUENCES_PER_START: u64 = 1 << 22;
const NANOSECONDS_PER_MILLISECOND: i64 = 1_000_000;

/// The number that a start at this time begins with. It is higher than any that the start finds,
/// and than those of starts before it whose labels it does not find: a disk that was labelled last
/// before a crash, and stays away, is not believed later.
pub(crate) fn first_sequence(highest: u64, now: Timestamp) -> u64 {
    let milliseconds = u64::try_from(now.get() / NANOSECONDS_PER_MILLISECOND).unwrap_or(0);
    let next = (highest / SEQUENCES_PER_START).saturating_add(1);
    next.max(milliseconds).saturating_mul(SEQUENCES_PER_START)
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

    fn missing_but(&self, is_there: impl Fn(&Rebuild) -> bool) -> Missing {
        let there = self.rebuilding.iter().filter(|(_, rebuild)| is_there(rebuild));
        Missing(there.fold(self.missing, |mask, (member, _)| mask & !(1 << member)))
    }
}

/// A set of a group's disks that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing(pub u32);

impl Missing {
    pub(crate) const fn contains(self, member: usize) -> bool {
        self.0 >> member & 1 == 1
    }
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
        self.members.get(member)?.device()
    }

    /// What to call a disk.
    pub(crate) fn name(&self, member: usize) -> String {
        match self.members.get(member).map(Member::seat) {
            Some(Seat { device: Some(device), .. }) => device.name().to_owned(),
            Some(seat) => ondisk::label::Hexadecimal(&seat.identity).to_string(),
            None => "?".to_owned(),
        }
    }
}

impl Inner {
    pub(crate) fn group(&self, group: u32) -> &Group {
        &self.groups[group as usize]
    }

    /// All disks that are written to, those that are being filled as well: group, index in it,
    /// disk.
    pub(crate) fn devices(&self) -> Vec<(u32, usize, Arc<Device>)> {
        let mut devices = Vec::new();
        for (index, group) in (0..).zip(&self.groups) {
            let (unused, copies) = {
                let state = self.state.lock();
                let disks = &state.groups[index as usize];
                let copies = disks.copies.iter().map(|(member, copy)| (*member, copy.device()));
                (disks.unused(), copies.collect::<Vec<_>>())
            };
            for member in 0..group.members.len() {
                if let Some(device) = group.device(member, unused) {
                    devices.push((index, member, device));
                }
            }
            devices.extend(copies.into_iter().map(|(member, device)| (index, member, device)));
        }
        devices
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
        {
            // What a disk did that was replaced since says nothing of the one in its place.
            if !self.group(group).members[member].is_taken_by(device) {
                return self.fail_successor((group, member), device);
            }
            let mut state = self.state.lock();
            let tolerated = self.group(group).kind.parity_disks();
            let complete_cp = state.points.complete;
            let disks = &mut state.groups[group as usize];
            let is_missing = Missing(disks.missing).contains(member);
            // What was rebuilt of it is old from now on.
            let rebuilding = disks.rebuilding.remove(&member);
            if is_missing && rebuilding.is_none() {
                return;
            }
            if !is_missing && disks.missing.count_ones() as usize >= tolerated {
                if is_lost {
                    state.failure.get_or_insert(StoreError::GroupFailed { group, cause: error });
                }
                return;
            }
            disks.missing |= 1 << member;
            disks.reasons.insert(member, error.to_string());
            disks.lose(member, &error, rebuilding, complete_cp);
            self.promote_successor(disks, (group, member));
        }
        self.write_labels(group);
    }

    /// What was found wrong with blocks, and made good or not.
    pub(crate) fn count_damage(&self, answer: &Answer) {
        let counters = &mut self.state.lock().counters;
        counters.repaired_blocks += answer.repaired_blocks;
        counters.damaged_blocks += answer.damaged_blocks;
    }
}
