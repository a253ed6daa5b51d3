//! Reads a half: the chain of batches of its present life.
//!
//! Invariant: a batch is trusted only if its checksum holds and everything it says of itself fits
//! its place: log, block, number of the first record, incarnation, and the life that the batches
//! before it belong to. The first one that is not ends the half: it was torn, or it is from a
//! life before, or nothing was ever written there. A whole batch with reserved bytes in use is none
//! of these: a newer build wrote it, and its records are not dropped ([`HalfScan::newer`]).
//!
//! Fails: never; bytes are bytes.

use crate::half::OtherLife;
use crate::staging::BATCH_HEADER_BYTES;
use crate::{LogPosition, Record};
use ondisk::damage::Damage;
use ondisk::log::{LOG_BATCH_MAGIC, LogBatch, LogRecord};
use platform::mutation::{self, Rule};
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, BlockRef, CpNumber, LogUuid};
use zerocopy::{FromBytes, IntoBytes};

/// Numbers of records beyond are nonsense: a log would take millions of years to get there. Keeps
/// sums of numbers and counts from overflowing.
const SEQUENCE_MAX: u64 = 1 << 62;

/// What is known of the log before its halves are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) log: LogUuid,
    /// The highest that a batch can have.
    pub(crate) incarnation: u64,
    /// The lowest.
    pub(crate) first_incarnation: u64,
    pub(crate) half_blocks: u64,
    pub(crate) committed: CpNumber,
}

/// What the batches of one life have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    pub(crate) cp: CpNumber,
    pub(crate) first_sequence: u64,
    pub(crate) other: OtherLife,
}

pub(crate) struct HalfScan {
    frame: Frame,
    base_block: u64,
    /// Blocks that were read and not used, from `end_block`.
    blocks: Vec<BlockRef>,
    incarnation: u64,
    /// Behind the last batch.
    pub(crate) end_block: u64,
    pub(crate) sequence_end: u64,
    pub(crate) life: Option<Life>,
    /// Those of the life that are not in a durable consistency point.
    pub(crate) records: Vec<Record>,
    /// Why the chain ended at a whole batch, which this build cannot read and replay needs.
    pub(crate) newer: Option<Damage>,
}

/// What a scan wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// At least `count` blocks of the disk from `block`; there are `count_max` before the end.
    Blocks {
        block: u64,
        count: usize,
        count_max: usize,
    },
    Nothing,
}

impl HalfScan {
    pub(crate) const fn new(frame: Frame, base_block: u64) -> Self {
        Self {
            frame,
            base_block,
            blocks: Vec::new(),
            incarnation: frame.first_incarnation,
            end_block: 0,
            sequence_end: 0,
            life: None,
            records: Vec::new(),
            newer: None,
        }
    }

    pub(crate) fn feed(&mut self, blocks: Vec<BlockRef>) {
        self.blocks.extend(blocks);
    }

    /// Takes what it can from the blocks that it was fed.
    pub(crate) fn advance(&mut self) -> Want {
        loop {
            let left = self.frame.half_blocks - self.end_block;
            if left == 0 {
                return Want::Nothing;
            }
            let Some(first) = self.blocks.first() else { return self.want(1, left) };
            let Some(header) = self.header(first, left) else { return Want::Nothing };
            let count = (header.byte_count.get() as usize).div_ceil(BLOCK_SIZE);
            let Some(blocks) = self.blocks.get(..count) else { return self.want(count, left) };
            match self.batch(&header, blocks) {
                Some(Ok(records)) => self.accept(&header, count, records),
                Some(Err(newer)) => {
                    self.newer = Some(newer);
                    return Want::Nothing;
                }
                None => return Want::Nothing,
            }
        }
    }

    fn want(&self, count: usize, left: u64) -> Want {
        let held = self.blocks.len();
        Want::Blocks {
            block: self.base_block + self.end_block + held as u64,
            count: count - held,
            count_max: left as usize - held,
        }
    }

    /// The batch header in the block at `end_block`, if it fits there.
    fn header(&self, block: &BlockRef, left: u64) -> Option<LogBatch> {
        let (header, _) = LogBatch::read_from_prefix(block.bytes()).ok()?;
        let fits = header.magic.get() == LOG_BATCH_MAGIC
            && header.log == self.frame.log
            && header.block.get() == self.base_block + self.end_block
            && header.byte_count.get() as usize >= BATCH_HEADER_BYTES
            && u64::from(header.byte_count.get()) <= left * BLOCK_SIZE_U64
            && header.record_count.get() > 0
            && (self.incarnation..=self.frame.incarnation).contains(&header.incarnation.get());
        let chained = match self.life {
            None => (1..SEQUENCE_MAX).contains(&header.sequence.get()),
            Some(life) => {
                header.sequence.get() == self.sequence_end
                    && Self::life(&header) == Life { first_sequence: header.sequence.get(), ..life }
            }
        };
        (fits && chained).then_some(header)
    }

    /// Blocks of the half from the end of the chain on.
    pub(crate) const fn blocks_left(&self) -> u64 {
        self.frame.half_blocks - self.end_block
    }

    /// Where the chain ends on the disk.
    pub(crate) const fn end_on_disk(&self) -> u64 {
        self.base_block + self.end_block
    }

    /// The number of the record that would follow the chain; zero if that is not known.
    pub(crate) const fn next_sequence(&self) -> u64 {
        self.sequence_end
    }

    /// Whether the block, which lies beyond the end of the chain, begins a batch that was written
    /// later than what is missing there.
    pub(crate) fn is_later(&self, at: u64, block: &BlockRef) -> bool {
        let Ok((header, _)) = LogBatch::read_from_prefix(block.bytes()) else { return false };
        header.magic.get() == LOG_BATCH_MAGIC
            && header.log == self.frame.log
            && header.block.get() == at
            && header.cp.get() > self.frame.committed.get()
            && header.sequence.get() > self.sequence_end
            && (self.incarnation..=self.frame.incarnation).contains(&header.incarnation.get())
    }

    /// The life that a batch would begin.
    fn life(header: &LogBatch) -> Life {
        Life {
            cp: CpNumber(header.cp.get()),
            first_sequence: header.sequence.get(),
            other: OtherLife { cp: header.other_cp.get(), sequence: header.other_sequence.get() },
        }
    }

    /// The records of a batch, if it is whole; or what of them this build cannot read.
    fn batch(&self, header: &LogBatch, blocks: &[BlockRef]) -> Option<Result<Vec<Record>, Damage>> {
        let mut bytes = Vec::with_capacity(blocks.len() * BLOCK_SIZE);
        blocks.iter().for_each(|block| bytes.extend_from_slice(block.bytes()));
        let mut left = bytes.get(BATCH_HEADER_BYTES..header.byte_count.get() as usize)?;
        let is_whole = header.computed_checksum([left]) == header.checksum.get();
        if !is_whole && !mutation::broken(Rule::LogBatchUnchecked) {
            return None;
        }
        // From here on it is what somebody sealed; it is read with care all the same.
        let mut records = Vec::new();
        let sequence_end = header.sequence.get() + u64::from(header.record_count.get());
        for sequence in header.sequence.get()..sequence_end {
            let (record, rest) = LogRecord::read_from_prefix(left).ok()?;
            let body = rest.get(..record.byte_count.get() as usize)?;
            left = rest.get(body.len()..)?;
            let cp = record.cp.get();
            if cp > header.cp.get() {
                return None;
            }
            let is_committed = cp <= self.frame.committed.get();
            // Nobody needs a committed one: after a stop in order an older build may go on.
            if !is_committed {
                let reserved = Damage::unless_zero("log record", &[record.reserved.as_bytes()]);
                if let Err(newer) = reserved {
                    return Some(Err(newer));
                }
            }
            if !is_committed || mutation::broken(Rule::CommittedRecordsReplayed) {
                records.push(Record {
                    cp: CpNumber(cp),
                    kind: record.kind.get(),
                    position: LogPosition(sequence),
                    body: body.to_vec(),
                });
            }
        }
        left.is_empty().then_some(Ok(records))
    }

    fn accept(&mut self, header: &LogBatch, count: usize, records: Vec<Record>) {
        if self.life.is_none() {
            self.life = Some(Self::life(header));
        }
        self.blocks.drain(..count);
        self.end_block += count as u64;
        self.incarnation = header.incarnation.get();
        self.sequence_end = header.sequence.get() + u64::from(header.record_count.get());
        self.records.extend(records);
    }
}
