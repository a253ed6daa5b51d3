//! Identities for life: 128 random bits for each thing that outlives its place.
//!
//! A volume may move to another aggregate, and a snapshot is copied to mirrors. Numbers such as
//! [`crate::VolumeId`] count within a parent; an identity is the same everywhere and is never given
//! twice.
//!
//! Invariants: the identity of all zeros ([`is_nil`](VolumeUuid::is_nil)) names nothing. People
//! see 32 hexadecimal digits.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize,
            FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
        )]
        #[repr(transparent)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// The identity of nothing.
            pub const NIL: Self = Self([0; 16]);

            /// Whether it names nothing.
            #[must_use]
            pub const fn is_nil(self) -> bool {
                u128::from_be_bytes(self.0) == 0
            }

            /// 64 bits of it, as random as the whole.
            #[must_use]
            pub const fn half(self) -> u64 {
                let [a, b, c, d, e, f, g, h, ..] = self.0;
                u64::from_be_bytes([a, b, c, d, e, f, g, h])
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                state.write_u64(self.half());
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, formatter)
            }
        }
    };
}

identity!(
    /// A volume.
    VolumeUuid
);
identity!(
    /// A snapshot.
    SnapshotUuid
);
identity!(
    /// An aggregate.
    AggregateUuid
);
identity!(
    /// A disk of an aggregate or a spare, from the day it is labelled.
    DiskUuid
);
identity!(
    /// An operation log. An aggregate whose log was lost gets another.
    LogUuid
);
identity!(
    /// A range of an object store that serves as a disk.
    ObjectRangeUuid
);
identity!(
    /// A node: the owner that a range of an object store names.
    NodeUuid
);
identity!(
    /// One life of a node's process, from its start to its end.
    IncarnationUuid
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_shown_as_their_bytes() {
        let identity = VolumeUuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        assert_eq!(identity.to_string(), "000102030405060708090a0b0c0d0eff");
        assert!(!identity.is_nil() && VolumeUuid::NIL.is_nil());
    }
}
