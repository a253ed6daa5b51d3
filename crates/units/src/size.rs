//! Byte sizes as people write and read them: `10G` is 10 GiB, `10GB` is 10^10 bytes; printed in
//! KiB, MiB, GiB.
//!
//! Fails: [`ParseByteSizeError`] says what was expected.

use std::fmt;
use std::str::FromStr;

/// A count of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ByteSize(pub u64);

/// Why a text is no size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseByteSizeError {
    text: String,
}

impl fmt::Display for ParseByteSizeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "'{}' is not a size; write a number and a unit such as 512M, 10G, 1.5TiB (powers of \
             1024) or 10GB (powers of 1000)",
            self.text
        )
    }
}

impl std::error::Error for ParseByteSizeError {}

const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text.trim()).map(Self).ok_or_else(|| ParseByteSizeError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let (letter, base) = match unit.as_str() {
        "" | "B" => ("", 1024_u64),
        other => match (other.strip_suffix("IB"), other.strip_suffix('B')) {
            (Some(letter), _) => (letter, 1024),
            (None, Some(letter)) => (letter, 1000),
            (None, None) => (other, 1024),
        },
    };
    let power = UNITS.iter().position(|unit| *unit == letter)?;
    let scale = base.checked_pow(u32::try_from(power).ok()?)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let bytes = number.parse::<f64>().ok()? * scale as f64;
    (bytes.is_finite() && bytes < u64::MAX as f64).then_some(bytes as u64)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut power = 0;
        while value >= 1024.0 && power + 1 < UNITS.len() {
            value /= 1024.0;
            power += 1;
        }
        let text = match power {
            0 => format!("{}B", self.0),
            _ if value >= 100.0 || value.fract() < 0.05 => format!("{value:.0}{}iB", UNITS[power]),
            _ => format!("{value:.1}{}iB", UNITS[power]),
        };
        formatter.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_as_users_write_them() {
        let check =
            |text: &str, bytes: u64| assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        check("0", 0);
        check("512", 512);
        check("10G", 10 << 30);
        check("10GiB", 10 << 30);
        check("10GB", 10_000_000_000);
        check("1.5M", 3 << 19);
        check("4kib", 4096);
        for wrong in ["", "G", "10X", "-1", "1e9", "99999999999E"] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_print_in_powers_of_1024() {
        assert_eq!(ByteSize(512).to_string(), "512B");
        assert_eq!(ByteSize(10 << 30).to_string(), "10GiB");
        assert_eq!(ByteSize(3 << 29).to_string(), "1.5GiB");
    }
}
