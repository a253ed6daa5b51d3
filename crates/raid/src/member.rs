//! The disks of a group, and which of them can be used.
//!
//! Invariants: as many members may be missing as the group has parity disks; a failure beyond that
//! fails the store ([`crate::failure`]) and leaves the disk as it is in the labels. A missing disk is marked in the
//! labels of the others before `sync` succeeds. A member that is being rebuilt is missing, but for
//! the regions that are rebuilt.

use crate::error::StoreError;
use crate::failure::is_away;
use crate::parity::Code;
use crate::rebuild::Rebuild;
use crate::resolve::Answer;
use crate::status::{GroupStatus, MemberState, MemberStatus, Status};
use crate::store::Inner;
use media::{Device, MediaError};
use ondisk::label::{DiskLabel, DiskRole, RaidKind};
use platform::mutation::{self, Rule};
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
    /// What all labels say, or are about to: missing, being rebuilt.
    pub labelled: Option<(u32, u32)>,
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

    fn masks(&self) -> (u32, u32) {
        let rebuilding = self.rebuilding.keys().fold(0, |mask, member| mask | 1 << member);
        (self.missing, rebuilding)
    }
}

/// A set of a group's disks that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing(pub u32);

impl Missing {
    pub(crate) const fn contains(self, member: usize) -> bool {
        self.0 >> member & 1 == 1
    }

    pub(crate) const fn without(self, member: usize) -> Self {
        Self(self.0 & !(1 << member))
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

    /// All disks that are written to: group, index in it, disk.
    pub(crate) fn devices(&self) -> Vec<(u32, usize, Arc<Device>)> {
        let mut devices = Vec::new();
        for (index, group) in (0..).zip(&self.groups) {
            let unused = self.state.lock().groups[index as usize].unused();
            for member in 0..group.members.len() {
                if let Some(device) = group.device(member, unused) {
                    devices.push((index, member, device));
                }
            }
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
                return;
            }
            let mut state = self.state.lock();
            let tolerated = self.group(group).kind.parity_disks();
            let disks = &mut state.groups[group as usize];
            let is_missing = Missing(disks.missing).contains(member);
            // What was rebuilt of it is old from now on.
            let was_rebuilding = disks.rebuilding.remove(&member).is_some();
            if is_missing && !was_rebuilding {
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
        }
        self.write_labels(group);
    }

    /// Has the labels of a group say which disks are missing, if they do not yet.
    pub(crate) fn write_labels(self: &Arc<Self>, group: u32) {
        let is_told = |disks: &GroupState| disks.labelled == Some(disks.masks());
        // Every write of a tetris asks.
        if is_told(&self.state.lock().groups[group as usize]) {
            return;
        }
        let members = &self.group(group).members;
        let highest = |member: &Member| member.device().map(|one| one.label().sequence.get());
        let highest = members.iter().filter_map(highest).max().unwrap_or(0);
        let devices = {
            let mut state = self.state.lock();
            let disks = &mut state.groups[group as usize];
            let (masks, unused) = (disks.masks(), disks.unused());
            if disks.labelled.replace(masks) == Some(masks) {
                return;
            }
            if mutation::broken(Rule::MissingDiskUnlabelled) {
                return;
            }
            let devices: Vec<_> = (0..members.len())
                .filter_map(|at| self.group(group).device(at, unused).map(|device| (at, device)))
                .collect();
            // The device itself adds one.
            disks.sequence = disks.sequence.max(highest).saturating_add(2);
            state.label_updates += devices.len();
            devices
        };
        for (member, device) in devices {
            let (inner, failed) = (Arc::clone(self), Arc::clone(&device));
            device.update_label(
                |label| self.tell_label(group, member, label),
                Box::new(move |result| {
                    if let Err(error) = result {
                        inner.fail_writing((group, member), &failed, error);
                    }
                    inner.label_updated();
                }),
            );
        }
    }

    /// Has a label say what is true now: of changes that meet the last one says it, whatever their
    /// order.
    fn tell_label(&self, group: u32, member: usize, label: &mut DiskLabel) {
        let state = self.state.lock();
        let disks = &state.groups[group as usize];
        let (missing, rebuilding) = disks.masks();
        label.sequence = label.sequence.get().max(disks.sequence).into();
        label.missing = missing.into();
        label.rebuilding = rebuilding.into();
        if !Missing(rebuilding).contains(member) {
            label.rebuilt_regions = 0.into();
        }
        for (into, member) in label.members.iter_mut().zip(&self.group(group).members) {
            *into = member.seat().identity;
        }
    }

    fn label_updated(self: &Arc<Self>) {
        let waiters = {
            let mut state = self.state.lock();
            state.label_updates -= 1;
            if state.label_updates > 0 {
                return;
            }
            std::mem::take(&mut state.label_waiters)
        };
        for waiter in waiters {
            self.finish_sync(waiter);
        }
    }

    /// What was found wrong with blocks, and made good or not.
    pub(crate) fn count_damage(&self, answer: &Answer) {
        let counters = &mut self.state.lock().counters;
        counters.repaired_blocks += answer.repaired_blocks;
        counters.damaged_blocks += answer.damaged_blocks;
    }

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
                MemberStatus { name, identity: seat.identity, role: member.role, state }
            });
            GroupStatus { kind: group.kind, members: members.collect() }
        });
        Status { groups: groups.collect(), counters: state.counters }
    }
}
