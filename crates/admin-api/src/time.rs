//! Times as RFC 3339 text in UTC.
//!
//! Invariants: `parse(print(time)) == time` for every time of the years 0 to 9999, to the
//! nanosecond; the proleptic Gregorian calendar, no leap seconds.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::str::FromStr;
use units::Timestamp;
use units::calendar::{SECONDS_PER_DAY, date_of, days_of};

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub Timestamp);

/// The text is no RFC 3339 time in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a time such as 2026-11-20T18:32:28Z")]
pub struct ParseTimeError;

impl fmt::Display for Time {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanoseconds) = (self.0.seconds(), self.0.subsecond_nanoseconds());
        let (year, month, day) = date_of(seconds.div_euclid(SECONDS_PER_DAY));
        let second = seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if nanoseconds != 0 {
            text.push_str(format!(".{nanoseconds:09}").trim_end_matches('0'));
        }
        text.push('Z');
        formatter.pad(&text)
    }
}

impl FromStr for Time {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or(ParseTimeError)
    }
}

fn parse(text: &str) -> Option<Time> {
    let text = text.strip_suffix('Z')?;
    let (text, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let bytes = text.as_bytes();
    let signs = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if bytes.len() != 19 || signs.iter().any(|(at, sign)| bytes.get(*at) != Some(sign)) {
        return None;
    }
    let number = |from: usize, to: usize| digits(text.get(from..to)?);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fields = (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
    let day_number = days_of((year, month, day));
    if !fields || day < 1 || date_of(day_number) != (year, month, day) {
        return None;
    }
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let nanoseconds = u32::try_from(digits(&format!("{fraction:0<9}"))?).ok()?;
    let seconds = day_number * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    Some(Time(Timestamp::from_parts(seconds, nanoseconds)))
}

fn digits(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times_print_and_parse() {
        let check = |seconds: i64, nanoseconds: u32, text: &str| {
            let time = Time(Timestamp::from_parts(seconds, nanoseconds));
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse(), Ok(time));
        };
        check(0, 0, "1970-01-01T00:00:00Z");
        check(951_782_400, 0, "2000-02-29T00:00:00Z");
        check(1_795_199_548, 500_000_000, "2026-11-20T18:32:28.5Z");
        check(-1, 1, "1969-12-31T23:59:59.000000001Z");
        check(4_107_542_399, 0, "2100-02-28T23:59:59Z");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for wrong in [
            "",
            "Z",
            "2026-11-20",
            "2026-11-20T18:32:28",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567890Z",
            "+026-01-01T00:00:00Z",
        ] {
            assert_eq!(wrong.parse::<Time>(), Err(ParseTimeError), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_time_survives_its_text(nanoseconds in any::<i64>()) {
            let time = Time(Timestamp(nanoseconds));
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }

        #[test]
        fn every_day_follows_the_one_before(day in -800_000_i64..4_000_000) {
            let (year, month, of_month) = date_of(day);
            prop_assert_eq!(days_of((year, month, of_month)), day);
            let (next_year, next_month, next) = date_of(day + 1);
            let same_month = (next_year, next_month) == (year, month) && next == of_month + 1;
            prop_assert!(same_month || next == 1);
        }

        #[test]
        fn any_text_is_judged_without_a_panic(text in ".{0,40}") {
            let _ = text.parse::<Time>();
        }
    }
}
