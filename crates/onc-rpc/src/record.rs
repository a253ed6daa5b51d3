//! Record marking (RFC 5531 section 11): a record is one or more fragments, each behind a word
//! with its length and, in the highest bit, whether it is the last.
//!
//! One read from the socket takes as many bytes as there are, up to [`READ_BYTES_MAX`], so that
//! many small pipelined calls cost one system call. A small record is lent out where it lies, with
//! no copy and no allocation. A large one (a WRITE) is collected in a buffer of its own, into which
//! the socket is read directly, and its payload is handed on as a slice of that buffer.
//!
//! Invariants: no record is above `record_bytes_max`; a peer that announces a large record and
//! sends nothing costs address space, not memory; a few buffers of large records are kept for the
//! next ones, because fresh memory costs more than the copy into it.
//! [`RecordReader::next_buffered`] never blocks; only [`RecordReader::fill`] reads.
//!
//! Fails: [`RecordError`], after which the stream has no meaning any more and must be closed.

use bytes::{Bytes, BytesMut};
use platform::sync::Mutex;
use std::io::{self, Read};
use thiserror::Error;

/// Bytes asked of the socket at once: 16 WRITEs of 4 KiB, or hundreds of other calls, and little
/// enough to stay in a core's cache while they are dispatched.
pub const READ_BYTES_MAX: usize = 64 << 10;
/// Largest record that is lent out of the read buffer. Above it the copy that a WRITE's payload
/// would need costs more than a buffer of its own.
pub const SMALL_RECORD_BYTES_MAX: usize = 16 << 10;

const MARK_SIZE: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;

const _: () = assert!(MARK_SIZE + SMALL_RECORD_BYTES_MAX <= READ_BYTES_MAX);

/// Why a stream of records ends.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The peer closed its end.
    #[error("the peer closed the connection")]
    Closed,
    /// A record is above the limit.
    #[error("a record of {length} bytes or more, the limit is {length_max}")]
    TooLong {
        /// Bytes announced so far.
        length: usize,
        /// The limit.
        length_max: usize,
    },
    /// The socket failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
}

/// A record, lent.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    owner: Option<&'a Bytes>,
}

impl<'a> Record<'a> {
    /// A record that came by itself, as a datagram.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, owner: None }
    }

    /// The bytes of the record.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// A part of the record that outlives it: a reference to a large record's buffer, a copy out
    /// of a small one.
    #[must_use]
    pub fn share(&self, part: &[u8]) -> Bytes {
        match self.owner {
            Some(owner) => owner.slice_ref(part),
            None => Bytes::copy_from_slice(part),
        }
    }
}

/// A record in the making, of more than one fragment or larger than a small one.
struct Assembly {
    /// The record up to `filled`, and room behind.
    bytes: BytesMut,
    filled: usize,
    /// Bytes of the present fragment still to come.
    left: usize,
    /// Whether it is the last fragment.
    last: bool,
}

/// Cuts a stream into records.
pub struct RecordReader<R> {
    source: R,
    record_bytes_max: usize,
    buffer: Box<[u8]>,
    /// What was read and not consumed lies in `buffer[start..end]`.
    start: usize,
    end: usize,
    assembly: Option<Assembly>,
    /// Owns the large record that was lent last.
    lent: Bytes,
}

/// Buffers of large records that nobody has any more, for the next ones of whichever connection.
static SPARES: Mutex<Vec<BytesMut>> = Mutex::new(Vec::new());
/// How many are kept: what busy connections use at one time, and little enough beside any cache.
const SPARES_MAX: usize = 4;

enum Found {
    Small { start: usize, end: usize },
    Large,
}

impl<R: Read> RecordReader<R> {
    /// A reader of records of at most `record_bytes_max` bytes.
    #[must_use]
    pub fn new(source: R, record_bytes_max: usize) -> Self {
        Self {
            source,
            record_bytes_max,
            buffer: vec![0; READ_BYTES_MAX].into_boxed_slice(),
            start: 0,
            end: 0,
            assembly: None,
            lent: Bytes::new(),
        }
    }

    /// The next record, if it was read already.
    ///
    /// # Errors
    /// [`RecordError::TooLong`].
    pub fn next_buffered(&mut self) -> Result<Option<Record<'_>>, RecordError> {
        // The record before is no longer lent.
        if let Ok(spare) = std::mem::take(&mut self.lent).try_into_mut()
            && !spare.is_empty()
        {
            let mut spares = SPARES.lock();
            if spares.len() < SPARES_MAX {
                spares.push(spare);
            }
        }
        Ok(match self.find()? {
            None => None,
            Some(Found::Small { start, end }) => {
                Some(Record { bytes: self.buffer.get(start..end).unwrap_or_default(), owner: None })
            }
            Some(Found::Large) => Some(Record { bytes: &self.lent, owner: Some(&self.lent) }),
        })
    }

    /// Reads once, blocking until there is something.
    ///
    /// # Errors
    /// [`RecordError::Closed`], [`RecordError::Io`].
    pub fn fill(&mut self) -> Result<(), RecordError> {
        if let Some(assembly) = &mut self.assembly
            && assembly.left > 0
        {
            assert!(self.start == self.end, "the buffer goes into the assembly first");
            let end = assembly.filled + assembly.left;
            let room = assembly.bytes.get_mut(assembly.filled..end).unwrap_or_default();
            let read = read_some(&mut self.source, room)?;
            assembly.filled += read;
            assembly.left -= read;
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
        assert!(!free.is_empty(), "a small record fits into the buffer");
        self.end += read_some(&mut self.source, free)?;
        Ok(())
    }

    fn find(&mut self) -> Result<Option<Found>, RecordError> {
        loop {
            if let Some(assembly) = &mut self.assembly {
                let buffered = self.buffer.get(self.start..self.end).unwrap_or_default();
                let count = buffered.len().min(assembly.left);
                let room = assembly.bytes.get_mut(assembly.filled..).unwrap_or_default();
                room[..count].copy_from_slice(&buffered[..count]);
                assembly.filled += count;
                assembly.left -= count;
                self.start += count;
                if assembly.left > 0 {
                    return Ok(None);
                }
                if assembly.last {
                    let mut bytes = std::mem::take(&mut assembly.bytes);
                    bytes.truncate(assembly.filled);
                    self.lent = bytes.freeze();
                    self.assembly = None;
                    return Ok(Some(Found::Large));
                }
            }
            let buffered = self.buffer.get(self.start..self.end).unwrap_or_default();
            let Some((mark, rest)) = buffered.split_first_chunk::<MARK_SIZE>() else {
                return Ok(None);
            };
            let mark = u32::from_be_bytes(*mark);
            let last = mark & LAST_FRAGMENT != 0;
            let left = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
            let filled = self.assembly.as_ref().map_or(0, |assembly| assembly.filled);
            let length = filled.saturating_add(left);
            if length > self.record_bytes_max {
                return Err(RecordError::TooLong { length, length_max: self.record_bytes_max });
            }
            if last && self.assembly.is_none() && left <= SMALL_RECORD_BYTES_MAX {
                if rest.len() < left {
                    return Ok(None);
                }
                let start = self.start + MARK_SIZE;
                self.start = start + left;
                return Ok(Some(Found::Small { start, end: self.start }));
            }
            self.start += MARK_SIZE;
            let mut bytes = match self.assembly.take() {
                Some(assembly) => assembly.bytes,
                None => SPARES.lock().pop().unwrap_or_default(),
            };
            if bytes.len() < length {
                let mut larger = BytesMut::zeroed(length);
                larger[..filled].copy_from_slice(&bytes[..filled]);
                bytes = larger;
            }
            self.assembly = Some(Assembly { bytes, filled, left, last });
        }
    }
}

/// Reads what there is, blocking until there is something.
fn read_some(source: &mut impl Read, room: &mut [u8]) -> Result<usize, RecordError> {
    loop {
        match source.read(room) {
            Ok(0) => return Err(RecordError::Closed),
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The mark of a record of `length` bytes in one fragment.
///
/// # Panics
/// If the length does not fit into 31 bits: a reply is never near that.
#[must_use]
pub fn mark(length: usize) -> u32 {
    let Ok(length) = u32::try_from(length) else { panic!("a record of {length} bytes") };
    assert!(length < LAST_FRAGMENT, "a record of {length} bytes");
    length | LAST_FRAGMENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hands out a stream in chunks of given sizes.
    struct Chunks {
        bytes: Vec<u8>,
        at: usize,
        sizes: Vec<usize>,
        turn: usize,
    }

    impl Read for Chunks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes[self.turn % self.sizes.len()];
            self.turn += 1;
            let count = size.min(buffer.len()).min(self.bytes.len() - self.at);
            buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
            self.at += count;
            Ok(count)
        }
    }

    fn read_all(bytes: Vec<u8>, sizes: Vec<usize>, max: usize) -> (Vec<Vec<u8>>, RecordError) {
        let source = Chunks { bytes, at: 0, sizes, turn: 0 };
        let mut reader = RecordReader::new(source, max);
        let mut records = Vec::new();
        loop {
            match reader.next_buffered() {
                Ok(Some(record)) => {
                    let tail = &record.bytes()[record.bytes().len() / 2..];
                    assert_eq!(record.share(tail), tail);
                    records.push(record.bytes().to_vec());
                }
                Ok(None) => {
                    if let Err(error) = reader.fill() {
                        return (records, error);
                    }
                }
                Err(error) => return (records, error),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn records_come_out_as_they_went_in(
            records in prop::collection::vec((
                prop_oneof![0..200_usize, 16_380..16_390_usize, 30_000..150_000_usize],
                prop::collection::vec(0..40_000_usize, 0..3),
                any::<u8>(),
            ), 0..8),
            sizes in prop::collection::vec(prop_oneof![1..9_usize, 1_000..80_000_usize], 1..5),
        ) {
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for (length, cuts, seed) in records {
                let bytes: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_add(seed)).collect();
                let mut rest = &bytes[..];
                for cut in cuts {
                    let (head, tail) = rest.split_at(cut.min(rest.len()));
                    stream.extend((head.len() as u32).to_be_bytes());
                    stream.extend(head);
                    rest = tail;
                }
                stream.extend(mark(rest.len()).to_be_bytes());
                stream.extend(rest);
                expected.push(bytes);
            }
            let (found, error) = read_all(stream, sizes, 150_000);
            prop_assert!(matches!(error, RecordError::Closed), "{}", error);
            prop_assert!(found == expected);
        }

        #[test]
        fn arbitrary_streams_never_panic(
            bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(0x80), any::<u8>()], 0..99),
            size in 1..20_usize,
        ) {
            let (records, _) = read_all(bytes, vec![size], 64);
            prop_assert!(records.iter().all(|record| record.len() <= 64));
        }
    }

    #[test]
    fn a_record_above_the_limit_ends_the_stream() {
        let mut stream = 60_u32.to_be_bytes().to_vec();
        stream.extend([0; 60]);
        stream.extend(mark(41).to_be_bytes());
        let (records, error) = read_all(stream, vec![7], 100);
        assert!(records.is_empty());
        assert!(matches!(error, RecordError::TooLong { length: 101, length_max: 100 }));
    }
}
