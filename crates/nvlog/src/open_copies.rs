//! Opens a log that has copies: from one that has everything. The others join it again.
//!
//! A crash leaves whole copies that differ in what was on its way. So one of them is chosen, and
//! it alone is recorded as whole before anything is replayed: what another copy has beyond it, no
//! start will ever find.
//!
//! Invariants: of the whole copies in which nothing is known to be missing the one is chosen that
//! has most, because a disk may have lost the last writes that it acknowledged; a copy that is not
//! recorded as whole is never read. Nothing is written to a copy that is not chosen. If a newer
//! build wrote one of them, the log is refused.
//!
//! Fails: [`LogError`]: that of the copy from which most is to be hoped.

use crate::copies::{Copies, LogDisk};
use crate::headers::read_header;
use crate::open::{Read, read_log};
use crate::{CopyWitness, FormatDone, Log, LogError, LogIdentity, Record};
use ondisk::log::LogHeader;
use platform::mutation::{self, Rule};
use platform::{Disk, DiskError};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use units::{CpNumber, LogUuid};

/// Where the copies of a log may be, and which of them have everything.
pub struct Places {
    /// The disks.
    pub disks: Vec<Arc<dyn Disk>>,
    /// The identities of the copies that have everything.
    pub whole: Vec<u64>,
    /// Who keeps that.
    pub witness: Arc<dyn CopyWitness>,
    /// A log that takes the place of this one, if one was begun.
    pub replacement: LogUuid,
    /// Whether a copy may be taken of which something is known to be missing, though another one
    /// that has everything was not read.
    pub accepts_loss: bool,
}

/// A log that was opened from one of its copies.
pub struct FoundCopies {
    /// The log.
    pub log: Log,
    /// What is to be replayed, in the order of the appends.
    pub records: Vec<Record>,
    /// The disks that it was not opened from, with what is wrong with the log on them; nothing is
    /// wrong with a copy of this log, whether it has everything or not.
    pub others: Vec<(Arc<dyn Disk>, Result<(), LogError>)>,
}

/// Receives a log with copies.
pub type CopiesDone = Box<dyn FnOnce(Result<FoundCopies, LogError>) + Send>;

/// Opens a log from one of its copies, as [`Log::open`] does.
///
/// # Errors
/// To `done`: no copy has everything and can be read.
pub fn open_copies(places: Places, expected: LogIdentity, committed: CpNumber, done: CopiesDone) {
    let Places { disks, whole, witness, replacement, accepts_loss } = places;
    let (unread, read) = (disks.into(), Vec::new());
    let judged = (replacement, accepts_loss);
    Peeking { whole, witness, judged, expected, committed, done, unread, read }.next();
}

/// Looks what a disk holds of a log, whether it has everything or not. Nothing is written.
///
/// # Errors
/// To `done`: it is not a copy of this log.
pub fn look(disk: &Arc<dyn Disk>, expected: LogIdentity, done: FormatDone) {
    let looked = |header: Result<LogHeader, LogError>| done(header.map(|_| ()));
    read_header(Arc::clone(disk), expected, Vec::new(), Box::new(looked));
}

type Peeked = (Arc<dyn Disk>, Result<LogHeader, LogError>);

/// Reads the headers of all disks.
struct Peeking {
    whole: Vec<u64>,
    witness: Arc<dyn CopyWitness>,
    /// The log that may be a replacement, and whether a loss is accepted.
    judged: (LogUuid, bool),
    expected: LogIdentity,
    committed: CpNumber,
    done: CopiesDone,
    unread: VecDeque<Arc<dyn Disk>>,
    read: Vec<Peeked>,
}

impl Peeking {
    fn next(mut self) {
        let Some(disk) = self.unread.pop_front() else { return self.choose() };
        let (source, expected) = (Arc::clone(&disk), self.expected);
        let peeked = move |header| {
            self.read.push((disk, header));
            self.next();
        };
        read_header(source, expected, Vec::new(), Box::new(peeked));
    }

    fn choose(self) {
        let newer = self.read.iter().find_map(|(_, header)| {
            header.as_ref().err().filter(|error| matches!(error, LogError::NewerBuild { .. }))
        });
        if let Some(newer) = newer.cloned() {
            return (self.done)(Err(newer));
        }
        let is_whole = |(_, header): &&Peeked| {
            header.as_ref().is_ok_and(|header| {
                self.whole.contains(&header.copy.get()) || mutation::broken(Rule::StaleCopyRead)
            })
        };
        let candidates: VecDeque<Peeked> = self.read.iter().filter(is_whole).cloned().collect();
        if candidates.is_empty() {
            let error = most_hopeful(&self.read, self.judged.0);
            return (self.done)(Err(error));
        }
        Choosing { peeked: self, candidates, best: None, error: None }.next();
    }
}

impl Peeking {
    /// Why a copy that has everything was not read, if one was not and that matters.
    fn unread_copy(&self) -> Option<LogError> {
        let read: BTreeSet<u64> = self
            .read
            .iter()
            .filter_map(|(_, header)| Some(header.as_ref().ok()?.copy.get()))
            .collect();
        let is_read = self.whole.iter().all(|identity| read.contains(identity));
        if is_read || self.judged.1 {
            return None;
        }
        let is_of_disk = |error: &&LogError| matches!(error, LogError::Disk { .. });
        let of_disk =
            self.read.iter().find_map(|(_, header)| header.as_ref().err().filter(is_of_disk));
        let disk = self.read.first().map(|(disk, _)| disk.name().to_owned()).unwrap_or_default();
        Some(of_disk.cloned().unwrap_or(LogError::OnlyDamaged { disk }))
    }
}

/// What to say if no disk has a copy with everything: the error after which the least is lost.
fn most_hopeful(read: &[Peeked], replacement: LogUuid) -> LogError {
    let errors = read.iter().map(|(disk, header)| match header {
        Ok(_) => LogError::StaleCopy { disk: disk.name().to_owned() },
        Err(error) => error.clone(),
    });
    let error = errors.max_by_key(|error| match error {
        LogError::OtherLog { found, .. } if *found == replacement => 6,
        LogError::Disk { .. } => 5,
        LogError::TooSmall { .. } => 4,
        LogError::StaleCopy { .. } => 3,
        LogError::OtherLog { .. } | LogError::Header { .. } => 2,
        LogError::OtherAggregate { .. } => 1,
        _ => 0,
    });
    error.unwrap_or_else(|| LogError::NotALog { disk: "none".to_owned() })
}

/// Reads the copies that are recorded as whole.
struct Choosing {
    peeked: Peeking,
    candidates: VecDeque<Peeked>,
    /// The one that has most; one of which something is missing, if no other is better.
    best: Option<(Arc<dyn Disk>, Read)>,
    error: Option<LogError>,
}

impl Choosing {
    fn next(mut self) {
        let Some((disk, Ok(header))) = self.candidates.pop_front() else { return self.finish() };
        let (whole, witness) = (self.peeked.whole.clone(), Arc::clone(&self.peeked.witness));
        let copies = Copies::of_one((header.copy.get(), Arc::clone(&disk)), whole, witness);
        let on = LogDisk { disk: Arc::new(copies.clone()), copies: Some(copies) };
        let (expected, committed) = (self.peeked.expected, self.peeked.committed);
        let read = move |outcome: Result<Read, LogError>| match outcome {
            Ok(read) => {
                let worth = |log: &Log| (log.missing().is_none(), log.records_end());
                let is_better = |(_, best): &(_, Read)| worth(&best.log) < worth(&read.log);
                if self.best.as_ref().is_none_or(is_better) {
                    self.best = Some((disk, read));
                }
                self.next();
            }
            Err(error @ LogError::NewerBuild { .. }) => (self.peeked.done)(Err(error)),
            Err(error) => {
                self.error.get_or_insert(error);
                self.next();
            }
        };
        read_log(on, expected, committed, Box::new(read));
    }

    fn finish(self) {
        let Self { peeked, best, error, .. } = self;
        let is_damaged = best.as_ref().is_none_or(|(_, read)| read.log.missing().is_some());
        if is_damaged && let Some(error) = peeked.unread_copy() {
            return (peeked.done)(Err(error));
        }
        let Some((chosen, read)) = best else {
            let hopeful = || most_hopeful(&peeked.read, peeked.judged.0);
            return (peeked.done)(Err(error.unwrap_or_else(hopeful)));
        };
        let others = peeked.read.into_iter().filter(|(disk, _)| !Arc::ptr_eq(disk, &chosen));
        let others = others.map(|(disk, header)| (disk, header.map(|_| ()))).collect();
        let Some(copies) = read.log.copied().cloned() else {
            unreachable!("it was opened as one with copies")
        };
        let settled = move |result: Result<(), DiskError>| match result {
            Ok(()) => read.begin(Box::new(move |begun| {
                (peeked.done)(begun.map(|(log, records)| FoundCopies { log, records, others }));
            })),
            Err(cause) => (peeked.done)(Err(cause.into())),
        };
        copies.settle(Box::new(settled));
    }
}
