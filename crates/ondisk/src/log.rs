//! The log of operations (NVLog): header, batches and records (decision 10; FlexVol section 2).
//!
//! The disk: two copies of the [`LogHeader`], then the two halves. A half is a chain of batches
//! from its first block. A batch is what one write made: a [`LogBatch`], then its records, each a
//! [`LogRecord`] and a body, packed; the last block is filled up with zeros.
//!
//! Behind the halves are the two halves of the notes of stripes. Each begins with a block that
//! names the epoch whose notes it holds; they follow one another, each a [`LogNote`], a
//! [`PartialParityRecord`] and words in one block, then the blocks of its parity.
//!
//! Invariants, by which a reader tells the half's present life from what it held before:
//! - Records are numbered without gaps over the life of the log, whatever half they are in; the
//!   numbers of what a half held before are lower than those of its present life.
//! - Each opening of a log has a higher `incarnation`, in the header before it is in any batch. So
//!   a batch that was torn by a crash is told from one that has its numbers later.
//! - A batch names its own block, and the life of the other half that was not retired when its
//!   own life began.
//!
//! Fails: [`Damage`] for headers; a batch that is none ends its half. No bytes whatever panic.

use crate::damage::Damage;
use crate::features::{FeatureScope, FeatureSet};
use crate::identity::{REGION_BLOCKS, crc32c_of_bytes};
use crate::versions::FORMAT_VERSION;
use crc_fast::{CrcAlgorithm, Digest};
use std::fmt;
use std::mem::{offset_of, size_of};
use units::{AggregateUuid, BLOCK_SIZE, Block, LogUuid};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "STROOPLG".
pub const LOG_MAGIC: u64 = u64::from_le_bytes(*b"STROOPLG");
/// "SLOB": a batch.
pub const LOG_BATCH_MAGIC: u32 = u32::from_le_bytes(*b"SLOB");
/// "SLOE": the beginning of an epoch of notes.
pub const LOG_EPOCH_MAGIC: u32 = u32::from_le_bytes(*b"SLOE");
/// "SLON": a note of stripes.
pub const LOG_NOTE_MAGIC: u32 = u32::from_le_bytes(*b"SLON");

/// Blocks before the first half: the two copies of the header.
pub const LOG_HEADER_BLOCKS: u64 = 2;
/// The smallest half: a handful of batches of small records.
pub const LOG_HALF_BLOCKS_MIN: u64 = 16;
/// The largest half, 2 GiB: so that a batch's length fits 32 bits, and so that replay after a
/// crash takes seconds, not minutes.
pub const LOG_HALF_BLOCKS_MAX: u64 = 1 << 19;

/// The blocks of the largest note: of all rows of a tetris, with three parity disks.
pub const LOG_NOTE_BLOCKS_MAX: u64 = 1 + 3 * REGION_BLOCKS as u64;
/// The least that a log has for notes: two halves that take the largest note each.
pub const LOG_NOTES_BLOCKS_MIN: u64 = 2 * (1 + LOG_NOTE_BLOCKS_MAX);
/// The most, 64 MiB: data disks that are flushed once in 32 MiB of notes have little to do for it,
/// and a start reads all of it.
pub const LOG_NOTES_BLOCKS_MAX: u64 = 1 << 14;
/// The part of a log that is for notes, within these limits: one in so many.
pub const LOG_NOTES_SHARE: u64 = 8;

const HEADER: &str = "log header";

/// The header of a log.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogHeader {
    /// [`LOG_MAGIC`].
    pub magic: U64,
    /// The version of the format; never moves.
    pub version: U16,
    /// Zero.
    pub reserved_a: U16,
    /// Standard CRC32C of the block with this field zero.
    pub checksum: U32,
    /// The aggregate whose operations are logged.
    pub aggregate: AggregateUuid,
    /// The identity of the log.
    pub log: LogUuid,
    /// How often the log was opened; of two copies the higher counts.
    pub incarnation: U64,
    /// The size of each half.
    pub half_blocks: U64,
    /// The size of what is for notes, both halves.
    pub notes_blocks: U64,
    /// What the log uses.
    pub features: FeatureSet,
    /// Which copy of the log this is, of those that labels name; 0: its first.
    pub copy: U64,
    /// The opening of the log that wrote the first batch of this copy; batches of earlier ones,
    /// and theirs alone, are not the log's.
    pub first_incarnation: U64,
    /// Zero.
    pub reserved_b: [u8; 3792],
}

/// What one write to the log begins with.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogBatch {
    /// [`LOG_BATCH_MAGIC`].
    pub magic: U32,
    /// CRC64/NVME of `byte_count` bytes from the batch's first, with this field zero; its halves
    /// XORed. Not CRC32C: bodies hold what carries a CRC32C of its own, such as block identities,
    /// and of a sum over such pieces a torn write may leave some out without a trace.
    pub checksum: U32,
    /// The identity of the log.
    pub log: LogUuid,
    /// The opening of the log that wrote the batch.
    pub incarnation: U64,
    /// The number of the first record.
    pub sequence: U64,
    /// The block of the disk where the batch begins.
    pub block: U64,
    /// The latest consistency point that records of this half's life belong to.
    pub cp: U64,
    /// The same of the other half's life, if that was not retired when this one began.
    pub other_cp: U64,
    /// The number of the first record of the other half's life; 0 if that was retired or empty.
    pub other_sequence: U64,
    /// Bytes of the batch, this included.
    pub byte_count: U32,
    /// How many records follow.
    pub record_count: U32,
}

/// What a record begins with; the body follows.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogRecord {
    /// The consistency point that makes the record superfluous.
    pub cp: U64,
    /// Bytes of the body.
    pub byte_count: U32,
    /// What the body is.
    pub kind: U16,
    /// Zero.
    pub reserved: U16,
}

/// What a note of stripes begins with, or with another magic and nothing else the half that holds
/// the notes of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogNote {
    /// [`LOG_NOTE_MAGIC`] or [`LOG_EPOCH_MAGIC`].
    pub magic: U32,
    /// CRC64/NVME of all blocks, with this field zero; its halves XORed.
    pub checksum: U32,
    /// The identity of the log.
    pub log: LogUuid,
    /// Epochs are numbered over the life of the log; even ones have the first half.
    pub epoch: U64,
    /// The block of the disk where the note begins.
    pub block: U64,
    /// The consistency point that makes the note superfluous.
    pub cp: U64,
    /// Blocks that follow the first.
    pub block_count: U32,
    /// Bytes of the first block that follow this.
    pub byte_count: U32,
}

/// Stripes of one tetris that are to be made whole after a crash. `disk_count` words follow, a bit
/// of each for a row in which the data disk's block is being written; then, from the next block on,
/// for each noted row the partial parity of each parity disk.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PartialParityRecord {
    /// The RAID group.
    pub group: U32,
    /// Data disks.
    pub disk_count: U32,
    /// The tetris within the group.
    pub tetris: U64,
    /// A bit for each noted row.
    pub rows: U64,
}

const _: () = {
    assert!(size_of::<LogHeader>() == BLOCK_SIZE);
    assert!(offset_of!(LogHeader, version) == 8); // Read before the version is known.
    assert!(offset_of!(LogHeader, checksum) == 12);
    assert!(size_of::<LogBatch>() == 80);
    assert!(offset_of!(LogBatch, checksum) == 4);
    assert!(size_of::<LogRecord>() == 16);
    assert!(size_of::<PartialParityRecord>() == 24);
    assert!(size_of::<LogNote>() == 56);
    assert!(offset_of!(LogNote, checksum) == 4);
    assert!(LOG_HALF_BLOCKS_MAX * BLOCK_SIZE as u64 <= u32::MAX as u64);
};

impl LogHeader {
    /// A header, to be turned into a block.
    #[must_use]
    pub fn new(
        aggregate: AggregateUuid,
        log: LogUuid,
        half_blocks: u64,
        notes_blocks: u64,
    ) -> Self {
        let mut header = Self::new_zeroed();
        header.magic = U64::new(LOG_MAGIC);
        header.version = U16::new(FORMAT_VERSION);
        header.aggregate = aggregate;
        header.log = log;
        header.half_blocks = U64::new(half_blocks);
        header.notes_blocks = U64::new(notes_blocks);
        header
    }

    /// Whether the block says that it is a log's header, right or wrong.
    #[must_use]
    pub fn is_claimed_by(block: &Block) -> bool {
        block.bytes().starts_with(&LOG_MAGIC.to_le_bytes())
    }

    /// The header in a block.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_block(block: &Block) -> Result<Self, Damage> {
        let Ok(header) = Self::read_from_bytes(block.bytes()) else {
            unreachable!("a header is as large as a block")
        };
        header.validate()?;
        Ok(header)
    }

    /// The blocks of the log, from the first copy of the header to the last note.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        LOG_HEADER_BLOCKS + 2 * self.half_blocks.get() + self.notes_blocks.get()
    }

    /// The block to be written, checksum and all. It has this build's version, whatever version was
    /// read: what this build writes behind the header may be of none before.
    #[must_use]
    pub fn to_block(&self) -> Block {
        self.of_version(FORMAT_VERSION)
    }

    fn of_version(&self, version: u16) -> Block {
        let mut header = self.clone();
        header.version = U16::new(version);
        header.checksum = U32::new(header.computed_checksum());
        Block::from_prefix(header.as_bytes())
    }

    fn computed_checksum(&self) -> u32 {
        let mut header = self.clone();
        header.checksum = U32::ZERO;
        crc32c_of_bytes(header.as_bytes())
    }

    /// Whether the header is one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), Damage> {
        let field = |field| Err(Damage::Field { structure: HEADER, field });
        if self.magic.get() != LOG_MAGIC {
            return field("magic");
        }
        let (found, computed) = (self.checksum.get(), self.computed_checksum());
        if found != computed {
            return Err(Damage::Checksum { structure: HEADER, found, computed });
        }
        Damage::unless_read(HEADER, self.version.get())?;
        self.features.validate(FeatureScope::Log, HEADER)?;
        let reserved = [self.reserved_a.as_bytes(), &self.reserved_b];
        self.features.check_reserved(FeatureScope::Log, HEADER, &reserved)?;
        if !(LOG_HALF_BLOCKS_MIN..=LOG_HALF_BLOCKS_MAX).contains(&self.half_blocks.get()) {
            return field("half_blocks");
        }
        let notes_blocks = self.notes_blocks.get();
        let is_in_range = (LOG_NOTES_BLOCKS_MIN..=LOG_NOTES_BLOCKS_MAX).contains(&notes_blocks);
        if !is_in_range || !notes_blocks.is_multiple_of(2) {
            return field("notes_blocks");
        }
        if self.incarnation.get() == u64::MAX {
            return field("incarnation");
        }
        Ok(())
    }
}

impl fmt::Display for LogHeader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (aggregate, log) = (self.aggregate, self.log);
        let (incarnation, half_blocks) = (self.incarnation.get(), self.half_blocks.get());
        write!(
            formatter,
            "log {log} of aggregate {aggregate}, incarnation {incarnation}, 2 halves of {half_blocks} \
             blocks, {} for notes",
            self.notes_blocks.get()
        )
    }
}

impl fmt::Debug for LogHeader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LogHeader({self})")
    }
}

impl LogBatch {
    /// The checksum of a batch: of this header and of the bytes that follow it, which come in
    /// pieces.
    #[must_use]
    pub fn computed_checksum<'a>(&self, following: impl IntoIterator<Item = &'a [u8]>) -> u32 {
        folded_checksum(Self { checksum: U32::ZERO, ..*self }.as_bytes(), following)
    }
}

impl LogNote {
    /// The checksum of a note: of this header and of the bytes that follow it, to the end of the
    /// last block, which come in pieces.
    #[must_use]
    pub fn computed_checksum<'a>(&self, following: impl IntoIterator<Item = &'a [u8]>) -> u32 {
        folded_checksum(Self { checksum: U32::ZERO, ..*self }.as_bytes(), following)
    }
}

fn folded_checksum<'a>(header: &[u8], following: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(header);
    following.into_iter().for_each(|piece| digest.update(piece));
    let sum = digest.finalize();
    (sum >> 32) as u32 ^ sum as u32
}

impl fmt::Display for LogBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "batch at block {} of cp {}: {} records from number {}, {} bytes, incarnation {}",
            self.block.get(),
            self.cp.get(),
            self.record_count.get(),
            self.sequence.get(),
            self.byte_count.get(),
            self.incarnation.get()
        )
    }
}

impl fmt::Debug for LogBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LogBatch({self})")
    }
}

impl fmt::Display for LogNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epoch, block, cp) = (self.epoch.get(), self.block.get(), self.cp.get());
        write!(formatter, "note at block {block} of epoch {epoch} and cp {cp}")
    }
}

impl fmt::Debug for LogNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LogNote({self})")
    }
}

impl fmt::Display for LogRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cp, kind, bytes) = (self.cp.get(), self.kind.get(), self.byte_count.get());
        write!(formatter, "record of kind {kind:#06x} of cp {cp}, {bytes} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::linear_crc32c;

    #[test]
    fn headers_survive_and_every_flipped_bit_is_seen() {
        let mut header =
            LogHeader::new(AggregateUuid([1; 16]), LogUuid([2; 16]), 64, LOG_NOTES_BLOCKS_MIN);
        header.incarnation = U64::new(3);
        let block = header.to_block();
        assert!(LogHeader::is_claimed_by(&block));
        let read = LogHeader::from_block(&block).unwrap();
        assert_eq!(read.to_block(), block);
        assert_eq!(
            read.to_string(),
            "log 02020202020202020202020202020202 of aggregate 01010101010101010101010101010101, \
             incarnation 3, 2 halves of 64 blocks, 388 for notes"
        );
        for bit in (0..BLOCK_SIZE * 8).step_by(7) {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(LogHeader::from_block(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn headers_out_of_range_are_refused() {
        for half_blocks in [0, LOG_HALF_BLOCKS_MIN - 1, LOG_HALF_BLOCKS_MAX + 1, u64::MAX] {
            let block = LogHeader::new(
                AggregateUuid([1; 16]),
                LogUuid([2; 16]),
                half_blocks,
                LOG_NOTES_BLOCKS_MIN,
            )
            .to_block();
            let damage = Damage::Field { structure: HEADER, field: "half_blocks" };
            assert_eq!(LogHeader::from_block(&block), Err(damage));
        }
        let mut header =
            LogHeader::new(AggregateUuid([1; 16]), LogUuid([2; 16]), 64, LOG_NOTES_BLOCKS_MIN);
        // Neither what comes nor what was: a log without a place for notes is not read any more.
        for version in [0, 1, FORMAT_VERSION + 1] {
            let refused = LogHeader::from_block(&header.of_version(version));
            assert!(matches!(refused, Err(Damage::Version { found, .. }) if found == version));
            // What was read in another version is written in this one.
            header.version = U16::new(version);
            assert!(LogHeader::from_block(&header.to_block()).is_ok());
        }
        for notes_blocks in [0, LOG_NOTES_BLOCKS_MIN + 1, LOG_NOTES_BLOCKS_MAX + 2, u64::MAX] {
            let block = LogHeader::new(AggregateUuid([1; 16]), LogUuid([2; 16]), 64, notes_blocks)
                .to_block();
            let damage = Damage::Field { structure: HEADER, field: "notes_blocks" };
            assert_eq!(LogHeader::from_block(&block), Err(damage));
        }
    }

    /// A sector of block identities that a torn write left out: each is a code word of CRC32C, so a
    /// CRC32C over all of them is the same without them.
    #[test]
    fn identities_that_a_torn_write_left_out_are_missed() {
        let mut identity = [7; 64];
        identity[60..].fill(0);
        let check = linear_crc32c(&identity[..56]).to_le_bytes();
        identity[56..60].copy_from_slice(&check);
        let whole = identity.repeat(16);
        let mut torn = whole.clone();
        torn[512..].fill(0);
        assert_eq!(crc32c_of_bytes(&whole), crc32c_of_bytes(&torn), "why it is not CRC32C");
        let batch = LogBatch::new_zeroed();
        let sum = |bytes: &[u8]| batch.computed_checksum([bytes]);
        assert_ne!(sum(&whole), sum(&torn));
    }

    #[test]
    fn a_checksum_does_not_depend_on_the_pieces() {
        let batch = LogBatch::new_zeroed();
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = batch.computed_checksum([bytes.as_slice()]);
        assert_eq!(batch.computed_checksum(bytes.chunks(7)), whole);
        let marked = LogBatch { checksum: U32::new(whole), ..batch };
        assert_eq!(marked.computed_checksum([bytes.as_slice()]), whole);
    }
}
