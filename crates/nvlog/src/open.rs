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
use crate::half::OtherLife;
use crate::log::{State, free_halves};
use crate::scan::{Frame, HalfScan, Life, Want};
use crate::{Log, LogError, LogIdentity, Record};
use ondisk::damage::Damage;
use ondisk::log::{
    LOG_HALF_BLOCKS_MAX, LOG_HALF_BLOCKS_MIN, LOG_HEADER_BLOCKS, LOG_NOTES_BLOCKS_MAX,
    LOG_NOTES_BLOCKS_MIN, LOG_NOTES_SHARE, LogHeader,
};
use platform::mutation::{self, Rule};
use platform::{Disk, DiskError};
use std::sync::Arc;
use units::{Block, CpNumber};
use zerocopy::byteorder::little_endian::U64;

/// Receives the end of a format.
pub type FormatDone = Box<dyn FnOnce(Result<(), LogError>) + Send>;
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
        let notes_blocks = (disk.size_blocks() / LOG_NOTES_SHARE / 2 * 2)
            .clamp(LOG_NOTES_BLOCKS_MIN, LOG_NOTES_BLOCKS_MAX);
        let half_blocks = disk.size_blocks().saturating_sub(LOG_HEADER_BLOCKS + notes_blocks) / 2;
        let half_blocks = half_blocks.min(LOG_HALF_BLOCKS_MAX);
        let header = LogHeader::new(identity.aggregate, identity.log, half_blocks, notes_blocks);
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
        let opening = Opening { disk: Arc::clone(disk), expected, committed, done };
        opening.read_header(0, Vec::new());
    }
}

struct Opening {
    disk: Arc<dyn Disk>,
    expected: LogIdentity,
    committed: CpNumber,
    done: OpenDone,
}

type HeaderRead = Result<Block, DiskError>;

impl Opening {
    /// Reads the copies one by one: that one cannot be read does not hide the other.
    fn read_header(self, copy: u64, mut read: Vec<HeaderRead>) {
        if copy == LOG_HEADER_BLOCKS {
            return self.choose_header(read);
        }
        let disk = Arc::clone(&self.disk);
        disk.read(
            copy,
            1,
            Box::new(move |result| {
                let block = result.map(|blocks| {
                    blocks.first().map_or_else(Block::zeroed, |block| Block::clone(block))
                });
                read.push(block);
                self.read_header(copy + 1, read);
            }),
        );
    }

    fn choose_header(self, read: Vec<HeaderRead>) {
        let mut header = match choose_header(&*self.disk, self.expected, read) {
            Ok(header) => header,
            Err(error) => return (self.done)(Err(error)),
        };
        let half_blocks = header.half_blocks.get();
        if self.disk.size_blocks() < header.blocks() {
            let error = too_small(&self.disk, header.blocks());
            return (self.done)(Err(error));
        }
        let incarnation = header.incarnation.get();
        // Validated headers leave room for one more.
        let is_kept = mutation::broken(Rule::HalfKeepsIncarnation);
        header.incarnation = U64::new(if is_kept { incarnation } else { incarnation + 1 });
        let frame =
            Frame { log: self.expected.log, incarnation, half_blocks, committed: self.committed };
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
        let Opening { disk, expected, committed, done } = opening;
        let (state, records) = match assemble(&*disk, &header, scans, committed) {
            Ok(assembled) => assembled,
            Err(error) => return done(Err(error)),
        };
        let log = Log::new(Arc::clone(&disk), expected, &header, state, missing);
        let written = move |result: Result<(), DiskError>| match result {
            Ok(()) => {
                let notes = Arc::clone(log.notes());
                notes.find(
                    committed,
                    Box::new(move |found| {
                        done(found.map(|()| (log, records)).map_err(LogError::from));
                    }),
                );
            }
            Err(cause) => done(Err(cause.into())),
        };
        write_headers(&disk, &header, Box::new(written));
    }
}

/// The latest copy that is whole and the one that is looked for.
fn choose_header(
    disk: &dyn Disk,
    expected: LogIdentity,
    read: Vec<HeaderRead>,
) -> Result<LogHeader, LogError> {
    let mut whole: Vec<LogHeader> = Vec::new();
    let mut damaged: Option<Damage> = None;
    let mut unreadable = None;
    let name = disk.name().to_owned();
    for block in read {
        match block {
            Ok(block) => match LogHeader::from_block(&block) {
                Ok(header) => whole.push(header),
                Err(damage)
                    if damage.is_of_newer_build()
                        && !mutation::broken(Rule::NewerLogPassedOver) =>
                {
                    return Err(LogError::NewerBuild { disk: name, damage });
                }
                Err(damage) if LogHeader::is_claimed_by(&block) => damaged = Some(damage),
                Err(_) => {}
            },
            Err(cause) => unreadable = Some(cause),
        }
    }
    let fits =
        |header: &&LogHeader| header.aggregate == expected.aggregate && header.log == expected.log;
    if let Some(header) = whole.iter().filter(fits).max_by_key(|header| header.incarnation.get()) {
        return Ok(header.clone());
    }
    // What cannot be read may be the copy that is looked for.
    if let Some(cause) = unreadable {
        return Err(LogError::Disk { cause });
    }
    Err(match (whole.first(), damaged) {
        (Some(header), _) if header.aggregate != expected.aggregate => {
            LogError::OtherAggregate { disk: name, found: header.aggregate }
        }
        (Some(header), _) => LogError::OtherLog { disk: name, found: header.log },
        (None, Some(damage)) => LogError::Header { disk: name, damage },
        (None, None) => LogError::NotALog { disk: name },
    })
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

fn too_small(disk: &Arc<dyn Disk>, needed_blocks: u64) -> LogError {
    let (disk, size_blocks) = (disk.name().to_owned(), disk.size_blocks());
    LogError::TooSmall { disk, size_blocks, needed_blocks }
}

/// Writes the copies one after the other, each durable before the next is touched.
fn write_headers(
    disk: &Arc<dyn Disk>,
    header: &LogHeader,
    done: Box<dyn FnOnce(Result<(), DiskError>) + Send>,
) {
    write_header(Arc::clone(disk), Arc::new(header.to_block()), 0, done);
}

fn write_header(
    disk: Arc<dyn Disk>,
    block: units::BlockRef,
    copy: u64,
    done: Box<dyn FnOnce(Result<(), DiskError>) + Send>,
) {
    if copy == LOG_HEADER_BLOCKS {
        return done(Ok(()));
    }
    let (writer, content) = (Arc::clone(&disk), Arc::clone(&block));
    writer.write(
        copy,
        vec![content],
        Box::new(move |result| match result {
            Ok(()) => {
                let flusher = Arc::clone(&disk);
                flusher.flush(Box::new(move |result| match result {
                    Ok(()) => write_header(disk, block, copy + 1, done),
                    Err(cause) => done(Err(cause)),
                }));
            }
            Err(cause) => done(Err(cause)),
        }),
    );
}
