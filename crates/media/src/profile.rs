//! What a device is good at, and the size that writes to it should heed (FreeSpace sections 2.6
//! and 3.2).
//!
//! A block device tells what it is, as far as it does; of a file a person may say it (`--media`).
//! It is recorded in the label when the disk is labelled, and from then on the label counts. A
//! disk that replaces another is labelled like the others of its group.
//!
//! Invariants: a size is a multiple of 4 KiB from 4 KiB to 2 GiB; what is shown reads back as the
//! same profile; a size that a device does not tell, or that is no such size, is the default, never
//! a guess out of other figures.
//!
//! Fails: [`ParseProfileError`] says what can be written.

use ondisk::medium::{MEDIUM_UNIT_BYTES_MAX, Medium};
use platform::{Disk, MediaHints};
use std::fmt;
use std::str::FromStr;
use units::{BLOCK_SIZE_U64, ByteSize};

/// The erase block of an SSD that tells none: what drives of servers erase at a time across the
/// planes of a die, 4 MiB or a power of two below. A unit that holds several is right for all.
pub const ERASE_BLOCK_BYTES_DEFAULT: u32 = 4 << 20;
/// The zone of an SMR drive that tells none, as those that manage their zones themselves do: all
/// that tell have 256 MiB.
pub const ZONE_BYTES_DEFAULT: u32 = 256 << 20;

/// What a device is good at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Profile {
    /// A head that moves: long sequential requests.
    Hdd,
    /// No head: many requests at once. Flash is erased by the block, and what is in use in one has
    /// to be moved before.
    Ssd {
        /// What is erased at a time, in bytes.
        erase_block_bytes: u32,
    },
    /// A head that moves over tracks that overlap: a zone is written from its start to its end.
    Smr {
        /// The size of a zone, in bytes.
        zone_bytes: u32,
    },
    /// An object store: it protects its data itself, and places are of no account.
    Object,
}

impl Profile {
    /// The profile of a disk that nobody said anything about.
    #[must_use]
    pub fn of(disk: &dyn Disk) -> Self {
        Self::of_hints(disk.hints())
    }

    fn of_hints(hints: MediaHints) -> Self {
        if hints.is_object_store {
            return Self::Object;
        }
        let zone_bytes = hints.zone_bytes.and_then(unit);
        if hints.is_rotational {
            // A zone of a size that cannot be used is one all the same.
            return match hints.zone_bytes {
                Some(_) => Self::Smr { zone_bytes: zone_bytes.unwrap_or(ZONE_BYTES_DEFAULT) },
                None => Self::Hdd,
            };
        }
        // Flash that has zones erases them whole.
        let told = zone_bytes.or_else(|| hints.erase_block_bytes.and_then(unit));
        Self::Ssd { erase_block_bytes: told.unwrap_or(ERASE_BLOCK_BYTES_DEFAULT) }
    }

    /// The profile that a label records; `None` if it records none.
    #[must_use]
    pub const fn of_medium(medium: Medium) -> Option<Self> {
        match medium {
            Medium::Unrecorded => None,
            Medium::Hdd => Some(Self::Hdd),
            Medium::Ssd(erase_block_bytes) => Some(Self::Ssd { erase_block_bytes }),
            Medium::Smr(zone_bytes) => Some(Self::Smr { zone_bytes }),
            Medium::Object => Some(Self::Object),
        }
    }

    /// What a label records.
    #[must_use]
    pub const fn medium(self) -> Medium {
        match self {
            Self::Hdd => Medium::Hdd,
            Self::Ssd { erase_block_bytes } => Medium::Ssd(erase_block_bytes),
            Self::Smr { zone_bytes } => Medium::Smr(zone_bytes),
            Self::Object => Medium::Object,
        }
    }

    /// Whether there is a head that must move: then the distance between requests costs time.
    #[must_use]
    pub const fn is_rotational(self) -> bool {
        self.medium().is_rotational()
    }
}

/// A size that a profile can have.
fn unit(bytes: u64) -> Option<u32> {
    let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= MEDIUM_UNIT_BYTES_MAX)?;
    (bytes > 0 && u64::from(bytes).is_multiple_of(BLOCK_SIZE_U64)).then_some(bytes)
}

impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.medium().to_string())
    }
}

/// Why a text is no profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseProfileError {
    text: String,
}

impl fmt::Display for ParseProfileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "'{}' is no medium; write hdd, ssd, ssd:4MiB (with the size of an erase block), smr, \
             smr:256MiB (with the size of a zone) or object; sizes are multiples of 4KiB, {} at \
             the most",
            self.text,
            ByteSize(MEDIUM_UNIT_BYTES_MAX.into())
        )
    }
}

impl std::error::Error for ParseProfileError {}

impl FromStr for Profile {
    type Err = ParseProfileError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseProfileError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Profile> {
    let (kind, size) = match text.split_once(':') {
        Some((kind, size)) => (kind, Some(unit(size.parse::<ByteSize>().ok()?.0)?)),
        None => (text, None),
    };
    match (kind, size) {
        ("hdd", None) => Some(Profile::Hdd),
        ("ssd", size) => {
            let erase_block_bytes = size.unwrap_or(ERASE_BLOCK_BYTES_DEFAULT);
            Some(Profile::Ssd { erase_block_bytes })
        }
        ("smr", size) => Some(Profile::Smr { zone_bytes: size.unwrap_or(ZONE_BYTES_DEFAULT) }),
        ("object", None) => Some(Profile::Object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ssd(erase_block_bytes: u32) -> Profile {
        Profile::Ssd { erase_block_bytes }
    }

    #[test]
    fn profiles_are_read_as_users_write_them() {
        let check = |text: &str, profile| assert_eq!(text.parse(), Ok(profile), "{text}");
        check("hdd", Profile::Hdd);
        check("ssd", ssd(4 << 20));
        check("ssd:4MiB", ssd(4 << 20));
        check("ssd:16M", ssd(16 << 20));
        check("ssd:4096", ssd(4096));
        check("smr", Profile::Smr { zone_bytes: 256 << 20 });
        check("smr:2GiB", Profile::Smr { zone_bytes: 2 << 30 });
        check("object", Profile::Object);
        for wrong in [
            "",
            "tape",
            "HDD",
            "hdd:4MiB",
            "object:4MiB",
            "ssd:",
            "ssd:0",
            "ssd:5000",
            "ssd:4GiB",
            "smr:2049MiB",
            "ssd:-4096",
            "ssd:4MiB:1",
            " ssd",
            "ssd:17179869184E",
        ] {
            let error = wrong.parse::<Profile>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{wrong}' is no medium; write hdd")), "{error}");
        }
    }

    #[test]
    fn a_disk_is_what_it_tells_and_defaults_fill_in_sizes_only() {
        let check = |is_rotational, zone_bytes, erase_block_bytes, expected: &str| {
            let hints = MediaHints {
                is_rotational,
                zone_bytes,
                erase_block_bytes,
                ..MediaHints::default()
            };
            assert_eq!(Profile::of_hints(hints).to_string(), expected, "{hints:?}");
        };
        let of_objects = MediaHints { is_object_store: true, ..MediaHints::default() };
        assert_eq!(Profile::of_hints(of_objects), Profile::Object);
        check(false, None, None, "ssd:4MiB");
        check(true, None, None, "hdd");
        check(true, None, Some(1 << 20), "hdd");
        check(false, None, Some(1 << 20), "ssd:1MiB");
        check(false, None, Some(5000), "ssd:4MiB");
        check(false, None, Some(1 << 40), "ssd:4MiB");
        check(true, Some(128 << 20), None, "smr:128MiB");
        check(true, Some(1 << 40), None, "smr:256MiB");
        check(false, Some(64 << 20), Some(1 << 20), "ssd:64MiB");
    }

    proptest! {
        #[test]
        fn what_is_shown_and_recorded_reads_back(blocks in 1..=1_u32 << 19, kind in 0..4_u8) {
            let bytes = blocks * 4096;
            let profile = match kind {
                0 => Profile::Hdd,
                1 => ssd(bytes),
                2 => Profile::Smr { zone_bytes: bytes },
                _ => Profile::Object,
            };
            prop_assert_eq!(profile.to_string().parse(), Ok(profile));
            let (number, unit_bytes) = profile.medium().fields();
            let read = Medium::from_fields(number, unit_bytes).and_then(Profile::of_medium);
            prop_assert_eq!(read, Some(profile));
        }
    }
}
