//! Schedules of snapshots, and the names that tell them.
//!
//! A snapshot of a schedule is known by its name, `hourly.2026-11-30_1100`, which nobody else may
//! give. Times are in UTC. Weeks begin on Monday.
//!
//! Invariants: a name that [`Schedule::name_at`] makes is of its schedule ([`Schedule::of_name`]),
//! and no other name is.

use crate::Timestamp;
use crate::calendar::{SECONDS_PER_DAY, date_of, days_of};

const HOUR_SECONDS: i64 = 3600;
const MINUTE_SECONDS: i64 = 60;

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
    /// All of them, in the order in which a volume's record has them.
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
            Self::Daily => seconds.div_euclid(SECONDS_PER_DAY),
            // Day 0 was a Thursday.
            Self::Weekly => (seconds.div_euclid(SECONDS_PER_DAY) + 3).div_euclid(7),
            Self::Monthly => {
                let (year, month, _) = date_of(seconds.div_euclid(SECONDS_PER_DAY));
                year * 12 + month
            }
        }
    }

    /// The name of a snapshot that is taken at this time.
    #[must_use]
    pub fn name_at(self, time: Timestamp) -> String {
        let (days, second) = of_day(time.seconds());
        let (year, month, day) = date_of(days);
        let (hour, minute) = (second / HOUR_SECONDS, second % HOUR_SECONDS / MINUTE_SECONDS);
        format!("{}.{year:04}-{month:02}-{day:02}_{hour:02}{minute:02}", self.word())
    }

    /// The schedule that took the snapshot of this name, if one did.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let (word, minute) = name.split_once('.')?;
        let schedule = Self::ALL.into_iter().find(|schedule| schedule.word() == word)?;
        let number = |from: usize, to: usize| {
            let digits = minute.get(from..to)?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { digits.parse::<i64>().ok() } else { None }
        };
        let days = days_of((number(0, 4)?, number(5, 7)?, number(8, 10)?));
        let second = number(11, 13)? * HOUR_SECONDS + number(13, 15)? * MINUTE_SECONDS;
        let time = Timestamp::from_parts(days * SECONDS_PER_DAY + second, 0);
        // A date that does not exist is another day's, which has another name.
        (schedule.name_at(time) == name).then_some(schedule)
    }
}

/// The day that a time lies in, and its second of that day.
const fn of_day(seconds: i64) -> (i64, i64) {
    (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30T11:00:27Z.
    const TIME: Timestamp = Timestamp(1_796_036_427_000_000_000);

    #[test]
    fn names_tell_their_schedule_and_no_other_name_does() {
        for schedule in Schedule::ALL {
            let name = schedule.name_at(TIME);
            assert_eq!(name, format!("{}.2026-11-30_1100", schedule.word()));
            assert_eq!(Schedule::of_name(&name), Some(schedule));
        }
        for name in [
            "hourly",
            "hourly.",
            "hourly.2026-11-30",
            "hourly.2026-11-30_11",
            "hourly.2026-13-30_1100",
            "hourly.2026-02-29_1100",
            "hourly.2026-11-30_2400",
            "hourly.2026-11-30_1060",
            "hourly.2026-11-30_1100x",
            "hourly.2026-11-30_11\u{e9}",
            "hourly.+026-11-30_1100",
            "yearly.2026-11-30_1100",
            "before.2026-11-30_1100",
        ] {
            assert_eq!(Schedule::of_name(name), None, "{name}");
        }
    }
}
