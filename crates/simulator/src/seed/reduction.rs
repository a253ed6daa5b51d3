//! A life made smaller: what of a seed's life is left out, so that a finding can be read.
//!
//! Since every choice has its own stream ([`crate::seed::choices::Purpose`]), what is left out
//! changes nothing of the rest but the moments at which it happens. As text a reduction is short
//! enough for a command line:
//! `simulator replay SEED --reduced 'rounds=2,calm=fault+changes,skip=0-11+13'`.
//!
//! Invariants: the empty reduction is the whole life; `parse` reads what `Display` writes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A kind of thing that a reduced life does not have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Calm {
    /// Disks and log do what they should.
    Fault,
    /// No volume is made or deleted later.
    Changes,
    /// One volume.
    Volumes,
    /// Consistency points come by themselves only.
    Points,
    /// One operation at a time in each volume.
    Parallel,
    /// What waits longest runs or completes first.
    Order,
    /// No message runs in the middle of another.
    Overlap,
    /// Only the last round ends with a power cut.
    EarlyCuts,
    /// Recovery is not interrupted.
    RecoveryCuts,
    /// As much memory as can be of use.
    Memory,
    /// The smallest number of disks, of the smallest size.
    Disks,
    /// No other aggregate.
    Neighbours,
    /// The build has all features.
    Lacking,
}

impl Calm {
    /// All of them, those first that make a life easier to read.
    pub const ALL: [Self; 13] = [
        Self::Fault,
        Self::Changes,
        Self::Volumes,
        Self::Parallel,
        Self::Overlap,
        Self::Order,
        Self::RecoveryCuts,
        Self::EarlyCuts,
        Self::Points,
        Self::Memory,
        Self::Disks,
        Self::Neighbours,
        Self::Lacking,
    ];

    /// Its name in the text of a reduction.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Changes => "changes",
            Self::Volumes => "volumes",
            Self::Points => "points",
            Self::Parallel => "parallel",
            Self::Order => "order",
            Self::Overlap => "overlap",
            Self::EarlyCuts => "early-cuts",
            Self::RecoveryCuts => "recovery-cuts",
            Self::Memory => "memory",
            Self::Disks => "disks",
            Self::Neighbours => "neighbours",
            Self::Lacking => "lacking",
        }
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reduction {
    /// The life ends after so many rounds.
    pub rounds: Option<u64>,
    /// What it does not have.
    pub calm: BTreeSet<Calm>,
    /// Operations that are not asked for, by their number in the life.
    pub skipped: BTreeSet<u64>,
    /// Another schedule and other moments of cuts: what is left out shifts them, and the finding
    /// may need other ones.
    pub salt: u64,
}

impl Reduction {
    /// Whether the life lacks this.
    #[must_use]
    pub fn is_calm(&self, calm: Calm) -> bool {
        self.calm.contains(&calm)
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(rounds) = self.rounds {
            parts.push(format!("rounds={rounds}"));
        }
        if !self.calm.is_empty() {
            let names: Vec<_> = self.calm.iter().map(|calm| calm.name()).collect();
            parts.push(format!("calm={}", names.join("+")));
        }
        if self.salt != 0 {
            parts.push(format!("salt={}", self.salt));
        }
        if !self.skipped.is_empty() {
            parts.push(format!("skip={}", ranges(&self.skipped).join("+")));
        }
        formatter.write_str(&parts.join(","))
    }
}

/// Numbers as `3-7` where they follow one another.
fn ranges(numbers: &BTreeSet<u64>) -> Vec<String> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(first, last): (u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect()
}

/// More operations than a life has: what a range in a text may name.
const OPERATIONS_MAX: u64 = 100_000;

impl FromStr for Reduction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut reduction = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let wrong = || {
                format!(
                    "'{part}' is no part of a reduction; write rounds=N, calm=NAME+NAME, salt=N \
                     or skip=FIRST-LAST+NUMBER"
                )
            };
            let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            match key {
                "rounds" => reduction.rounds = Some(number(value)?),
                "salt" => reduction.salt = number(value)?,
                "calm" => {
                    for name in value.split('+') {
                        let calm = Calm::ALL.into_iter().find(|calm| calm.name() == name);
                        reduction.calm.insert(calm.ok_or_else(wrong)?);
                    }
                }
                "skip" => {
                    for range in value.split('+') {
                        let (first, last) = range.split_once('-').unwrap_or((range, range));
                        let (first, last) = (number(first)?, number(last)?);
                        if first > last || last >= OPERATIONS_MAX {
                            return Err(wrong());
                        }
                        reduction.skipped.extend(first..=last);
                    }
                }
                _ => return Err(wrong()),
            }
        }
        Ok(reduction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back_and_wrong_ones_refused() {
        let reduction = Reduction {
            rounds: Some(2),
            calm: [Calm::Fault, Calm::EarlyCuts].into(),
            skipped: [0, 1, 2, 5, 7, 8].into(),
            salt: 3,
        };
        let text = reduction.to_string();
        assert_eq!(text, "rounds=2,calm=fault+early-cuts,salt=3,skip=0-2+5+7-8");
        assert_eq!(text.parse(), Ok(reduction));
        assert_eq!("".parse(), Ok(Reduction::default()));
        for wrong in ["rounds", "rounds=x", "calm=storm", "skip=5-1", "skip=1-9999999999", "x=1"] {
            assert!(wrong.parse::<Reduction>().is_err(), "{wrong}");
        }
    }
}
