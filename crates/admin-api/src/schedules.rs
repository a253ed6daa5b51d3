//! Schedules: snapshots that the node takes by itself, and how many of each it keeps.
//!
//! A snapshot of a schedule is known by its name, `hourly.2026-11-30_1100`, which nobody else may
//! give. Times are in UTC. Weeks begin on Monday.
//!
//! Invariants: a name that [`Schedule::name_at`] makes is of its schedule ([`Schedule::of_name`]);
//! a policy's text is read as the same policy.

use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use units::Timestamp;

const HOUR_SECONDS: i64 = 3600;
const DAY_SECONDS: i64 = 24 * HOUR_SECONDS;

/// How often a snapshot is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Schedule {
    /// At each full hour.
    Hourly,
    /// At midnight.
    Daily,
    /// At midnight before Monday.
    Weekly,
    /// At midnight before the first of a month.
    Monthly,
}

impl Schedule {
    /// All of them, in the order of [`SnapshotPolicy::kept`].
    pub const ALL: [Self; 4] = [Self::Hourly, Self::Daily, Self::Weekly, Self::Monthly];

    /// The word for it in policies and names.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }

    /// The number of the hour, day, week or month that a time lies in.
    #[must_use]
    pub fn period_of(self, time: Timestamp) -> i64 {
        let seconds = time.seconds();
        match self {
            Self::Hourly => seconds.div_euclid(HOUR_SECONDS),
            Self::Daily => seconds.div_euclid(DAY_SECONDS),
            // Day 0 was a Thursday.
            Self::Weekly => (seconds.div_euclid(DAY_SECONDS) + 3).div_euclid(7),
            Self::Monthly => {
                let (year, month) = Time(time).year_and_month();
                year * 12 + month
            }
        }
    }

    /// The name of a snapshot that is taken at this time.
    #[must_use]
    pub fn name_at(self, time: Timestamp) -> String {
        let minute = Timestamp::from_parts(time.seconds().div_euclid(60) * 60, 0);
        let text = Time(minute).to_string();
        let minute = text.trim_end_matches(":00Z").replace('T', "_").replace(':', "");
        format!("{}.{minute}", self.word())
    }

    /// The schedule that took the snapshot of this name, if one did.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let (word, minute) = name.split_once('.')?;
        let schedule = Self::ALL.into_iter().find(|schedule| schedule.word() == word)?;
        let (day, clock) = minute.split_once('_')?;
        let (hour, minute) = clock.split_at_checked(2)?;
        let time = format!("{day}T{hour}:{minute}:00Z").parse::<Time>().ok()?;
        (schedule.name_at(time.0) == name).then_some(schedule)
    }
}

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
    fn names_tell_their_schedule_and_no_other_name_does() {
        for schedule in Schedule::ALL {
            let name = schedule.name_at(at("2026-11-30T11:00:27.5Z"));
            assert_eq!(name, format!("{}.2026-11-30_1100", schedule.word()));
            assert_eq!(Schedule::of_name(&name), Some(schedule));
            crate::names::validate_name("snapshot", &name).unwrap();
        }
        for name in [
            "hourly",
            "hourly.",
            "hourly.2026-11-30",
            "hourly.2026-11-30_11",
            "hourly.2026-13-30_1100",
            "hourly.2026-11-30_1100x",
            "yearly.2026-11-30_1100",
            "before.2026-11-30_1100",
        ] {
            assert_eq!(Schedule::of_name(name), None, "{name}");
        }
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
