//! Schedules: snapshots that the node takes by itself, and how many of each it keeps.
//!
//! Invariants: a policy's text is read as the same policy. A snapshot of a [`Schedule`] is known by
//! its name.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
pub use units::Schedule;

/// How many snapshots of each schedule a volume keeps. Of a schedule with 0 no snapshot is taken,
/// and none is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotPolicy {
    /// At each full hour.
    #[serde(default)]
    pub hourly: u16,
    /// At midnight.
    #[serde(default)]
    pub daily: u16,
    /// At midnight before Monday.
    #[serde(default)]
    pub weekly: u16,
    /// At midnight before the first of a month.
    #[serde(default)]
    pub monthly: u16,
}

/// Six hourly, seven daily and four weekly snapshots.
impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self::of_kept([6, 7, 4, 0])
    }
}

impl SnapshotPolicy {
    /// No snapshot is taken.
    pub const NONE: Self = Self::of_kept([0; 4]);
    /// Snapshots of all schedules together that a volume may keep.
    pub const KEPT_MAX: u32 = 1000;

    /// [`Self::NONE`].
    #[must_use]
    pub const fn none() -> Self {
        Self::NONE
    }

    /// How many of each schedule are kept, in the order of [`Schedule::ALL`].
    #[must_use]
    pub const fn of_kept([hourly, daily, weekly, monthly]: [u16; 4]) -> Self {
        Self { hourly, daily, weekly, monthly }
    }

    /// See [`Self::of_kept`].
    #[must_use]
    pub const fn kept(self) -> [u16; 4] {
        [self.hourly, self.daily, self.weekly, self.monthly]
    }

    /// Each schedule of which snapshots are taken, and how many are kept.
    pub fn schedules(self) -> impl Iterator<Item = (Schedule, usize)> {
        let all = Schedule::ALL.into_iter().zip(self.kept());
        all.filter(|(_, kept)| *kept > 0).map(|(schedule, kept)| (schedule, usize::from(kept)))
    }

    /// # Errors
    /// It keeps more than [`Self::KEPT_MAX`], in words.
    pub fn check(self) -> Result<Self, String> {
        match self.kept().into_iter().map(u32::from).sum::<u32>() {
            0..=Self::KEPT_MAX => Ok(self),
            kept => Err(format!(
                "{kept} snapshots are more than the {} that schedules keep at most",
                Self::KEPT_MAX
            )),
        }
    }
}

impl fmt::Display for SnapshotPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.schedules().map(|(schedule, kept)| format!("{}={kept}", schedule.word()));
        let text = each.collect::<Vec<_>>().join(",");
        formatter.pad(if text.is_empty() { "none" } else { &text })
    }
}

impl FromStr for SnapshotPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no snapshot policy; write default, none, or how many snapshots are \
                 kept, such as hourly=6,daily=7,weekly=4,monthly=12"
            )
        };
        match text {
            "default" => return Ok(Self::default()),
            "none" => return Ok(Self::NONE),
            _ => {}
        }
        let mut kept = [None; 4];
        for part in text.split(',') {
            let (word, count) = part.split_once('=').ok_or_else(wrong)?;
            let place = Schedule::ALL.iter().position(|schedule| schedule.word() == word);
            let place = &mut kept[place.ok_or_else(wrong)?];
            let count = count.parse::<u16>().map_err(|_| wrong())?;
            if place.replace(count).is_some() {
                return Err(wrong());
            }
        }
        Self::of_kept(kept.map(Option::unwrap_or_default)).check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;
    use units::Timestamp;

    fn at(text: &str) -> Timestamp {
        text.parse::<Time>().unwrap().0
    }

    #[test]
    fn periods_begin_with_hours_days_mondays_and_months() {
        let begins = |schedule: Schedule, last: &str, first: &str| {
            assert_eq!(schedule.period_of(at(last)) + 1, schedule.period_of(at(first)), "{first}");
        };
        begins(Schedule::Hourly, "2026-11-30T10:59:59.999Z", "2026-11-30T11:00:00Z");
        begins(Schedule::Daily, "2026-11-30T23:59:59Z", "2026-12-01T00:00:00Z");
        begins(Schedule::Weekly, "2026-11-29T23:59:59Z", "2026-11-30T00:00:00Z");
        begins(Schedule::Monthly, "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z");
        begins(Schedule::Hourly, "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z");
        let weekly = |time| Schedule::Weekly.period_of(at(time));
        assert_eq!(weekly("2026-11-30T00:00:00Z"), weekly("2026-12-06T23:59:59Z"));
    }

    #[test]
    fn names_of_schedules_are_names() {
        let name = Schedule::Hourly.name_at(at("2026-11-30T11:00:27.5Z"));
        assert_eq!(name, "hourly.2026-11-30_1100");
        crate::names::validate_name("snapshot", &name).unwrap();
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        let default = SnapshotPolicy::default();
        assert_eq!(default.to_string(), "hourly=6,daily=7,weekly=4");
        for policy in [default, SnapshotPolicy::NONE, SnapshotPolicy::of_kept([0, 0, 0, 9])] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("default".parse(), Ok(default));
        assert_eq!("weekly=4,hourly=0".parse(), Ok(SnapshotPolicy::of_kept([0, 0, 4, 0])));
        for text in
            ["", "hourly", "hourly=", "hourly=-1", "yearly=1", "daily=1,daily=2", "daily=1,"]
        {
            assert!(text.parse::<SnapshotPolicy>().unwrap_err().contains("such as"), "{text}");
        }
        assert!("hourly=900,daily=101".parse::<SnapshotPolicy>().unwrap_err().contains("1001"));
    }
}
