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
use units::{BLOCK_SIZE_U64, Block, BlockNumber, BlockRef, Fbn, InodeNumber, VolumeId, zero_block};
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
    pub dirty: BTreeMap<Fbn, BlockRef>,
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
    pub fn read(&self, index: Fbn, reader: &Reader<'_>) -> Progress<BlockRef> {
        if let Some(block) = self.dirty.get(&index) {
            return Ok(BlockRef::clone(block));
        }
        let block = buftree::read(&self.root, &self.key, index, reader)?;
        Ok(block.unwrap_or_else(zero_block))
    }

    /// The first block at or after `from` that the tree has.
    ///
    /// # Errors
    /// What to wait for.
    pub fn next_present(&self, from: Fbn, reader: &Reader<'_>) -> Progress<Option<Fbn>> {
        buftree::next_present(&self.root, &self.key, from, Fbn::END, reader)
    }

    /// The first block at or after `from` that the tree has, or that was changed.
    ///
    /// # Errors
    /// What to wait for.
    pub fn next_known(&self, from: Fbn, reader: &Reader<'_>) -> Progress<Option<Fbn>> {
        let dirty = self.dirty.range(from..).next().map(|(index, _)| *index);
        let on_media = self.next_present(from, reader)?;
        Ok(dirty.into_iter().chain(on_media).min())
    }

    /// Block `index` of the map, to be changed.
    ///
    /// # Errors
    /// What to wait for.
    pub fn modify(&mut self, index: Fbn, reader: &Reader<'_>) -> Progress<&mut Block> {
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

/// Where a number's bit lies: map block, byte, mask.
#[must_use]
pub fn position<N: BlockNumber>(vbn: N) -> (Fbn, usize, u8) {
    let bit = vbn.get() % VBNS_PER_BLOCK;
    (map_block_of(vbn), (bit / 8) as usize, 1 << (bit % 8))
}

/// The map block that has a number's bit.
#[must_use]
pub fn map_block_of<N: BlockNumber>(vbn: N) -> Fbn {
    Fbn(vbn.get() / VBNS_PER_BLOCK)
}

/// The first number that a map block stands for.
#[must_use]
pub fn first_of<N: BlockNumber>(index: Fbn) -> N {
    N::new(index.get() * VBNS_PER_BLOCK)
}

/// The map blocks that have the bits of some numbers, each with those of the numbers that it has.
pub fn runs_of<N: BlockNumber>(numbers: Range<N>) -> impl Iterator<Item = (Fbn, Range<N>)> {
    let mut next = numbers.start;
    std::iter::from_fn(move || {
        let index = map_block_of(next);
        let part = next..numbers.end.min(first_of(index.offset(1)));
        next = part.end;
        (!part.is_empty()).then_some((index, part))
    })
}

/// Whether a number's bit is set in its map block.
#[must_use]
pub fn is_set<N: BlockNumber>(block: &Block, vbn: N) -> bool {
    let (_, byte, mask) = position(vbn);
    block[byte] & mask != 0
}

/// The numbers whose bits are set in map block `index`.
pub fn set_bits<N: BlockNumber>(block: &Block, index: Fbn) -> impl Iterator<Item = N> {
    bits(block, first_of(index), 0)
}

/// The numbers from `from` on whose bits are clear in its map block.
pub fn clear_bits_from<N: BlockNumber>(block: &Block, from: N) -> impl Iterator<Item = N> {
    bits(block, from, u64::MAX)
}

/// The numbers from `from` on whose bits, after those of `flip` are turned over, are set.
fn bits<N: BlockNumber>(block: &Block, from: N, flip: u64) -> impl Iterator<Item = N> {
    let first = first_of::<N>(map_block_of(from));
    let at = from.since(first);
    let (words, _) = block.bytes().as_chunks::<8>();
    let words = words.iter().enumerate().skip((at / 64) as usize);
    words.flat_map(move |(number, word)| {
        let start = number as u64 * 64;
        // Those before the first that is wanted are left out.
        let wanted = u64::MAX << at.saturating_sub(start);
        let word = (u64::from_le_bytes(*word) ^ flip) & wanted;
        set_bits_of(word).map(move |bit| first.offset(start + u64::from(bit)))
    })
}

/// The numbers of the bits that are set in a word, in order.
pub fn set_bits_of(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit)
    })
}

/// How many of these numbers, all of one map block, are in use.
#[must_use]
pub fn used_in<N: BlockNumber>(map: &Block, numbers: Range<N>) -> u64 {
    let start = numbers.start.get() % VBNS_PER_BLOCK;
    let end = start + numbers.end.since(numbers.start);
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
    use units::{Pvbn, Vvbn};

    proptest! {
        #[test]
        fn bits_are_counted_as_one_by_one(
            bytes in proptest::collection::vec(any::<u8>(), 64),
            start in 0..400_u64,
            len in 0..112_u64,
        ) {
            let map = Block::from_prefix(&bytes);
            let first = first_of::<Vvbn>(Fbn(5)).offset(start);
            let end = first.offset(len);
            let one_by_one = first.until(end).filter(|vbn| is_set(&map, *vbn)).count() as u64;
            prop_assert_eq!(used_in(&map, first..end), one_by_one);
        }

        #[test]
        fn the_runs_of_a_range_are_the_range_cut_at_map_blocks(
            start in 0..3 * VBNS_PER_BLOCK,
            len in 0..3 * VBNS_PER_BLOCK,
        ) {
            let (mut next, end) = (Pvbn(start), Pvbn(start + len));
            for (index, part) in runs_of(next..end) {
                prop_assert!(part.start == next && !part.is_empty());
                prop_assert!(part.start >= first_of(index));
                prop_assert!(part.end <= first_of(index.offset(1)));
                next = part.end;
            }
            prop_assert_eq!(next, end);
        }
    }
}
