//! What is left of deleted aggregates is erased: the labels of their disks, and their journals.
//!
//! Invariants:
//! - An aggregate that is deleted and whose parts somebody still uses is left alone: a request of
//!   before must not land on the disks of another aggregate.
//! - One that was in use after its deletion, by a server that could not read the list, is left as
//!   it is until somebody decides.
//! - It is done in the turn of administrators: no disk is opened while one of them opens disks.
//! - A journal that hangs is waited for for [`JOURNAL_WAIT_MAX`], on a thread of its own.
//! - What cannot be erased is tried more and more rarely, and each cause is told once. It is given
//!   up when all disks were looked at and none has a label of the aggregate (a crash came after the
//!   erasure), or when the device of the journal is gone or somebody else's.
//!
//! Fails: never; what is left is listed ([`crate::disks::deleted`]) and tried again.

use crate::disks::deleted::Deleted;
use crate::disks::table::Content;
use crate::recovery::erasures::JournalEnd;
use crate::recovery::room::Recovery;
use crate::waits::Ending;
use dblade::LogRemoval;
use ondisk::root::Superblock;
use platform::Disk;
use std::sync::Arc;
use std::time::Duration;
use units::{AggregateUuid, Timestamp};

/// How long a journal is waited for: it may be on a file system that hangs.
const JOURNAL_WAIT_MAX: Duration = Duration::from_secs(4);

impl Recovery {
    /// Whether an aggregate may have a journal beside its disks. One that hangs is there.
    pub(super) fn has_journal(&self, identity: AggregateUuid) -> bool {
        let journals = Arc::clone(&self.journals);
        let waits = &self.node.waits;
        let Ok(looked) = waits.begin("journal", move || journals.is_there(&identity)) else {
            return true;
        };
        waits.wait_a_while(&looked, JOURNAL_WAIT_MAX).unwrap_or(true)
    }

    /// Erases what is left of aggregates that were deleted, in the turn of administrators.
    pub(crate) fn resume_deletions(&self) {
        let deleted = &self.disks.deleted;
        deleted.settle();
        let is_away = |outage: &dblade::Outage| deleted.has(&outage.summary.identity);
        if !deleted.pending().is_empty() || self.node.engine.outages().iter().any(is_away) {
            let Some(_turn) = self.node.turn_now() else { return };
            self.finish_deletions();
        }
    }

    /// The same in a turn that somebody has.
    pub(super) fn finish_deletions(&self) {
        // One that lost its disks just when it was deleted was taken for one that comes back.
        for outage in self.node.engine.outages() {
            let identity = outage.summary.identity;
            if self.disks.deleted.has(&identity) {
                self.forget(identity, &outage.summary.name);
            }
        }
        let now = self.node.clock.monotonic_nanoseconds();
        for deleted in self.disks.deleted.pending() {
            let (identity, tries) = (deleted.identity, &self.erasing.tries);
            let is_its = |one: &Arc<aggregate::Aggregate>| one.parts.identity.aggregate == identity;
            let is_in_service = self.node.engine.aggregates().iter().any(is_its);
            // What was asked of its disks before must not land on those of another.
            if is_in_service
                || !self.node.engine.is_closed(&identity)
                || !tries.is_due(identity, (&deleted.disks, true), now)
            {
                continue;
            }
            tries.note(identity, deleted.disks.clone(), now);
            if self.disks.deleted.is_of_earlier(&identity) && self.was_used_since(&deleted) {
                self.erasing.tell(&deleted, "its disks", "they were written to since");
                self.disks.deleted.note_use(&deleted.name);
                continue;
            }
            if !deleted.disks.is_empty() {
                self.erase_disks(&deleted);
            }
            if deleted.has_journal {
                self.remove_journal(&deleted);
            }
            if !self.disks.deleted.find(&identity).is_some_and(|one| one.is_pending()) {
                self.erasing.told.lock().remove(&identity);
            }
        }
    }

    /// Whether an aggregate has a consistency point of after its deletion.
    fn was_used_since(&self, deleted: &Deleted) -> bool {
        let mut names = self.disks.names();
        names.retain(|name| !self.disks.is_held(name));
        let its = names.iter().filter_map(|name| match self.disks.look(name) {
            Content::Member(disk, label) if label.aggregate == deleted.identity => Some(disk),
            _ => None,
        });
        let is_later = |one: &Superblock| deleted.is_use_since(one.cp(), Timestamp(one.time.get()));
        let its: Vec<Arc<dyn Disk>> = its.collect();
        its.into_iter().any(|disk| self.superblocks(disk, deleted.identity).iter().any(is_later))
    }

    /// The superblocks of an aggregate that one of its disks has.
    pub(super) fn superblocks(
        &self,
        disk: Arc<dyn Disk>,
        identity: AggregateUuid,
    ) -> Vec<Superblock> {
        let device = self.node.waits.wait_for(|done| media::open(disk, done));
        let Some(Ok(device)) = device else { return Vec::new() };
        let read = |slot| {
            let block = self.node.waits.wait_for(|done| device.read_superblock(slot, done));
            let found = Superblock::from_block(&*block?.ok()?).ok()?;
            (found.aggregate == identity).then_some(found)
        };
        (0..media::SUPERBLOCK_SLOTS).filter_map(read).collect()
    }

    fn erase_disks(&self, deleted: &Deleted) {
        let mut names = self.disks.names();
        names.retain(|name| !self.disks.is_held(name));
        let mut are_all_seen = true;
        for name in names {
            if self.checks.table.has_disk(&name) || self.disks.upkeep.is_under_way(&name) {
                are_all_seen = false;
                continue;
            }
            let (disk, label) = match self.disks.look(&name) {
                Content::Member(disk, label) => (disk, label),
                Content::Other(_) => continue,
                Content::CutOff(..) | Content::Unknown(_) => {
                    are_all_seen = false;
                    continue;
                }
            };
            if label.aggregate != deleted.identity || !deleted.disks.contains(&label.disk) {
                continue;
            }
            match self.erase(disk) {
                Ok(()) => {
                    tracing::info!(aggregate = deleted.name, disk = name, "the disk is free");
                    self.node.left_out.lock().retain(|left| left.name != name);
                    self.disks.deleted.note(&deleted.identity, |one| {
                        one.disks.remove(&label.disk);
                    });
                }
                Err(cause) => {
                    are_all_seen = false;
                    self.erasing.tell(deleted, &name, &cause);
                }
            }
        }
        if are_all_seen && self.erasing.tries.is_rare(deleted.identity) {
            let aggregate = &deleted.name;
            tracing::info!(aggregate, "no disk has a label of the deleted aggregate any more");
            self.disks.deleted.note(&deleted.identity, |one| one.disks.clear());
        }
    }

    fn erase(&self, disk: Arc<dyn Disk>) -> Result<(), String> {
        let stopped = || "the engine stopped".to_owned();
        let opened = self.node.waits.wait_for(|done| media::open(disk, done));
        let device = opened.ok_or_else(stopped)?.map_err(|error| error.to_string())?;
        let device = Arc::new(device);
        let erased = self.node.waits.wait_for(|done| device.erase_label_last(done));
        erased.ok_or_else(stopped)?.map_err(|error| error.to_string())
    }

    fn remove_journal(&self, deleted: &Deleted) {
        let identity = deleted.identity;
        let begun = self.erasing.removals.lock().remove(&identity);
        let removal = match begun.map_or_else(|| self.begin_removal(deleted), Ok) {
            Ok(removal) => removal,
            Err(cause) => return self.erasing.tell(deleted, "its journal", &cause),
        };
        let removed = || self.disks.deleted.note(&identity, |one| one.has_journal = false);
        match removal.outcome() {
            Some(Ok(LogRemoval::Removed)) => removed(),
            Some(Ok(LogRemoval::Left(cause))) if self.erasing.tries.is_rare(identity) => {
                let aggregate = &deleted.name;
                tracing::warn!(aggregate, cause, "the device of its journal is left as it is");
                removed();
            }
            Some(Ok(LogRemoval::Left(cause)) | Err(cause)) => {
                self.erasing.tell(deleted, "its journal", &cause);
            }
            None => {
                self.erasing.removals.lock().insert(identity, removal);
                self.erasing.tell(deleted, "its journal", "it does not answer");
            }
        }
    }

    /// Begins to remove a journal, and waits for the end for a while.
    fn begin_removal(&self, deleted: &Deleted) -> Result<Arc<Ending<JournalEnd>>, String> {
        let (engine, identity) = (Arc::clone(&self.node.engine), deleted.identity);
        let (waits, name) = (self.node.waits.clone(), deleted.name.clone());
        // Each copy is removed on this thread: a file system that hangs keeps nobody else waiting.
        let remove = move || {
            let copies = engine.log_copies_outside(identity).into_iter();
            let removed = copies.map(|copy| {
                waits
                    .request("cannot remove", &name, |done| copy.remove(done))
                    .map_err(|error| error.to_string())
            });
            // A copy that fails does not keep the others.
            let all: Vec<JournalEnd> = removed.collect();
            all.into_iter().try_fold(LogRemoval::Removed, |all, one| Ok(all.and(one?)))
        };
        let removal =
            self.node.waits.begin("journal", remove).map_err(|error| error.to_string())?;
        self.node.waits.wait_a_while(&removal, JOURNAL_WAIT_MAX);
        Ok(removal)
    }
}
