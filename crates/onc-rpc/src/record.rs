//! Record marking (RFC 5531 section 11): a record is one or more fragments, each behind a word
//! with its length and, in the highest bit, whether it is the last.
//!
//! One read from the socket takes as many bytes as there are, up to [`READ_BYTES_MAX`], so that
//! many small pipelined calls cost one system call. A small record is lent out where it lies, with
//! no copy and no allocation. A large one (a WRITE) is collected in a buffer of its own, into which
//! the socket is read directly, and its payload is handed on as a slice of that buffer.
//!
//! Invariants:
//! - No record is above `record_bytes_max`, and none has more than [`FRAGMENTS_MAX`] fragments.
//! - A buffer for a large record is made only when its reader was granted the memory
//!   ([`Next::Room`]), from the record's first byte on. The buffer grows by doubling: collecting
//!   takes time in proportion to the bytes, however small the fragments are.
//! - A connection that sends little has a buffer of [`READ_BYTES_MIN`]; a larger one is taken if
//!   there is memory for it, and is given back when the connection is idle.
//! - A few buffers of large records are kept for the next ones, because fresh memory costs more
//!   than the copy into it.
//! - [`RecordReader::next_buffered`] never blocks; only [`RecordReader::fill`] reads.
//!
//! Fails: [`RecordError`], after which the stream has no meaning any more and must be closed.

use bytes::{Bytes, BytesMut};
use platform::stage::{self, Stage};
use platform::sync::Mutex;
use std::io::{self, Read};
use thiserror::Error;

/// Bytes asked of the socket at once: 16 WRITEs of 4 KiB, or hundreds of other calls, and little
/// enough to stay in a core's cache while they are dispatched.
pub const READ_BYTES_MAX: usize = 64 << 10;
/// Bytes asked of the socket at once as long as no more come: some twenty calls without data.
pub const READ_BYTES_MIN: usize = 4 << 10;
/// Largest record that is lent out of the read buffer. Above it the copy that a WRITE's payload
/// would need costs more than a buffer of its own.
pub const SMALL_RECORD_BYTES_MAX: usize = 16 << 10;
/// Fragments of one record. Linux sends one; libraries that fill a buffer of their own send one for
/// each 8 KiB or so, which are 130 for the largest record. Each fragment costs some work.
pub const FRAGMENTS_MAX: usize = 1024;

const MARK_SIZE: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;
/// Buffers of large records are multiples of this, so that the next record finds one that fits.
const BUFFER_STEP_BYTES: usize = 16 << 10;

const _: () = assert!(MARK_SIZE + SMALL_RECORD_BYTES_MAX <= READ_BYTES_MAX);
const _: () = assert!(MARK_SIZE < READ_BYTES_MIN && READ_BYTES_MIN < READ_BYTES_MAX);

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
    /// A record has too many fragments.
    #[error("a record of more than {count_max} fragments, which is the limit")]
    TooManyFragments {
        /// The limit.
        count_max: usize,
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
    granted_bytes: usize,
}

impl<'a> Record<'a> {
    /// A record that came by itself, as a datagram.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, owner: None, granted_bytes: 0 }
    }

    /// Memory that was granted for the record before: all of a large one, none of a small one.
    pub(crate) const fn granted_bytes(&self) -> usize {
        self.granted_bytes
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

/// What a stream has next.
#[derive(Debug)]
pub enum Next<'a> {
    /// A record.
    Record(Record<'a>),
    /// Nothing whole: [`RecordReader::fill`] reads more.
    More,
    /// A record that takes so many bytes of memory more. [`RecordReader::grant`] goes on with it,
    /// once they may be had.
    Room(usize),
}

/// What a read brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// Bytes.
    Some,
    /// Nothing for as long as the socket waits.
    Nothing,
}

/// A record in the making, of more than one fragment or larger than a small one.
#[derive(Default)]
struct Assembly {
    /// The record up to `filled`, and room behind.
    bytes: BytesMut,
    filled: usize,
    /// Bytes of the present fragment still to come.
    left: usize,
    /// Whether it is the last fragment.
    last: bool,
    /// Fragments up to the present one.
    fragments: usize,
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
    /// The size that the buffer of the record in the making is to have, when that is granted.
    wanted_bytes: usize,
    /// Owns the large record that was lent last.
    lent: Bytes,
    /// Steps forward: records, and grants of memory.
    steps: u64,
}

/// Buffers of large records that nobody has any more, for the next ones of whichever connection.
static SPARES: Mutex<Vec<BytesMut>> = Mutex::new(Vec::new());
/// How many are kept: what busy connections use at one time, and little enough beside any cache.
const SPARES_MAX: usize = 4;

/// A buffer of so many bytes.
fn buffer_of(bytes: usize) -> BytesMut {
    let spare = {
        let mut spares = SPARES.lock();
        let fits = spares.iter().position(|spare| spare.capacity() == bytes);
        fits.map(|place| spares.swap_remove(place))
    };
    match spare {
        Some(mut spare) => {
            spare.resize(bytes, 0);
            spare
        }
        None => BytesMut::zeroed(bytes),
    }
}

enum Found {
    Small { start: usize, end: usize },
    Large { granted_bytes: usize },
    Nothing,
    Room(usize),
}

impl<R: Read> RecordReader<R> {
    /// A reader of records of at most `record_bytes_max` bytes.
    #[must_use]
    pub fn new(source: R, record_bytes_max: usize) -> Self {
        Self {
            source,
            record_bytes_max,
            buffer: vec![0; READ_BYTES_MIN].into_boxed_slice(),
            start: 0,
            end: 0,
            assembly: None,
            wanted_bytes: 0,
            lent: Bytes::new(),
            steps: 0,
        }
    }

    /// The next record, if it was read already.
    ///
    /// # Errors
    /// [`RecordError::TooLong`], [`RecordError::TooManyFragments`].
    pub fn next_buffered(&mut self) -> Result<Next<'_>, RecordError> {
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
            Found::Nothing => Next::More,
            Found::Room(bytes) => Next::Room(bytes),
            Found::Small { start, end } => {
                self.steps += 1;
                Next::Record(Record::of(self.buffer.get(start..end).unwrap_or_default()))
            }
            Found::Large { granted_bytes } => {
                self.steps += 1;
                Next::Record(Record { bytes: &self.lent, owner: Some(&self.lent), granted_bytes })
            }
        })
    }

    /// Makes the buffer that [`Next::Room`] asked for.
    pub fn grant(&mut self) {
        self.steps += 1;
        let assembly = self.assembly.get_or_insert_default();
        let mut larger = buffer_of(self.wanted_bytes);
        if let (Some(to), Some(from)) =
            (larger.get_mut(..assembly.filled), assembly.bytes.get(..assembly.filled))
        {
            to.copy_from_slice(from);
        }
        assembly.bytes = larger;
    }

    /// How far the stream is. It grows with each record, and whether a record is in the making is
    /// its last bit: if the same odd number is seen again, the record is the same.
    #[must_use]
    pub const fn position(&self) -> u64 {
        let is_in_the_making = self.start < self.end || self.assembly.is_some();
        self.steps << 1 | is_in_the_making as u64
    }

    /// Reads once, blocking until there is something. `may_grow` is asked for so many bytes more
    /// if a larger buffer would have taken more at once.
    ///
    /// # Errors
    /// [`RecordError::Closed`], [`RecordError::Io`].
    pub fn fill(&mut self, may_grow: impl FnOnce(usize) -> bool) -> Result<Filled, RecordError> {
        if let Some(assembly) = &mut self.assembly
            && assembly.left > 0
        {
            assert!(self.start == self.end, "the buffer goes into the assembly first");
            let end = assembly.filled + assembly.left;
            let room = assembly.bytes.get_mut(assembly.filled..end).unwrap_or_default();
            let read = read_some(&mut self.source, room)?;
            assembly.filled += read;
            assembly.left -= read;
            return Ok(if read > 0 { Filled::Some } else { Filled::Nothing });
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
        assert!(!free.is_empty(), "a small record fits into the buffer");
        let read = read_some(&mut self.source, free)?;
        self.end += read;
        let is_full = self.end == self.buffer.len();
        if is_full && self.end < READ_BYTES_MAX && may_grow(READ_BYTES_MAX - READ_BYTES_MIN) {
            let mut larger = vec![0; READ_BYTES_MAX].into_boxed_slice();
            larger[..self.end].copy_from_slice(&self.buffer);
            self.buffer = larger;
        }
        Ok(if read > 0 { Filled::Some } else { Filled::Nothing })
    }

    /// Goes back to a small buffer if nothing is in the large one; the bytes that this frees.
    pub fn shrink(&mut self) -> usize {
        let is_large = self.buffer.len() > READ_BYTES_MIN;
        if !is_large || self.start < self.end || self.assembly.is_some() {
            return 0;
        }
        self.buffer = vec![0; READ_BYTES_MIN].into_boxed_slice();
        (self.start, self.end) = (0, 0);
        READ_BYTES_MAX - READ_BYTES_MIN
    }

    /// What the reader was allowed beyond its small buffer and has not given back: for a larger
    /// one, and for a record in the making.
    pub(crate) fn held_bytes(&self) -> usize {
        let assembly_bytes = self.assembly.as_ref().map_or(0, |assembly| assembly.bytes.len());
        self.buffer.len() - READ_BYTES_MIN + assembly_bytes
    }

    fn find(&mut self) -> Result<Found, RecordError> {
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
                    return Ok(Found::Nothing);
                }
                if assembly.last {
                    let granted_bytes = assembly.bytes.len();
                    let mut bytes = std::mem::take(&mut assembly.bytes);
                    bytes.truncate(assembly.filled);
                    self.lent = bytes.freeze();
                    self.assembly = None;
                    return Ok(Found::Large { granted_bytes });
                }
            }
            let buffered = self.buffer.get(self.start..self.end).unwrap_or_default();
            let Some((mark, rest)) = buffered.split_first_chunk::<MARK_SIZE>() else {
                return Ok(Found::Nothing);
            };
            let mark = u32::from_be_bytes(*mark);
            let last = mark & LAST_FRAGMENT != 0;
            let left = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
            let (filled, room, fragments) = match &self.assembly {
                Some(assembly) => (assembly.filled, assembly.bytes.len(), assembly.fragments),
                None => (0, 0, 0),
            };
            let length = filled.saturating_add(left);
            if length > self.record_bytes_max {
                return Err(RecordError::TooLong { length, length_max: self.record_bytes_max });
            }
            if fragments >= FRAGMENTS_MAX {
                return Err(RecordError::TooManyFragments { count_max: FRAGMENTS_MAX });
            }
            let small_bytes_max = SMALL_RECORD_BYTES_MAX.min(self.buffer.len() - MARK_SIZE);
            if last && self.assembly.is_none() && left <= small_bytes_max {
                if rest.len() < left {
                    return Ok(Found::Nothing);
                }
                let start = self.start + MARK_SIZE;
                self.start = start + left;
                return Ok(Found::Small { start, end: self.start });
            }
            if room < length {
                let most = self.record_bytes_max.next_multiple_of(BUFFER_STEP_BYTES);
                let wanted = length.max(room * 2).next_multiple_of(BUFFER_STEP_BYTES).min(most);
                self.wanted_bytes = wanted;
                return Ok(Found::Room(wanted - room));
            }
            self.start += MARK_SIZE;
            let assembly = self.assembly.get_or_insert_default();
            assembly.left = left;
            assembly.last = last;
            assembly.fragments += 1;
        }
    }
}

/// Reads what there is, blocking until there is something, or until the socket's time is over.
fn read_some(source: &mut impl Read, room: &mut [u8]) -> Result<usize, RecordError> {
    let _stage = stage::enter(Stage::Receive);
    loop {
        match source.read(room) {
            Ok(0) => return Err(RecordError::Closed),
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
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
                Ok(Next::Record(record)) => {
                    let tail = &record.bytes()[record.bytes().len() / 2..];
                    assert_eq!(record.share(tail), tail);
                    records.push(record.bytes().to_vec());
                }
                Ok(Next::Room(bytes)) => {
                    assert!(bytes > 0);
                    reader.grant();
                }
                Ok(Next::More) => {
                    if let Err(error) = reader.fill(|_| max.is_multiple_of(2)) {
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
            bytes_max in 150_000..150_002_usize,
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
            let (found, error) = read_all(stream, sizes, bytes_max);
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

    /// A stream of so many fragments of one byte, the last of which is marked.
    fn in_bytes(count: usize) -> Vec<u8> {
        let fragment = |number: usize| {
            let mark = if number + 1 == count { mark(1) } else { 1 };
            [&mark.to_be_bytes()[..], &[number as u8]].concat()
        };
        (0..count).flat_map(fragment).collect()
    }

    #[test]
    fn fragments_are_limited_in_number() {
        let (records, _) = read_all(in_bytes(FRAGMENTS_MAX), vec![1000], 1 << 20);
        assert_eq!(records[0].len(), FRAGMENTS_MAX);
        let (records, error) = read_all(in_bytes(FRAGMENTS_MAX + 1), vec![1000], 1 << 20);
        assert!(records.is_empty());
        assert!(matches!(error, RecordError::TooManyFragments { count_max: FRAGMENTS_MAX }));
        // Empty ones count, too.
        let (_, error) = read_all(vec![0; 4 * FRAGMENTS_MAX + 4], vec![1000], 1 << 20);
        assert!(matches!(error, RecordError::TooManyFragments { .. }), "{error}");
    }

    /// How often the buffer grows, not how long that takes: each growth copies what is there.
    #[test]
    fn fragments_cost_time_in_proportion_to_their_bytes() {
        let mut stream = Vec::new();
        for _ in 0..FRAGMENTS_MAX {
            stream.extend(1000_u32.to_be_bytes());
            stream.extend([7; 1000]);
        }
        let source = Chunks { bytes: stream, at: 0, sizes: vec![5000], turn: 0 };
        let mut reader = RecordReader::new(source, 2 << 20);
        let (mut grants, mut granted_bytes) = (0, 0);
        loop {
            match reader.next_buffered().unwrap() {
                Next::Room(bytes) => {
                    (grants, granted_bytes) = (grants + 1, granted_bytes + bytes);
                    reader.grant();
                }
                Next::More => {
                    if reader.fill(|_| true).is_err() {
                        break;
                    }
                }
                Next::Record(_) => unreachable!("the last fragment does not come"),
            }
        }
        assert!(grants <= 8, "{grants} buffers for a megabyte");
        assert!((1_024_000..=2 << 20).contains(&granted_bytes), "{granted_bytes}");
    }

    #[test]
    fn memory_is_asked_for_before_a_large_record_is_collected() {
        let mut stream = mark(100_000).to_be_bytes().to_vec();
        stream.extend([1; 100_000]);
        let mut reader = RecordReader::new(&stream[..], 1 << 20);
        assert!(matches!(reader.next_buffered().unwrap(), Next::More));
        assert_eq!(reader.position(), 0);
        reader.fill(|_| false).unwrap();
        let Ok(Next::Room(bytes)) = reader.next_buffered() else { panic!("no room asked for") };
        assert_eq!(bytes, 100_000_usize.next_multiple_of(BUFFER_STEP_BYTES));
        assert_eq!(reader.position(), 1, "a record is in the making");
        assert!(matches!(reader.next_buffered().unwrap(), Next::Room(_)), "until it is granted");
        reader.grant();
        while let Ok(Next::More) = reader.next_buffered() {
            reader.fill(|_| false).unwrap();
        }
        assert_eq!(reader.position(), 2 << 1, "a grant and a record");
        // The next one of this size finds the buffer.
        assert!(matches!(reader.next_buffered().unwrap(), Next::More));
        let spares = SPARES.lock();
        assert!(spares.iter().any(|spare| spare.capacity() == bytes) || spares.len() == SPARES_MAX);
    }

    #[test]
    fn a_buffer_grows_with_what_comes_and_shrinks_when_nothing_does() {
        let calls = [&mark(96).to_be_bytes()[..], &[3; 96]].concat().repeat(100);
        for may_grow in [false, true] {
            let mut reader = RecordReader::new(&calls[..], 1 << 20);
            let mut count = 0;
            loop {
                match reader.next_buffered().unwrap() {
                    Next::Record(record) => count += usize::from(record.bytes() == [3; 96]),
                    Next::More => {
                        if reader.fill(|_| may_grow).is_err() {
                            break;
                        }
                    }
                    Next::Room(_) => unreachable!("small records take no memory of their own"),
                }
            }
            assert_eq!(count, 100);
            let freed = if may_grow { READ_BYTES_MAX - READ_BYTES_MIN } else { 0 };
            assert_eq!((reader.shrink(), reader.shrink()), (freed, 0));
        }
    }
}
