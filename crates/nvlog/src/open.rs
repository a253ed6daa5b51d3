//! Makes a log, and opens one: reads both halves and the notes, tells what is to be replayed.
//!
//! Opening writes the header with a higher incarnation, one copy after the other, each flushed,
//! before the log takes a record: whatever a crash leaves, one copy is whole, and no batch has an
//! incarnation that its header does not know. The flushes also make durable what was read.
//!
//! A copy of the header that a newer build wrote refuses the log, even if the other copy is whole:
//! the newer build may have died between the two, and this build would write over its header.
//! So does a record that is to be replayed and that a newer build wrote: the consistency point
//! after replay would retire it. Nothing is written then.
//!
//! The records of a half whose life ended in the durable consistency point are skipped. If a half
//! is missing that must be there, because the other one says so, the log is refused. If a chain
//! ends before records that were durable, replay ends there, and [`Log::missing`] says so.
//!
//! Fails: [`LogError`].

use crate::beyond::look_beyond;
use crate::copies::LogDisk;
use crate::half::OtherLife;
use crate::headers::{FormatDone, read_header, too_small, write_headers};
use crate::log::{State, free_halves};
use crate::scan::{Frame, HalfScan, Life, Want};
use crate::{Log, LogError, LogIdentity, Record};
use ondisk::log::{
    LOG_HALF_BLOCKS_MAX, LOG_HALF_BLOCKS_MIN, LOG_HEADER_BLOCKS, LOG_NOTES_BLOCKS_MAX,
    LOG_NOTES_BLOCKS_MIN, LOG_NOTES_SHARE, LogHeader,
};
use platform::mutation::{self, Rule};
use platform::{Disk, DiskError};
use std::sync::Arc;
use units::CpNumber;
use zerocopy::byteorder::little_endian::U64;

/// Receives the log and what is to be replayed, in the order of the appends.
pub type OpenDone = Box<dyn FnOnce(Result<(Log, Vec<Record>), LogError>) + Send>;

/// Blocks that are read at once, 1 MiB: large enough for a disk's full speed.
const READ_BLOCKS: usize = 256;

impl Log {
    /// Makes an empty log on a disk of its own.
    ///
    /// # Errors
    /// To `done`: the disk is too small, or fails.
    pub fn format(disk: &Arc<dyn Disk>, identity: LogIdentity, done: FormatDone) {
        Self::format_copy(disk, identity, 0, done);
    }

    /// Makes the first copy of an empty log, with an identity that labels know as whole.
    ///
    /// # Errors
    /// To `done`: the disk is too small, or fails.
    pub fn format_copy(disk: &Arc<dyn Disk>, identity: LogIdentity, copy: u64, done: FormatDone) {
        let notes_blocks = (disk.size_blocks() / LOG_NOTES_SHARE / 2 * 2)
            .clamp(LOG_NOTES_BLOCKS_MIN, LOG_NOTES_BLOCKS_MAX);
        let half_blocks = disk.size_blocks().saturating_sub(LOG_HEADER_BLOCKS + notes_blocks) / 2;
        let half_blocks = half_blocks.min(LOG_HALF_BLOCKS_MAX);
        let (aggregate, log) = (identity.aggregate, identity.log);
        let mut header = LogHeader::new(aggregate, log, half_blocks, notes_blocks);
        header.copy = U64::new(copy);
        if half_blocks < LOG_HALF_BLOCKS_MIN {
            let least = LOG_HEADER_BLOCKS + 2 * LOG_HALF_BLOCKS_MIN + notes_blocks;
            return done(Err(too_small(disk, least)));
        }
        write_headers(disk, &header, Box::new(|result| done(result.map_err(LogError::from))));
    }

    /// Opens the log of an aggregate whose last durable consistency point is `committed`. The
    /// records are all later ones. A consistency point that holds them is numbered no lower than
    /// [`Log::active_cp`]; [`Log::retire`] with it frees the log.
    ///
    /// # Errors
    /// To `done`: there is no such log, it is damaged, or the disk fails.
    pub fn open(disk: &Arc<dyn Disk>, expected: LogIdentity, committed: CpNumber, done: OpenDone) {
        let disk = LogDisk { disk: Arc::clone(disk), copies: None };
        let read = |outcome: Result<Read, LogError>| match outcome {
            Ok(read) => read.begin(done),
            Err(error) => done(Err(error)),
        };
        read_log(disk, expected, committed, Box::new(read));
    }
}

/// A log that was read. Nothing was written.
pub(crate) struct Read {
    pub log: Log,
    pub records: Vec<Record>,
}

impl Read {
    /// Writes the header, so that the log may be used.
    pub fn begin(self, done: OpenDone) {
        let Self { log, records } = self;
        let (disk, header) = log.to_begin();
        let written = move |result: Result<(), DiskError>| {
            done(result.map(|()| (log, records)).map_err(LogError::from));
        };
        write_headers(&disk, &header, Box::new(written));
    }
}

/// Receives a log that was read.
pub(crate) type ReadLogDone = Box<dyn FnOnce(Result<Read, LogError>) + Send>;

/// Reads a log.
pub(crate) fn read_log(
    disk: LogDisk,
    expected: LogIdentity,
    committed: CpNumber,
    done: ReadLogDone,
) {
    let source = Arc::clone(&disk.disk);
    let opening = Opening { on: disk, disk: Arc::clone(&source), expected, committed, done };
    let read = move |header| match header {
        Ok(header) => opening.scan(header),
        Err(error) => (opening.done)(Err(error)),
    };
    read_header(source, expected, Vec::new(), Box::new(read));
}

struct Opening {
    on: LogDisk,
    disk: Arc<dyn Disk>,
    expected: LogIdentity,
    committed: CpNumber,
    done: ReadLogDone,
}

impl Opening {
    fn scan(self, mut header: LogHeader) {
        // A log that has no copies was made as its first, and this one may have missed something.
        if self.on.copies.is_none() && header.copy.get() != 0 {
            let disk = self.disk.name().to_owned();
            return (self.done)(Err(LogError::StaleCopy { disk }));
        }
        let half_blocks = header.half_blocks.get();
        if self.disk.size_blocks() < header.blocks() {
            let error = too_small(&self.disk, header.blocks());
            return (self.done)(Err(error));
        }
        let incarnation = header.incarnation.get();
        // Validated headers leave room for one more.
        let is_kept = mutation::broken(Rule::HalfKeepsIncarnation);
        header.incarnation = U64::new(if is_kept { incarnation } else { incarnation + 1 });
        let frame = Frame {
            log: self.expected.log,
            incarnation,
            first_incarnation: header.first_incarnation.get(),
            half_blocks,
            committed: self.committed,
        };
        let scans = free_halves(LOG_HEADER_BLOCKS, half_blocks)
            .map(|half| HalfScan::new(frame, half.base_block));
        Scanning { opening: self, header, scans, half: 0 }.advance(READ_BLOCKS);
    }
}

struct Scanning {
    opening: Opening,
    /// As it is to be written.
    header: LogHeader,
    scans: [HalfScan; 2],
    half: usize,
}

impl Scanning {
    /// Reads up to `blocks_max` blocks ahead of what is needed.
    fn advance(mut self, blocks_max: usize) {
        let Some(scan) = self.scans.get_mut(self.half) else { return self.finish() };
        let Want::Blocks { block, count, count_max } = scan.advance() else {
            self.half += 1;
            return self.advance(READ_BLOCKS);
        };
        let ahead = count.max(blocks_max.min(count_max));
        let disk = Arc::clone(&self.opening.disk);
        disk.read(
            block,
            ahead,
            Box::new(move |result| match result {
                Ok(blocks) => {
                    if let Some(scan) = self.scans.get_mut(self.half) {
                        scan.feed(blocks);
                    }
                    self.advance(blocks_max);
                }
                // A bad block behind the last batch must not keep the log shut: only what is
                // needed, then.
                Err(_) if ahead > count => self.advance(0),
                Err(cause) => (self.opening.done)(Err(cause.into())),
            }),
        );
    }

    fn finish(self) {
        let Self { opening, header, scans, .. } = self;
        if let Some(damage) = scans.iter().find_map(|scan| scan.newer) {
            let disk = opening.disk.name().to_owned();
            return (opening.done)(Err(LogError::NewerBuild { disk, damage }));
        }
        let disk = Arc::clone(&opening.disk);
        let looked = move |scans, missing| Self::put_together(opening, header, scans, missing);
        look_beyond(&disk, scans, Box::new(looked));
    }

    fn put_together(
        opening: Opening,
        header: LogHeader,
        scans: [HalfScan; 2],
        missing: Option<u64>,
    ) {
        let Opening { on, disk, expected, committed, done } = opening;
        let (state, records) = match assemble(&*disk, &header, scans, committed) {
            Ok(assembled) => assembled,
            Err(error) => return done(Err(error)),
        };
        let log = Log::new(on, expected, header, state, missing);
        let notes = Arc::clone(log.notes());
        let found = move |found: Result<(), DiskError>| {
            done(found.map(|()| Read { log, records }).map_err(LogError::from));
        };
        notes.find(committed, Box::new(found));
    }
}

/// What the halves hold, put together.
fn assemble(
    disk: &dyn Disk,
    header: &LogHeader,
    scans: [HalfScan; 2],
    committed: CpNumber,
) -> Result<(State, Vec<Record>), LogError> {
    let mut halves = free_halves(LOG_HEADER_BLOCKS, header.half_blocks.get());
    let sequence_next = scans.iter().map(|scan| scan.sequence_end).max().unwrap_or(0).max(1);
    let mut active = 0;
    let mut live: Vec<(Life, HalfScan)> = Vec::new();
    for (index, (scan, half)) in scans.into_iter().zip(&mut halves).enumerate() {
        let Some(life) = scan.life else { continue };
        let is_latest = scan.sequence_end == sequence_next;
        if life.cp > committed || mutation::broken(Rule::CommittedRecordsReplayed) {
            half.begin(life.cp, life.first_sequence, life.other);
            half.end_block = scan.end_block;
            live.push((life, scan));
            active = if is_latest { index } else { active };
        } else if is_latest {
            // Nothing is to be replayed: the log goes on in the half that is older.
            active = 1 - index;
        }
    }
    live.sort_by_key(|(life, _)| life.first_sequence);
    if live.len() > 1 && mutation::broken(Rule::LogHalfMissed) {
        live.remove(0);
    } else if let Some((first, end)) = gap(&live, sequence_next, committed) {
        let last = end.saturating_sub(1).max(first);
        return Err(LogError::Missing { disk: disk.name().to_owned(), first, last });
    }
    if live.is_empty() {
        halves[active].begin(committed.next(), sequence_next, OtherLife::default());
    }
    let records = live.into_iter().flat_map(|(_, scan)| scan.records).collect();
    Ok((State::new(halves, active, sequence_next), records))
}

/// Numbers of records that were durable before others that were found, and are gone: from the
/// first to before the second. `live` are the lives that are not over, the older one first.
fn gap(live: &[(Life, HalfScan)], sequence_next: u64, committed: CpNumber) -> Option<(u64, u64)> {
    let (oldest, _) = live.first()?;
    let (_, latest) = live.last()?;
    if latest.sequence_end != sequence_next {
        // A life that is over goes on behind one that is not.
        return Some((latest.sequence_end, sequence_next));
    }
    if oldest.other.sequence != 0 && oldest.other.cp > committed.get() {
        // The other half was needed when this one began, and is not what it was.
        return Some((oldest.other.sequence, oldest.first_sequence));
    }
    if let [(older, scan), (newer, _)] = live {
        let follows = scan.sequence_end == newer.first_sequence
            && newer.other.sequence == older.first_sequence
            && newer.cp > older.cp;
        return (!follows).then_some((scan.sequence_end, newer.first_sequence));
    }
    None
}
