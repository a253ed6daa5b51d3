//! A batch that gathers records, in blocks that go to the disk as they are.
//!
//! Invariants: `blocks` are as many as `byte_count` needs, not shared before [`Batch::seal`], and
//! zero behind the last record.

use crate::half::OtherLife;
use ondisk::log::{LOG_BATCH_MAGIC, LogBatch, LogRecord};
use platform::WriteDone;
use std::sync::Arc;
use units::{BLOCK_SIZE, Block, BlockRef, LogUuid};
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U32, U64};

/// Bytes before the first record.
pub(crate) const BATCH_HEADER_BYTES: usize = size_of::<LogBatch>();
/// Bytes before each body.
pub(crate) const RECORD_HEADER_BYTES: usize = size_of::<LogRecord>();

pub(crate) struct Batch {
    /// Which half it goes to.
    pub(crate) half: usize,
    /// Where it begins in the half.
    pub(crate) first_block: u64,
    pub(crate) cp: u64,
    pub(crate) other: OtherLife,
    pub(crate) first_sequence: u64,
    pub(crate) record_count: u32,
    pub(crate) waiters: Vec<WriteDone>,
    byte_count: usize,
    blocks: Vec<BlockRef>,
}

impl Batch {
    pub(crate) fn new(
        half: usize,
        first_block: u64,
        (cp, other): (u64, OtherLife),
        first_sequence: u64,
    ) -> Self {
        let mut batch = Self {
            half,
            first_block,
            cp,
            other,
            first_sequence,
            record_count: 0,
            waiters: Vec::new(),
            byte_count: 0,
            blocks: Vec::new(),
        };
        // Filled in when sealed.
        batch.put(&[0; BATCH_HEADER_BYTES], &mut Vec::new());
        batch
    }

    /// The number of the record behind the last one.
    pub(crate) fn sequence_end(&self) -> u64 {
        self.first_sequence + u64::from(self.record_count)
    }

    pub(crate) const fn byte_count(&self) -> usize {
        self.byte_count
    }

    /// Behind the last block, in the half.
    pub(crate) fn end_block(&self) -> u64 {
        self.first_block + self.blocks.len() as u64
    }

    /// Appends a record; takes zeroed blocks from `spare` as long as there are any.
    pub(crate) fn append(
        &mut self,
        record: &LogRecord,
        parts: &[&[u8]],
        spare: &mut Vec<BlockRef>,
    ) {
        self.put(record.as_bytes(), spare);
        for part in parts {
            self.put(part, spare);
        }
        self.record_count += 1;
    }

    fn put(&mut self, mut bytes: &[u8], spare: &mut Vec<BlockRef>) {
        while !bytes.is_empty() {
            let within = self.byte_count % BLOCK_SIZE;
            if within == 0 {
                self.blocks.push(spare.pop().unwrap_or_else(|| Block::shared(&[])));
            }
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_SIZE - within));
            let Some(block) = self.blocks.last_mut().and_then(Arc::get_mut) else {
                unreachable!("a block was pushed above or before, and none is shared yet")
            };
            block[within..within + now.len()].copy_from_slice(now);
            self.byte_count += now.len();
            bytes = later;
        }
    }

    /// Completes the header; the blocks are to be written from `disk_block`.
    pub(crate) fn seal(mut self, log: LogUuid, incarnation: u64, disk_block: u64) -> Vec<BlockRef> {
        let Ok(byte_count) = u32::try_from(self.byte_count) else {
            unreachable!("a half is shorter than 4 GiB")
        };
        let mut header = LogBatch {
            magic: U32::new(LOG_BATCH_MAGIC),
            checksum: U32::ZERO,
            log,
            incarnation: U64::new(incarnation),
            sequence: U64::new(self.first_sequence),
            block: U64::new(disk_block),
            cp: U64::new(self.cp),
            other_cp: U64::new(self.other.cp),
            other_sequence: U64::new(self.other.sequence),
            byte_count: U32::new(byte_count),
            record_count: U32::new(self.record_count),
        };
        let mut left = self.byte_count;
        let following = self.blocks.iter().enumerate().map(|(index, block)| {
            let end = left.min(BLOCK_SIZE);
            left -= end;
            &block.bytes()[if index == 0 { BATCH_HEADER_BYTES } else { 0 }..end]
        });
        header.checksum = U32::new(header.computed_checksum(following));
        let Some(first) = self.blocks.first_mut().and_then(Arc::get_mut) else {
            unreachable!("a batch has a block for its header, and none is shared yet")
        };
        first[..BATCH_HEADER_BYTES].copy_from_slice(header.as_bytes());
        self.blocks
    }
}
