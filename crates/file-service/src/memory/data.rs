//! The content of a regular file: blocks by number, holes between them.
//!
//! Invariants: no block lies at or beyond the end of the file; bytes of the last block beyond the
//! end are zero; a reserved block is a hole, counts as used, and reads as zeros.

use crate::requests::Segment;
use crate::{Allocation, SeekTarget};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, BlockRef, zero_block};

#[derive(Clone, Default, Debug)]
pub(super) struct FileData {
    blocks: BTreeMap<u64, BlockRef>,
    reserved: BTreeSet<u64>,
}

/// The part of block `block` that lies in `start..end`, as offsets within the block.
fn part(block: u64, start: u64, end: u64) -> (usize, usize) {
    let base = block * BLOCK_SIZE_U64;
    let low = start.saturating_sub(base).min(BLOCK_SIZE_U64);
    let high = end.saturating_sub(base).min(BLOCK_SIZE_U64);
    (low as usize, high as usize)
}

/// The blocks that `start..end` touches.
fn touched(start: u64, end: u64) -> std::ops::Range<u64> {
    let first = start / BLOCK_SIZE_U64;
    if start < end { first..end.div_ceil(BLOCK_SIZE_U64) } else { first..first }
}

impl FileData {
    /// Blocks that the volume counts as used.
    pub(super) fn used_blocks(&self) -> u64 {
        (self.blocks.len() + self.reserved.len()) as u64
    }

    /// Blocks that a write or reservation of `start..end` would newly use.
    pub(super) fn missing_blocks(&self, start: u64, end: u64) -> u64 {
        let range = touched(start, end);
        let count = range.end - range.start;
        let present = self.blocks.range(range.clone()).count() + self.reserved.range(range).count();
        count - present as u64
    }

    pub(super) fn read(&self, start: u64, end: u64) -> Vec<Segment> {
        let segment = |block: u64| {
            let (low, high) = part(block, start, end);
            let content = self.blocks.get(&block).map_or_else(zero_block, Arc::clone);
            Segment { block: content, start: low as u16, end: high as u16 }
        };
        touched(start, end).map(segment).collect()
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let mut rest = bytes;
        for number in touched(offset, end) {
            let (low, high) = part(number, offset, end);
            let (now, later) = rest.split_at(high - low);
            self.reserved.remove(&number);
            let block = self.blocks.entry(number).or_insert_with(zero_block);
            Arc::make_mut(block).bytes_mut()[low..high].copy_from_slice(now);
            rest = later;
        }
        assert!(rest.is_empty(), "every byte has its block");
    }

    /// Cuts everything at and beyond `size`.
    pub(super) fn truncate(&mut self, size: u64) {
        let keep = size.div_ceil(BLOCK_SIZE_U64);
        self.blocks.split_off(&keep);
        self.reserved.split_off(&keep);
        self.zero_bytes(size, keep * BLOCK_SIZE_U64);
    }

    /// fallocate of `start..end`.
    pub(super) fn allocate(&mut self, allocation: Allocation, start: u64, end: u64) {
        match allocation {
            Allocation::Reserve { .. } => self.reserve(touched(start, end)),
            Allocation::PunchHole => self.punch(start, end),
            Allocation::ZeroRange { .. } => {
                self.punch(start, end);
                self.reserve(touched(start, end));
            }
        }
    }

    fn reserve(&mut self, range: std::ops::Range<u64>) {
        let free = range.filter(|block| !self.blocks.contains_key(block));
        self.reserved.extend(free);
    }

    fn punch(&mut self, start: u64, end: u64) {
        let whole = start.div_ceil(BLOCK_SIZE_U64)..end / BLOCK_SIZE_U64;
        for block in whole {
            self.blocks.remove(&block);
            self.reserved.remove(&block);
        }
        self.zero_bytes(start, end);
    }

    fn zero_bytes(&mut self, start: u64, end: u64) {
        for (number, block) in self.blocks.range_mut(touched(start, end)) {
            let (low, high) = part(*number, start, end);
            Arc::make_mut(block).bytes_mut()[low..high].fill(0);
        }
    }

    /// The next data or hole at or after `offset` in a file of `size` bytes, `offset < size`.
    pub(super) fn seek(&self, offset: u64, size: u64, target: SeekTarget) -> Option<u64> {
        let first = offset / BLOCK_SIZE_U64;
        let found = match target {
            SeekTarget::Data => self.blocks.range(first..).next().map(|(block, _)| *block)?,
            SeekTarget::Hole => {
                let end = size.div_ceil(BLOCK_SIZE_U64);
                (first..end).find(|block| !self.blocks.contains_key(block)).unwrap_or(end)
            }
        };
        Some((found * BLOCK_SIZE_U64).clamp(offset, size))
    }

    /// Checks the invariants for a file of `size` bytes; `reserved` may lie beyond its end.
    pub(super) fn verify(&self, size: u64) {
        let last = self.blocks.last_key_value();
        assert!(
            last.is_none_or(|(block, _)| block * BLOCK_SIZE_U64 < size),
            "block beyond the end"
        );
        assert!(self.reserved.iter().all(|block| !self.blocks.contains_key(block)));
        if let Some(block) = self.blocks.get(&(size / BLOCK_SIZE_U64)) {
            let end = (size % BLOCK_SIZE_U64) as usize;
            assert!(block.bytes()[end..BLOCK_SIZE].iter().all(|byte| *byte == 0), "tail not zero");
        }
    }
}
