//! Newtypes for block numbers, identifiers and times.
//!
//! Invariants: a newtype is as wide as the format's field that stores it or wider; the format's
//! own limits are checked where a value is stored (`ondisk`), not here.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The number that lies `count` further on.
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

number!(
    /// File block number: the index of a 4 KiB block within a file.
    Fbn(u64),
    "fbn:"
);
number!(
    /// Virtual volume block number: the index of a block within a volume's container file. Zero is
    /// never a block; it marks a hole.
    Vvbn(u64),
    "vvbn:"
);
number!(
    /// Physical volume block number: the index of a block within an aggregate. Zero is never a
    /// block; it marks a hole.
    Pvbn(u64),
    "pvbn:"
);
number!(
    /// Disk block number: the index of a 4 KiB block within a disk's data area.
    Dbn(u64),
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
