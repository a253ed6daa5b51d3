//! Looks for damage while nobody asks for it.
//!
//! The scrub works on tetrises through `io`, and has `membership` write what labels say of it.
//!
//! Invariant: the state's lock is locked before that of `membership`, and no label is locked under
//! it. Whatever changes what the scrub's record says is told to `membership` under it
//! ([`Patrol::change`]).

mod findings;
mod order;
mod scrub;
mod scrubbing;
mod use_of_blocks;
mod verdict;

use crate::error::RaidError;
use crate::io::Io;
use crate::membership::Members;
use crate::patrol::scrub::Scrub;
use platform::sync::Mutex;
use std::sync::Arc;

pub use findings::{ScrubFinding, ScrubStatus};
pub use order::{ScrubDone, ScrubOrder};
pub use use_of_blocks::UseQuery;

/// What looks for damage.
pub(crate) struct Patrol {
    members: Arc<Members>,
    io: Arc<Io>,
    scrub: Mutex<Scrub>,
    /// Tells a scrub whose blocks are damaged.
    use_query: Mutex<Option<UseQuery>>,
}

impl Patrol {
    pub(crate) fn new(members: Arc<Members>, io: Arc<Io>) -> Self {
        let tetrises = members.geometry().groups().iter().map(|group| group.regions).sum();
        let scrub = Mutex::new(Scrub::new(members.scrub_record(), tetrises));
        Self { members, io, scrub, use_query: Mutex::default() }
    }

    /// Of several queries the last one set is asked.
    pub(crate) fn set_use_query(&self, query: UseQuery) {
        *self.use_query.lock() = Some(query);
    }

    /// Changes the scrub; labels say what its record says from then on.
    fn change<T>(&self, change: impl FnOnce(&mut Scrub) -> T) -> T {
        let mut scrub = self.scrub.lock();
        let changed = change(&mut scrub);
        self.members.set_scrub_record(scrub.record());
        changed
    }

    /// Begins as much as may be under way.
    pub(crate) fn go_on(self: &Arc<Self>) {
        self.scrub_next();
    }

    /// Does something during which no scrub begins or ends; it is told whether one is under way.
    pub(crate) fn hold<T>(
        &self,
        work: impl FnOnce(bool) -> Result<T, RaidError>,
    ) -> Result<T, RaidError> {
        let scrub = self.scrub.lock();
        work(scrub.is_under_way())
    }

    /// Lets go of everyone who waits.
    pub(crate) fn abandon(&self) {
        let query = self.use_query.lock().take();
        let waiters = self.scrub.lock().abandon();
        drop((query, waiters));
    }
}
