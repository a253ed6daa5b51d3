//! Block pointers: how a parent names and proves its child (decision 11, FlexVol section 3.3).
//!
//! Two formats. Within a volume a *dual* pointer of 16 bytes names the block in both number spaces:
//! the VVBN is its address in the volume, the PVBN a hint of where in the aggregate it lies. Within
//! an aggregate a *physical* pointer of 8 bytes names the PVBN; the block's identifier on media
//! carries the rest of the proof.
//!
//! Invariants: a pointer whose block number is zero is a hole and all its bytes are zero. Block
//! numbers are below 2^44 (64 PiB).
//!
//! Fails: never; any bytes decode to some pointer, and the child's proof catches a wrong one.

use units::{Pvbn, Vvbn};

/// One more than the largest block number: 2^44 blocks are 64 PiB.
pub const BLOCK_NUMBER_MAX: u64 = 1 << 44;
/// The PVBN of a dual pointer whose place in the aggregate is not known: ask the container map.
pub const PVBN_UNKNOWN: Pvbn = Pvbn(BLOCK_NUMBER_MAX - 1);

/// A pointer within a volume.
///
/// Bytes: VVBN 44 bits, PVBN 44 bits, flags 8 bits, CRC32C 32 bits, from the least significant
/// bit of a little-endian 128-bit number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash)]
pub struct DualPointer {
    /// The block's address in the volume; zero for a hole.
    pub vvbn: Vvbn,
    /// Where it lay in the aggregate when the pointer was written.
    pub pvbn: Pvbn,
    /// Reserved; zero.
    pub flags: u8,
    /// CRC32C of the child, taken with the PVBNs of the pointers in it as zero.
    pub checksum: u32,
}

/// A pointer within an aggregate.
///
/// Bytes: PVBN 44 bits, age 4 bits, check 16 bits, of a little-endian 64-bit number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash)]
pub struct PhysicalPointer {
    /// The block's address in the aggregate; zero for a hole.
    pub pvbn: Pvbn,
    /// The low 16 bits of the child's CRC32C.
    pub check: u16,
    /// In a container map, how many temperature scans have come by since the block was written or
    /// read: up to [`AGE_COLD`], or [`AGE_STAYS`]. Zero elsewhere.
    pub age: u8,
}

/// The `age` of a block that may lie in an object store: it stays at that.
pub const AGE_COLD: u8 = 9;
/// The `age` of a block that was found to be none of a file's data, and stays on disks.
pub const AGE_STAYS: u8 = 15;

const NUMBER_MASK: u128 = (BLOCK_NUMBER_MAX - 1) as u128;
/// The VVBN in the lower half of a dual pointer.
const VVBN_BITS: u64 = BLOCK_NUMBER_MAX - 1;
/// Of the PVBN what is in the upper half: all but its 20 lowest bits.
const PVBN_BITS_HIGH: u64 = (1 << (88 - 64)) - 1;

impl DualPointer {
    /// Encoded size in bytes.
    pub const SIZE: usize = 16;

    /// The encoded bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        debug_assert!(self.vvbn.get() < BLOCK_NUMBER_MAX && self.pvbn.get() < BLOCK_NUMBER_MAX);
        let number = u128::from(self.vvbn.get())
            | u128::from(self.pvbn.get()) << 44
            | u128::from(self.flags) << 88
            | u128::from(self.checksum) << 96;
        number.to_le_bytes()
    }

    /// The pointer that `bytes` encode.
    #[must_use]
    pub fn decode(bytes: [u8; Self::SIZE]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Self {
            vvbn: Vvbn((number & NUMBER_MASK) as u64),
            pvbn: Pvbn((number >> 44 & NUMBER_MASK) as u64),
            flags: (number >> 88) as u8,
            checksum: (number >> 96) as u32,
        }
    }

    /// The bytes of the same pointer with PVBN 0. Those of a hole, whose VVBN is zero, stay as they
    /// are. By halves and without a branch, so that a block's pointers take vector instructions.
    #[must_use]
    pub fn without_pvbn(bytes: [u8; Self::SIZE]) -> [u8; Self::SIZE] {
        let number = u128::from_le_bytes(bytes);
        let (low, high) = (number as u64, (number >> 64) as u64);
        let hole = if low & VVBN_BITS == 0 { u64::MAX } else { 0 };
        let (low, high) = (low & (VVBN_BITS | hole), high & (!PVBN_BITS_HIGH | hole));
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }
}

impl PhysicalPointer {
    /// Encoded size in bytes.
    pub const SIZE: usize = 8;

    /// The encoded bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        debug_assert!(self.pvbn.get() < BLOCK_NUMBER_MAX && self.age <= AGE_STAYS);
        let age = u64::from(self.age & AGE_STAYS) << 44;
        (self.pvbn.get() | age | u64::from(self.check) << 48).to_le_bytes()
    }

    /// The pointer that `bytes` encode.
    #[must_use]
    pub fn decode(bytes: [u8; Self::SIZE]) -> Self {
        let number = u64::from_le_bytes(bytes);
        Self {
            pvbn: Pvbn(number & (BLOCK_NUMBER_MAX - 1)),
            check: (number >> 48) as u16,
            age: (number >> 44) as u8 & AGE_STAYS,
        }
    }

    /// A pointer to a block that was written now.
    #[must_use]
    pub const fn new(pvbn: Pvbn, check: u16) -> Self {
        Self { pvbn, check, age: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_survive_encoding() {
        let largest = BLOCK_NUMBER_MAX - 1;
        for (vvbn, pvbn) in [(0, 0), (1, 2), (largest, 0), (0, largest), (largest, largest)] {
            let dual = DualPointer {
                vvbn: Vvbn(vvbn),
                pvbn: Pvbn(pvbn),
                flags: 0x5a,
                checksum: 0xdead_beef,
            };
            assert_eq!(DualPointer::decode(dual.encode()), dual);
            let pvbn_masked = if vvbn == 0 { dual.pvbn } else { Pvbn(0) };
            let masked = DualPointer { pvbn: pvbn_masked, ..dual };
            assert_eq!(DualPointer::without_pvbn(dual.encode()), masked.encode());
            for age in [0, 1, AGE_COLD, AGE_STAYS] {
                let physical = PhysicalPointer { pvbn: Pvbn(pvbn), check: 0xbeef, age };
                assert_eq!(PhysicalPointer::decode(physical.encode()), physical);
            }
        }
        assert_eq!(DualPointer::default().encode(), [0; 16]);
    }
}
