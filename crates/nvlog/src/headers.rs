//! The two copies of a log's header: read, chosen, and written one after the other.
//!
//! Invariants: the second copy is touched when the first is durable, so a crash leaves one that is
//! whole. A copy that a newer build wrote refuses the log, even if the other one is whole.
//!
//! Fails: [`LogError`].

use crate::{LogError, LogIdentity};
use ondisk::damage::Damage;
use ondisk::log::{LOG_HEADER_BLOCKS, LogHeader};
use platform::mutation::{self, Rule};
use platform::{Disk, DiskError};
use std::sync::Arc;
use units::{Block, BlockRef};

/// Receives the end of a format.
pub type FormatDone = Box<dyn FnOnce(Result<(), LogError>) + Send>;
type HeaderRead = Result<Block, DiskError>;
/// Receives the header of a log.
pub(crate) type HeaderDone = Box<dyn FnOnce(Result<LogHeader, LogError>) + Send>;

/// Reads both copies of a header one by one: that one cannot be read does not hide the other.
pub(crate) fn read_header(
    disk: Arc<dyn Disk>,
    expected: LogIdentity,
    mut read: Vec<HeaderRead>,
    done: HeaderDone,
) {
    let next = read.len() as u64;
    if next == LOG_HEADER_BLOCKS {
        return done(choose_header(&*disk, expected, read));
    }
    let reader = Arc::clone(&disk);
    let taken = move |result: Result<Vec<BlockRef>, DiskError>| {
        let first = |blocks: Vec<BlockRef>| {
            blocks.first().map_or_else(Block::zeroed, |block| Block::clone(block))
        };
        read.push(result.map(first));
        read_header(disk, expected, read, done);
    };
    reader.read(next, 1, Box::new(taken));
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

pub(crate) fn too_small(disk: &Arc<dyn Disk>, needed_blocks: u64) -> LogError {
    let (disk, size_blocks) = (disk.name().to_owned(), disk.size_blocks());
    LogError::TooSmall { disk, size_blocks, needed_blocks }
}

/// Writes the copies one after the other, each durable before the next is touched.
pub(crate) fn write_headers(
    disk: &Arc<dyn Disk>,
    header: &LogHeader,
    done: Box<dyn FnOnce(Result<(), DiskError>) + Send>,
) {
    write_header(Arc::clone(disk), Arc::new(header.to_block()), 0, done);
}

fn write_header(
    disk: Arc<dyn Disk>,
    block: BlockRef,
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
