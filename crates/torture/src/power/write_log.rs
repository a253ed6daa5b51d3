//! The log that QEMU's `blklogwrites` keeps of a disk image, in the format of the kernel's
//! `dm-log-writes`: each write with its data, each discard, each flush, in the order in which they
//! were given.
//!
//! Layout, little endian: a superblock of one sector (magic, version, entries, sector size), then
//! for each entry a sector (first sector written, sectors, flags, bytes of a mark) and its data.
//!
//! Invariants: a position is an offset in the log; entries below it were given before it.
//!
//! Fails: [`io::ErrorKind::InvalidData`] for bytes that are no such log. An entry that the log ends
//! in the middle of is the end: whoever kept it was stopped.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
/// Sectors are counted in this unit, whatever the log's own sectors are.
const UNIT_BYTES: u64 = 512;
const FLAG_FLUSH: u64 = 1;
const FLAG_DISCARD: u64 = 4;
const FLAG_MARK: u64 = 8;

/// What happened to the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// These bytes of the log were written there.
    Write {
        /// Where the data lies in the log.
        data: u64,
    },
    /// What was there counts no more.
    Discard,
    /// All that was written before is durable.
    Flush,
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where it ends in the log.
    pub end: u64,
    /// Where in the image.
    pub offset: u64,
    /// How many bytes of the image.
    pub length: u64,
    /// What.
    pub kind: Kind,
}

/// A log, read to its end.
pub struct WriteLog {
    file: File,
    /// All entries, in order.
    pub entries: Vec<Entry>,
}

impl WriteLog {
    /// Reads all entries, but not their data.
    ///
    /// # Errors
    /// See the module.
    pub fn read(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut superblock = [0; 28];
        file.read_exact_at(&mut superblock, 0)?;
        let sector_size = u64::from(u32::from_le_bytes(word(&superblock, 24)));
        let is_log = u64_at(&superblock, 0) == MAGIC && u64_at(&superblock, 8) == VERSION;
        if !is_log || !sector_size.is_power_of_two() || sector_size < UNIT_BYTES {
            return Err(invalid("no log of writes"));
        }
        let mut entries = Vec::new();
        let mut at = sector_size;
        while at + sector_size <= length {
            let mut head = [0; 32];
            file.read_exact_at(&mut head, at)?;
            let (first, count, flags) = (u64_at(&head, 0), u64_at(&head, 8), u64_at(&head, 16));
            let sizes = (first.checked_mul(UNIT_BYTES), count.checked_mul(UNIT_BYTES));
            let (Some(offset), Some(bytes)) = sizes else { return Err(invalid("an entry's size")) };
            let data = at + sector_size;
            let kind = match flags {
                FLAG_FLUSH => Kind::Flush,
                FLAG_DISCARD => Kind::Discard,
                _ if flags & FLAG_MARK != 0 => return Err(invalid("a mark: nobody makes any")),
                _ => Kind::Write { data },
            };
            let data_bytes = if matches!(kind, Kind::Write { .. }) { bytes } else { 0 };
            let end = data.checked_add(data_bytes).filter(|end| *end <= length);
            let Some(end) = end else { break };
            entries.push(Entry { end, offset, length: bytes, kind });
            at = end.next_multiple_of(sector_size);
        }
        Ok(Self { file, entries })
    }

    /// Does to `image` what an entry says.
    ///
    /// # Errors
    /// Of the files.
    pub fn apply(&self, entry: &Entry, image: &File) -> io::Result<()> {
        let mut buffer = vec![0; usize::try_from(entry.length).map_err(io::Error::other)?];
        match entry.kind {
            Kind::Flush => return Ok(()),
            Kind::Discard => {}
            Kind::Write { data } => self.file.read_exact_at(&mut buffer, data)?,
        }
        image.write_all_at(&buffer, entry.offset)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the log of writes has {what}"))
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[at..at + N]);
    word
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(word(bytes, at))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn head(first: u64, count: u64, flags: u64) -> Vec<u8> {
        let mut sector = [first, count, flags, 0].map(u64::to_le_bytes).concat();
        sector.resize(512, 0);
        sector
    }

    fn log_of(parts: &[Vec<u8>]) -> File {
        let file = tempfile::tempfile().unwrap();
        let mut superblock = [MAGIC, VERSION, 99].map(u64::to_le_bytes).concat();
        superblock.extend(512_u32.to_le_bytes());
        superblock.resize(512, 0);
        file.write_all_at(&[superblock, parts.concat()].concat(), 0).unwrap();
        file
    }

    #[test]
    fn entries_are_what_was_written() {
        let data = vec![7; 1024];
        let file = log_of(&[head(2, 2, 0), data, head(0, 0, 1), head(3, 1, 4), head(9, 8, 0)]);
        let log = WriteLog::read(file).unwrap();
        let image = tempfile::tempfile().unwrap();
        image.set_len(4096).unwrap();
        let kinds: Vec<Kind> = log.entries.iter().map(|entry| entry.kind).collect();
        // The last entry's data is not there.
        assert_eq!(kinds, [Kind::Write { data: 1024 }, Kind::Flush, Kind::Discard]);
        let ends: Vec<u64> = log.entries.iter().map(|entry| entry.end).collect();
        assert_eq!(ends, [2048, 2560, 3072]);
        let at = |offset| {
            let mut byte = [0];
            image.read_exact_at(&mut byte, offset).unwrap();
            byte[0]
        };
        log.apply(&log.entries[0], &image).unwrap();
        assert_eq!((at(1023), at(1024), at(2047), at(2048)), (0, 7, 7, 0));
        log.apply(&log.entries[2], &image).unwrap();
        assert_eq!((at(1535), at(1536), at(2047)), (7, 0, 0));
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        assert!(WriteLog::read(file).is_err());
        assert!(WriteLog::read(log_of(&[head(u64::MAX, 1, 0)])).is_err());
        assert!(WriteLog::read(log_of(&[head(0, 1, 8)])).is_err());
        assert!(WriteLog::read(log_of(&[])).unwrap().entries.is_empty());
    }
}
