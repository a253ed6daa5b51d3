//! The open log: append, group commit, switch, retire.
//!
//! Invariants:
//! - `queue` holds what gathers, in the order of the records' numbers: at most one batch for each
//!   half, and the active half's is last.
//! - One batch at most is in flight; it comes before all of `queue`.
//! - Records below `durable_end` are durable, or a durable consistency point holds them.
//!
//! Fails: the disk's first error is kept in `failure`; from then on nothing is taken or promised.

use crate::copies::{Copies, CopyState, CopyStatus, LogDisk};
use crate::half::{Half, OtherLife};
use crate::headers::{FormatDone, too_small, write_headers};
use crate::notes::Notes;
use crate::staging::{BATCH_HEADER_BYTES, Batch, RECORD_HEADER_BYTES};
use crate::{LogError, LogFull, LogIdentity, LogPosition};
use ondisk::features::FeatureSet;
use ondisk::log::{LogHeader, LogRecord};
use platform::mutation::{self, Rule};
use platform::round::{self, Round};
use platform::stage::{self, Stage};
use platform::sync::{Mutex, MutexGuard};
use platform::{Disk, DiskError, WriteDone};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockRef, CpNumber};
use zerocopy::byteorder::little_endian::{U16, U32, U64};

/// An open log. A handle: clones are the same log.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    disk: Arc<dyn Disk>,
    identity: LogIdentity,
    /// As it was written when the log was opened.
    header: LogHeader,
    /// The same as the disk, if it is several.
    copies: Option<Copies>,
    half_blocks: usize,
    notes: Arc<Notes>,
    /// See [`Log::missing`].
    missing: Option<u64>,
    state: Mutex<State>,
}

/// What is on its way to the disk.
struct InFlight {
    sequence_end: u64,
    waiters: Vec<WriteDone>,
}

pub(crate) struct State {
    pub(crate) halves: [Half; 2],
    pub(crate) active: usize,
    /// The number of the next record.
    pub(crate) sequence_next: u64,
    sequence_opened: u64,
    durable_end: u64,
    /// A half that has so many bytes takes no more records.
    half_bytes_max: u64,
    /// Records below are to be written without a waiter.
    push_end: u64,
    queue: VecDeque<Batch>,
    in_flight: Option<InFlight>,
    /// A round that is open will look for a batch to write at its end.
    pump_due: bool,
    /// A look at the disk is under way.
    is_probed: bool,
    is_closed: bool,
    failure: Option<DiskError>,
}

impl State {
    pub(crate) const fn new(halves: [Half; 2], active: usize, sequence_next: u64) -> Self {
        Self {
            halves,
            active,
            sequence_next,
            sequence_opened: sequence_next,
            durable_end: sequence_next,
            half_bytes_max: u64::MAX,
            push_end: 0,
            queue: VecDeque::new(),
            in_flight: None,
            pump_due: false,
            is_probed: false,
            is_closed: false,
            failure: None,
        }
    }

    fn active(&self) -> &Half {
        &self.halves[self.active]
    }

    /// The batch that gathers records of the active half.
    fn gathering(&self) -> Option<&Batch> {
        self.queue.back().filter(|batch| batch.half == self.active)
    }

    /// The bytes that the active half takes.
    fn capacity_bytes(&self) -> u64 {
        self.active().size_bytes().min(self.half_bytes_max)
    }

    /// The largest body that [`Self::append`] would take now; `None` if not even an empty one.
    fn room_bytes(&self) -> Option<u64> {
        let half = self.active();
        let used_bytes = self.gathering().map_or_else(
            || half.end_block * BLOCK_SIZE_U64 + BATCH_HEADER_BYTES as u64,
            |batch| batch.first_block * BLOCK_SIZE_U64 + batch.byte_count() as u64,
        );
        if used_bytes > self.half_bytes_max {
            return None;
        }
        half.size_bytes().checked_sub(used_bytes + RECORD_HEADER_BYTES as u64)
    }

    fn append(
        &mut self,
        cp: CpNumber,
        kind: u16,
        parts: &[&[u8]],
        spare: &mut Vec<BlockRef>,
    ) -> Result<LogPosition, LogFull> {
        if let Some(cause) = &self.failure {
            return Err(LogFull::Failed { cause: cause.clone() });
        }
        if self.is_closed {
            return Err(LogFull::Closed);
        }
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let (bytes, room_bytes) = (body_bytes as u64, self.room_bytes());
        if room_bytes.is_none_or(|room_bytes| bytes > room_bytes) {
            let headers_bytes = (BATCH_HEADER_BYTES + RECORD_HEADER_BYTES) as u64;
            let bytes_max = self.active().size_bytes() - headers_bytes;
            return Err(if bytes > bytes_max {
                LogFull::RecordTooLarge { bytes, bytes_max }
            } else {
                LogFull::Half { needed_bytes: bytes, free_bytes: room_bytes.unwrap_or(0) }
            });
        }
        let Ok(byte_count) = u32::try_from(body_bytes) else {
            unreachable!("a half is shorter than 4 GiB")
        };
        let active = self.active;
        let half = &mut self.halves[active];
        assert!(cp <= half.cp, "a record of {cp} in the half of {}", half.cp);
        if self.queue.back().is_none_or(|batch| batch.half != active) {
            let life = (half.cp.get(), half.other);
            self.queue.push_back(Batch::new(active, half.end_block, life, self.sequence_next));
        }
        let Some(batch) = self.queue.back_mut() else {
            unreachable!("one was pushed if there was none")
        };
        let record = LogRecord {
            cp: U64::new(cp.get()),
            byte_count: U32::new(byte_count),
            kind: U16::new(kind),
            reserved: U16::ZERO,
        };
        batch.append(&record, parts, spare);
        half.end_block = batch.end_block();
        let position = LogPosition(self.sequence_next);
        self.sequence_next += 1;
        assert!(batch.sequence_end() == self.sequence_next && half.end_block <= half.half_blocks);
        Ok(position)
    }

    /// Registers a waiter, or gives it back with the answer.
    fn wait(
        &mut self,
        position: LogPosition,
        done: WriteDone,
    ) -> Option<(WriteDone, Result<(), DiskError>)> {
        assert!(position.0 < self.sequence_next, "{position:?} was not appended");
        if position.0 < self.durable_end || mutation::broken(Rule::LogAcknowledgedEarly) {
            return Some((done, Ok(())));
        }
        if let Some(cause) = &self.failure {
            return Some((done, Err(cause.clone())));
        }
        if let Some(in_flight) = &mut self.in_flight
            && position.0 < in_flight.sequence_end
        {
            in_flight.waiters.push(done);
            return None;
        }
        let batch = self.queue.iter_mut().find(|batch| position.0 < batch.sequence_end());
        let Some(batch) = batch else {
            unreachable!("what is neither durable nor in flight gathers")
        };
        batch.waiters.push(done);
        None
    }

    /// The batch to be written now, if any: somebody waits for it or for one behind it.
    fn pump(&mut self) -> Option<Batch> {
        let first_sequence = self.queue.front()?.first_sequence;
        let wanted = first_sequence < self.push_end
            || self.queue.iter().any(|batch| !batch.waiters.is_empty());
        if self.in_flight.is_some() || !wanted {
            return None;
        }
        let mut batch = self.queue.pop_front()?;
        self.in_flight = Some(InFlight {
            sequence_end: batch.sequence_end(),
            waiters: std::mem::take(&mut batch.waiters),
        });
        Some(batch)
    }

    /// Retires one half. Batches of it that still gather are dropped: the consistency point holds
    /// what they say. Returns their waiters.
    fn retire(&mut self, half: usize) -> Vec<WriteDone> {
        self.halves[half].retired = true;
        let mut waiters = Vec::new();
        let durable_end = &mut self.durable_end;
        self.queue.retain_mut(|batch| {
            if batch.half == half {
                // What is before it, in flight or in the queue, belongs to the same consistency
                // point or to an earlier one.
                *durable_end = batch.sequence_end().max(*durable_end);
                waiters.append(&mut batch.waiters);
            }
            batch.half != half
        });
        waiters
    }

    /// Nothing is taken or promised from now on. Those who wait for what was not yet sent are to be
    /// told.
    fn fail(&mut self, cause: &DiskError) -> Vec<WriteDone> {
        self.failure.get_or_insert_with(|| cause.clone());
        self.queue.drain(..).flat_map(|batch| batch.waiters).collect()
    }

    /// Directs appends to the other half.
    fn switch(&mut self, next: CpNumber) {
        assert!(next > self.active().cp, "{next} follows {}", self.active().cp);
        let other = self.active().as_other();
        self.active = 1 - self.active;
        self.halves[self.active].begin(next, self.sequence_next, other);
    }
}

impl Log {
    pub(crate) fn new(
        disk: LogDisk,
        identity: LogIdentity,
        header: LogHeader,
        state: State,
        missing: Option<u64>,
    ) -> Self {
        let LogDisk { disk, copies } = disk;
        let half_blocks = state.active().half_blocks as usize;
        let notes = Notes::new(Arc::clone(&disk), &header);
        let state = Mutex::new(state);
        Self(Arc::new(Inner { disk, identity, header, copies, half_blocks, notes, missing, state }))
    }

    /// Where its header is to be written, and the header.
    pub(crate) fn to_begin(&self) -> (Arc<dyn Disk>, LogHeader) {
        (Arc::clone(&self.0.disk), self.0.header.clone())
    }

    /// The same as its disk, if the log has copies.
    pub(crate) fn copied(&self) -> Option<&Copies> {
        self.0.copies.as_ref()
    }

    /// What its header says of the format.
    #[must_use]
    pub fn features(&self) -> &FeatureSet {
        &self.0.header.features
    }

    /// The first record that was durable and was not found when the log was opened, if any is
    /// known to be: its block has rotted, or the disk lost the write. Neither it nor any later
    /// record is replayed. Zero if its number is not known.
    #[must_use]
    pub fn missing(&self) -> Option<u64> {
        self.0.missing
    }

    /// The number of the record after its last.
    pub(crate) fn records_end(&self) -> u64 {
        self.0.state.lock().sequence_next
    }

    /// Its notes of stripes.
    #[must_use]
    pub fn notes(&self) -> &Arc<Notes> {
        &self.0.notes
    }

    /// Which log it is.
    #[must_use]
    pub fn identity(&self) -> LogIdentity {
        self.0.identity
    }

    /// Appends a record to the active half: the body is `parts`, one after another. The order of
    /// appends is the order of replay. The record is durable only when [`Self::when_durable`]
    /// says so, and may wait in memory until then.
    ///
    /// `cp` is the consistency point after which the record is superfluous: the active half's, or
    /// an earlier one for records of the point that is under way.
    ///
    /// # Errors
    /// The half is full, the record larger than a half, or the log has failed. Nothing is
    /// appended then.
    ///
    /// # Panics
    /// If `cp` is later than the active half's.
    pub fn append(&self, cp: CpNumber, kind: u16, parts: &[&[u8]]) -> Result<LogPosition, LogFull> {
        let _stage = stage::enter(Stage::Log);
        // Large bodies bring their blocks, so that the lock is held for the copy only. What a
        // record does not use, because it was refused, is dropped outside the lock.
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let spare_max = self.0.half_blocks;
        let mut spare: Vec<BlockRef> =
            (0..(body_bytes / BLOCK_SIZE).min(spare_max)).map(|_| Block::shared(&[])).collect();
        self.0.state.lock().append(cp, kind, parts, &mut spare)
    }

    /// Calls `done` when the record, and so all before it, is durable: at once and on the calling
    /// thread if it is, otherwise on the thread of the disk's completion.
    ///
    /// # Panics
    /// If the position is none of this log's.
    pub fn when_durable(&self, position: LogPosition, done: WriteDone) {
        let mut state = self.0.state.lock();
        let answered = state.wait(position, done);
        if !round::is_open() {
            Inner::pump(&self.0, state);
        } else if !std::mem::replace(&mut state.pump_due, true) {
            // Others may come in the same round: they go in one batch.
            let inner = Arc::clone(&self.0);
            round::at_end(move || {
                let mut state = inner.state.lock();
                state.pump_due = false;
                Inner::pump(&inner, state);
            });
        }
        if let Some((done, result)) = answered {
            done(result);
        }
    }

    /// Alive as long as a handle of the log or a request to its disk is.
    #[must_use]
    pub fn remains(&self) -> Weak<dyn Any + Send + Sync> {
        let inner: Arc<dyn Any + Send + Sync> = Arc::clone(&self.0) as _;
        Arc::downgrade(&inner)
    }

    /// Lets go of everyone who waits, unanswered: their world is gone (a simulated power cut). They
    /// hold what holds the log.
    pub fn abandon(&self) {
        let mut waiters = Vec::new();
        {
            let mut state = self.0.state.lock();
            state.in_flight.iter_mut().for_each(|sent| waiters.append(&mut sent.waiters));
            state.queue.iter_mut().for_each(|batch| waiters.append(&mut batch.waiters));
        }
        drop(waiters);
        self.0.notes.abandon();
        if let Some(copies) = &self.0.copies {
            copies.abandon();
        }
    }

    /// The last record's position; `None` if nothing was appended since the log was opened.
    #[must_use]
    pub fn last_position(&self) -> Option<LogPosition> {
        let state = self.0.state.lock();
        (state.sequence_next > state.sequence_opened).then(|| LogPosition(state.sequence_next - 1))
    }

    /// Starts to write everything that was appended so far, though nobody waits for it.
    pub fn push(&self) {
        let mut state = self.0.state.lock();
        state.push_end = state.sequence_next;
        Inner::pump(&self.0, state);
    }

    /// Directs later appends to the other half: at the freeze of a consistency point, whose
    /// records the active half holds. `next` is the point after it.
    ///
    /// # Errors
    /// The other half is not retired yet; nothing is changed.
    ///
    /// # Panics
    /// If `next` is not later than the active half's consistency point.
    pub fn switch_half(&self, next: CpNumber) -> Result<(), LogFull> {
        let mut state = self.0.state.lock();
        if !state.halves[1 - state.active].retired {
            return Err(LogFull::NotRetired);
        }
        state.switch(next);
        Ok(())
    }

    /// Has a half that holds so many bytes take no more records, because a replay has the records
    /// of both in memory. A half goes beyond by one record at most.
    pub fn limit_halves(&self, bytes_max: u64) {
        self.0.state.lock().half_bytes_max = bytes_max.max(BLOCK_SIZE_U64);
    }

    /// Takes no more records: what it has by now is all that there will be.
    pub fn close(&self) {
        self.0.state.lock().is_closed = true;
    }

    /// Whether it takes no more records.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.state.lock().is_closed
    }

    /// Frees the halves whose records are all in `committed` or an earlier consistency point,
    /// when that point is durable. Whoever waits for a record in them that is not yet written is
    /// told that it is durable, for it is. If even the active half is freed (after a replay), the
    /// log goes on in the other one with the next point.
    pub fn retire(&self, committed: CpNumber) {
        let mut waiters = Vec::new();
        {
            let mut state = self.0.state.lock();
            for half in 0..2 {
                if !state.halves[half].retired && state.halves[half].cp <= committed {
                    waiters.append(&mut state.retire(half));
                }
            }
            if state.active().retired {
                assert!(state.halves[1 - state.active].retired, "the active half is the later one");
                state.switch(committed.next());
            }
        }
        self.admit_copies(committed);
        let _round = Round::open();
        for done in waiters {
            done(Ok(()));
        }
    }

    /// Copies have everything that joined before what this consistency point holds: if the notes
    /// begin anew, too, which a joining copy has not from their beginning.
    fn admit_copies(&self, committed: CpNumber) {
        let Some(copies) = &self.0.copies else { return };
        if copies.is_joined_by(committed) && self.0.notes.restart(committed) {
            copies.admit(committed);
        }
    }

    /// Has another disk hold a copy, whose content may be lost. It is whole with the second
    /// consistency point from now on at the latest. Answers when it is written like the others.
    /// Identities are never given twice.
    ///
    /// # Errors
    /// To `done`: the disk is too small, it fails, or the log has as many copies as it can have.
    ///
    /// # Panics
    /// If the log was not opened as one with copies.
    pub fn join(&self, identity: u64, disk: Arc<dyn Disk>, done: FormatDone) {
        let mut header = self.0.header.clone();
        header.copy = U64::new(identity);
        // The disk may hold batches that no other copy has: its last write may have been the only
        // one that was done.
        header.first_incarnation = header.incarnation;
        let needed_blocks = header.blocks();
        if disk.size_blocks() < needed_blocks {
            return done(Err(too_small(&disk, needed_blocks)));
        }
        let Some(copies) = &self.0.copies else { panic!("a log that was opened without copies") };
        let (log, same) = (self.clone(), Arc::clone(&disk));
        let written = move |result: Result<(), DiskError>| {
            let joined = result.map_err(LogError::from).and_then(|()| log.0.joined(identity, same));
            done(joined);
        };
        // The disk may be named as one that has everything, and be the last that has: its header is
        // written over when it is named no more. A log that has failed names it for good.
        let log = self.clone();
        let settled = move |result: Result<(), DiskError>| match log.failure().map_or(result, Err) {
            Ok(()) => write_headers(&disk, &header, Box::new(written)),
            Err(cause) => written(Err(cause)),
        };
        copies.settle(Box::new(settled));
    }

    /// Its copies, and what is known of those that it should have.
    #[must_use]
    pub fn copies(&self) -> Vec<CopyStatus> {
        match &self.0.copies {
            Some(copies) => copies.status(),
            None => {
                let disk = self.0.disk.name().to_owned();
                vec![CopyStatus { disk, state: CopyState::Whole }]
            }
        }
    }

    /// Whether it was opened as one that may have copies.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        self.0.copies.is_some()
    }

    /// Answers when every copy that has everything is recorded as such, so that any one of them is
    /// enough; at once if the log has no copies.
    pub fn when_copies_named(&self, done: WriteDone) {
        match &self.0.copies {
            Some(copies) if !mutation::broken(Rule::ServedBeforeNamed) => copies.when_named(done),
            _ => done(Ok(())),
        }
    }

    /// Writes no more to the copy on this disk, unless no other one has everything. What it has
    /// counts for nothing when the labels say so.
    pub fn leave(&self, disk: &str) {
        if let Some(copies) = &self.0.copies {
            copies.leave(disk);
        }
    }

    /// Forgets the copies that were lost: others are in their place.
    pub fn forget_lost_copies(&self) {
        if let Some(copies) = &self.0.copies {
            copies.forget_lost();
        }
    }

    /// Notes that a copy should be on a disk and cannot be, for this cause.
    pub fn lack(&self, disk: &str, cause: String) {
        if let Some(copies) = &self.0.copies {
            copies.lack(disk, cause);
        }
    }

    /// The consistency point that appends belong to.
    #[must_use]
    pub fn active_cp(&self) -> CpNumber {
        self.0.state.lock().active().cp
    }

    /// How full the active half is: 0 to 1.
    #[must_use]
    pub fn used_ratio(&self) -> f64 {
        let (used_bytes, capacity_bytes) = self.used_bytes();
        (used_bytes as f64 / capacity_bytes as f64).min(1.0)
    }

    /// Bytes of the active half that are used, and that it takes.
    #[must_use]
    pub fn used_bytes(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.active().end_block * BLOCK_SIZE_U64, state.capacity_bytes())
    }

    /// The largest body that an append would take now.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.0.state.lock().room_bytes().unwrap_or(0)
    }

    /// The bytes that a half takes, headers of records included.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.0.state.lock().capacity_bytes()
    }

    /// The largest body of a record.
    #[must_use]
    pub fn record_bytes_max(&self) -> u64 {
        let size_bytes = self.0.state.lock().active().size_bytes();
        size_bytes - (BATCH_HEADER_BYTES + RECORD_HEADER_BYTES) as u64
    }

    /// Whether the switch to the other half is possible: the point before is durable.
    #[must_use]
    pub fn can_switch(&self) -> bool {
        let state = self.0.state.lock();
        state.halves[1 - state.active].retired
    }

    /// Looks whether the disk still takes what it is given, though nobody writes to it: if it does
    /// not, the log has failed a moment later. One look at a time; a disk that hangs is not asked
    /// again.
    pub fn probe(&self) {
        {
            let mut state = self.0.state.lock();
            if state.is_probed || state.failure.is_some() {
                return;
            }
            state.is_probed = true;
        }
        let log = Arc::clone(&self.0);
        let looked = move |result: Result<(), DiskError>| {
            let waiters = {
                let mut state = log.state.lock();
                state.is_probed = false;
                result.as_ref().err().map_or_else(Vec::new, |cause| state.fail(cause))
            };
            for done in waiters {
                done(result.clone());
            }
        };
        self.0.disk.flush(Box::new(looked));
    }

    /// What the disk reported, if the log has failed.
    #[must_use]
    pub fn failure(&self) -> Option<DiskError> {
        let failure = self.0.state.lock().failure.clone();
        failure.or_else(|| self.0.copies.as_ref().and_then(Copies::failure))
    }
}

impl Inner {
    /// From here on a copy is written like the others. What was appended before is of the active
    /// half's consistency point or of an earlier one.
    fn joined(&self, identity: u64, disk: Arc<dyn Disk>) -> Result<(), LogError> {
        let state = self.state.lock();
        let Some(copies) = &self.copies else { panic!("a log that was opened without copies") };
        let name = disk.name().to_owned();
        if state.is_closed {
            return Err(LogError::Closed { disk: name });
        }
        let whole_by = state.active().cp;
        let is_taken = copies.join((identity, disk), whole_by);
        if is_taken { Ok(()) } else { Err(LogError::NoMoreCopies { disk: name }) }
    }

    /// Gives the lock back and writes what is due.
    fn pump(this: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let Some(batch) = state.pump() else { return };
        let disk_block = state.halves[batch.half].base_block + batch.first_block;
        drop(state);
        let blocks = batch.seal(this.identity.log, this.header.incarnation.get(), disk_block);
        let log = Arc::clone(this);
        let done: WriteDone = Box::new(move |result| Self::complete(&log, result));
        if mutation::broken(Rule::LogNotFlushed) {
            return this.disk.write(disk_block, blocks, done);
        }
        Arc::clone(&this.disk).write_durable(disk_block, blocks, done);
    }

    /// The end of the batch in flight.
    fn complete(this: &Arc<Self>, result: Result<(), DiskError>) {
        let mut state = this.state.lock();
        let Some(in_flight) = state.in_flight.take() else {
            unreachable!("one write, one completion")
        };
        let mut waiters = in_flight.waiters;
        match &result {
            Ok(()) => state.durable_end = state.durable_end.max(in_flight.sequence_end),
            Err(cause) => waiters.append(&mut state.fail(cause)),
        }
        // The next batch is under way before anyone is told of this one. What the waiters send to
        // their clients leaves together.
        Self::pump(this, state);
        let _round = Round::open();
        for done in waiters {
            done(result.clone());
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        let half = state.active();
        write!(
            formatter,
            "Log(half {} of {}, {} of {} blocks used)",
            state.active, half.cp, half.end_block, half.half_blocks
        )
    }
}

/// The halves of a log of this geometry, both free.
pub(crate) fn free_halves(first_block: u64, half_blocks: u64) -> [Half; 2] {
    [0, 1].map(|index| Half {
        base_block: first_block + index * half_blocks,
        half_blocks,
        cp: CpNumber(0),
        retired: true,
        first_sequence: 0,
        end_block: 0,
        other: OtherLife::default(),
    })
}

const _: () = assert!(BATCH_HEADER_BYTES + RECORD_HEADER_BYTES < BLOCK_SIZE);
