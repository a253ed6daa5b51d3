//! How far the erasure of deleted aggregates is: tries, removals of journals that hang, and the
//! causes that were told.
//!
//! Invariants: see [`crate::recovery::erasing`], which fills and empties it.

use crate::disks::deleted::Deleted;
use crate::recovery::tries::Tries;
use crate::waits::Ending;
use dblade::LogRemoval;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::AggregateUuid;

/// What became of a journal, or why nothing did.
pub(super) type JournalEnd = Result<LogRemoval, String>;

/// How far the erasure of deleted aggregates is.
#[derive(Default)]
pub(crate) struct Erasing {
    pub(super) tries: Tries,
    /// Removals of journals that were begun and did not end in time.
    pub(super) removals: Mutex<BTreeMap<AggregateUuid, Arc<Ending<JournalEnd>>>>,
    /// The cause that was told last.
    pub(super) told: Mutex<BTreeMap<AggregateUuid, String>>,
}

impl Erasing {
    /// Tells why something is not erased yet, if that was not what was told last.
    pub(super) fn tell(&self, deleted: &Deleted, part: &str, cause: &str) {
        let told = format!("{part}: {cause}");
        let before = self.told.lock().insert(deleted.identity, told.clone());
        if before.as_ref() != Some(&told) {
            tracing::warn!(aggregate = deleted.name, part, cause, "not erased yet");
        }
    }
}
