//! The name of a feature, as a set of features has it on disk ([`crate::features`]).
//!
//! Invariants: an entry that is not used is all zero.
//!
//! Fails: bytes that are no name are shown as the feature's bit.

use std::fmt;
use std::mem::size_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a feature's name.
pub const FEATURE_NAME_BYTES_MAX: usize = 22;
/// The name of a feature that is set; all zero in an entry that is not used.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FeatureName {
    /// The number of its [`FeatureClass`](crate::features::FeatureClass).
    pub class: u8,
    /// Its bit.
    pub bit: u8,
    /// Its name, filled up with zeros.
    pub name: [u8; FEATURE_NAME_BYTES_MAX],
}

const _: () = assert!(size_of::<FeatureName>() == 24);

impl FeatureName {
    /// An entry of a class's number.
    pub(crate) fn of(class: u8, bit: u8, name: &str) -> Self {
        let mut entry = Self { class, bit, name: [0; FEATURE_NAME_BYTES_MAX] };
        entry.name.iter_mut().zip(name.bytes()).for_each(|(into, byte)| *into = byte);
        entry
    }

    /// The name, if it is one: letters, digits and signs, filled up with zeros.
    pub(crate) fn text(&self) -> Option<&str> {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        let (name, rest) = self.name.split_at(end);
        let is_padded = rest.iter().all(|byte| *byte == 0);
        std::str::from_utf8(name).ok().filter(|name| {
            is_padded && name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.is_empty()
        })
    }
}

impl fmt::Display for FeatureName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(name) => formatter.pad(name),
            None => write!(formatter, "bit {} of class {}", self.bit, self.class),
        }
    }
}

impl fmt::Debug for FeatureName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FeatureName({self})")
    }
}
