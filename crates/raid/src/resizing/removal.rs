//! Taking a group out of an aggregate while it is in service, and letting go of its disks: growth
//! backwards.
//!
//! Nothing in the group is in use; the caller sees to that, and has moved away what was. Its index
//! stays as a place without disks, for tetrises, notes and labels name groups by it, and the
//! numbers of its blocks are nobody's for good: what joins takes those behind.
//!
//! Order: nothing is under way in the group; the layout in memory; then the labels of the other
//! groups, which say that it is removed; when all do, the labels of its own disks are erased, and
//! they are nobody's. One durable label of another group is enough (see `group_list`):
//!
//! - A crash before finds the group as it was: its labels are untouched, and nothing was written to
//!   it since that would be missed, nor to others that would contradict it.
//! - A crash between finds a label that says it. The start leaves the group's disks out, has all
//!   labels say it before anything else is durable, and erases those of the disks then. If the disk
//!   with that label is not found, the group is there as before, and the label is old from the next
//!   one on that a disk of its group gets.
//! - A disk that was away meanwhile, and one that could not be erased, say that they are of the
//!   group when they come back, and are let go of in the same way: what others say counts.
//!
//! What a disk holds at its ends is erased after its label, so that it shows as unused; a crash
//! before that leaves it to be taken by force.
//!
//! Invariants: a label is erased only after the labels of all disks in use say that its group was
//! removed. Disks of removed groups are neither read nor written but for that: what their
//! superblocks say does not count. Before one is nobody's every superblock on its way is there.
//!
//! Fails: [`RaidError`], with nothing changed; or as the store does, and then the group is removed
//! or not, as the next start finds.

use crate::error::RaidError;
use crate::inner::{Inner, State};
use crate::layout::Layout;
use crate::membership::GroupState;
use crate::request::GrowDone;
use media::{Device, MediaError};
use platform::completion::gather;
use std::sync::Arc;

impl Inner {
    pub(crate) fn remove_group(self: &Arc<Self>, group: u32, done: GrowDone) {
        let Some(done) = self.begin_change(done) else { return };
        let layout = self.layout_without(&self.state.lock(), group);
        if let Err(error) = layout {
            return done(Err(error));
        }
        let job = move |inner: &Arc<Self>| {
            let left = inner.leave(group);
            // What waited finds no disks.
            inner.open_group(group);
            match left {
                Ok(()) => inner.let_go(done),
                Err(error) => done(Err(error)),
            }
        };
        self.close_group(group, Box::new(job));
    }

    /// Takes the group out of the layout: nothing is under way in it.
    fn leave(&self, group: u32) -> Result<(), RaidError> {
        let mut state = self.state.lock();
        // Something may have begun while what was under way came to its end.
        let layout = self.layout_without(&state, group)?;
        let members = self.group(group);
        let devices = members.members.iter().filter_map(|member| member.device());
        state.leftovers.extend(devices);
        state.tetrises.retain(|tetris, _| tetris.group != group);
        let disks = &mut state.groups[group as usize];
        let (closed, sequence) = (disks.closed.take(), disks.sequence);
        *disks = GroupState { closed, sequence, ..GroupState::default() };
        // All are to say it.
        state.groups.iter_mut().for_each(|disks| disks.labelled = None);
        self.set_layout(layout);
        Ok(())
    }

    /// The layout without a group, if it can be removed now.
    fn layout_without(&self, state: &State, group: u32) -> Result<Layout, RaidError> {
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
        if let Some(filled) = disks.fillings().next() {
            let disk = filled.device().name().to_owned();
            return Err(RaidError::Filling { group, disk });
        }
        if state.scrub.is_under_way() {
            return Err(RaidError::ScrubUnderWay);
        }
        let mut tetrises = state.tetrises.iter().filter(|(tetris, _)| tetris.group == group);
        let is_written = tetrises.any(|(_, tetris)| !tetris.filling.is_empty());
        if is_written || state.superblocks_under_way > 0 {
            return Err(RaidError::Written { group });
        }
        layout.without(group).ok_or(RaidError::LastGroup { group })
    }

    /// Goes on with removals that a crash interrupted, and lets go of disks that came back.
    pub(crate) fn resume_removals(self: &Arc<Self>) {
        if !self.state.lock().leftovers.is_empty() {
            self.let_go(Box::new(|_| ()));
        }
    }

    /// Has all labels say which groups were removed, then erases those of their disks.
    fn let_go(self: &Arc<Self>, done: GrowDone) {
        let inner = Arc::clone(self);
        self.tell_all(Box::new(move |told| match told {
            Ok(()) => inner.erase_leftovers(done),
            Err(error) => done(Err(error.into())),
        }));
    }

    fn erase_leftovers(self: &Arc<Self>, done: GrowDone) {
        let devices = self.state.lock().leftovers.clone();
        let (inner, erased) = (Arc::clone(self), devices.clone());
        // If one cannot be erased, the labels of the others say enough.
        let parts = gather(devices.len(), move |_: Vec<Result<(), MediaError>>| {
            let is_erased =
                |device: &Arc<Device>| erased.iter().any(|one| Arc::ptr_eq(one, device));
            inner.state.lock().leftovers.retain(|device| !is_erased(device));
            done(Ok(()));
        });
        for (device, part) in devices.iter().zip(parts) {
            device.erase(part);
        }
    }
}
