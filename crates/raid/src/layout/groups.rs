//! Groups, the places in them and the disks that have the places.
//!
//! Invariants: a piece of work uses the disks that it began with. One that takes another's place
//! meanwhile has nothing of what the other had, and is as good as missing, unless it had been
//! filled beside the other in that region when the work began ([`Missing`]).

use crate::layout::geometry::Geometry;
use crate::stripe::Code;
use media::Device;
use ondisk::label::{DiskLabel, DiskRole, GROUP_DISKS_MAX, RaidKind};
use platform::sync::Mutex;
use std::sync::Arc;
use units::{DiskUuid, Pvbn};

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
    pub identity: DiskUuid,
    /// Not there: the disk was absent when the aggregate was put together.
    pub device: Option<Arc<Device>>,
    /// The number of its replacement in the group; 0 since the start.
    pub replacement: u64,
    /// Which copy in the group it was, if it was filled beside the disk that had the place.
    pub copy: Option<u64>,
}

impl Seat {
    /// The place of a disk that is not there.
    pub(crate) const fn empty(identity: DiskUuid) -> Self {
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
    /// What is missing by `mask`, after so many replacements; `copied` is a copy that is there.
    pub(crate) const fn new(mask: u32, replacements: u64, copied: Option<u64>) -> Self {
        Self { mask, replacements, copied }
    }

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
            Some(seat) => seat.identity.to_string(),
            None => "?".to_owned(),
        }
    }
}

impl Group {
    /// A group of these disks, the parity disks first.
    pub(crate) fn new(kind: RaidKind, seats: impl IntoIterator<Item = Seat>) -> Self {
        let mut group = Self { kind, data_disks: 0, members: Vec::new() };
        seats.into_iter().for_each(|seat| group.push(seat));
        group
    }

    /// What is left of a group that was removed.
    pub(crate) fn removed() -> Self {
        Self::new(RaidKind::None, [])
    }

    /// One disk more.
    pub(crate) fn push(&mut self, seat: Seat) {
        let is_parity = self.members.len() < self.kind.parity_disks();
        let role = if is_parity { DiskRole::Parity } else { DiskRole::Data };
        self.members.push(Arc::new(Member::new(role, seat)));
        self.data_disks += usize::from(!is_parity);
    }
}

/// Groups and what lies where, and how labels tell it.
///
/// A layout never changes. A larger one takes its place when the aggregate grows, in which every
/// disk and every block is where it was, and one without a group when that is removed. What is
/// under way in a tetris sees one layout of its group from its start to its end.
#[derive(Clone)]
pub(crate) struct Layout {
    pub geometry: Arc<Geometry>,
    pub groups: Vec<Arc<Group>>,
}

impl Layout {
    /// The first group that was not removed: its labels count.
    pub(crate) fn head(&self) -> u32 {
        let groups = (0..).zip(&self.groups);
        let mut left = groups.filter(|(_, group)| !group.members.is_empty());
        left.next().map_or(0, |(group, _)| group)
    }

    /// This one without a group; `None` if it has no other.
    pub(crate) fn without(&self, group: u32) -> Option<Self> {
        let geometry = Arc::new(self.geometry.without(group)?);
        let mut groups = self.groups.clone();
        groups[group as usize] = Arc::new(Group::removed());
        Some(Self { geometry, groups })
    }

    /// Has a label tell who is in its group, and where their blocks are.
    pub(crate) fn describe(&self, group: u32, label: &mut DiskLabel) {
        let (place, geometry) = (&self.groups[group as usize], self.geometry.group(group));
        label.group_index = group.into();
        label.groups_count = (self.groups.len() as u32).into();
        label.removed_blocks = self.geometry.removed_blocks().into();
        // One that was away may say of a group that is there that it was removed.
        label.removed.fill(0);
        let removed = (0..).zip(self.geometry.groups()).filter(|(_, place)| place.is_removed());
        removed.for_each(|(at, _)| label.set_removed(at));
        label.disks_in_group = (place.members.len() as u16).into();
        label.raid_kind = place.kind.number();
        label.data_regions = geometry.regions.into();
        label.log_regions = geometry.log_regions.into();
        label.members = [DiskUuid::NIL; GROUP_DISKS_MAX];
        for (into, member) in label.members.iter_mut().zip(&place.members) {
            *into = member.seat().identity;
        }
        let parity = std::iter::repeat_n(Pvbn(0), place.kind.parity_disks());
        let bases = parity.chain(geometry.bases.iter().copied()).chain(std::iter::repeat(Pvbn(0)));
        for (into, base) in label.bases.iter_mut().zip(bases) {
            *into = base.get().into();
        }
    }

    /// The label of a member: `common` and its own.
    pub(crate) fn label(&self, group: u32, member: usize, common: &DiskLabel) -> DiskLabel {
        let mut label = common.clone();
        self.describe(group, &mut label);
        let place = &self.groups[group as usize].members[member];
        label.disk = place.seat().identity;
        label.disk_index = (member as u16).into();
        label.role = place.role.number();
        // They were another disk's.
        label.clear_errors();
        label
    }
}
