//! Disks and groups that join an aggregate in service, and groups that leave it.
//!
//! Invariant: one change at a time.

mod growth;
mod removal;

use crate::error::RaidError;
use crate::io::Io;
use crate::membership::Members;
use crate::patrol::Patrol;
use crate::request::GrowDone;
use media::Device;
use platform::sync::Mutex;
use std::sync::Arc;

/// What makes an aggregate larger, and smaller.
pub(crate) struct Resizing {
    members: Arc<Members>,
    io: Arc<Io>,
    patrol: Arc<Patrol>,
    /// Disks are being added, or a group is being removed.
    is_changing: Mutex<bool>,
    /// Disks of removed groups, until they are nobody's. Locked after the scrub, before the state
    /// of `membership`.
    leftovers: Mutex<Vec<Arc<Device>>>,
}

impl Resizing {
    pub(crate) fn new(
        (members, io, patrol): (Arc<Members>, Arc<Io>, Arc<Patrol>),
        leftovers: Vec<Arc<Device>>,
    ) -> Self {
        let leftovers = Mutex::new(leftovers);
        Self { members, io, patrol, is_changing: Mutex::default(), leftovers }
    }

    /// Begins to change which disks there are; refuses it, and gives nothing, if that is being done
    /// already. What it gives ends the change.
    fn begin_change(self: &Arc<Self>, done: GrowDone) -> Option<GrowDone> {
        if std::mem::replace(&mut *self.is_changing.lock(), true) {
            done(Err(RaidError::Growing));
            return None;
        }
        let resizing = Arc::clone(self);
        Some(Box::new(move |result| {
            *resizing.is_changing.lock() = false;
            done(result);
        }))
    }

    /// Names of disks whose group was removed and whose labels still are to be erased.
    pub(crate) fn leaving_disks(&self) -> Vec<String> {
        self.leftovers.lock().iter().map(|device| device.name().to_owned()).collect()
    }
}
