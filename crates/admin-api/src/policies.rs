//! Policies of a volume: which of its blocks lie in object stores, whether reads reallocate, and
//! which snapshots go where room is short.
//!
//! Invariants: a policy's word is the same in JSON and on the command line.

use serde::{Deserialize, Serialize};
use std::fmt;
use units::ByteSize;

/// Which blocks of a volume lie in the object stores of its aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TieringPolicy {
    /// No block moves there; a block that is there stays until it is written anew.
    #[default]
    None,
    /// Cold blocks that only snapshots hold.
    SnapshotOnly,
    /// Cold blocks; a block that is read at random moves back.
    Auto,
    /// The blocks of all files, soon after they were written.
    All,
}

impl TieringPolicy {
    /// Whether days count, and how many if nobody says.
    #[must_use]
    pub const fn default_cooling_days(self) -> Option<u16> {
        match self {
            Self::None | Self::All => None,
            Self::SnapshotOnly => Some(2),
            Self::Auto => Some(31),
        }
    }
}

impl fmt::Display for TieringPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::None => "none",
            Self::SnapshotOnly => "snapshot-only",
            Self::Auto => "auto",
            Self::All => "all",
        })
    }
}

impl std::str::FromStr for TieringPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let policies = [Self::None, Self::SnapshotOnly, Self::Auto, Self::All];
        let found = policies.into_iter().find(|policy| policy.to_string() == text);
        found.ok_or_else(|| {
            format!("'{text}' is no tiering policy; write none, snapshot-only, auto or all")
        })
    }
}

/// Whether a file that lies scattered on disks is written anew in order when it is read in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reallocation {
    /// It is, in the background; blocks that snapshots hold are not doubled.
    #[default]
    Auto,
    /// Reading never has a file written anew.
    Off,
}

impl fmt::Display for Reallocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Auto => "auto",
            Self::Off => "off",
        })
    }
}

impl std::str::FromStr for Reallocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Auto, Self::Off].into_iter().find(|one| one.to_string() == text);
        found
            .ok_or_else(|| format!("'{text}' is no policy of read reallocation; write auto or off"))
    }
}

/// Which snapshots of a volume are deleted, oldest first, where room is short. Those that are held,
/// or that clones began with, stay.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Scheduled, Self::All];
}

impl fmt::Display for SnapshotAutodelete {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Off => "off",
            Self::Scheduled => "scheduled",
            Self::All => "all",
        })
    }
}

impl std::str::FromStr for SnapshotAutodelete {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| {
            format!("'{text}' does not say which snapshots go; write off, scheduled or all")
        })
    }
}

/// How much room its aggregate keeps for a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// None: the volume takes room as it needs it.
    #[default]
    None,
    /// What the volume lacks of its whole size: nobody else has it.
    Volume,
}

impl Guarantee {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::None, Self::Volume];
}

impl fmt::Display for Guarantee {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::None => "none",
            Self::Volume => "volume",
        })
    }
}

impl std::str::FromStr for Guarantee {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| format!("'{text}' is no guarantee of space; write none or volume"))
    }
}

/// The bytes of a largest size as users write it, "100G"; 0 for "off".
///
/// # Errors
/// It is neither, in words.
pub fn parse_autogrow_max(text: &str) -> Result<u64, String> {
    if text == "off" {
        return Ok(0);
    }
    let size = text.parse::<ByteSize>().map_err(|error| format!("{error}; or write off"))?;
    if size.0 == 0 {
        Err("write off for a volume that does not grow".to_owned())
    } else {
        Ok(size.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_largest_size_is_a_size_or_off() {
        assert_eq!(parse_autogrow_max("off"), Ok(0));
        assert_eq!(parse_autogrow_max("2G"), Ok(2 << 30));
        assert!(parse_autogrow_max("0").unwrap_err().contains("write off"));
        assert!(parse_autogrow_max("big").unwrap_err().ends_with("or write off"));
    }

    #[test]
    fn words_are_the_same_in_json_and_on_the_command_line() {
        for reallocation in [Reallocation::Auto, Reallocation::Off] {
            let word = reallocation.to_string();
            assert_eq!(word.parse(), Ok(reallocation));
            assert_eq!(serde_json::to_value(reallocation).unwrap(), word);
        }
        assert!("on".parse::<Reallocation>().unwrap_err().ends_with("write auto or off"));
        for autodelete in SnapshotAutodelete::ALL {
            let word = autodelete.to_string();
            assert_eq!(word.parse(), Ok(autodelete));
            assert_eq!(serde_json::to_value(autodelete).unwrap(), word);
        }
        for guarantee in Guarantee::ALL {
            let word = guarantee.to_string();
            assert_eq!(word.parse(), Ok(guarantee));
            assert_eq!(serde_json::to_value(guarantee).unwrap(), word);
        }
        assert!("file".parse::<Guarantee>().unwrap_err().ends_with("none or volume"));
        assert!("on".parse::<SnapshotAutodelete>().unwrap_err().ends_with("scheduled or all"));
    }
}
