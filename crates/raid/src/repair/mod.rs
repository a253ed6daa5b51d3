//! Fills disks with what their places must hold: a rebuild, a resync, a copy.
//!
//! The room has no state of its own: how far a disk has come is told by its label, so `membership`
//! keeps it. It works on tetrises through `io`, one lock at a time.

mod rebuild;
mod resync;

use crate::io::Io;
use crate::layout::DiskPlace;
use crate::membership::{Fill, Members};
use std::sync::Arc;

/// Fills disks.
pub(crate) struct Repair {
    members: Arc<Members>,
    io: Arc<Io>,
}

impl Repair {
    pub(crate) const fn new(members: Arc<Members>, io: Arc<Io>) -> Self {
        Self { members, io }
    }

    /// The rooms that it works through.
    pub(crate) fn lower_rooms(&self) -> (Arc<Members>, Arc<Io>) {
        (Arc::clone(&self.members), Arc::clone(&self.io))
    }

    /// Goes on with what was interrupted.
    pub(crate) fn resume(self: &Arc<Self>) {
        let places = self.members.places_being_filled();
        places.into_iter().for_each(|place| self.fill_at(place));
        self.members.take_back_all();
    }
}

impl Fill for Repair {
    fn fill(self: Arc<Self>, place: DiskPlace) {
        self.fill_at(place);
    }
}
