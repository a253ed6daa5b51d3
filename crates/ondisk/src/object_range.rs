//! An object range: what lies beside the data of a disk that is kept as objects in a bucket or a
//! directory (FreeSpace section 3.1, storage that is redundant by itself).
//!
//! The descriptor says what the range is; it is written once, when the range is made. The lease
//! says which process has it, and until when; its holder writes it again and again.
//!
//! Invariants:
//! - `size_blocks` and `blocks_per_object` never change: which object holds a block follows from
//!   them.
//! - A lease whose `expires_nanoseconds` is 0 was given back.
//!
//! Fails: `validate()` tells [`Damage`]; no bytes whatever panic.

use crate::damage::Damage;
use crate::identity::{REGION_BLOCKS, crc32c_of_bytes};
use crate::versions::FORMAT_VERSION;
use std::fmt;
use std::mem::{offset_of, size_of};
use units::{IncarnationUuid, NodeUuid, ObjectRangeUuid};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "STROOPOR".
pub const OBJECT_RANGE_MAGIC: u64 = u64::from_le_bytes(*b"STROOPOR");
/// "STROOPOL".
pub const OBJECT_LEASE_MAGIC: u64 = u64::from_le_bytes(*b"STROOPOL");

/// Blocks of a data object, at most: 64 MiB are put and merged at once.
pub const BLOCKS_PER_OBJECT_MAX: u32 = 16_384;
/// Blocks of a range, at most: 4 PiB, a billion objects of 4 MiB.
pub const OBJECT_RANGE_BLOCKS_MAX: u64 = 1 << 40;

/// Behind an object's blocks stands the incarnation of the opening that put it. So no two openings
/// put the same bytes, and the version of an object (in S3 a digest of its bytes) tells them apart.
pub const OBJECT_TRAILER_BYTES: u64 = 16;

const DESCRIPTOR: &str = "object range descriptor";
const LEASE: &str = "object range lease";

/// What an object range is.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ObjectRangeDescriptor {
    /// [`OBJECT_RANGE_MAGIC`].
    pub magic: U64,
    /// The version of the format; never moves.
    pub version: U16,
    /// Zero.
    pub reserved_a: U16,
    /// Standard CRC32C of the structure with this field zero.
    pub checksum: U32,
    /// Which range it is: of two that are made at once one remains.
    pub identity: ObjectRangeUuid,
    /// How many blocks the range has.
    pub size_blocks: U64,
    /// How many blocks a data object holds: a multiple of a region's 64.
    pub blocks_per_object: U32,
    /// Zero.
    pub reserved_b: U32,
    /// When the range was made, in nanoseconds since 1970.
    pub created_nanoseconds: I64,
    /// Zero.
    pub reserved_c: U64,
}

/// Who has an object range.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ObjectRangeLease {
    /// [`OBJECT_LEASE_MAGIC`].
    pub magic: U64,
    /// The version of the format; never moves.
    pub version: U16,
    /// Zero.
    pub reserved_a: U16,
    /// Standard CRC32C of the structure with this field zero.
    pub checksum: U32,
    /// The node that has it: the same after a restart.
    pub owner: NodeUuid,
    /// The opening that has it: another one each time.
    pub incarnation: IncarnationUuid,
    /// How often this opening has written it; no two writes are the same bytes.
    pub sequence: U64,
    /// Until when, in nanoseconds since 1970; 0 if it was given back.
    pub expires_nanoseconds: I64,
}

const _: () = {
    assert!(size_of::<ObjectRangeDescriptor>() == 64);
    assert!(size_of::<ObjectRangeLease>() == 64);
    // Read before the version is known.
    assert!(offset_of!(ObjectRangeDescriptor, version) == 8);
    assert!(offset_of!(ObjectRangeDescriptor, checksum) == 12);
    assert!(offset_of!(ObjectRangeLease, version) == 8);
    assert!(offset_of!(ObjectRangeLease, checksum) == 12);
    assert!((BLOCKS_PER_OBJECT_MAX as usize).is_multiple_of(REGION_BLOCKS));
};

/// The checks that both structures share.
fn check(
    structure: &'static str,
    (magic, expected): (U64, u64),
    version: U16,
    (found, computed): (U32, u32),
) -> Result<(), Damage> {
    if magic.get() != expected {
        return Err(Damage::Field { structure, field: "magic" });
    }
    let found = found.get();
    if found != computed {
        return Err(Damage::Checksum { structure, found, computed });
    }
    Damage::unless_read(structure, version.get())
}

impl ObjectRangeDescriptor {
    /// A descriptor of zeros but for magic and version, to be filled in.
    #[must_use]
    pub fn empty() -> Self {
        let mut descriptor = Self::new_zeroed();
        descriptor.magic = U64::new(OBJECT_RANGE_MAGIC);
        descriptor.version = U16::new(FORMAT_VERSION);
        descriptor
    }

    /// The descriptor in an object's bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        let descriptor = Self::read_from_bytes(bytes)
            .map_err(|_| Damage::Field { structure: DESCRIPTOR, field: "size" })?;
        descriptor.validate()?;
        Ok(descriptor)
    }

    /// The bytes to be written.
    ///
    /// # Panics
    /// If a field holds what it cannot hold.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut descriptor = self.clone();
        descriptor.checksum = U32::new(descriptor.computed_checksum());
        assert_eq!(descriptor.validate(), Ok(()), "a descriptor is valid when it is written");
        descriptor.as_bytes().to_vec()
    }

    fn computed_checksum(&self) -> u32 {
        let mut descriptor = self.clone();
        descriptor.checksum = U32::ZERO;
        crc32c_of_bytes(descriptor.as_bytes())
    }

    /// Whether every field holds what it can hold.
    ///
    /// # Errors
    /// The first that does not.
    pub fn validate(&self) -> Result<(), Damage> {
        let checksums = (self.checksum, self.computed_checksum());
        check(DESCRIPTOR, (self.magic, OBJECT_RANGE_MAGIC), self.version, checksums)?;
        let reserved =
            [self.reserved_a.as_bytes(), self.reserved_b.as_bytes(), self.reserved_c.as_bytes()];
        Damage::unless_zero(DESCRIPTOR, &reserved)?;
        let wrong = |field| Err(Damage::Field { structure: DESCRIPTOR, field });
        if self.identity.is_nil() {
            return wrong("identity");
        }
        if self.size_blocks.get() == 0 || self.size_blocks.get() > OBJECT_RANGE_BLOCKS_MAX {
            return wrong("size_blocks");
        }
        let blocks = self.blocks_per_object.get();
        let is_whole_regions = (blocks as usize).is_multiple_of(REGION_BLOCKS);
        if blocks == 0 || blocks > BLOCKS_PER_OBJECT_MAX || !is_whole_regions {
            return wrong("blocks_per_object");
        }
        Ok(())
    }
}

impl fmt::Display for ObjectRangeDescriptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "object range {}: {} blocks, {} in an object",
            self.identity, self.size_blocks, self.blocks_per_object,
        )
    }
}

impl fmt::Debug for ObjectRangeDescriptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl ObjectRangeLease {
    /// A lease of zeros but for magic and version, to be filled in.
    #[must_use]
    pub fn empty() -> Self {
        let mut lease = Self::new_zeroed();
        lease.magic = U64::new(OBJECT_LEASE_MAGIC);
        lease.version = U16::new(FORMAT_VERSION);
        lease
    }

    /// The lease in an object's bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        let lease = Self::read_from_bytes(bytes)
            .map_err(|_| Damage::Field { structure: LEASE, field: "size" })?;
        lease.validate()?;
        Ok(lease)
    }

    /// The bytes to be written.
    ///
    /// # Panics
    /// If a field holds what it cannot hold.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut lease = self.clone();
        lease.checksum = U32::new(lease.computed_checksum());
        assert_eq!(lease.validate(), Ok(()), "a lease is valid when it is written");
        lease.as_bytes().to_vec()
    }

    fn computed_checksum(&self) -> u32 {
        let mut lease = self.clone();
        lease.checksum = U32::ZERO;
        crc32c_of_bytes(lease.as_bytes())
    }

    /// Whether every field holds what it can hold.
    ///
    /// # Errors
    /// The first that does not.
    pub fn validate(&self) -> Result<(), Damage> {
        let checksums = (self.checksum, self.computed_checksum());
        check(LEASE, (self.magic, OBJECT_LEASE_MAGIC), self.version, checksums)?;
        Damage::unless_zero(LEASE, &[self.reserved_a.as_bytes()])?;
        let wrong = |field| Err(Damage::Field { structure: LEASE, field });
        if self.owner.is_nil() {
            return wrong("owner");
        }
        if self.incarnation.is_nil() {
            return wrong("incarnation");
        }
        if self.expires_nanoseconds.get() < 0 {
            return wrong("expires_nanoseconds");
        }
        Ok(())
    }
}

impl fmt::Display for ObjectRangeLease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "lease of {}, opening {}, written {} times, until {}",
            self.owner, self.incarnation, self.sequence, self.expires_nanoseconds,
        )
    }
}

impl fmt::Debug for ObjectRangeLease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> ObjectRangeDescriptor {
        let mut descriptor = ObjectRangeDescriptor::empty();
        descriptor.identity = ObjectRangeUuid([7; 16]);
        descriptor.size_blocks = 4096.into();
        descriptor.blocks_per_object = 1024.into();
        descriptor
    }

    fn lease() -> ObjectRangeLease {
        let mut lease = ObjectRangeLease::empty();
        (lease.owner, lease.incarnation) = (NodeUuid([1; 16]), IncarnationUuid([2; 16]));
        lease.expires_nanoseconds = 5.into();
        lease
    }

    #[test]
    fn what_is_written_is_read_and_every_flipped_bit_is_seen() {
        let bytes = descriptor().to_bytes();
        let read = ObjectRangeDescriptor::from_bytes(&bytes).unwrap();
        let text = "object range 07070707070707070707070707070707: 4096 blocks, 1024 in an object";
        assert_eq!(read.to_string(), text);
        let written = lease().to_bytes();
        assert_eq!(ObjectRangeLease::from_bytes(&written).unwrap().owner, NodeUuid([1; 16]));
        for bit in 0..bytes.len() * 8 {
            for (good, is_descriptor) in [(&bytes, true), (&written, false)] {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let refused = match is_descriptor {
                    true => ObjectRangeDescriptor::from_bytes(&bad).is_err(),
                    false => ObjectRangeLease::from_bytes(&bad).is_err(),
                };
                assert!(refused, "bit {bit}");
            }
        }
        assert!(ObjectRangeDescriptor::from_bytes(&bytes[1..]).is_err());
        assert!(ObjectRangeLease::from_bytes(&[]).is_err());
    }

    #[test]
    fn fields_out_of_range_are_named() {
        let sealed = |change: &dyn Fn(&mut ObjectRangeDescriptor)| {
            let mut descriptor = descriptor();
            change(&mut descriptor);
            descriptor.checksum = descriptor.computed_checksum().into();
            descriptor.validate()
        };
        let wrong = |field| Err(Damage::Field { structure: DESCRIPTOR, field });
        assert_eq!(sealed(&|_| ()), Ok(()));
        assert_eq!(sealed(&|it| it.identity = ObjectRangeUuid::NIL), wrong("identity"));
        assert_eq!(sealed(&|it| it.size_blocks = 0.into()), wrong("size_blocks"));
        assert_eq!(sealed(&|it| it.blocks_per_object = 65.into()), wrong("blocks_per_object"));
        assert_eq!(sealed(&|it| it.blocks_per_object = 0.into()), wrong("blocks_per_object"));
        assert!(matches!(
            sealed(&|it| it.version = 99.into()),
            Err(Damage::Version { found: 99, .. })
        ));
    }
}
