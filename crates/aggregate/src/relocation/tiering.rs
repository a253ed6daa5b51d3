//! Which blocks of a volume lie in object stores: its policy, as administrators choose it.
//!
//! Invariants: a number of days is one that the record can hold ([`Tiering::check`]).

use ondisk::features::TIERING;
use ondisk::records::{
    COOLING_DAYS_MAX, COOLING_DAYS_MIN, TIERING_ALL, TIERING_AUTO, TIERING_NONE,
    TIERING_SNAPSHOT_ONLY, VolumeRecord,
};
use zerocopy::little_endian::U16;

/// Days until a block is cold that only snapshots hold: what was deleted by mistake is wanted back
/// within two days.
const SNAPSHOT_COOLING_DAYS: u16 = 2;
/// Days until any other is: what is used once a month stays.
const AUTO_COOLING_DAYS: u16 = 31;
/// Temperature scans in the days until a block is cold. One more must have come by
/// ([`ondisk::pointer::AGE_COLD`]), as it may have been written just before one.
const SCANS_PER_COOLING: i64 = ondisk::pointer::AGE_COLD as i64 - 1;
const DAY_NANOSECONDS: i64 = 24 * 3600 * 1_000_000_000;

/// What moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TieringPolicy {
    /// Nothing: what lies in object stores stays there until it is written anew.
    #[default]
    None,
    /// Cold blocks that only snapshots hold.
    SnapshotOnly,
    /// Cold blocks; what is read of them out of sequence moves back.
    Auto,
    /// All blocks of files, as soon as they were written.
    All,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tiering {
    /// What moves.
    pub policy: TieringPolicy,
    /// Days after which a block that was neither written nor read is cold; `None`: as the policy
    /// has it.
    pub cooling_days: Option<u16>,
}

impl Tiering {
    /// What a volume's record says.
    #[must_use]
    pub fn of(record: &VolumeRecord) -> Self {
        let policy = match record.tiering {
            TIERING_ALL => TieringPolicy::All,
            TIERING_SNAPSHOT_ONLY => TieringPolicy::SnapshotOnly,
            TIERING_AUTO => TieringPolicy::Auto,
            _ => TieringPolicy::None,
        };
        let days = record.cooling_days.get();
        Self { policy, cooling_days: (days != 0).then_some(days) }
    }

    /// Has a volume's record say it.
    pub fn store(self, record: &mut VolumeRecord) {
        if self.policy != TieringPolicy::None {
            record.features.set(&TIERING);
        }
        record.tiering = match self.policy {
            TieringPolicy::None => TIERING_NONE,
            TieringPolicy::All => TIERING_ALL,
            TieringPolicy::SnapshotOnly => TIERING_SNAPSHOT_ONLY,
            TieringPolicy::Auto => TIERING_AUTO,
        };
        record.cooling_days = U16::new(self.cooling_days.unwrap_or(0));
    }

    /// # Errors
    /// Why it cannot be, as a sentence.
    pub fn check(self) -> Result<(), String> {
        let allowed = COOLING_DAYS_MIN..=COOLING_DAYS_MAX;
        match self.cooling_days {
            Some(days) if !self.is_cooling() => Err(format!(
                "nothing cools for {days} days under the policies none and all; choose \
                 snapshot-only or auto, or leave the days out"
            )),
            Some(days) if !allowed.contains(&days) => Err(format!(
                "a block is cold after {COOLING_DAYS_MIN} to {COOLING_DAYS_MAX} days, not {days}"
            )),
            _ => Ok(()),
        }
    }

    /// Days after which a block is cold; `None` where age does not count.
    #[must_use]
    pub fn days(self) -> Option<u16> {
        match self.policy {
            TieringPolicy::None | TieringPolicy::All => None,
            TieringPolicy::SnapshotOnly => Some(self.cooling_days.unwrap_or(SNAPSHOT_COOLING_DAYS)),
            TieringPolicy::Auto => Some(self.cooling_days.unwrap_or(AUTO_COOLING_DAYS)),
        }
    }

    /// Whether blocks have an age.
    #[must_use]
    pub const fn is_cooling(self) -> bool {
        matches!(self.policy, TieringPolicy::SnapshotOnly | TieringPolicy::Auto)
    }

    /// Nanoseconds from the begin of a temperature scan to that of the next.
    pub(super) fn scan_period_nanoseconds(self) -> i64 {
        let days = self.days().unwrap_or(COOLING_DAYS_MAX);
        i64::from(days) * (DAY_NANOSECONDS / SCANS_PER_COOLING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_chosen() {
        use TieringPolicy::{All, Auto, None, SnapshotOnly};
        for policy in [None, SnapshotOnly, Auto, All] {
            for cooling_days in [Option::None, Some(2), Some(183)] {
                let tiering = Tiering { policy, cooling_days };
                let mut record = VolumeRecord::empty();
                tiering.store(&mut record);
                assert_eq!(Tiering::of(&record), tiering);
                assert_eq!(tiering.check().is_ok(), cooling_days.is_none() || tiering.is_cooling());
            }
            for days in [0, 1, 184] {
                assert!(Tiering { policy, cooling_days: Some(days) }.check().is_err());
            }
        }
    }

    #[test]
    fn eight_scans_take_the_days_that_were_asked_for() {
        let tiering = |policy| Tiering { policy, cooling_days: None };
        let hours = |tiering: Tiering| tiering.scan_period_nanoseconds() / (DAY_NANOSECONDS / 24);
        assert_eq!(hours(tiering(TieringPolicy::SnapshotOnly)), 2 * 24 / 8);
        assert_eq!(hours(tiering(TieringPolicy::Auto)), 31 * 24 / 8);
    }
}
