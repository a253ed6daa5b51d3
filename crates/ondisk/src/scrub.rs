//! How far a scrub of an aggregate has come, and what it found: a field of the labels of the first
//! group's disks ([`crate::label::DiskLabel`]).
//!
//! All of those disks say the same, unless one of them missed something: the record with the
//! highest `serial` counts. All zeros: there never was a scrub.
//!
//! Fails: [`ScrubRecord::validate`] tells [`Damage`]; no bytes whatever panic.

use crate::damage::Damage;
use std::mem::size_of;
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Whether a scrub goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ScrubPhase {
    /// There never was one.
    #[default]
    Never,
    /// It goes on, also after a restart.
    Running,
    /// It waits until it is resumed.
    Paused,
    /// It was given up on its way.
    Stopped,
    /// It has seen everything.
    Finished,
}

impl ScrubPhase {
    /// The number on disk.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Never => 0,
            Self::Running => 1,
            Self::Paused => 2,
            Self::Stopped => 3,
            Self::Finished => 4,
        }
    }

    /// The phase of a number on disk.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Never),
            1 => Some(Self::Running),
            2 => Some(Self::Paused),
            3 => Some(Self::Stopped),
            4 => Some(Self::Finished),
            _ => None,
        }
    }
}

/// See the module.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ScrubRecord {
    /// [`ScrubPhase`].
    pub phase: u8,
    /// Not 0 if data counts where parity contradicts it: notes of stripes were lost, so parity of
    /// stripes that were being written may be wrong. [`PASSED_OVER`] if a disk was missing
    /// somewhere, so that the next scrub must do it again.
    pub trusts_data: u8,
    /// Zero.
    pub reserved_a: [u8; 2],
    /// How often the record was changed; of two the higher counts.
    pub serial: U32,
    /// Tetrises that were seen, of all groups in order: all before are, and what was repaired of
    /// them is durable.
    pub position: U64,
    /// When it began, in nanoseconds since 1970.
    pub started_nanoseconds: I64,
    /// When it ended, was paused or stopped, in nanoseconds since 1970; 0 while it runs.
    pub ended_nanoseconds: I64,
    /// Bytes a second that it may read from the disks; 0 if as many as they give.
    pub rate: U64,
    /// Seconds that it ran.
    pub active_seconds: U32,
    /// Blocks on data disks that were repaired.
    pub repaired_data: U32,
    /// Checksum blocks of data disks that were repaired.
    pub repaired_checksums: U32,
    /// Blocks on parity disks that were repaired.
    pub repaired_parity: U32,
    /// Blocks that could not be repaired.
    pub damaged: U32,
    /// Zero.
    pub reserved_b: U32,
}

const _: () = assert!(size_of::<ScrubRecord>() == 64);

/// See [`ScrubRecord::trusts_data`].
pub const PASSED_OVER: u8 = 3;

impl ScrubRecord {
    /// There never was a scrub.
    #[must_use]
    pub fn never() -> Self {
        Self::new_zeroed()
    }

    /// Whether it goes on; `None` if the number is none.
    #[must_use]
    pub const fn phase(&self) -> Option<ScrubPhase> {
        ScrubPhase::from_number(self.phase)
    }

    /// Whether every field holds what it can hold.
    ///
    /// # Errors
    /// What does not.
    pub fn validate(&self) -> Result<(), Damage> {
        let trust = [self.trusts_data & !3];
        let reserved: [&[u8]; 3] = [&trust, &self.reserved_a, self.reserved_b.as_bytes()];
        Damage::unless_zero("disk label", &reserved)?;
        if self.phase().is_none() {
            return Err(Damage::Field { structure: "disk label", field: "scrub" });
        }
        Ok(())
    }
}
