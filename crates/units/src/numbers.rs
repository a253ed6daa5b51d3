//! Newtypes for block numbers, identifiers and times.
//!
//! Invariants: a newtype is as wide as the format's field that stores it or wider; the format's
//! own limits are checked where a value is stored (`ondisk`), not here.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Debug, Display};
use std::hash::Hash;

/// The number of a 4 KiB block in one address space. Code that serves several spaces, such as the
/// free map of a volume and of an aggregate, is generic over it; all other code names its space.
///
/// A number of one space does not pass for a number of another:
///
/// ```compile_fail
/// fn free(block: units::Pvbn) {}
/// free(units::Vvbn(7));
/// ```
pub trait BlockNumber:
    Copy + Ord + Hash + Default + Debug + Display + Send + Sync + 'static
{
    /// The block with this number.
    fn new(number: u64) -> Self;

    /// The bare number.
    fn get(self) -> u64;

    /// The block that lies `count` further on.
    #[inline]
    #[must_use]
    fn offset(self, count: u64) -> Self {
        Self::new(self.get() + count)
    }

    /// The block that lies `count` further on; `None` beyond the last number there is.
    #[inline]
    #[must_use]
    fn checked_offset(self, count: u64) -> Option<Self> {
        self.get().checked_add(count).map(Self::new)
    }

    /// How many blocks lie from `earlier` to this one.
    ///
    /// # Panics
    /// If `earlier` is the later one, in builds that check overflow.
    #[inline]
    #[must_use]
    fn since(self, earlier: Self) -> u64 {
        self.get() - earlier.get()
    }

    /// The blocks from this one to `end`, exclusive.
    #[inline]
    fn until(self, end: Self) -> impl DoubleEndedIterator<Item = Self> + Clone {
        (self.get()..end.get()).map(Self::new)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number.
            #[inline]
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The number that lies `count` further on.
            #[inline]
            #[must_use]
            pub const fn offset(self, count: $inner) -> Self {
                Self(self.0 + count)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, formatter)
            }
        }
    };
}

macro_rules! block_number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        number!($(#[$doc])* $name(u64), $prefix);

        impl BlockNumber for $name {
            #[inline]
            fn new(number: u64) -> Self {
                Self(number)
            }

            #[inline]
            fn get(self) -> u64 {
                self.0
            }
        }
    };
}

block_number!(
    /// File block number: the index of a 4 KiB block within a file.
    Fbn,
    "fbn:"
);
block_number!(
    /// Virtual volume block number: the index of a block within a volume's container file. Zero is
    /// never a block; it marks a hole.
    Vvbn,
    "vvbn:"
);
block_number!(
    /// Physical volume block number: the index of a block within an aggregate. Zero is never a
    /// block; it marks a hole.
    Pvbn,
    "pvbn:"
);
block_number!(
    /// Disk block number: the index of a 4 KiB block within a disk's data area.
    Dbn,
    "dbn:"
);
number!(
    /// Inode number within one file system. Zero is never an inode; at most `u32::MAX`.
    InodeNumber(u64),
    "inode:"
);
number!(
    /// Distinguishes the files that held one inode number one after another.
    Generation(u32),
    "generation:"
);
number!(
    /// The number of a consistency point; an aggregate's are consecutive.
    CpNumber(u64),
    "cp:"
);
number!(
    /// A volume's number within its aggregate; never used again after a delete.
    VolumeId(u32),
    "volume:"
);
number!(
    /// A snapshot's number within its volume. Zero is the active file system.
    SnapshotId(u32),
    "snapshot:"
);
number!(
    /// A member of a group of volumes. Zero is the volume itself.
    MemberNumber(u32),
    "member:"
);
number!(
    /// Nanoseconds since 1970-01-01T00:00:00Z; negative before.
    Timestamp(i64),
    "ns:"
);

impl Vvbn {
    /// The same block as a block of the volume's container file, which has it in the same place
    /// (FlexVol section 3.1).
    #[inline]
    #[must_use]
    pub const fn in_container(self) -> Fbn {
        Fbn(self.0)
    }
}

impl Fbn {
    /// Beyond every block that a file can have.
    pub const END: Self = Self(u64::MAX);

    /// A block of a volume's container file, as a block of the volume: see [`Vvbn::in_container`].
    #[inline]
    #[must_use]
    pub const fn in_volume(self) -> Vvbn {
        Vvbn(self.0)
    }
}

impl SnapshotId {
    /// The active file system, as opposed to any snapshot.
    pub const ACTIVE: Self = Self(0);
    /// The `.snapshot` directory itself, which lies in no image.
    pub const DIRECTORY: Self = Self(u32::MAX);
}

impl MemberNumber {
    /// The volume itself, as opposed to another member of its group.
    pub const ITSELF: Self = Self(0);
}

impl CpNumber {
    /// The consistency point after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Timestamp {
    /// Whole seconds since the epoch, rounded towards the past.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// The nanoseconds beyond [`Self::seconds`]; below 1,000,000,000.
    #[must_use]
    pub const fn subsecond_nanoseconds(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }

    /// A time from seconds and nanoseconds; saturates at the ends of the range.
    #[must_use]
    pub const fn from_parts(seconds: i64, nanoseconds: u32) -> Self {
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds as i64))
    }
}
