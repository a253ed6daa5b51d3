//! What a disk label says of the medium: a number, and the size that writes should heed.
//!
//! Invariants: a number is never given another meaning; 0 is a label of a version before 3, which
//! says nothing; only flash and shingles have a unit, in whole blocks.
//!
//! Fails: [`Medium::from_fields`] tells `None` for what no label holds.

use std::fmt;
use units::BLOCK_SIZE;

/// The largest unit, 2 GiB: more than any zone has, and its count of bytes fits the label's field.
pub const MEDIUM_UNIT_BYTES_MAX: u32 = 1 << 31;

/// A medium, as a label records it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Medium {
    /// The label is of an earlier version: ask the disk.
    Unrecorded,
    /// A head that moves over tracks that can be written one by one.
    Hdd,
    /// Flash, erased so many bytes at a time.
    Ssd(u32),
    /// A head that moves over tracks that overlap, in zones of so many bytes.
    Smr(u32),
    /// An object store.
    Object,
}

impl Medium {
    /// The number in the label, and the unit in bytes.
    #[must_use]
    pub const fn fields(self) -> (u8, u32) {
        match self {
            Self::Unrecorded => (0, 0),
            Self::Hdd => (1, 0),
            Self::Ssd(unit_bytes) => (2, unit_bytes),
            Self::Smr(unit_bytes) => (3, unit_bytes),
            Self::Object => (4, 0),
        }
    }

    /// The medium of a number and a unit in bytes; `None` if no label holds these.
    #[must_use]
    pub const fn from_fields(number: u8, unit_bytes: u32) -> Option<Self> {
        match (number, unit_bytes) {
            (0, 0) => Some(Self::Unrecorded),
            (1, 0) => Some(Self::Hdd),
            (2, unit_bytes) if is_unit(unit_bytes) => Some(Self::Ssd(unit_bytes)),
            (3, unit_bytes) if is_unit(unit_bytes) => Some(Self::Smr(unit_bytes)),
            (4, 0) => Some(Self::Object),
            _ => None,
        }
    }

    /// Whether there is a head that must move.
    #[must_use]
    pub const fn is_rotational(self) -> bool {
        matches!(self, Self::Hdd | Self::Smr(_))
    }
}

const fn is_unit(bytes: u32) -> bool {
    bytes > 0 && bytes <= MEDIUM_UNIT_BYTES_MAX && bytes.is_multiple_of(BLOCK_SIZE as u32)
}

impl fmt::Display for Medium {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrecorded => formatter.write_str("medium not recorded"),
            Self::Hdd => formatter.write_str("hdd"),
            Self::Ssd(unit_bytes) => write!(formatter, "ssd:{}", WholeUnits(*unit_bytes)),
            Self::Smr(unit_bytes) => write!(formatter, "smr:{}", WholeUnits(*unit_bytes)),
            Self::Object => formatter.write_str("object"),
        }
    }
}

/// A size in the largest unit of which it is a whole number, so that it reads back as it was.
struct WholeUnits(u32);

impl fmt::Display for WholeUnits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let whole = units.into_iter().find(|(power, _)| self.0.is_multiple_of(1 << power));
        match whole {
            Some((power, unit)) => write!(formatter, "{}{unit}", self.0 >> power),
            None => write!(formatter, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_survive_their_fields_and_nothing_else_does() {
        let media = [
            Medium::Unrecorded,
            Medium::Hdd,
            Medium::Ssd(4 << 20),
            Medium::Ssd(BLOCK_SIZE as u32),
            Medium::Smr(MEDIUM_UNIT_BYTES_MAX),
            Medium::Object,
        ];
        for medium in media {
            let (number, unit_bytes) = medium.fields();
            assert_eq!(Medium::from_fields(number, unit_bytes), Some(medium));
        }
        let wrong = [
            (0, 4096),
            (1, 4096),
            (2, 0),
            (2, 4097),
            (3, 0),
            (3, (1 << 31) + 4096),
            (4, 4096),
            (5, 0),
        ];
        for (number, unit_bytes) in wrong {
            assert_eq!(Medium::from_fields(number, unit_bytes), None, "{number} {unit_bytes}");
        }
    }

    #[test]
    fn units_are_shown_whole() {
        let shown = |bytes| Medium::Ssd(bytes).to_string();
        assert_eq!(shown(4 << 20), "ssd:4MiB");
        assert_eq!(shown((4 << 20) + 4096), "ssd:4100KiB");
        assert_eq!(Medium::Smr(1 << 30).to_string(), "smr:1GiB");
        assert_eq!(Medium::Hdd.to_string(), "hdd");
    }
}
