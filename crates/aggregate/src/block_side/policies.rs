//! What an administrator chooses for a volume beside its size and its name, as its record says it.
//!
//! Invariants: a record's feature [`REALLOCATION`] is set while its byte is not zero, and only
//! then, so that an older build does not take the byte for damage.

use crate::error::AggregateError;
use crate::relocation::tiering::Tiering;
use ondisk::features::REALLOCATION;
use ondisk::records::{
    AUTODELETE_ALL, AUTODELETE_OFF, AUTODELETE_SCHEDULED, GUARANTEE_NONE, GUARANTEE_VOLUME,
    REALLOCATION_AUTO, REALLOCATION_OFF, SCHEDULES, SNAPSHOTS_KEPT_MAX, VolumeRecord,
};
use units::{BLOCK_SIZE_U64, ByteSize};

/// Whether files that lie scattered are written anew when they are read in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reallocation {
    /// They are, in the background.
    #[default]
    Auto,
    /// Reading never has a file written anew.
    Off,
}

impl Reallocation {
    /// What a volume's record says; off, with a value of a newer build.
    #[must_use]
    pub const fn of(record: &VolumeRecord) -> Self {
        match record.reallocation {
            REALLOCATION_AUTO => Self::Auto,
            _ => Self::Off,
        }
    }

    /// Has a volume's record say it.
    pub fn store(self, record: &mut VolumeRecord) {
        match self {
            Self::Auto => {
                record.reallocation = REALLOCATION_AUTO;
                record.features.clear(&REALLOCATION);
            }
            Self::Off => {
                record.reallocation = REALLOCATION_OFF;
                record.features.set(&REALLOCATION);
            }
        }
    }
}

/// Largest volume that the format's block numbers reach: 64 PiB less the slack.
pub const VOLUME_BLOCKS_MAX: u64 = ondisk::pointer::BLOCK_NUMBER_MAX / 16 * 15;

/// The size in blocks that a volume grows to by itself where room is short; 0: it does not grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AutogrowMax(pub u64);

impl AutogrowMax {
    /// What a volume's record says.
    #[must_use]
    pub const fn of(record: &VolumeRecord) -> Self {
        Self(record.autogrow_max_blocks.get())
    }

    /// Whether a volume of this size may have it.
    ///
    /// # Errors
    /// The volume is larger already, or no volume may be as large.
    pub fn check(self, size_blocks: u64) -> Result<(), AggregateError> {
        let size = |blocks: u64| ByteSize(blocks.saturating_mul(BLOCK_SIZE_U64));
        if self.0 > VOLUME_BLOCKS_MAX {
            return Err(AggregateError::Refused(format!(
                "a volume grows to {} at most",
                size(VOLUME_BLOCKS_MAX)
            )));
        }
        if self.0 == 0 || self.0 >= size_blocks {
            return Ok(());
        }
        Err(AggregateError::Refused(format!(
            "its size is {} already, more than the {} that it is to grow to",
            size(size_blocks),
            size(self.0)
        )))
    }
}

/// How many hourly, daily, weekly and monthly snapshots a volume keeps; 0: none of these is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnapshotSchedule(pub [u16; SCHEDULES]);

impl SnapshotSchedule {
    /// What a volume's record says.
    #[must_use]
    pub fn of(record: &VolumeRecord) -> Self {
        Self(record.snapshots_kept.map(zerocopy::little_endian::U16::get))
    }

    /// # Errors
    /// They are too many.
    pub fn check(self) -> Result<(), AggregateError> {
        if self.0.iter().map(|count| u32::from(*count)).sum::<u32>() <= SNAPSHOTS_KEPT_MAX {
            return Ok(());
        }
        Err(AggregateError::Refused(format!(
            "schedules keep {SNAPSHOTS_KEPT_MAX} snapshots of a volume at most, all of them together"
        )))
    }
}

/// Which snapshots of a volume are deleted, oldest first, where room is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SnapshotAutodelete {
    /// None.
    #[default]
    Off,
    /// Those of schedules.
    Scheduled,
    /// Those of schedules first, then the others.
    All,
}

impl SnapshotAutodelete {
    /// What a volume's record says; off, with a value of a newer build, whose feature keeps the
    /// volume from being written.
    #[must_use]
    pub const fn of(record: &VolumeRecord) -> Self {
        match record.snapshot_autodelete {
            AUTODELETE_SCHEDULED => Self::Scheduled,
            AUTODELETE_ALL => Self::All,
            _ => Self::Off,
        }
    }

    /// Has a volume's record say it.
    pub fn store(self, record: &mut VolumeRecord) {
        record.set_snapshot_autodelete(match self {
            Self::Off => AUTODELETE_OFF,
            Self::Scheduled => AUTODELETE_SCHEDULED,
            Self::All => AUTODELETE_ALL,
        });
    }
}

/// How much room its aggregate keeps for a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guarantee {
    /// None: the volume takes room as it needs it.
    #[default]
    None,
    /// As many blocks as the volume lacks of its whole size.
    Volume,
}

impl Guarantee {
    /// What a volume's record says; none, with a value of a newer build, whose feature keeps the
    /// volume from being written.
    #[must_use]
    pub const fn of(record: &VolumeRecord) -> Self {
        match record.guarantee {
            GUARANTEE_VOLUME => Self::Volume,
            _ => Self::None,
        }
    }

    /// Has a volume's record say it.
    pub fn store(self, record: &mut VolumeRecord) {
        record.set_guarantee(match self {
            Self::None => GUARANTEE_NONE,
            Self::Volume => GUARANTEE_VOLUME,
        });
    }
}

/// Policies of a volume that are chosen anew, together; those that are not given stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeChange {
    /// Which of its blocks lie in object stores.
    pub tiering: Option<Tiering>,
    /// Whether reads reallocate.
    pub reallocation: Option<Reallocation>,
    /// The size that it grows to by itself.
    pub autogrow_max: Option<AutogrowMax>,
    /// How many snapshots are taken and kept.
    pub schedule: Option<SnapshotSchedule>,
    /// Which snapshots are deleted where room is short.
    pub autodelete: Option<SnapshotAutodelete>,
    /// How much room is kept for it.
    pub guarantee: Option<Guarantee>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::features::FeatureSet;

    #[test]
    fn a_record_says_what_was_chosen_and_an_older_build_can_read_it() {
        let mut record = VolumeRecord::empty();
        assert_eq!(Reallocation::of(&record), Reallocation::default());
        for _ in 0..2 {
            Reallocation::Off.store(&mut record);
            assert_eq!(Reallocation::of(&record), Reallocation::Off);
            assert!(record.features.has(&REALLOCATION));
        }
        for _ in 0..2 {
            Reallocation::Auto.store(&mut record);
            assert_eq!(Reallocation::of(&record), Reallocation::Auto);
            assert_eq!((record.reallocation, record.features), (0, FeatureSet::empty()));
        }
        record.reallocation = REALLOCATION_OFF + 1;
        assert_eq!(Reallocation::of(&record), Reallocation::Off);
    }
}
