//! Durations as people write and read them: `90s 15m 4h 30d`.

use std::time::Duration;

const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Reads a duration.
///
/// # Errors
/// What was expected instead.
pub fn parse(text: &str) -> Result<Duration, String> {
    let expected = || format!("'{text}' is not a duration such as 90s, 15m, 4h or 30d");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?.1;
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
    Ok(Duration::from_secs(seconds.ok_or_else(expected)?))
}

/// Writes a duration in its two largest units, or as a fraction if it is short.
#[must_use]
pub fn format(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    if seconds < 60 {
        return match nanoseconds {
            0 => "0s".to_owned(),
            1..1_000 => format!("{nanoseconds}ns"),
            1_000..1_000_000 => format!("{}us", nanoseconds / 1_000),
            1_000_000..1_000_000_000 => format!("{}ms", nanoseconds / 1_000_000),
            _ => format!("{}.{}s", seconds, nanoseconds / 100_000_000 % 10),
        };
    }
    let Some(first) = UNITS.iter().position(|(_, unit)| seconds >= *unit) else {
        unreachable!("a minute or more has a unit")
    };
    let mut rest = seconds;
    let mut text = String::new();
    for (name, unit) in UNITS.iter().skip(first).take(2) {
        if rest / unit > 0 {
            text.push_str(&format!("{}{name}", rest / unit));
        }
        rest %= unit;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_users_write_them() {
        let check = |text, seconds| assert_eq!(parse(text), Ok(Duration::from_secs(seconds)));
        check("90s", 90);
        check("15m", 900);
        check("4h", 14_400);
        check("30d", 2_592_000);
        for wrong in ["", "s", "5", "5w", "-5s", "1.5h", "99999999999999999999s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&format!("{}d", u64::MAX)).is_err());
    }

    #[test]
    fn durations_print_in_two_units() {
        let check = |nanoseconds, text: &str| assert_eq!(format(nanoseconds), text);
        check(0, "0s");
        check(999, "999ns");
        check(12_345, "12us");
        check(12_345_678, "12ms");
        check(1_250_000_000, "1.2s");
        check(60_000_000_000, "1m");
        check(3_725_000_000_000, "1h2m");
        check(90_061_000_000_000, "1d1h");
        check(86_460_000_000_000, "1d");
    }
}
