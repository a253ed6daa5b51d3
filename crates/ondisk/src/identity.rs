//! The identity of a block: 64 bytes beside every 4 KiB, that say what the block is, where it
//! belongs and what it holds (decision 11; AZCS, FreeSpace section 3.2.4). 63 data blocks share a
//! 64th, the [`ChecksumBlock`], which holds their identities.
//!
//! Both checks in it are *linear* CRC32C (initial value 0, final XOR 0): the check of the XOR of
//! two strings is the XOR of their checks. So the XOR of the identities of a stripe's data blocks
//! is a valid identity of the parity block, the row of checksum blocks is a stripe like every
//! other, and a lost disk is reconstructed, checksum blocks and all, by plain XOR.
//!
//! Invariants:
//! - The identity of all zeros is valid for the block of zeros: disks of zeros are consistent.
//! - `crc32c(block) == to_standard(linear_crc32c(block))`, and the other way round.
//!
//! Fails: [`BlockIdentity::validate`] tells [`Damage`]; no bytes whatever panic. An identity that
//! is valid may still be that of another block: compare it with what is expected.

use crate::damage::Damage;
use std::fmt;
use std::mem::{offset_of, size_of};
use units::{BLOCK_SIZE, Block, CpNumber, Fbn, InodeNumber, Pvbn, VolumeId, Vvbn};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Identities in a checksum block, and device blocks in a region, the checksum block included.
pub const REGION_BLOCKS: usize = 64;
/// Data blocks in a region.
pub const REGION_DATA_BLOCKS: usize = REGION_BLOCKS - 1;

/// The bytes of an identity that its `self_check` covers.
const CHECKED_BYTES: usize = 56;

/// One block's identity.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockIdentity {
    /// Linear CRC32C of the block.
    pub checksum: U32,
    /// What sort of block it is, as its owner numbers them.
    pub kind: u8,
    /// Its level in its file's tree; 0 is data.
    pub level: u8,
    /// Zero.
    pub reserved_a: U16,
    /// The volume that it was born in (decision 36); 0 is the aggregate.
    pub volume: U32,
    /// Zero.
    pub reserved_b: U32,
    /// Where the block belongs.
    pub pvbn: U64,
    /// Its number within its volume's container.
    pub vvbn: U64,
    /// The file that it belongs to.
    pub inode: U64,
    /// Its place in the file.
    pub fbn: U64,
    /// The consistency point that wrote it.
    pub cp: U64,
    /// Linear CRC32C of all the bytes before this.
    pub self_check: U32,
    /// Zero.
    pub reserved_c: U32,
}

const _: () = {
    assert!(size_of::<BlockIdentity>() == 64);
    assert!(offset_of!(BlockIdentity, pvbn) == 16);
    assert!(offset_of!(BlockIdentity, self_check) == CHECKED_BYTES);
    assert!(size_of::<ChecksumBlock>() == BLOCK_SIZE);
};

/// The block that holds the identities of a region's data blocks. The last identity is unused.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChecksumBlock {
    /// The identity of the region's block at the same index.
    pub identities: [BlockIdentity; REGION_BLOCKS],
}

/// Who owns a block: what of the identity the writer says. The rest follows from the block and its
/// place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BlockOwner {
    /// What sort of block it is, as its owner numbers them.
    pub kind: u8,
    /// Its level in its file's tree; 0 is data.
    pub level: u8,
    /// The volume that wrote it first, whoever shares it since; 0 is the aggregate.
    pub volume: VolumeId,
    /// Its number within its volume's container; 0 outside of a volume.
    pub vvbn: Vvbn,
    /// The file.
    pub inode: InodeNumber,
    /// Its place in the file.
    pub fbn: Fbn,
    /// The consistency point that writes it.
    pub cp: CpNumber,
}

impl BlockOwner {
    /// An owner from its parts.
    #[must_use]
    pub const fn new(
        (kind, level): (u8, u8),
        (volume, vvbn): (VolumeId, Vvbn),
        (inode, fbn): (InodeNumber, Fbn),
        cp: CpNumber,
    ) -> Self {
        Self { kind, level, volume, vvbn, inode, fbn, cp }
    }

    /// Whether a block of this owner may be the one that a tree of `expected`'s volume expects:
    /// at the same place, whichever consistency point wrote it.
    #[must_use]
    pub fn is_same_place(&self, expected: &Self) -> bool {
        Owners::of(expected.volume).may_own(self.volume)
            && Self { volume: expected.volume, cp: expected.cp, ..*self } == *expected
    }
}

/// The volumes whose blocks a tree may lead to: a block's identity names the volume that it was
/// born in, and stays as it is when another volume comes to share the block (decision 36).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owners {
    volume: VolumeId,
}

impl Owners {
    /// Those of the trees of a volume; of the aggregate's own files for volume 0.
    #[must_use]
    pub const fn of(volume: VolumeId) -> Self {
        Self { volume }
    }

    /// Whether a tree may lead to a block that was born in the volume `birth`: the tree's own. What
    /// a clone shares is found through an ancestor's container map, and is expected to be that
    /// ancestor's.
    #[must_use]
    pub fn may_own(self, birth: VolumeId) -> bool {
        self.volume == birth
    }
}

impl fmt::Display for BlockOwner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, level, volume, vvbn, inode, fbn, cp } = self;
        write!(formatter, "kind {kind} level {level} {volume} {vvbn} {inode} {fbn} {cp}")
    }
}

impl BlockIdentity {
    /// The identity of a block of zeros that was never written.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// The identity of `block`, stored at `pvbn` for `owner`.
    #[must_use]
    pub fn new(owner: &BlockOwner, pvbn: Pvbn, block: &Block) -> Self {
        Self::of_checksum(owner, pvbn, crc32c(block))
    }

    /// The identity of a block with this [`crc32c`] at `pvbn`.
    #[must_use]
    pub fn of_checksum(owner: &BlockOwner, pvbn: Pvbn, checksum: u32) -> Self {
        let mut identity = Self {
            checksum: U32::new(to_linear(checksum)),
            kind: owner.kind,
            level: owner.level,
            reserved_a: U16::ZERO,
            volume: U32::new(owner.volume.get()),
            reserved_b: U32::ZERO,
            pvbn: U64::new(pvbn.get()),
            vvbn: U64::new(owner.vvbn.get()),
            inode: U64::new(owner.inode.get()),
            fbn: U64::new(owner.fbn.get()),
            cp: U64::new(owner.cp.get()),
            self_check: U32::ZERO,
            reserved_c: U32::ZERO,
        };
        identity.self_check = U32::new(identity.computed_self_check());
        identity
    }

    fn computed_self_check(&self) -> u32 {
        let (checked, _) = self.as_bytes().split_at(CHECKED_BYTES);
        linear_crc32c(checked)
    }

    /// Whether the identity is one: its own check holds and reserved fields are zero.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), Damage> {
        let computed = self.computed_self_check();
        if self.self_check.get() != computed {
            let found = self.self_check.get();
            return Err(Damage::Checksum { structure: "block identity", found, computed });
        }
        if self.reserved_a.get() != 0 || self.reserved_b.get() != 0 || self.reserved_c.get() != 0 {
            return Err(Damage::Reserved { structure: "block identity" });
        }
        Ok(())
    }

    /// Whether `block` has the content that the identity names.
    #[must_use]
    pub fn has_checksum_of(&self, block: &Block) -> bool {
        self.checksum.get() == linear_crc32c(block.bytes())
    }

    /// The standard CRC32C of the content that the identity names.
    #[must_use]
    pub fn standard_checksum(&self) -> u32 {
        to_standard(self.checksum.get())
    }

    /// The owner that the identity names.
    #[must_use]
    pub fn owner(&self) -> BlockOwner {
        BlockOwner {
            kind: self.kind,
            level: self.level,
            volume: VolumeId(self.volume.get()),
            vvbn: Vvbn(self.vvbn.get()),
            inode: InodeNumber(self.inode.get()),
            fbn: Fbn(self.fbn.get()),
            cp: CpNumber(self.cp.get()),
        }
    }

    /// Where the block belongs.
    #[must_use]
    pub fn pvbn(&self) -> Pvbn {
        Pvbn(self.pvbn.get())
    }
}

impl fmt::Display for BlockIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (checksum, pvbn) = (self.standard_checksum(), self.pvbn());
        write!(formatter, "{pvbn} of {} crc32c {checksum:#010x}", self.owner())
    }
}

impl fmt::Debug for BlockIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BlockIdentity({self})")
    }
}

impl ChecksumBlock {
    /// A block's bytes as identities. Whether they are any is for each to say.
    #[must_use]
    pub fn view(block: &Block) -> &Self {
        let Ok(view) = Self::ref_from_bytes(block.bytes()) else {
            unreachable!("a checksum block is as large as a block and needs no alignment")
        };
        view
    }

    /// A block's bytes as identities, to be changed.
    pub fn view_mut(block: &mut Block) -> &mut Self {
        let Ok(view) = Self::mut_from_bytes(block.bytes_mut()) else {
            unreachable!("a checksum block is as large as a block and needs no alignment")
        };
        view
    }
}

/// The standard CRC32C (Castagnoli, as in iSCSI) of a block.
#[must_use]
pub fn crc32c(block: &Block) -> u32 {
    crc32c_of_bytes(block.bytes())
}

/// The standard CRC32C of some bytes.
#[must_use]
pub fn crc32c_of_bytes(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The linear CRC32C (initial value 0, final XOR 0) of some bytes.
#[must_use]
pub fn linear_crc32c(bytes: &[u8]) -> u32 {
    let zeros = match bytes.len() {
        BLOCK_SIZE => BLOCK_ZEROS_CRC32C,
        CHECKED_BYTES => CHECKED_ZEROS_CRC32C,
        length => zeros_crc32c(length),
    };
    crc32c_of_bytes(bytes) ^ zeros
}

/// The standard CRC32C of a block from its linear CRC32C.
#[must_use]
pub const fn to_standard(linear: u32) -> u32 {
    linear ^ BLOCK_ZEROS_CRC32C
}

/// The linear CRC32C of a block from its standard CRC32C.
#[must_use]
pub const fn to_linear(standard: u32) -> u32 {
    standard ^ BLOCK_ZEROS_CRC32C
}

/// The difference between the two sorts of CRC of a block.
const BLOCK_ZEROS_CRC32C: u32 = zeros_crc32c(BLOCK_SIZE);
const CHECKED_ZEROS_CRC32C: u32 = zeros_crc32c(CHECKED_BYTES);

/// The standard CRC32C of `length` zeros, which is the difference between the standard and the
/// linear CRC32C of any string of that length.
const fn zeros_crc32c(length: usize) -> u32 {
    const POLYNOMIAL_REFLECTED: u32 = 0x82f6_3b78;
    let mut register = u32::MAX;
    let mut bit = 0;
    while bit < length * 8 {
        let carry = register & 1 == 1;
        register >>= 1;
        if carry {
            register ^= POLYNOMIAL_REFLECTED;
        }
        bit += 1;
    }
    !register
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_of(number: u64) -> Block {
        let mut block = Block::zeroed();
        let mut value = number;
        for byte in block.bytes_mut() {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (value >> 56) as u8;
        }
        block
    }

    fn owner_of(number: u64) -> BlockOwner {
        BlockOwner::new(
            (3, 1),
            (VolumeId(7), Vvbn(number * 3)),
            (InodeNumber(64 + number), Fbn(number)),
            CpNumber(9),
        )
    }

    fn xor(into: &mut [u8], from: &[u8]) {
        into.iter_mut().zip(from).for_each(|(into, from)| *into ^= from);
    }

    #[test]
    fn known_values() {
        assert_eq!(crc32c_of_bytes(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&Block::zeroed()), BLOCK_ZEROS_CRC32C);
        assert_eq!(crc32c_of_bytes(&[0; CHECKED_BYTES]), CHECKED_ZEROS_CRC32C);
        assert_eq!(linear_crc32c(&[0; 100]), 0);
        let block = block_of(1);
        assert_eq!(to_standard(linear_crc32c(block.bytes())), crc32c(&block));
        assert_eq!(to_linear(crc32c(&block)), linear_crc32c(block.bytes()));
    }

    #[test]
    fn zeros_are_consistent() {
        let identity = BlockIdentity::zeroed();
        assert_eq!(identity.validate(), Ok(()));
        assert!(identity.has_checksum_of(&Block::zeroed()));
        assert!(!identity.has_checksum_of(&block_of(0)));
    }

    #[test]
    fn parity_of_identities_is_the_identity_of_parity() {
        let (mut parity, mut identity) = (Block::zeroed(), BlockIdentity::zeroed());
        for number in 0..5 {
            let block = block_of(number);
            let one = BlockIdentity::new(&owner_of(number), Pvbn(1000 + number), &block);
            assert_eq!(one.validate(), Ok(()));
            assert_eq!(one.owner(), owner_of(number));
            assert_eq!(one.pvbn(), Pvbn(1000 + number));
            assert_eq!(one.standard_checksum(), crc32c(&block));
            xor(parity.bytes_mut(), block.bytes());
            xor(identity.as_mut_bytes(), one.as_bytes());
            assert_eq!(identity.validate(), Ok(()));
            assert!(identity.has_checksum_of(&parity));
        }
    }

    #[test]
    fn a_block_is_expected_by_its_place_and_the_volume_it_was_born_in() {
        let expected = owner_of(1);
        assert!(BlockOwner { cp: CpNumber(10), ..expected }.is_same_place(&expected));
        for other in [
            BlockOwner { volume: VolumeId(8), ..expected },
            BlockOwner { volume: VolumeId(0), ..expected },
            BlockOwner { vvbn: Vvbn(4), ..expected },
            BlockOwner { inode: InodeNumber(64), ..expected },
            BlockOwner { fbn: Fbn(2), ..expected },
            BlockOwner { level: 0, ..expected },
            BlockOwner { kind: 1, ..expected },
        ] {
            assert!(!other.is_same_place(&expected), "{other}");
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let good = BlockIdentity::new(&owner_of(1), Pvbn(1), &block_of(1));
        for bit in 0..64 * 8 {
            let mut bad = good;
            bad.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
            assert!(bad.validate().is_err(), "bit {bit}");
        }
    }

    #[test]
    fn checksum_blocks_are_views() {
        let mut block = Block::zeroed();
        let identity = BlockIdentity::new(&owner_of(1), Pvbn(1), &block_of(1));
        ChecksumBlock::view_mut(&mut block).identities[62] = identity;
        assert_eq!(ChecksumBlock::view(&block).identities[62], identity);
        assert_eq!(&block[62 * 64..63 * 64], identity.as_bytes());
        assert_eq!(
            identity.to_string(),
            format!(
                "pvbn:1 of kind 3 level 1 volume:7 vvbn:3 inode:65 fbn:1 cp:9 crc32c {:#010x}",
                crc32c(&block_of(1))
            )
        );
    }
}
