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
use crate::io::Io;
use crate::membership::Busy;
use crate::request::GrowDone;
use crate::resizing::Resizing;
use media::{Device, MediaError};
use platform::completion::gather;
use std::sync::Arc;

impl Resizing {
    pub(crate) fn remove_group(self: &Arc<Self>, group: u32, done: GrowDone) {
        let Some(done) = self.begin_change(done) else { return };
        if let Err(error) = self.check_removable(group) {
            return done(Err(error));
        }
        let resizing = Arc::clone(self);
        let job = move |io: &Arc<Io>| {
            let left = resizing.leave(group);
            // What waited finds no disks.
            io.open_group(group);
            match left {
                Ok(()) => resizing.let_go(done),
                Err(error) => done(Err(error)),
            }
        };
        self.io.close_group(group, Box::new(job));
    }

    fn check_removable(&self, group: u32) -> Result<(), RaidError> {
        self.patrol.hold(|is_scrubbing| {
            let is_busy = Busy { is_scrubbing, is_written: &|| self.io.is_written(group) };
            self.members.check_removable(group, &is_busy)
        })
    }

    /// Takes the group out of the layout: nothing is under way in it. Something may have begun
    /// while what was under way came to its end.
    fn leave(&self, group: u32) -> Result<(), RaidError> {
        self.patrol.hold(|is_scrubbing| {
            let is_busy = Busy { is_scrubbing, is_written: &|| !self.io.forget_group(group) };
            let mut leftovers = self.leftovers.lock();
            leftovers.extend(self.members.remove_group(group, &is_busy)?);
            Ok(())
        })
    }

    /// Goes on with removals that a crash interrupted, and lets go of disks that came back.
    pub(crate) fn resume_removals(self: &Arc<Self>) {
        if !self.leftovers.lock().is_empty() {
            self.let_go(Box::new(|_| ()));
        }
    }

    /// Has all labels say which groups were removed, then erases those of their disks.
    fn let_go(self: &Arc<Self>, done: GrowDone) {
        let resizing = Arc::clone(self);
        self.members.tell_all(Box::new(move |told| match told {
            Ok(()) => resizing.erase_leftovers(done),
            Err(error) => done(Err(error.into())),
        }));
    }

    fn erase_leftovers(self: &Arc<Self>, done: GrowDone) {
        let devices = self.leftovers.lock().clone();
        let (resizing, erased) = (Arc::clone(self), devices.clone());
        // If one cannot be erased, the labels of the others say enough.
        let parts = gather(devices.len(), move |_: Vec<Result<(), MediaError>>| {
            let is_erased =
                |device: &Arc<Device>| erased.iter().any(|one| Arc::ptr_eq(one, device));
            resizing.leftovers.lock().retain(|device| !is_erased(device));
            done(Ok(()));
        });
        for (device, part) in devices.iter().zip(parts) {
            device.erase(part);
        }
    }
}
