//! Free maps: metafiles with one bit per VBN (FreeSpace section 2.5, "bitmap metafiles").
//!
//! The *active map* has a bit for each block of the active image, the *summary map* for each block
//! of any snapshot. A block is free when neither map has it. Maps are changed by consistency points
//! only, in memory first; the changed blocks are written as the last files of the image.
//!
//! Invariants: a map block that is a hole is all zero: nothing in use. `dirty` holds exactly the
//! blocks that differ from the tree.

use crate::buftree::{self, FileKey, Root};
use crate::content::Content;
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader};
use ondisk::inode::{InodeRecord, KIND_METAFILE};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Block, BlockRef, Fbn, InodeNumber, VolumeId, zero_block};
use zerocopy::little_endian::U64;

/// VBNs that a map block stands for: 32 Ki.
pub const VBNS_PER_BLOCK: u64 = BLOCK_SIZE_U64 * 8;

/// A bitmap metafile.
#[derive(Debug)]
pub struct MapFile<P> {
    /// Its key.
    pub key: FileKey,
    /// Its tree as of the last commit.
    pub root: Root<P>,
    /// Blocks of that tree.
    pub blocks: u64,
    /// Changed blocks.
    pub dirty: BTreeMap<u64, BlockRef>,
}

impl<P: Pointer> MapFile<P> {
    /// An empty map.
    #[must_use]
    pub fn new(volume: VolumeId, inode: u64) -> Self {
        let key = FileKey { volume, inode: InodeNumber(inode), content: Content::Data };
        Self { key, root: Root::default(), blocks: 0, dirty: BTreeMap::new() }
    }

    /// The map that `record` describes.
    #[must_use]
    pub fn of(volume: VolumeId, inode: u64, record: &InodeRecord) -> Self {
        Self { root: Root::of(record), blocks: record.blocks.get(), ..Self::new(volume, inode) }
    }

    /// Its inode's record.
    #[must_use]
    pub fn record(&self, size_blocks: u64) -> InodeRecord {
        let mut record = InodeRecord::zeroed();
        record.kind = KIND_METAFILE;
        record.size = U64::new(size_blocks.div_ceil(VBNS_PER_BLOCK) * BLOCK_SIZE_U64);
        record.blocks = U64::new(self.blocks);
        self.root.store(&mut record);
        record
    }

    /// Block `index` of the map.
    ///
    /// # Errors
    /// What to wait for.
    pub fn read(&self, index: u64, reader: &Reader<'_>) -> Progress<BlockRef> {
        if let Some(block) = self.dirty.get(&index) {
            return Ok(BlockRef::clone(block));
        }
        let block = buftree::read(&self.root, &self.key, Fbn(index), reader)?;
        Ok(block.unwrap_or_else(zero_block))
    }

    /// The first block at or after `from` that the tree has.
    ///
    /// # Errors
    /// What to wait for.
    pub fn next_present(&self, from: u64, reader: &Reader<'_>) -> Progress<Option<u64>> {
        let end = Fbn(u64::MAX);
        let found = buftree::next_present(&self.root, &self.key, Fbn(from), end, reader)?;
        Ok(found.map(Fbn::get))
    }

    /// Block `index` of the map, to be changed.
    ///
    /// # Errors
    /// What to wait for.
    pub fn modify(&mut self, index: u64, reader: &Reader<'_>) -> Progress<&mut Block> {
        if !self.dirty.contains_key(&index) {
            let block = self.read(index, reader)?;
            self.dirty.insert(index, block);
        }
        match self.dirty.get_mut(&index) {
            Some(block) => Ok(Arc::make_mut(block)),
            None => unreachable!("inserted above"),
        }
    }
}

/// Where a VBN's bit lies: map block, byte, mask.
#[must_use]
pub const fn position(vbn: u64) -> (u64, usize, u8) {
    let bit = vbn % VBNS_PER_BLOCK;
    (vbn / VBNS_PER_BLOCK, (bit / 8) as usize, 1 << (bit % 8))
}

/// Whether a VBN's bit is set in its map block.
#[must_use]
pub fn is_set(block: &Block, vbn: u64) -> bool {
    let (_, byte, mask) = position(vbn);
    block[byte] & mask != 0
}

/// How many of these numbers, all of one map block, are in use.
#[must_use]
pub fn used_in(map: &Block, numbers: Range<u64>) -> u64 {
    let start = numbers.start % VBNS_PER_BLOCK;
    let end = start + (numbers.end - numbers.start);
    let bit = |at: u64| u64::from(map[(at / 8) as usize] >> (at % 8) & 1);
    let (first, last) = (start.next_multiple_of(8).min(end), (end / 8 * 8).max(start));
    if first >= last {
        return (start..end).map(bit).sum();
    }
    let bytes = &map.bytes()[(first / 8) as usize..(last / 8) as usize];
    let (words, rest) = bytes.as_chunks::<8>();
    let whole: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
    let rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
    (start..first).map(bit).sum::<u64>()
        + u64::from(whole + rest)
        + (last..end).map(bit).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_counted_as_one_by_one(
            bytes in proptest::collection::vec(any::<u8>(), 64),
            start in 0..400_u64,
            len in 0..112_u64,
        ) {
            let map = Block::from_prefix(&bytes);
            let one_by_one = (start..start + len).filter(|at| is_set(&map, *at)).count() as u64;
            let numbers = 5 * VBNS_PER_BLOCK + start..5 * VBNS_PER_BLOCK + start + len;
            prop_assert_eq!(used_in(&map, numbers), one_by_one);
        }
    }
}
