//! Groups and what lies where, and how labels tell it.
//!
//! Invariants: a layout never changes; a larger one takes its place when the aggregate grows, in
//! which every disk and every block is where it was, and one without a group when that is removed.
//! What is under way in a tetris sees one layout of its group from its start to its end.

use crate::geometry::Geometry;
use crate::member::{Group, Member, Seat};
use ondisk::label::{DiskLabel, DiskRole, GROUP_DISKS_MAX, RaidKind};
use std::sync::Arc;
use units::Pvbn;

/// See the module.
#[derive(Clone)]
pub(crate) struct Layout {
    pub geometry: Arc<Geometry>,
    pub groups: Vec<Arc<Group>>,
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
        label.members = [[0; 16]; GROUP_DISKS_MAX];
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
