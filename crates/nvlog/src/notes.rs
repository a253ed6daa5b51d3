//! Notes of stripes that are about to be written in part: what makes them whole after a crash.
//!
//! They are larger than records and needed for a shorter time, so they have a place of their own,
//! in two halves. Who writes them numbers *epochs*: when the notes of an epoch fill its half, and
//! those of the epoch before are needed no more, the next epoch begins in that half. Which epoch a
//! half holds is told by its first block, and that is durable before any other block of the half is
//! written over: so of a former epoch a start finds all that was durable, or nothing.
//!
//! Notes of one epoch that gather while others are on their way go in one write.
//!
//! Invariants: one write at most is in flight, and notes follow one another without a gap, so the
//! first that is not whole is the end: neither it nor what is behind it was told durable. A start
//! finds notes in the order in which they were given.
//!
//! Fails: the first error of the disk fails all notes that wait and every later one; a start that
//! cannot read what may be a note is refused.

use ondisk::log::{LOG_EPOCH_MAGIC, LOG_HEADER_BLOCKS, LOG_NOTE_MAGIC, LogHeader, LogNote};
use platform::mutation::{self, Rule};
use platform::sync::{Mutex, MutexGuard};
use platform::{Disk, DiskError, WriteDone};
use std::collections::VecDeque;
use std::sync::Arc;
use units::{BLOCK_SIZE, Block, BlockRef, CpNumber, LogUuid};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a note's first block before its own.
const HEADER_BYTES: usize = size_of::<LogNote>();

/// A note that a start found: bytes and blocks, as they were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// As given.
    pub bytes: Vec<u8>,
    /// As given.
    pub blocks: Vec<BlockRef>,
}

struct Waiting {
    epoch: u64,
    cp: CpNumber,
    bytes: Vec<u8>,
    blocks: Vec<BlockRef>,
    done: WriteDone,
}

#[derive(Default)]
struct State {
    /// What the epoch 0 of whoever writes is called here.
    first_epoch: u64,
    /// The latest consistency point of a note.
    last_cp: u64,
    /// The epoch that each half holds, and where in it the next note goes.
    halves: [(u64, u64); 2],
    queue: VecDeque<Waiting>,
    is_writing: bool,
    in_flight: Vec<WriteDone>,
    failure: Option<DiskError>,
    found: Vec<Found>,
}

/// See the module.
pub struct Notes {
    disk: Arc<dyn Disk>,
    log: LogUuid,
    first_block: u64,
    half_blocks: u64,
    state: Mutex<State>,
}

impl Notes {
    pub(crate) fn new(disk: Arc<dyn Disk>, header: &LogHeader) -> Arc<Self> {
        Arc::new(Self {
            disk,
            log: header.log,
            first_block: LOG_HEADER_BLOCKS + 2 * header.half_blocks.get(),
            half_blocks: header.notes_blocks.get() / 2,
            state: Mutex::default(),
        })
    }

    /// The blocks of notes that an epoch has room for.
    #[must_use]
    pub const fn capacity_blocks(&self) -> u64 {
        self.half_blocks - 1
    }

    /// The notes that were found, in order; once.
    #[must_use]
    pub fn take_found(&self) -> Vec<Found> {
        std::mem::take(&mut self.state.lock().found)
    }

    /// Makes a note durable: `bytes`, less than a block, and `blocks`. It is found by a start whose
    /// consistency point is earlier than `cp`, until the epoch after the next begins. Epochs are
    /// numbered from 0 since the log was opened; when one has begun notes of the one before may
    /// still come.
    ///
    /// # Panics
    /// If the epoch is over, or has no room.
    pub fn append(
        self: &Arc<Self>,
        (epoch, cp): (u64, CpNumber),
        bytes: Vec<u8>,
        blocks: Vec<BlockRef>,
        done: WriteDone,
    ) {
        assert!(bytes.len() <= BLOCK_SIZE - HEADER_BYTES, "{} bytes of a note", bytes.len());
        let mut state = self.state.lock();
        if let Some(cause) = state.failure.clone() {
            drop(state);
            return done(Err(cause));
        }
        let epoch = state.first_epoch + epoch;
        state.last_cp = state.last_cp.max(cp.get());
        state.queue.push_back(Waiting { epoch, cp, bytes, blocks, done });
        self.pump(state);
    }

    /// Has each half begin anew with its next note, if no note is needed any more when this
    /// consistency point is durable; whether it is so. Whoever writes sees nothing of it: the
    /// epoch under way goes on, with more room than it had.
    pub(crate) fn restart(&self, committed: CpNumber) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.queue.is_empty() && !state.is_writing;
        if !is_idle || state.last_cp > committed.get() {
            return false;
        }
        // Of the same half as before.
        state.first_epoch += 2;
        true
    }

    /// Lets go of everyone who waits, unanswered.
    pub(crate) fn abandon(&self) {
        let forgotten = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.queue), std::mem::take(&mut state.in_flight))
        };
        drop(forgotten);
    }

    fn half_of(&self, epoch: u64) -> u64 {
        self.first_block + epoch % 2 * self.half_blocks
    }

    /// Gives the lock back and writes what waits.
    fn pump(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let Some(epoch) = state.queue.front().map(|next| next.epoch) else { return };
        if std::mem::replace(&mut state.is_writing, true) {
            return;
        }
        let half = self.half_of(epoch);
        let (held, next_block) = &mut state.halves[(epoch % 2) as usize];
        if epoch != *held {
            assert!(epoch > *held, "epoch {epoch} follows {held}");
            (*held, *next_block) = (epoch, 1);
            drop(state);
            let begin = self.seal((LOG_EPOCH_MAGIC, epoch, CpNumber(0)), half, &[], Vec::new());
            return self.write(half, begin);
        }
        let block = half + *next_block;
        let (mut notes, mut count) = (Vec::new(), 0);
        while let Some(next) = state.queue.pop_front_if(|next| next.epoch == epoch) {
            count += 1 + next.blocks.len() as u64;
            notes.push((next.cp, next.bytes, next.blocks));
            state.in_flight.push(next.done);
        }
        let next_block = &mut state.halves[(epoch % 2) as usize].1;
        *next_block += count;
        assert!(*next_block <= self.half_blocks, "epoch {epoch} has no room");
        drop(state);
        let mut blocks = Vec::new();
        for (cp, bytes, own) in notes {
            let at = block + blocks.len() as u64;
            blocks.extend(self.seal((LOG_NOTE_MAGIC, epoch, cp), at, &bytes, own));
        }
        self.write(block, blocks);
    }

    fn write(self: &Arc<Self>, block: u64, blocks: Vec<BlockRef>) {
        let this = Arc::clone(self);
        let done = Box::new(move |result| this.written(&result));
        Arc::clone(&self.disk).write_durable(block, blocks, done);
    }

    fn written(self: &Arc<Self>, result: &Result<(), DiskError>) {
        let mut state = self.state.lock();
        state.is_writing = false;
        let mut answered = std::mem::take(&mut state.in_flight);
        if let Err(cause) = result {
            state.failure = Some(cause.clone());
            answered.extend(state.queue.drain(..).map(|waiting| waiting.done));
        }
        self.pump(state);
        answered.into_iter().for_each(|done| done(result.clone()));
    }

    /// A note as blocks that are to be written from `block`.
    fn seal(
        &self,
        (magic, epoch, cp): (u32, u64, CpNumber),
        block: u64,
        bytes: &[u8],
        blocks: Vec<BlockRef>,
    ) -> Vec<BlockRef> {
        let mut header = LogNote {
            magic: U32::new(magic),
            checksum: U32::ZERO,
            log: self.log,
            epoch: U64::new(epoch),
            block: U64::new(block),
            cp: U64::new(cp.get()),
            block_count: U32::new(blocks.len() as u32),
            byte_count: U32::new(bytes.len() as u32),
        };
        let mut first = Block::zeroed();
        first[HEADER_BYTES..HEADER_BYTES + bytes.len()].copy_from_slice(bytes);
        header.checksum = U32::new(computed_checksum(&header, &first, &blocks));
        first[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let mut sealed = vec![Arc::new(first)];
        sealed.extend(blocks);
        sealed
    }

    /// What a first block says, if it is of this kind and written for this place.
    fn header(&self, magic: u32, block: u64, first: &Block) -> Option<LogNote> {
        let (header, _) = LogNote::read_from_prefix(first.bytes()).ok()?;
        let is_ours = header.magic.get() == magic
            && header.log == self.log
            && header.block.get() == block
            && header.byte_count.get() as usize <= BLOCK_SIZE - HEADER_BYTES;
        is_ours.then_some(header)
    }

    /// Reads the notes that a start needs whose consistency point is `committed`.
    pub(crate) fn find(self: Arc<Self>, committed: CpNumber, done: WriteDone) {
        Finding { notes: self, committed, half: 0, epochs: Vec::new(), done }.next_half();
    }
}

fn computed_checksum(header: &LogNote, first: &Block, blocks: &[BlockRef]) -> u32 {
    let following = blocks.iter().map(|block| &block.bytes()[..]);
    header.computed_checksum(std::iter::once(&first.bytes()[HEADER_BYTES..]).chain(following))
}

/// Notes as they are looked for.
struct Finding {
    notes: Arc<Notes>,
    committed: CpNumber,
    /// How many halves were begun.
    half: u64,
    /// What was found of each epoch.
    epochs: Vec<(u64, Vec<Found>)>,
    done: WriteDone,
}

impl Finding {
    fn read(self, block: u64, count: u64, then: impl FnOnce(Self, Vec<BlockRef>) + Send + 'static) {
        let disk = Arc::clone(&self.notes.disk);
        let read = move |result| match result {
            Ok(blocks) => then(self, blocks),
            Err(cause) => (self.done)(Err(cause)),
        };
        disk.read(block, count as usize, Box::new(read));
    }

    fn next_half(mut self) {
        if self.half == 2 {
            return self.finish();
        }
        let block = self.notes.first_block + self.half * self.notes.half_blocks;
        let parity = self.half;
        self.half += 1;
        self.read(block, 1, move |mut this, blocks| {
            let header = blocks.first().and_then(|first| {
                let header = this.notes.header(LOG_EPOCH_MAGIC, block, first)?;
                let is_whole = header.checksum.get() == computed_checksum(&header, first, &[]);
                (is_whole && header.epoch.get() % 2 == parity).then_some(header)
            });
            match header {
                Some(header) => {
                    this.epochs.push((header.epoch.get(), Vec::new()));
                    this.next_note(block, 1);
                }
                None => this.next_half(),
            }
        });
    }

    /// The note at `next`, counted from the beginning of the half.
    fn next_note(self, half: u64, next: u64) {
        if next >= self.notes.half_blocks {
            return self.next_half();
        }
        let epoch = self.epochs.last().map(|(epoch, _)| *epoch);
        self.read(half + next, 1, move |this, blocks| {
            let header = blocks.first().and_then(|first| {
                let header = this.notes.header(LOG_NOTE_MAGIC, half + next, first)?;
                let end = next + 1 + u64::from(header.block_count.get());
                let fits = Some(header.epoch.get()) == epoch && end <= this.notes.half_blocks;
                fits.then(|| (header, Arc::clone(first)))
            });
            let Some((header, first)) = header else { return this.next_half() };
            let count = u64::from(header.block_count.get());
            if count == 0 {
                return this.take(half, next, (header, first), Vec::new());
            }
            this.read(half + next + 1, count, move |this, blocks| {
                this.take(half, next, (header, first), blocks);
            });
        });
    }

    fn take(
        mut self,
        half: u64,
        next: u64,
        (header, first): (LogNote, BlockRef),
        blocks: Vec<BlockRef>,
    ) {
        if header.checksum.get() != computed_checksum(&header, &first, &blocks) {
            return self.next_half();
        }
        let end = next + 1 + blocks.len() as u64;
        let is_needed = header.cp.get() > self.committed.get();
        if (is_needed || mutation::broken(Rule::CommittedNotesBelieved))
            && let Some((_, notes)) = self.epochs.last_mut()
        {
            let bytes = &first.bytes()[HEADER_BYTES..][..header.byte_count.get() as usize];
            notes.push(Found { bytes: bytes.to_vec(), blocks });
        }
        self.next_note(half, end);
    }

    fn finish(mut self) {
        self.epochs.sort_by_key(|(epoch, _)| *epoch);
        {
            let mut state = self.notes.state.lock();
            let last = self.epochs.last().map_or(0, |(epoch, _)| *epoch);
            state.first_epoch = last + 1;
            state.halves = [0, 1].map(|parity| {
                let held = self.epochs.iter().find(|(epoch, _)| epoch % 2 == parity);
                (held.map_or(0, |(epoch, _)| *epoch), 0)
            });
            state.found = self.epochs.drain(..).flat_map(|(_, notes)| notes).collect();
        }
        (self.done)(Ok(()));
    }
}
