//! The log of an aggregate that is being opened, and a new one where it is lost.
//!
//! After a clean stop the log holds nothing that the last consistency point has not: a new one
//! takes its place, and the superblock of the consistency point after the start names it. After any
//! other stop the log may be the only place of acknowledged operations, so the aggregate is refused
//! until somebody says that they may be lost ([`LostLog::Replaced`]). What the last consistency
//! point has is consistent all the same (FlexGroup section 2): the operations since then are
//! missing, each of them whole.
//!
//! The new log's identity follows from the old one's, which the superblock names until the
//! consistency point after the start. So a start that dies before finds its own log again, with the
//! notes of stripes that it made. Before a block of that consistency point is written the
//! superblock says that the log is needed.
//!
//! Notes of stripes are lost with a log that was needed. Parity of stripes that a crash left half
//! written is wrong until a scrub has been there, so the labels call for one before anything else
//! is written ([`ScrubOrder::MakeParity`]); data has its checksums.
//!
//! Fails: [`EngineError::JournalLost`]. A disk that is neither blank nor a log of this aggregate,
//! or that a newer build wrote, is never formatted: [`EngineError::Journal`].

use crate::engine::{LogUnavailable, LostLog};
use crate::error::EngineError;
use crate::log_copies::{PROBED_BLOCKS, open_log_on};
use crate::log_places;
use crate::open::Opening;
use aggregate::AggregateError;
use nvlog::{Log, LogError, LogIdentity, Record};
use platform::mutation::{self, Rule};
use platform::{Disk, DiskError};
use raid::{RaidError, ScrubOrder, StoreError};
use std::fmt::Display;
use std::sync::Arc;
use units::{BlockRef, LogUuid, Timestamp};

/// Odd, so that different logs have different replacements.
const IDENTITY_FACTOR: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

type Opened = Result<(Log, Vec<Record>), LogError>;

impl Opening {
    /// Opens the log, or a new one in its place; then recovery goes on.
    pub fn open_log(self) {
        let aggregate = self.identity.aggregate;
        let on_disks = self.store.log_places().into_iter().map(|place| place.disk);
        let mut disks: Vec<Arc<dyn Disk>> = on_disks.collect();
        let (mut missing, mut failed) = (Vec::new(), Vec::new());
        for place in log_places::outside(&self.engine, aggregate) {
            match place.open(aggregate) {
                Ok(disk) => disks.push(disk),
                Err(LogUnavailable::Missing(cause)) => missing.push(cause),
                Err(LogUnavailable::Failed(cause)) => failed.push(cause),
            }
        }
        // Of several places one that fails does not keep the log from being given up.
        let is_given_up = !missing.is_empty() && self.accepts_loss();
        match (disks.is_empty(), failed.is_empty() || is_given_up) {
            (false, _) => self.read_log(disks, failed),
            (true, true) => self.replace_log(None, &missing.join("; ")),
            (true, false) => self.refuse_log(&failed.join("; ")),
        }
    }

    fn refuse_log(self, cause: &impl Display) {
        let error = EngineError::journal(&self.identity.name, cause);
        self.give_up(error);
    }

    /// `failed` is why other places cannot be read, which may have what these disks have not.
    fn read_log(mut self, disks: Vec<Arc<dyn Disk>>, failed: Vec<String>) {
        let same = disks.clone();
        let (engine, store) = (Arc::clone(&self.engine), Arc::clone(&self.store));
        let (identity, committed) = (self.log_identity(), self.superblock.cp());
        let judged = (self.replacement(), self.accepts_loss());
        let opened = move |outcome: Opened| match outcome {
            Ok(opened) => self.log_opened(opened),
            Err(LogError::OtherLog { found, .. }) if found == self.replacement() => {
                // That of a start that died.
                self.identity.log = found;
                self.lost_log = Some("a new one was begun at an earlier start".to_owned());
                self.read_log(same, failed);
            }
            Err(error) if !failed.is_empty() && !self.accepts_loss() => {
                self.refuse_log(&format!("{error}; {}", failed.join("; ")));
            }
            Err(error) => self.log_not_opened(&same, &error),
        };
        open_log_on(&engine, &store, disks, identity, committed, judged, Box::new(opened));
    }

    fn log_not_opened(self, disks: &[Arc<dyn Disk>], error: &LogError) {
        let is_it = |disk: &&Arc<dyn Disk>| Some(disk.name()) == error.disk();
        match (error, disks.iter().find(is_it).cloned()) {
            (LogError::OtherLog { .. }, _) if self.is_needed() => {
                let cause = elsewhere(error, self.identity.log);
                self.refuse_log(&cause);
            }
            (LogError::NotALog { .. }, Some(disk)) => self.replace_if_blank(disk, error),
            (error, Some(disk)) if is_lost(error) => self.replace_log(Some(disk), error),
            (error, _) => self.refuse_log(error),
        }
    }

    /// Whether what only the log has may be lost, or there is nothing of the kind.
    fn accepts_loss(&self) -> bool {
        !self.is_needed() || self.if_lost == LostLog::Replaced
    }

    /// Whether the log may have what no consistency point has.
    fn is_needed(&self) -> bool {
        self.superblock.clean.get() != 1
    }

    /// The identity of the new log that replaces the log named in the superblock.
    fn replacement(&self) -> LogUuid {
        let old = u128::from_le_bytes(self.superblock.log.0);
        let mixed = old.wrapping_mul(IDENTITY_FACTOR).wrapping_add(self.superblock.cp.get().into());
        LogUuid(mixed.to_le_bytes())
    }

    fn log_identity(&self) -> LogIdentity {
        LogIdentity { aggregate: self.identity.aggregate, log: self.identity.log }
    }

    fn log_opened(mut self, (log, records): (Log, Vec<Record>)) {
        if let Some(record) = log.missing() {
            let aggregate = &self.identity.name;
            tracing::error!(%aggregate, record, "the journal is damaged: acknowledged changes from this record on are lost");
        }
        self.log = Some(Arc::new(log));
        self.records = records;
        self.adopt();
    }

    /// Makes a log on a disk that holds none, if the disk is blank.
    fn replace_if_blank(self, disk: Arc<dyn Disk>, error: &LogError) {
        let cause = error.to_string();
        let probed = usize::try_from(disk.size_blocks()).unwrap_or(PROBED_BLOCKS);
        let same = Arc::clone(&disk);
        let read = move |outcome: Result<Vec<BlockRef>, DiskError>| match outcome {
            Ok(blocks) if blocks.iter().all(|block| block.is_zero()) => {
                self.replace_log(Some(same), &cause);
            }
            Ok(_) => self.refuse_log(&format!(
                "{cause}, and is not blank: bring the journal back, or name another place for it \
                 under [node] journal"
            )),
            Err(error) => self.refuse_log(&error),
        };
        disk.read(0, probed.min(PROBED_BLOCKS), Box::new(read));
    }

    /// Makes a log in place of the one that is lost, if that may be: on `disk`, or on a new one.
    fn replace_log(mut self, disk: Option<Arc<dyn Disk>>, cause: &impl Display) {
        let (is_needed, cause) = (self.is_needed(), cause.to_string());
        let aggregate = self.identity.name.clone();
        if is_needed && self.if_lost == LostLog::Refused && !mutation::broken(Rule::LostLogReplaced)
        {
            let committed = Timestamp(self.superblock.time.get());
            return self.give_up(EngineError::JournalLost { aggregate, cause, committed });
        }
        tracing::warn!(%aggregate, is_needed, cause, "the journal is lost; a new one is made");
        self.lost_log = Some(cause);
        if !is_needed {
            return self.make_log(disk);
        }
        let (store, wall) = (Arc::clone(&self.store), self.engine.configuration.clock.wall());
        let labelled = move |outcome: Result<(), RaidError>| match outcome {
            Ok(()) => self.make_log(disk),
            Err(error) => self.give_up(error.into()),
        };
        store.scrub(ScrubOrder::MakeParity, wall, Box::new(labelled));
    }

    fn make_log(mut self, disk: Option<Arc<dyn Disk>>) {
        self.identity.log = self.replacement();
        let aggregate = self.identity.aggregate;
        let created = || log_places::for_a_new_one(&self.engine, &*self.store, aggregate);
        let disk = match disk.map_or_else(created, Ok) {
            Ok(disk) => disk,
            Err(cause) => return self.refuse_log(&cause),
        };
        if log_places::is_alone(&self.engine, &*self.store, aggregate) {
            return self.format_log(disk, 0);
        }
        // A new identity: the next start may make this log on another disk.
        let copy = self.engine.configuration.entropy.next_u64().max(1);
        let store = Arc::clone(&self.store);
        let named = move |outcome: Result<(), StoreError>| match outcome {
            Ok(()) => self.format_log(disk, copy),
            Err(error) => self.give_up(AggregateError::from(error).into()),
        };
        store.set_log_copies(&[copy], Box::new(named));
    }

    fn format_log(self, disk: Arc<dyn Disk>, copy: u64) {
        let (same, identity) = (Arc::clone(&disk), self.log_identity());
        let judged = (identity.log, false);
        let (engine, store, committed) =
            (Arc::clone(&self.engine), Arc::clone(&self.store), self.superblock.cp());
        let opened = move |outcome: Opened| match outcome {
            Ok(opened) => self.log_opened(opened),
            Err(error) => self.refuse_log(&error),
        };
        let formatted = move |outcome: Result<(), LogError>| match outcome {
            Ok(()) => {
                let same = vec![same];
                open_log_on(&engine, &store, same, identity, committed, judged, Box::new(opened));
            }
            Err(error) => opened(Err(error)),
        };
        Log::format_copy(&disk, identity, copy, Box::new(formatted));
    }
}

/// The log that is in use may be elsewhere.
fn elsewhere(error: &LogError, log: LogUuid) -> String {
    format!(
        "{error}; the one in use is {log}: look for it below the mount point and where [node] \
         journal pointed before. To do without it, move away what is there"
    )
}

/// Whether the log of an aggregate is not to be had any more. Another aggregate's, or a newer
/// build's, is no lost one, and a disk that fails may work tomorrow.
const fn is_lost(error: &LogError) -> bool {
    matches!(
        error,
        LogError::Header { .. }
            | LogError::OtherLog { .. }
            | LogError::StaleCopy { .. }
            | LogError::OnlyDamaged { .. }
            | LogError::Missing { .. }
    )
}
