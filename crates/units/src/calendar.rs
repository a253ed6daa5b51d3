//! Dates of days in UTC: the proleptic Gregorian calendar.
//!
//! Invariants: [`days_of`] of a date that [`date_of`] gives is the day that it was asked for.

/// Seconds of a day: there are no leap seconds.
pub const SECONDS_PER_DAY: i64 = 86_400;
/// Days from 0000-03-01, where the calendar's count begins, to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
/// Days in 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// Year, month and day of a day counted from 1970-01-01. Years are counted from March, so that the
/// leap day is the last of a year and months have a regular pattern of 153 days in five.
#[must_use]
pub const fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + EPOCH_DAYS;
    let (era, day) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + (month <= 2) as i64, month, day)
}

/// The day, counted from 1970-01-01, of a date. Of a date that does not exist it is some other day.
#[must_use]
pub const fn days_of((year, month, day): (i64, i64, i64)) -> i64 {
    let year = year - (month <= 2) as i64;
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * ERA_DAYS + year * 365 + year / 4 - year / 100 + day_of_year - EPOCH_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_belong_together() {
        for (day, date) in [
            (-719_528, (0, 1, 1)),
            (-1, (1969, 12, 31)),
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!((date_of(day), days_of(date)), (date, day));
        }
        assert!((-800_000..800_000).all(|day| days_of(date_of(day)) == day));
    }
}
