//! Groups that join and leave: what of that is who is a member.
//!
//! Why a group can be removed, and in which order, is told in `resizing/removal.rs`.

use crate::error::RaidError;
use crate::layout::Layout;
use crate::membership::{Busy, GroupState, Members, State};
use media::Device;
use std::sync::Arc;

impl Members {
    /// Takes over a larger layout, with so many groups more.
    pub(crate) fn grow(&self, layout: Layout, new_groups: usize) {
        {
            let mut state = self.state.lock();
            // Of disks that were to be the same group before a crash none has a higher one.
            let sequence = state.groups.iter().map(|group| group.sequence).max().unwrap_or(0);
            let new = || GroupState::new(sequence);
            state.groups.extend(std::iter::repeat_with(new).take(new_groups));
            // What the labels say of who there is has changed, even if the masks have not.
            state.groups.iter_mut().for_each(|group| group.labelled = None);
        }
        self.set_layout(layout);
    }

    /// Whether a group can be removed now.
    pub(crate) fn check_removable(&self, group: u32, busy: &Busy<'_>) -> Result<(), RaidError> {
        self.layout_without(&self.state.lock(), group, busy).map(|_| ())
    }

    /// Takes a group out of the layout, and gives its disks.
    pub(crate) fn remove_group(
        &self,
        group: u32,
        busy: &Busy<'_>,
    ) -> Result<Vec<Arc<Device>>, RaidError> {
        let mut state = self.state.lock();
        let layout = self.layout_without(&state, group, busy)?;
        let place = self.group(group);
        let devices = place.members.iter().filter_map(|member| member.device()).collect();
        let disks = &mut state.groups[group as usize];
        *disks = GroupState::new(disks.sequence);
        // All are to say it.
        state.groups.iter_mut().for_each(|disks| disks.labelled = None);
        self.set_layout(layout);
        Ok(devices)
    }

    /// The layout without a group, if it can be removed now.
    fn layout_without(
        &self,
        state: &State,
        group: u32,
        busy: &Busy<'_>,
    ) -> Result<Layout, RaidError> {
        if let Some(failure) = &state.failure {
            return Err(failure.clone().into());
        }
        let layout = self.layout();
        let places = layout.geometry.groups();
        let Some(place) = places.get(group as usize) else {
            return Err(RaidError::NoSuchGroup { group, count: places.len() });
        };
        if place.is_removed() {
            return Err(RaidError::RemovedGroup { group });
        }
        let mut others = (0..).zip(places).filter(|(at, _)| *at != group);
        if !others.any(|(_, other)| !other.is_removed() && !other.is_object()) {
            return Err(RaidError::LastGroup { group });
        }
        let disks = &state.groups[group as usize];
        if let Some((_, filled)) = disks.fillings().next() {
            let disk = filled.device().name().to_owned();
            return Err(RaidError::Filling { group, disk });
        }
        if busy.is_scrubbing {
            return Err(RaidError::ScrubUnderWay);
        }
        let without = layout.without(group).ok_or(RaidError::LastGroup { group })?;
        if state.superblocks_under_way > 0 || (busy.is_written)() {
            return Err(RaidError::Written { group });
        }
        Ok(without)
    }
}
